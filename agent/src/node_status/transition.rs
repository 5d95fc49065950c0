//! When the times of a condition move, and which changes are worth an Event.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::nodepulse_condition::NodepulseCondition;
use super::setters::{pressure, ready, resource};
use super::{Condition, NodeStatus, Status, StoredNode};
use crate::clock::Now;
use crate::reading::Resource;

/// What a setter found, before it has times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComputedCondition<'a> {
    /// `type`.
    pub type_: &'a str,
    /// `status`.
    pub status: Status,
    /// `reason`.
    pub reason: &'a str,
    /// `message`.
    pub message: &'a str,
}

/// What becomes of the stored words while the status is as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SameStatus {
    /// Reason and message stay, whoever wrote them. The kubelet's pressure conditions.
    KeepsText,
    /// Reason and message are those of the verdict. Where they say more than the status does.
    ReplacesText,
}

/// The condition to report for `verdict`, given what the API server has.
///
/// `last_transition_time` moves only when `status` does. A new message or reason is no transition:
/// controllers measure from this time, and a moving one would make every wait start anew.
#[must_use]
pub fn stamp(
    verdict: ComputedCondition<'_>,
    same: SameStatus,
    stored: &StoredNode,
    now: Now,
) -> Condition {
    let at = whole_seconds(now.wall);
    let fresh = Condition {
        type_: verdict.type_.to_owned(),
        status: verdict.status,
        reason: verdict.reason.to_owned(),
        message: verdict.message.to_owned(),
        last_transition_time: at,
        last_heartbeat_time: at,
    };
    let unchanged = stored
        .condition(verdict.type_)
        .filter(|stored| stored.status == verdict.status);
    match (unchanged, same) {
        (None, _) => fresh,
        (Some(stored), SameStatus::KeepsText) => Condition {
            last_transition_time: since(stored, at),
            last_heartbeat_time: at,
            ..stored.clone()
        },
        (Some(stored), SameStatus::ReplacesText) => Condition {
            last_transition_time: since(stored, at),
            ..fresh
        },
    }
}

/// Since when a condition is as it is stored. One that does not say is so from `now` on: whoever
/// waits for it to have lasted must not find that it has for decades.
fn since(stored: &Condition, now: SystemTime) -> SystemTime {
    if stored.last_transition_time <= SystemTime::UNIX_EPOCH {
        now
    } else {
        stored.last_transition_time
    }
}

/// The resolution of times in the API. A finer one would differ from what is read back.
fn whole_seconds(at: SystemTime) -> SystemTime {
    let since_epoch = at
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(since_epoch.as_secs())
}

/// `type` of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EventType {
    /// For information.
    Normal,
    /// For someone to look at.
    Warning,
}

impl EventType {
    /// As the API spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// A change that becomes an Event on the Node, once the patch that tells of it has succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edge {
    /// The agent has started.
    Started,
    /// One of the kubelet's, in its words.
    Kubelet {
        /// `reason`.
        reason: &'static str,
        /// Whose condition; `None` for Ready, and for what is no condition.
        resource: Option<Resource>,
    },
    /// A condition of our own changed its status.
    Nodepulse {
        /// Whose condition.
        resource: Option<Resource>,
        /// The new status.
        status: Status,
        /// `reason` of the condition.
        reason: String,
        /// `message` of the condition.
        message: String,
    },
    /// The stored boot id is that of an earlier boot.
    Rebooted {
        /// Of this boot.
        boot_id: String,
    },
}

impl Edge {
    /// `type` of the Event.
    #[must_use]
    pub const fn type_(&self) -> EventType {
        match self {
            Self::Nodepulse {
                status: Status::True,
                ..
            }
            | Self::Rebooted { .. } => EventType::Warning,
            Self::Nodepulse {
                status: Status::False | Status::Unknown,
                ..
            }
            | Self::Kubelet { .. }
            | Self::Started => EventType::Normal,
        }
    }

    /// The resource whose condition changed.
    #[must_use]
    pub const fn resource(&self) -> Option<Resource> {
        match self {
            Self::Kubelet { resource, .. } | Self::Nodepulse { resource, .. } => *resource,
            Self::Rebooted { .. } | Self::Started => None,
        }
    }

