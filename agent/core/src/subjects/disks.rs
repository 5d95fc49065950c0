//! Selects the disks to watch, and finds those that are unhealthy.
//!
//! The completion probe reports slow windows and errors. It does not see a hang, so the counters of
//! a disk are sampled when tasks wait for I/O. Without the probe, or without a trigger that reports
//! tasks waiting for I/O, all disks are sampled periodically.
//!
//! The disks below nodefs, imagefs, the root file system and swap set conditions. If one of these
//! cannot be traced to disks, every disk does: a condition that cannot become True is worse than
//! one about a disk that only some pods use.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{BlockingQuery, Decision, Effect, Input, SignalInput, pass_on};
use crate::clock::{BootNanos, Now, Stamp};
use crate::node_status::{Disks, FactChange};
use crate::pressure::disks::{DiskBoard, DiskRules, EndedWindow, Health, LatencySource};
use crate::pressure::sample::LONGEST;
use crate::reading::{Disk, DiskReport, DiskRole, NodeFilesystem, SlowWindow};
use crate::record::{DiskAction, DiskChange};
use crate::settings::DiskIo;
use crate::units::DeviceNumber;

mod auto_limits;
mod details;
mod filesystems;
mod input;
mod io_wait;
mod listing;
mod reports;
mod unhealthy;

pub use auto_limits::ComputedLimit;
pub use input::{CountersRead, DiskCounters, DiskInput};
pub use listing::{UnwatchReason, Unwatched, WatchedDisk};

use auto_limits::AutoLimits;
use filesystems::Filesystems;
use io_wait::IoWaitReads;
use listing::Listing;

