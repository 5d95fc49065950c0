//! The changes of the status that are recorded as Events.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::ledger::Began;
use super::nodepulse_condition::NodepulseCondition;
use super::setters::{pressure, ready, resource};
use super::{Condition, NodeStatus, Status, StoredNode};
use crate::reading::{Ground, Resource};

/// `type` of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EventType {
    Normal,
    Warning,
}

impl EventType {
    /// Returns the API's spelling.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// A change that a kubelet records as an Event on the Node after its patch has succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edge {
    Started,
    /// A change that the kubelet records, with the kubelet's text.
    Kubelet {
        reason: &'static str,
        /// Resource of the condition; `None` for Ready, and for changes that are no condition.
        resource: Option<Resource>,
    },
    /// One of a kubelet's conditions became Unknown, for which it has no text.
    Unknown {
        reason: String,
        message: String,
    },
    /// The stored boot id is from an earlier boot.
    Rebooted {
        boot_id: String,
    },
}

impl Edge {
    pub const fn type_(&self) -> EventType {
        match self {
            Self::Rebooted { .. } => EventType::Warning,
            Self::Kubelet { .. } | Self::Unknown { .. } | Self::Started => EventType::Normal,
        }
    }

    /// Returns the resource whose condition changed.
    pub const fn resource(&self) -> Option<Resource> {
        match self {
            Self::Kubelet { resource, .. } => *resource,
            Self::Unknown { .. } | Self::Rebooted { .. } | Self::Started => None,
        }
    }

    pub fn reason(&self) -> &str {
        match self {
            Self::Kubelet { reason, .. } => reason,
            Self::Unknown { reason, .. } => reason,
            Self::Rebooted { .. } => "Rebooted",
            Self::Started => "Starting",
        }
    }

    pub fn message(&self, node: &str) -> String {
        match self {
            Self::Kubelet { reason, .. } => format!("Node {node} status is now: {reason}"),
            Self::Unknown { reason, message } => {
                format!("Node {node} status is now: {reason} ({message})")
            }
            Self::Rebooted { boot_id } => {
                format!("Node {node} has been rebooted, boot id: {boot_id}")
            }
            Self::Started => "Starting kubelet.".to_owned(),
        }
    }
}

impl StoredNode {
    /// Returns true if the change was already written.
    pub fn reflects(&self, edge: &Edge) -> bool {
        match edge {
            Edge::Started => true,
            Edge::Rebooted { boot_id } => self.boot_id == *boot_id,
            Edge::Kubelet { .. } | Edge::Unknown { .. } => {
                let is_result = |c: &Condition| edge_to(c).as_ref() == Some(edge);
                self.conditions.iter().any(is_result)
            }
        }
    }
}

/// Returns the changes in `status`, in the order in which they are recorded.
///
/// `stored` must be what the patch was computed against: then each change is found once, with the
/// patch that contains it.
pub fn edges(stored: &StoredNode, status: &NodeStatus) -> Vec<Edge> {
    let boot_id = &status.node_info.boot_id;
    // A new Node has no boot id to compare with, and some machines have none.
    let known = !stored.boot_id.is_empty() && !boot_id.is_empty();
    let rebooted = (known && stored.boot_id != *boot_id).then(|| Edge::Rebooted {
        boot_id: boot_id.clone(),
    });
    let conditions = status.conditions.iter().filter_map(|c| edge(stored, c));
    rebooted.into_iter().chain(conditions).collect()
}

/// Finds a kubelet's conditions that became True and ended since the last status was sent, so that
/// no patch has them. Returns both changes, and the time of the first. `sent` is how often each had
/// become True by then.
pub fn unsent(
    began: &Began,
    sent: &Began,
    stored: &StoredNode,
    status: &NodeStatus,
) -> Vec<(Edge, SystemTime, Edge)> {
    let is_true = |c: &&Condition| c.status == Status::True;
    let unsent = |(type_, (times, first)): (&String, &(u64, Condition))| {
        let known = sent.get(type_).map_or(0, |(times, _)| *times);
        let last = status.conditions.iter().find(|c| c.type_ == *type_)?;
        let has = is_true(&last) || stored.condition(type_).is_some_and(|c| is_true(&c));
        if has || *times <= known {
            return None;
        }
        Some((edge_to(first)?, first.last_transition_time, edge_to(last)?))
    };
    began.iter().filter_map(unsent).collect()
}

