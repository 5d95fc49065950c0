//! EDGE: reads what the subjects query, and updates the maps of the BPF programs.
//!
//! A query that can wait for a disk or a server is answered on a separate thread or task; every
//! other query is answered at once.

#![forbid(unsafe_code)]

use nodepulse_core::clock::{BootNanos, Now, Stamp};
use nodepulse_core::pressure::Policy;
use nodepulse_core::pressure::disks::DiskDetails;
use nodepulse_core::pressure::oom::RemainingMemory;
use nodepulse_core::reading::Signal;
use nodepulse_core::subjects::{
    DirectSample, DiskInput, DiskWatch, Input, KillCounterInput, KillInput, Query, SignalInput,
    StallInput,
};

pub mod blocking;
pub mod cgroups;
#[cfg(test)]
mod fixture;
pub mod pod_updates;
pub mod pressure_files;
pub mod probes;
pub mod read_config;
pub mod signals;

use blocking::Blocking;
use cgroups::Cgroups;
use pod_updates::PodUpdates;
use pressure_files::PressureFiles;
use probes::Probes;
use signals::SignalReader;

pub struct Queries {
    pub signals: SignalReader,
    pub probes: Probes,
    pub cgroups: Cgroups,
    pub pressure_files: PressureFiles,
    pub blocking: Blocking,
    pub pods: PodUpdates,
}

impl Queries {
    pub fn query(&mut self, query: Query, policy: &Policy, now: Now) -> Input {
        let cgroups = &mut self.cgroups;
        match query {
            Query::JudgedLatency(disks) => {
                Input::Disk(DiskInput::LatencyRead(self.probes.judged_latency(&disks)))
            }
            Query::Signals(stamp) => self.sample(stamp),
            Query::Stall(stall) => {
                let sample = self.pressure_files.sample(stall);
                Input::Stall(StallInput::Sampled { stall, sample })
            }
            Query::RemainingMemory => {
                Input::Kill(KillInput::RemainingMemory(self.remaining_memory(policy)))
            }
            Query::AllCgroups => Input::Kill(cgroups.read_all()),
            Query::PodCgroups => Input::Kill(cgroups.pod_cgroups()),
            Query::CgroupPaths(ids) => Input::Kill(cgroups.paths_of(&ids, now.boot)),
            Query::LimitHits(cgroup) => Input::Kill(cgroups.limit_hits(&cgroup)),
            Query::LiveLimitHits => Input::Kill(cgroups.live_limit_hits()),
            Query::PodsKillCounter => {
                Input::KillCounter(KillCounterInput::PodsCounter(cgroups.pods_counter()))
            }
            Query::RefusedForks => Input::PodPid(cgroups.refused_forks()),
            Query::PidLimits(cgroup) => Input::PodPid(cgroups.pid_limits(&cgroup)),
        }
    }

    fn sample(&mut self, stamp: Option<Stamp>) -> Input {
        let samples = self.signals.sample();
        Input::Signal(SignalInput::Sampled(DirectSample {
            samples,
            tasks: self.signals.tasks(),
            pid_capacity: self.signals.pid_capacity(),
            pods_cgroup: self.signals.pods_cgroup().to_owned(),
            stamp,
        }))
    }

    pub fn disk_details(&self, disks: &DiskWatch, now: BootNanos) -> Vec<DiskDetails> {
        disks.details(|device| self.probes.disk_counts(device), now)
    }

    fn remaining_memory(&mut self, policy: &Policy) -> RemainingMemory {
        RemainingMemory {
            memory: self.signals.memory(),
            threshold: policy.threshold(Signal::MemoryAvailable),
        }
    }

    /// Adds to an answer what is read without waiting: what the completion probe knows of a disk,
    /// its last completion or its latency; and the memory that is left.
    pub fn complete(&mut self, mut input: Input, policy: &Policy) -> Input {
        match &mut input {
            Input::Stall(StallInput::ShortageRead { memory, .. }) => {
                *memory = Some(self.remaining_memory(policy));
            }
            Input::Disk(DiskInput::Sampled(disks)) => {
                for disk in disks {
                    disk.last_completion = self.probes.last_completion(disk.device);
                }
            }
            Input::Disk(DiskInput::Confirmed { device, totals, .. }) => {
                totals.judged = self.probes.disk_counts(*device).map(|counts| counts.judged);
            }
            _ => {}
        }
        input
    }
}