    /// `reason` of the Event.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Kubelet { reason, .. } => reason,
            Self::Nodepulse { reason, .. } => reason,
            Self::Rebooted { .. } => "Rebooted",
            Self::Started => "Starting",
        }
    }

    /// `message` of the Event on the Node called `node`.
    #[must_use]
    pub fn message(&self, node: &str) -> String {
        match self {
            Self::Kubelet { reason, .. } => format!("Node {node} status is now: {reason}"),
            Self::Nodepulse {
                reason, message, ..
            } => format!("Node {node} status is now: {reason} ({message})"),
            Self::Rebooted { boot_id } => {
                format!("Node {node} has been rebooted, boot id: {boot_id}")
            }
            Self::Started => "Starting kubelet.".to_owned(),
        }
    }
}

impl StoredNode {
    /// Whether this is what `edge` led to: somebody has written what told of it.
    #[must_use]
    pub fn shows(&self, edge: &Edge) -> bool {
        match edge {
            Edge::Started => true,
            Edge::Rebooted { boot_id } => self.boot_id == *boot_id,
            Edge::Kubelet { .. } | Edge::Nodepulse { .. } => {
                let led_here = |c: &Condition| edge_to(c) == *edge;
                self.conditions.iter().any(led_here)
            }
        }
    }
}

/// What is new in `status`, in the order in which it is to be recorded.
///
/// `stored` must be what the patch was computed against: then an edge shows up once, with the patch
/// that carries it.
#[must_use]
pub fn edges(stored: &StoredNode, status: &NodeStatus) -> Vec<Edge> {
    let boot_id = &status.node_info.boot_id;
    // A new Node has no boot id to compare with, and a machine without one has none to tell.
    let known = !stored.boot_id.is_empty() && !boot_id.is_empty();
    let rebooted = (known && stored.boot_id != *boot_id).then(|| Edge::Rebooted {
        boot_id: boot_id.clone(),
    });
    let conditions = status.conditions.iter().filter_map(|c| edge(stored, c));
    rebooted.into_iter().chain(conditions).collect()
}

fn edge(stored: &StoredNode, condition: &Condition) -> Option<Edge> {
    let before = stored.condition(&condition.type_).map(|c| c.status);
    let is_edge = match before {
        Some(before) => before != condition.status,
        // The first Ready of a Node is no edge.
        None if condition.type_ == ready::TYPE => false,
        // The kubelet's start from Unknown, so the first True or False is one.
        None if pressure::texts(&condition.type_).is_some() => condition.status != Status::Unknown,
        // Ours start from False: that all is well where nobody said anything before is no news.
        None => condition.status == Status::True,
    };
    is_edge.then(|| edge_to(condition))
}

/// What led to a condition, if it is an edge.
fn edge_to(condition: &Condition) -> Edge {
    if condition.type_ == ready::TYPE {
        return Edge::Kubelet {
            reason: ready::event_reason(condition.status),
            resource: None,
        };
    }
    let words = pressure::texts(&condition.type_);
    if let Some(row) = words.and_then(|words| words.row(condition.status)) {
        return Edge::Kubelet {
            reason: row.event,
            resource: resource(&condition.type_),
        };
    }
    // Also the kubelet's where they are Unknown, for which it has no words.
    let own = NodepulseCondition::parse(&condition.type_).and_then(NodepulseCondition::resource);
    Edge::Nodepulse {
        resource: own.or_else(|| resource(&condition.type_)),
        status: condition.status,
        reason: condition.reason.clone(),
        message: condition.message.clone(),
    }
}

