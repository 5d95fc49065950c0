//! Questions of the main loop to helper threads and tasks, and their answers.

use std::net::IpAddr;

use nodepulse_core::pressure::io_wait::IoWait;
use nodepulse_core::pressure::shortage::ShortageEvidence;
use nodepulse_core::reading::Machine;
use nodepulse_core::subjects::incidents::{DetailsRead, LinksRead};
use nodepulse_core::subjects::{
    BlockingQuery, DiskInput, IncidentInput, Input, KillCounterInput, Previous, RuntimeInput,
    RuntimeList, Saved, SignalInput, StallInput, StateInput, StorageSample, VolumeInput,
};

use super::{disk_files, largest_owners};
use crate::config::Config;

#[derive(Debug)]
pub enum Question {
    /// A query of a subject.
    Subject(BlockingQuery),
    /// Writes the state file.
    Save(Saved),
    /// Facts that do not change until a reboot, partly from the root file system.
    Machine,
    /// The addresses of a name by DNS.
    Resolve { name: String },
    /// All layers of the configuration.
    Configuration,
}

#[derive(Debug)]
pub enum Answer {
    Subject(Input),
    /// Answer to [`Question::Machine`]; what could not be read is left out.
    Machine(Box<Machine>),
    /// Answer to [`Question::Resolve`].
    Resolved(Vec<IpAddr>),
    /// Answer to [`Question::Configuration`]; `Err` is an error message of one line.
    Configured(Result<Box<Config>, String>),
}

/// An answer for which the agent waits before its first report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Initial {
    /// Answer to [`Question::Machine`].
    Machine,
    /// Answer to [`BlockingQuery::Storage`].
    Storage,
    Disks,
    /// Answer to [`BlockingQuery::Recall`].
    State,
    /// Answer to [`Question::Resolve`].
    Addresses,
    /// Answer to [`BlockingQuery::RuntimeImages`], or to [`BlockingQuery::RuntimeStatus`] if the
    /// runtime does not answer.
    Runtime,
}

impl Question {
    /// Returns the same question, if no later event asks it again.
    pub(super) const fn asked_once(&self) -> Option<Self> {
        match self {
            Self::Machine => Some(Self::Machine),
            Self::Configuration => Some(Self::Configuration),
            _ => None,
        }
    }
}

impl Answer {
    /// Returns the kind of the answer, if the agent waits for it before its first report.
    pub const fn initial(&self) -> Option<Initial> {
        Some(match self {
            Self::Machine(_) => Initial::Machine,
            Self::Subject(Input::Signal(SignalInput::StorageSampled(_))) => Initial::Storage,
            Self::Subject(Input::Disk(DiskInput::Listed(_))) => Initial::Disks,
            Self::Subject(Input::State(StateInput::Recalled { .. })) => Initial::State,
            Self::Resolved(_) => Initial::Addresses,
            Self::Subject(Input::Runtime(RuntimeInput::Checked(Ok(_)))) => return None,
            Self::Subject(Input::Runtime(_)) => Initial::Runtime,
            Self::Subject(_) | Self::Configured(_) => return None,
        })
    }

    /// The answer if the call was dropped or timed out.
    pub(super) fn missing(question: &Question) -> Self {
        match question {
            Question::Subject(query) => Self::Subject(unanswered(query)),
            Question::Save(_) => Self::Subject(Input::State(StateInput::Written)),
            Question::Machine => Self::Machine(Box::default()),
            Question::Resolve { .. } => Self::Resolved(Vec::new()),
            Question::Configuration => {
                Self::Configured(Err("the file system does not answer".to_owned()))
            }
        }
    }
}

/// Returns the answer if the query was dropped or timed out. The kernel's report on a disk that
/// cannot be queried counts.
pub(super) fn unanswered(query: &BlockingQuery) -> Input {
    match query {
        BlockingQuery::Storage => {
            Input::Signal(SignalInput::StorageSampled(StorageSample::missing()))
        }
        BlockingQuery::IoWait(_) => Input::Disk(DiskInput::IoWaitRead(IoWait::default())),
        BlockingQuery::Shortage => {
            Input::Stall(StallInput::shortage_read(ShortageEvidence::default()))
        }
        BlockingQuery::VolumesOnDisk(device) => Input::Volume(VolumeInput::Read {
            device: *device,
            volumes: Vec::new(),
        }),
        BlockingQuery::LargestOwners(of) => Input::LargestOwners(largest_owners::none(*of)),
        BlockingQuery::ContainerLinks(_) => {
            Input::Incident(IncidentInput::Links(LinksRead::Unavailable))
        }
        BlockingQuery::KillDetails(_) => {
            Input::Incident(IncidentInput::DetailsRead(DetailsRead::default()))
        }
        BlockingQuery::KillCounters => Input::KillCounter(KillCounterInput::Counted(None)),
        BlockingQuery::Recall => Input::State(StateInput::Recalled {
            previous: Previous::Unknown,
            counted: None,
        }),
        BlockingQuery::Disk(query) => Input::Disk(disk_files::timed_out(query)),
        BlockingQuery::RuntimeStatus => Input::Runtime(RuntimeInput::Checked(Err(
            "the queue of questions is full".to_owned(),
        ))),
        BlockingQuery::RuntimeImages => {
            Input::Runtime(RuntimeInput::Listed(RuntimeList::default()))
        }
    }
}
