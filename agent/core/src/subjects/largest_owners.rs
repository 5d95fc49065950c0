//! Finds the largest users of a resource that becomes short, for the Event of its condition: pods,
//! and units outside of pods.
//!
//! Another thread reads them. The condition does not wait for them, and its Event waits only for a
//! moment.

use serde::{Deserialize, Serialize};

use super::{BlockingQuery, Decision, Effect};
use crate::pods::{LargestMemory, LargestTasks, Owner, Pod, PodId};
use crate::reading::{Ground, Resource};

/// The number of pods and units that are named.
pub const NAMED: usize = 3;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LargestOwnersInput {
    Short(Resource),
    /// The answer to [`BlockingQuery::LargestOwners`] for pids. Empty if they were not read.
    TasksCounted(LargestTasks),
    /// The answer to [`BlockingQuery::LargestOwners`] for memory. Empty if it was not read.
    MemoryRead(LargestMemory),
}

impl LargestOwnersInput {
    /// Returns the input for a resource that became short, if its users are read.
    pub(super) fn short(resource: Resource) -> Option<Self> {
        let measured = measured(resource);
        measured.map(Self::Short)
    }

    /// Replaces the ids of pods that `find` knows by their names.
    pub(super) fn name_pods<'a>(&mut self, find: impl Fn(&PodId) -> Option<&'a Pod>) {
        match self {
            Self::Short(_) => {}
            Self::TasksCounted(tasks) => tasks.name_pods(find),
            Self::MemoryRead(memory) => memory.name_pods(find),
        }
    }

    pub(super) fn effects(self) -> Vec<Effect> {
        match self {
            Self::Short(resource) => short(resource),
            Self::TasksCounted(mut tasks) => {
                tasks.truncate(NAMED);
                let advice = tasks.first().and_then(Owner::tasks_advice);
                known(Resource::Pids, "most tasks: ", &tasks.to_string(), advice)
            }
            Self::MemoryRead(mut memory) => {
                memory.truncate(NAMED);
                let advice = memory.first().and_then(|of| of.owner.memory_advice());
                let lead = match memory.outside_pods {
                    Some(_) => "largest users of memory (pods over their request): ",
                    None => "largest over their request: ",
                };
                known(Resource::Memory, lead, &memory.to_string(), advice)
            }
        }
    }
}

fn short(resource: Resource) -> Vec<Effect> {
    vec![
        Effect::ConditionDetails {
            of: Ground::Resource(resource),
            details: None,
        },
        Effect::BlockingQuery(BlockingQuery::LargestOwners(resource)),
    ]
}

/// Returns the resource whose users are read. Tasks of all pods and of the node have one condition.
const fn measured(resource: Resource) -> Option<Resource> {
    match resource {
        Resource::Pids | Resource::PodsPids => Some(Resource::Pids),
        Resource::Memory => Some(Resource::Memory),
        Resource::Disk | Resource::DiskIo | Resource::DiskFailing => None,
    }
}

