//! The owner of a cgroup, and its name in Events: a pod, a systemd unit, a user's session.
//!
//! systemd's names count only where systemd makes them: from the top, through slices, to the first
//! unit. A workload can choose the names below its unit, so these do not count, except that what is
//! below `user@1000.service` belongs to user 1000.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{CgroupKind, Pod, PodId, classify};
use crate::escape::{escape, quote_to};

/// The number of characters of a name or a path that are shown. Names of systemd units are usually
/// shorter.
const NAME_CHARS: usize = 96;

/// Types of systemd units that have a cgroup, without slices.
const UNIT_TYPES: [&str; 5] = ["service", "scope", "socket", "mount", "swap"];

/// The owner of what is charged to a cgroup.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Owner {
    /// A pod whose name is not known.
    Pod {
        id: PodId,
        /// The id of the container, if the cgroup is that of one or below it.
        container: Option<String>,
    },
    NamedPod {
        namespace: Box<str>,
        name: Box<str>,
        /// The id of the container, if the cgroup is that of one or below it.
        container: Option<String>,
    },
    /// A pod whose name is left out.
    UnnamedPod,
    Pods,
    /// A service, scope, or another systemd unit that is not a slice.
    Unit {
        /// The name: any text, and of any length.
        name: String,
        /// The user whose service manager started it; `None` for the system's.
        user: Option<u32>,
    },
    Session {
        user: u32,
        /// The id that logind gave the session.
        session: String,
    },
    /// A slice of systemd, by its name: any text, and of any length.
    Slice(String),
    /// Another cgroup, by its path: any text, and of any length.
    Other(String),
}

impl Owner {
    /// Derives the owner from the path of a cgroup and that of the pods cgroup. Both begin with
    /// `/`.
    pub fn from_path(path: &str, pods: &str) -> Self {
        match classify(path, pods) {
            CgroupKind::Pods => Self::Pods,
            CgroupKind::Pod { pod } => Self::from(pod),
            CgroupKind::Container { pod, container } => Self::Pod { id: pod, container },
            CgroupKind::Other => {
                let owner = systemd_owner(path.trim_start_matches('/'));
                owner.unwrap_or_else(|| Self::Other(path.to_owned()))
            }
        }
    }

    /// Returns the owner of the limit of the cgroup at `path`; for a cgroup in a unit, that is not
    /// the unit. `None` if the limit is that of pods, or the kubelet sets it.
    pub fn of_limit(path: &str, pods: &str) -> Option<Self> {
        if !pods.is_empty() && is_within(path, pods) {
            return None;
        }
        let owner = Self::from_path(path, pods);
        let above = path.rsplit_once('/');
        let above = above.map(|(above, _)| Self::from_path(above, pods));
        Some(if above.as_ref() == Some(&owner) {
            Self::Other(path.to_owned())
        } else {
            owner
        })
    }

    pub const fn is_of_pods(&self) -> bool {
        match self {
            Self::Pod { .. } | Self::NamedPod { .. } | Self::UnnamedPod | Self::Pods => true,
            Self::Unit { .. } | Self::Session { .. } | Self::Slice(_) | Self::Other(_) => false,
        }
    }

    /// Returns advice for an owner that uses most of the node's memory; `None` if it is in pods, or
    /// cannot be limited.
    pub fn memory_advice(&self) -> Option<String> {
        let limited = self.limited_by("MemoryMax=", "memory.max")?;
        Some(format!(
            "Limit {limited}, move it to another node, or reserve more memory for the system."
        ))
    }

    /// Returns advice for an owner that has most tasks; `None` if it is in pods, or cannot be
    /// limited.
    pub fn tasks_advice(&self) -> Option<String> {
        let limited = self.limited_by("TasksMax=", "pids.max")?;
        Some(format!("Limit {limited}, or move it to another node."))
    }

