//! What the main loop asks helper threads and tasks, and what they answer.

use std::collections::BTreeSet;
use std::net::IpAddr;

use nodepulse_core::pressure::io_wait::IoWait;
use nodepulse_core::pressure::shortage::ShortageEvidence;
use nodepulse_core::reading::{Machine, Resource};
use nodepulse_core::subjects::incidents::{DetailsOf, DetailsRead, LinksRead};
use nodepulse_core::subjects::{
    DiskInput, DiskQuery, IncidentInput, Input, KillCounterInput, Previous, RuntimeInput,
    RuntimeList, Saved, SignalInput, StallInput, StateInput, StorageSample, VolumeInput,
};
use nodepulse_core::units::DeviceNumber;

use super::{disk_files, largest_owners};
use crate::config::Config;

/// What to read, save or resolve.
#[derive(Debug)]
pub enum Question {
    /// Read what does not change until a reboot, partly from the root file system.
    Machine,
    /// Read space and inodes of nodefs and imagefs, and the volumes below the root directory.
    Storage,
    /// Resolve a name by DNS.
    Resolve {
        /// The name.
        name: String,
    },
    /// A query of the subject `disks`.
    Disk(DiskQuery),
    /// Read which pods and cgroups use a disk, and which wait for it.
    IoWait(DeviceNumber),
    /// Observe whether the node is short of memory.
    Shortage,
    /// Read the pods that use a disk by a volume.
    VolumesOnDisk(DeviceNumber),
    /// Read which pods and units use most of a resource.
    LargestOwners(Resource),
    /// Find the links to the logs of the containers with these ids.
    ContainerLinks(BTreeSet<Box<str>>),
    /// Read who used the memory before an OOM kill.
    KillDetails(DetailsOf),
    /// Read the number of OOM kills of each pod.
    Kills,
    /// The same, and load the state file.
    Recall,
    /// Write the state file.
    Save(Saved),
    /// Query the state of the container runtime.
    RuntimeStatus,
    /// List its images.
    RuntimeImages,
    /// Read all layers of the configuration.
    Configuration,
}

/// The answer to a [`Question`].
#[derive(Debug)]
pub enum Answer {
    /// An input of the subjects.
    Subject(Input),
    /// To [`Question::Machine`]; what could not be read is left out.
    Machine(Box<Machine>),
    /// To [`Question::Resolve`].
    Resolved(Vec<IpAddr>),
    /// To [`Question::Configuration`]; `Err` is an error message of one line.
    Configured(Result<Box<Config>, String>),
}

/// An answer for which the agent waits before its first report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Initial {
    /// To [`Question::Machine`].
    Machine,
    /// To [`Question::Storage`].
    Storage,
    /// The list of all disks.
    Disks,
    /// To [`Question::Recall`].
    State,
    /// To [`Question::Resolve`].
    Addresses,
    /// To [`Question::RuntimeImages`], or to [`Question::RuntimeStatus`] if the runtime does not answer.
    Runtime,
}

impl Question {
    /// The same question, if no later event asks it again.
    pub(super) const fn asked_once(&self) -> Option<Self> {
        match self {
            Self::Machine => Some(Self::Machine),
            Self::Configuration => Some(Self::Configuration),
            _ => None,
        }
    }
}

impl Answer {
    /// What it is an answer to, if the agent waits for it before its first report.
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

    /// The answer if the call was dropped or timed out. The kernel's report on a disk that cannot be
    /// queried counts.
    pub(super) fn missing(question: &Question) -> Self {
        Self::Subject(match question {
            Question::Machine => return Self::Machine(Box::default()),
            Question::Storage => {
                Input::Signal(SignalInput::StorageSampled(StorageSample::missing()))
            }
            Question::Resolve { .. } => return Self::Resolved(Vec::new()),
            Question::IoWait(_) => Input::Disk(DiskInput::IoWaitRead(IoWait::default())),
            Question::Shortage => {
                Input::Stall(StallInput::shortage_read(ShortageEvidence::default()))
            }
            Question::VolumesOnDisk(device) => Input::Volume(VolumeInput::Read {
                device: *device,
                volumes: Vec::new(),
            }),
            Question::LargestOwners(of) => Input::LargestOwners(largest_owners::none(*of)),
            Question::ContainerLinks(_) => {
                Input::Incident(IncidentInput::Links(LinksRead::Unavailable))
            }
            Question::KillDetails(_) => {
                Input::Incident(IncidentInput::DetailsRead(DetailsRead::default()))
            }
            Question::Kills => Input::KillCounter(KillCounterInput::Counted(None)),
            Question::Recall => Input::State(StateInput::Recalled {
                previous: Previous::Unknown,
                counted: None,
            }),
            Question::Save(_) => Input::State(StateInput::Written),
            Question::Configuration => {
                return Self::Configured(Err("the file system does not answer".to_owned()));
            }
            Question::Disk(query) => Input::Disk(disk_files::timed_out(query)),
            Question::RuntimeStatus => Input::Runtime(RuntimeInput::Checked(Err(
                "the queue of questions is full".to_owned(),
            ))),
            Question::RuntimeImages => Input::Runtime(RuntimeInput::Listed(RuntimeList::default())),
        })
    }
}
