//! The pods of this node by the ids in their cgroups' names, so that events in a cgroup can be
//! reported for a pod.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Container, Containers, PodId, is_valid};
use crate::object_name::{LONGEST_LABEL, LONGEST_SUBDOMAIN};

/// Maximum number of pods: far more than a kubelet runs. Beyond it, a new pod replaces a removed
/// one, or else one that the latest listings did not contain. If there is neither, the new pod
/// stays unknown.
pub const MAX_PODS: usize = 4096;
/// Maximum number of removed pods, the latest ones. A uid is never reused, so this only limits
/// memory.
pub const MAX_REMOVED_PODS: usize = 512;
/// Maximum length of a uid, and of the hash of a static pod's manifest. A UUID has 36 characters.
const LONGEST_UID: usize = 64;

/// The stored part of a pod, which never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
    /// Set for a mirror pod only: the id in the name of its static pod's cgroup.
    pub config_hash: Option<Box<str>>,
}

impl Pod {
    /// Returns `None` if a part is missing or invalid at any API server.
    pub fn new(namespace: &str, name: &str, uid: &str, config_hash: Option<&str>) -> Option<Self> {
        let fit = is_valid(namespace, LONGEST_LABEL)
            && is_valid(name, LONGEST_SUBDOMAIN)
            && is_valid(uid, LONGEST_UID);
        fit.then(|| Self {
            namespace: namespace.into(),
            name: name.into(),
            uid: uid.into(),
            config_hash: config_hash
                .filter(|hash| is_valid(hash, LONGEST_UID))
                .map(Into::into),
        })
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct IndexedPod {
    pod: Pod,
    /// The containers as of the last request.
    containers: Option<Box<Containers>>,
    /// The last listing that contained the pod.
    listing: u32,
    /// The position among the removed pods; `None` while the pod exists.
    removed: Option<u64>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PodIndex {
    pods: BTreeMap<Box<str>, IndexedPod>,
    listing: u32,
    removals: u64,
}

impl PodIndex {
    /// Begins a new listing of all pods.
    pub fn relist(&mut self) {
        self.listing = self.listing.wrapping_add(1);
    }

    /// Adds a pod that exists. Returns the pod that it replaces, unless that one was removed
    /// before.
    pub fn put(&mut self, pod: Pod) -> Option<Pod> {
        let listing = self.listing;
        if let Some(known) = self.pods.get_mut(&pod.uid) {
            known.pod = pod;
            known.listing = listing;
            known.removed = None;
            return None;
        }
        let dropped = (MAX_PODS <= self.pods.len())
            .then(|| self.make_room())
            .flatten();
        if self.pods.len() < MAX_PODS {
            let entry = IndexedPod {
                containers: None,
                listing,
                removed: None,
                pod,
            };
            self.pods.insert(entry.pod.uid.clone(), entry);
        }
        dropped
    }

    /// Drops one pod: the one that was removed first, or else the one that was not listed for the
    /// longest time.
    fn make_room(&mut self) -> Option<Pod> {
        let unlisted = |known: &IndexedPod| self.listing.wrapping_sub(known.listing);
        let spare = self
            .pods
            .values()
            .filter(|known| known.removed.is_some() || unlisted(known) > 0);
        let first = spare.min_by_key(|known| {
            (
                known.removed.is_none(),
                known.removed,
                Reverse(unlisted(known)),
            )
        });
        let uid = first?.pod.uid.clone();
        let dropped = self.pods.remove(&uid)?;
        dropped.removed.is_none().then_some(dropped.pod)
    }

    /// Marks a pod as removed. It stays known for a while, because events of its cgroups arrive
    /// late.
    pub fn remove(&mut self, uid: &str) -> Option<&Pod> {
        self.removals += 1;
        let turn = self.removals;
        let known = self
            .pods
            .get_mut(uid)
            .filter(|known| known.removed.is_none())?;
        known.removed = Some(turn);
        self.drop_oldest();
        self.pods.get(uid).map(|known| &known.pod)
    }

    /// Completes the listing since [`Self::relist`]. Returns the other pods, which are removed.
    pub fn listed(&mut self) -> Vec<Pod> {
        let missing =
            |known: &&IndexedPod| known.removed.is_none() && known.listing != self.listing;
        let missing = self.pods.values().filter(missing);
        let missing: Vec<Pod> = missing.map(|known| known.pod.clone()).collect();
        for pod in &missing {
            self.remove(&pod.uid);
        }
        missing
    }

    fn drop_oldest(&mut self) {
        let removed = self.pods.values().filter_map(|known| known.removed);
        if removed.clone().count() > MAX_REMOVED_PODS {
            let oldest = removed.min();
            self.pods
                .retain(|_, known| known.removed.is_none() || known.removed != oldest);
        }
    }

    /// The creator of a pod chooses its annotations: if two existing pods claim one static pod,
    /// neither is found.
    pub fn find(&self, id: &PodId) -> Option<&Pod> {
        match id {
            PodId::Uid(uid) => self.pods.get(uid.as_str()).map(|known| &known.pod),
            PodId::ConfigHash(hash) => {
                let mut existing = self.claiming(hash).filter(|known| known.removed.is_none());
                match (existing.next(), existing.next()) {
                    (Some(one), None) => Some(&one.pod),
                    (Some(_), Some(_)) => None,
                    (None, _) => {
                        let last = self.claiming(hash).max_by_key(|known| known.removed);
                        last.map(|known| &known.pod)
                    }
                }
            }
        }
    }

    fn claiming(&self, hash: &str) -> impl Iterator<Item = &IndexedPod> {
        let is = move |known: &&IndexedPod| known.pod.config_hash.as_deref() == Some(hash);
        self.pods.values().filter(is)
    }

    pub fn exists(&self, uid: &str) -> bool {
        self.pods
            .get(uid)
            .is_some_and(|known| known.removed.is_none())
    }

    /// Returns true if the pod with this uid exists, or was removed lately.
    #[must_use]
    pub fn is_known(&self, uid: &str) -> bool {
        self.pods.contains_key(uid)
    }

    /// Returns the container of pod `uid` with this id in its cgroup's name, if it was requested
    /// before.
    pub fn container(&self, uid: &str, id: &str) -> Option<&Container> {
        self.pods.get(uid)?.containers.as_ref()?.find(id)
    }

    /// Returns true if the containers of pod `uid` were requested before.
    #[must_use]
    pub fn has_containers(&self, uid: &str) -> bool {
        let known = self.pods.get(uid);
        known.is_some_and(|known| known.containers.is_some())
    }

    /// Returns the container of pod `uid` with this name, if its containers were requested before.
    #[must_use]
    pub fn named(&self, uid: &str, name: &str) -> Option<&Container> {
        self.pods.get(uid)?.containers.as_ref()?.named(name)
    }

    pub fn set_containers(&mut self, uid: &str, containers: Containers) {
        if let Some(known) = self.pods.get_mut(uid) {
            known.containers = Some(Box::new(containers));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(n: usize) -> Pod {
        let uid = format!("{n:08x}-1f4b-4a62-9b0e-0f7c0f5d8a11");
        let name = format!("checkout-service-7c9d8b6f5d-{n:05}");
        Pod::new("team-payments", &name, &uid, None).unwrap()
    }

    fn mirror(name: &str, uid: &str, hash: &str) -> Pod {
        Pod::new("kube-system", name, uid, Some(hash)).unwrap()
    }

    fn names(index: &PodIndex, ids: &[usize]) -> Vec<bool> {
        let known = |n: &usize| index.find(&PodId::Uid(pod(*n).uid.into())).is_some();
        ids.iter().map(known).collect()
    }

    #[test]
    fn a_removed_pod_stays_known_until_many_more_are_removed() {
        let mut index = PodIndex::default();
        index.put(pod(0));
        assert_eq!(index.remove(&pod(0).uid), Some(&pod(0)));
        assert_eq!(index.remove(&pod(0).uid), None, "once");
        assert!(!index.exists(&pod(0).uid));
        for n in 1..=MAX_REMOVED_PODS {
            assert_eq!(names(&index, &[0]), [true], "after {n}");
            index.put(pod(n));
            index.remove(&pod(n).uid);
        }
        assert_eq!(
            names(&index, &[0, 1, MAX_REMOVED_PODS]),
            [false, true, true]
        );
    }

    #[test]
    fn a_listing_removes_pods_that_it_does_not_contain() {
        let mut index = PodIndex::default();
        index.relist();
        (0..3).for_each(|n| drop(index.put(pod(n))));
        assert_eq!(index.listed(), []);
        index.relist();
        index.put(pod(1));
        index.put(pod(3));
        assert_eq!(index.listed(), [pod(0), pod(2)]);
        let existing: Vec<_> = (0..4).map(|n| index.exists(&pod(n).uid)).collect();
        assert_eq!(existing, [false, true, false, true]);
        assert_eq!(names(&index, &[0, 2]), [true, true], "still known");
        index.put(pod(0));
        assert!(index.exists(&pod(0).uid), "created again");
    }

    #[test]
    fn a_static_pod_is_found_by_the_hash_of_its_mirror_unless_two_claim_it() {
        let id = PodId::ConfigHash("aa".into());
        let found = |index: &PodIndex| index.find(&id).map(|pod| pod.uid.to_string());
        let mut index = PodIndex::default();
        index.put(pod(1));
        index.put(mirror("etcd-worker-1", "u1", "aa"));
        assert_eq!(found(&index).as_deref(), Some("u1"));
        index.put(mirror("liar", "u2", "aa"));
        assert_eq!(found(&index), None, "claimed by two");
        index.remove("u1");
        assert_eq!(found(&index).as_deref(), Some("u2"), "one was removed");
        index.remove("u2");
        assert_eq!(found(&index).as_deref(), Some("u2"), "the last one removed");
    }

    #[test]
    fn containers_belong_to_a_known_pod() {
        let mut index = PodIndex::default();
        let web = Container::new(None, "web").unwrap();
        let mut containers = Containers::default();
        containers.add("c1", web.clone());
        containers.specify(web.clone());
        index.set_containers("unknown", containers.clone());
        index.put(pod(1));
        assert_eq!(index.container(&pod(1).uid, "c1"), None);
        assert!(!index.has_containers(&pod(1).uid));
        index.set_containers(&pod(1).uid, containers);
        index.put(pod(1));
        assert_eq!(index.container(&pod(1).uid, "c1"), Some(&web));
        assert_eq!(index.named(&pod(1).uid, "web"), Some(&web));
        assert!(index.has_containers(&pod(1).uid));
    }

    #[test]
    fn an_invalid_pod_is_not_accepted() {
        let long = "a".repeat(254);
        for (namespace, name, uid) in [
            ("", "a", "u"),
            ("n", "", "u"),
            ("n", "a", ""),
            ("n", "a/../b", "u"),
            ("n\n", "a", "u"),
            ("n", "é", "u"),
            ("n", long.as_str(), "u"),
        ] {
            assert_eq!(Pod::new(namespace, name, uid, None), None, "{name:?}");
        }
        let hostile = Pod::new("n", "a", "u", Some("\u{1b}[2J")).unwrap();
        assert_eq!(hostile.config_hash, None);
    }

    #[test]
    fn five_hundred_pods_take_less_than_a_quarter_of_a_megabyte_and_nothing_grows() {
        let mut index = PodIndex::default();
        (0..500).for_each(|n| drop(index.put(pod(n))));
        let text = |known: &IndexedPod| {
            let pod = &known.pod;
            // The uid is also in the key; an allocation has at most 16 bytes of overhead.
            2 * (pod.uid.len() + 16) + pod.name.len() + pod.namespace.len() + 32
        };
        let texts: usize = index.pods.values().map(text).sum();
        // A node of the tree is at least half full.
        let entries = 2 * index.pods.len() * size_of::<(Box<str>, IndexedPod)>();
        assert!(texts + entries < 250_000, "{texts} + {entries}");

        for n in 0..2 * MAX_PODS {
            index.put(pod(n));
        }
        assert_eq!(index.pods.len(), MAX_PODS);
    }

    #[test]
    fn a_full_index_drops_removed_pods_first_and_then_those_not_listed_for_longest() {
        let mut index = PodIndex::default();
        let new = MAX_PODS;
        for n in 0..new {
            if n == 2 {
                index.relist();
            }
            assert_eq!(index.put(pod(n)), None);
        }
        index.relist();
        index.put(pod(0));
        index.remove(&pod(5).uid);
        assert_eq!(index.put(pod(new)), None, "removed before");
        assert_eq!(
            index.put(pod(new + 1)),
            Some(pod(1)),
            "of the first listing"
        );
        assert_eq!(index.put(pod(new + 2)), Some(pod(2)), "of the second");
        assert_eq!(
            names(&index, &[0, 1, 2, 3, 5]),
            [true, false, false, true, false]
        );
        assert_eq!(names(&index, &[new, new + 1, new + 2]), [true; 3]);

        (3..new).for_each(|n| drop(index.put(pod(n))));
        assert_eq!(index.put(pod(2)), None);
        assert_eq!(
            names(&index, &[2, 3]),
            [false, true],
            "all known pods exist"
        );
    }
}
