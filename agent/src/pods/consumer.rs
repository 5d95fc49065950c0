//! How Events name what uses a resource: a pod, or a cgroup outside of pods.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Pod, PodId};
use crate::escape::quote_to;

/// Characters of a cgroup's path that are shown. Names of systemd units are shorter.
const PATH_CHARS: usize = 96;

/// A pod, or a cgroup outside of pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Consumer {
    /// A pod whose name is not known.
    Pod(PodId),
    /// A pod.
    NamedPod {
        /// Its namespace.
        namespace: Box<str>,
        /// Its name.
        name: Box<str>,
    },
    /// A cgroup outside of pods, by its path: any text, and of any length.
    System(String),
}

impl Consumer {
    /// Replaces the id of a pod that `find` knows by its name.
    pub fn name_pod<'a>(&mut self, find: impl FnOnce(&PodId) -> Option<&'a Pod>) {
        if let Self::Pod(id) = self
            && let Some(pod) = find(id)
        {
            *self = Self::NamedPod {
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
            };
        }
    }
}

impl fmt::Display for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(id) => write!(f, "pod with id {}", id.as_str()),
            Self::NamedPod { namespace, name } => write!(f, "pod {namespace}/{name}"),
            Self::System(path) => {
                let path = path.trim_start_matches('/');
                write!(f, "cgroup {}", quote_to(path, PATH_CHARS))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_cannot_imitate_a_pod_or_the_text_around_it() {
        let long = "x".repeat(200);
        let rows = [
            (
                "/system.slice/sshd.service",
                "cgroup system.slice/sshd.service",
            ),
            (
                "/a) pod kube-system/etcd",
                "cgroup \"a) pod kube-system/etcd\"",
            ),
            ("/a\", pod b", "cgroup \"a\\\", pod b\""),
            ("/a\n\u{202e}b", "cgroup \"a\\n\\u{202e}b\""),
            ("/dev\\x2dsda", "cgroup dev\\\\x2dsda"),
            (&long, &format!("cgroup {}…", &long[..PATH_CHARS])),
        ];
        for (path, expected) in rows {
            assert_eq!(Consumer::System(path.to_owned()).to_string(), expected);
        }
    }

    #[test]
    fn a_pod_is_named_once_it_is_known() {
        let uid = "4e7b6a2e-6d1f-4c55-9a3e-0a1b2c3d4e5f";
        let pod = Pod::new("team", "web-1", uid, None).unwrap();
        let mut consumer = Consumer::Pod(PodId::Uid(uid.to_owned()));
        consumer.name_pod(|_| None);
        assert_eq!(consumer.to_string(), format!("pod with id {uid}"));
        consumer.name_pod(|id| Some(&pod).filter(|_| id.as_str() == uid));
        assert_eq!(consumer.to_string(), "pod team/web-1");
    }
}
