//! The operation that is due next, with growing delays after failures.

use super::CertificateOperation;
use crate::backoff::{Backoff, Jitter};
use crate::clock::BootNanos;

/// An operation that is due later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) due: BootNanos,
    pub(super) operation: CertificateOperation,
}

/// The operation that is under way or due next.
#[derive(Debug)]
pub(super) struct Schedule {
    pub(super) is_working: bool,
    pub(super) plan: Option<Planned>,
    /// The kind of the last delay, and its state.
    backoff: Option<(Backoff, Backoff)>,
    pub(super) jitter: Jitter,
}

impl Schedule {
    pub(super) const fn new(jitter: Jitter) -> Self {
        Self {
            is_working: false,
            plan: None,
            backoff: None,
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
        let backoff = match &mut self.backoff {
            Some(last) if last.0 == kind => last,
            last => last.insert((kind, kind)),
        };
        let delay = backoff.1.advance();
        let delay = self.jitter.stretch(delay, 0.5);
        self.plan(operation, now.plus(delay));
    }

    /// The next delay of any kind is the shortest one.
    pub(super) const fn reset(&mut self) {
        self.backoff = None;
    }

    /// Returns true if no operation is under way or planned.
    pub(super) const fn is_free(&self) -> bool {
        !self.is_working && self.plan.is_none()
    }

    pub(super) fn due(&self) -> Option<BootNanos> {
        Some(self.plan.filter(|_| !self.is_working)?.due)
    }
}