fn edge(stored: &StoredNode, condition: &Condition) -> Option<Edge> {
    let before = stored.condition(&condition.type_).map(|c| c.status);
    let is_edge = match before {
        Some(before) => before != condition.status,
        // The first Ready of a Node is no transition.
        None if condition.type_ == ready::TYPE => false,
        // The others start as Unknown, so the first True or False is a transition.
        None => condition.status != Status::Unknown,
    };
    edge_to(condition).filter(|_| is_edge)
}

fn edge_to(condition: &Condition) -> Option<Edge> {
    if condition.type_ == ready::TYPE {
        return Some(Edge::Kubelet {
            reason: ready::event_reason(condition.status),
            resource: None,
        });
    }
    let texts = pressure::texts(&condition.type_)?;
    Some(match texts.of(condition.status) {
        Some(text) => Edge::Kubelet {
            reason: text.event,
            resource: resource(&condition.type_),
        },
        None => Edge::Unknown {
            reason: condition.reason.clone(),
            message: condition.message.clone(),
        },
    })
}

/// Returns true for a condition that a kubelet has, whose Events follow the patch.
pub fn is_of_kubelet(type_: &str) -> bool {
    type_ == ready::TYPE || pressure::texts(type_).is_some()
}

/// Returns what a condition depends on, if that can have details.
pub fn ground(type_: &str) -> Option<Ground> {
    let nodepulse = NodepulseCondition::parse(type_);
    let of_nodepulse = nodepulse.and_then(NodepulseCondition::resource);
    let resource = of_nodepulse.or_else(|| resource(type_));
    let stall = nodepulse.and_then(NodepulseCondition::stall);
    resource.map(Ground::Resource).or(stall.map(Ground::Stall))
}

