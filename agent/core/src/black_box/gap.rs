//! Finds times in which no agent ran, from the records of the ring.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Record;
use crate::clock::Now;
use crate::incident::{BootId, Occurred};
use crate::kube_event::Words;

/// A restart or an upgrade takes less time than this.
const RESTART: Duration = Duration::from_mins(1);

/// A time in which no agent ran, within one boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AgentGap {
    /// The agent was stopped. Otherwise it was killed or has failed, at some time after its last
    /// record.
    pub stopped: bool,
    /// Seconds from the last record to the next start.
    pub seconds: u64,
}

impl AgentGap {
    /// Returns the gap that ends now; `None` if the last agent was stopped and started again within
    /// a minute, or if none has run in this boot. `records` are in their order.
    pub fn find(records: &[Record], machine: u64, boot: BootId, now: Now) -> Option<Occurred> {
        let is_here = |record: &&Record| record.origin.machine == machine;
        let last = records.iter().rev().find(is_here)?;
        let length = now.boot.since(last.at.boot);
        let stopped = last.marks.agent_stopped;
        if last.origin.boot != boot || (stopped && length < RESTART) {
            return None;
        }
        let seconds = length.as_secs().max(1);
        Some(Occurred::gap(Self { stopped, seconds }, last.at, now))
    }

    pub fn words(self) -> Words {
        let Self { stopped, seconds } = self;
        let message = if stopped {
            format!("No agent ran for {seconds} s: it was stopped, and started again")
        } else {
            format!("The agent was killed or failed within the {seconds} s before its next start")
        };
        Words {
            reason: "AgentDown",
            message,
        }
    }
}
