//! The probes that run: what they report, their maps, and what they have counted.

use std::error::Error;
use std::time::Duration;

use agent_common::settings::{DISK_FAILING, DISK_WELL};
use agent_common::{DiskEntry, PidSettings};
use tracing::{debug, info, warn};

use crate::escape::escape;
use crate::kernel::counters::ProbeCounters;
use crate::kernel::{Kernel, Probe, ProbeState, Support};
use crate::pressure::disks::Health;
use crate::pressure::pids::PidLevels;
use crate::reading::Signal;
use crate::subjects::{DiskInput, DiskProbe, Input, MapUpdate, WatchedDisk};
use crate::units::DeviceNumber;

pub(super) struct Probes {
    kernel: Option<Kernel>,
    support: Support,
    lost: u64,
}

impl Probes {
    /// Logs which probes run.
    pub(super) fn start(kernel: Option<Kernel>, support: &Support) -> Self {
        log_support(support);
        Self {
            kernel,
            support: support.clone(),
            lost: 0,
        }
    }

    /// Whether the kernel announces crossings of the pid threshold.
    pub(super) fn tells_pids(&self) -> bool {
        self.support.attached(Probe::PidFork)
    }

    /// What need not be looked at for fear that it falls. Limits of pods are small: at the rate at
    /// which threads can be made a calm node would be looked at all the time, so they are judged
    /// whenever something else is looked at.
    pub(super) fn announced(&self) -> Vec<Signal> {
        let told = self.tells_pids().then_some(Signal::PidAvailable);
        let mut announced = vec![Signal::AllocatablePidAvailable];
        announced.extend(told);
        announced
    }

    /// Whether the completion probe judges disks.
    pub(super) fn disk_probe(&self) -> DiskProbe {
        if self.support.attached(Probe::DiskComplete) {
            DiskProbe::Attached
        } else {
            DiskProbe::Missing
        }
    }

    /// What the completion probe has of a disk; `None`: not read, or there are no programs.
    pub(super) fn disk_health(&self, device: DeviceNumber) -> Option<Health> {
        let entry = self.kernel.as_ref()?.disk(device)?;
        Some(match entry.state {
            DISK_WELL => Health::Healthy,
            DISK_FAILING => Health::Failing,
            _ => Health::Slow,
        })
    }

    /// Writes to a map of the programs, if there are programs, and answers the subject.
    pub(super) fn write(&mut self, update: MapUpdate) -> Option<Input> {
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

    /// Those of the disks that the kernel did not refuse.
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

    /// What the kernel has counted, with one or two system calls for each number.
    pub(super) fn figures(&self, disks: impl Iterator<Item = DeviceNumber>) -> ProbeCounters {
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

    /// Logs losses of records that the probes could not write, and gives whether there are more of
    /// them. `simulated`: what a simulated kernel has counted.
    pub(super) fn log_losses(&mut self, simulated: Option<&ProbeCounters>) -> bool {
        let counted = self.kernel.as_ref().map(Kernel::losses);
        let losses = match (simulated, counted) {
            (Some(figures), _) => figures.losses.clone(),
            (None, Some(Ok(losses))) => losses.to_vec(),
            (None, Some(Err(_)) | None) => return false,
        };
        let lost = losses.iter().map(|(_, count)| count).sum();
        let more = lost > self.lost;
        if more {
            warn!(?losses, "records lost");
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
            ProbeState::NotNeeded => debug!(probe = name, %hook, "not needed: a better one runs"),
            ProbeState::Missing(why) if lacking.contains(&(*probe, why)) => {
                warn!(probe = name, %why, "not attached; files are read instead");
            }
            // One line for the pair, and none where there are no kills to tell more of.
            ProbeState::Missing(why)
                if *probe == Probe::ScopeEnter && support.kills().is_some() =>
            {
                info!(probe = name, %why, "not attached; the scope of a kill is inferred");
            }
            ProbeState::Missing(why) => debug!(probe = name, %why, "not attached"),
        }
    }
}
