//! Stores the objects, one resource version for all of them, and the last changes for watches.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};

use super::resource::Resource;

/// Number of changes that a watch can be behind before it receives 410.
const KEPT_CHANGES: usize = 1000;

/// Namespace (empty for cluster-scoped objects) and name of an object.
pub(super) type Key = (String, String);

/// One write.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) revision: u64,
    pub(super) resource: &'static Resource,
    pub(super) key: Key,
    /// `None` if the object was created.
    pub(super) old: Option<Arc<Value>>,
    /// `None` if the object was deleted.
    pub(super) new: Option<Arc<Value>>,
}

/// The requested changes were discarded. Contains the oldest revision that a watch can start from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Compacted(pub(super) u64);

/// Objects by resource, namespace and name.
#[derive(Debug, Default)]
pub(super) struct Store {
    objects: BTreeMap<(&'static str, Key), Arc<Value>>,
    changes: VecDeque<Change>,
    revision: u64,
    /// Changes up to this revision were discarded.
    compacted: u64,
    uids: u64,
    suffixes: u64,
}

impl Store {
    /// Returns the resource version of the last write.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn get(&self, resource: &'static Resource, key: &Key) -> Option<&Arc<Value>> {
        self.objects.get(&(resource.plural, key.clone()))
    }

    /// Returns a unique uid.
    pub(super) fn next_uid(&mut self) -> String {
        self.uids += 1;
        format!("00000000-0000-4000-8000-{:012x}", self.uids)
    }

    /// Returns five letters for a `generateName`.
    pub(super) fn next_suffix(&mut self) -> String {
        // The API server's alphabet contains no vowels, so that no words result.
        const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
        self.suffixes += 1;
        // An odd multiplier spreads the numbers over the letters and is injective.
        let mut rest = (self.suffixes * 7_368_787) % 27_u64.pow(5);
        let letter = |_| {
            let index = usize::try_from(rest % 27).unwrap_or_default();
            rest /= 27;
            char::from(ALPHABET[index])
        };
        (0..5).map(letter).collect()
    }

    /// Stores an object under the next resource version, which is written into it.
    pub(super) fn put(
        &mut self,
        resource: &'static Resource,
        key: Key,
        mut object: Value,
    ) -> Arc<Value> {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let object = Arc::new(object);
        let slot = (resource.plural, key.clone());
        let old = self.objects.insert(slot, Arc::clone(&object));
        self.log(resource, key, old, Some(Arc::clone(&object)));
        object
    }

    pub(super) fn remove(&mut self, resource: &'static Resource, key: &Key) -> Option<Arc<Value>> {
        let old = self.objects.remove(&(resource.plural, key.clone()))?;
        self.revision += 1;
        self.log(resource, key.clone(), Some(Arc::clone(&old)), None);
        Some(old)
    }

    /// Returns the objects of a resource at `revision`, by namespace and name.
    pub(super) fn snapshot(
        &self,
        resource: &'static Resource,
        revision: u64,
    ) -> Result<BTreeMap<Key, Arc<Value>>, Compacted> {
        let mut objects: BTreeMap<Key, Arc<Value>> = self
            .objects
            .iter()
            .filter(|((plural, _), _)| *plural == resource.plural)
            .map(|((_, key), object)| (key.clone(), Arc::clone(object)))
            .collect();
        for change in self.since(revision)?.rev() {
            if change.resource.plural != resource.plural {
                continue;
            }
            match &change.old {
                Some(old) => objects.insert(change.key.clone(), Arc::clone(old)),
                None => objects.remove(&change.key),
            };
        }
        Ok(objects)
    }

    /// Returns the changes after `revision`, oldest first.
    pub(super) fn since(
        &self,
        revision: u64,
    ) -> Result<impl DoubleEndedIterator<Item = &Change>, Compacted> {
        if revision < self.compacted {
            return Err(Compacted(self.compacted));
        }
        let seen = self
            .changes
            .partition_point(|change| change.revision <= revision);
        Ok(self.changes.range(seen..))
    }

    /// Discards all changes, like a restart of the API server: every watch has to list again.
    pub(super) fn compact(&mut self) {
        self.revision += 1;
        self.compacted = self.revision;
        self.changes.clear();
    }

    fn log(
        &mut self,
        resource: &'static Resource,
        key: Key,
        old: Option<Arc<Value>>,
        new: Option<Arc<Value>>,
    ) {
        if self.changes.len() == KEPT_CHANGES
            && let Some(forgotten) = self.changes.pop_front()
        {
            self.compacted = forgotten.revision;
        }
        self.changes.push_back(Change {
            revision: self.revision,
            resource,
            key,
            old,
            new,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes() -> &'static Resource {
        Resource::named("", "nodes").unwrap()
    }

    fn key(name: &str) -> Key {
        (String::new(), name.to_owned())
    }

    fn put(store: &mut Store, name: &str) -> u64 {
        store.put(nodes(), key(name), json!({"metadata": {"name": name}}));
        store.revision()
    }

    fn names(store: &Store, revision: u64) -> Vec<String> {
        let snapshot = store.snapshot(nodes(), revision).unwrap();
        snapshot.into_keys().map(|(_, name)| name).collect()
    }

    #[test]
    fn a_snapshot_is_what_was_there_at_its_revision() {
        let mut store = Store::default();
        put(&mut store, "a");
        let two = put(&mut store, "b");
        store.remove(nodes(), &key("a")).unwrap();
        put(&mut store, "c");
        assert_eq!(names(&store, two), ["a", "b"]);
        assert_eq!(names(&store, two + 1), ["b"]);
        assert_eq!(names(&store, store.revision()), ["b", "c"]);
    }

    #[test]
    fn a_watch_may_be_a_thousand_changes_behind_and_not_one_more() {
        let mut store = Store::default();
        let first = put(&mut store, "a");
        for _ in 0..KEPT_CHANGES {
            put(&mut store, "a");
        }
        assert_eq!(store.since(first).unwrap().count(), KEPT_CHANGES);
        put(&mut store, "a");
        assert_eq!(store.since(first).err(), Some(Compacted(first + 1)));
        assert_eq!(store.since(first + 1).unwrap().count(), KEPT_CHANGES);
    }

    #[test]
    fn after_a_restart_every_old_revision_is_compacted() {
        let mut store = Store::default();
        let before = put(&mut store, "a");
        store.compact();
        assert_eq!(store.since(before).err(), Some(Compacted(before + 1)));
        assert_eq!(store.since(store.revision()).unwrap().count(), 0);
    }
}
