//! `nodeInfo`: versions of kernel, operating system and agent.

use super::{Context, SetterError};
use crate::node_status::release::Release;
use crate::node_status::{Facts, NodeStatus, Runtime};

/// Writes the versions.
pub fn set(context: &Context<'_>, status: &mut NodeStatus) -> Result<(), SetterError> {
    let facts = context.facts;
    let info = &mut status.node_info;
    info.kernel_version
        .clone_from(&facts.machine.kernel_version);
    info.os_image.clone_from(&facts.machine.os_image);
    info.kubelet_version = kubelet_version(facts);
    info.container_runtime_version = match facts.runtime {
        Runtime::Missing | Runtime::NotNeeded => String::new(),
    };
    Ok(())
}

/// Build metadata marks the Node as nodepulse's.
fn kubelet_version(facts: &Facts) -> String {
    const NODEPULSE: &str = env!("CARGO_PKG_VERSION");

    match &facts.kubernetes_version {
        Some(configured) => format!("{configured}+nodepulse.{NODEPULSE}"),
        None => format!(
            "{}+nodepulse.{NODEPULSE}",
            Release::reported_to(facts.api_server)
        ),
    }
}

#[cfg(test)]
mod tests {
    use crate::node_status::StoredNode;
    use crate::node_status::fixture::compute;
    use crate::node_status::fixture::{facts, now};
    use crate::node_status::setters::SETTERS;

    #[test]
    fn versions_are_reported_as_they_were_read() {
        let (status, _) = compute(SETTERS, &facts(), &StoredNode::default(), now());
        let info = status.node_info;
        assert_eq!(info.kernel_version, "6.12.0");
        assert_eq!(info.os_image, "Debian GNU/Linux 13 (trixie)");
        assert_eq!(info.kubelet_version, "v1.36.1+nodepulse.0.1.0");
        assert_eq!(info.container_runtime_version, "", "there is no runtime");
    }
}
