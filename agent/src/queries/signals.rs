//! Reads signals from files: here those that cannot wait for a disk, the others in
//! [`super::blocking`].

use nodepulse_core::pressure::sample::Sample;
use nodepulse_core::reading::{Network, Reading, Signal};
use nodepulse_linux::host::cgroup::memory::{CgroupMemory, RootMemory};
use nodepulse_linux::host::cgroup::pods::PodsPath;
use nodepulse_linux::host::cgroup::{self, Layout};
use nodepulse_linux::host::{HostError, HostRoot, addresses, meminfo, pids};
use tracing::{debug, warn};

use crate::config::Config;

/// Keeps paths and buffer, to avoid allocations per sample.
pub struct SignalReader {
    root: HostRoot,
    node: Option<RootMemory>,
    /// Memory of the pods cgroup, with its path.
    pods: Option<(String, CgroupMemory)>,
    pods_cgroup: PodsPath,
    pids: pids::PidFiles,
    last_pids: Option<pids::Pids>,
    buf: Vec<u8>,
}

/// The paths of the cgroups. Created once at start, so that all parts of the agent use the same.
pub fn pods_path(config: &Config) -> PodsPath {
    let layout = Layout::detect(&HostRoot::new(&config.host_root));
    let layout = ok_or_log!(warn, layout, "memory.available cannot be read");
    PodsPath::new(layout, &config.pods_cgroups)
}

impl SignalReader {
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
    pub fn sample(&mut self) -> Vec<Sample> {
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

    /// Reads `memory.available`.
    pub fn memory(&mut self) -> Option<Reading> {
        let read = self.node.as_ref()?.read(&mut self.buf).map(Some);
        logged(Signal::MemoryAvailable, read)
    }

    pub fn tasks(&self) -> Option<u64> {
        self.last_pids.map(|pids| pids.tasks)
    }

    /// Read in the last sample.
    pub fn pid_capacity(&self) -> Option<u64> {
        self.last_pids.map(|pids| pids.max)
    }

    /// Reads interfaces and routes again, which rarely change.
    pub fn interfaces(&self) -> Option<Network> {
        ok_or_log!(debug, addresses::network(&self.root), "addresses not read")
    }
}

fn sample(signal: Signal, reading: Option<Reading>) -> Sample {
    reading.map_or(Sample::Missing(signal), Sample::Read)
}

/// Sample of the pods cgroup; absent without a limit and before the first pod.
fn pods_sample(signal: Signal, read: Result<Option<Reading>, HostError>) -> Sample {
    match read {
        Ok(Some(reading)) => Sample::Read(reading),
        Ok(None) => Sample::Absent(signal),
        Err(err) if err.is_absent() => Sample::Absent(signal),
        Err(err) => sample(signal, logged(signal, Err(err))),
    }
}

/// Returns the reading; an error is logged and becomes `None`.
fn logged<T>(signal: Signal, read: Result<Option<T>, HostError>) -> Option<T> {
    read.unwrap_or_else(|err| {
        // A node without pods usually has no pods cgroup.
        if !err.is_absent() {
            let err = &err as &dyn std::error::Error;
            debug!(signal = signal.as_str(), err, "signal not read");
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{node, path};
    use super::*;

    const NODE: [(&str, &str); 9] = [
        ("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 500 kB\n"),
        ("proc/loadavg", "0.00 0.00 0.00 1/250 99\n"),
        ("proc/sys/kernel/pid_max", "1000\n"),
        (
            "@memory.stat",
            "anon 400000\nfile 200000\ninactive_file 100000\n",
        ),
        ("@kubepods/memory.max", "800000\n"),
        ("@kubepods/memory.current", "300000\n"),
        ("@kubepods/memory.stat", "inactive_file 50000\n"),
        ("@kubepods/pids.max", "600\n"),
        ("@kubepods/pids.current", "100\n"),
    ];

    fn read(signal: Signal, available: i64, capacity: u64) -> Sample {
        Sample::Read(Reading {
            signal,
            available,
            capacity,
        })
    }

    #[test]
    fn a_signal_is_absent_without_a_limit_and_missing_if_its_file_cannot_be_read() {
        use Sample::{Absent, Missing};
        use Signal::{AllocatableMemoryAvailable as PodMemory, AllocatablePidAvailable as PodPids};

        let memory = read(Signal::MemoryAvailable, 524_000, 1_024_000);
        let pod_memory = read(PodMemory, 550_000, 800_000);
        let pids = read(Signal::PidAvailable, 750, 1000);
        let pod_pids = read(PodPids, 500, 600);
        // A file of the node, what it contains instead, and the samples.
        #[rustfmt::skip]
        let rows: [(&str, Option<&str>, [Sample; 4]); 7] = [
            ("proc/uptime", None, [memory, pod_memory, pids, pod_pids]),
            ("@kubepods/memory.max", Some("max\n"), [memory, Absent(PodMemory), pids, pod_pids]),
            ("@kubepods/memory.current", Some("many\n"), [memory, Missing(PodMemory), pids, pod_pids]),
            ("@kubepods/pids.max", Some("max\n"), [memory, pod_memory, pids, Absent(PodPids)]),
            ("@kubepods/pids.current", None, [memory, pod_memory, pids, Absent(PodPids)]),
            ("proc/loadavg", Some("0.00\n"), [memory, pod_memory, Missing(Signal::PidAvailable), pod_pids]),
            ("proc/meminfo", None, [Missing(Signal::MemoryAvailable), pod_memory, pids, pod_pids]),
        ];
        for (file, text, expected) in rows {
            let (dir, config) = node(&NODE);
            match text {
                Some(text) => dir.write(&path(file), text),
                None => drop(std::fs::remove_file(dir.path().join(path(file)))),
            }
            let mut reader = SignalReader::new(&config, pods_path(&config));
            assert_eq!(reader.sample(), expected, "{file} {text:?}");
            let tasks = (file != "proc/loadavg").then_some(250);
            assert_eq!(reader.tasks(), tasks, "{file}");
        }
    }

    #[test]
    fn the_cgroup_of_the_pods_may_be_created_later() {
        let (dir, config) = node(&NODE[..4]);
        let mut reader = SignalReader::new(&config, pods_path(&config));
        let absent = [
            Signal::AllocatableMemoryAvailable,
            Signal::AllocatablePidAvailable,
        ]
        .map(Sample::Absent);
        let of_pods = |samples: &[Sample]| [samples[1], samples[3]];
        assert_eq!(of_pods(&reader.sample()), absent);
        for (name, text) in &NODE[4..] {
            dir.write(&path(name), text);
        }
        let found = of_pods(&reader.sample()).map(|sample| matches!(sample, Sample::Read(_)));
        assert_eq!(found, [true, true]);
    }
}
