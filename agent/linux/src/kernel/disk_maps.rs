//! The disks that the completion probe watches: one slot each, found by device number.

use std::collections::BTreeMap;

use agent_common::DiskEntry;
use agent_common::settings::device_key;
use aya::maps::{Array, HashMap, MapData};
use nodepulse_core::units::DeviceNumber;
use zerocopy::FromBytes;

use super::error::KernelError;

type DiskBytes = [u8; size_of::<DiskEntry>()];

/// The maps `DISKS` and `SLOTS`, and the disk in each slot.
pub struct DiskMaps {
    entries: Array<MapData, DiskBytes>,
    by_number: HashMap<MapData, u32, u32>,
    slots: Slots,
}

impl DiskMaps {
    /// Expects the maps `DISKS` and `SLOTS` of a newly loaded object.
    pub fn new(entries: Array<MapData, DiskBytes>, by_number: HashMap<MapData, u32, u32>) -> Self {
        let slots = Slots::new(entries.len());
        Self {
            entries,
            by_number,
            slots,
        }
    }

    /// Watches `device`, or replaces its entry.
    pub fn put(&mut self, device: DeviceNumber, entry: DiskEntry) -> Result<(), KernelError> {
        let number = device_key(device.major, device.minor);
        let entry = DiskEntry {
            dev: number,
            ..entry
        };
        let bytes: DiskBytes = zerocopy::transmute!(entry);
        let known = self.slots.of(device);
        let slot = known.or_else(|| self.slots.free());
        let slot = slot.ok_or(KernelError::Full(self.entries.len()))?;
        let set = self.entries.set(slot, bytes, 0);
        set.map_err(KernelError::of_map("DISKS"))?;
        if known.is_none() {
            let inserted = self.by_number.insert(number, slot, 0);
            inserted.map_err(KernelError::of_map("SLOTS"))?;
            self.slots.take(slot, device);
        }
        Ok(())
    }

    pub fn remove(&mut self, device: DeviceNumber) -> Result<(), KernelError> {
        let number = device_key(device.major, device.minor);
        let removed = self.by_number.remove(&number);
        removed.map_err(KernelError::of_map("SLOTS"))?;
        self.slots.release(device);
        Ok(())
    }

    /// Returns the counters of `device`; `None` if it is not watched.
    pub fn get(&self, device: DeviceNumber) -> Option<DiskEntry> {
        let bytes = self.entries.get(&self.slots.of(device)?, 0).ok()?;
        DiskEntry::read_from_bytes(&bytes).ok()
    }
}

struct Slots {
    taken: BTreeMap<u32, DeviceNumber>,
    room: u32,
    /// Slot at which the search for a free slot begins. The probe can still count a removed disk
    /// for a moment, so its slot is reused as late as possible.
    next: u32,
}

impl Slots {
    const fn new(room: u32) -> Self {
        Self {
            taken: BTreeMap::new(),
            room,
            next: 0,
        }
    }

    fn of(&self, device: DeviceNumber) -> Option<u32> {
        let mut taken = self.taken.iter();
        taken.find_map(|(slot, owner)| (*owner == device).then_some(*slot))
    }

    fn free(&self) -> Option<u32> {
        let mut all = (self.next..self.room).chain(0..self.next);
        all.find(|slot| !self.taken.contains_key(slot))
    }

    fn take(&mut self, slot: u32, device: DeviceNumber) {
        self.taken.insert(slot, device);
        self.next = slot + 1;
    }

    fn release(&mut self, device: DeviceNumber) {
        self.taken.retain(|_, owner| *owner != device);
    }
}

impl std::fmt::Debug for DiskMaps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiskMaps")
            .field("watched", &self.slots.taken.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(minor: u32) -> DeviceNumber {
        DeviceNumber { major: 8, minor }
    }

    #[test]
    fn a_released_slot_is_reused_last() {
        let mut slots = Slots::new(3);
        let add = |slots: &mut Slots, minor| {
            let slot = slots.free();
            slots.take(slot?, disk(minor));
            slot
        };
        assert_eq!(add(&mut slots, 0), Some(0));
        slots.release(disk(0));
        assert_eq!(slots.of(disk(0)), None);
        assert_eq!(add(&mut slots, 1), Some(1), "not the one just released");
        assert_eq!(add(&mut slots, 2), Some(2));
        assert_eq!(add(&mut slots, 3), Some(0), "all others are taken");
        assert_eq!(add(&mut slots, 4), None);
        slots.release(disk(2));
        assert_eq!(add(&mut slots, 4), Some(2));
        assert_eq!(slots.of(disk(1)), Some(1));
    }
}
