//! Causes real kills for every combination of consequence, limit and `QoS` class, and checks the
//! whole Event of each at the API server.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use crate::provoke::Provoke;

mod message;
mod sizes;
mod stage;

use stage::Stage;

/// The consequence of a kill for its container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    MainProcess,
    ChildProcess,
    /// All of its processes were killed as a group.
    WholeContainer,
}

/// The owner of the limit that is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitOf {
    Container,
    Pod,
    /// The limit of all pods together.
    AllPods,
    /// The node is out of memory.
    Node,
}

/// The class of the pod in which a process is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Qos {
    /// Requests and limits are equal.
    Guaranteed,
    /// Requests are lower than limits.
    Burstable,
    /// There are no requests.
    BestEffort,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Combination {
    pub limit: LimitOf,
    pub outcome: Outcome,
    pub qos: Qos,
}

/// The machine on which the kills happen.
#[derive(Debug, Clone, Copy)]
pub struct Site<'a> {
    pub program: &'a Path,
    /// The program that provokes.
    pub provoke: &'a Provoke,
    /// True if the machine may run out of memory.
    pub is_virtual: bool,
    /// Time limit of something that happens at once.
    pub patience: Duration,
}

#[derive(Debug)]
pub struct Row {
    pub combination: Combination,
    /// The message of the Event, or the reason why there can be none.
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
    /// Returns why the combination cannot be provoked here.
    fn impossible(self, site: Site<'_>, is_version_2: bool) -> Option<&'static str> {
        if self.outcome == Outcome::WholeContainer && !is_version_2 {
            return Some("cgroup v1 has no memory.oom.group");
        }
        (self.limit == LimitOf::Node && !site.is_virtual)
            .then_some("this machine must not run out of memory; a virtual machine does")
    }

    pub fn name(self) -> String {
        format!("{}-{}-{}", self.qos, self.outcome, self.limit)
    }
}

impl Qos {
    /// Returns the directory of its pods below the cgroup of all pods.
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
