//! A map of limited size.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::hash::Hash;

/// A map that drops the least recently used entry.
#[derive(Debug)]
pub struct Lru<K, V> {
    entries: HashMap<K, (u64, V)>,
    room: usize,
    /// Number of uses.
    turn: u64,
}

impl<K: Hash + Eq + Clone, V> Lru<K, V> {
    /// An empty one, for `room` entries.
    pub fn new(room: usize) -> Self {
        Self {
            entries: HashMap::new(),
            room,
            turn: 0,
        }
    }

    /// Returns an entry, and counts as a use.
    pub fn get(&mut self, key: &K) -> Option<&V> {
        self.turn += 1;
        let (used, value) = self.entries.get_mut(key)?;
        *used = self.turn;
        Some(value)
    }

    /// Returns an entry, which is created if it is missing.
    pub fn get_or_insert(&mut self, key: K, new: impl FnOnce() -> V) -> &mut V {
        self.make_room(&key);
        self.turn += 1;
        let (used, value) = self.entries.entry(key).or_insert_with(|| (0, new()));
        *used = self.turn;
        value
    }

    /// Adds or replaces.
    pub fn insert(&mut self, key: K, value: V) {
        self.make_room(&key);
        self.turn += 1;
        self.entries.insert(key, (self.turn, value));
    }

    /// All entries, in no order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.values().map(|(_, value)| value)
    }

    /// All entries, in no order, without counting as a use.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.entries.values_mut().map(|(_, value)| value)
    }

    /// Makes room for `key`; returns the dropped entry.
    pub fn make_room(&mut self, key: &K) -> Option<V> {
        if self.entries.len() < self.room || self.entries.contains_key(key) {
            return None;
        }
        let oldest = self.entries.iter().min_by_key(|(_, (used, _))| *used);
        let oldest = oldest.map(|(key, _)| key.clone())?;
        self.entries.remove(&oldest).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_entry_is_dropped_first() {
        let mut lru = Lru::new(2);
        lru.insert("a", 1);
        lru.insert("b", 2);
        assert_eq!(lru.get(&"a"), Some(&1));
        lru.insert("c", 3);
        assert_eq!(lru.values().count(), 2);
        assert_eq!(lru.get(&"a"), Some(&1));
        assert_eq!(lru.get(&"b"), None);
    }
}
