//! Samples the signals, and derives the pressure on each resource from their thresholds.
//!
//! Memory and pids are sampled at once. Storage can wait for a disk, so its samples come later.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Decision, Effect, Input, KillCounterInput, PidInput};
use super::{LargestOwnersInput, PodPidInput, Query, Unwatched, pass_on};
use crate::clock::{BootNanos, Now, Stamp};
use crate::node_status::{Disks, FactChange};
use crate::pressure::change::PressureChange;
use crate::pressure::deadline::Deadlines;
use crate::pressure::evaluate::Evaluator;
use crate::pressure::oom::Grounds;
use crate::pressure::sample::Sample;
use crate::pressure::{Exceeded, Policy, Pressure};
use crate::reading::{Resource, Signal};

mod storage;
#[cfg(test)]
mod tests;

use storage::Storage;
pub use storage::{SIGNALS as STORAGE, StorageSample};

/// Signals that can be read without waiting for a disk.
const DIRECT: [Signal; 4] = [
    Signal::MemoryAvailable,
    Signal::AllocatableMemoryAvailable,
    Signal::PidAvailable,
    Signal::AllocatablePidAvailable,
];

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SignalInput {
    Configured(Policy),
    Tick {
        /// Signals that are due until then are sampled in the same wake-up: see
        /// [`ALIGN`](crate::clock::ALIGN).
        soon: BootNanos,
        /// Tasks have to be counted now.
        count_tasks: bool,
    },
    /// Memory and pids need to be sampled now.
    Requested {
        /// The stamp of the record about pids that is the cause, if there is one.
        stamp: Option<Stamp>,
    },
    /// Memory may be short, so the next sample is due.
    MemoryMayBeShort,
    Sampled(DirectSample),
    StorageRequested,
    StorageSampled(StorageSample),
    Disks {
        /// `None` if no source measures how quickly disks respond.
        known: Option<Disks>,
        /// A disk that was unhealthy is no longer watched.
        unwatched: Option<Unwatched>,
        /// The stamp of the record that is the cause, if there is one.
        stamp: Option<Stamp>,
    },
    /// A resource is under pressure, regardless of its thresholds.
    Forced {
        resource: Resource,
        why: Grounds,
        at: BootNanos,
        stamp: Stamp,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectSample {
    pub samples: Vec<Sample>,
    /// Tasks on this machine; `None` if not read.
    pub tasks: Option<u64>,
    /// The maximum number of pids of the machine; `None` if not read.
    pub pid_capacity: Option<u64>,
    pub pods_cgroup: String,
    /// The stamp of the record that is the cause, if there is one.
    pub stamp: Option<Stamp>,
}

/// The facts about the signals before they are sampled.
#[derive(Debug, Clone, PartialEq)]
pub struct SignalSetup {
    pub policy: Policy,
    /// Signals whose crossings the kernel reports, or that are evaluated with every other sample:
    /// they do not determine the time of the next sample.
    pub announced: Vec<Signal>,
    pub pods_cgroup: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Signals {
    evaluator: Evaluator,
    direct: Deadlines,
    storage: Storage,
    tasks: Option<u64>,
    /// The last value that was read.
    pid_capacity: Option<u64>,
    pods_cgroup: String,
    /// Resources whose state is unknown, as last published.
    lost: BTreeMap<Resource, Vec<Signal>>,
}

impl Signals {
    /// Every sample is due at first.
    pub fn new(setup: SignalSetup, now: BootNanos) -> Self {
        Self {
            evaluator: Evaluator::new(setup.policy),
            direct: Deadlines::new(&DIRECT, setup.announced),
            storage: Storage::new(now),
            tasks: None,
            pid_capacity: None,
            pods_cgroup: setup.pods_cgroup,
            lost: BTreeMap::new(),
        }
    }

    pub fn on(&mut self, input: SignalInput, now: Now) -> Vec<Effect> {
        match input {
            SignalInput::Configured(policy) => {
                self.evaluator.set_policy(policy);
                let mut effects = vec![self.configure_pids()];
                // The new thresholds apply at once.
                effects.push(sample(None));
                effects.extend(self.storage.request());
                effects
            }
            SignalInput::Tick { soon, count_tasks } => self.tick(soon, count_tasks, now.boot),
            SignalInput::Requested { stamp } => vec![sample(stamp)],
            SignalInput::MemoryMayBeShort => {
                self.direct.hint(now.boot);
                Vec::new()
            }
            SignalInput::Sampled(sample) => self.sampled(sample, now.boot),
            SignalInput::StorageRequested => self.storage.request().into_iter().collect(),
            SignalInput::StorageSampled(sample) => self.storage_sampled(sample, now.boot),
            SignalInput::Disks {
                known,
                unwatched,
                stamp,
            } => {
                let ended = unwatched.map(|of| self.evaluator.unwatch_disks(of.others));
                let mut changes = ended.unwrap_or_default();
                changes.extend(self.evaluator.observe_disks(known.as_ref(), now.boot));
                self.changed_by_disks(&changes, stamp)
            }
            SignalInput::Forced {
                resource,
                why,
                at,
                stamp,
            } => {
                let changes = self.evaluator.force(resource, why, at);
                self.changed(&changes, Some((resource, stamp)))
            }
        }
    }

    /// Applies a condition that the API server has as True since an unknown time.
    pub(super) fn seed(&mut self, resource: Resource, now: BootNanos) {
        self.evaluator.seed(resource, now);
    }

    /// Continues a transition period that began at `at`, before a restart.
    pub(super) fn restore(&mut self, resource: Resource, at: BootNanos, now: BootNanos) {
        self.evaluator.restore(resource, at, now);
    }

    /// Returns the next time at which a sample is due, or a transition period may end.
    pub fn due(&self) -> BootNanos {
        let others = [self.evaluator.next_fall(), self.storage.due()];
        let others = others.into_iter().flatten();
        others.fold(self.direct.due(), BootNanos::min)
    }

    pub const fn evaluator(&self) -> &Evaluator {
        &self.evaluator
    }

    pub fn exceeded(&self, resource: Resource) -> Exceeded {
        self.evaluator.exceeded(resource)
    }

    /// Returns the number of tasks in the last sample; `None` if not read.
    pub const fn tasks(&self) -> Option<u64> {
        self.tasks
    }

    fn tick(&mut self, soon: BootNanos, count_tasks: bool, now: BootNanos) -> Vec<Effect> {
        let falls = self.evaluator.next_fall().is_some_and(|at| at <= now);
        let must = falls || count_tasks;
        let mut effects = Vec::new();
        // Storage is sampled early if it is due before the next sample of memory.
        let mut until = soon;
        if must || self.direct.due() <= soon {
            until = soon.max(now.plus(self.direct.interval()));
            effects.push(sample(None));
        }
        if must || self.storage.due().is_some_and(|due| due <= until) {
            effects.extend(self.storage.request());
        }
        effects
    }

    fn sampled(&mut self, taken: DirectSample, now: BootNanos) -> Vec<Effect> {
        let DirectSample {
            samples,
            tasks,
            pid_capacity,
            pods_cgroup,
            stamp,
        } = taken;
        let mut effects = Vec::new();
        if self.pods_cgroup != pods_cgroup {
            // The cgroup was created after the start of the agent.
            self.pods_cgroup.clone_from(&pods_cgroup);
            effects.push(Effect::Log(Decision::PodsCgroupFound(pods_cgroup.clone())));
            effects.push(Effect::Fact(FactChange::PodsCgroup(pods_cgroup)));
        }
        let changes = self.evaluator.evaluate(&samples, now);
        self.direct.next(&samples, &self.evaluator, now);
        effects.push(Effect::Log(Decision::Sampled(samples)));
        let resized = pid_capacity.is_some() && pid_capacity != self.pid_capacity;
        self.tasks = tasks;
        self.pid_capacity = pid_capacity.or(self.pid_capacity);
        effects.push(pass_on(Input::Pid(PidInput::Sampled {
            tasks,
            pressure: self.evaluator.pressure(Resource::Pids),
        })));
        if resized {
            effects.push(self.configure_pids());
        }
        effects.extend(self.changed(&changes, stamp.map(|stamp| (Resource::Pids, stamp))));
        effects.push(pass_on(Input::KillCounter(KillCounterInput::Sampled)));
        effects.push(pass_on(Input::PodPid(PodPidInput::Sampled)));
        effects
    }

    fn storage_sampled(&mut self, sample: StorageSample, now: BootNanos) -> Vec<Effect> {
        let StorageSample {
            samples,
            capacity,
            volumes,
            ..
        } = sample;
        let samples = self.storage.existing(samples);
        let changes = self.evaluator.evaluate(&samples, now);
        self.storage
            .sampled(&samples, capacity.is_some(), &self.evaluator, now);
        let mut effects = vec![
            Effect::Fact(FactChange::Storage { capacity, volumes }),
            Effect::Log(Decision::Sampled(samples)),
        ];
        effects.extend(self.changed(&changes, None));
        effects
    }

    /// Logs changes and publishes them; `cause` is the kernel record behind them. The cause is
    /// reported only if pressure began, because the end of pressure is written with the next
    /// regular status.
    fn changed(
        &mut self,
        changes: &[PressureChange],
        cause: Option<(Resource, Stamp)>,
    ) -> Vec<Effect> {
        let mut effects = self.publish();
        for change in changes {
            effects.push(Effect::Log(Decision::PressureChanged(*change)));
            let began = matches!(change.to, Pressure::UnderPressure { .. });
            let of = cause.filter(|(resource, _)| began && *resource == change.resource);
            effects.extend(of.map(|(resource, stamp)| Effect::Caused { resource, stamp }));
            let short = LargestOwnersInput::short(change.resource).filter(|_| began);
            effects.extend(short.map(|short| pass_on(Input::LargestOwners(short))));
        }
        effects.push(Effect::Publish);
        effects
    }

    /// Like [`Self::changed`], for a record of the kernel about a disk.
    fn changed_by_disks(
        &mut self,
        changes: &[PressureChange],
        stamp: Option<Stamp>,
    ) -> Vec<Effect> {
        let failing = changes
            .iter()
            .any(|change| change.resource == Resource::DiskFailing);
        let resource = if failing {
            Resource::DiskFailing
        } else {
            Resource::DiskIo
        };
        self.changed(changes, stamp.map(|stamp| (resource, stamp)))
    }

    pub(super) fn publish(&mut self) -> Vec<Effect> {
        let lost = self.evaluator.lost();
        let mut effects = vec![Effect::Fact(FactChange::Pressures {
            pressures: self.evaluator.pressures(),
            causes: self.evaluator.causes(),
            lost: lost.clone(),
        })];
        if self.lost != lost {
            effects.push(Effect::Log(Decision::SourcesLost {
                before: std::mem::replace(&mut self.lost, lost.clone()),
                now: lost,
            }));
        }
        effects
    }

    /// Must be called when the thresholds on pids, or the capacity, may have changed.
    fn configure_pids(&self) -> Effect {
        pass_on(Input::Pid(PidInput::Configured {
            thresholds: self.evaluator.thresholds().copied().collect(),
            capacity: self.pid_capacity,
        }))
    }
}

fn sample(stamp: Option<Stamp>) -> Effect {
    Effect::Query(Query::Signals(stamp))
}
