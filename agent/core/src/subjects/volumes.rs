//! Reports volumes of pods on disks that are slow, do not respond or return errors: an incident for
//! each pod that uses the disk.
//!
//! Such a disk is not one of the node's, so no condition results.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{BlockingQuery, Effect, IncidentInput, Input, pass_on};
use crate::clock::{BootNanos, Now};
use crate::incident::{Occurred, Occurrence};
use crate::kube_event::{DiskTrouble, ReportedKills, VolumeTrouble};
use crate::pods::{Pod, PodId, PodRef};
use crate::units::DeviceNumber;

/// The maximum number of pods with an Event about one disk at one time.
const MAX_PODS: usize = 32;

/// The maximum number of pods whose last Event is remembered. Beyond it, the oldest is forgotten.
const MAX_REMEMBERED: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeInput {
    /// A disk on which the node itself does not depend is slow, does not respond or returns errors.
    Trouble {
        device: DeviceNumber,
        name: String,
        trouble: DiskTrouble,
        details: String,
    },
    /// The answer to [`BlockingQuery::VolumesOnDisk`].
    Read {
        device: DeviceNumber,
        /// The pods that use the disk, each with the name of the volume.
        volumes: Vec<(PodId, String)>,
    },
}

/// The report about a disk, until its pods are known.
#[derive(Debug, Serialize, Deserialize)]
struct Pending {
    name: String,
    trouble: DiskTrouble,
    details: String,
    at: Now,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Volumes {
    /// The minimum interval between Events about one pod and trouble.
    transition_period: Duration,
    #[serde(with = "crate::pairs")]
    pending: BTreeMap<DeviceNumber, Pending>,
    /// Time of the last Event of a pod, by its uid.
    #[serde(with = "crate::pairs")]
    reported: BTreeMap<(Box<str>, DiskTrouble), BootNanos>,
}

impl Volumes {
    pub const fn new(transition_period: Duration) -> Self {
        Self {
            transition_period,
            pending: BTreeMap::new(),
            reported: BTreeMap::new(),
        }
    }

    pub const fn configure(&mut self, transition_period: Duration) {
        self.transition_period = transition_period;
    }

    /// `find` returns the pods whose names are known.
    pub fn on<'a>(
        &mut self,
        input: VolumeInput,
        find: impl Fn(&PodId) -> Option<&'a Pod>,
        now: Now,
    ) -> Vec<Effect> {
        match input {
            VolumeInput::Trouble {
                device,
                name,
                trouble,
                details,
            } => {
                let pending = Pending {
                    name,
                    trouble,
                    details,
                    at: now,
                };
                // The answer to the query that is under way is used for the newest trouble.
                match self.pending.insert(device, pending) {
                    Some(_) => Vec::new(),
                    None => vec![Effect::BlockingQuery(BlockingQuery::VolumesOnDisk(device))],
                }
            }
            VolumeInput::Read { device, volumes } => {
                let Some(pending) = self.pending.remove(&device) else {
                    return Vec::new();
                };
                self.report(&pending, volumes, find, now.boot)
            }
        }
    }

