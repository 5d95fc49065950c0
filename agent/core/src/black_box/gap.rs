//! Finds times in which no agent ran, from the records of the ring.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::Record;
use crate::clock::Now;
use crate::incident::{BootId, Occurred};
use crate::kube_event::Words;

/// A restart or an upgrade takes less time than this.
const RESTART: Duration = Duration::from_mins(1);
/// An agent that fails again and again has one gap in this time.
const INTERVAL: Duration = Duration::from_mins(10);
/// Records are written this long after they were made, at the latest.
const UNWRITTEN: Duration = Duration::from_mins(2);

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

/// What is known about the last agent apart from its records.
#[derive(Debug, Clone, Copy, Default)]
pub struct LastAgent {
    /// When it wrote the state file.
    pub saved: Option<SystemTime>,
    /// The end of the last gap in the history.
    pub gap: Option<SystemTime>,
}

impl AgentGap {
    /// Returns the gap that ends now. `None` if the last agent was stopped and started again within
    /// a minute, if none has run in this boot, or if it did not write records. `records` are in
    /// their order.
    pub fn find(
        records: &[Record],
        (machine, boot): (u64, BootId),
        last_agent: LastAgent,
        now: Now,
    ) -> Option<Occurred> {
        let is_here = |record: &&Record| record.origin.machine == machine;
        let last = records.iter().rev().find(is_here)?;
        let length = now.boot.since(last.at.boot);
        let stopped = last.marks.agent_stopped;
        let since_gap = last_agent
            .gap
            .and_then(|gap| now.wall.duration_since(gap).ok());
        let wrote = last_agent
            .saved
            .and_then(|at| at.duration_since(last.at.wall).ok());
        if last.origin.boot != boot
            || (stopped && length < RESTART)
            || since_gap.is_some_and(|since| since < INTERVAL)
            || wrote.is_some_and(|since| UNWRITTEN < since)
        {
            return None;
        }
        let seconds = length.as_secs().max(1);
        Some(Occurred::gap(Self { stopped, seconds }, length, now))
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
