//! `run --once`: writes the status once and exits.

use std::time::Duration;

use nodepulse_core::clock::BootNanos;
use nodepulse_core::settings::Mode;
use nodepulse_kube::lease::Cycle;
use nodepulse_kube::taints::TaintOutcome;

use super::Report;

/// Time limit of the whole run. Most of it allows for an API server that is unavailable at first.
const LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Once {
    deadline: BootNanos,
    status: Progress,
    lease: Progress,
    taints: Progress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    ToDo,
    Done,
    Failed,
}

impl Progress {
    fn of<T, E>(result: &Result<T, E>) -> Self {
        match result {
            Ok(_) => Self::Done,
            Err(_) => Self::Failed,
        }
    }
}

impl Once {
    /// The Lease is renewed only in node mode.
    pub fn new(mode: Mode, now: BootNanos) -> Self {
        Self {
            deadline: now.plus(LIMIT),
            status: Progress::ToDo,
            lease: match mode {
                Mode::Node => Progress::ToDo,
                Mode::Companion => Progress::Done,
            },
            // Reported before the status, and only if there are taints to write.
            taints: Progress::Done,
        }
    }

    pub fn deadline(&self) -> BootNanos {
        self.deadline
    }

    pub fn record(&mut self, report: &Report) {
        match report {
            Report::Synced { outcome, .. } => self.status = Progress::of(outcome),
            // There is no Lease before the Node exists; the next cycle creates it.
            Report::Lease(Ok(Cycle::NoNode))
            | Report::OtherHolder(_)
            | Report::ApiServer { .. }
            | Report::Registered { .. }
            | Report::Event(_)
            | Report::Certificate(_) => {}
            Report::Tainted(TaintOutcome { failed, .. }) => {
                self.taints = match failed {
                    None => Progress::Done,
                    Some(_) => Progress::Failed,
                };
            }
            Report::Lease(cycle) => self.lease = Progress::of(cycle),
        }
    }

    /// `None` while writes are pending; the error names the write that failed or timed out.
    pub fn outcome(&self, now: BootNanos) -> Option<Result<(), &'static str>> {
        match (self.status, self.lease) {
            (Progress::Failed, _) => Some(Err("status")),
            (Progress::Done, Progress::Failed) => Some(Err("lease")),
            (Progress::Done, Progress::Done) if self.taints == Progress::Failed => {
                Some(Err("taints"))
            }
            (Progress::Done, Progress::Done) => Some(Ok(())),
            (Progress::ToDo, _) if self.deadline <= now => Some(Err("status")),
            (Progress::Done, Progress::ToDo) if self.deadline <= now => Some(Err("lease")),
            (Progress::ToDo, _) | (Progress::Done, Progress::ToDo) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nodepulse_kube::ApiError;
    use nodepulse_kube::lease::Renewed;

    use super::*;
    use crate::reporting::{Wait, Why};

    fn failed() -> ApiError {
        let why = "a test".to_owned();
        ApiError::InCluster { why }
    }

    fn status(written: bool) -> Report {
        Report::Synced {
            why: Why::Tick,
            stamps: BTreeMap::new(),
            outcome: if written { Ok(None) } else { Err(failed()) },
            node: Vec::new(),
            next: Wait::Short,
        }
    }

    fn lease(written: bool) -> Report {
        let (sent, acked) = (BootNanos(1), BootNanos(2));
        let renewed = Ok(Cycle::Renewed(Renewed { sent, acked }));
        Report::Lease(if written { renewed } else { Err(failed()) })
    }

    fn taints(written: bool) -> Report {
        Report::Tainted(TaintOutcome {
            written,
            failed: (!written).then(failed),
        })
    }

    #[test]
    fn the_run_ends_when_everything_is_written_or_one_write_failed_or_timed_out() {
        use Mode::{Companion, Node};

        let in_time = Duration::ZERO;
        let no_node = || Report::Lease(Ok(Cycle::NoNode));
        #[rustfmt::skip]
        let rows = [
            (Node, vec![], in_time, None),
            (Node, vec![], LIMIT, Some(Err("status"))),
            (Node, vec![status(true)], in_time, None),
            (Node, vec![status(true)], LIMIT, Some(Err("lease"))),
            (Node, vec![status(true), no_node()], in_time, None),
            (Node, vec![lease(true)], in_time, None),
            (Node, vec![lease(true)], LIMIT, Some(Err("status"))),
            (Node, vec![status(true), lease(true)], in_time, Some(Ok(()))),
            (Node, vec![status(true), lease(true)], LIMIT, Some(Ok(()))),
            (Node, vec![status(false)], in_time, Some(Err("status"))),
            (Node, vec![status(true), lease(false)], in_time, Some(Err("lease"))),
            (Companion, vec![], in_time, None),
            (Companion, vec![status(true)], in_time, Some(Ok(()))),
            (Companion, vec![taints(false), status(true)], in_time, Some(Err("taints"))),
            (Companion, vec![taints(false), taints(true), status(true)], in_time, Some(Ok(()))),
            (Companion, vec![taints(true)], in_time, None),
        ];
        let start = BootNanos(7);
        for (mode, reports, after, expected) in rows {
            let mut once = Once::new(mode, start);
            for report in &reports {
                once.record(report);
            }
            let outcome = once.outcome(start.plus(after));
            assert_eq!(outcome, expected, "{mode:?} {after:?} {reports:?}");
        }
    }
}
