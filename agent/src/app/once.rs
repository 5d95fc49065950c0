//! One sync, and the end: `run --once`.

use std::time::Duration;

use super::{App, AppError};
use crate::api::lease::Cycle;
use crate::api::taints::TaintOutcome;
use crate::clock::BootNanos;
use crate::config::Mode;
use crate::reporting::Report;

/// Longest that it may take. Most of it is for an API server that comes back.
const LIMIT: Duration = Duration::from_secs(30);

/// What is still to be done.
#[derive(Debug)]
pub(super) struct Once {
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
    /// The Lease is a node's own only in node mode.
    pub(super) fn new(mode: Mode, now: BootNanos) -> Self {
        Self {
            deadline: now.plus(LIMIT),
            status: Step::ToDo,
            lease: match mode {
                Mode::Node => Step::ToDo,
                Mode::Companion => Step::Done,
            },
            // Told of before the status, and only where there is something to write.
            taints: Step::Done,
        }
    }

    pub(super) fn deadline(&self) -> BootNanos {
        self.deadline
    }

    /// Takes note of what a request came to.
    pub(super) fn took(&mut self, report: &Report) {
        match report {
            Report::Synced { outcome, .. } => self.status = Step::of(outcome),
            // Before there is a Node there is no Lease; the next cycle comes with it.
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

    /// Whether it is over, and what was not done.
    pub(super) fn outcome(&self, now: BootNanos) -> Option<Result<(), &'static str>> {
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

impl App {
    /// What `--once` came to; `None` while there is more to do.
    pub(super) fn once_over(&self) -> Option<Result<(), AppError>> {
        let once = self.once.as_ref()?;
        if self.reporting.is_none() {
            return Some(Ok(()));
        }
        let outcome = once.outcome(self.clock.now().boot)?;
        Some(outcome.map_err(AppError::NotWritten))
    }
}
