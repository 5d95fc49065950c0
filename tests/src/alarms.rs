//! The suite of false alarms: real I/O, memory and forks, and a real agent in companion mode.
//!
//! A workload of a healthy node must leave every condition False; one of a node that fails must set
//! its condition in time and name the culprit. `cargo xtask test alarms` runs the suite on this
//! machine, and `cargo xtask vm --all` in virtual machines, whose disks can be made to fail.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use nodepulse::clock::{BootNanos, Clock};

mod containerd;
pub(crate) mod faulty;
mod healthy;
pub mod loads;
mod observed;
pub mod record;
pub mod runner;
mod site;
mod unwell;

pub use site::Site;

/// One workload.
pub struct Workload {
    /// Its name in the record of a run.
    pub name: String,
    /// In which runs it is.
    pub form: Form,
    /// What must come of it.
    pub expected: Expected,
    /// Prepares it. What it needs is part of the load, and is removed when that is dropped, also
    /// after a failure. An error of kind `Unsupported` skips it.
    pub set_up: SetUp,
}

impl Workload {
    /// Whether a virtual machine has what it needs: the programs, and enough memory.
    pub fn runs_in_machines(&self) -> bool {
        self.form == Form::Short && !ONLY_HERE.contains(&self.name.as_str())
    }
}

/// Those that need programs, or a disk as fast as a real one.
const ONLY_HERE: [&str; 3] = ["fstrim", "read-only-nodefs", "saturated-disk"];

/// Prepares a workload.
pub type SetUp = Box<dyn Fn(&Site) -> io::Result<Prepared> + Send + Sync>;

/// In which runs a workload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// In each.
    Short,
    /// In those with `--all` only.
    Full,
}

/// What must come of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Every condition stays False.
    NoAlarm,
    /// A condition becomes True.
    Alarm {
        /// Its type.
        condition: &'static str,
        /// Its reason.
        reason: &'static str,
        /// After the fault at the latest.
        within: Duration,
        /// What its Event must contain.
        culprit: Option<&'static str>,
    },
}

type Load = Box<dyn FnOnce(&Control) -> io::Result<String> + Send>;

/// A workload that can run.
pub struct Prepared {
    load: Load,
    settings: String,
    nodefs: Option<PathBuf>,
}

impl Prepared {
    /// With what runs; it returns what is of interest for the record.
    pub fn new(load: impl FnOnce(&Control) -> io::Result<String> + Send + 'static) -> Self {
        Self {
            load: Box::new(load),
            settings: String::new(),
            nodefs: None,
        }
    }

    /// With more lines of the agent's configuration.
    #[must_use]
    pub fn settings(mut self, lines: &str) -> Self {
        self.settings = lines.to_owned();
        self
    }

    /// With nodefs elsewhere than in the directory of the site.
    #[must_use]
    pub fn nodefs(mut self, directory: impl Into<PathBuf>) -> Self {
        self.nodefs = Some(directory.into());
        self
    }
}

/// The runner, as a load that runs sees it.
pub struct Control {
    site: Arc<Site>,
    began: Sender<BootNanos>,
    noticed: Receiver<()>,
}

impl Control {
    /// Where the load runs.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// The fault is there from now on.
    pub fn begins(&self) {
        // The runner waits no longer after its own failure.
        let _gone = self.began.send(Clock::kernel().now().boot);
    }

    /// Waits until the runner has seen the condition, or waits for it no longer.
    pub fn until_noticed(&self) {
        let _gone = self.noticed.recv();
    }
}

/// The workloads of this machine, or of a virtual machine.
pub fn workloads() -> Vec<Workload> {
    let mut all = healthy::workloads();
    all.extend(unwell::workloads());
    all
}

/// An entry of the list.
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

/// An error with which [`Workload::set_up`] skips the workload.
fn cannot_run(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, why.into())
}