/// The edge of `spec.unschedulable` between two looks at the Node.
///
/// Before the first look a Node counts as schedulable: `StoredNode::default()`.
#[must_use]
pub fn schedulable_edge(before: &StoredNode, after: &StoredNode) -> Option<Edge> {
    let reason = match (before.unschedulable, after.unschedulable) {
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
    use crate::clock::BootNanos;
    use crate::node_status::NodeInfo;
    use crate::node_status::sample::{now, stored, wall};

    #[test]
    fn a_stored_condition_that_does_not_say_since_when_is_so_from_now_on() {
        let never = SystemTime::UNIX_EPOCH;
        for (same, at) in [
            (SameStatus::KeepsText, never),
            (SameStatus::ReplacesText, never),
            // Go's zero time.
            (
                SameStatus::ReplacesText,
                never - Duration::from_hours(17_259_888),
            ),
        ] {
            let verdict = ComputedCondition {
                type_: "MemoryLow",
                status: Status::True,
                reason: "LowMemory",
                message: "",
            };
            let fresh = stamp(verdict, same, &StoredNode::default(), now());
            let mut before = fresh.clone();
            before.last_transition_time = at;
            let stored = StoredNode {
                conditions: vec![before],
                ..StoredNode::default()
            };
            assert_eq!(stamp(verdict, same, &stored, now()), fresh, "{same:?}");
        }
    }

    #[test]
    fn a_time_is_cut_to_the_second() {
        let rows = [
            (wall(7), 7, "whole already"),
            (wall(7) + Duration::from_nanos(1), 7, "just after"),
            (wall(8) - Duration::from_nanos(1), 7, "just before the next"),
            (
                SystemTime::UNIX_EPOCH - Duration::from_secs(1),
                0,
                "a clock that was never set",
            ),
        ];
        for (at, seconds, why) in rows {
            assert_eq!(whole_seconds(at), wall(seconds), "{why}");
        }
    }

    #[test]
    fn what_a_stamp_keeps() {
        use SameStatus::{KeepsText, ReplacesText};
        use Status::{False, True};

        let verdict = |status| ComputedCondition {
            type_: "T",
            status,
            reason: "New",
            message: "new",
        };
        let old = |status| Some(stored("T", status, "Old", "old"));
        let other = Some(stored("U", Status::True, "Old", "old"));
        let (then, at_once) = (wall(1_000_000_000), wall(1_800_000_000));
        let rows = [
            (None, KeepsText, "New", at_once, "nothing stored"),
            (other, KeepsText, "New", at_once, "another type stored"),
            (old(False), KeepsText, "New", at_once, "a transition"),
            (old(False), ReplacesText, "New", at_once, "a transition"),
            (old(True), KeepsText, "Old", then, "no transition"),
            (
                old(True),
                ReplacesText,
                "New",
                then,
                "no transition, new words",
            ),
        ];
        for (before, same, reason, time, why) in rows {
            let stored = StoredNode {
                conditions: before.into_iter().collect(),
                ..StoredNode::default()
            };
            let c = stamp(verdict(True), same, &stored, now());
            assert_eq!(
                (&*c.type_, c.status, &*c.reason, c.last_transition_time),
                ("T", True, reason, time),
                "{why}"
            );
            assert_eq!(c.last_heartbeat_time, at_once, "{why}");
        }
    }

    #[test]
    fn the_transition_time_stays_over_many_heartbeats() {
        let mut server = StoredNode::default();
        //          at s  status          transition at
        let script = [
            (100, Status::False, 100),
            (110, Status::False, 100),
            (120, Status::True, 120),
            (130, Status::True, 120),
            (140, Status::False, 140),
        ];
        for (at, status, expected) in script {
            let verdict = ComputedCondition {
                type_: "T",
                status,
                reason: "R",
                message: "m",
            };
            let now = Now {
                boot: BootNanos(0),
                wall: wall(at),
            };
            let c = stamp(verdict, SameStatus::KeepsText, &server, now);
            assert_eq!(c.last_transition_time, wall(expected), "at {at} s");
            assert_eq!(c.last_heartbeat_time, wall(at), "at {at} s");
            server.conditions = vec![c];
        }
    }

    fn recorded(before: Option<Status>, type_: &str, after: Status) -> Vec<String> {
        let node = StoredNode {
            conditions: before
                .map(|status| stored(type_, status, "r", "m"))
                .into_iter()
                .collect(),
            ..StoredNode::default()
        };
        let status = NodeStatus {
            conditions: vec![stored(type_, after, "SlowDisk", "answering late: sda")],
            ..NodeStatus::default()
        };
        edges(&node, &status)
            .iter()
            .map(|edge| {
                assert!(edge.message("w").contains(edge.reason()), "the form");
                format!("{} {}", edge.type_().as_str(), edge.message("w"))
            })
            .collect()
    }

    /// Status before, type, status after; then the Events, and why.
    type Change = (
        Option<Status>,
        &'static str,
        Status,
        &'static [&'static str],
        &'static str,
    );

    #[test]
    fn which_changes_are_recorded() {
        use Status::{False, True, Unknown};
        let rows: [Change; 11] = [
            (
                None,
                "MemoryPressure",
                False,
                &["Normal Node w status is now: NodeHasSufficientMemory"],
                "creation counts",
            ),
            (
                Some(False),
                "MemoryPressure",
                True,
                &["Normal Node w status is now: NodeHasInsufficientMemory"],
                "up",
            ),
            (Some(True), "MemoryPressure", True, &[], "held"),
            (
                Some(True),
                "DiskPressure",
                False,
                &["Normal Node w status is now: NodeHasNoDiskPressure"],
                "down",
            ),
            (
                Some(Unknown),
                "PIDPressure",
                False,
                &["Normal Node w status is now: NodeHasSufficientPID"],
                "the controller's Unknown undone",
            ),
            (None, "Ready", True, &[], "the first Ready is no edge"),
            (None, "Ready", False, &[], "nor is the first that is False"),
            (
                Some(False),
                "Ready",
                True,
                &["Normal Node w status is now: NodeReady"],
                "becomes ready",
            ),
            (
                Some(True),
                "Ready",
                False,
                &["Normal Node w status is now: NodeNotReady"],
                "is no longer",
            ),
            (Some(True), "Ready", True, &[], "still ready"),
            (
                Some(Unknown),
                "Ready",
                True,
                &["Normal Node w status is now: NodeReady"],
                "the controller's Unknown undone",
            ),
        ];
        for (before, type_, after, expected, why) in rows {
            assert_eq!(recorded(before, type_, after), expected, "{type_}: {why}");
        }
    }

    #[test]
    fn which_changes_of_our_own_are_recorded() {
        use Status::{False, True, Unknown};
        let rows: [Change; 9] = [
            (
                Some(False),
                "DiskIOPressure",
                True,
                &["Warning Node w status is now: SlowDisk (answering late: sda)"],
                "our own: up is a warning, and names the disks",
            ),
            (
                Some(True),
                "DiskIOPressure",
                False,
                &["Normal Node w status is now: SlowDisk (answering late: sda)"],
                "our own: down",
            ),
            (
                Some(True),
                "DiskIOPressure",
                True,
                &[],
                "our own: other disks are no edge",
            ),
            (
                None,
                "DiskIOPressure",
                Unknown,
                &[],
                "our own: created blind",
            ),
            (
                None,
                "DiskIOPressure",
                False,
                &[],
                "our own: that all is well is no news where nobody said anything before",
            ),
            (
                None,
                "MemoryLow",
                True,
                &["Warning Node w status is now: SlowDisk (answering late: sda)"],
                "our own: created True",
            ),
            (
                Some(True),
                "MemoryLow",
                Unknown,
                &["Normal Node w status is now: SlowDisk (answering late: sda)"],
                "our own: blind from now on",
            ),
            (
                Some(False),
                "DiskPressure",
                Unknown,
                &["Normal Node w status is now: SlowDisk (answering late: sda)"],
                "the kubelet's: it has no words for what it never says",
            ),
            (
                None,
                "DiskPressure",
                Unknown,
                &[],
                "the kubelet's: created blind",
            ),
        ];
        for (before, type_, after, expected, why) in rows {
            assert_eq!(recorded(before, type_, after), expected, "{type_}: {why}");
        }
    }

    #[test]
    fn a_reboot_is_recorded_where_two_boots_are_known() {
        let rows: [(&str, &str, &[&str], &str); 4] = [
            (
                "a",
                "b",
                &["Warning Rebooted Node w has been rebooted, boot id: b"],
                "another boot",
            ),
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
        let node = |unschedulable| StoredNode {
            unschedulable,
            ..StoredNode::default()
        };
        let rows = [
            (false, true, Some("NodeNotSchedulable")),
            (true, false, Some("NodeSchedulable")),
            (false, false, None),
            (true, true, None),
        ];
        for (before, after, expected) in rows {
            let edge = schedulable_edge(&node(before), &node(after));
            assert_eq!(edge.as_ref().map(Edge::reason), expected);
        }
    }
}
