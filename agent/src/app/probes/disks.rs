//! The disks: which are watched, by the kernel where it judges them, and what looks at them found.

use std::collections::BTreeSet;
use std::time::Duration;

use agent_common::DiskEntry;
use agent_common::settings::{DISK_FAILING, DISK_WELL};
use tracing::{info, warn};

use super::Probes;
use crate::app::blocking::{Found, Question};
use crate::clock::BootNanos;
use crate::config::{Config, DiskIo};
use crate::escape::escape;
use crate::host::HostRoot;
use crate::host::block::{self, Disk};
use crate::kernel::{Kernel, Probe};
use crate::node_status::Disks;
use crate::pressure::deadline::LONGEST;
use crate::pressure::disks::Health;
use crate::reading::{Stall, StallKind, StallOf};
use crate::record::{DiskAction, DiskChange};
use crate::units::DeviceNumber;

/// The list of disks is read again so often, for a kernel whose announcements we cannot hear.
const LIST_AGAIN: Duration = Duration::from_mins(5);

/// Before Linux 5.17 a disk is announced a moment before its queue is in sysfs.
const NOT_YET: Duration = Duration::from_millis(500);

/// What is remembered of the disks, beside how they are.
pub(super) struct DiskCare {
    settings: DiskIo,
    /// `window` as the kernel has it of every disk.
    window: Duration,
    /// Names of those whose I/O statistics are off.
    blind: BTreeSet<String>,
    /// Whether the disks could be listed.
    listed: bool,
    /// `None` before the first tick.
    list_again: Option<BootNanos>,
    /// To find a disk that was announced too early.
    not_yet: Option<BootNanos>,
    /// Whether a trigger tells when tasks wait for I/O.
    io_trigger: bool,
    next_look: BootNanos,
    /// A look is under way.
    looking: bool,
    /// Whether I/O statistics were switched on or off.
    statistics: Statistics,
    /// A disk that was not well is not watched any more.
    unwatched: Option<Unwatched>,
}

/// When it is asked whether I/O statistics were switched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Statistics {
    /// Not before.
    AskAt(BootNanos),
    /// It is being asked, and is not asked again before.
    Asked(BootNanos),
}

/// A disk that was not well is there, and not watched any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::app) struct Unwatched {
    /// When one that is watched, or is gone, was last not well.
    pub(in crate::app) others: Option<BootNanos>,
}

impl DiskCare {
    pub(super) fn new(settings: DiskIo) -> Self {
        Self {
            window: settings.window,
            settings,
            blind: BTreeSet::new(),
            listed: false,
            list_again: None,
            not_yet: None,
            io_trigger: false,
            next_look: BootNanos(0),
            looking: false,
            statistics: Statistics::AskAt(BootNanos(0)),
            unwatched: None,
        }
    }
}

impl Probes {
    /// Reads the list for the first time.
    pub(super) fn list_disks(&mut self, config: &Config) {
        let found = block::disks(&HostRoot::new(&config.host_root));
        let found = found.inspect_err(|err| {
            warn!(err = err as &dyn std::error::Error, "no disks to watch");
        });
        self.disks_listed(found.ok(), BootNanos(0));
    }

    /// There are triggers for these: maybe for tasks that wait for I/O.
    pub(in crate::app) fn has_triggers(&mut self, stalls: &[Stall]) {
        self.care.io_trigger = stalls.contains(&Stall::new(StallOf::Node, StallKind::Io));
    }

    /// Whether the kernel judges disks.
    fn kernel_judges(&self) -> bool {
        self.support.attached(Probe::DiskComplete)
    }

    /// Whether nothing tells how quickly disks answer. A node without disks has none that is late.
    pub(in crate::app) fn blind_to_disks(&self) -> bool {
        let none = self.disks.watched().next().is_none();
        none && (!self.care.listed || !self.care.blind.is_empty())
    }

    /// When to wake up for the disks.
    pub(in crate::app) fn look_at(&self) -> Option<BootNanos> {
        let both = [self.disks.sample_at(), self.care.not_yet];
        both.into_iter().flatten().min()
    }

