//! Evaluates samples against the thresholds: one state for each resource.
//!
//! The order of the steps is that of the kubelet's eviction manager:
//! <https://github.com/kubernetes/kubernetes/blob/v1.33.0/pkg/kubelet/eviction/eviction_manager.go>.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::BootNanos;
use crate::pressure::change::{PressureChange, PressureReason};
use crate::pressure::kept::KeptTrue;
use crate::pressure::oom::Grounds;
use crate::pressure::sample::{Disks, Sample};
use crate::pressure::source::SourceState;
use crate::pressure::threshold::Threshold;
use crate::pressure::{Cause, Exceeded, Policy, Pressure, SlowDisks};
use crate::reading::{Reading, Resource, Signal};

mod availability;

use availability::Availability;

/// A threshold and its state after the last evaluation.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Tracked {
    threshold: Threshold,
    /// Time at which it was first met; `None` if it is not met.
    first_seen: Option<BootNanos>,
    /// The threshold has been met for its grace period. Only then does its minimum reclaim apply.
    fully_met: bool,
    /// Set if the threshold is met according to the last sample.
    met: Option<PressureReason>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct ResourceState {
    kept: KeptTrue,
    cause: Option<PressureReason>,
    /// The newest confirmed kill since the resource came under pressure.
    kill: Option<Grounds>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Evaluator {
    transition_period: Duration,
    slow_disks: SlowDisks,
    tracked: Vec<Tracked>,
    /// The source of each sampled signal; `None` if there is nothing to observe.
    sources: BTreeMap<Signal, Option<SourceState>>,
    disks: SourceState,
    /// The resources for which disks or file systems exceed a limit now.
    disks_exceeded: BTreeMap<Resource, PressureReason>,
    states: BTreeMap<Resource, ResourceState>,
}

impl Evaluator {
    pub fn new(policy: Policy) -> Self {
        let unread = ResourceState {
            kept: KeptTrue::UNREAD,
            cause: None,
            kill: None,
        };
        Self {
            transition_period: policy.transition_period,
            slow_disks: policy.slow_disks,
            tracked: policy.thresholds.into_iter().map(track).collect(),
            sources: BTreeMap::new(),
            disks: SourceState::NeverRead,
            disks_exceeded: BTreeMap::new(),
            states: Resource::ALL.map(|resource| (resource, unread)).into(),
        }
    }

    /// Replaces the policy. Unchanged thresholds keep their state; new ones apply from the next
    /// sample of their signal on.
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
        let of = |resource| self.disks_exceeded.get(&resource).copied();
        let worst = of(Resource::DiskFailing).or_else(|| of(Resource::DiskIo));
        match (self.slow_disks, worst) {
            (SlowDisks::RaiseDiskPressure, Some(reason)) => {
                self.disks_exceeded.insert(Resource::Disk, reason);
            }
            (SlowDisks::RaiseDiskPressure, None) | (SlowDisks::NodepulseConditionOnly, _) => {
                self.disks_exceeded.remove(&Resource::Disk);
            }
        }
    }

    pub fn thresholds(&self) -> impl Iterator<Item = &Threshold> {
        self.tracked.iter().map(|tracked| &tracked.threshold)
    }

    pub fn pressure(&self, resource: Resource) -> Pressure {
        self.states
            .get(&resource)
            .map_or(Pressure::Unknown, |state| state.kept.pressure())
    }

    pub fn pressures(&self) -> BTreeMap<Resource, Pressure> {
        let all = self.states.iter();
        all.map(|(resource, state)| (*resource, state.kept.pressure()))
            .collect()
    }

    pub fn cause(&self, resource: Resource) -> Option<PressureReason> {
        self.states.get(&resource).and_then(|state| state.cause)
    }

    /// Returns the cause of the pressure on each resource. A kill takes precedence over thresholds,
    /// because it is more specific.
    pub fn causes(&self) -> BTreeMap<Resource, Cause> {
        let cause = |state: &ResourceState| {
            let by_kill = state.kill.map(Cause::OomKill);
            by_kill.or_else(|| state.cause.and_then(PressureReason::cause))
        };
        let all = self.states.iter();
        all.filter_map(|(resource, state)| Some((*resource, cause(state)?)))
            .collect()
    }

    /// Applies a condition that the API server had as True when the agent started, which is known
    /// since `now`. The time of the last excess is unknown, so the condition is kept for a
    /// transition period that begins when the resource was first seen to be normal, or at `now` if
    /// it has not been sampled yet.
    pub fn seed(&mut self, resource: Resource, now: BootNanos) {
        let Some(state) = self.states.get_mut(&resource) else {
            return;
        };
        let mut kept = state.kept;
        kept.readable(now);
        if kept.seed(self.transition_period, now) {
            state.kept = kept;
            state.cause = Some(PressureReason::Stored);
        }
    }

    /// Continues a transition period that began at `last_exceeded`, before a restart.
    pub fn restore(&mut self, resource: Resource, last_exceeded: BootNanos, now: BootNanos) {
        if now.since(last_exceeded) < self.transition_period {
            self.put_under_pressure(resource, PressureReason::Restored, last_exceeded);
        }
    }

    pub fn exceeded(&self, resource: Resource) -> Exceeded {
        match self.pressure(resource) {
            Pressure::UnderPressure { .. } if self.is_exceeded(resource) => Exceeded::Now,
            Pressure::UnderPressure { last_exceeded } => Exceeded::At(last_exceeded),
            Pressure::Unknown | Pressure::Normal => Exceeded::Never,
        }
    }

    /// Puts a resource under pressure because of a confirmed OOM kill: at once, whatever the
    /// readings are, and for the transition period.
    pub fn force(
        &mut self,
        resource: Resource,
        grounds: Grounds,
        now: BootNanos,
    ) -> Vec<PressureChange> {
        let change = self.put_under_pressure(resource, PressureReason::OomKill(grounds), now);
        if let Some(state) = self.states.get_mut(&resource) {
            state.kill = Some(grounds);
        }
        change.into_iter().collect()
    }

    /// Evaluates samples taken at `now`. Without samples, only expired transition periods end.
    pub fn evaluate(&mut self, samples: &[Sample], now: BootNanos) -> Vec<PressureChange> {
        for sample in samples {
            self.apply_sample(sample, now);
        }
        let is_sampled = |signal: Signal| samples.iter().any(|sample| sample.signal() == signal);
        let fresh: BTreeMap<Resource, PressureReason> = self
            .tracked
            .iter()
            .rev() // The first one in the policy's order takes precedence.
            .filter(|tracked| is_sampled(tracked.threshold.signal))
            .filter_map(|tracked| Some((tracked.threshold.signal.resource(), tracked.met?)))
            .collect();
        self.update_all(&fresh, now)
    }

    /// Takes the unhealthy disks; `None` if no source measures how quickly disks respond.
    pub fn observe_disks(&mut self, disks: Option<&Disks>, now: BootNanos) -> Vec<PressureChange> {
        self.disks = match disks {
            // This is not a failed read: it is certain that nothing measures the disks.
            None => SourceState::Lost,
            Some(_) => SourceState::Read,
        };
        let exceeded = disks.map_or_else(BTreeMap::new, |disks| self.exceeded_by(disks));
        // Only changes are reported: a disk that is healthy now was unhealthy until now.
        let mut until_now = std::mem::replace(&mut self.disks_exceeded, exceeded);
        until_now.extend(&self.disks_exceeded);
        self.update_all(&until_now, now)
    }

    fn exceeded_by(&self, disks: &Disks) -> BTreeMap<Resource, PressureReason> {
        let slow = (!disks.slow.is_empty()).then_some(PressureReason::SlowDisk);
        let failing = if !disks.stalled.is_empty() {
            Some(PressureReason::StalledDisk)
        } else if !disks.failing.is_empty() {
            Some(PressureReason::DiskErrors)
        } else if !disks.failed_filesystems.is_empty() {
            Some(PressureReason::FilesystemShutdown)
        } else {
            (!disks.read_only.is_empty()).then_some(PressureReason::ReadOnlyFilesystem)
        };
        let raises = self.slow_disks == SlowDisks::RaiseDiskPressure;
        let reasons = [
            (Resource::DiskIo, slow),
            (Resource::DiskFailing, failing),
            (Resource::Disk, failing.or(slow).filter(|_| raises)),
        ];
        let reasons = reasons.into_iter();
        reasons
            .filter_map(|(resource, reason)| Some((resource, reason?)))
            .collect()
    }

    /// Ends the pressure that an unhealthy disk caused, because it is no longer monitored: the
    /// transition period starts at `last`, the time at which a monitored disk was last unhealthy. A
    /// sample of the disks must follow.
    pub fn unwatch_disks(&mut self, last: Option<BootNanos>) -> Vec<PressureChange> {
        self.disks_exceeded.clear();
        let mut changes = Vec::new();
        for resource in [Resource::DiskIo, Resource::DiskFailing, Resource::Disk] {
            let Some(state) = self.states.get_mut(&resource) else {
                continue;
            };
            let by_disks = Some(Cause::Disks) == state.cause.and_then(PressureReason::cause);
            let (true, from @ Pressure::UnderPressure { last_exceeded }) =
                (by_disks, state.kept.pressure())
            else {
                continue;
            };
            if let Some(last) = last {
                let last_exceeded = last.min(last_exceeded);
                state.kept = KeptTrue::Kept { last_exceeded };
                continue;
            }
            state.kept = KeptTrue::UNREAD;
            state.cause = None;
            changes.push(PressureChange {
                resource,
                from,
                to: state.kept.pressure(),
                reason: PressureReason::Unwatched,
            });
        }
        changes
    }

    /// Returns the earliest time at which a transition period may end; `None` if no resource is in
    /// one, or if its source is exceeded or failing.
    ///
    /// Take new samples at that time: a resource that is exceeded again extends the period.
    pub fn next_fall(&self) -> Option<BootNanos> {
        self.states
            .iter()
            .filter(|(resource, _)| !self.is_exceeded(**resource))
            .filter(|(resource, _)| self.availability(**resource) != Availability::Failing)
            .filter_map(|(_, state)| state.kept.ends_at(self.transition_period))
            .min()
    }

    /// Does the steps 2 to 4 and 8 of a pass, for one signal.
    fn apply_sample(&mut self, sample: &Sample, now: BootNanos) {
        let signal = sample.signal();
        let on_signal = |tracked: &&mut Tracked| tracked.threshold.signal == signal;
        for tracked in self.tracked.iter_mut().filter(on_signal) {
            tracked.met = match sample {
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
        let source = match sample {
            Sample::Read(_) => Some(SourceState::Read),
            Sample::Absent(_) => None,
            Sample::Missing(_) => {
                // A source that was absent is not one that could never be read.
                let before = self.sources.get(&signal).copied();
                let before = before.map_or(SourceState::NeverRead, |source| {
                    source.unwrap_or(SourceState::Read)
                });
                Some(before.failed(now))
            }
        };
        self.sources.insert(signal, source);
    }

    /// Does the steps 5 to 7: updates every resource. `fresh` contains those that are exceeded at
    /// `now`.
    fn update_all(
        &mut self,
        fresh: &BTreeMap<Resource, PressureReason>,
        now: BootNanos,
    ) -> Vec<PressureChange> {
        let mut changes = Vec::new();
        for resource in Resource::ALL {
            let change = if let Some(reason) = fresh.get(&resource) {
                self.put_under_pressure(resource, *reason, now)
            } else if self.is_exceeded(resource) {
                None // Not sampled this time, and exceeded by the last sample.
            } else {
                self.update_not_exceeded(resource, now)
            };
            changes.extend(change);
        }
        changes
    }

    fn put_under_pressure(
        &mut self,
        resource: Resource,
        reason: PressureReason,
        now: BootNanos,
    ) -> Option<PressureChange> {
        let state = self.states.get_mut(&resource)?;
        let from = state.kept.pressure();
        state.kept.exceed(now);
        state.cause = Some(reason);
        let is_new = !matches!(from, Pressure::UnderPressure { .. });
        is_new.then_some(PressureChange {
            resource,
            from,
            to: state.kept.pressure(),
            reason,
        })
    }

    /// Updates a resource that is not exceeded: its transition period may have ended.
    fn update_not_exceeded(
        &mut self,
        resource: Resource,
        now: BootNanos,
    ) -> Option<PressureChange> {
        let availability = self.availability(resource);
        let state = self.states.get_mut(&resource)?;
        let from = state.kept.pressure();
        let mut kept = state.kept;
        kept.advance(self.transition_period, now);
        // Without a readable source, only a transition period can end: no reading shows a normal
        // state.
        match (kept, availability) {
            (KeptTrue::Kept { .. }, _) | (_, Availability::Failing) => return None,
            (_, Availability::Readable) => kept.readable(now),
            (_, Availability::Lost | Availability::Nothing) => kept.lose(),
        }
        let to = kept.pressure();
        if from == to {
            return None;
        }
        state.kept = kept;
        state.cause = None;
        state.kill = None;
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

    fn is_exceeded(&self, resource: Resource) -> bool {
        let by_disks = self.disks_exceeded.contains_key(&resource);
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

/// Does the steps 2 and 3: a threshold is met if less is available, or if it was met for its grace
/// period and its minimum reclaim is not available yet.
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
    let unresolved = tracked.fully_met && threshold.is_unresolved(reading);
    unresolved.then_some(PressureReason::Unresolved {
        signal: reading.signal,
        available: reading.available,
        value: threshold.value,
    })
}

#[cfg(test)]
mod tests;
