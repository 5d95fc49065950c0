//! Reads the containers of one pod after an event in one of them.

#![forbid(unsafe_code)]

use nodepulse_core::pods::{Container, ContainerList, Containers, MemoryLimits};
use serde_json::Value;

use super::convert::entries;
use super::{ApiError, Client, Endpoint};

/// The lists of a pod's containers: in the specification, and in the status.
const LISTS: [(ContainerList, &str, &str); 3] = [
    (
        ContainerList::Containers,
        "/spec/containers",
        "/status/containerStatuses",
    ),
    (
        ContainerList::Init,
        "/spec/initContainers",
        "/status/initContainerStatuses",
    ),
    (
        ContainerList::Ephemeral,
        "/spec/ephemeralContainers",
        "/status/ephemeralContainerStatuses",
    ),
];

/// The container IDs in a container's status: of the current run, and of the previous one.
const IDS: [&str; 3] = [
    "/containerID",
    "/state/terminated/containerID",
    "/lastState/terminated/containerID",
];

pub async fn read(client: &Client, namespace: &str, name: &str) -> Result<Containers, ApiError> {
    let pod = client.get(&Endpoint::pod(namespace, name)).await?;
    Ok(containers(&pod))
}

pub(super) fn containers(pod: &Value) -> Containers {
    let mut found = Containers::default();
    for (list, specification, status) in LISTS {
        let container = |entry: &Value| {
            let name = entry.pointer("/name").and_then(Value::as_str)?;
            Container::new(Some(list), name)
        };
        for entry in entries(pod, specification) {
            let Some(container) = container(entry) else {
                continue;
            };
            let container = container.restarting(restarts(pod, list, entry));
            found.specify(container.limited(limits(pod, entry)));
        }
        for state in entries(pod, status) {
            let Some(mut container) = container(state) else {
                continue;
            };
            if let Some(specified) = found.named(&container.name) {
                container.restarts = specified.restarts;
                container.limits = specified.limits;
            }
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

/// Returns true if a container restarts after a signal killed it, by its restart policy, otherwise
/// by that of its pod. The API server sets the pod's if it is absent. `None` if rules for exit
/// codes decide it (`restartPolicyRules`, KEP-5307).
fn restarts(pod: &Value, list: ContainerList, entry: &Value) -> Option<bool> {
    if list == ContainerList::Ephemeral {
        return Some(false);
    }
    if entry.pointer("/restartPolicyRules").is_some() {
        return None;
    }
    let specific = entry.pointer("/restartPolicy");
    match specific
        .or_else(|| pod.pointer("/spec/restartPolicy"))?
        .as_str()?
    {
        "Always" | "OnFailure" => Some(true),
        "Never" => Some(false),
        _ => None,
    }
}

fn limits(pod: &Value, entry: &Value) -> MemoryLimits {
    let has_limit = |of: &Value| of.pointer("/resources/limits/memory").is_some();
    MemoryLimits {
        container: has_limit(entry),
        pod: pod.get("spec").is_some_and(has_limit),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_policy_of_a_container_or_of_its_pod_decides_whether_it_restarts() {
        let pod = |policy: &str| {
            json!({
                "spec": {
                    "restartPolicy": policy,
                    "containers": [
                        { "name": "web" },
                        { "name": "once", "restartPolicy": "Never" },
                        { "name": "ruled", "restartPolicy": "Never", "restartPolicyRules": [{}] },
                    ],
                    "initContainers": [
                        { "name": "setup" }, { "name": "sidecar", "restartPolicy": "Always" },
                    ],
                    "ephemeralContainers": [{ "name": "debug" }],
                },
                "status": {
                    "containerStatuses": [{ "name": "web", "containerID": "containerd://aa" }],
                },
            })
        };
        let names = ["web", "once", "ruled", "setup", "sidecar", "debug"];
        let (yes, no) = (Some(true), Some(false));
        for (policy, expected) in [
            ("Always", [yes, no, None, yes, yes, no]),
            ("OnFailure", [yes, no, None, yes, yes, no]),
            ("Never", [no, no, None, no, yes, no]),
            ("Later", [None, no, None, None, yes, no]),
        ] {
            let containers = containers(&pod(policy));
            let found = names.map(|name| containers.named(name).unwrap().restarts);
            assert_eq!(found, expected, "{policy}");
            assert_eq!(containers.find("aa").unwrap().restarts, expected[0]);
        }
    }

    #[test]
    fn ids_of_every_list_and_of_the_previous_run_lead_to_the_name() {
        let pod = json!({
            "spec": {
                "containers": [{ "name": "\u{1b}" }],
                "initContainers": [{ "name": "late" }],
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
        let path = |id| containers.find(id).and_then(Container::field_path);
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
        let named = |name| containers.named(name).and_then(Container::field_path);
        assert_eq!(named("late").as_deref(), Some("spec.initContainers{late}"));
        assert_eq!(named("web"), None, "not in the specification");
        for nonsense in [
            json!({ "spec": { "containers": [7, {}, { "name": 7 }] } }),
            json!({ "status": { "containerStatuses": "x" } }),
            json!(null),
        ] {
            assert_eq!(super::containers(&nonsense), Containers::default());
        }
    }
}