    /// What is to be asked about disks by `now`, which may be `soon` for what need not be exact.
    pub(in crate::app) fn due(&mut self, now: BootNanos, soon: BootNanos) -> Vec<Question> {
        let mut questions = Vec::new();
        let again = self.care.not_yet.is_some_and(|at| at <= now);
        let next = now.plus(LIST_AGAIN);
        let list_again = self.care.list_again.get_or_insert(next);
        if again || *list_again <= soon {
            *list_again = next;
            self.care.not_yet = None;
            questions.push(Question::Disks);
        }
        let in_passing = !self.kernel_judges() || !self.care.io_trigger;
        if in_passing && self.care.next_look <= soon {
            self.care.next_look = now.plus(LONGEST);
            questions.extend(self.look_at_all());
        } else if self.disks.sample_at().is_some_and(|at| at <= now) {
            let disks = self.disks.begin_sampling(now);
            questions.extend(self.ask_to_look(disks));
        }
        questions
    }

    /// What to ask about I/O statistics, at most once a sampling period: nobody announces that they
    /// were switched on or off.
    pub(in crate::app) fn check_statistics(
        &mut self,
        now: BootNanos,
        soon: BootNanos,
    ) -> Option<Question> {
        match self.care.statistics {
            Statistics::AskAt(at) if at <= soon => {}
            Statistics::AskAt(_) | Statistics::Asked(_) => return None,
        }
        let on = self
            .disks
            .watched()
            .map(|(_, name)| (name.to_owned(), true));
        let off = self.care.blind.iter().map(|name| (name.clone(), false));
        let known: Vec<_> = on.chain(off).collect();
        if known.is_empty() {
            return None;
        }
        self.care.statistics = Statistics::Asked(now.plus(LONGEST));
        Some(Question::Statistics(known))
    }

    /// It is known whether they were switched: then what to ask.
    pub(in crate::app) fn statistics_checked(&mut self, switched: bool) -> Option<Question> {
        if let Statistics::Asked(again) = self.care.statistics {
            self.care.statistics = Statistics::AskAt(again);
        }
        switched.then_some(Question::Disks)
    }

    /// That a disk which was not well is not watched any more, once.
    pub(in crate::app) fn unwatched(&mut self) -> Option<Unwatched> {
        self.care.unwatched.take()
    }

    /// Tasks wait for I/O: is a disk hung?
    pub(in crate::app) fn suspect_disks(&mut self) -> Option<Question> {
        self.disks.suspect();
        self.look_at_all()
    }

    fn look_at_all(&mut self) -> Option<Question> {
        let all = self.disks.watched();
        let all = all.map(|(device, name)| (device, name.to_owned()));
        let all = all.collect();
        self.ask_to_look(all)
    }

    /// One look at a time: the answer may be long in coming.
    fn ask_to_look(&mut self, disks: Vec<(DeviceNumber, String)>) -> Option<Question> {
        let ask = !self.care.looking && !disks.is_empty();
        self.care.looking |= ask;
        ask.then_some(Question::Look(disks))
    }

    /// Disks were looked at. `true` where that changed what is known of one.
    pub(in crate::app) fn looked(
        &mut self,
        found: Vec<(DeviceNumber, Found)>,
        now: BootNanos,
    ) -> bool {
        self.care.looking = false;
        let mut news = false;
        for (device, found) in found {
            news |= match found {
                Found::Counted(sample) => {
                    let told = self.kernel_says(device);
                    let health = self.disks.apply_sample(device, sample, told, now);
                    if let Some(health) = health {
                        self.tell_health(device, health);
                    }
                    health.is_some()
                }
                Found::Gone => self.forget_disk(device, now),
                Found::Unread => false,
            };
        }
        news
    }

    /// What the kernel has of a disk; `None` where it does not judge disks. Where its word cannot be
    /// read, it is what it was.
    fn kernel_says(&self, device: DeviceNumber) -> Option<Health> {
        if !self.kernel_judges() {
            return None;
        }
        let entry = self.kernel.as_ref().and_then(|kernel| kernel.disk(device));
        match entry.map(|entry| entry.state) {
            Some(DISK_WELL) => Some(Health::Healthy),
            Some(DISK_FAILING) => Some(Health::Failing),
            Some(_) => Some(Health::Slow),
            None => match self.disks.health(device)? {
                Health::Stalled => Some(Health::Slow),
                known => Some(known),
            },
        }
    }

