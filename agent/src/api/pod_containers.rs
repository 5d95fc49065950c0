//! The containers of one pod, asked for when something happened in one.

#![forbid(unsafe_code)]

use serde_json::Value;

use super::{ApiError, Client, Place};
use crate::pods::{Container, Containers, List};

/// Where the containers of a pod and their states are.
const LISTS: [(List, &str, &str); 3] = [
    (
        List::Containers,
        "/spec/containers",
        "/status/containerStatuses",
    ),
    (
        List::Init,
        "/spec/initContainers",
        "/status/initContainerStatuses",
    ),
    (
        List::Ephemeral,
        "/spec/ephemeralContainers",
        "/status/ephemeralContainerStatuses",
    ),
];

/// Where ids are in the state of a container: of this run, and of the one before.
const IDS: [&str; 3] = [
    "/containerID",
    "/state/terminated/containerID",
    "/lastState/terminated/containerID",
];

/// Reads one pod of ours.
///
/// # Errors
///
/// As for every request.
pub async fn read(client: &Client, namespace: &str, name: &str) -> Result<Containers, ApiError> {
    let pod = client.get(&Place::pod(namespace, name)).await?;
    Ok(containers(&pod))
}

fn containers(pod: &Value) -> Containers {
    let mut found = Containers::default();
    let mut specified = Vec::new();
    for (list, spec, status) in LISTS {
        let container = |entry: &Value| {
            let name = entry.pointer("/name").and_then(Value::as_str)?;
            Container::new(list, name)
        };
        specified.extend(entries(pod, spec).map(container));
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
    if let [Some(only)] = specified.as_slice() {
        found.set_only(only.clone());
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
    fn ids_of_every_list_and_of_the_run_before_lead_to_the_name() {
        let pod = json!({
            "spec": {
                "containers": [{ "name": "web" }, { "name": "proxy" }],
                "initContainers": [{ "name": "setup" }],
            },
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
    }

    #[test]
    fn the_only_container_is_meant_by_an_id_that_the_server_has_not_heard_of() {
        let web = json!([{ "name": "web" }]);
        let rows = [
            (json!({ "spec": { "containers": web } }), Some("web")),
            (
                json!({ "spec": { "containers": web, "initContainers": web } }),
                None,
            ),
            (
                json!({ "spec": { "containers": [{ "name": "a" }, { "name": "b" }] } }),
                None,
            ),
            (
                json!({ "spec": { "containers": [{ "name": "a" }, {}] } }),
                None,
            ),
            (json!({ "spec": "x" }), None),
            (json!(null), None),
        ];
        for (pod, expected) in rows {
            let containers = containers(&pod);
            let name = containers.find("aa").map(|only| &*only.name);
            assert_eq!(name, expected, "{pod}");
        }
    }
}
