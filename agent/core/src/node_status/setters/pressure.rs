//! The kubelet's three pressure conditions. They differ only in their texts, which are a table.
//!
//! The texts are an interface: operators alert on them. If a source cannot be read, a kubelet
//! regards the threshold as not met; here the condition is Unknown, and names the source.

use super::{Context, SetterError, UNAVAILABLE, cannot_be_read};
use crate::node_status::stamp::{ComputedCondition, SameStatus};
use crate::node_status::{NodeStatus, Status};
use crate::pressure::Pressure;
use crate::reading::Resource;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConditionTexts {
    pub type_: &'static str,
    pub when_true: StatusText,
    pub when_false: StatusText,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusText {
    pub reason: &'static str,
    pub message: &'static str,
    /// `reason` of the Event about a change to this status.
    pub event: &'static str,
}

const MEMORY: ConditionTexts = ConditionTexts {
    type_: "MemoryPressure",
    when_true: StatusText {
        reason: "KubeletHasInsufficientMemory",
        message: "kubelet has insufficient memory available",
        event: "NodeHasInsufficientMemory",
    },
    when_false: StatusText {
        reason: "KubeletHasSufficientMemory",
        message: "kubelet has sufficient memory available",
        event: "NodeHasSufficientMemory",
    },
};

const DISK: ConditionTexts = ConditionTexts {
    type_: "DiskPressure",
    when_true: StatusText {
        reason: "KubeletHasDiskPressure",
        message: "kubelet has disk pressure",
        event: "NodeHasDiskPressure",
    },
    when_false: StatusText {
        reason: "KubeletHasNoDiskPressure",
        message: "kubelet has no disk pressure",
        event: "NodeHasNoDiskPressure",
    },
};

const PIDS: ConditionTexts = ConditionTexts {
    type_: "PIDPressure",
    when_true: StatusText {
        reason: "KubeletHasInsufficientPID",
        message: "kubelet has insufficient PID available",
        event: "NodeHasInsufficientPID",
    },
    when_false: StatusText {
        reason: "KubeletHasSufficientPID",
        message: "kubelet has sufficient PID available",
        event: "NodeHasSufficientPID",
    },
};

/// Returns the texts of a condition type; `None` if it is not the kubelet's.
pub fn texts(type_: &str) -> Option<&'static ConditionTexts> {
    [&MEMORY, &DISK, &PIDS]
        .into_iter()
        .find(|texts| texts.type_ == type_)
}

impl ConditionTexts {
    /// Returns `None` for Unknown, for which a kubelet has no text.
    pub const fn of(&self, status: Status) -> Option<&StatusText> {
        match status {
            Status::True => Some(&self.when_true),
            Status::False => Some(&self.when_false),
            Status::Unknown => None,
        }
    }
}

pub fn memory(context: &Context<'_>, status: &mut NodeStatus) -> Result<(), SetterError> {
    set(&MEMORY, Resource::Memory, context, status)
}

pub fn disk(context: &Context<'_>, status: &mut NodeStatus) -> Result<(), SetterError> {
    set(&DISK, Resource::Disk, context, status)
}

