//! What can be said of a resource by the sources that can be read.

use std::collections::BTreeMap;

use super::{Evaluator, PressureReason};
use crate::clock::BootNanos;
use crate::pressure::source::Source;
use crate::pressure::{Pressure, SlowDisks};
use crate::reading::{Resource, Signal};

/// What the sources of a resource allow to say of it. The worst of them decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Availability {
    /// There is nothing to observe.
    Nothing,
    /// Every source that a threshold is set on was read at the last look.
    Readable,
    /// One of them failed a moment ago: what is known is not changed by that.
    Failing,
    /// One of them is lost.
    Lost,
}

impl Evaluator {
    /// The resources of which nothing can be said because a source is lost, each with the signals that
    /// are. A threshold that is met by a source that can be read decides nevertheless, and so does a
    /// hold that began with one, or with a kill.
    #[must_use]
    pub fn lost(&self) -> BTreeMap<Resource, Vec<Signal>> {
        let unknown = |resource: &Resource| {
            self.availability(*resource) == Availability::Lost
                && !self.is_over(*resource)
                && !self.is_held_by_what_is_read(*resource)
        };
        let all = Resource::ALL.into_iter().filter(unknown);
        all.map(|resource| (resource, self.lost_signals(resource)))
            .collect()
    }

    fn lost_signals(&self, resource: Resource) -> Vec<Signal> {
        let lost = self.sources.iter().filter(|(signal, source)| {
            **source == Some(Source::Lost) && signal.resource() == resource
        });
        let lost = lost.map(|(signal, _)| *signal);
        lost.filter(|signal| self.is_judged(*signal)).collect()
    }

    /// When a signal that cannot be read at present is lost; `None` for any other.
    #[must_use]
    pub fn lost_at(&self, signal: Signal) -> Option<BootNanos> {
        let source = self.sources.get(&signal).copied().flatten()?;
        source.lost_at().filter(|_| self.is_judged(signal))
    }

    /// Whether a threshold is set on a signal.
    fn is_judged(&self, signal: Signal) -> bool {
        let mut tracked = self.tracked.iter();
        tracked.any(|tracked| tracked.threshold.signal == signal)
    }

    /// What the sources of a resource allow to say. One that no threshold is set on is not needed;
    /// where there is no threshold at all, none can be met, whatever can be read.
    pub(super) fn availability(&self, resource: Resource) -> Availability {
        let disks = match self.disks {
            Source::NeverRead => Availability::Nothing,
            Source::Read => Availability::Readable,
            Source::Failing { .. } => Availability::Failing,
            Source::Lost => Availability::Lost,
        };
        if resource == Resource::DiskIo {
            return disks;
        }
        let (mut sight, mut judged, mut looked_at) = (Availability::Nothing, false, false);
        for (signal, source) in &self.sources {
            if signal.resource() != resource {
                continue;
            }
            looked_at = true;
            let is_judged = self.is_judged(*signal);
            judged |= is_judged;
            let own = match source {
                Some(Source::Read) => Availability::Readable,
                Some(Source::Failing { .. }) if is_judged => Availability::Failing,
                Some(Source::Lost) if is_judged => Availability::Lost,
                Some(_) | None => Availability::Nothing,
            };
            sight = sight.max(own);
        }
        if looked_at && !judged {
            sight = sight.max(Availability::Readable);
        }
        if resource == Resource::Disk && self.slow_disks == SlowDisks::RaiseDiskPressure {
            sight = sight.max(disks);
        }
        sight
    }

    /// Whether a resource is under pressure by something that is not lost: its hold is due then,
    /// whatever else cannot be read.
    fn is_held_by_what_is_read(&self, resource: Resource) -> bool {
        let Some(state) = self.states.get(&resource) else {
            return false;
        };
        let is_read = |signal| {
            let source = self.sources.get(&signal).copied().flatten();
            source != Some(Source::Lost)
        };
        let held = matches!(state.pressure, Pressure::UnderPressure { .. });
        let by_what_is_read = match state.cause {
            _ if state.kill.is_some() => true,
            Some(
                PressureReason::Threshold { signal, .. }
                | PressureReason::Unresolved { signal, .. },
            ) => is_read(signal),
            Some(
                PressureReason::SlowDisk | PressureReason::StalledDisk | PressureReason::DiskErrors,
            ) => self.disks != Source::Lost,
            Some(PressureReason::OomKill(_)) => true,
            Some(
                PressureReason::Stored
                | PressureReason::Restored
                | PressureReason::Below
                | PressureReason::Unwatched
                | PressureReason::SourceLost,
            )
            | None => false,
        };
        held && by_what_is_read
    }
}
