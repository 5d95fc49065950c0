//! The Event about forks that the limit of a cgroup refused.

use serde::{Deserialize, Serialize};

use super::Words;
use crate::escape::quote;
use crate::pods::CgroupKind;
use crate::units::counted;

/// Forks that were refused in one cgroup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedForks {
    /// Path of the cgroup that counted them.
    pub cgroup: String,
    pub forks: u64,
    /// The cgroup whose limit refused them, its kind, and the limit; `None` if unknown.
    pub limit: Option<(String, CgroupKind, u64)>,
    /// Tasks of the container, if it was found by having most tasks of its pod.
    #[serde(default)]
    pub tasks: Option<u64>,
}

impl RefusedForks {
    pub(super) fn words(&self, whereabouts: &str, limit: &str) -> Words {
        let forks = counted(self.forks, "fork");
        Words {
            reason: "PIDLimitReached",
            message: format!("{forks} refused{whereabouts}: {limit}"),
        }
    }

    /// Words the limit for readers that identify cgroups by their paths.
    pub fn limit_of_cgroup(&self) -> String {
        match &self.limit {
            Some((at, _, max)) if *at == self.cgroup => format!("its limit is {max} tasks"),
            Some((at, _, max)) => format!("the limit of {} is {max} tasks", quote(at)),
            None => "its limit is not known".to_owned(),
        }
    }

    pub(super) fn limit_of_pod(&self) -> String {
        let Some((at, place, max)) = &self.limit else {
            return "the limit is not known".to_owned();
        };
        match place {
            CgroupKind::Container { .. } => format!("the container's limit is {max} tasks"),
            CgroupKind::Pod { .. } => {
                let most = self.tasks.map_or_else(String::new, |tasks| {
                    format!(", of which the container has {tasks}")
                });
                format!("the pod's limit is {max} tasks{most}")
            }
            CgroupKind::Pods => format!("the limit of all pods on the node is {max} tasks"),
            CgroupKind::Other => format!("the limit of {} is {max} tasks", quote(at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::PodId;

    #[test]
    fn the_limit_is_named_by_what_its_cgroup_is_for() {
        let pod = || PodId::Uid("aa".to_owned());
        let container = || CgroupKind::Container {
            pod: pod(),
            container: None,
        };
        //  cgroup of the limit, what it is for; in a message about the cgroup, about the pod
        #[rustfmt::skip]
        let rows = [
            (Some(("/p/podaa/c", container())), "its limit is 9 tasks", "the container's limit is 9 tasks"),
            (Some(("/p/podaa", CgroupKind::Pod { pod: pod() })), "the limit of /p/podaa is 9 tasks", "the pod's limit is 9 tasks"),
            (Some(("/p", CgroupKind::Pods)), "the limit of /p is 9 tasks", "the limit of all pods on the node is 9 tasks"),
            (Some(("/\u{1b}", CgroupKind::Other)), "the limit of \"/\\u{1b}\" is 9 tasks", "the limit of \"/\\u{1b}\" is 9 tasks"),
            (None, "its limit is not known", "the limit is not known"),
        ];
        for (limit, by_cgroup, by_pod) in rows {
            let refused = RefusedForks {
                cgroup: "/p/podaa/c".to_owned(),
                forks: 2,
                limit: limit.map(|(at, place)| (at.to_owned(), place, 9)),
                tasks: None,
            };
            assert_eq!(refused.limit_of_cgroup(), by_cgroup);
            assert_eq!(refused.limit_of_pod(), by_pod);
        }
        let refused = RefusedForks {
            cgroup: "/p/podaa".to_owned(),
            forks: 2,
            limit: Some(("/p/podaa".to_owned(), CgroupKind::Pod { pod: pod() }, 9)),
            tasks: Some(7),
        };
        let expected = "the pod's limit is 9 tasks, of which the container has 7";
        assert_eq!(refused.limit_of_pod(), expected);
    }
}
