//! The forms of cgroup names that kubelets and container runtimes use.
//!
//! Kubelet: `pkg/kubelet/cm/cgroup_manager_linux.go` (`ToSystemd`, `ToCgroupfs`) and
//! `pod_container_manager_linux.go` (`GetPodContainerName`), v1.33.

use super::PodId;

/// The classes of pods with a separate cgroup: two of `QoS`, and system pods of any (KEP-5894).
/// Guaranteed pods are next to these.
pub(super) const CLASSES: [&str; 3] = [BURSTABLE, BESTEFFORT, "system"];
pub(super) const BURSTABLE: &str = "burstable";
pub(super) const BESTEFFORT: &str = "besteffort";
/// Prefixes of a container id; with systemd's driver, the suffix is `.scope`. `crio-conmon-` is not
/// included: it is the monitor of a container.
const RUNTIMES: [&str; 4] = ["", "cri-containerd-", "crio-", "docker-"];
/// Maximum length of a UID that the API server assigns: a UUID.
const UID_LENGTH: usize = 36;
const HASH_LENGTH: usize = 32;
pub(super) const CONTAINER_ID_LENGTH: usize = 64;

/// The form of names on a node: systemd's names repeat the names of all slices above, cgroupfs
/// names do not.
pub(super) enum CgroupNames<'a> {
    Cgroupfs,
    /// `prefix` is the name of the pods cgroup without `.slice`.
    Systemd {
        prefix: &'a str,
    },
}

impl<'a> CgroupNames<'a> {
    /// Derives the form from the name of the pods cgroup.
    pub(super) fn of(pods: &'a str) -> Self {
        let name = pods.rsplit('/').next().unwrap_or_default();
        name.strip_suffix(".slice")
            .map_or(Self::Cgroupfs, |prefix| Self::Systemd { prefix })
    }

    /// Returns the class whose cgroup has this name.
    pub(super) fn class(&self, name: &str) -> Option<&'static str> {
        let class = match self {
            Self::Cgroupfs => name,
            Self::Systemd { prefix } => below(name.strip_suffix(".slice")?, prefix)?,
        };
        CLASSES.into_iter().find(|known| *known == class)
    }

    /// Returns the pod whose cgroup has this name: `pod<uid>`, or
    /// `<prefix>[-<class>]-pod<uid>.slice` with `_` instead of `-`. `class` is that of the cgroup
    /// above.
    pub(super) fn pod(&self, name: &str, class: Option<&str>) -> Option<PodId> {
        match self {
            Self::Cgroupfs => pod_id(name.strip_prefix("pod")?.to_owned()),
            Self::Systemd { prefix } => {
                let mut rest = below(name.strip_suffix(".slice")?, prefix)?;
                if let Some(class) = class {
                    rest = below(rest, class)?;
                }
                let id = rest.strip_prefix("pod")?;
                if id.contains('-') {
                    return None; // A slice of a slice, which is one level deeper.
                }
                pod_id(id.replace('_', "-"))
            }
        }
    }
}

/// Returns the part after `prefix` and a `-`.
fn below<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    name.strip_prefix(prefix)?.strip_prefix('-')
}

pub(super) fn pod_id(id: String) -> Option<PodId> {
    let hash = id.len() == HASH_LENGTH && is_hex(&id);
    let plain = id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    match (hash, plain && !id.is_empty() && id.len() <= UID_LENGTH) {
        (true, _) => Some(PodId::ConfigHash(id)),
        (false, true) => Some(PodId::Uid(id)),
        (false, false) => None,
    }
}

/// Returns the id in `<id>`, `<runtime>-<id>` or `<runtime>-<id>.scope`.
pub(super) fn container_id(name: &str) -> Option<&str> {
    let name = name.strip_suffix(".scope").unwrap_or(name);
    RUNTIMES
        .into_iter()
        .filter_map(|runtime| name.strip_prefix(runtime))
        .find(|id| id.len() == CONTAINER_ID_LENGTH && is_hex(id))
}

fn is_hex(id: &str) -> bool {
    id.bytes().all(|b| b.is_ascii_hexdigit())
}
