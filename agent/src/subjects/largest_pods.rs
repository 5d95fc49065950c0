//! Which pods use most of a resource when it becomes short, for the Event of its condition.
//!
//! They are read on another thread. The condition does not wait for them, and its Event only for a
//! moment.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use super::{Decision, Effect, Query};
use crate::pods::{Owner, Pod, PodId};
use crate::reading::{Ground, Resource};
use crate::units::Bytes;

/// The number of pods that are named.
pub const NAMED: usize = 3;

/// Everything that can happen to the shortage of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LargestPodsInput {
    /// A resource became short.
    Short(Resource),
    /// The answer to [`Query::LargestPods`] for pids: the tasks of each pod. Empty: not read.
    TasksCounted(Vec<(Owner, u64)>),
    /// The same for memory: the pods that use most over their request, the largest first.
    MemoryRead(Vec<PodOverRequest>),
}

/// A pod that uses more memory than it requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodOverRequest {
    /// The pod.
    pub pod: Owner,
    /// Its working set.
    pub used: Bytes,
    /// Its request.
    pub request: Bytes,
}

impl LargestPodsInput {
    /// That a resource became short, if pods are read for it.
    pub(super) fn short(resource: Resource) -> Option<Self> {
        let measured = measured(resource);
        measured.map(Self::Short)
    }

    /// Replaces the ids of pods that `find` knows by their names.
    pub(super) fn name_pods<'a>(&mut self, find: impl Fn(&PodId) -> Option<&'a Pod>) {
        match self {
            Self::Short(_) => {}
            Self::TasksCounted(pods) => pods.iter_mut().for_each(|(pod, _)| pod.name_pod(&find)),
            Self::MemoryRead(pods) => pods.iter_mut().for_each(|of| of.pod.name_pod(&find)),
        }
    }

    /// What follows from it.
    pub(super) fn effects(self) -> Vec<Effect> {
        match self {
            Self::Short(resource) => short(resource),
            Self::TasksCounted(mut pods) => {
                pods.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
                pods.retain(|(_, tasks)| *tasks > 0);
                let items = pods.iter().map(|(pod, tasks)| format!("{pod} ({tasks})"));
                known(Resource::Pids, "most tasks: ", items)
            }
            Self::MemoryRead(pods) => known(
                Resource::Memory,
                "largest over their request: ",
                pods.iter(),
            ),
        }
    }
}

impl fmt::Display for PodOverRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pod, used, request } = self;
        if request.get() == 0 {
            write!(f, "{pod} ({used}, no request)")
        } else {
            write!(f, "{pod} ({used}, request {request})")
        }
    }
}

fn short(resource: Resource) -> Vec<Effect> {
    vec![
        Effect::EventDetails {
            of: Ground::Resource(resource),
            details: None,
        },
        Effect::Query(Query::LargestPods(resource)),
    ]
}

/// The resource of whose condition pods are read. Tasks of all pods and of the node have one condition.
const fn measured(resource: Resource) -> Option<Resource> {
    match resource {
        Resource::Pids | Resource::PodsPids => Some(Resource::Pids),
        Resource::Memory => Some(Resource::Memory),
        Resource::Disk | Resource::DiskIo | Resource::DiskFailing => None,
    }
}