/// Returns the edge of `spec.unschedulable` between the two values.
pub fn schedulable_edge(before: bool, after: bool) -> Option<Edge> {
    let reason = match (before, after) {
        (false, true) => "NodeNotSchedulable",
        (true, false) => "NodeSchedulable",
        (true, true) | (false, false) => return None,
    };
    Some(Edge::Kubelet {
        reason,
        resource: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_status::NodeInfo;
    use crate::node_status::fixture::stored;

    fn recorded(before: Option<Status>, type_: &str, after: Status) -> Vec<String> {
        let node = StoredNode {
            conditions: before
                .map(|status| stored(type_, status, "r", "m"))
                .into_iter()
                .collect(),
            ..StoredNode::default()
        };
        let status = NodeStatus {
            conditions: vec![stored(type_, after, "r", "m")],
            ..NodeStatus::default()
        };
        edges(&node, &status)
            .iter()
            .map(|edge| {
                assert!(
                    edge.message("w").contains(edge.reason()),
                    "the message contains the reason"
                );
                format!("{} {}", edge.type_().as_str(), edge.message("w"))
            })
            .collect()
    }

    /// Status before, type, status after; then the Events, and why.
    type Row = (
        Option<Status>,
        &'static str,
        Status,
        &'static [&'static str],
        &'static str,
    );

    #[test]
    fn which_changes_are_recorded() {
        use Status::{False, True, Unknown};
        #[rustfmt::skip]
        let rows: [Row; 15] = [
            (None, "MemoryPressure", False, &["Normal Node w status is now: NodeHasSufficientMemory"],
                "creation is a transition"),
            (Some(False), "MemoryPressure", True, &["Normal Node w status is now: NodeHasInsufficientMemory"], "up"),
            (Some(True), "MemoryPressure", True, &[], "unchanged"),
            (Some(True), "DiskPressure", False, &["Normal Node w status is now: NodeHasNoDiskPressure"], "down"),
            (Some(Unknown), "PIDPressure", False, &["Normal Node w status is now: NodeHasSufficientPID"],
                "the controller's Unknown undone"),
            (None, "Ready", True, &[], "the first Ready is no transition"),
            (None, "Ready", False, &[], "nor is the first that is False"),
            (Some(False), "Ready", True, &["Normal Node w status is now: NodeReady"], "becomes ready"),
            (Some(True), "Ready", False, &["Normal Node w status is now: NodeNotReady"], "is no longer"),
            (Some(True), "Ready", True, &[], "still ready"),
            (Some(Unknown), "Ready", True, &["Normal Node w status is now: NodeReady"],
                "the controller's Unknown undone"),
            (Some(False), "DiskPressure", Unknown, &["Normal Node w status is now: r (m)"], "a kubelet has no text for Unknown"),
            (None, "DiskPressure", Unknown, &[], "created as Unknown"),
            (Some(False), "DiskIOPressure", True, &[], "a kubelet does not have this condition"),
            (None, "MemoryLow", True, &[], "nor this one"),
        ];
        for (before, type_, after, expected, why) in rows {
            assert_eq!(recorded(before, type_, after), expected, "{type_}: {why}");
        }
    }

    #[test]
    fn a_reboot_is_recorded_if_both_boot_ids_are_known() {
        #[rustfmt::skip]
        let rows: [(&str, &str, &[&str], &str); 4] = [
            ("a", "b", &["Warning Rebooted Node w has been rebooted, boot id: b"], "another boot"),
            ("a", "a", &[], "the same boot"),
            ("", "b", &[], "a new Node"),
            ("a", "", &[], "unreadable here"),
        ];
        for (before, after, expected, why) in rows {
            let stored = StoredNode {
                boot_id: before.to_owned(),
                ..StoredNode::default()
            };
            let status = NodeStatus {
                node_info: NodeInfo {
                    boot_id: after.to_owned(),
                    ..NodeInfo::default()
                },
                ..NodeStatus::default()
            };
            let events: Vec<_> = edges(&stored, &status)
                .iter()
                .map(|e| format!("{} {} {}", e.type_().as_str(), e.reason(), e.message("w")))
                .collect();
            assert_eq!(events, expected, "{why}");
        }
    }

    #[test]
    fn cordoning_is_recorded_and_a_cordoned_node_at_start_too() {
        let rows = [
            (false, true, Some("NodeNotSchedulable")),
            (true, false, Some("NodeSchedulable")),
            (false, false, None),
            (true, true, None),
        ];
        for (before, after, expected) in rows {
            let edge = schedulable_edge(before, after);
            assert_eq!(edge.as_ref().map(Edge::reason), expected);
        }
    }

    #[test]
    fn a_condition_that_became_true_and_ended_without_a_patch_is_found_once() {
        use Status::{False, True, Unknown};

        let condition = |status| stored("PIDPressure", status, "r", "m");
        let times =
            |times| -> Began { [("PIDPressure".to_owned(), (times, condition(True)))].into() };
        let (began, ended) = ("NodeHasInsufficientPID", "NodeHasSufficientPID");
        //  on the Node, times in the last status, now, found
        let rows = [
            (
                False,
                1,
                False,
                Some((began, ended)),
                "it ended before its turn",
            ),
            (
                Unknown,
                1,
                Unknown,
                Some((began, "r")),
                "unknown before and after",
            ),
            (False, 2, False, None, "it was found before"),
            (True, 1, False, None, "the Node had it all the time"),
            (False, 1, True, None, "it is sent now"),
        ];
        for (before, sent, now, expected, why) in rows {
            let node = StoredNode {
                conditions: vec![condition(before)],
                ..StoredNode::default()
            };
            let status = NodeStatus {
                conditions: vec![condition(now)],
                ..NodeStatus::default()
            };
            let found = unsent(&times(2), &times(sent), &node, &status);
            let found = found
                .first()
                .map(|(began, _, ended)| (began.reason(), ended.reason()));
            assert_eq!(found, expected, "{why}");
        }
    }
}
