//! Runs the suite of false alarms: real I/O, memory and forks, and a real agent in companion mode.
//!
//! A workload of a healthy node must leave every condition False; one of a node that fails must set
//! its condition in time and name the culprit. `cargo xtask test alarms` runs the suite on this
//! machine, and `cargo xtask vm --all` in virtual machines, whose disks can be made to fail.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use nodepulse_core::clock::BootNanos;
use nodepulse_io::clock::Clock;

mod containerd;
pub(crate) mod faulty;
mod filesystems;
mod healthy;
pub(crate) mod in_machine;
pub mod loads;
mod observed;
pub mod record;
pub mod runner;
pub(crate) mod site;
mod stalls;
pub(crate) mod unwell;
mod volume_faults;
mod volumes;

pub use site::Site;

pub struct Workload {
    pub name: String,
    /// The shortest form of a run that includes it.
    pub form: Form,
    pub expected: Expected,
    /// Prepares the workload. Its resources belong to the load, and are removed when that is
    /// dropped, also after a failure. An error of kind `Unsupported` skips the workload.
    pub set_up: SetUp,
}

impl Workload {
    /// Returns whether a virtual machine has the programs for it.
    pub fn runs_in_machines(&self) -> bool {
        let name = self.name.as_str();
        match self.form {
            Form::Short => !ONLY_HERE.contains(&name) && !filesystems::NAMES.contains(&name),
            Form::Full => ALSO_IN_MACHINES.contains(&name),
        }
    }
}

/// Workloads that need programs, or a disk as fast as a real one.
const ONLY_HERE: [&str; 4] = [
    "read-only-nodefs",
    "saturated-disk",
    "saturated-nodefs-on-loop",
    "saturated-volume",
];
/// Workloads of the full form that a virtual machine also runs. Without `disk-stall`: with an
/// emulated processor, tasks need so much of their time for the requests that they wait for the
/// disk less than 40 % of it.
const ALSO_IN_MACHINES: [&str; 4] = [
    "page-cache-node",
    "reclaim-burst",
    "memory-tenant-at-limit",
    "memory-high-hang",
];

pub type SetUp = Box<dyn Fn(&Site) -> io::Result<Prepared> + Send + Sync>;

/// The form of a run, and the shortest one with a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Part of every test run.
    Short,
    /// Only with `--all`.
    Full,
}

/// Durations of the loads of a run.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Selects the workloads.
    pub form: Form,
    /// Duration of a load without an end: longer than a disk must be slow.
    pub load: Duration,
    /// `diskIO.slowFor`.
    pub slow_for: Duration,
}

impl Pace {
    /// Uses a short `slowFor`, so that short loads can fail.
    pub const SHORT: Self = Self {
        form: Form::Short,
        load: Duration::from_secs(5),
        slow_for: Duration::from_secs(3),
    };
    /// Uses the default `slowFor`, and twice that time for the loads.
    pub const FULL: Self = Self {
        form: Form::Full,
        load: Duration::from_secs(40),
        slow_for: Duration::from_secs(15),
    };
    /// For virtual machines, which run a part of each form: see [`Workload::runs_in_machines`].
    pub const MACHINE: Self = Self {
        form: Form::Full,
        load: Duration::from_secs(20),
        slow_for: Duration::from_secs(15),
    };

    fn seconds(self) -> String {
        self.load.as_secs().to_string()
    }

    /// Returns the time within which a disk that becomes slow must be reported. With a short
    /// `slowFor`, the average of io PSI over 10 s may be too low at first; it is read again after 5
    /// s.
    fn slow_within(self) -> Duration {
        let specified = self.slow_for + Duration::from_secs(3);
        match self.form {
            Form::Short if self.slow_for < Duration::from_secs(10) => {
                specified + Duration::from_secs(5)
            }
            Form::Short | Form::Full => specified,
        }
    }
}

/// The expected result of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Every condition stays False.
    NoAlarm,
    /// A condition becomes True.
    Alarm {
        condition: &'static str,
        reason: &'static str,
        /// Maximum time after the fault.
        within: Duration,
        /// Text that its Event must contain.
        culprit: Option<&'static str>,
    },
    /// Every condition stays False, and a pod has an Event about the disk of its volume.
    PodEvent {
        reason: &'static str,
        pod: &'static str,
        /// Maximum time after the fault.
        within: Duration,
    },
}

type Load = Box<dyn FnOnce(&Control) -> io::Result<String> + Send>;

pub struct Prepared {
    load: Load,
    condition: Option<&'static str>,
    settings: String,
    thresholds: Vec<(&'static str, String)>,
    slow: Option<&'static str>,
    nodefs: Option<PathBuf>,
    ends_within: Option<Duration>,
}

impl Prepared {
    /// Creates a workload from a load, which returns the details for the record.
    pub fn new(load: impl FnOnce(&Control) -> io::Result<String> + Send + 'static) -> Self {
        Self {
            load: Box::new(load),
            condition: None,
            settings: String::new(),
            thresholds: Vec::new(),
            slow: None,
            nodefs: None,
            ends_within: None,
        }
    }

    /// Turns on a condition that is off by default.
    #[must_use]
    pub fn condition(mut self, type_: &'static str) -> Self {
        self.condition = Some(type_);
        self
    }

    /// Adds lines to the agent's configuration.
    #[must_use]
    pub fn settings(mut self, lines: &str) -> Self {
        self.settings = lines.to_owned();
        self
    }

    /// Sets a hard threshold on a signal.
    #[must_use]
    pub fn threshold(mut self, signal: &'static str, value: &str) -> Self {
        self.thresholds.push((signal, value.to_owned()));
        self
    }

    /// Sets `slow` for every disk: a fast disk can complete all requests within the default.
    #[must_use]
    pub fn slow(mut self, limit: &'static str) -> Self {
        self.slow = Some(limit);
        self
    }

    /// Moves nodefs out of the site's directory.
    #[must_use]
    pub fn nodefs(mut self, directory: impl Into<PathBuf>) -> Self {
        self.nodefs = Some(directory.into());
        self
    }

    /// Expects the condition to become False again, at most this long after the load.
    #[must_use]
    pub fn ends_within(mut self, time: Duration) -> Self {
        self.ends_within = Some(time);
        self
    }
}

/// Connects a running load to the runner.
pub struct Control {
    site: Arc<Site>,
    began: Sender<BootNanos>,
    noticed: Receiver<()>,
}

impl Control {
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// Reports that the fault begins.
    pub fn begins(&self) {
        // The runner stops waiting after its failure.
        let _gone = self.began.send(Clock::kernel().now().boot);
    }

    /// Waits until the runner has observed the condition, or has stopped waiting for it.
    pub fn until_noticed(&self) {
        let _gone = self.noticed.recv();
    }
}

pub fn workloads(pace: Pace) -> Vec<Workload> {
    let mut all = healthy::workloads();
    all.extend(unwell::workloads(pace));
    all.extend(filesystems::workloads());
    all.extend(stalls::workloads());
    all.extend(volumes::workloads(pace));
    all.retain(|workload| pace.form == Form::Full || workload.form == Form::Short);
    all
}

fn workload(
    name: impl Into<String>,
    form: Form,
    expected: Expected,
    set_up: impl Fn(&Site) -> io::Result<Prepared> + Send + Sync + 'static,
) -> Workload {
    Workload {
        name: name.into(),
        form,
        expected,
        set_up: Box::new(set_up),
    }
}

/// Returns an error with which [`Workload::set_up`] skips the workload.
fn cannot_run(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, why.into())
}
