//! `Ready`: False while anything prevents pods from running, with the reasons.

use super::{Context, SetterError};
use crate::node_status::stamp::{ComputedCondition, SameStatus};
use crate::node_status::{ContainerRuntime, NodeStatus, Runtime, RuntimeCheck, Shutdown, Status};
use crate::reading::container_runtime::RuntimeCondition;

pub const TYPE: &str = "Ready";

/// Resources without which the scheduler cannot place a pod, in the order in which they are named.
const NEEDED: [&str; 4] = ["cpu", "memory", "pods", "ephemeral-storage"];

/// Needs the capacity, which an earlier setter writes.
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

/// Returns the errors in the kubelet's order: runtime, shutdown, capacity.
fn errors(context: &Context<'_>, status: &NodeStatus) -> Vec<String> {
    let runtime = match context.facts.runtime {
        Runtime::Required => runtime_errors(context.facts.container_runtime.as_ref()),
        Runtime::NotNeeded => Vec::new(),
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
    let others = [shutdown, capacity].into_iter().flatten();
    runtime.into_iter().chain(others).collect()
}

/// Returns the reasons for which the runtime cannot run containers: as a whole, then its network.
fn runtime_errors(runtime: Option<&ContainerRuntime>) -> Vec<String> {
    let Some(runtime) = runtime else {
        return vec!["no container runtime configured".to_owned()];
    };
    let checked = match runtime.checked {
        RuntimeCheck::Never => Some("container runtime status check may not have completed yet"),
        RuntimeCheck::Recently => None,
        RuntimeCheck::Stale => Some("container runtime is down"),
    };
    let status = runtime.status.as_ref();
    let not_ready = status.and_then(|status| {
        let why = not_true("RuntimeReady", status.runtime.as_ref())?;
        Some(format!("container runtime not ready: {why}"))
    });
    let network = match status {
        None => Some("network state unknown".to_owned()),
        Some(status) => not_true("NetworkReady", status.network.as_ref())
            .map(|why| format!("container runtime network not ready: {why}")),
    };
    let checked = checked.map(str::to_owned);
    [checked, not_ready, network]
        .into_iter()
        .flatten()
        .collect()
}

/// Prints a condition of the runtime as the kubelet does; `None` if it is true.
fn not_true(type_: &str, condition: Option<&RuntimeCondition>) -> Option<String> {
    match condition {
        None => Some(format!("the runtime does not report {type_}")),
        Some(RuntimeCondition { is_true: true, .. }) => None,
        Some(RuntimeCondition {
            reason, message, ..
        }) => Some(format!("{type_}=false reason:{reason} message:{message}")),
    }
}

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
    use crate::reading::container_runtime::RuntimeStatus;
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
        #[rustfmt::skip]
        let rows = [
            (Runtime::NotNeeded, Shutdown::NotAnnounced, Some(1),
                (Status::True, "KubeletReady", "kubelet is posting ready status")),
            (Runtime::Required, Shutdown::NotAnnounced, Some(1),
                (Status::False, "KubeletNotReady", "no container runtime configured")),
            (Runtime::NotNeeded, Shutdown::Announced, Some(1),
                (Status::False, "KubeletNotReady", "node is shutting down")),
            (Runtime::NotNeeded, Shutdown::NotAnnounced, None, (Status::False, "KubeletNotReady", no_disk)),
            (Runtime::Required, Shutdown::Announced, Some(1),
                (Status::False, "KubeletNotReady", "[no container runtime configured, node is shutting down]")),
            (
                Runtime::Required,
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
    fn ready_names_what_is_wrong_with_the_runtime() {
        let condition = |is_true| {
            Some(RuntimeCondition {
                is_true,
                reason: "Reason".to_owned(),
                message: "a message".to_owned(),
            })
        };
        let status = |runtime, network| {
            Some(RuntimeStatus {
                runtime,
                network,
                ..RuntimeStatus::default()
            })
        };
        let ready = || status(condition(true), condition(true));
        #[rustfmt::skip]
        let rows = [
            (RuntimeCheck::Recently, ready(), "kubelet is posting ready status"),
            (RuntimeCheck::Never, None,
                "[container runtime status check may not have completed yet, network state unknown]"),
            (RuntimeCheck::Stale, ready(), "container runtime is down"),
            (
                RuntimeCheck::Recently,
                status(condition(true), condition(false)),
                "container runtime network not ready: NetworkReady=false reason:Reason \
                 message:a message",
            ),
            (
                RuntimeCheck::Never,
                status(condition(false), condition(true)),
                "[container runtime status check may not have completed yet, container runtime not \
                 ready: RuntimeReady=false reason:Reason message:a message]",
            ),
            (
                RuntimeCheck::Stale,
                status(condition(false), condition(false)),
                "[container runtime is down, container runtime not ready: RuntimeReady=false \
                 reason:Reason message:a message, container runtime network not ready: \
                 NetworkReady=false reason:Reason message:a message]",
            ),
            (RuntimeCheck::Recently, status(condition(true), None),
                "container runtime network not ready: the runtime does not report NetworkReady"),
        ];
        for (checked, status, expected) in rows {
            let mut facts = facts();
            let runtime = ContainerRuntime {
                checked,
                status,
                ..ContainerRuntime::default()
            };
            facts.container_runtime = Some(runtime);
            let unneeded = self::ready(&facts, &StoredNode::default());
            assert_eq!(unneeded.status, Status::True, "it is not required");
            facts.runtime = Runtime::Required;
            assert_eq!(
                self::ready(&facts, &StoredNode::default()).message,
                expected
            );
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