    /// Returns advice for an owner that reached its memory limit; `None` if it is in pods.
    pub fn limit_advice(&self) -> Option<String> {
        let limit = match self {
            Self::Pod { .. } | Self::NamedPod { .. } | Self::UnnamedPod | Self::Pods => {
                return None;
            }
            Self::Unit { .. } | Self::Slice(_) => format!("MemoryMax= of {self}"),
            Self::Session { session, .. } => format!("MemoryMax= of session-{session}.scope"),
            Self::Other(_) => format!("the memory limit of {self}"),
        };
        Some(format!("Raise {limit} or reduce what it uses."))
    }

    /// Returns the name of what is limited, with the property of systemd or the file of the cgroup.
    fn limited_by(&self, property: &str, file: &str) -> Option<String> {
        match self {
            Self::Pod { .. } | Self::NamedPod { .. } | Self::UnnamedPod | Self::Pods => None,
            Self::Unit { .. } | Self::Slice(_) => Some(format!("{self} with {property}")),
            Self::Session { user, .. } => Some(format!("user-{user}.slice with {property}")),
            Self::Other(path) if path == "/" => None,
            Self::Other(_) => Some(format!("{self} with {file}")),
        }
    }

    /// Returns the name for programs: the text, but of a pod only `namespace/name`.
    pub fn short_name(&self) -> String {
        match self {
            Self::NamedPod {
                namespace, name, ..
            } => format!("{namespace}/{name}"),
            _ => self.to_string(),
        }
    }

    /// Returns the escaped name that systemd's tools take; `None` for a pod or another cgroup.
    /// Users choose the names of their units, so for such a unit it is that of the user's manager.
    pub fn systemd_name(&self) -> Option<String> {
        match self {
            Self::Unit {
                user: Some(user), ..
            } => Some(format!("user@{user}.service")),
            Self::Unit { name, user: None } | Self::Slice(name) => Some(escape(name)),
            Self::Session { session, .. } => Some(escape(format!("session-{session}.scope"))),
            Self::Pod { .. }
            | Self::NamedPod { .. }
            | Self::UnnamedPod
            | Self::Pods
            | Self::Other(_) => None,
        }
    }

    /// Returns the escaped name of a unit of a user's service manager.
    pub fn user_unit(&self) -> Option<String> {
        match self {
            Self::Unit {
                name,
                user: Some(_),
            } => Some(escape(name)),
            _ => None,
        }
    }

    /// Replaces the id of a pod that `find` knows by its name.
    pub fn name_pod<'a>(&mut self, find: impl FnOnce(&PodId) -> Option<&'a Pod>) {
        if let Self::Pod { id, container } = self
            && let Some(pod) = find(id)
        {
            *self = Self::NamedPod {
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
                container: container.take(),
            };
        }
    }
}

impl From<PodId> for Owner {
    fn from(id: PodId) -> Self {
        Self::Pod {
            id,
            container: None,
        }
    }
}

/// Returns the owner according to systemd's names; `None` if the path has none.
fn systemd_owner(path: &str) -> Option<Owner> {
    let mut names = path.split('/');
    let mut slices = Vec::new();
    let first = loop {
        match names.next() {
            Some(name) if is_slice(name) => slices.push(name),
            after_slices => break after_slices,
        }
    };
    let Some(first) = first else {
        return slices.pop().map(|name| Owner::Slice(unit_name(name)));
    };
    if !is_unit(first) {
        return None;
    }
    let user = match slices.as_slice() {
        ["user.slice", slice] => user_of(slice, "user-", ".slice"),
        _ => None,
    };
    let session = session_of(first);
    if let (Some(user), Some(session)) = (user, session) {
        let session = session.to_owned();
        return Some(Owner::Session { user, session });
    }
    let manager = user.filter(|_| user_of(first, "user@", ".service") == user);
    let of_user = names.find(|name| manager.is_some() && is_unit(name));
    Some(Owner::Unit {
        name: unit_name(of_user.unwrap_or(first)),
        user: of_user.and(manager),
    })
}

fn is_slice(name: &str) -> bool {
    name.strip_suffix(".slice").is_some_and(|it| !it.is_empty())
}

