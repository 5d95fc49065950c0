//! The Event about OOM kills whose victims are unknown.

use serde::{Deserialize, Serialize};

use super::Words;

/// Part of the message of such an Event. [`SOME_VICTIMS_UNKNOWN`] replaces it in an Event that is
/// combined with others, whose victims may be known.
pub const VICTIMS_UNKNOWN: &str = "the victims are unknown";
/// See [`VICTIMS_UNKNOWN`].
pub const SOME_VICTIMS_UNKNOWN: &str = "some victims are unknown";

/// OOM kills that the kernel counted but no record reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnidentifiedKills {
    pub place: KillPlace,
    pub kills: u64,
    pub period: Period,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum KillPlace {
    /// In the cgroup with this path, or below it.
    Cgroup(String),
    NoPod,
    /// Only the node counted them.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Period {
    /// Since the counters were read last.
    Now,
    /// Before the agent was started, or the previous agent could not report them.
    WhileDown,
}

impl UnidentifiedKills {
    /// Leaves out the number, which is the Event's `count`: further kills raise it.
    pub(super) fn words(&self, whereabouts: &str) -> Words {
        let when = match self.period {
            Period::Now => "",
            Period::WhileDown => " while the agent was down or could not report it",
        };
        Words {
            reason: "OOMKilled",
            message: format!(
                "OOM kills{whereabouts}{when}: {VICTIMS_UNKNOWN}; the count of this Event is the number of kills"
            ),
        }
    }
}
