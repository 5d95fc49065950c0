//! Rates at which disks transfer.

use std::fmt;
use std::time::Duration;

use super::Bytes;

/// Bytes per second, shown in the decimal units in which disks are sold: `12 MB/s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(pub Bytes);

impl Rate {
    /// Divides `bytes` by `elapsed`. If no time has passed, it is taken as a second.
    pub fn of(bytes: u64, elapsed: Duration) -> Self {
        let rate = u128::from(bytes)
            .saturating_mul(1_000_000)
            .checked_div(elapsed.as_micros());
        let rate = rate.and_then(|rate| u64::try_from(rate).ok());
        Self(Bytes::from_bytes(rate.unwrap_or(bytes)))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.0.get();
        let tenths = rate.saturating_add(50_000) / 100_000;
        if tenths >= 100 {
            write!(f, "{} MB/s", rate.saturating_add(500_000) / 1_000_000)
        } else if tenths >= 10 {
            write!(f, "{}.{} MB/s", tenths / 10, tenths % 10)
        } else {
            write!(f, "{} kB/s", rate.div_ceil(1000))
        }
    }
}
