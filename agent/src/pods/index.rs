//! The pods of this node by what their cgroups are called, so that what happens in a cgroup is told
//! of a pod that people know.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Container, Containers, PodId, fits};

/// Pods that are kept: far more than a kubelet runs. Beyond them a new one takes the place of one that
/// is gone, then of one that was not in the newest listings; where there is none of either, it is told
/// of as a pod that nobody knows.
pub const MAX_PODS: usize = 4096;
/// Pods that are gone and still known: those that went last. A uid is never given twice, so this
/// bounds memory and nothing else.
pub const MAX_REMOVED_PODS: usize = 512;
/// Longest namespace: a DNS label.
const LONGEST_NAMESPACE: usize = 63;
/// Longest name of a pod: a DNS subdomain.
const LONGEST_NAME: usize = 253;
/// Longest uid, and longest hash of a static pod's manifest: a UUID has 36 characters.
const LONGEST_UID: usize = 64;

/// What is kept of a pod. None of it ever changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// `metadata.namespace`.
    pub namespace: Box<str>,
    /// `metadata.name`.
    pub name: Box<str>,
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// Of a mirror pod: what the cgroup of its static pod is called by.
    pub config_hash: Option<Box<str>>,
}

impl Pod {
    /// `None` where a part is missing, or is nothing that an API server lets through.
    #[must_use]
    pub fn new(namespace: &str, name: &str, uid: &str, config_hash: Option<&str>) -> Option<Self> {
        let fit = fits(namespace, LONGEST_NAMESPACE)
            && fits(name, LONGEST_NAME)
            && fits(uid, LONGEST_UID);
        fit.then(|| Self {
            namespace: namespace.into(),
            name: name.into(),
            uid: uid.into(),
            config_hash: config_hash
                .filter(|hash| fits(hash, LONGEST_UID))
                .map(Into::into),
        })
    }
}

#[derive(Debug, Clone)]
struct Entry {
    pod: Pod,
    /// As they were when somebody last asked.
    containers: Option<Box<Containers>>,
    /// The listing in which it was last seen.
    listing: u32,
    /// Its turn among those that went; `None` while it is there.
    gone: Option<u64>,
}

/// All pods that were told of.
#[derive(Debug, Clone, Default)]
pub struct PodIndex {
    pods: BTreeMap<Box<str>, Entry>,
    listing: u32,
    went: u64,
}

impl PodIndex {
    /// From here on all pods are told of anew.
    pub fn relist(&mut self) {
        self.listing = self.listing.wrapping_add(1);
    }

    /// A pod is there. Gives the one that is not known any more in its stead, unless it was known to
    /// be gone.
    pub fn put(&mut self, pod: Pod) -> Option<Pod> {
        let listing = self.listing;
        if let Some(known) = self.pods.get_mut(&pod.uid) {
            known.pod = pod;
            known.listing = listing;
            known.gone = None;
            return None;
        }
        let forgotten = (MAX_PODS <= self.pods.len())
            .then(|| self.make_room())
            .flatten();
        if self.pods.len() < MAX_PODS {
            let entry = Entry {
                containers: None,
                listing,
                gone: None,
                pod,
            };
            self.pods.insert(entry.pod.uid.clone(), entry);
        }
        forgotten
    }

    /// Forgets one pod, if any may be: the first that went, else one that was not listed for longest.
    fn make_room(&mut self) -> Option<Pod> {
        let unlisted = |known: &Entry| self.listing.wrapping_sub(known.listing);
        let spare = self
            .pods
            .values()
            .filter(|known| known.gone.is_some() || unlisted(known) > 0);
        let first =
            spare.min_by_key(|known| (known.gone.is_none(), known.gone, Reverse(unlisted(known))));
        let uid = first?.pod.uid.clone();
        let forgotten = self.pods.remove(&uid)?;
        forgotten.gone.is_none().then_some(forgotten.pod)
    }

    /// A pod is gone. It stays known for a while: what its cgroups tell comes late.
    pub fn remove(&mut self, uid: &str) -> Option<&Pod> {
        self.went += 1;
        let turn = self.went;
        let known = self
            .pods
            .get_mut(uid)
            .filter(|known| known.gone.is_none())?;
        known.gone = Some(turn);
        self.forget();
        self.pods.get(uid).map(|known| &known.pod)
    }

    /// All pods were told of since [`Self::relist`]: the others are gone. Gives those.
    pub fn listed(&mut self) -> Vec<Pod> {
        let missed = |known: &&Entry| known.gone.is_none() && known.listing != self.listing;
        let missed = self.pods.values().filter(missed);
        let missed: Vec<Pod> = missed.map(|known| known.pod.clone()).collect();
        for pod in &missed {
            self.remove(&pod.uid);
        }
        missed
    }

