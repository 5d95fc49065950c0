//! The Event about OOM kills whose victims are unknown.

use serde::{Deserialize, Serialize};

use super::Words;

/// In the message of such an Event, and in its place in one that is combined with others, whose victims
/// may be known.
pub const VICTIMS_UNKNOWN: &str = "the victims are unknown";
/// See [`VICTIMS_UNKNOWN`].
pub const SOME_VICTIMS_UNKNOWN: &str = "some victims are unknown";

/// OOM kills that the kernel counted but no record reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnidentifiedKills {
    /// Where they were.
    pub place: KillPlace,
    /// How many.
    pub kills: u64,
    /// Those of them for which an Event was recorded before and dropped.
    pub again: u64,
    /// When they happened.
    pub period: Period,
}

/// Where unidentified kills were.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum KillPlace {
    /// In the cgroup with this path, or below it.
    Cgroup(String),
    /// Outside of the pods.
    NoPod,
    /// Only the node counted them.
    Unknown,
}

/// When unidentified kills happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Period {
    /// Since the counters were read last.
    Now,
    /// Before the agent was started, or the previous agent could not report them.
    WhileDown,
}

impl UnidentifiedKills {
    /// Without the number, which is the Event's `count`: so more of the same raise it.
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