fn is_unit(name: &str) -> bool {
    name.rsplit_once('.')
        .is_some_and(|(name, type_)| !name.is_empty() && UNIT_TYPES.contains(&type_))
}

/// Removes the underscore that systemd puts before a name that could be that of a file of the
/// kernel: <https://github.com/systemd/systemd/blob/v257/src/basic/cgroup-util.c#L1677-L1750>
fn unit_name(cgroup: &str) -> String {
    cgroup.strip_prefix('_').unwrap_or(cgroup).to_owned()
}

fn user_of(name: &str, before: &str, after: &str) -> Option<u32> {
    name.strip_prefix(before)?.strip_suffix(after)?.parse().ok()
}

fn session_of(scope: &str) -> Option<&str> {
    let id = scope.strip_prefix("session-")?.strip_suffix(".scope")?;
    let is_id = !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric());
    is_id.then_some(id)
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |name: &str| quote_to(name, NAME_CHARS);
        match self {
            Self::Pod { id, container } => {
                of_container(f, container.as_deref())?;
                write!(f, "pod with id {}", id.as_str())
            }
            Self::NamedPod {
                namespace,
                name,
                container,
            } => {
                of_container(f, container.as_deref())?;
                write!(f, "pod {namespace}/{name}")
            }
            Self::UnnamedPod => f.write_str("a pod"),
            Self::Pods => f.write_str("all pods"),
            Self::Unit { name: unit, user } => {
                f.write_str(&name(unit))?;
                user.map_or(Ok(()), |user| write!(f, " of user {user}"))
            }
            Self::Session { user, session } => write!(f, "session {session} of user {user}"),
            Self::Slice(slice) => f.write_str(&name(slice)),
            Self::Other(path) => match path.trim_start_matches('/') {
                "" => f.write_str("the root cgroup"),
                path => write!(f, "cgroup {}", name(path)),
            },
        }
    }
}

fn of_container(f: &mut fmt::Formatter<'_>, container: Option<&str>) -> fmt::Result {
    match container {
        Some(id) => write!(f, "container {} of ", id.get(..12).unwrap_or(id)),
        None => Ok(()),
    }
}

