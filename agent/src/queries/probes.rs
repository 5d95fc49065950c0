//! The attached probes: what they report, their maps and their counters.

use std::error::Error;
use std::time::Duration;

use agent_common::settings::{DISK_FAILING, DISK_WELL};
use agent_common::{DiskEntry, DropReason, PidSettings};
use tracing::{debug, info, warn};

use crate::escape::escape;
use crate::kernel::counters::ProbeCounters;
use crate::kernel::{Kernel, Probe, ProbeState, Support};
use crate::pressure::disks::Health;
use crate::pressure::pids::PidLevels;
use crate::reading::Signal;
use crate::subjects::{DiskInput, DiskProbe, Input, MapUpdate, WatchedDisk};
use crate::units::DeviceNumber;

pub struct Probes {
    kernel: Option<Kernel>,
    support: Support,
    lost: u64,
}

impl Probes {
    /// Logs which probes are attached.
    pub fn start(kernel: Option<Kernel>, support: &Support) -> Self {
        log_support(support);
        Self {
            kernel,
            support: support.clone(),
            lost: 0,
        }
    }

    /// Whether the kernel announces crossings of the pid threshold.
    pub fn announces_pids(&self) -> bool {
        self.support.attached(Probe::PidFork)
    }

    /// Signals that do not determine when the next sample is due: `pid.available` if a probe
    /// announces it, and pids of pods. Limits of pods are small and threads are created fast, so an
    /// idle node would be sampled all the time; they are evaluated with every other sample.
    pub fn announced(&self) -> Vec<Signal> {
        let pids = self.announces_pids().then_some(Signal::PidAvailable);
        let mut announced = vec![Signal::AllocatablePidAvailable];
        announced.extend(pids);
        announced
    }

    /// Whether the completion probe judges disks.
    pub fn disk_probe(&self) -> DiskProbe {
        if self.support.attached(Probe::DiskComplete) {
            DiskProbe::Attached
        } else {
            DiskProbe::Missing
        }
    }

    /// The completion probe's state of a disk; `None` if it cannot be read or no program is loaded.
    pub fn disk_health(&self, device: DeviceNumber) -> Option<Health> {
        let entry = self.kernel.as_ref()?.disk(device)?;
        Some(match entry.state {
            DISK_WELL => Health::Healthy,
            DISK_FAILING => Health::Failing,
            _ => Health::Slow,
        })
    }

    /// Writes to a map of the programs, if any are loaded, and answers the subject.
    pub fn write(&mut self, update: MapUpdate) -> Option<Input> {
        let kernel = self.kernel.as_mut();
        let (map, written) = match update {
            MapUpdate::WatchDisks(disks) => {
                let disks = self.watch(disks);
                return Some(Input::Disk(DiskInput::Watched(disks)));
            }
            MapUpdate::PidLevels(levels) => (
                "pid levels",
                kernel.map(|kernel| kernel.set_pid_settings(settings(levels))),
            ),
            MapUpdate::EndPidState => ("pid state", kernel.map(Kernel::end_pid_state)),
            MapUpdate::ForgetDisk(device) => {
                ("disks", kernel.map(|kernel| kernel.forget_disk(device)))
            }
            MapUpdate::EndDiskState(device) => {
                ("disks", kernel.map(|kernel| kernel.end_disk_state(device)))
            }
        };
        if let Some(Err(err)) = written {
            warn!(
                map,
                err = &err as &dyn Error,
                "map of the probes not written"
            );
        }
        None
    }

    /// Returns the disks that the kernel accepted.
    fn watch(&mut self, disks: Vec<WatchedDisk>) -> Vec<WatchedDisk> {
        let Some(kernel) = &mut self.kernel else {
            return disks;
        };
        let accepted = |disk: &WatchedDisk| {
            let entry = DiskEntry::new(nanos(disk.slow), nanos(disk.window));
            let written = kernel.watch_disk(disk.device, entry).inspect_err(|err| {
                let err = err as &dyn Error;
                warn!(disk = %escape(&disk.name), err, "disk not watched");
            });
            written.is_ok()
        };
        disks.into_iter().filter(accepted).collect()
    }

    /// The probes' counters, read with one or two system calls each.
    pub fn figures(&self, disks: impl Iterator<Item = DeviceNumber>) -> ProbeCounters {
        let Some(kernel) = &self.kernel else {
            return ProbeCounters::default();
        };
        let disk = |device| Some((device, kernel.disk(device)?.histogram));
        ProbeCounters {
            losses: kernel.losses().map(Vec::from).unwrap_or_default(),
            runs: kernel.runs(),
            disks: disks.filter_map(disk).collect(),
        }
    }

    /// Logs records that the probes could not write; returns whether their number has increased.
    /// `simulated`: the counters of a simulated kernel.
    pub fn log_losses(&mut self, simulated: Option<&ProbeCounters>) -> bool {
        let counted = self.kernel.as_ref().map(Kernel::losses);
        let losses = match (simulated, counted) {
            (Some(figures), _) => figures.losses.clone(),
            (None, Some(Ok(losses))) => losses.to_vec(),
            (None, Some(Err(_)) | None) => return false,
        };
        let lost = losses.iter().map(|(_, count)| count).sum();
        let more = lost > self.lost;
        if more {
            let text = |(reason, count): &(DropReason, u64)| format!("{}={count}", reason.as_str());
            let losses: Vec<String> = losses.iter().map(text).collect();
            warn!(losses = losses.join(" "), "records lost");
        }
        self.lost = lost;
        more
    }
}

fn settings(levels: Option<PidLevels>) -> PidSettings {
    levels.map_or_else(PidSettings::default, |levels| PidSettings {
        high: levels.high,
        low: levels.low,
        trend_step: levels.trend_step,
        pad: 0,
    })
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn log_support(support: &Support) {
    info!(programs = support.tier(), "kernel line");
    let lacking = support.unavailable();
    for (probe, state) in &support.probes {
        let (name, hook) = (probe.program(), probe.hook());
        match state {
            ProbeState::Attached => info!(probe = name, %hook, "attached"),
            ProbeState::NotNeeded => {
                debug!(probe = name, %hook, "not needed: a better probe is attached");
            }
            ProbeState::Missing(why) if lacking.contains(&(*probe, why)) => {
                warn!(probe = name, %why, "not attached; files are read instead");
            }
            // Logged once for the pair, and only if OOM kills are reported.
            ProbeState::Missing(why)
                if *probe == Probe::ScopeEnter && support.kills().is_some() =>
            {
                info!(probe = name, %why, "not attached; the scope of a kill is inferred");
            }
            ProbeState::Missing(why) => debug!(probe = name, %why, "not attached"),
        }
    }
}
