//! All pods on the simulated nodes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::pod::{Pod, Shape, Stage, StoredPod, Uid};

#[derive(Debug)]
pub struct Tracked {
    pub pod: Pod,
    /// A request about it is under way.
    pub is_busy: bool,
    /// It is of `--pods-per-node`.
    pub is_load: bool,
    /// The last listing that contained it.
    listing: u32,
}

#[derive(Debug, Default)]
struct Slot {
    /// Changes when a timer of the slot is not valid any more.
    generation: u32,
    tracked: Option<Tracked>,
}

#[derive(Debug, Default)]
pub struct Pods {
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_uid: HashMap<Uid, u32>,
    shapes: HashSet<Arc<Shape>>,
    listing: u32,
}

impl Pods {
    pub fn len(&self) -> usize {
        self.by_uid.len()
    }

    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    pub fn running(&self) -> usize {
        let tracked = self.slots.iter().filter_map(|slot| slot.tracked.as_ref());
        tracked
            .filter(|tracked| tracked.pod.stage == Stage::Running)
            .count()
    }

    /// Returns the pod in a slot.
    pub fn get_mut(&mut self, slot: u32) -> Option<&mut Tracked> {
        let slot = self.slots.get_mut(usize::try_from(slot).ok()?)?;
        slot.tracked.as_mut()
    }

    /// Returns the slot of the first pod from slot `from` on that `is_wanted` accepts.
    pub fn find(&self, from: u32, is_wanted: impl Fn(&Tracked) -> bool) -> Option<u32> {
        let length = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        let mut slots = (from..length).chain(0..from);
        slots.find(|slot| {
            let tracked = self.slot(*slot).and_then(|slot| slot.tracked.as_ref());
            tracked.is_some_and(&is_wanted)
        })
    }

    /// Makes timers of the slot invalid. Returns what a new one needs.
    pub fn rearm(&mut self, slot: u32) -> Option<u32> {
        let slot = self.slots.get_mut(usize::try_from(slot).ok()?)?;
        slot.generation = slot.generation.wrapping_add(1);
        Some(slot.generation)
    }

    pub fn has_generation(&self, slot: u32, generation: u32) -> bool {
        self.slot(slot)
            .is_some_and(|slot| slot.generation == generation)
    }

    fn slot(&self, slot: u32) -> Option<&Slot> {
        self.slots.get(usize::try_from(slot).ok()?)
    }

    /// Records that all pods follow.
    pub fn begin_listing(&mut self) {
        self.listing = self.listing.wrapping_add(1);
    }

    /// Returns the pods that were not listed.
    pub fn end_listing(&self) -> Vec<Uid> {
        let tracked = self.slots.iter().filter_map(|slot| slot.tracked.as_ref());
        let unlisted = tracked.filter(|tracked| tracked.listing != self.listing);
        unlisted.map(|tracked| tracked.pod.uid).collect()
    }