    fn tell_health(&mut self, device: DeviceNumber, health: Health) {
        let name = self.disks.name(device).unwrap_or_default();
        info!(%device, disk = name, ?health, "disk looked at");
        if health != Health::Healthy || self.kernel_says(device) == Some(Health::Healthy) {
            return;
        }
        let ended = self
            .kernel
            .as_mut()
            .map(|kernel| kernel.end_disk_state(device));
        if let Some(Err(err)) = ended {
            warn!(err = &err as &dyn std::error::Error, "disk state not ended");
        }
    }

    /// A disk came, went or changed: what to ask about it. `Err` says at once whether a disk went
    /// that was not well.
    pub(in crate::app) fn disk_announced(
        &mut self,
        change: DiskChange,
        now: BootNanos,
    ) -> Result<Question, bool> {
        if change.action != DiskAction::Removed {
            let ask = !block::is_excluded(&change.name);
            return ask.then_some(Question::Disk(change)).ok_or(false);
        }
        self.care.blind.remove(&change.name);
        if self.disks.name(change.device).is_none() {
            return Err(false);
        }
        Err(self.forget_disk(change.device, now))
    }

    /// A disk that was announced was looked for.
    pub(in crate::app) fn disk_found(
        &mut self,
        change: &DiskChange,
        found: Option<Disk>,
        now: BootNanos,
    ) {
        match found {
            Some(disk) => self.found(disk, now),
            None if change.action == DiskAction::Added => {
                self.care.not_yet = Some(now.plus(NOT_YET));
            }
            None => {}
        }
    }

    /// All disks were listed, or could not be.
    pub(in crate::app) fn disks_listed(&mut self, found: Option<Vec<Disk>>, now: BootNanos) {
        self.care.listed = found.is_some();
        let Some(found) = found else {
            return;
        };
        let there: BTreeSet<DeviceNumber> = found.iter().map(|disk| disk.device).collect();
        let watched = self.disks.watched().map(|(device, _)| device);
        let gone: Vec<_> = watched.filter(|device| !there.contains(device)).collect();
        for device in gone {
            self.forget_disk(device, now);
        }
        self.care
            .blind
            .retain(|name| found.iter().any(|disk| disk.name == *name));
        for disk in found {
            self.found(disk, now);
        }
        self.care.window = self.care.settings.window;
    }

    /// Takes other limits. `true` where the disks are to be listed for that.
    pub(in crate::app) fn set_disk_limits(&mut self, settings: &DiskIo) -> bool {
        let news = self.care.settings != *settings;
        if news {
            self.care.settings = settings.clone();
        }
        news
    }

    /// Watches a disk, or watches it by other limits, or no longer.
    fn found(&mut self, disk: Disk, now: BootNanos) {
        if !disk.iostats {
            self.iostats_off(disk.device, &disk.name, now);
            return;
        }
        self.care.blind.remove(&disk.name);
        let slow = limit(&self.care.settings, &disk);
        let known = self.disks.name(disk.device) == Some(disk.name.as_str());
        let same_window = self.care.window == self.care.settings.window;
        if known && same_window && self.disks.limit(disk.device) == Some(slow) {
            return;
        }
        if !known && self.disks.watched().count() >= block::MAX_DISKS {
            warn!(disk = %escape(&disk.name), "too many disks; this one is not watched");
            return;
        }
        let entry = DiskEntry::new(nanos(slow), nanos(self.care.settings.window));
        let kernel = self.kernel.as_mut();
        let watched = kernel.map(|kernel| kernel.watch_disk(disk.device, entry));
        if let Some(Err(err)) = watched {
            let err = &err as &dyn std::error::Error;
            warn!(disk = %escape(&disk.name), err, "disk not watched");
            return;
        }
        info!(disk = %escape(&disk.name), slow_us = slow.as_micros(), "disk watched");
        self.disks.watch(disk.device, disk.name, slow);
    }

    /// The start times that the kernel judges by are stale, and the counters stand still: the disk is
    /// not watched, and what it raised ends. `true` where that is news.
    fn iostats_off(&mut self, device: DeviceNumber, name: &str, now: BootNanos) -> bool {
        let news = self.care.blind.insert(name.to_owned());
        if news {
            warn!(
                disk = %escape(name),
                "I/O statistics are off, so its latency is not known; write 1 to \
                 /sys/block/<disk>/queue/iostats, which is seen within ten seconds"
            );
        }
        let another = match self.disks.name(device) {
            Some(watched) if watched == name => {
                self.end_watch(device, "its I/O statistics are off");
                if self.disks.unwatch(device, now) || self.care.unwatched.is_some() {
                    let others = self.disks.last_unhealthy(now);
                    self.care.unwatched = Some(Unwatched { others });
                }
                false
            }
            Some(_) => self.forget_disk(device, now),
            None => false,
        };
        news || another
    }

