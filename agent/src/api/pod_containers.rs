//! The containers of one pod, read when something happened in one of them.

#![forbid(unsafe_code)]

use serde_json::Value;

use super::{ApiError, Client, Endpoint};
use crate::pods::{Container, ContainerList, Containers};

/// The status lists of a pod's containers.
const LISTS: [(ContainerList, &str); 3] = [
    (ContainerList::Containers, "/status/containerStatuses"),
    (ContainerList::Init, "/status/initContainerStatuses"),
    (
        ContainerList::Ephemeral,
        "/status/ephemeralContainerStatuses",
    ),
];

/// The ids in a container's status: of the current run, and of the previous one.
const IDS: [&str; 3] = [
    "/containerID",
    "/state/terminated/containerID",
    "/lastState/terminated/containerID",
];

/// Reads one pod of this node.
pub async fn read(client: &Client, namespace: &str, name: &str) -> Result<Containers, ApiError> {
    let pod = client.get(&Endpoint::pod(namespace, name)).await?;
    Ok(containers(&pod))
}

pub(super) fn containers(pod: &Value) -> Containers {
    let mut found = Containers::default();
    for (list, status) in LISTS {
        let container = |entry: &Value| {
            let name = entry.pointer("/name").and_then(Value::as_str)?;
            Container::new(list, name)
        };
        for state in entries(pod, status) {
            let Some(container) = container(state) else {
                continue;
            };
            let ids = IDS.iter().filter_map(|at| state.pointer(at)?.as_str());
            for id in ids {
                // `containerd://<id>`
                let id = id.rsplit('/').next().unwrap_or_default();
                if found.find(id).is_none() {
                    found.add(id, container.clone());
                }
            }
        }
    }
    found
}

fn entries<'a>(pod: &'a Value, at: &str) -> impl Iterator<Item = &'a Value> {
    pod.pointer(at)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ids_of_every_list_and_of_the_previous_run_lead_to_the_name() {
        let pod = json!({
            "status": {
                "containerStatuses": [
                    {
                        "name": "web", "containerID": "containerd://aa",
                        "lastState": { "terminated": { "containerID": "containerd://bb" } },
                    },
                    { "name": "proxy", "containerID": "" },
                    { "name": "\u{1b}", "containerID": "containerd://dd" },
                    { "containerID": "containerd://ee" },
                ],
                "initContainerStatuses": [
                    { "name": "setup", "state": { "terminated": { "containerID": "cri-o://cc" } } },
                ],
                "ephemeralContainerStatuses": [{ "name": "debug", "containerID": "docker://ff" }],
            },
        });
        let containers = containers(&pod);
        let path = |id| containers.find(id).map(Container::field_path);
        let rows = [
            ("aa", Some("spec.containers{web}")),
            ("bb", Some("spec.containers{web}")),
            ("cc", Some("spec.initContainers{setup}")),
            ("ff", Some("spec.ephemeralContainers{debug}")),
            ("dd", None),
            ("ee", None),
            ("", None),
        ];
        for (id, expected) in rows {
            assert_eq!(path(id).as_deref(), expected, "{id:?}");
        }
        for nonsense in [
            json!({ "status": { "containerStatuses": "x" } }),
            json!(null),
        ] {
            assert_eq!(super::containers(&nonsense), Containers::default());
        }
    }
}
