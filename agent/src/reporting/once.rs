//! `run --once`: writes the status once and exits.

use std::time::Duration;

use super::Report;
use crate::api::lease::Cycle;
use crate::api::taints::TaintOutcome;
use crate::clock::BootNanos;
use crate::config::Mode;

/// Time limit of the whole run. Most of it allows for an API server that is unavailable at first.
const LIMIT: Duration = Duration::from_secs(30);

/// The writes that are to be done.
#[derive(Debug)]
pub struct Once {
    deadline: BootNanos,
    status: Step,
    lease: Step,
    taints: Step,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    ToDo,
    Done,
    Failed,
}

impl Step {
    fn of<T, E>(result: &Result<T, E>) -> Self {
        match result {
            Ok(_) => Self::Done,
            Err(_) => Self::Failed,
        }
    }
}

impl Once {
    /// The Lease is renewed only in node mode.
    #[must_use]
    pub fn new(mode: Mode, now: BootNanos) -> Self {
        Self {
            deadline: now.plus(LIMIT),
            status: Step::ToDo,
            lease: match mode {
                Mode::Node => Step::ToDo,
                Mode::Companion => Step::Done,
            },
            // Reported before the status, and only if there are taints to write.
            taints: Step::Done,
        }
    }

    /// When the run ends at the latest.
    #[must_use]
    pub fn deadline(&self) -> BootNanos {
        self.deadline
    }

    /// Records the result of a request.
    pub fn record(&mut self, report: &Report) {
        match report {
            Report::Synced { outcome, .. } => self.status = Step::of(outcome),
            // There is no Lease before the Node exists; the next cycle creates it.
            Report::Lease(Ok(Cycle::NoNode))
            | Report::OtherHolder(_)
            | Report::Registered { .. }
            | Report::Event(_) => {}
            Report::Tainted(TaintOutcome { failed, .. }) => {
                self.taints = match failed {
                    None => Step::Done,
                    Some(_) => Step::Failed,
                };
            }
            Report::Lease(cycle) => self.lease = Step::of(cycle),
        }
    }

    /// `None` while writes are pending; the error names the write that failed or timed out.
    #[must_use]
    pub fn outcome(&self, now: BootNanos) -> Option<Result<(), &'static str>> {
        match (self.status, self.lease) {
            (Step::Failed, _) => Some(Err("status")),
            (Step::Done, Step::Failed) => Some(Err("lease")),
            (Step::Done, Step::Done) if self.taints == Step::Failed => Some(Err("taints")),
            (Step::Done, Step::Done) => Some(Ok(())),
            (Step::ToDo, _) if self.deadline <= now => Some(Err("status")),
            (Step::Done, Step::ToDo) if self.deadline <= now => Some(Err("lease")),
            (Step::ToDo, _) | (Step::Done, Step::ToDo) => None,
        }
    }
}
