//! Schedules the samples of storage.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::{BlockingQuery, DiskInput, Effect};
use crate::clock::BootNanos;
use crate::pressure::deadline::{self, Deadlines};
use crate::pressure::evaluate::Evaluator;
use crate::pressure::sample::Sample;
use crate::reading::{NodeFilesystem, Signal};
use crate::units::Bytes;

pub const SIGNALS: [Signal; 4] = [
    Signal::NodefsAvailable,
    Signal::NodefsInodesFree,
    Signal::ImagefsAvailable,
    Signal::ImagefsInodesFree,
];

/// For this time after its start the kubelet checks often if the node is ready.
const STARTUP_GRACE: Duration = Duration::from_mins(2);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StorageSample {
    /// The samples of space and inodes. Those of imagefs are absent if it is nodefs.
    pub samples: Vec<Sample>,
    /// Size of nodefs; `None` if not read.
    pub capacity: Option<Bytes>,
    /// The file systems whose access is known, each with true if it is read-only.
    pub read_only: Vec<(NodeFilesystem, bool)>,
    /// The sum of the errors that these and the root file system have counted.
    pub filesystem_errors: u64,
    /// The volumes in use; `None` if they are unknown or were not requested.
    pub volumes: Option<Vec<String>>,
}

impl StorageSample {
    /// Returns the part of the sample that is about disks.
    pub fn of_disks(&self) -> DiskInput {
        DiskInput::StorageSampled {
            read_only: self.read_only.clone(),
            errors: self.filesystem_errors,
        }
    }

    /// Creates the sample if no file system answered.
    pub fn missing() -> Self {
        Self {
            samples: SIGNALS.map(Sample::Missing).to_vec(),
            capacity: None,
            read_only: Vec::new(),
            filesystem_errors: 0,
            volumes: None,
        }
    }
}

/// ```text
/// Idle ──request──► Requested
///   ▲                   │
///   └──────sampled──────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Sampling {
    Idle,
    /// A sample is being taken. The next request is the one after it.
    Requested,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Storage {
    deadlines: Deadlines,
    sampling: Sampling,
    /// The size of nodefs has been read.
    known: bool,
    /// Imagefs was another file system than nodefs when it was last read.
    has_imagefs: bool,
    /// End of the start-up period of the node.
    settled_at: BootNanos,
}

impl Storage {
    pub(super) fn new(now: BootNanos) -> Self {
        Self {
            deadlines: Deadlines::new(&SIGNALS, Vec::new()),
            sampling: Sampling::Idle,
            known: false,
            has_imagefs: false,
            settled_at: now.plus(STARTUP_GRACE),
        }
    }

    /// Returns the time of the next sample; `None` while one is being taken.
    pub(super) fn due(&self) -> Option<BootNanos> {
        match self.sampling {
            Sampling::Idle => Some(self.deadlines.due()),
            Sampling::Requested => None,
        }
    }

    /// Requests a sample, unless one is being taken.
    pub(super) fn request(&mut self) -> Option<Effect> {
        match std::mem::replace(&mut self.sampling, Sampling::Requested) {
            Sampling::Idle => Some(Effect::BlockingQuery(BlockingQuery::Storage)),
            Sampling::Requested => None,
        }
    }

    /// Removes samples that are missing because no file system answered, if there is no separate
    /// imagefs.
    pub(super) fn existing(&mut self, mut samples: Vec<Sample>) -> Vec<Sample> {
        if samples
            .iter()
            .all(|sample| matches!(sample, Sample::Missing(_)))
        {
            samples.retain(|one| self.has_imagefs || !Signal::IMAGEFS.contains(&one.signal()));
        } else {
            let absent = |one: &Sample| matches!(one, Sample::Absent(Signal::ImagefsAvailable));
            self.has_imagefs = !samples.iter().any(absent);
        }
        samples
    }

    /// Schedules the next sample, after one with or without the size of nodefs. Until that size is
    /// known, storage is sampled often after the start.
    pub(super) fn sampled(
        &mut self,
        samples: &[Sample],
        sized: bool,
        evaluator: &Evaluator,
        now: BootNanos,
    ) {
        self.sampling = Sampling::Idle;
        self.deadlines.next(samples, evaluator, now);
        self.known |= sized;
        if !self.known && now < self.settled_at {
            self.deadlines.hint(now.plus(deadline::SHORTEST));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Reading;

    fn read(signal: Signal) -> Sample {
        Sample::Read(Reading {
            signal,
            available: 1,
            capacity: 2,
        })
    }

    #[test]
    fn a_hung_file_system_makes_imagefs_unavailable_only_if_there_is_one() {
        let hung = || StorageSample::missing().samples;
        let with = |imagefs: fn(Signal) -> Sample| {
            let nodefs = Signal::NODEFS.map(read);
            [nodefs, Signal::IMAGEFS.map(imagefs)].concat()
        };
        // Sample, number of its signals that count.
        let rows = [
            (hung(), 2, "imagefs may not exist"),
            (with(Sample::Missing), 4, "it exists, but is unreadable"),
            (hung(), 4, "it exists"),
            (with(Sample::Absent), 4, "now it is nodefs"),
            (hung(), 2, "there is none"),
            (with(read), 4, "it was mounted"),
            (hung(), 4, "both"),
        ];
        let mut storage = Storage::new(BootNanos(0));
        for (samples, expected, why) in rows {
            let counted = storage.existing(samples.clone());
            assert_eq!(counted, samples[..expected], "{why}");
        }
    }
}
