//! Questions of the main loop to helper threads and tasks, and their answers.

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

#[derive(Debug)]
pub enum Question {
    /// Facts that do not change until a reboot, partly from the root file system.
    Machine,
    /// Space and inodes of nodefs and imagefs, and the volumes below the root directory.
    Storage,
    /// The addresses of a name by DNS.
    Resolve { name: String },
    /// A query of the subject `disks`.
    Disk(DiskQuery),
    /// Pods and cgroups that use a disk, and those that wait for it.
    IoWait(DeviceNumber),
    /// Evidence that the node is short of memory.
    Shortage,
    /// Pods that use a disk by a volume.
    VolumesOnDisk(DeviceNumber),
    /// Pods and units that use most of a resource.
    LargestOwners(Resource),
    /// Links to the logs of the containers with these ids.
    ContainerLinks(BTreeSet<Box<str>>),
    /// Users of the memory before an OOM kill.
    KillDetails(DetailsOf),
    /// Number of OOM kills of each pod.
    Kills,
    /// Number of OOM kills of each pod, and the content of the state file.
    Recall,
    /// Writes the state file.
    Save(Saved),
    /// State of the container runtime.
    RuntimeStatus,
    /// Images of the container runtime.
    RuntimeImages,
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
    /// Answer to [`Question::Storage`].
    Storage,
    Disks,
    /// Answer to [`Question::Recall`].
    State,
    /// Answer to [`Question::Resolve`].
    Addresses,
    /// Answer to [`Question::RuntimeImages`], or to [`Question::RuntimeStatus`] if the runtime does
    /// not answer.
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

    /// The answer if the call was dropped or timed out. The kernel's report on a disk that cannot
    /// be queried counts.
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
