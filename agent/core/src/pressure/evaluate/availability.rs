//! The availability of the sources of a resource.

use std::collections::BTreeMap;

use super::{Evaluator, PressureReason};
use crate::clock::BootNanos;
use crate::pressure::source::SourceState;
use crate::pressure::{Cause, Pressure, SlowDisks};
use crate::reading::{Resource, Signal};

/// The availability of the sources of a resource: that of the worst one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Availability {
    Nothing,
    /// Every source with a threshold was readable at the last sample.
    Readable,
    /// One of the sources failed a moment ago: the last known state applies.
    Failing,
    Lost,
}

impl Evaluator {
    /// Returns the resources whose state is unknown because a source is lost, each with the lost
    /// signals. A resource is not listed if a readable source exceeds its threshold, or if its
    /// transition period was started by a readable source or by a kill.
    pub fn lost(&self) -> BTreeMap<Resource, Vec<Signal>> {
        let is_unknown = |resource: &Resource| {
            self.availability(*resource) == Availability::Lost
                && !self.is_exceeded(*resource)
                && !self.is_kept_by_readable_source(*resource)
        };
        let all = Resource::ALL.into_iter().filter(is_unknown);
        all.map(|resource| (resource, self.lost_signals(resource)))
            .collect()
    }

    fn lost_signals(&self, resource: Resource) -> Vec<Signal> {
        let lost = self.sources.iter().filter(|(signal, source)| {
            **source == Some(SourceState::Lost) && signal.resource() == resource
        });
        let lost = lost.map(|(signal, _)| *signal);
        lost.filter(|signal| self.has_threshold(*signal)).collect()
    }

    /// Returns the time at which a failing signal will be lost; `None` for any other signal.
    pub fn lost_at(&self, signal: Signal) -> Option<BootNanos> {
        let source = self.sources.get(&signal).copied().flatten()?;
        source.lost_at().filter(|_| self.has_threshold(signal))
    }

    fn has_threshold(&self, signal: Signal) -> bool {
        let mut tracked = self.tracked.iter();
        tracked.any(|tracked| tracked.threshold.signal == signal)
    }

    /// A source without a threshold is not needed; without any threshold none can be exceeded.
    pub(super) fn availability(&self, resource: Resource) -> Availability {
        let disks = match self.disks {
            SourceState::NeverRead => Availability::Nothing,
            SourceState::Read => Availability::Readable,
            SourceState::Failing { .. } => Availability::Failing,
            SourceState::Lost => Availability::Lost,
        };
        if matches!(resource, Resource::DiskIo | Resource::DiskFailing) {
            return disks;
        }
        let (mut availability, mut any_threshold, mut any_source) =
            (Availability::Nothing, false, false);
        for (signal, source) in &self.sources {
            if signal.resource() != resource {
                continue;
            }
            any_source = true;
            let has_threshold = self.has_threshold(*signal);
            any_threshold |= has_threshold;
            let found = match source {
                Some(SourceState::Read) => Availability::Readable,
                Some(SourceState::Failing { .. }) if has_threshold => Availability::Failing,
                Some(SourceState::Lost) if has_threshold => Availability::Lost,
                Some(_) | None => Availability::Nothing,
            };
            availability = availability.max(found);
        }
        if any_source && !any_threshold {
            availability = availability.max(Availability::Readable);
        }
        if resource == Resource::Disk && self.slow_disks == SlowDisks::RaiseDiskPressure {
            availability = availability.max(disks);
        }
        availability
    }

    /// Returns true if the transition period of a resource was started by a source that is not
    /// lost: then it runs to its end, even if another source cannot be read.
    fn is_kept_by_readable_source(&self, resource: Resource) -> bool {
        let Some(state) = self.states.get(&resource) else {
            return false;
        };
        let is_read = |signal| {
            let source = self.sources.get(&signal).copied().flatten();
            source != Some(SourceState::Lost)
        };
        let under_pressure = matches!(state.kept.pressure(), Pressure::UnderPressure { .. });
        let by_readable_source = match state.cause.and_then(PressureReason::cause) {
            _ if state.kill.is_some() => true,
            Some(Cause::Below { signal, .. }) => is_read(signal),
            Some(Cause::Disks) => self.disks != SourceState::Lost,
            Some(Cause::OomKill(_)) => true,
            Some(Cause::Stored) | None => false,
        };
        under_pressure && by_readable_source
    }
}