    /// Records a pod on `node` as stored. Returns its slot if its next step may have changed.
    pub fn present(&mut self, stored: StoredPod, node: u32) -> Option<u32> {
        let listing = self.listing;
        if let Some(&slot) = self.by_uid.get(&stored.pod.uid) {
            let tracked = self.get_mut(slot)?;
            tracked.listing = listing;
            let is_busy = tracked.is_busy;
            let pod = &mut tracked.pod;
            let is_deleted = pod.deleted.is_none() && stored.pod.deleted.is_some();
            // By another client, such as an eviction.
            let is_ended = stored.pod.stage.is_terminal() && !pod.stage.is_terminal();
            if is_deleted {
                pod.deleted = stored.pod.deleted;
            }
            if is_ended && !is_busy {
                pod.stage = stored.pod.stage;
            }
            return ((is_deleted || is_ended) && !is_busy).then_some(slot);
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let known = self.shapes.get(&stored.pod.shape);
        let shape = Arc::clone(known.unwrap_or(&stored.pod.shape));
        self.shapes.insert(Arc::clone(&shape));
        let pod = Pod {
            node,
            shape,
            slot,
            ..stored.pod
        };
        self.by_uid.insert(pod.uid, slot);
        let place = self.slots.get_mut(usize::try_from(slot).ok()?)?;
        place.tracked = Some(Tracked {
            pod,
            is_busy: false,
            is_load: stored.is_load,
            listing,
        });
        Some(slot)
    }

    /// Forgets a pod that does not exist any more.
    pub fn remove(&mut self, uid: Uid) -> Option<Tracked> {
        let slot = self.by_uid.remove(&uid)?;
        self.rearm(slot);
        let place = self.slots.get_mut(usize::try_from(slot).ok()?)?;
        let tracked = place.tracked.take()?;
        self.free.push(slot);
        if self.shapes.len() > 2 * self.by_uid.len() + 64 {
            self.shapes.retain(|shape| Arc::strong_count(shape) > 1);
        }
        Some(tracked)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stored(number: u32, image: &str, more: &serde_json::Value) -> StoredPod {
        let mut pod = json!({
            "metadata": {
                "namespace": "n", "name": format!("p-{number}"),
                "uid": format!("00000000-0000-4000-8000-{number:012}"),
            },
            "spec": { "nodeName": "a-0", "containers": [{ "name": "main", "image": image }] },
            "status": {},
        });
        let metadata = pod["metadata"].as_object_mut().unwrap();
        metadata.extend(more.as_object().unwrap().clone());
        StoredPod::of(&pod).unwrap()
    }

    #[test]
    fn a_pod_is_due_again_only_if_it_is_new_or_was_deleted_or_ended_by_another_client() {
        let mut pods = Pods::default();
        let seen = |more| stored(1, "i", &more);
        let deleted = json!({
            "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 7,
        });
        let slot = pods.present(seen(json!({})), 0).unwrap();
        assert_eq!(pods.present(seen(json!({})), 0), None);
        pods.get_mut(slot).unwrap().is_busy = true;
        assert_eq!(
            pods.present(seen(deleted.clone()), 0),
            None,
            "after the request"
        );
        assert_eq!(pods.get_mut(slot).unwrap().pod.deleted, Some(7));
        let mut failed = seen(json!({}));
        failed.pod.stage = Stage::Failed;
        pods.get_mut(slot).unwrap().is_busy = false;
        assert_eq!(pods.present(failed, 0), Some(slot));
        assert_eq!(pods.get_mut(slot).unwrap().pod.stage, Stage::Failed);
    }

    #[test]
    fn what_a_new_listing_lacks_is_returned_and_a_slot_is_used_again() {
        let mut pods = Pods::default();
        let none = json!({});
        let slot = pods.present(stored(1, "i", &none), 0).unwrap();
        pods.present(stored(2, "i", &none), 0).unwrap();
        let generation = pods.rearm(slot).unwrap();
        pods.begin_listing();
        assert_eq!(pods.present(stored(2, "i", &none), 0), None);
        let gone = pods.end_listing();
        assert_eq!(gone, [stored(1, "i", &none).pod.uid]);
        pods.remove(gone[0]).unwrap();
        assert!(
            !pods.has_generation(slot, generation),
            "its timers do nothing"
        );
        assert_eq!(pods.present(stored(3, "i", &none), 0), Some(slot));
        assert_eq!(pods.len(), 2);
    }

    #[test]
    fn what_pods_share_is_dropped_with_them() {
        let mut pods = Pods::default();
        for number in 0..1000 {
            let pod = stored(number, &format!("image-{number}"), &json!({}));
            let slot = pods.present(pod, 0).unwrap();
            // As a request that is under way.
            let copy = pods.get_mut(slot).unwrap().pod.clone();
            pods.remove(copy.uid);
        }
        assert!(pods.shapes.len() < 100, "{}", pods.shapes.len());
    }
}