fn known(
    resource: Resource,
    lead: &str,
    items: impl Iterator<Item = impl fmt::Display>,
) -> Vec<Effect> {
    let mut text = String::new();
    for item in items.take(NAMED) {
        let separator = if text.is_empty() { lead } else { ", " };
        // Writing to a String cannot fail.
        let _written = write!(text, "{separator}{item}");
    }
    let log = Decision::LargestPods {
        resource,
        pods: text.clone(),
    };
    let log = (!text.is_empty()).then_some(Effect::Log(log));
    let details = Some(text);
    let mut effects = vec![Effect::EventDetails {
        of: Ground::Resource(resource),
        details,
    }];
    effects.extend(log);
    effects
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(n: u32) -> Owner {
        Owner::from(PodId::Uid(format!("{n:08x}-1f4b-4a62-9b0e-0f7c0f5d8a11")))
    }

    fn details(effects: &[Effect]) -> Option<(Resource, String)> {
        let of = |effect: &Effect| match effect {
            Effect::EventDetails {
                of: Ground::Resource(resource),
                details: Some(details),
            } => Some((*resource, details.clone())),
            _ => None,
        };
        effects.iter().find_map(of)
    }

    #[test]
    fn a_shortage_of_memory_or_pids_queries_the_pods() {
        let queried = |resource| {
            let effects = LargestPodsInput::short(resource)?.effects();
            match effects.as_slice() {
                [
                    Effect::EventDetails {
                        of: Ground::Resource(resource),
                        details: None,
                    },
                    Effect::Query(Query::LargestPods(queried)),
                ] if resource == queried => Some(*resource),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(queried(Resource::Memory), Some(Resource::Memory));
        assert_eq!(queried(Resource::Pids), Some(Resource::Pids));
        assert_eq!(queried(Resource::PodsPids), Some(Resource::Pids));
        for resource in [Resource::Disk, Resource::DiskIo, Resource::DiskFailing] {
            assert_eq!(queried(resource), None, "{resource:?}");
        }
    }

    #[test]
    fn the_three_pods_with_most_tasks_are_named() {
        let web = Pod::new("team", "web", "00000002-1f4b-4a62-9b0e-0f7c0f5d8a11", None).unwrap();
        let tasks = [(1, 3), (2, 50), (3, 7), (4, 8), (5, 0)];
        let mut input =
            LargestPodsInput::TasksCounted(tasks.iter().map(|(n, of)| (pod(*n), *of)).collect());
        input.name_pods(|id| Some(&web).filter(|web| *web.uid == *id.as_str()));
        let effects = input.effects();
        let text = "most tasks: pod team/web (50), \
                    pod with id 00000004-1f4b-4a62-9b0e-0f7c0f5d8a11 (8), \
                    pod with id 00000003-1f4b-4a62-9b0e-0f7c0f5d8a11 (7)";
        assert_eq!(details(&effects), Some((Resource::Pids, text.to_owned())));
        let log = Effect::Log(Decision::LargestPods {
            resource: Resource::Pids,
            pods: text.to_owned(),
        });
        assert_eq!(effects[1..], [log]);
    }

    #[test]
    fn pods_without_tasks_are_not_named_and_equals_are_in_order() {
        for order in [[3, 1, 2], [2, 3, 1]] {
            let tasks = |n| (pod(n), if n == 2 { 0 } else { 5 });
            let input = LargestPodsInput::TasksCounted(order.map(tasks).into());
            let text = "most tasks: pod with id 00000001-1f4b-4a62-9b0e-0f7c0f5d8a11 (5), \
                        pod with id 00000003-1f4b-4a62-9b0e-0f7c0f5d8a11 (5)";
            let found = details(&input.effects());
            assert_eq!(found, Some((Resource::Pids, text.to_owned())));
        }
    }

    #[test]
    fn pods_over_their_request_are_named_with_it() {
        let over = |n, used: u64, request: u64| PodOverRequest {
            pod: pod(n),
            used: Bytes::from_kib(used << 10),
            request: Bytes::from_kib(request << 10),
        };
        let pods = vec![
            over(1, 900, 100),
            over(2, 700, 0),
            over(3, 20, 10),
            over(4, 9, 0),
        ];
        let web = Pod::new("team", "web", "00000002-1f4b-4a62-9b0e-0f7c0f5d8a11", None).unwrap();
        let mut input = LargestPodsInput::MemoryRead(pods);
        input.name_pods(|id| Some(&web).filter(|web| *web.uid == *id.as_str()));
        let (resource, text) = details(&input.effects()).unwrap();
        assert_eq!(resource, Resource::Memory);
        let expected = "largest over their request: \
             pod with id 00000001-1f4b-4a62-9b0e-0f7c0f5d8a11 (900.0Mi, request 100.0Mi), \
             pod team/web (700.0Mi, no request), \
             pod with id 00000003-1f4b-4a62-9b0e-0f7c0f5d8a11 (20.0Mi, request 10.0Mi)";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_event_stops_waiting_if_no_pod_was_read() {
        let none = LargestPodsInput::MemoryRead(Vec::new()).effects();
        let expected = Effect::EventDetails {
            of: Ground::Resource(Resource::Memory),
            details: Some(String::new()),
        };
        assert_eq!(none, [expected]);
    }
}