    pub(in crate::app) fn disk_name(&self, device: DeviceNumber) -> Option<&str> {
        self.disks.name(device)
    }

    /// The kernel said that a disk is slow, and whether its requests carry their start times is
    /// known now. `true` where what is known of the disk changed.
    pub(in crate::app) fn disk_slow(
        &mut self,
        device: DeviceNumber,
        counts: bool,
        now: BootNanos,
    ) -> bool {
        let Some(name) = self.disks.name(device).map(str::to_owned) else {
            return false;
        };
        if !counts {
            return self.iostats_off(device, &name, now);
        }
        let entry = self.kernel.as_ref().and_then(|kernel| kernel.disk(device));
        let still = entry.is_none_or(|entry| entry.state != DISK_WELL);
        still && self.disks.set_health(device, Health::Slow, now)
    }

    /// The kernel says that a disk is well again, or returned an error. `true` where that is news.
    pub(in crate::app) fn disk_told(
        &mut self,
        device: DeviceNumber,
        health: Health,
        now: BootNanos,
    ) -> bool {
        self.disks.set_health(device, health, now)
    }

    /// Watches a disk that is gone no longer. `true` where it was not well.
    fn forget_disk(&mut self, device: DeviceNumber, now: BootNanos) -> bool {
        self.end_watch(device, "it is gone");
        self.disks.forget(device, now)
    }

    fn end_watch(&mut self, device: DeviceNumber, why: &'static str) {
        let name = escape(self.disks.name(device).unwrap_or_default());
        info!(%device, disk = %name, why, "disk not watched any more");
        let forgotten = self
            .kernel
            .as_mut()
            .map(|kernel: &mut Kernel| kernel.forget_disk(device));
        if let Some(Err(err)) = forgotten {
            warn!(err = &err as &dyn std::error::Error, "disk not forgotten");
        }
    }

    /// The disks behind the condition.
    pub(in crate::app) fn unwell(&self) -> Disks {
        Disks {
            slow: self.disks.named(Health::Slow),
            stalled: self.disks.named(Health::Stalled),
            failing: self.disks.named(Health::Failing),
            unwatched: self.care.blind.iter().cloned().collect(),
        }
    }
}