/// Returns true if `path` is `cgroup` or below it.
pub(crate) fn is_within(path: &str, cgroup: &str) -> bool {
    let below = path.strip_prefix(cgroup);
    below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "4e7b6a2e-6d1f-4c55-9a3e-0a1b2c3d4e5f";

    fn named(path: &str) -> String {
        Owner::from_path(path, "/kubepods").to_string()
    }

    #[test]
    fn the_owner_is_the_unit_that_systemd_made() {
        #[rustfmt::skip]
        let rows = [
            ("/system.slice/hog.service", "hog.service"),
            ("/system.slice/hog.service/below/it.service", "hog.service"),
            ("/system.slice/system-getty.slice/getty@tty1.service", "getty@tty1.service"),
            ("/system.slice/system-dbus\\x2d:1.2.slice/dbus-:1.2-org.x@0.service", "dbus-:1.2-org.x@0.service"),
            ("/system.slice/_cpu.service", "cpu.service"),
            ("/system.slice/docker-0123.scope/init.scope", "docker-0123.scope"),
            ("/system.slice/var-lib.mount", "var-lib.mount"),
            ("/init.scope", "init.scope"),
            ("/system.slice", "system.slice"),
            ("/a.slice/a-b.slice", "a-b.slice"),
            ("/user.slice/user-1000.slice/session-3.scope", "session 3 of user 1000"),
            ("/user.slice/user-1000.slice/session-c1.scope/x", "session c1 of user 1000"),
            ("/user.slice/user-1000.slice", "user-1000.slice"),
            ("/user.slice/user-1000.slice/user@1000.service", "user@1000.service"),
            ("/user.slice/user-1000.slice/user@1000.service/app.slice/x.service", "x.service of user 1000"),
            // Not where logind makes them.
            ("/system.slice/session-3.scope", "session-3.scope"),
            ("/user.slice/user-1000.slice/user@1.service/x.service", "user@1.service"),
            // Not systemd's.
            ("/docker/0123/system.slice/x.service", "cgroup docker/0123/system.slice/x.service"),
            ("/system.slice/plain", "cgroup system.slice/plain"),
            ("/.service", "cgroup .service"),
            ("/.slice", "cgroup .slice"),
            ("/", "the root cgroup"),
        ];
        for (path, expected) in rows {
            assert_eq!(named(path), expected, "{path}");
        }
    }

    #[test]
    fn the_owner_of_a_cgroup_of_pods_is_a_pod() {
        #[rustfmt::skip]
        let rows = [
            ("/kubepods", "all pods".to_owned()),
            ("/kubepods/burstable", "cgroup kubepods/burstable".to_owned()),
            (&format!("/kubepods/pod{UID}"), format!("pod with id {UID}")),
            (&format!("/kubepods/pod{UID}/{}", "0123456789abcdef".repeat(4)),
                format!("container 0123456789ab of pod with id {UID}")),
            (&format!("/kubepods/pod{UID}/system.slice/x.service"), format!("pod with id {UID}")),
        ];
        for (path, expected) in rows {
            assert_eq!(named(path), expected);
        }
    }

    #[test]
    fn a_cgroup_cannot_imitate_a_pod_or_the_text_around_it() {
        let long = "x".repeat(200);
        #[rustfmt::skip]
        let rows = [
            ("/a) pod kube-system/etcd", "cgroup \"a) pod kube-system/etcd\""),
            ("/a\", pod b", "cgroup \"a\\\", pod b\""),
            ("/a\n\u{202e}b", "cgroup \"a\\n\\u{202e}b\""),
            ("/dev\\x2dsda", "cgroup dev\\\\x2dsda"),
            (&long, &format!("cgroup {}…", &long[..NAME_CHARS])),
            ("/x) pod a.service", "\"x) pod a.service\""),
            ("/a\n.slice", "a\\n.slice"),
            (&format!("/{long}.service"), &format!("{}…", &long[..NAME_CHARS])),
            ("/user.slice/user-1.slice/session-3 of user 2.scope", "\"session-3 of user 2.scope\""),
        ];
        for (path, expected) in rows {
            assert_eq!(named(path), expected);
        }
    }

    #[test]
    fn the_advice_names_the_property_of_the_owner() {
        #[rustfmt::skip]
        let rows = [
            ("/system.slice/a.service", "a.service with MemoryMax=", "a.service with TasksMax="),
            ("/user.slice/user-7.slice/session-3.scope", "user-7.slice with MemoryMax=", "user-7.slice with TasksMax="),
            ("/b.slice", "b.slice with MemoryMax=", "b.slice with TasksMax="),
            ("/docker", "cgroup docker with memory.max", "cgroup docker with pids.max"),
        ];
        for (path, memory, tasks) in rows {
            let owner = Owner::from_path(path, "/kubepods");
            let advice = owner.memory_advice().unwrap();
            assert!(advice.contains(memory), "{advice}");
            let advice = owner.tasks_advice().unwrap();
            assert!(advice.contains(tasks), "{advice}");
        }
        for path in ["/", "/kubepods", &format!("/kubepods/pod{UID}")] {
            let owner = Owner::from_path(path, "/kubepods");
            assert_eq!((owner.memory_advice(), owner.tasks_advice()), (None, None));
        }
    }

    #[test]
    fn a_pod_is_named_once_it_is_known() {
        let pod = Pod::new("team", "web-1", UID, None).unwrap();
        let mut owner = Owner::from(PodId::Uid(UID.to_owned()));
        owner.name_pod(|_| None);
        assert_eq!(owner.to_string(), format!("pod with id {UID}"));
        owner.name_pod(|id| Some(&pod).filter(|_| id.as_str() == UID));
        assert_eq!(owner.to_string(), "pod team/web-1");
    }
}
