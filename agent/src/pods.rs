//! PURE: what a cgroup path says about pods.
//!
//! A path is text that a tenant can choose below its own cgroup: only what stands directly below
//! the pods cgroup or one of its `QoS` classes counts as a pod.

#![forbid(unsafe_code)]

/// What a memory cgroup is for, by its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The cgroup that holds all pods.
    Pods,
    /// A pod's own cgroup.
    Pod {
        /// `metadata.uid`, or the config hash of a static pod.
        uid: String,
    },
    /// A cgroup in a pod.
    Container {
        /// Of the pod.
        uid: String,
        /// The container id, where the name of the cgroup is of a form that we know.
        container: Option<String>,
    },
    /// Anywhere else.
    Other,
}

/// Longest pod UID: a UUID has 36 characters, a static pod's hash 32.
const UID_LENGTH: usize = 36;
/// A container id: 64 hexadecimal digits.
const CONTAINER_ID_LENGTH: usize = 64;

/// What the cgroup at `path` is for, where `pods` is the path of the pods cgroup: `/kubepods` with
/// the cgroupfs driver, `/kubepods.slice` with systemd's. Both begin with `/`.
#[must_use]
pub fn place(path: &str, pods: &str) -> Place {
    let Some(below) = path.strip_prefix(pods) else {
        return Place::Other;
    };
    let Some(below) = below.strip_prefix('/') else {
        return if below.is_empty() {
            Place::Pods
        } else {
            Place::Other
        };
    };
    let mut names = below.split('/').peekable();
    if names.peek().is_some_and(|name| is_qos_class(name)) {
        names.next();
    }
    let Some(uid) = names.next().and_then(pod_uid) else {
        return Place::Other;
    };
    match names.next() {
        None => Place::Pod { uid },
        Some(name) => Place::Container {
            uid,
            container: container_id(name),
        },
    }
}

fn is_qos_class(name: &str) -> bool {
    let systemd = ["kubepods-burstable.slice", "kubepods-besteffort.slice"];
    ["burstable", "besteffort"].contains(&name) || systemd.contains(&name)
}

/// `pod<uid>`, or `kubepods[-<class>]-pod<uid>.slice` with `_` for `-`.
fn pod_uid(name: &str) -> Option<String> {
    let uid = match name.strip_suffix(".slice") {
        Some(slice) => slice
            .strip_prefix("kubepods-")?
            .rsplit_once("pod")?
            .1
            .replace('_', "-"),
        None => name.strip_prefix("pod")?.to_owned(),
    };
    let plain = uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    (plain && !uid.is_empty() && uid.len() <= UID_LENGTH).then_some(uid)
}

/// The id in `<id>`, `<runtime>-<id>.scope` or `crio-<id>`.
fn container_id(name: &str) -> Option<String> {
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let id = name.rsplit_once('-').map_or(name, |(_, id)| id);
    let is_id = id.len() == CONTAINER_ID_LENGTH && id.bytes().all(|b| b.is_ascii_hexdigit());
    is_id.then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "6d8a4d2e-1f4b-4a62-9b0e-0f7c0f5d8a11";
    const ID: &str = "3b5c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c";

    #[test]
    fn paths_of_both_drivers_are_told_apart() {
        let uid = || UID.to_owned();
        let pod = || Place::Pod { uid: uid() };
        let container = |id: Option<&str>| Place::Container {
            uid: uid(),
            container: id.map(str::to_owned),
        };
        let systemd = UID.replace('-', "_");
        let rows = [
            ("/kubepods", "/kubepods".to_owned(), Place::Pods, "all pods"),
            (
                "/kubepods",
                format!("/kubepods/burstable/pod{UID}"),
                pod(),
                "cgroupfs, a QoS class",
            ),
            (
                "/kubepods",
                format!("/kubepods/pod{UID}"),
                pod(),
                "cgroupfs, guaranteed",
            ),
            (
                "/kubepods",
                format!("/kubepods/pod{UID}/{ID}"),
                container(Some(ID)),
                "its container",
            ),
            (
                "/kubepods.slice",
                format!(
                    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{systemd}.slice"
                ),
                pod(),
                "systemd, a QoS class",
            ),
            (
                "/kubepods.slice",
                format!("/kubepods.slice/kubepods-pod{systemd}.slice/cri-containerd-{ID}.scope"),
                container(Some(ID)),
                "systemd, containerd",
            ),
            (
                "/kubepods.slice",
                format!("/kubepods.slice/kubepods-pod{systemd}.slice/crio-{ID}.scope/container"),
                container(Some(ID)),
                "CRI-O with crun's extra level",
            ),
            (
                "/kubepods",
                format!("/kubepods/pod{UID}/init"),
                container(None),
                "a name of its own",
            ),
            (
                "/kubepods",
                "/kubepods/burstable".to_owned(),
                Place::Other,
                "a QoS class itself",
            ),
            (
                "/kubepods",
                format!("/kubepods2/pod{UID}"),
                Place::Other,
                "begins alike",
            ),
            (
                "/kubepods",
                format!("/system.slice/kubepods/pod{UID}"),
                Place::Other,
                "elsewhere",
            ),
            (
                "/kubepods",
                "/kubepods/podx\n".to_owned(),
                Place::Other,
                "not a UID",
            ),
            (
                "/kubepods",
                "/kubepods/pod".to_owned(),
                Place::Other,
                "no UID",
            ),
            (
                "/kubepods",
                format!("/kubepods/pod{UID}0"),
                Place::Other,
                "longer than a UID",
            ),
        ];
        for (pods, path, expected, why) in rows {
            assert_eq!(place(&path, pods), expected, "{why}: {path}");
        }
    }

    #[test]
    fn a_tenant_cannot_pass_for_another_pod() {
        let other = "00000000-0000-0000-0000-000000000000";
        let path = format!("/kubepods/pod{UID}/pod{other}/{ID}");
        let Place::Container { uid, .. } = place(&path, "/kubepods") else {
            panic!("{path}");
        };
        assert_eq!(
            uid, UID,
            "the pod is the one directly below the pods cgroup"
        );
    }
}