    fn report<'a>(
        &mut self,
        pending: &Pending,
        volumes: Vec<(PodId, String)>,
        find: impl Fn(&PodId) -> Option<&'a Pod>,
        now: BootNanos,
    ) -> Vec<Effect> {
        let period = self.transition_period;
        self.reported.retain(|_, at| now.since(*at) < period);
        let mut pods = BTreeSet::new();
        let mut occurred = Vec::new();
        for (id, volume) in volumes {
            // A pod that is not known has no name for an Event; its volume was left behind.
            let Some(pod) = find(&id) else {
                continue;
            };
            let key = (pod.uid.clone(), pending.trouble);
            if pods.len() == MAX_PODS
                || !pods.insert(id.clone())
                || self.reported.contains_key(&key)
            {
                continue;
            }
            self.remember(key, now);
            occurred.push(Occurred {
                pod: Some(PodRef {
                    pod: id,
                    container: None,
                }),
                at: pending.at.wall,
                until: pending.at.wall,
                stamp: None,
                kills: ReportedKills::default(),
                occurrence: Occurrence::Volume(VolumeTrouble {
                    disk: pending.name.clone(),
                    volume,
                    trouble: pending.trouble,
                    details: pending.details.clone(),
                }),
            });
        }
        if occurred.is_empty() {
            return Vec::new();
        }
        vec![pass_on(Input::Incident(IncidentInput::Happened(occurred)))]
    }

    fn remember(&mut self, key: (Box<str>, DiskTrouble), now: BootNanos) {
        self.reported.insert(key, now);
        if self.reported.len() > MAX_REMEMBERED {
            let oldest = self.reported.iter().min_by_key(|(_, at)| **at);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.reported.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    const SDB: DeviceNumber = DeviceNumber {
        major: 8,
        minor: 16,
    };
    const PERIOD: Duration = Duration::from_mins(5);

    fn uid(n: usize) -> String {
        format!("{n:08x}-1f4b-4a62-9b0e-0f7c0f5d8a11")
    }

    fn at(seconds: u64) -> Now {
        Now {
            boot: BootNanos(0).plus(Duration::from_secs(seconds)),
            wall: UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds),
        }
    }

    /// Volumes of pods with these numbers; pods below 900 are known.
    struct Node {
        volumes: Volumes,
        pods: Vec<Pod>,
    }

    impl Node {
        fn new() -> Self {
            let pod = |n| Pod::new("team", &format!("web-{n}"), &uid(n), None).unwrap();
            Self {
                volumes: Volumes::new(PERIOD),
                pods: (0..900).map(pod).collect(),
            }
        }

        fn on(&mut self, seconds: u64, input: VolumeInput) -> Vec<Effect> {
            let pods = &self.pods;
            let find = |id: &PodId| pods.iter().find(|pod| *pod.uid == *id.as_str());
            self.volumes.on(input, find, at(seconds))
        }

        fn trouble(&mut self, seconds: u64, trouble: DiskTrouble) -> Vec<Effect> {
            let (name, details) = ("sdb".to_owned(), "5 of 6 requests".to_owned());
            let input = VolumeInput::Trouble {
                device: SDB,
                name,
                trouble,
                details,
            };
            self.on(seconds, input)
        }

        /// Returns the names of the pods with an incident, and what is wrong.
        fn read(&mut self, seconds: u64, pods: &[usize]) -> Vec<String> {
            let volume = |n: &usize| (PodId::Uid(uid(*n)), format!("data-{n}"));
            let volumes = pods.iter().map(volume).collect();
            let input = VolumeInput::Read {
                device: SDB,
                volumes,
            };
            let text = |occurred: Occurred| {
                let pod = occurred.pod.unwrap().pod;
                let Occurrence::Volume(trouble) = occurred.occurrence else {
                    panic!("no volume");
                };
                let number = usize::from_str_radix(&pod.as_str()[..8], 16).unwrap();
                format!("web-{number} {:?}", trouble.trouble)
            };
            let effects = self.on(seconds, input).into_iter();
            effects.flat_map(occurred).map(text).collect()
        }
    }

    fn occurred(effect: Effect) -> Vec<Occurred> {
        if let Effect::Input(input) = effect
            && let Input::Incident(IncidentInput::Happened(occurred)) = *input
        {
            return occurred;
        }
        panic!("unexpected");
    }

    #[test]
    fn each_pod_that_uses_the_disk_has_one_event_in_a_transition_period() {
        let mut node = Node::new();
        let query = [Effect::BlockingQuery(BlockingQuery::VolumesOnDisk(SDB))];
        assert_eq!(node.trouble(1, DiskTrouble::Slow), query);
        assert_eq!(
            node.trouble(2, DiskTrouble::Slow),
            [],
            "the query is under way"
        );
        let both = ["web-1 Slow", "web-2 Slow"];
        assert_eq!(node.read(2, &[1, 2, 2, 901]), both);
        assert_eq!(node.read(2, &[1]), [""; 0], "no trouble");

        assert_eq!(node.trouble(100, DiskTrouble::Slow), query);
        assert_eq!(node.read(100, &[1, 3]), ["web-3 Slow"]);
        node.trouble(101, DiskTrouble::Errors);
        assert_eq!(node.read(101, &[1]), ["web-1 Errors"]);
        node.trouble(301, DiskTrouble::Slow);
        assert_eq!(node.read(301, &[1]), [""; 0]);
        node.trouble(302, DiskTrouble::Slow);
        assert_eq!(node.read(302, &[1]), ["web-1 Slow"]);
    }

    #[test]
    fn the_number_of_events_and_of_remembered_pods_is_limited() {
        let mut node = Node::new();
        let all: Vec<usize> = (0..900).collect();
        node.trouble(1, DiskTrouble::Slow);
        assert_eq!(node.read(1, &all).len(), MAX_PODS);
        for (n, pods) in all.chunks(MAX_PODS).enumerate() {
            for trouble in [DiskTrouble::Slow, DiskTrouble::Errors] {
                node.trouble(2 + n as u64, trouble);
                node.read(2 + n as u64, pods);
            }
        }
        assert_eq!(node.volumes.reported.len(), MAX_REMEMBERED);
        let times = node.volumes.reported.values();
        let first = times.min().copied();
        // Of 1,800, the first 776 are forgotten: they had Events until 13 s.
        assert_eq!(first, Some(at(14).boot));
    }

    #[test]
    fn the_newest_trouble_is_reported_with_its_time_volume_and_details() {
        let mut node = Node::new();
        node.trouble(1, DiskTrouble::Slow);
        assert_eq!(node.trouble(2, DiskTrouble::Errors), []);
        let input = VolumeInput::Read {
            device: SDB,
            volumes: vec![(PodId::Uid(uid(1)), "data".to_owned())],
        };
        let effects = node.on(7, input).into_iter();
        let occurred: Vec<_> = effects.flat_map(occurred).collect();
        let expected = VolumeTrouble {
            disk: "sdb".to_owned(),
            volume: "data".to_owned(),
            trouble: DiskTrouble::Errors,
            details: "5 of 6 requests".to_owned(),
        };
        assert_eq!(occurred[0].occurrence, Occurrence::Volume(expected));
        assert_eq!((occurred.len(), occurred[0].at), (1, at(2).wall));
    }

    #[test]
    fn another_transition_period_applies_at_once() {
        let mut node = Node::new();
        node.trouble(1, DiskTrouble::Slow);
        assert_eq!(node.read(1, &[1]), ["web-1 Slow"]);
        node.volumes.configure(Duration::from_secs(10));
        node.trouble(11, DiskTrouble::Slow);
        assert_eq!(node.read(11, &[1]), ["web-1 Slow"]);
    }
}
