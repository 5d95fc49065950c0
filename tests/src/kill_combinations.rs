//! Real kills for every combination of consequence, limit and `QoS` class, each checked in full by
//! the Event that arrives at the API server.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use crate::provoke::Provoke;

mod message;
mod sizes;
mod stage;

use stage::Stage;

/// What a kill means for its container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Its main process died.
    MainProcess,
    /// Another of its processes died.
    ChildProcess,
    /// All of its processes were killed as a group.
    WholeContainer,
}

/// Whose limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitOf {
    /// The container's.
    Container,
    /// The pod's.
    Pod,
    /// That of all pods together.
    AllPods,
    /// The node is out of memory.
    Node,
}

/// The class of the pod in which a process is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Qos {
    /// Requests and limits are equal.
    Guaranteed,
    /// It requests less than it may use.
    Burstable,
    /// It requests nothing.
    BestEffort,
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Combination {
    /// Whose limit is reached.
    pub limit: LimitOf,
    /// What it means for the container.
    pub outcome: Outcome,
    /// The class of its pod.
    pub qos: Qos,
}

/// Where the kills happen.
#[derive(Debug, Clone, Copy)]
pub struct Site<'a> {
    /// The agent's program.
    pub program: &'a Path,
    /// The program that provokes.
    pub provoke: &'a Provoke,
    /// Whether it may be left without memory.
    pub is_virtual: bool,
    /// How long to wait for something that happens at once.
    pub patience: Duration,
}

/// What became of a combination: the message of its Event, or why there can be none.
#[derive(Debug)]
pub struct Row {
    /// Which.
    pub combination: Combination,
    /// The message, or the reason.
    pub found: Result<String, &'static str>,
}

const OUTCOMES: [Outcome; 3] = [
    Outcome::MainProcess,
    Outcome::ChildProcess,
    Outcome::WholeContainer,
];
const LIMITS: [LimitOf; 4] = [
    LimitOf::Container,
    LimitOf::Pod,
    LimitOf::AllPods,
    LimitOf::Node,
];
const CLASSES: [Qos; 3] = [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort];

/// All rows of the table.
pub fn combinations() -> Vec<Combination> {
    let mut all = Vec::new();
    for limit in LIMITS {
        for outcome in OUTCOMES {
            all.extend(CLASSES.map(|qos| Combination {
                limit,
                outcome,
                qos,
            }));
        }
    }
    all
}

/// Kills a process for each of these combinations that is possible here. Panics if an Event is
/// wrong.
pub async fn of(site: Site<'_>, combinations: &[Combination]) -> Vec<Row> {
    let mut stage = Stage::set(site).await;
    let mut rows = Vec::new();
    for &combination in combinations {
        let found = match combination.impossible(site, stage.is_version_2()) {
            Some(why) => Err(why),
            None => Ok(stage.kill(combination).await),
        };
        rows.push(Row { combination, found });
    }
    rows
}

/// Kills a process of a service because the node is out of memory. Returns the message of its
/// Event.
pub async fn of_service(site: Site<'_>) -> String {
    Stage::set(site).await.kill_in_service().await
}

impl Combination {
    /// Why it cannot be provoked here.
    fn impossible(self, site: Site<'_>, is_version_2: bool) -> Option<&'static str> {
        if self.outcome == Outcome::WholeContainer && !is_version_2 {
            return Some("cgroup v1 has no memory.oom.group");
        }
        (self.limit == LimitOf::Node && !site.is_virtual)
            .then_some("this machine must not run out of memory; a virtual machine does")
    }

    /// A name for its pod.
    pub fn name(self) -> String {
        format!("{}-{}-{}", self.qos, self.outcome, self.limit)
    }
}

impl Qos {
    /// The directory of its pods below the cgroup of all pods.
    const fn dir(self) -> &'static str {
        match self {
            Self::Guaranteed => "kubepods",
            Self::Burstable => "kubepods/burstable",
            Self::BestEffort => "kubepods/besteffort",
        }
    }
}

impl fmt::Display for Qos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Guaranteed => "guaranteed",
            Self::Burstable => "burstable",
            Self::BestEffort => "besteffort",
        })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::MainProcess => "main",
            Self::ChildProcess => "child",
            Self::WholeContainer => "group",
        })
    }
}

impl fmt::Display for LimitOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Container => "container",
            Self::Pod => "pod",
            Self::AllPods => "all-pods",
            Self::Node => "node",
        })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Combination {
            limit,
            outcome,
            qos,
        } = self.combination;
        write!(f, "{limit:9} | {outcome:5} | {qos:10} | ")?;
        match &self.found {
            Ok(message) => f.write_str(message),
            Err(why) => write!(f, "impossible: {why}"),
        }
    }
}
