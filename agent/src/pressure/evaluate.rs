//! One pass: what was seen, held against the thresholds, gives one state per resource.
//!
//! The order of the steps is the kubelet's eviction manager's:
//! <https://github.com/kubernetes/kubernetes/blob/v1.33.0/pkg/kubelet/eviction/eviction_manager.go>.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::BootNanos;
use crate::pressure::change::{PressureChange, PressureReason};
use crate::pressure::oom::Grounds;
use crate::pressure::sample::{DiskStates, Sample};
use crate::pressure::source::Source;
use crate::pressure::threshold::Threshold;
use crate::pressure::{Cause, Exceeded, Observed, Policy, Pressure, SlowDisks};
use crate::reading::{Reading, Resource, Signal};

mod availability;

use availability::Availability;

/// One threshold, and what the last passes made of it.
#[derive(Debug, Clone, Copy)]
struct Tracked {
    threshold: Threshold,
    /// When it was first met; a dip forgets it.
    first_seen: Option<BootNanos>,
    /// Met in the last pass for at least its grace period. Only then its reclaim counts.
    fully_met: bool,
    /// Met by the last look.
    met: Option<PressureReason>,
}

/// What is known of one resource.
#[derive(Debug, Clone, Copy)]
struct State {
    pressure: Pressure,
    /// Since when it is relieved, its hold not counted; `None` while it is not.
    well_since: Option<BootNanos>,
    /// What last made it, or kept it, under pressure.
    cause: Option<PressureReason>,
    /// The newest confirmed kill since it is under pressure.
    kill: Option<Grounds>,
}

/// Holds the readings against the policy, pass by pass.
#[derive(Debug, Clone)]
pub struct Evaluator {
    transition_period: Duration,
    slow_disks: SlowDisks,
    tracked: Vec<Tracked>,
    /// Of each signal that was looked at; `None` where there was nothing to observe.
    sources: BTreeMap<Signal, Option<Source>>,
    disks: Source,
    /// Set while a disk is slow or stalled.
    disks_over: Option<PressureReason>,
    states: BTreeMap<Resource, State>,
}