/// The limit for one disk: its own, else that of its kind. A virtio disk says that it rotates,
/// whatever it is made of.
fn limit(config: &DiskIo, disk: &Disk) -> Duration {
    match config.devices.get(&disk.name) {
        Some(own) => *own,
        None if disk.rotational && !disk.virtio => config.rotational_slow,
        None => config.solid_state_slow,
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::probes::tests::calm;
    use crate::kernel::Support;
    use crate::kernel::support::Missing;
    use crate::pressure::disks::DiskSample;

    fn at(seconds: u64) -> BootNanos {
        BootNanos(seconds * 1_000_000_000)
    }

    fn number(minor: u32) -> DeviceNumber {
        DeviceNumber { major: 8, minor }
    }

    fn disk(name: &str, minor: u32) -> Disk {
        Disk {
            name: name.to_owned(),
            device: number(minor),
            rotational: false,
            virtio: false,
            iostats: true,
        }
    }

    fn without_statistics(name: &str, minor: u32) -> Disk {
        Disk {
            iostats: false,
            ..disk(name, minor)
        }
    }

    /// Without the probe.
    fn probes(found: Option<Vec<Disk>>) -> Probes {
        let mut probes = calm();
        probes.support = Support::none(&Missing::TurnedOff);
        probes.disks_listed(found, at(1));
        probes
    }

    fn names(probes: &Probes) -> Vec<&str> {
        probes.disks.watched().map(|(_, name)| name).collect()
    }

    #[test]
    fn it_is_blind_only_where_no_disk_can_be_told_of() {
        let rows = [
            (None, true, "not listed"),
            (Some(vec![]), false, "there is none"),
            (
                Some(vec![without_statistics("sda", 0)]),
                true,
                "all are off",
            ),
            (
                Some(vec![without_statistics("sda", 0), disk("sdb", 16)]),
                false,
                "one is on",
            ),
        ];
        for (found, blind, why) in rows {
            assert_eq!(probes(found).blind_to_disks(), blind, "{why}");
        }
    }

    #[test]
    fn the_list_that_is_read_again_is_what_is_watched() {
        let mut probes = probes(Some(vec![disk("sda", 0), disk("sdb", 16)]));
        probes.disks.set_health(number(16), Health::Slow, at(1));
        probes.disks_listed(Some(vec![disk("sdc", 0), disk("sdb", 16)]), at(2));
        assert_eq!(names(&probes), ["sdc", "sdb"], "another disk, same number");
        assert_eq!(probes.unwell().slow, ["sdb"], "what is known of it stays");
        probes.disks_listed(Some(vec![without_statistics("sdb", 16)]), at(3));
        assert_eq!(names(&probes), [""; 0]);
        let only_unwatched = Disks {
            unwatched: vec!["sdb".to_owned()],
            ..Disks::default()
        };
        assert_eq!(probes.unwell(), only_unwatched);
        let nothing_else = Some(Unwatched { others: None });
        assert_eq!(probes.unwatched(), nothing_else, "no other was ever slow");
        assert_eq!(probes.unwatched(), None, "once");
        probes.disks_listed(Some(vec![disk("sdb", 16)]), at(4));
        assert_eq!(probes.unwell(), Disks::default());
        assert_eq!(
            (names(&probes), probes.blind_to_disks()),
            (vec!["sdb"], false)
        );
    }

    /// A disk, how it is, and since when.
    type Told = &'static [(u32, Health, u64)];

    #[test]
    fn what_a_disk_raised_that_is_not_watched_any_more_is_not_what_others_raised() {
        let all = || vec![disk("sda", 0), disk("sdb", 16)];
        let off = || vec![without_statistics("sda", 0), disk("sdb", 16)];
        let others = |seconds| {
            Some(Unwatched {
                others: Some(at(seconds)),
            })
        };
        let rows: [(&str, Told, Option<Unwatched>); 4] = [
            ("nothing was slow", &[], None),
            (
                "the other one was",
                &[(16, Health::Slow, 5), (16, Health::Healthy, 6)],
                None,
            ),
            (
                "both were",
                &[
                    (16, Health::Slow, 5),
                    (16, Health::Healthy, 6),
                    (0, Health::Slow, 7),
                ],
                others(6),
            ),
            (
                "the other one is",
                &[(16, Health::Slow, 5), (0, Health::Slow, 7)],
                others(8),
            ),
        ];
        for (why, told, expected) in rows {
            let mut probes = probes(Some(all()));
            for (minor, health, seconds) in told {
                probes
                    .disks
                    .set_health(number(*minor), *health, at(*seconds));
            }
            probes.disks_listed(Some(off()), at(8));
            assert_eq!(probes.unwatched(), expected, "{why}");
        }

        // One that was pulled has raised what it raised.
        let mut probes = probes(Some(all()));
        probes.disks.set_health(number(16), Health::Slow, at(5));
        probes.disks.set_health(number(0), Health::Slow, at(7));
        probes.disks_listed(Some(vec![disk("sda", 0)]), at(8));
        probes.disks_listed(Some(vec![without_statistics("sda", 0)]), at(9));
        assert_eq!(probes.unwatched(), others(8));
    }

    #[test]
    fn statistics_are_asked_about_once_a_period_and_a_switch_lists_the_disks() {
        let mut probes = probes(Some(vec![disk("sda", 0), without_statistics("sdb", 16)]));
        let asked = |probes: &mut Probes, now| match probes.check_statistics(now, now) {
            Some(Question::Statistics(known)) => known,
            other => panic!("{other:?}"),
        };
        let known = vec![("sda".to_owned(), true), ("sdb".to_owned(), false)];
        assert_eq!(asked(&mut probes, at(1)), known);
        assert!(
            probes.check_statistics(at(11), at(11)).is_none(),
            "one at a time"
        );
        assert!(probes.statistics_checked(false).is_none());
        assert!(
            probes.check_statistics(at(10), at(10)).is_none(),
            "once a period"
        );
        asked(&mut probes, at(11));
        assert!(matches!(
            probes.statistics_checked(true),
            Some(Question::Disks)
        ));

        let mut none = self::probes(Some(Vec::new()));
        assert!(none.check_statistics(at(1), at(1)).is_none(), "no disks");
    }

    #[test]
    fn what_is_announced_is_looked_for_and_once_more_where_it_came_too_early() {
        use DiskAction::{Added, Changed, Removed};
        let mut probes = probes(Some(vec![disk("sda", 0)]));
        let change = |action, name: &str, minor| DiskChange {
            action,
            device: number(minor),
            name: name.to_owned(),
        };
        assert_eq!(
            probes
                .disk_announced(change(Added, "loop0", 0), at(2))
                .err(),
            Some(false),
            "no disk that is watched"
        );
        let sdb = change(Added, "sdb", 16);
        let asked = probes.disk_announced(sdb.clone(), at(2));
        assert!(matches!(asked, Ok(Question::Disk(asked)) if asked == sdb));
        assert_eq!(probes.look_at(), None);
        probes.disk_found(&change(Changed, "sdb", 16), None, at(2));
        assert_eq!(probes.look_at(), None, "nobody said that it came");
        probes.disk_found(&sdb, None, at(2));
        let again = at(2).plus(NOT_YET);
        assert_eq!(probes.look_at(), Some(again));
        probes.care.next_look = at(99);
        let due = probes.due(again, again);
        assert!(matches!(due[..], [Question::Disks]), "{due:?}");
        assert_eq!(probes.look_at(), None, "once");

        probes.disk_found(&sdb, Some(disk("sdb", 16)), at(3));
        assert_eq!(names(&probes), ["sda", "sdb"]);
        probes.disks.set_health(number(16), Health::Slow, at(3));
        let gone = probes.disk_announced(change(Removed, "sdb", 16), at(4));
        assert_eq!(gone.err(), Some(true), "it was slow");
        assert_eq!(names(&probes), ["sda"]);
    }

    #[test]
    fn without_the_probe_all_disks_are_looked_at_every_ten_seconds() {
        let mut probes = probes(Some(vec![disk("sda", 0)]));
        let late = |n: u64| {
            let sample = DiskSample {
                completed: 10 * n,
                answered: 10 * n,
                waited: Duration::from_secs(n),
                in_flight: 0,
            };
            vec![(number(0), Found::Counted(sample))]
        };
        let asked = |probes: &mut Probes, now| {
            let due = probes.due(now, now);
            due.iter()
                .filter(|q| matches!(q, Question::Look(_)))
                .count()
        };
        assert_eq!(asked(&mut probes, at(10)), 1);
        assert_eq!(
            asked(&mut probes, at(20)),
            0,
            "the last one is not answered"
        );
        assert!(!probes.looked(late(1), at(20)));
        assert_eq!(asked(&mut probes, at(29)), 0);
        assert_eq!(asked(&mut probes, at(30)), 1);
        assert!(probes.looked(late(2), at(30)), "100 ms each");
        assert_eq!(probes.unwell().slow, ["sda"]);
        assert_eq!(probes.look_at(), Some(at(32)));
    }

    #[test]
    fn with_probe_and_trigger_nobody_looks_before_tasks_wait() {
        let mut probes = probes(Some(vec![disk("sda", 0)]));
        probes.support = Support::all();
        probes.has_triggers(&Stall::ALL);
        let looks = |questions: Vec<Question>| {
            let is = |q: &Question| matches!(q, Question::Look(disks) if disks.len() == 1);
            questions.iter().filter(|q| is(q)).count()
        };
        assert_eq!(looks(probes.due(at(100), at(100))), 0);
        assert_eq!(looks(probes.suspect_disks().into_iter().collect()), 1);
        let busy = |completed| {
            let sample = DiskSample {
                completed,
                in_flight: 3,
                ..DiskSample::default()
            };
            vec![(number(0), Found::Counted(sample))]
        };
        assert!(!probes.looked(busy(5), at(101)));
        assert_eq!(probes.look_at(), Some(at(102)));
        assert_eq!(looks(probes.due(at(102), at(102))), 1);
        assert!(probes.looked(busy(5), at(102)));
        assert_eq!(probes.unwell().stalled, ["sda"]);
    }
}
