//! What a Node's conditions mean.

use k8s_openapi::jiff::Timestamp;
use nodepulse::cli::terminal::Paint;
use nodepulse::node_status::nodepulse_condition::NodepulseCondition;
use serde::Serialize;

use crate::age;
use crate::agent_pods::AgentPod;
use crate::objects::{Node, NodeCondition};
use crate::screen::safe;

/// A Node whose conditions were not written for this long has no agent any more: three times the
/// interval of `nodeStatusReportFrequency`.
const STALE: u64 = 15 * 60;

/// The mark of node mode in `kubeletVersion`.
const NODE_MODE: &str = "+nodepulse.";

/// A condition that is not well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    pub reason: String,
    pub message: String,
    pub since: Option<Timestamp>,
}

impl Problem {
    fn of(condition: NodeCondition) -> Self {
        Self {
            since: age::parse(condition.last_transition_time.as_deref()),
            type_: condition.type_,
            status: condition.status,
            reason: condition.reason.unwrap_or_default(),
            message: condition.message.unwrap_or_default(),
        }
    }

    /// `MemoryLow`, or `MemoryLow=Unknown`.
    pub fn title(&self) -> String {
        match (self.type_.as_str(), self.status.as_str()) {
            ("Ready", status) => safe(&format!("Ready={status}")),
            (type_, "True") => safe(type_),
            (type_, status) => safe(&format!("{type_}={status}")),
        }
    }

    /// Red if it is a problem, yellow if it is unknown.
    pub fn paint(&self) -> Paint {
        if self.status == "Unknown" {
            Paint::Yellow
        } else {
            Paint::Red
        }
    }
}

/// One Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeHealth {
    pub name: String,
    pub problems: Vec<Problem>,
    /// Whether it has any of nodepulse's conditions.
    pub is_reported: bool,
    /// When they were written last.
    pub heartbeat: Option<Timestamp>,
    /// The version of an agent in node mode.
    pub node_mode: Option<String>,
}

/// The agent of a Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentState {
    /// It reports.
    Reports,
    /// Nothing was reported for a long time.
    Silent,
    /// There are no conditions of nodepulse.
    Absent,
}

impl NodeHealth {
    /// Of a Node.
    pub fn of(node: Node) -> Self {
        let conditions = node.status.conditions.unwrap_or_default();
        let of_nodepulse = || {
            let all = conditions.iter();
            all.filter(|one| NodepulseCondition::parse(&one.type_).is_some())
        };
        let heartbeats = of_nodepulse().map(|one| one.last_heartbeat_time.as_deref());
        let heartbeat = heartbeats.filter_map(age::parse).max();
        let is_reported = of_nodepulse().next().is_some();
        let version = node.status.node_info.kubelet_version;
        Self {
            name: node.metadata.name,
            is_reported,
            heartbeat,
            node_mode: version
                .split_once(NODE_MODE)
                .map(|(_, version)| version.to_owned()),
            problems: conditions
                .into_iter()
                .filter(|one| !is_well(one))
                .map(Problem::of)
                .collect(),
        }
    }

    /// Whether its agent reports.
    pub fn agent(&self, now: Timestamp) -> AgentState {
        match self.heartbeat {
            _ if !self.is_reported => AgentState::Absent,
            Some(at) if age::seconds(at, now) <= STALE => AgentState::Reports,
            Some(_) | None => AgentState::Silent,
        }
    }

    /// What is wrong with its agent, in words. `None`: nothing.
    pub fn agent_problem(&self, pod: Option<&AgentPod>, now: Timestamp) -> Option<String> {
        let broken = pod.filter(|pod| !pod.is_running());
        match (self.agent(now), broken) {
            (_, Some(pod)) => Some(format!("agent {}", pod.state)),
            (AgentState::Reports, None) => None,
            (AgentState::Silent, None) => Some("agent silent".to_owned()),
            (AgentState::Absent, None) if pod.is_some() => Some("no conditions".to_owned()),
            (AgentState::Absent, None) => Some("no agent".to_owned()),
        }
    }
}

/// Conditions of others than nodepulse are not evaluated, but for `Ready`.
fn is_well(condition: &NodeCondition) -> bool {
    match condition.type_.as_str() {
        "Ready" => condition.status == "True",
        type_ => NodepulseCondition::parse(type_).is_none() || condition.status == "False",
    }
}
