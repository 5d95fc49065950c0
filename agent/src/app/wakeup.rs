//! Events that wake the loop.

use nodepulse_core::record::Received;
use nodepulse_core::subjects::PodInput;
use nodepulse_linux::logind::PowerMessage;

use crate::queries::blocking::Answer;
use crate::reporting::Report;
use crate::serve::{StatePage, StateRequest};

pub(super) enum Wakeup {
    Kernel(Received),
    /// A helper thread has answered a question.
    Host(Answer),
    Api(Report),
    Pods(PodInput),
    /// A request for metrics, `status`, `explain` or a recording.
    Request(StateRequest),
    Reload,
    Power(PowerMessage),
    Tick,
}

impl Wakeup {
    /// The label of this kind in metrics.
    pub(super) const fn cause(&self) -> &'static str {
        match self {
            Self::Kernel(_) => "kernel",
            Self::Host(_) => "host",
            Self::Api(_) => "api",
            Self::Pods(_) => "pods",
            Self::Request(StateRequest::Page {
                page: StatePage::Metrics,
                ..
            }) => "scrape",
            Self::Request(_) => "control",
            Self::Reload => "reload",
            Self::Power(_) => "logind",
            Self::Tick => "alarm",
        }
    }
}