fn known(resource: Resource, lead: &str, owners: &str, advice: Option<String>) -> Vec<Effect> {
    let details = if owners.is_empty() {
        String::new()
    } else {
        let advice = advice.map_or_else(String::new, |advice| format!(". {advice}"));
        format!("{lead}{owners}{advice}")
    };
    let log = Decision::LargestOwners {
        resource,
        owners: details.clone(),
    };
    let log = (!details.is_empty()).then_some(Effect::Log(log));
    let mut effects = vec![Effect::ConditionDetails {
        of: Ground::Resource(resource),
        details: Some(details),
    }];
    effects.extend(log);
    effects
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::OwnerMemory;
    use crate::units::Bytes;

    fn pod(n: u32) -> Owner {
        Owner::from(PodId::Uid(format!("{n:08x}-1f4b-4a62-9b0e-0f7c0f5d8a11")))
    }

    fn details(effects: &[Effect]) -> Option<(Resource, String)> {
        let of = |effect: &Effect| match effect {
            Effect::ConditionDetails {
                of: Ground::Resource(resource),
                details: Some(details),
            } => Some((*resource, details.clone())),
            _ => None,
        };
        effects.iter().find_map(of)
    }

    #[test]
    fn a_shortage_of_memory_or_pids_queries_its_users() {
        let queried = |resource| {
            let effects = LargestOwnersInput::short(resource)?.effects();
            match effects.as_slice() {
                [
                    Effect::ConditionDetails {
                        of: Ground::Resource(resource),
                        details: None,
                    },
                    Effect::BlockingQuery(BlockingQuery::LargestOwners(queried)),
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

    fn service(name: &str) -> Owner {
        Owner::from_path(&format!("/system.slice/{name}.service"), "/kubepods")
    }

    #[test]
    fn the_three_owners_with_most_tasks_are_named_and_the_advice_is_for_the_first() {
        let web = Pod::new("team", "web", "00000002-1f4b-4a62-9b0e-0f7c0f5d8a11", None).unwrap();
        let pods = [(1, 3), (2, 50), (3, 7), (4, 8), (5, 0)].map(|(n, tasks)| (pod(n), tasks));
        let of_service = "most tasks: hog.service (2150), pod team/web (50), \
                          pod with id 00000004-1f4b-4a62-9b0e-0f7c0f5d8a11 (8); outside pods: 2200. \
                          Limit hog.service with TasksMax=, or move it to another node.";
        let of_pods = "most tasks: pod team/web (50), hog.service (12), \
                       pod with id 00000004-1f4b-4a62-9b0e-0f7c0f5d8a11 (8); outside pods: 2200";
        for (tasks, text) in [(2150, of_service), (12, of_pods)] {
            let mut owners = vec![(service("hog"), tasks)];
            owners.extend_from_slice(&pods);
            let mut input = LargestOwnersInput::TasksCounted(LargestTasks {
                owners,
                outside_pods: Some(2200),
            });
            input.name_pods(|id| Some(&web).filter(|web| *web.uid == *id.as_str()));
            let effects = input.effects();
            assert_eq!(details(&effects), Some((Resource::Pids, text.to_owned())));
            let log = Effect::Log(Decision::LargestOwners {
                resource: Resource::Pids,
                owners: text.to_owned(),
            });
            assert_eq!(effects[1..], [log]);
        }
    }

    #[test]
    fn owners_without_tasks_are_not_named_and_equals_are_in_order() {
        for order in [[3, 1, 2], [2, 3, 1]] {
            let tasks = |n| (pod(n), if n == 2 { 0 } else { 5 });
            let input = LargestOwnersInput::TasksCounted(LargestTasks {
                owners: order.map(tasks).into(),
                outside_pods: None,
            });
            let text = "most tasks: pod with id 00000001-1f4b-4a62-9b0e-0f7c0f5d8a11 (5), \
                        pod with id 00000003-1f4b-4a62-9b0e-0f7c0f5d8a11 (5)";
            let found = details(&input.effects());
            assert_eq!(found, Some((Resource::Pids, text.to_owned())));
        }
    }

    #[test]
    fn a_service_is_named_among_the_pods_over_their_request() {
        let mib = |mib: u64| Bytes::from_kib(mib << 10);
        let of = |owner, used, request: Option<u64>| OwnerMemory {
            owner,
            used: mib(used),
            request: request.map(mib),
        };
        let owners = vec![
            of(pod(1), 900, Some(100)),
            of(pod(2), 700, Some(0)),
            of(pod(3), 20, Some(10)),
            of(service("hog"), 3500, None),
        ];
        let web = Pod::new("team", "web", "00000002-1f4b-4a62-9b0e-0f7c0f5d8a11", None).unwrap();
        let mut input = LargestOwnersInput::MemoryRead(LargestMemory {
            owners,
            outside_pods: Some(mib(3600)),
        });
        input.name_pods(|id| Some(&web).filter(|web| *web.uid == *id.as_str()));
        let (resource, text) = details(&input.effects()).unwrap();
        assert_eq!(resource, Resource::Memory);
        let expected = "largest users of memory (pods over their request): hog.service (3.4Gi), \
             pod with id 00000001-1f4b-4a62-9b0e-0f7c0f5d8a11 (900.0Mi, request 100.0Mi), \
             pod team/web (700.0Mi, no request); outside pods: 3.5Gi. Limit hog.service with \
             MemoryMax=, move it to another node, or reserve more memory for the system.";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_incident_stops_waiting_if_nothing_was_read() {
        let none = LargestOwnersInput::MemoryRead(LargestMemory::default()).effects();
        let expected = Effect::ConditionDetails {
            of: Ground::Resource(Resource::Memory),
            details: Some(String::new()),
        };
        assert_eq!(none, [expected]);
    }
}