pub fn pids(context: &Context<'_>, status: &mut NodeStatus) -> Result<(), SetterError> {
    set(&PIDS, Resource::Pids, context, status)
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "the shape of a setter, which its three callers have"
)]
fn set(
    texts: &ConditionTexts,
    resource: Resource,
    context: &Context<'_>,
    status: &mut NodeStatus,
) -> Result<(), SetterError> {
    let unavailable;
    // Thresholds are evaluated before the first status is sent: a state that is still unknown has
    // no source.
    let (value, reason, message, same) = if let Some(lost) = context.lost(resource) {
        unavailable = cannot_be_read(resource, lost, context);
        // The node controller's Unknown has another meaning.
        let same = SameStatus::ReplacesText;
        (Status::Unknown, UNAVAILABLE, &*unavailable, same)
    } else {
        let (value, status_text) = match context.pressure(resource) {
            Pressure::UnderPressure { .. } => (Status::True, &texts.when_true),
            Pressure::Normal | Pressure::Unknown => (Status::False, &texts.when_false),
        };
        (
            value,
            status_text.reason,
            status_text.message,
            SameStatus::KeepsText,
        )
    };
    let verdict = ComputedCondition {
        type_: texts.type_,
        status: value,
        reason,
        message,
    };
    status.push(verdict, same);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::BootNanos;
    use crate::node_status::fixture::{self, compute, facts, now, stored, wall};
    use crate::node_status::setters::SETTERS;
    use crate::node_status::{Condition, StoredNode};
    use crate::reading::Signal;

    const UNDER: Pressure = Pressure::UnderPressure {
        last_exceeded: BootNanos(1),
    };

    fn condition(
        type_: &str,
        resource: Resource,
        pressure: Pressure,
        before: Option<Condition>,
    ) -> Condition {
        let mut facts = facts();
        facts.pressures.insert(resource, pressure);
        fixture::condition(type_, &facts, before)
    }

    #[test]
    fn the_texts_are_the_kubelets() {
        use Pressure::Normal;
        #[rustfmt::skip]
        let rows = [
            ("MemoryPressure", Resource::Memory, UNDER, Status::True, "KubeletHasInsufficientMemory",
                "kubelet has insufficient memory available", "NodeHasInsufficientMemory"),
            ("MemoryPressure", Resource::Memory, Normal, Status::False, "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available", "NodeHasSufficientMemory"),
            ("DiskPressure", Resource::Disk, UNDER, Status::True, "KubeletHasDiskPressure",
                "kubelet has disk pressure", "NodeHasDiskPressure"),
            ("DiskPressure", Resource::Disk, Normal, Status::False, "KubeletHasNoDiskPressure",
                "kubelet has no disk pressure", "NodeHasNoDiskPressure"),
            ("PIDPressure", Resource::Pids, UNDER, Status::True, "KubeletHasInsufficientPID",
                "kubelet has insufficient PID available", "NodeHasInsufficientPID"),
            ("PIDPressure", Resource::Pids, Normal, Status::False, "KubeletHasSufficientPID",
                "kubelet has sufficient PID available", "NodeHasSufficientPID"),
        ];
        for (type_, resource, pressure, status, reason, message, event) in rows {
            let c = condition(type_, resource, pressure, None);
            assert_eq!(
                (c.status, &*c.reason, &*c.message),
                (status, reason, message),
                "{type_} {pressure:?}"
            );
            let status_text = texts(type_).unwrap().of(status).unwrap();
            assert_eq!(status_text.event, event);
            assert_eq!(texts(type_).unwrap().of(Status::Unknown), None);
        }
        assert_eq!(texts("Ready"), None);
        assert_eq!(texts("DiskIOPressure"), None);
    }

    #[test]
    fn without_a_source_it_is_unknown_and_neither_a_stale_true_nor_a_guessed_false() {
        let both = vec![Signal::NodefsAvailable, Signal::NodefsInodesFree];
        #[rustfmt::skip]
        let rows = [
            ("MemoryPressure", Resource::Memory, vec![Signal::MemoryAvailable], "memory.available cannot be read"),
            ("MemoryPressure", Resource::Memory, vec![Signal::AllocatableMemoryAvailable],
                "memory.available of the pods cgroup /kubepods cannot be read"),
            ("DiskPressure", Resource::Disk, both, "nodefs.available and nodefs.inodesFree cannot be read"),
            ("PIDPressure", Resource::Pids, vec![Signal::PidAvailable], "pid.available cannot be read"),
        ];
        for (type_, resource, signals, message) in rows {
            for pressure in [UNDER, Pressure::Unknown] {
                let mut facts = facts();
                facts.pressures.insert(resource, pressure);
                facts.lost.insert(resource, signals.clone());
                // The node controller's text about an unresponsive node does not stay.
                let before = stored(type_, Status::Unknown, "NodeStatusUnknown", "theirs");
                let stored = StoredNode {
                    conditions: vec![before],
                    ..StoredNode::default()
                };
                let (status, _) = compute(SETTERS, &facts, &stored, now());
                let all = status.conditions.iter();
                let unknown: Vec<_> = all
                    .filter(|c| c.status == Status::Unknown)
                    .map(|c| (&*c.type_, &*c.reason, &*c.message))
                    .collect();
                assert_eq!(unknown, [(type_, UNAVAILABLE, message)], "{pressure:?}");
            }
        }
        let never = condition("PIDPressure", Resource::Pids, Pressure::Unknown, None);
        let found = (never.status, &*never.reason, &*never.message);
        let expected = (Status::Unknown, UNAVAILABLE, "pid.available cannot be read");
        assert_eq!(found, expected, "never sampled");
    }

    #[test]
    fn the_text_and_the_transition_time_change_only_with_the_status() {
        let then = wall(1_000_000_000);
        let at_once = wall(1_800_000_000);
        #[rustfmt::skip]
        let rows = [
            (None, UNDER, "KubeletHasInsufficientMemory", at_once, "a new condition"),
            (Some(Status::False), UNDER, "KubeletHasInsufficientMemory", at_once, "a transition"),
            (Some(Status::Unknown), Pressure::Normal, "KubeletHasSufficientMemory", at_once,
                "the controller's Unknown is replaced"),
            (Some(Status::True), UNDER, "Theirs", then, "the same status: another writer's text stays"),
            (Some(Status::False), Pressure::Normal, "Theirs", then, "the same, False"),
        ];
        for (before, pressure, reason, time, why) in rows {
            let before = before.map(|status| stored("MemoryPressure", status, "Theirs", "theirs"));
            let c = condition("MemoryPressure", Resource::Memory, pressure, before);
            assert_eq!(
                (&*c.reason, c.last_transition_time),
                (reason, time),
                "{why}"
            );
            assert_eq!(c.last_heartbeat_time, at_once, "{why}");
        }
    }

    #[test]
    fn no_resource_moves_the_condition_of_another() {
        for (resource, type_) in [
            (Resource::Memory, "MemoryPressure"),
            (Resource::Disk, "DiskPressure"),
            (Resource::Pids, "PIDPressure"),
            (Resource::DiskIo, "DiskIOPressure"),
        ] {
            let mut facts = facts();
            facts.pressures.insert(resource, UNDER);
            let (status, _) = compute(SETTERS, &facts, &StoredNode::default(), now());
            let under: Vec<_> = status
                .conditions
                .iter()
                .filter(|c| c.status == Status::True && c.type_ != "Ready")
                .map(|c| &*c.type_)
                .collect();
            assert_eq!(under, [type_]);
        }
    }
}