/// A query about disks. A helper thread answers it, since a hung disk can block it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiskQuery {
    List,
    /// Reads one disk, which the kernel announced.
    Find(DiskChange),
    /// Checks that the I/O statistics of a disk are on, so that a report of a slow window counts.
    Statistics {
        device: DeviceNumber,
        /// The name under `/sys/block`.
        name: String,
        window: SlowWindow,
        /// The stamp of the report.
        stamp: Stamp,
    },
    /// Reads the access to nodefs, imagefs and the root file system, and their errors.
    Filesystems,
    Counters(Vec<(DeviceNumber, String)>),
    /// Checks if I/O statistics of any of these disks were switched: by name, with the last known
    /// state.
    Switched(Vec<(String, bool)>),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiskDecision {
    Announced(DiskChange),
    Reported {
        device: DeviceNumber,
        report: DiskReport,
    },
    Watched(WatchedDisk),
    TooMany {
        name: String,
    },
    LimitComputed(ComputedLimit),
    StatisticsOff {
        name: String,
    },
    Unwatched {
        device: DeviceNumber,
        name: String,
        reason: UnwatchReason,
    },
    HealthChanged {
        device: DeviceNumber,
        name: String,
        role: DiskRole,
        health: Health,
        /// The reason, as far as it is known; empty if the disk is healthy.
        details: String,
    },
    /// A file system of the node became read-only, or writable again.
    ReadOnly {
        filesystem: NodeFilesystem,
        read_only: bool,
    },
    /// A file system of the node returned errors, or no longer does.
    FilesystemErrors {
        /// The name, the mount point and the device, escaped.
        filesystem: String,
        failed: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiskProbe {
    /// The completion probe reports slow disks and errors.
    Attached,
    /// Disks are judged by their counters.
    Missing,
}

/// The trigger that reports that tasks wait for I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum IoTrigger {
    Set,
    Missing,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DiskSetup {
    pub settings: DiskIo,
    pub probe: DiskProbe,
    pub trigger: IoTrigger,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Schedule {
    /// Only unhealthy and suspected disks are sampled: probe and trigger report the rest.
    OnReport,
    /// All disks are sampled periodically.
    Periodic { next: BootNanos },
}

/// The minimum time between two checks of the I/O statistics. They are made with every sixth sample
/// of storage.
const STATISTICS_INTERVAL: Duration = Duration::from_secs(55);

/// Tasks have waited for this long when the trigger on I/O stalls fires.
const WAITED: Duration = Duration::from_millis(300);

/// The state of a query of samples. The helper thread takes one sample at a time, because the
/// answer can take long.
///
/// ```text
/// Idle ──an unhealthy disk is due, the period is over, or tasks wait──► InProgress
///   ▲                                                                       │
///   └────────────────────────── answered, or timed out ─────────────────────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
enum Sampling {
    #[default]
    Idle,
    InProgress,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct DiskWatch {
    settings: DiskIo,
    board: DiskBoard,
    listing: Listing,
    /// Names of disks whose I/O statistics are off.
    unmeasured: BTreeSet<String>,
    schedule: Schedule,
    sampling: Sampling,
    /// The check of I/O statistics, whose switching nothing announces.
    statistics: Sampling,
    next_statistics: BootNanos,
    io_wait: IoWaitReads,
    slow_stamp: Option<Stamp>,
    filesystems: Filesystems,
    auto_limits: AutoLimits,
    /// Set if a disk that was unhealthy is no longer watched, until that is published.
    unwatched: Option<Unwatched>,
    started: bool,
}

impl DiskWatch {
    /// Starts without any disk: the first list is an input.
    pub fn new(setup: DiskSetup, now: BootNanos) -> Self {
        let DiskSetup {
            settings,
            probe,
            trigger,
        } = setup;
        Self {
            listing: Listing::new(settings.window, now),
            board: DiskBoard::new(
                rules(&settings),
                match probe {
                    DiskProbe::Attached => LatencySource::Program,
                    DiskProbe::Missing => LatencySource::Counters,
                },
            ),
            settings,
            unmeasured: BTreeSet::new(),
            schedule: match (probe, trigger) {
                (DiskProbe::Attached, IoTrigger::Set) => Schedule::OnReport,
                (DiskProbe::Missing, _) | (_, IoTrigger::Missing) => {
                    Schedule::Periodic { next: BootNanos(0) }
                }
            },
            sampling: Sampling::Idle,
            statistics: Sampling::Idle,
            next_statistics: now,
            io_wait: IoWaitReads::default(),
            slow_stamp: None,
            filesystems: Filesystems::default(),
            auto_limits: AutoLimits::default(),
            unwatched: None,
            started: false,
        }
    }

    pub fn on(&mut self, input: DiskInput, now: Now) -> Vec<Effect> {
        let now = now.boot;
        match input {
            DiskInput::Listed(found) => self.listed(found, now),
            DiskInput::Announced(change) => self.announced(change, now),
            DiskInput::AnnouncementsLost => vec![query(DiskQuery::List)],
            DiskInput::Found { change, disk } => self.found(&change, disk, now),
            DiskInput::Watched(disks) => self.watched_by_kernel(disks),
            DiskInput::Reported {
                device,
                report,
                stamp,
            } => self.reported(device, report, stamp, now),
            DiskInput::Confirmed {
                device,
                valid,
                window,
                totals,
                stamp,
            } => {
                let window = valid.then_some(EndedWindow {
                    window,
                    end: stamp.kernel,
                    counted: now,
                    totals,
                });
                self.confirmed(device, window, stamp, now)
            }
            DiskInput::IoWaitRead(io_wait) => self.io_wait_read(io_wait, now),
            DiskInput::Sampled(disks) => self.sampled(disks, now),
            DiskInput::StatisticsChecked { switched } => self.statistics_checked(switched),
            DiskInput::IoStalled => {
                self.board.suspect(now.minus(WAITED));
                self.sample_all().into_iter().collect()
            }
            DiskInput::StorageSampled { read_only, errors } => {
                let changes = self.filesystems.sampled(&read_only);
                let mut effects = self.filesystems_changed(changes);
                if self.filesystems.has_counted(errors) && self.filesystems.request(now) {
                    effects.push(query(DiskQuery::Filesystems));
                }
                effects.extend(self.check_statistics(now));
                effects.extend(self.read_latency(now));
                effects
            }
            DiskInput::LatencyRead(read) => self.latency_read(read),
            DiskInput::FilesystemsRead(read) => {
                let changes = self.filesystems.read(read, now);
                self.filesystems_changed(changes)
            }
            DiskInput::Tick { soon } => self.tick(now, soon),
            DiskInput::Configured(settings) => {
                let changed = self.settings != settings;
                self.board.configure(rules(&settings));
                self.settings = settings;
                let list = changed.then(|| query(DiskQuery::List));
                list.into_iter().collect()
            }
            DiskInput::Started => {
                self.started = true;
                let mut effects = self.publish(None);
                effects.push(query(DiskQuery::Filesystems));
                effects
            }
        }
    }

    /// Returns the time at which an unhealthy or suspected disk is due, or a disk that was
    /// announced too early.
    pub fn due(&self) -> Option<BootNanos> {
        let all = [
            self.board.sample_at(),
            self.listing.retry_at(),
            self.filesystems.due(),
        ];
        all.into_iter().flatten().min()
    }

    /// Replaces numbers by names, and drops disks that are not watched.
    pub fn named<'a, T>(&'a self, of: &'a [(DeviceNumber, T)]) -> Vec<(&'a str, &'a T)> {
        let name = |(device, of): &'a (DeviceNumber, T)| Some((self.board.name(*device)?, of));
        of.iter().filter_map(name).collect()
    }

    pub fn devices(&self) -> impl Iterator<Item = DeviceNumber> {
        self.board.watched().map(|(device, _)| device)
    }

    fn announced(&mut self, change: DiskChange, now: BootNanos) -> Vec<Effect> {
        let mut effects = vec![log(DiskDecision::Announced(change.clone()))];
        let removed = change.action == DiskAction::Removed;
        if !removed && !Disk::is_excluded(&change.name) {
            effects.push(query(DiskQuery::Find(change)));
            return effects;
        }
        if removed {
            self.unmeasured.remove(&change.name);
        }
        if removed && self.board.name(change.device).is_some() {
            self.forget(change.device, now, &mut effects);
        }
        // A disk that was healthy is published too: it may have been the last one that could be
        // watched.
        effects.extend(self.publish(None));
        effects
    }

    fn sampled(&mut self, disks: Vec<DiskCounters>, now: BootNanos) -> Vec<Effect> {
        self.sampling = Sampling::Idle;
        let mut effects = Vec::new();
        let mut changed = false;
        for disk in disks {
            let device = disk.device;
            changed |= match disk.counters {
                CountersRead::Read(sample) => {
                    let last = disk.last_completion;
                    let health = self.board.apply_sample(device, sample, last, now);
                    effects.extend(self.health_changed(device, health, now));
                    health.is_some()
                }
                CountersRead::Removed => self.forget(device, now, &mut effects),
                CountersRead::Failed => false,
            };
        }
        effects.extend(self.query_io_wait(now));
        if changed {
            effects.extend(self.publish(None));
        }
        effects
    }

    fn filesystems_changed(&mut self, changes: Vec<DiskDecision>) -> Vec<Effect> {
        let is_changed = !changes.is_empty();
        let mut effects: Vec<Effect> = changes.into_iter().map(log).collect();
        if is_changed {
            effects.extend(self.publish(None));
        }
        effects
    }

    fn tick(&mut self, now: BootNanos, soon: BootNanos) -> Vec<Effect> {
        let list = self.listing.due(now, soon);
        let read = [DiskQuery::List, DiskQuery::Filesystems].map(query);
        let list = list.then_some(read).into_iter().flatten();
        let sample = match &mut self.schedule {
            Schedule::Periodic { next } if *next <= soon => {
                *next = now.plus(LONGEST);
                self.sample_all()
            }
            Schedule::Periodic { .. } | Schedule::OnReport => {
                let due = self.board.sample_at().is_some_and(|at| at <= now);
                let disks = due.then(|| self.board.begin_sampling(now));
                disks.and_then(|disks| self.sample(disks))
            }
        };
        let filesystems = self.filesystems.take_due(now);
        let filesystems = filesystems.then(|| query(DiskQuery::Filesystems));
        list.chain(sample).chain(filesystems).collect()
    }

    fn sample_all(&mut self) -> Option<Effect> {
        let all = self.board.watched();
        let all = all.map(|(device, name)| (device, name.to_owned()));
        let all = all.collect();
        self.sample(all)
    }

    fn sample(&mut self, disks: Vec<(DeviceNumber, String)>) -> Option<Effect> {
        if self.sampling == Sampling::InProgress || disks.is_empty() {
            return None;
        }
        self.sampling = Sampling::InProgress;
        Some(query(DiskQuery::Counters(disks)))
    }

    fn check_statistics(&mut self, now: BootNanos) -> Vec<Effect> {
        if self.statistics == Sampling::InProgress || now < self.next_statistics {
            return Vec::new();
        }
        let on = self.board.watched();
        let on = on.map(|(_, name)| (name.to_owned(), true));
        let off = self.unmeasured.iter().map(|name| (name.clone(), false));
        let known: Vec<_> = on.chain(off).collect();
        if known.is_empty() {
            return Vec::new();
        }
        self.statistics = Sampling::InProgress;
        self.next_statistics = now.plus(STATISTICS_INTERVAL);
        vec![query(DiskQuery::Switched(known))]
    }

    fn statistics_checked(&mut self, switched: bool) -> Vec<Effect> {
        self.statistics = Sampling::Idle;
        let list = switched.then(|| query(DiskQuery::List));
        list.into_iter().collect()
    }

    /// Publishes the state of the disks, as fact and for the evaluation.
    fn publish(&mut self, stamp: Option<Stamp>) -> Vec<Effect> {
        if !self.started {
            return Vec::new();
        }
        let disks = Disks {
            slow: self.board.named(Health::Slow),
            stalled: self.board.named(Health::Stalled),
            failing: self.board.named(Health::Failing),
            read_only: self.filesystems.read_only(),
            failed_filesystems: self.filesystems.failed(),
            unwatched: self.unmeasured.iter().cloned().collect(),
        };
        let judged = SignalInput::Disks {
            known: self.is_measured().then(|| disks.clone()),
            unwatched: self.unwatched.take(),
            stamp,
        };
        vec![
            Effect::Fact(FactChange::Disks(disks)),
            pass_on(Input::Signal(judged)),
        ]
    }

    /// Returns true if the latency of any disk is measured. A node without disks has no slow one.
    fn is_measured(&self) -> bool {
        let any = self.board.watched().next().is_some();
        any || (self.listing.is_known() && self.unmeasured.is_empty())
    }
}

fn rules(settings: &DiskIo) -> DiskRules {
    DiskRules {
        slow_for: settings.slow_for,
        min_stall: settings.min_stall,
        stalled_after: settings.stalled_after,
    }
}

fn query(query: DiskQuery) -> Effect {
    Effect::BlockingQuery(BlockingQuery::Disk(query))
}

fn log(decision: DiskDecision) -> Effect {
    Effect::Log(Decision::Disk(decision))
}

#[cfg(test)]
mod tests;
