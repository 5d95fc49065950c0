//! A map of limited size.

#![forbid(unsafe_code)]

/// A map that drops the least recently used entry. It is searched from the newest entry on: a hash
/// table takes twice the memory, and every use is followed by a request.
#[derive(Debug)]
pub struct Lru<K, V> {
    /// The most recently used entry is the last.
    entries: Vec<(K, V)>,
    room: usize,
}

impl<K: Eq, V> Lru<K, V> {
    pub const fn new(room: usize) -> Self {
        Self {
            entries: Vec::new(),
            room,
        }
    }

    /// Counts as a use.
    pub fn get(&mut self, key: &K) -> Option<&V> {
        let entry = self.take(key)?;
        Some(&self.entries.push_mut(entry).1)
    }

    pub fn get_or_insert(&mut self, key: K, new: impl FnOnce() -> V) -> &mut V {
        let entry = self.take(&key).unwrap_or_else(|| {
            self.drop_oldest();
            (key, new())
        });
        &mut self.entries.push_mut(entry).1
    }

    /// Adds or replaces an entry, which counts as a use.
    pub fn insert(&mut self, key: K, value: V) {
        if self.take(&key).is_none() {
            self.drop_oldest();
        }
        self.entries.push((key, value));
    }

    /// Returns all values, the least recently used first.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().map(|(_, value)| value)
    }

    /// Returns all values, the least recently used first, without counting as a use.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.entries.iter_mut().map(|(_, value)| value)
    }

    /// Drops the oldest entry if there is no room for `key`, and returns it.
    pub fn make_room(&mut self, key: &K) -> Option<V> {
        if self.find(key).is_some() {
            return None;
        }
        self.drop_oldest()
    }

    /// Drops the oldest entry if the map is full.
    fn drop_oldest(&mut self) -> Option<V> {
        (self.room <= self.entries.len()).then(|| self.entries.remove(0).1)
    }

    /// Removes an entry.
    pub fn take(&mut self, key: &K) -> Option<(K, V)> {
        let place = self.find(key)?;
        Some(self.entries.remove(place))
    }

    fn find(&self, key: &K) -> Option<usize> {
        self.entries.iter().rposition(|(known, _)| known == key)
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
