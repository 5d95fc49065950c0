//! `Ready`: False while anything prevents pods from running, with the reasons.

use super::{Context, SetterError};
use crate::node_status::stamp::{ComputedCondition, SameStatus};
use crate::node_status::{NodeStatus, Runtime, Shutdown, Status};

/// `type`.
pub const TYPE: &str = "Ready";

/// Resources without which the scheduler cannot place a pod, in the order in which they are named.
const NEEDED: [&str; 4] = ["cpu", "memory", "pods", "ephemeral-storage"];

/// Appends the condition. Needs the capacity.
pub fn set(context: &Context<'_>, status: &mut NodeStatus) -> Result<(), SetterError> {
    let errors = errors(context, status);
    let message = match errors.as_slice() {
        [] => "kubelet is posting ready status".to_owned(),
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    let (value, reason) = if errors.is_empty() {
        (Status::True, "KubeletReady")
    } else {
        (Status::False, "KubeletNotReady")
    };
    let verdict = ComputedCondition {
        type_: TYPE,
        status: value,
        reason,
        message: &message,
    };
    status.push(verdict, SameStatus::ReplacesText);
    Ok(())
}

/// In the kubelet's order: runtime, shutdown, capacity.
fn errors(context: &Context<'_>, status: &NodeStatus) -> Vec<String> {
    let runtime = match context.facts.runtime {
        Runtime::Missing => Some("no container runtime configured".to_owned()),
        Runtime::NotNeeded => None,
    };
    let shutdown = match context.facts.shutdown {
        Shutdown::Announced => Some("node is shutting down".to_owned()),
        Shutdown::NotAnnounced => None,
    };
    // A key that cannot be computed now but is stored stays, so it is not missing.
    let missing: Vec<&str> = NEEDED
        .into_iter()
        .filter(|&key| {
            !status.capacity.contains_key(key) && !context.stored_capacity.contains_key(key)
        })
        .collect();
    let capacity = (!missing.is_empty()).then(|| {
        format!(
            "missing node capacity for resources: {}",
            missing.join(", ")
        )
    });
    [runtime, shutdown, capacity]
        .into_iter()
        .flatten()
        .collect()
}

/// The reason of the Event about a change to `status`.
pub const fn event_reason(status: Status) -> &'static str {
    match status {
        Status::True => "NodeReady",
        Status::False | Status::Unknown => "NodeNotReady",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_status::fixture::compute;
    use crate::node_status::fixture::{facts, now, stored, wall};
    use crate::node_status::setters::SETTERS;
    use crate::node_status::{Condition, Facts, StoredNode};
    use crate::units::quantity::Quantity;

    fn ready(facts: &Facts, stored: &StoredNode) -> Condition {
        let (mut status, _) = compute(SETTERS, facts, stored, now());
        let last = status.conditions.pop().unwrap();
        assert_eq!(last.type_, TYPE, "the last of the conditions");
        last
    }

    #[test]
    fn ready_names_what_prevents_it() {
        let no_disk = "missing node capacity for resources: ephemeral-storage";
        let rows = [
            (
                Runtime::NotNeeded,
                Shutdown::NotAnnounced,
                Some(1),
                (
                    Status::True,
                    "KubeletReady",
                    "kubelet is posting ready status",
                ),
            ),
            (
                Runtime::Missing,
                Shutdown::NotAnnounced,
                Some(1),
                (
                    Status::False,
                    "KubeletNotReady",
                    "no container runtime configured",
                ),
            ),
            (
                Runtime::NotNeeded,
                Shutdown::Announced,
                Some(1),
                (Status::False, "KubeletNotReady", "node is shutting down"),
            ),
            (
                Runtime::NotNeeded,
                Shutdown::NotAnnounced,
                None,
                (Status::False, "KubeletNotReady", no_disk),
            ),
            (
                Runtime::Missing,
                Shutdown::Announced,
                Some(1),
                (
                    Status::False,
                    "KubeletNotReady",
                    "[no container runtime configured, node is shutting down]",
                ),
            ),
            (
                Runtime::Missing,
                Shutdown::Announced,
                None,
                (
                    Status::False,
                    "KubeletNotReady",
                    "[no container runtime configured, node is shutting down, missing node \
                     capacity for resources: ephemeral-storage]",
                ),
            ),
        ];
        for (runtime, shutdown, storage, expected) in rows {
            let mut facts = facts();
            facts.runtime = runtime;
            facts.shutdown = shutdown;
            facts.ephemeral_storage = storage.map(crate::units::Bytes::from_bytes);
            let c = ready(&facts, &StoredNode::default());
            assert_eq!((c.status, &*c.reason, &*c.message), expected);
        }
    }

    #[test]
    fn every_missing_resource_is_named_in_the_kubelets_order() {
        let facts = facts();
        let stored = StoredNode::default();
        let context = Context {
            facts: &facts,
            stored_capacity: &stored.capacity,
        };
        let mut status = NodeStatus::default();
        set(&context, &mut status).unwrap();
        assert_eq!(
            status.conditions[0].message,
            "missing node capacity for resources: cpu, memory, pods, ephemeral-storage"
        );
    }

    #[test]
    fn a_stored_resource_is_not_missing() {
        let mut facts = facts();
        facts.ephemeral_storage = None;
        let stored = StoredNode {
            capacity: [("ephemeral-storage".to_owned(), Quantity::from_count(1))].into(),
            ..StoredNode::default()
        };
        assert_eq!(ready(&facts, &stored).status, Status::True);
    }

    #[test]
    fn the_message_is_always_new_and_the_transition_time_only_with_the_status() {
        let rows = [
            (Status::True, wall(1_000_000_000), "the same"),
            (Status::False, wall(1_800_000_000), "a transition"),
            (
                Status::Unknown,
                wall(1_800_000_000),
                "the controller's Unknown is replaced",
            ),
        ];
        for (before, time, why) in rows {
            let stored = StoredNode {
                conditions: vec![stored(TYPE, before, "Theirs", "theirs")],
                ..StoredNode::default()
            };
            let c = ready(&facts(), &stored);
            assert_eq!(
                (&*c.reason, &*c.message, c.last_transition_time),
                ("KubeletReady", "kubelet is posting ready status", time),
                "{why}"
            );
        }
    }
}
