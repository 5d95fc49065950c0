//! Reports of the container runtime: `images`, `runtimeHandlers` and `features`.
//!
//! The last report stays while the runtime does not answer, as in the kubelet: its images do not
//! disappear with it.

use super::{Context, SetterError};
use crate::node_status::NodeStatus;

pub fn images(context: &Context<'_>, status: &mut NodeStatus) -> Result<(), SetterError> {
    let runtime = context.facts.container_runtime.as_ref();
    status.images = runtime.and_then(|runtime| runtime.images.clone());
    Ok(())
}

pub fn handlers(context: &Context<'_>, status: &mut NodeStatus) -> Result<(), SetterError> {
    let runtime = context.facts.container_runtime.as_ref();
    let mut handlers = runtime.and_then(|runtime| runtime.handlers.clone());
    // The order of a runtime can change from one answer to the next.
    if let Some(handlers) = &mut handlers {
        handlers.sort_by(|a, b| a.name.cmp(&b.name));
    }
    status.runtime_handlers = handlers;
    Ok(())
}

pub fn features(context: &Context<'_>, status: &mut NodeStatus) -> Result<(), SetterError> {
    let runtime = context.facts.container_runtime.as_ref();
    status.supplemental_groups_policy =
        runtime.and_then(|runtime| runtime.supplemental_groups_policy);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::node_status::fixture::{compute, facts, now, status_of};
    use crate::node_status::setters::{COMPANION, SETTERS};
    use crate::node_status::{ContainerRuntime, Facts, NodeStatus, RuntimeCheck, StoredNode};
    use crate::reading::container_runtime::{NodeImage, RuntimeHandler};

    fn handler(name: &str) -> RuntimeHandler {
        RuntimeHandler {
            name: name.to_owned(),
            recursive_read_only_mounts: true,
            user_namespaces: false,
        }
    }

    fn image() -> NodeImage {
        NodeImage {
            names: vec!["r/a:1".to_owned()],
            size: 7,
        }
    }

    #[test]
    fn what_the_runtime_reported_last_stays_while_it_does_not_answer() {
        for checked in [RuntimeCheck::Recently, RuntimeCheck::Stale] {
            let runtime = ContainerRuntime {
                checked,
                handlers: Some(["runc", "", "crun"].map(handler).into()),
                supplemental_groups_policy: Some(true),
                images: Some(Arc::new(vec![image()])),
                ..ContainerRuntime::default()
            };
            let facts = Facts {
                container_runtime: Some(runtime),
                ..facts()
            };
            let status = status_of(&facts);
            assert_eq!(status.images.as_deref(), Some(&vec![image()]));
            assert_eq!(
                status.runtime_handlers.unwrap(),
                ["", "crun", "runc"].map(handler)
            );
            assert_eq!(status.supplemental_groups_policy, Some(true));
        }
    }

    #[test]
    fn nothing_is_reported_before_the_runtime_answers_or_of_a_kubelets_runtime() {
        let full = ContainerRuntime {
            handlers: Some(vec![handler("")]),
            supplemental_groups_policy: Some(true),
            images: Some(Arc::new(vec![image()])),
            ..ContainerRuntime::default()
        };
        let rows = [
            (SETTERS, None),
            (SETTERS, Some(ContainerRuntime::default())),
            (COMPANION, Some(full)),
        ];
        for (setters, container_runtime) in rows {
            let facts = Facts {
                container_runtime,
                ..facts()
            };
            let (status, _) = compute(setters, &facts, &StoredNode::default(), now());
            let NodeStatus {
                images,
                runtime_handlers,
                supplemental_groups_policy,
                ..
            } = status;
            assert_eq!(
                (images, runtime_handlers, supplemental_groups_policy),
                (None, None, None)
            );
        }
    }
}
