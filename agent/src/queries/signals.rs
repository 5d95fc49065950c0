//! Reads signals from files: here those that cannot wait for a disk, the others in
//! [`super::blocking`].

use tracing::{debug, warn};

use crate::config::Config;
use crate::host::cgroup::memory::{CgroupMemory, RootMemory};
use crate::host::cgroup::pods::PodsPath;
use crate::host::cgroup::{self, Layout};
use crate::host::{HostError, HostRoot, addresses, meminfo, pids};
use crate::node_status::Facts;
use crate::pressure::sample::Sample;
use crate::reading::{Reading, Signal};

/// Keeps paths and buffer, to avoid allocations per sample.
pub struct Observe {
    root: HostRoot,
    node: Option<RootMemory>,
    /// With the path of its cgroup.
    pods: Option<(String, CgroupMemory)>,
    pods_cgroup: PodsPath,
    pids: pids::PidFiles,
    last_pids: Option<pids::Pids>,
    buf: Vec<u8>,
}

/// The paths of the cgroups. Created once at start, so that all parts of the agent use the same.
#[must_use]
pub fn pods_path(config: &Config) -> PodsPath {
    let layout = Layout::detect(&HostRoot::new(&config.host_root)).inspect_err(|err| {
        warn!(
            err = err as &dyn std::error::Error,
            "memory.available cannot be read"
        );
    });
    PodsPath::new(layout.ok(), &config.pods_cgroups)
}

impl Observe {
    pub fn new(config: &Config, pods_cgroup: PodsPath) -> Self {
        let root = HostRoot::new(&config.host_root);
        let mut buf = Vec::new();
        let total = meminfo::MeminfoFile::new(&root)
            .read(&mut buf)
            .map(|info| info.total);
        let node = pods_cgroup.layout().zip(total.ok());
        Self {
            pods: None,
            node: node.map(|(layout, total)| RootMemory::new(&layout.memory, total)),
            pids: pids::PidFiles::new(&root),
            last_pids: None,
            root,
            pods_cgroup,
            buf,
        }
    }

    pub fn root(&self) -> &HostRoot {
        &self.root
    }

    /// Samples memory and pids. Takes about 10 µs.
    pub fn hot(&mut self) -> Vec<Sample> {
        let node = self.memory();
        self.find_pods();
        let pods = self.pods.as_ref();
        let pods = pods.map_or(Ok(None), |(_, pods)| pods.read(&mut self.buf));
        self.last_pids = logged(
            Signal::PidAvailable,
            self.pids.read(&mut self.buf).map(Some),
        );
        vec![
            sample(Signal::MemoryAvailable, node),
            pods_sample(Signal::AllocatableMemoryAvailable, pods),
            sample(
                Signal::PidAvailable,
                self.last_pids.map(pids::Pids::reading),
            ),
            pods_sample(Signal::AllocatablePidAvailable, self.pods_pids()),
        ]
    }

    /// The presumed cgroup of all pods.
    pub fn pods_cgroup(&self) -> &str {
        self.pods_cgroup.path()
    }

    fn find_pods(&mut self) {
        let path = self.pods_cgroup.path();
        if self.pods.as_ref().is_none_or(|(cgroup, _)| cgroup != path) {
            let memory = self.pods_cgroup.layout().map(|layout| &layout.memory);
            let pods = memory.map(|memory| CgroupMemory::new(memory, path));
            self.pods = pods.map(|pods| (path.to_owned(), pods));
        }
    }

    fn pods_pids(&mut self) -> Result<Option<Reading>, HostError> {
        let layout = self.pods_cgroup.layout();
        let Some(pids) = layout.and_then(|layout| layout.pids.as_ref()) else {
            return Ok(None);
        };
        let read = cgroup::pids::read(pids, self.pods_cgroup.path(), &mut self.buf)?;
        Ok(read.and_then(cgroup::pids::CgroupPids::reading))
    }

    /// `memory.available` now.
    pub fn memory(&mut self) -> Option<Reading> {
        let read = self.node.as_ref()?.read(&mut self.buf).map(Some);
        logged(Signal::MemoryAvailable, read)
    }

    /// Tasks in the last sample.
    pub fn tasks(&self) -> Option<u64> {
        self.last_pids.map(|pids| pids.tasks)
    }

    /// Maximum number of pids of this machine, in the last sample.
    pub fn pid_capacity(&self) -> Option<u64> {
        self.last_pids.map(|pids| pids.max)
    }

    /// Reads interfaces and routes again, which rarely change. Names are not resolved again.
    pub fn refresh(&self, facts: &mut Facts) {
        match addresses::network(&self.root) {
            Ok(network) => {
                let resolved = std::mem::take(&mut facts.network.resolved);
                facts.network = crate::reading::Network {
                    resolved,
                    ..network
                };
            }
            Err(err) => debug!(err = &err as &dyn std::error::Error, "addresses not read"),
        }
    }
}

fn sample(signal: Signal, reading: Option<Reading>) -> Sample {
    reading.map_or(Sample::Missing(signal), Sample::Read)
}

/// Of the pods cgroup; absent without a limit and before the first pod.
fn pods_sample(signal: Signal, read: Result<Option<Reading>, HostError>) -> Sample {
    match read {
        Ok(Some(reading)) => Sample::Read(reading),
        Ok(None) => Sample::Absent(signal),
        Err(err) if err.is_absent() => Sample::Absent(signal),
        Err(err) => sample(signal, logged(signal, Err(err))),
    }
}

/// The reading; an error is logged and returned as `None`.
fn logged<T>(signal: Signal, read: Result<Option<T>, HostError>) -> Option<T> {
    read.unwrap_or_else(|err| {
        // A node without pods usually has no pods cgroup.
        if !err.is_absent() {
            debug!(
                signal = signal.as_str(),
                err = &err as &dyn std::error::Error,
                "signal not read"
            );
        }
        None
    })
}
