//! The times at which a status is sent.
//!
//! The status is computed often and sent rarely: after a change, and every few minutes without one.
//! A patch goes to every watcher of Nodes, which is why the Lease is the heartbeat.

use std::time::Duration;

use crate::clock::BootNanos;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SendReason {
    /// Nothing has been sent since the agent started.
    First,
    /// The status differs from what the API server has.
    Changed,
    /// The report period is over.
    Heartbeat,
}

/// The decision about a computed status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportDue {
    Now(SendReason),
    /// The status is sent only if more than the heartbeat times changed.
    IfChanged,
}

/// The time at which the next unchanged status is due.
///
/// ```text
///          sent(First)                    sent(Changed): draws again
/// None  ───────────────► drawn period ◄──────────────────────────┐
///                             │                                  │
///                             └── sent(Heartbeat) ──► plain period ──► sent(Heartbeat) …
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportSchedule {
    period: Duration,
    due: Option<BootNanos>,
}

impl ReportSchedule {
    /// An unchanged status is due every `period`, `nodeStatusReportFrequency`.
    pub const fn new(period: Duration) -> Self {
        Self { period, due: None }
    }

    /// Decides if a status is sent at `now` even if nothing in it has changed.
    pub fn decide(&self, now: BootNanos) -> ReportDue {
        match self.due {
            None => ReportDue::Now(SendReason::First),
            Some(due) if due <= now => ReportDue::Now(SendReason::Heartbeat),
            Some(_) => ReportDue::IfChanged,
        }
    }

    /// Returns the time at which an unchanged status is to be sent; `None` before the first.
    pub const fn due(&self) -> Option<BootNanos> {
        self.due
    }

    /// Records that a status was sent and accepted at `now`.
    ///
    /// `fraction` is a random number from 0 to 1. After a first or a changed status it places the
    /// next report once between half a period and one and a half, so that thousands of nodes that
    /// started together do not report together.
    pub fn sent(&mut self, now: BootNanos, why: SendReason, fraction: f64) {
        let period = match why {
            SendReason::First | SendReason::Changed => {
                Duration::try_from_secs_f64(self.period.as_secs_f64() * (0.5 + fraction))
                    .unwrap_or(self.period)
            }
            SendReason::Heartbeat => self.period,
        };
        self.due = Some(now.plus(period));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::boot as at;

    const PERIOD: Duration = Duration::from_mins(5);

    fn is_due_at(reporter: &ReportSchedule, second: u64, why: &str) {
        let heartbeat = ReportDue::Now(SendReason::Heartbeat);
        let decided = [second - 1, second].map(|second| reporter.decide(at(second)));
        assert_eq!(decided, [ReportDue::IfChanged, heartbeat], "{why}");
    }

    #[test]
    fn a_status_is_sent_first_then_after_a_drawn_period_then_every_period() {
        // fraction → second report at s
        for (fraction, second) in [(0.0, 150), (0.5, 300), (1.0, 450)] {
            let mut reporter = ReportSchedule::new(PERIOD);
            assert_eq!(reporter.decide(at(0)), ReportDue::Now(SendReason::First));
            assert_eq!(
                reporter.decide(at(10)),
                ReportDue::Now(SendReason::First),
                "until one is accepted"
            );
            reporter.sent(at(0), SendReason::First, fraction);
            is_due_at(&reporter, second, "a drawn period after the first");
            reporter.sent(at(second), SendReason::Heartbeat, fraction);
            let third = second + 300;
            is_due_at(&reporter, third, "no offset after a heartbeat");
            reporter.sent(at(third), SendReason::Changed, fraction);
            is_due_at(&reporter, third + second, "a change draws again");
        }
    }

    #[test]
    fn an_invalid_fraction_causes_no_offset() {
        for fraction in [f64::NAN, f64::INFINITY, -2.0] {
            let mut reporter = ReportSchedule::new(PERIOD);
            reporter.sent(at(0), SendReason::First, fraction);
            is_due_at(&reporter, 300, &fraction.to_string());
        }
    }
}
