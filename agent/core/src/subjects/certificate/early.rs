//! The delay before the next request if a certificate is past its rotation point when it is issued.
//!
//! The clock of this machine is ahead, or the signer starts the life of certificates in the past.
//! Without a delay, the successor would be requested at once, and the successor of that.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::client_certificate::Certificate;
use crate::clock::{BootNanos, Now};

const LEAST: Duration = Duration::from_mins(1);
/// The shortest delay as a part of the time to the expiry when it was issued, if that is longer: a
/// tenth.
const LEAST_PART: u32 = 10;

/// A certificate that was past its rotation point when it was issued.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Early {
    /// Number of such certificates in a row, for the delay, which doubles.
    times: u32,
    /// No request before.
    pub(super) until: BootNanos,
    /// Whether a line was logged, one for all in a row.
    pub(super) is_logged: bool,
}

impl Early {
    /// `None` if the certificate was stored long enough ago, or at an unknown time.
    pub(super) fn new(certificate: &Certificate, last: Option<Self>, now: Now) -> Option<Self> {
        let stored = certificate.stored?;
        let left = certificate.not_after.duration_since(stored);
        let left = left.unwrap_or_default();
        let part = left.checked_div(LEAST_PART);
        let shortest = LEAST.max(part.unwrap_or_default());
        let times = last.map_or(0, |last| last.times).saturating_add(1);
        let factor = 2u32.checked_pow(times.saturating_sub(1));
        let delay = shortest.saturating_mul(factor.unwrap_or(u32::MAX));
        // The successor is to be there before the expiry, if that leaves the shortest delay.
        let quarter = left.checked_div(4);
        let latest = quarter.unwrap_or_default().saturating_mul(3);
        let delay = delay.min(latest).max(shortest);
        let age = now.wall.duration_since(stored).unwrap_or_default();
        let rest = delay.checked_sub(age).filter(|rest| !rest.is_zero())?;
        Some(Self {
            times,
            until: now.boot.plus(rest),
            is_logged: last.is_some_and(|last| last.is_logged),
        })
    }
}