impl Evaluator {
    /// Every resource unread.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        let unread = State {
            pressure: Pressure::Unknown,
            well_since: None,
            cause: None,
            kill: None,
        };
        Self {
            transition_period: policy.transition_period,
            slow_disks: policy.slow_disks,
            tracked: policy.thresholds.into_iter().map(track).collect(),
            sources: BTreeMap::new(),
            disks: Source::NeverRead,
            disks_over: None,
            states: Resource::ALL.map(|resource| (resource, unread)).into(),
        }
    }

    /// Takes another policy at once. Thresholds that stay keep what is known of them; new ones are
    /// judged by the next look at their signal.
    pub fn set_policy(&mut self, policy: Policy) {
        let old = std::mem::take(&mut self.tracked);
        self.tracked = policy
            .thresholds
            .into_iter()
            .map(|threshold| {
                let known = old.iter().find(|tracked| tracked.threshold == threshold);
                known.copied().unwrap_or_else(|| track(threshold))
            })
            .collect();
        self.transition_period = policy.transition_period;
        self.slow_disks = policy.slow_disks;
    }

    /// The thresholds in force.
    pub fn thresholds(&self) -> impl Iterator<Item = &Threshold> {
        self.tracked.iter().map(|tracked| &tracked.threshold)
    }

    /// The state of one resource.
    #[must_use]
    pub fn pressure(&self, resource: Resource) -> Pressure {
        self.states
            .get(&resource)
            .map_or(Pressure::Unknown, |state| state.pressure)
    }

    /// The state of every resource.
    #[must_use]
    pub fn pressures(&self) -> BTreeMap<Resource, Pressure> {
        let all = self.states.iter();
        all.map(|(resource, state)| (*resource, state.pressure))
            .collect()
    }

    /// What last made a resource be under pressure; `None` where it is not.
    #[must_use]
    pub fn cause(&self, resource: Resource) -> Option<PressureReason> {
        self.states.get(&resource).and_then(|state| state.cause)
    }

    /// Why each resource that is under pressure is so. A kill outlasts the thresholds that are met
    /// around it: it says more.
    #[must_use]
    pub fn causes(&self) -> BTreeMap<Resource, Cause> {
        let cause = |state: &State| {
            let by_kill = state.kill.map(Cause::OomKill);
            by_kill.or_else(|| state.cause.and_then(PressureReason::cause))
        };
        let all = self.states.iter();
        all.filter_map(|(resource, state)| Some((*resource, cause(state)?)))
            .collect()
    }

    /// A condition that the API server has as True when we start, `now` known to us: held for a whole
    /// transition period from when we first saw the resource well, since nobody knows when it was
    /// last over. That of a resource which was not seen yet is held from `now`.
    pub fn seed(&mut self, resource: Resource, now: BootNanos) {
        let Some(state) = self.states.get(&resource) else {
            return;
        };
        let since = match state.pressure {
            // By what we have seen ourselves.
            Pressure::UnderPressure { .. } => return,
            Pressure::Normal => state.well_since.unwrap_or(now),
            Pressure::Unknown => now,
        };
        if now.since(since) < self.transition_period {
            self.hold(resource, PressureReason::Stored, since);
        }
    }

    /// Before a restart it was last over at `last_exceeded`: held as if there had been none.
    pub fn restore(&mut self, resource: Resource, last_exceeded: BootNanos, now: BootNanos) {
        if now.since(last_exceeded) < self.transition_period {
            self.hold(resource, PressureReason::Restored, last_exceeded);
        }
    }

    /// When a resource was last over.
    #[must_use]
    pub fn exceeded(&self, resource: Resource) -> Exceeded {
        match self.pressure(resource) {
            Pressure::UnderPressure { .. } if self.is_over(resource) => Exceeded::Now,
            Pressure::UnderPressure { last_exceeded } => Exceeded::At(last_exceeded),
            Pressure::Unknown | Pressure::Normal => Exceeded::Never,
        }
    }

    /// A confirmed OOM kill: pressure at once, whatever the readings say, and for the transition
    /// period.
    pub fn force(
        &mut self,
        resource: Resource,
        grounds: Grounds,
        now: BootNanos,
    ) -> Vec<PressureChange> {
        let change = self.hold(resource, PressureReason::OomKill(grounds), now);
        if let Some(state) = self.states.get_mut(&resource) {
            state.kill = Some(grounds);
        }
        change.into_iter().collect()
    }

    /// One pass over the signals that were looked at. With no looks it only ends what is due to end.
    ///
    /// `now` is when they were read.
    pub fn evaluate(&mut self, looks: &[Sample], now: BootNanos) -> Vec<PressureChange> {
        for look in looks {
            self.judge(look, now);
        }
        let looked_at = |signal: Signal| looks.iter().any(|look| look.signal() == signal);
        let fresh: BTreeMap<Resource, PressureReason> = self
            .tracked
            .iter()
            .rev() // The first in the policy's order has the last word.
            .filter(|tracked| looked_at(tracked.threshold.signal))
            .filter_map(|tracked| Some((tracked.threshold.signal.resource(), tracked.met?)))
            .collect();
        self.settle(&fresh, now)
    }

    /// One look at all disks.
    pub fn observe_disks(&mut self, look: DiskStates<'_>, now: BootNanos) -> Vec<PressureChange> {
        let over = match look {
            DiskStates::Known {
                stalled: [_, ..], ..
            } => Some(PressureReason::StalledDisk),
            DiskStates::Known {
                failing: [_, ..], ..
            } => Some(PressureReason::DiskErrors),
            DiskStates::Known { slow: [_, ..], .. } => Some(PressureReason::SlowDisk),
            DiskStates::Known { .. } | DiskStates::Unavailable => None,
        };
        self.disks = match look {
            // Not a read that failed: it is certain that nothing is measured.
            DiskStates::Unavailable => Source::Lost,
            DiskStates::Known { .. } => Source::Read,
        };
        // We are told of the edges only: a disk that is well now was not until this moment.
        let until_now = over.or(self.disks_over);
        self.disks_over = over;

        let mut fresh = BTreeMap::new();
        if let Some(reason) = until_now {
            fresh.insert(Resource::DiskIo, reason);
            if self.slow_disks == SlowDisks::RaiseDiskPressure {
                fresh.insert(Resource::Disk, reason);
            }
        }
        self.settle(&fresh, now)
    }

    /// A disk that was not well is not watched any more, so what it raised ends: it is held from `last`
    /// on, when one of those that are watched was last not well. The next look at the disks follows.
    pub fn unwatch_disks(&mut self, last: Option<BootNanos>) -> Vec<PressureChange> {
        self.disks_over = None;
        let mut changes = Vec::new();
        for resource in [Resource::DiskIo, Resource::Disk] {
            let Some(state) = self.states.get_mut(&resource) else {
                continue;
            };
            let by_disks = Some(Cause::Disks) == state.cause.and_then(PressureReason::cause);
            let (true, from @ Pressure::UnderPressure { last_exceeded }) =
                (by_disks, state.pressure)
            else {
                continue;
            };
            if let Some(last) = last {
                let last_exceeded = last.min(last_exceeded);
                state.pressure = Pressure::UnderPressure { last_exceeded };
                continue;
            }
            state.pressure = Pressure::Unknown;
            changes.push(PressureChange {
                resource,
                from,
                to: state.pressure,
                reason: PressureReason::Unwatched,
            });
        }
        changes
    }

    /// The earliest moment at which a held state may end. `None` while none is held, and while what
    /// holds it still is over or cannot be read at present.
    ///
    /// Take fresh looks then: one that is over prolongs the hold.
    #[must_use]
    pub fn next_fall(&self) -> Option<BootNanos> {
        self.states
            .iter()
            .filter(|(resource, _)| !self.is_over(**resource))
            .filter(|(resource, _)| self.availability(**resource) != Availability::Failing)
            .filter_map(|(_, state)| match state.pressure {
                Pressure::UnderPressure { last_exceeded } => {
                    Some(last_exceeded.plus(self.transition_period))
                }
                Pressure::Unknown | Pressure::Normal => None,
            })
            .min()
    }

    /// Steps 2 to 4 and 8 of a pass, for one signal.
    fn judge(&mut self, look: &Sample, now: BootNanos) {
        let signal = look.signal();
        let on_signal = |tracked: &&mut Tracked| tracked.threshold.signal == signal;
        for tracked in self.tracked.iter_mut().filter(on_signal) {
            tracked.met = match look {
                Sample::Read(reading) => met(tracked, reading),
                Sample::Absent(_) | Sample::Missing(_) => None,
            };
            let Some(_) = tracked.met else {
                tracked.first_seen = None;
                tracked.fully_met = false;
                continue;
            };
            let first = *tracked.first_seen.get_or_insert(now);
            tracked.fully_met = tracked.threshold.grace_period <= now.since(first);
        }
        let source = match look {
            Sample::Read(_) => Some(Source::Read),
            Sample::Absent(_) => None,
            Sample::Missing(_) => {
                // What was absent is not what never could be read.
                let before = self.sources.get(&signal).copied();
                let before =
                    before.map_or(Source::NeverRead, |source| source.unwrap_or(Source::Read));
                Some(before.failed(now))
            }
        };
        self.sources.insert(signal, source);
    }

    /// Steps 5 to 7: moves every resource on. `fresh` holds those seen over at `now`.
    fn settle(
        &mut self,
        fresh: &BTreeMap<Resource, PressureReason>,
        now: BootNanos,
    ) -> Vec<PressureChange> {
        let mut changes = Vec::new();
        for resource in Resource::ALL {
            let change = if let Some(reason) = fresh.get(&resource) {
                self.hold(resource, *reason, now)
            } else if self.is_over(resource) {
                None // Not looked at this time, and over by the last look.
            } else {
                self.relieve(resource, now)
            };
            changes.extend(change);
        }
        changes
    }

    /// Puts a resource under pressure, or prolongs its hold.
    fn hold(
        &mut self,
        resource: Resource,
        reason: PressureReason,
        now: BootNanos,
    ) -> Option<PressureChange> {
        let state = self.states.get_mut(&resource)?;
        let from = state.pressure;
        // Records of different CPUs can be out of order; a hold never gets shorter.
        let now = match from {
            Pressure::UnderPressure { last_exceeded } => last_exceeded.max(now),
            Pressure::Unknown | Pressure::Normal => now,
        };
        state.pressure = from.step(Observed::Exceeded, self.transition_period, now);
        state.cause = Some(reason);
        state.well_since = None;
        let is_new = !matches!(from, Pressure::UnderPressure { .. });
        is_new.then_some(PressureChange {
            resource,
            from,
            to: state.pressure,
            reason,
        })
    }

    /// Lets a resource that is not over go, where its hold has ended.
    fn relieve(&mut self, resource: Resource, now: BootNanos) -> Option<PressureChange> {
        let sight = self.availability(resource);
        let state = self.states.get_mut(&resource)?;
        let from = state.pressure;
        // Without anything to read, only a hold can end: there is nothing to say that it is below.
        let to = match (
            from.step(Observed::NotExceeded, self.transition_period, now),
            sight,
        ) {
            (to @ Pressure::UnderPressure { .. }, _) => to,
            (Pressure::Unknown | Pressure::Normal, Availability::Readable) => Pressure::Normal,
            (Pressure::Unknown | Pressure::Normal, Availability::Failing) => return None,
            (Pressure::Unknown | Pressure::Normal, Availability::Lost | Availability::Nothing) => {
                Pressure::Unknown
            }
        };
        if from == to {
            return None;
        }
        state.pressure = to;
        state.cause = None;
        state.kill = None;
        state.well_since = match (to, from) {
            (Pressure::Normal, Pressure::UnderPressure { last_exceeded }) => Some(last_exceeded),
            (Pressure::Normal, _) => Some(now),
            (Pressure::Unknown | Pressure::UnderPressure { .. }, _) => None,
        };
        let reason = match to {
            Pressure::Unknown => PressureReason::SourceLost,
            Pressure::Normal | Pressure::UnderPressure { .. } => PressureReason::Below,
        };
        Some(PressureChange {
            resource,
            from,
            to,
            reason,
        })
    }

    /// Whether the last looks, new or old, have a resource over.
    fn is_over(&self, resource: Resource) -> bool {
        let by_disks = match (resource, self.slow_disks) {
            (Resource::DiskIo, _) | (Resource::Disk, SlowDisks::RaiseDiskPressure) => {
                self.disks_over.is_some()
            }
            (Resource::Disk, SlowDisks::NodepulseConditionOnly)
            | (Resource::Memory | Resource::Pids | Resource::PodsPids, _) => false,
        };
        by_disks
            || self.tracked.iter().any(|tracked| {
                tracked.threshold.signal.resource() == resource && tracked.met.is_some()
            })
    }
}

const fn track(threshold: Threshold) -> Tracked {
    Tracked {
        threshold,
        first_seen: None,
        fully_met: false,
        met: None,
    }
}

/// Steps 2 and 3: met now, or fully met before and not yet resolved.
fn met(tracked: &Tracked, reading: &Reading) -> Option<PressureReason> {
    let threshold = &tracked.threshold;
    if threshold.is_met(reading) {
        return Some(PressureReason::Threshold {
            signal: reading.signal,
            available: reading.available,
            threshold: threshold.value.amount(reading.capacity),
            value: threshold.value,
        });
    }
    let kept = tracked.fully_met && threshold.is_unresolved(reading);
    kept.then_some(PressureReason::Unresolved {
        signal: reading.signal,
        available: reading.available,
        value: threshold.value,
    })
}

#[cfg(test)]
mod tests;
