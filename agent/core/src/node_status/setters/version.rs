//! `nodeInfo`: versions of kernel, operating system and agent.

use super::{Context, SetterError};
use crate::node_status::release::Release;
use crate::node_status::{Facts, NodeStatus};
use crate::reading::container_runtime::RuntimeVersion;

pub fn set(context: &Context<'_>, status: &mut NodeStatus) -> Result<(), SetterError> {
    let facts = context.facts;
    let info = &mut status.node_info;
    info.kernel_version
        .clone_from(&facts.machine.kernel_version);
    info.os_image.clone_from(&facts.machine.os_image);
    info.kubelet_version = kubelet_version(facts);
    info.container_runtime_version = match &facts.container_runtime {
        None => Some(String::new()),
        Some(runtime) => runtime
            .version
            .as_ref()
            .map(|RuntimeVersion { name, version }| {
                format!("{name}://{}", version.as_deref().unwrap_or("Unknown"))
            }),
    };
    Ok(())
}

/// Marks the Node as nodepulse's by build metadata.
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
    use crate::node_status::fixture::{facts, status_of};
    use crate::node_status::{ContainerRuntime, Facts};
    use crate::reading::container_runtime::RuntimeVersion;

    #[test]
    fn the_version_of_the_runtime_is_reported_while_it_answers() {
        let of = |version: Option<&str>| RuntimeVersion {
            name: "containerd".to_owned(),
            version: version.map(str::to_owned),
        };
        let with = |version| {
            Some(ContainerRuntime {
                version,
                ..ContainerRuntime::default()
            })
        };
        #[rustfmt::skip]
        let rows = [
            (None, Some(""), "there is none"),
            (with(None), None, "it has not answered yet"),
            (with(Some(of(Some("2.1.4")))), Some("containerd://2.1.4"), "it answers"),
            (with(Some(of(None))), Some("containerd://Unknown"), "it does not answer any more"),
        ];
        for (container_runtime, expected, why) in rows {
            let facts = Facts {
                container_runtime,
                ..facts()
            };
            let info = status_of(&facts).node_info;
            assert_eq!(info.container_runtime_version.as_deref(), expected, "{why}");
        }
    }
}
