//! The largest users of a node's memory or tasks, for Events: pods and what is outside of them
//! together.

use std::cmp::Reverse;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Owner, Pod, PodId};
use crate::units::Bytes;

/// Memory of a pod over its request, or of a unit outside of pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerMemory {
    pub owner: Owner,
    /// The working set.
    pub used: Bytes,
    /// The request of a pod; `None` if the owner is not a pod.
    pub request: Option<Bytes>,
}

/// The pods that use most over their request, and the units outside of pods that use most.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LargestMemory {
    /// The largest excess first.
    pub owners: Vec<OwnerMemory>,
    /// Memory that is not available and is in no pod; `None` if unknown.
    pub outside_pods: Option<Bytes>,
}

/// The pods and the units outside of pods with most tasks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LargestTasks {
    /// In any order.
    pub owners: Vec<(Owner, u64)>,
    /// Tasks that are in no pod; `None` if unknown.
    pub outside_pods: Option<u64>,
}

impl OwnerMemory {
    /// Returns the excess over the request, or zero.
    pub fn over(&self) -> Bytes {
        let request = self.request.unwrap_or_default();
        Bytes::from_bytes(self.used.get().saturating_sub(request.get()))
    }
}

impl LargestMemory {
    /// Returns true if no owner is known. The sum alone is not worth a sentence.
    pub const fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Keeps the `most` owners that use most over their request.
    pub fn truncate(&mut self, most: usize) {
        self.owners.retain(|of| of.over() > Bytes::default());
        self.owners
            .sort_by(|a, b| (Reverse(a.over()), &a.owner).cmp(&(Reverse(b.over()), &b.owner)));
        self.owners.truncate(most);
    }

    /// Adds the memory that a killed process had outside of pods. Without `released`, the memory
    /// that was read may contain it.
    pub fn add_killed(&mut self, owner: Owner, killed: Bytes, released: bool) {
        let with_killed = |read: Bytes| {
            if released {
                Bytes::from_bytes(read.get().saturating_add(killed.get()))
            } else {
                read.max(killed)
            }
        };
        match self.owners.iter_mut().find(|of| of.owner == owner) {
            Some(of) => of.used = with_killed(of.used),
            None => self.owners.push(OwnerMemory {
                owner,
                used: killed,
                request: None,
            }),
        }
        self.outside_pods = self.outside_pods.map(with_killed);
    }

    /// Replaces the ids of pods that `find` knows by their names.
    pub fn name_pods<'a>(&mut self, find: impl Fn(&PodId) -> Option<&'a Pod>) {
        self.owners
            .iter_mut()
            .for_each(|of| of.owner.name_pod(&find));
    }

    /// Leaves out the ids and names of pods.
    pub fn hide_pods(&mut self) {
        let owners = self.owners.iter_mut().map(|of| &mut of.owner);
        for owner in owners.filter(|owner| owner.is_of_pods()) {
            *owner = Owner::UnnamedPod;
        }
    }

    pub fn first(&self) -> Option<&OwnerMemory> {
        self.owners.first()
    }
}

impl LargestTasks {
    /// Keeps the `most` owners with most tasks.
    pub fn truncate(&mut self, most: usize) {
        self.owners.retain(|(_, tasks)| *tasks > 0);
        self.owners
            .sort_by(|a, b| (Reverse(a.1), &a.0).cmp(&(Reverse(b.1), &b.0)));
        self.owners.truncate(most);
    }

    /// Replaces the ids of pods that `find` knows by their names.
    pub fn name_pods<'a>(&mut self, find: impl Fn(&PodId) -> Option<&'a Pod>) {
        self.owners
            .iter_mut()
            .for_each(|(owner, _)| owner.name_pod(&find));
    }

    pub fn first(&self) -> Option<&Owner> {
        self.owners.first().map(|(owner, _)| owner)
    }
}

impl fmt::Display for OwnerMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            owner,
            used,
            request,
        } = self;
        match request {
            None => write!(f, "{owner} ({used})"),
            Some(none) if *none == Bytes::default() => write!(f, "{owner} ({used}, no request)"),
            Some(request) => write!(f, "{owner} ({used}, request {request})"),
        }
    }
}

impl fmt::Display for LargestMemory {
    /// Writes `hog.service (3.4Gi), pod a/b (700.0Mi, no request); outside pods: 3.4Gi`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, &self.owners, self.outside_pods)
    }
}

