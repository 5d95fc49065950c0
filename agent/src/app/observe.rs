//! The slower line: looks at files. What can be read without waiting for a disk is read here; the
//! rest is asked of [`super::blocking`].

use tracing::{debug, warn};

use crate::config::Config;
use crate::host::cgroup::memory::{CgroupMemory, RootMemory};
use crate::host::cgroup::pods::PodsPath;
use crate::host::cgroup::{self, Layout};
use crate::host::{HostError, HostRoot, addresses, meminfo, pids};
use crate::node_status::Facts;
use crate::pressure::sample::Sample;
use crate::reading::{Reading, Signal};

/// Holds the paths and the buffer, so that a look allocates nothing.
pub(super) struct Observe {
    root: HostRoot,
    node: Option<RootMemory>,
    /// Of the cgroup that it is for.
    pods: Option<(String, CgroupMemory)>,
    pods_cgroup: PodsPath,
    pids: pids::PidFiles,
    last_pids: Option<pids::Pids>,
    buf: Vec<u8>,
}

/// Where the cgroups are. Made once at start: whoever asks is to be told the same.
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
    pub(super) fn new(config: &Config, pods_cgroup: PodsPath) -> Self {
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

    pub(super) fn root(&self) -> &HostRoot {
        &self.root
    }

    /// Looks at memory and pids. About 10 µs.
    pub(super) fn hot(&mut self) -> Vec<Sample> {
        let node = self.memory();
        self.find_pods();
        let pods = self.pods.as_ref();
        let pods = pods.map_or(Ok(None), |(_, pods)| pods.read(&mut self.buf));
        self.last_pids = seen(
            Signal::PidAvailable,
            self.pids.read(&mut self.buf).map(Some),
        );
        vec![
            look(Signal::MemoryAvailable, node),
            look_at_pods(Signal::AllocatableMemoryAvailable, pods),
            look(
                Signal::PidAvailable,
                self.last_pids.map(pids::Pids::reading),
            ),
            look_at_pods(Signal::AllocatablePidAvailable, self.pods_pids()),
        ]
    }

    /// The cgroup of all pods, as far as that is known.
    pub(super) fn pods_cgroup(&self) -> &str {
        self.pods_cgroup.path()
    }

    fn find_pods(&mut self) {
        let path = self.pods_cgroup.path();
        if self.pods.as_ref().is_none_or(|(of, _)| of != path) {
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
    pub(super) fn memory(&mut self) -> Option<Reading> {
        let read = self.node.as_ref()?.read(&mut self.buf).map(Some);
        seen(Signal::MemoryAvailable, read)
    }

    /// Tasks at the last look.
    pub(super) fn tasks(&self) -> Option<u64> {
        self.last_pids.map(|pids| pids.tasks)
    }

    /// Pids that this machine can hold, at the last look.
    pub(super) fn pid_capacity(&self) -> Option<u64> {
        self.last_pids.map(|pids| pids.max)
    }

    /// Looks again at what changes rarely: interfaces and routes. Names are not asked for again.
    pub(super) fn refresh(&self, facts: &mut Facts) {
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

fn look(signal: Signal, reading: Option<Reading>) -> Sample {
    reading.map_or(Sample::Missing(signal), Sample::Read)
}

/// Of the pods cgroup: without a limit, or before there are pods, there is nothing to observe.
fn look_at_pods(signal: Signal, read: Result<Option<Reading>, HostError>) -> Sample {
    match read {
        Ok(Some(reading)) => Sample::Read(reading),
        Ok(None) => Sample::Absent(signal),
        Err(err) if err.is_absent() => Sample::Absent(signal),
        Err(err) => look(signal, seen(signal, Err(err))),
    }
}

/// What was read; an error is a missing observation.
fn seen<T>(signal: Signal, read: Result<Option<T>, HostError>) -> Option<T> {
    read.unwrap_or_else(|err| {
        // A pods cgroup that is not there is the usual case on a node without pods.
        if !err.is_absent() {
            debug!(
                signal = signal.as_str(),
                err = &err as &dyn std::error::Error,
                "not read"
            );
        }
        None
    })
}
