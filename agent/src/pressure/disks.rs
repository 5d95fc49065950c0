//! Which disks are not well, by what the kernel tells of the edges and by what is looked up while
//! one is slow.
//!
//! The kernel judges a window when the next request completes: it cannot end a state when I/O
//! stops, nor see a hang. So while a disk is slow, and only then, somebody looks every two seconds.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::BootNanos;
use crate::units::DeviceNumber;

/// How often a disk is looked at while it is slow.
pub const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// How a disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It answers in time.
    Quick,
    /// It answers, but late.
    Slow,
    /// Requests are in flight, and none completes.
    Stalled,
}

/// What looking at a slow disk shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSample {
    /// Reads and writes completed, ever.
    pub completed: u64,
    /// Requests in flight.
    pub in_flight: u64,
}

#[derive(Debug, Clone)]
struct Disk {
    name: String,
    health: Health,
    /// At the last look; `None` before the first one since it became slow.
    completed: Option<u64>,
}

/// The watched disks.
#[derive(Debug, Clone, Default)]
pub struct DiskBoard {
    disks: BTreeMap<DeviceNumber, Disk>,
    look_at: Option<BootNanos>,
}

impl DiskBoard {
    /// Watches a disk, quick until somebody says otherwise.
    pub fn watch(&mut self, device: DeviceNumber, name: String) {
        self.disks.insert(
            device,
            Disk {
                name,
                health: Health::Quick,
                completed: None,
            },
        );
    }

    /// Watches a disk no longer. `true` where it was not well.
    pub fn forget(&mut self, device: DeviceNumber, now: BootNanos) -> bool {
        let gone = self.disks.remove(&device);
        self.plan(now);
        gone.is_some_and(|disk| disk.health != Health::Quick)
    }

    /// Every watched disk and its name.
    pub fn watched(&self) -> impl Iterator<Item = (DeviceNumber, &str)> {
        let disks = self.disks.iter();
        disks.map(|(device, disk)| (*device, disk.name.as_str()))
    }

    /// Name of a watched disk.
    #[must_use]
    pub fn name(&self, device: DeviceNumber) -> Option<&str> {
        self.disks.get(&device).map(|disk| disk.name.as_str())
    }

    /// The kernel says that `device` became slow, or is quick again. `true` where that is news.
    pub fn told(&mut self, device: DeviceNumber, health: Health, now: BootNanos) -> bool {
        let Some(disk) = self.disks.get_mut(&device) else {
            return false;
        };
        if disk.health == health {
            return false;
        }
        disk.health = health;
        disk.completed = None;
        self.plan(now);
        true
    }

    /// What looking at a slow disk showed. Gives its new health where that changed; then it is
    /// [`Health::Quick`] because nothing completes and nothing is in flight, or stalled, or no
    /// longer stalled.
    pub fn looked(
        &mut self,
        device: DeviceNumber,
        sample: DiskSample,
        now: BootNanos,
    ) -> Option<Health> {
        let disk = self
            .disks
            .get_mut(&device)
            .filter(|disk| disk.health != Health::Quick)?;
        let before = disk.completed.replace(sample.completed);
        let health = match before {
            Some(before) if before == sample.completed && sample.in_flight == 0 => Health::Quick,
            Some(before) if before == sample.completed => Health::Stalled,
            Some(_) | None => Health::Slow,
        };
        let changed = disk.health != health && before.is_some();
        if changed {
            disk.health = health;
        }
        self.plan(now);
        changed.then_some(health)
    }

    /// The disks to look at, and their names.
    pub fn unwell(&self) -> impl Iterator<Item = (DeviceNumber, &str, Health)> {
        let disks = self
            .disks
            .iter()
            .filter(|(_, disk)| disk.health != Health::Quick);
        disks.map(|(device, disk)| (*device, disk.name.as_str(), disk.health))
    }

    /// Names of the disks that are in a state, sorted.
    #[must_use]
    pub fn named(&self, health: Health) -> Vec<String> {
        let mut names: Vec<String> = self
            .unwell()
            .filter(|(_, _, h)| *h == health)
            .map(|(_, n, _)| n.to_owned())
            .collect();
        names.sort();
        names
    }

    /// When to look at the slow disks; `None` while there is none.
    #[must_use]
    pub const fn look_at(&self) -> Option<BootNanos> {
        self.look_at
    }

    /// A look was started: the next one is due in two seconds, answered or not.
    pub fn plan(&mut self, now: BootNanos) {
        let any = self.unwell().next().is_some();
        self.look_at = any.then(|| now.plus(LOOK_AGAIN));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SDA: DeviceNumber = DeviceNumber { major: 8, minor: 0 };

    fn at(seconds: u64) -> BootNanos {
        BootNanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_slow_disk_stalls_recovers_and_ends_when_io_stops() {
        let mut board = DiskBoard::default();
        board.watch(SDA, "sda".to_owned());
        assert_eq!(
            board.look_at(),
            None,
            "nothing to look at while all are quick"
        );
        assert!(board.told(SDA, Health::Slow, at(0)));
        assert!(
            !board.told(SDA, Health::Slow, at(0)),
            "told twice by two CPUs"
        );
        assert_eq!(board.look_at(), Some(at(2)));

        //  completed, in flight, news, why
        let script = [
            (100, 4, None, "the first look has nothing to compare with"),
            (120, 4, None, "it completes requests: slow as before"),
            (
                120,
                4,
                Some(Health::Stalled),
                "none completed, and some are in flight",
            ),
            (120, 3, None, "still stalled"),
            (121, 3, Some(Health::Slow), "one completed"),
            (
                121,
                0,
                Some(Health::Quick),
                "none completed, and none is in flight: I/O stopped",
            ),
        ];
        for (n, (completed, in_flight, expected, why)) in script.into_iter().enumerate() {
            let now = at(2 * (n as u64 + 1));
            let sample = DiskSample {
                completed,
                in_flight,
            };
            assert_eq!(board.looked(SDA, sample, now), expected, "{why}");
        }
        assert_eq!(board.look_at(), None);
        assert_eq!(board.named(Health::Slow), Vec::<String>::new());
    }

    #[test]
    fn a_disk_that_nobody_watches_is_no_news() {
        let mut board = DiskBoard::default();
        assert!(!board.told(SDA, Health::Slow, at(0)));
    }
}