    fn forget(&mut self) {
        let gone = self.pods.values().filter_map(|known| known.gone);
        if gone.clone().count() > MAX_REMOVED_PODS {
            let oldest = gone.min();
            self.pods
                .retain(|_, known| known.gone.is_none() || known.gone != oldest);
        }
    }

    /// The pod whose cgroup is called so.
    ///
    /// Who makes a pod writes its annotations: where two that are there claim one static pod, neither
    /// is told what happens in it.
    #[must_use]
    pub fn find(&self, id: &PodId) -> Option<&Pod> {
        match id {
            PodId::Uid(uid) => self.pods.get(uid.as_str()).map(|known| &known.pod),
            PodId::ConfigHash(hash) => {
                let mut there = self.claiming(hash).filter(|known| known.gone.is_none());
                match (there.next(), there.next()) {
                    (Some(one), None) => Some(&one.pod),
                    (Some(_), Some(_)) => None,
                    (None, _) => {
                        let last = self.claiming(hash).max_by_key(|known| known.gone);
                        last.map(|known| &known.pod)
                    }
                }
            }
        }
    }

    fn claiming(&self, hash: &str) -> impl Iterator<Item = &Entry> {
        let is = move |known: &&Entry| known.pod.config_hash.as_deref() == Some(hash);
        self.pods.values().filter(is)
    }

    /// Whether the pod of this uid is there.
    #[must_use]
    pub fn is_there(&self, uid: &str) -> bool {
        self.pods.get(uid).is_some_and(|known| known.gone.is_none())
    }

    /// The container of the pod `uid` whose cgroup is called `id`, where that was asked for before.
    #[must_use]
    pub fn container(&self, uid: &str, id: &str) -> Option<&Container> {
        self.pods.get(uid)?.containers.as_ref()?.find(id)
    }

    /// The containers of a pod, as they are now.
    pub fn know(&mut self, uid: &str, containers: Containers) {
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
    fn a_pod_that_is_gone_stays_known_until_many_more_have_gone() {
        let mut index = PodIndex::default();
        index.put(pod(0));
        assert_eq!(index.remove(&pod(0).uid), Some(&pod(0)));
        assert_eq!(index.remove(&pod(0).uid), None, "once");
        assert!(!index.is_there(&pod(0).uid));
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
    fn a_listing_drops_what_it_does_not_name() {
        let mut index = PodIndex::default();
        index.relist();
        (0..3).for_each(|n| drop(index.put(pod(n))));
        assert_eq!(index.listed(), []);
        index.relist();
        index.put(pod(1));
        index.put(pod(3));
        assert_eq!(index.listed(), [pod(0), pod(2)]);
        let there: Vec<_> = (0..4).map(|n| index.is_there(&pod(n).uid)).collect();
        assert_eq!(there, [false, true, false, true]);
        assert_eq!(names(&index, &[0, 2]), [true, true], "known all the same");
        index.put(pod(0));
        assert!(index.is_there(&pod(0).uid), "one that came back");
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
        assert_eq!(found(&index).as_deref(), Some("u2"), "one has gone");
        index.remove("u2");
        assert_eq!(found(&index).as_deref(), Some("u2"), "the last that went");
    }

    #[test]
    fn containers_are_of_a_pod_and_go_with_it() {
        let mut index = PodIndex::default();
        let web = Container::new(super::super::List::Containers, "web").unwrap();
        let mut containers = Containers::default();
        containers.add("c1", web.clone());
        index.know("nobody", containers.clone());
        index.put(pod(1));
        assert_eq!(index.container(&pod(1).uid, "c1"), None);
        index.know(&pod(1).uid, containers);
        index.put(pod(1));
        assert_eq!(index.container(&pod(1).uid, "c1"), Some(&web));
    }

    #[test]
    fn what_no_api_server_lets_through_is_no_pod() {
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
        let text = |known: &Entry| {
            let pod = &known.pod;
            // The uid stands in the key too; an allocation has 16 bytes of its own at most.
            2 * (pod.uid.len() + 16) + pod.name.len() + pod.namespace.len() + 32
        };
        let texts: usize = index.pods.values().map(text).sum();
        // A node of the tree is at least half full.
        let entries = 2 * index.pods.len() * size_of::<(Box<str>, Entry)>();
        assert!(texts + entries < 250_000, "{texts} + {entries}");

        for n in 0..2 * MAX_PODS {
            index.put(pod(n));
        }
        assert_eq!(index.pods.len(), MAX_PODS);
    }

    #[test]
    fn where_there_is_no_room_what_is_gone_goes_and_then_what_was_not_listed_for_longest() {
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
        assert_eq!(index.put(pod(new)), None, "known to be gone already");
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
            "all that are kept are there"
        );
    }
}
