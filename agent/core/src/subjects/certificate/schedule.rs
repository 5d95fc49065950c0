//! The operation that is due next, with growing delays after failures.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::CertificateOperation;
use crate::backoff::{Backoff, Jitter};
use crate::clock::BootNanos;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Planned {
    pub(super) due: BootNanos,
    pub(super) operation: CertificateOperation,
}

/// The operation that is under way or due next.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Schedule {
    pub(super) is_working: bool,
    pub(super) plan: Option<Planned>,
    /// The state of each kind of delay.
    backoffs: Vec<(Backoff, Backoff)>,
    pub(super) jitter: Jitter,
}

impl Schedule {
    pub(super) const fn new(jitter: Jitter) -> Self {
        Self {
            is_working: false,
            plan: None,
            backoffs: Vec::new(),
            jitter,
        }
    }

    pub(super) fn plan(&mut self, operation: CertificateOperation, due: BootNanos) {
        self.plan = Some(Planned { due, operation });
    }

    /// Plans an operation after a delay, which is stretched by up to half.
    pub(super) fn plan_after(
        &mut self,
        kind: Backoff,
        operation: CertificateOperation,
        now: BootNanos,
    ) {
        let due = now.plus(self.delay(kind));
        self.plan(operation, due);
    }

    /// Returns the next delay of this kind, which grows until [`Schedule::reset`].
    pub(super) fn delay(&mut self, kind: Backoff) -> Duration {
        let known = self.backoffs.iter().position(|known| known.0 == kind);
        let known = known.unwrap_or_else(|| {
            self.backoffs.push((kind, kind));
            self.backoffs.len() - 1
        });
        let delay = self.backoffs.get_mut(known).map(|known| known.1.advance());
        self.jitter.stretch(delay.unwrap_or_default(), 0.5)
    }

    /// The next delay of any kind is the shortest one.
    pub(super) fn reset(&mut self) {
        self.backoffs.clear();
    }

    pub(super) fn due(&self) -> Option<BootNanos> {
        Some(self.plan.filter(|_| !self.is_working)?.due)
    }
}