impl fmt::Display for LargestTasks {
    /// Writes `hog.service (2150), pod a/b (3); outside pods: 2200`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owners = self.owners.iter();
        let owners: Vec<_> = owners
            .map(|(owner, tasks)| format!("{owner} ({tasks})"))
            .collect();
        list(f, &owners, self.outside_pods)
    }
}

fn list(
    f: &mut fmt::Formatter<'_>,
    owners: &[impl fmt::Display],
    outside_pods: Option<impl fmt::Display>,
) -> fmt::Result {
    let mut before = "";
    for owner in owners {
        write!(f, "{before}{owner}")?;
        before = ", ";
    }
    match outside_pods.filter(|_| !owners.is_empty()) {
        Some(outside) => write!(f, "; outside pods: {outside}"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn service(name: &str) -> Owner {
        Owner::from_path(&format!("/system.slice/{name}.service"), "/kubepods")
    }

    fn pod(n: u32) -> Owner {
        Owner::from(PodId::Uid(format!("{n:08x}-1f4b-4a62-9b0e-0f7c0f5d8a11")))
    }

    fn memory(owners: &[(Owner, u64, Option<u64>)]) -> LargestMemory {
        let of = |(owner, used, request): &(Owner, u64, Option<u64>)| OwnerMemory {
            owner: owner.clone(),
            used: Bytes::from_bytes(used * GIB),
            request: request.map(|request| Bytes::from_bytes(request * GIB)),
        };
        LargestMemory {
            owners: owners.iter().map(of).collect(),
            outside_pods: Some(Bytes::from_bytes(4 * GIB)),
        }
    }

    #[test]
    fn a_service_comes_before_pods_that_exceed_their_request_by_less() {
        let mut read = memory(&[
            (pod(1), 9, Some(6)),
            (service("hog"), 4, None),
            (pod(2), 5, Some(0)),
            (pod(3), 5, Some(5)),
            (service("small"), 1, None),
        ]);
        read.truncate(3);
        let expected = "pod with id 00000002-1f4b-4a62-9b0e-0f7c0f5d8a11 (5.0Gi, no request), \
                        hog.service (4.0Gi), \
                        pod with id 00000001-1f4b-4a62-9b0e-0f7c0f5d8a11 (9.0Gi, request 6.0Gi); \
                        outside pods: 4.0Gi";
        assert_eq!(read.to_string(), expected);
    }

    #[test]
    fn what_was_killed_belongs_to_its_owner() {
        //  before, released, then the text
        let hog = |gib| (service("hog"), gib, None);
        #[rustfmt::skip]
        let rows = [
            (vec![hog(1)], true, "hog.service (4.0Gi); outside pods: 7.0Gi"),
            (vec![hog(1)], false, "hog.service (3.0Gi); outside pods: 4.0Gi"),
            (vec![hog(4)], false, "hog.service (4.0Gi); outside pods: 4.0Gi"),
            (vec![], true, "hog.service (3.0Gi); outside pods: 7.0Gi"),
        ];
        let killed = Bytes::from_bytes(3 * GIB);
        for (before, released, expected) in rows {
            let mut read = memory(&before);
            read.add_killed(service("hog"), killed, released);
            assert_eq!(read.to_string(), expected);
        }
    }

    #[test]
    fn pods_can_be_hidden() {
        let mut read = memory(&[(pod(1), 9, Some(6)), (service("hog"), 4, None)]);
        read.hide_pods();
        let expected = "a pod (9.0Gi, request 6.0Gi), hog.service (4.0Gi); outside pods: 4.0Gi";
        assert_eq!(read.to_string(), expected);
    }

    #[test]
    fn the_owner_with_most_tasks_comes_first() {
        let mut tasks = LargestTasks {
            owners: vec![(pod(1), 3), (service("hog"), 2150), (service("none"), 0)],
            outside_pods: Some(2200),
        };
        tasks.truncate(3);
        assert_eq!(
            tasks.to_string(),
            "hog.service (2150), pod with id 00000001-1f4b-4a62-9b0e-0f7c0f5d8a11 (3); \
             outside pods: 2200"
        );
        assert_eq!(tasks.first(), Some(&service("hog")));
        tasks.owners.clear();
        assert_eq!(tasks.to_string(), "", "the sum alone");
    }
}
