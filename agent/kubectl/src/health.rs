//! Evaluation of a Node's conditions.

use k8s_openapi::jiff::Timestamp;
use nodepulse_core::node_status::nodepulse_condition::NodepulseCondition;
use serde::Serialize;

use crate::age::{self, Present};
use crate::agent_pods::AgentPods;
use crate::objects::{Node, NodeCondition};
use crate::screen::safe;
use crate::style::Paint;

/// The mark of node mode in `kubeletVersion`.
const NODE_MODE: &str = "+nodepulse.";

/// Conditions that nodepulse writes in node mode, and otherwise a kubelet.
const OF_NODE_MODE: [&str; 3] = ["MemoryPressure", "DiskPressure", "PIDPressure"];

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

    /// Returns a text such as `MemoryLow` or `MemoryLow=Unknown`.
    pub fn title(&self) -> String {
        match (self.type_.as_str(), self.status.as_str()) {
            ("Ready", status) => safe(&format!("Ready={status}")),
            (type_, "True") => safe(type_),
            (type_, status) => safe(&format!("{type_}={status}")),
        }
    }

    /// Returns red for a problem, and yellow for an unknown status.
    pub fn paint(&self) -> Paint {
        if self.status == "Unknown" {
            Paint::Yellow
        } else {
            Paint::Red
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeHealth {
    pub name: String,
    pub problems: Vec<Problem>,
    /// `true` if it has any of nodepulse's conditions.
    pub is_reported: bool,
    /// Time of the last write of nodepulse's conditions.
    pub heartbeat: Option<Timestamp>,
    /// The version of an agent in node mode.
    pub node_mode: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentState {
    Reports,
    /// The last report is older than `silent_after`.
    Silent,
    /// The Node has no conditions of nodepulse.
    Absent,
}

impl NodeHealth {
    pub fn of(node: Node) -> Self {
        let conditions = node.status.conditions.unwrap_or_default();
        let version = node.status.node_info.kubelet_version;
        let node_mode = version.split_once(NODE_MODE);
        let node_mode = node_mode.map(|(_, version)| version.to_owned());
        let is_of_nodepulse = |type_: &str| is_of_nodepulse(type_, node_mode.is_some());
        let of_nodepulse = || {
            let all = conditions.iter();
            all.filter(|one| is_of_nodepulse(&one.type_))
        };
        let heartbeats = of_nodepulse().map(|one| one.last_heartbeat_time.as_deref());
        let heartbeat = heartbeats.filter_map(age::parse).max();
        let is_reported = of_nodepulse().next().is_some();
        let problems = conditions.iter().filter(|one| match one.type_.as_str() {
            "Ready" => one.status != "True",
            type_ => is_of_nodepulse(type_) && one.status != "False",
        });
        Self {
            name: node.metadata.name,
            is_reported,
            heartbeat,
            problems: problems.cloned().map(Problem::of).collect(),
            node_mode,
        }
    }

    /// Returns `true` if nodepulse writes conditions of this type to this Node.
    pub fn is_of_nodepulse(&self, type_: &str) -> bool {
        is_of_nodepulse(type_, self.node_mode.is_some())
    }

    pub fn agent(&self, present: Present) -> AgentState {
        let limit = present.silent_after.as_secs();
        match self.heartbeat {
            _ if !self.is_reported => AgentState::Absent,
            Some(at) if age::seconds(at, present.now) <= limit => AgentState::Reports,
            Some(_) | None => AgentState::Silent,
        }
    }

    pub fn agent_problem(&self, pods: &AgentPods, present: Present) -> Option<String> {
        let pod = pods.on(&self.name);
        let broken = pod.filter(|pod| !pod.is_running());
        match (self.agent(present), broken) {
            (_, Some(pod)) => Some(format!("agent {}", pod.state)),
            (AgentState::Reports, None) => None,
            (AgentState::Silent, None) => Some("agent silent".to_owned()),
            (AgentState::Absent, None) if pods.are_known && pod.is_none() => {
                Some("no agent".to_owned())
            }
            (AgentState::Absent, None) => Some("no conditions".to_owned()),
        }
    }
}

/// Conditions of others are not evaluated, except for `Ready`.
fn is_of_nodepulse(type_: &str, node_mode: bool) -> bool {
    NodepulseCondition::parse(type_).is_some() || (node_mode && OF_NODE_MODE.contains(&type_))
}
