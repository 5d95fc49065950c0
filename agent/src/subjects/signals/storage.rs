//! When storage is sampled.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::{Effect, Query};
use crate::clock::BootNanos;
use crate::pressure::deadline::{self, Deadlines};
use crate::pressure::evaluate::Evaluator;
use crate::pressure::sample::Sample;
use crate::reading::Signal;
use crate::units::Bytes;

/// The signals of storage.
pub const SIGNALS: [Signal; 2] = [Signal::NodefsAvailable, Signal::NodefsInodesFree];

/// For this time after its start the kubelet checks often whether the node is ready.
const STARTUP_GRACE: Duration = Duration::from_mins(2);

/// A sample of the root directory's file system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StorageSample {
    /// Of its space and inodes.
    pub samples: Vec<Sample>,
    /// Its size; `None`: not read.
    pub capacity: Option<Bytes>,
    /// The volumes in use; `None` if they are unknown or were not requested.
    pub volumes: Option<Vec<String>>,
}

impl StorageSample {
    /// The file system did not answer.
    #[must_use]
    pub fn missing() -> Self {
        Self {
            samples: SIGNALS.map(Sample::Missing).to_vec(),
            capacity: None,
            volumes: None,
        }
    }
}

/// ```text
/// Idle ──request──► Requested
///   ▲                   │
///   └──────sampled──────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sampling {
    /// No sample is being taken.
    Idle,
    /// A sample is being taken. The next request is the one after it.
    Requested,
}

/// Samples of storage.
#[derive(Debug)]
pub(super) struct Storage {
    deadlines: Deadlines,
    sampling: Sampling,
    /// Whether its size has been read.
    known: bool,
    /// End of the start-up period of the node.
    settled_at: BootNanos,
}

impl Storage {
    pub(super) fn new(now: BootNanos) -> Self {
        Self {
            deadlines: Deadlines::new(&SIGNALS, Vec::new()),
            sampling: Sampling::Idle,
            known: false,
            settled_at: now.plus(STARTUP_GRACE),
        }
    }

    /// When the next sample is due; `None` while one is being taken.
    pub(super) fn due(&self) -> Option<BootNanos> {
        match self.sampling {
            Sampling::Idle => Some(self.deadlines.due()),
            Sampling::Requested => None,
        }
    }

    /// Requests a sample, unless one is being taken.
    pub(super) fn request(&mut self) -> Option<Effect> {
        match std::mem::replace(&mut self.sampling, Sampling::Requested) {
            Sampling::Idle => Some(Effect::Query(Query::Storage)),
            Sampling::Requested => None,
        }
    }

    /// A sample was taken, with or without the size. Until the size is known, storage is sampled often
    /// after the start.
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
