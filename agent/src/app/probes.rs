//! The probes that run: what they report, their maps, and what they have counted.

use tracing::{debug, info, warn};

use super::execute;
use crate::config::Config;
use crate::kernel::counters::ProbeCounters;
use crate::kernel::{Kernel, Probe, ProbeState, Support};
use crate::pressure::disks::DiskBoard;
use crate::reading::Signal;
use crate::subjects::MapUpdate;

mod disks;

use disks::DiskCare;

pub(super) struct Probes {
    kernel: Option<Kernel>,
    support: Support,
    disks: DiskBoard,
    care: DiskCare,
    lost: u64,
}

impl Probes {
    /// Tells what runs, and hands the kernel the disks to watch.
    pub(super) fn start(config: &Config, kernel: Option<Kernel>, support: &Support) -> Self {
        tell(support);
        let mut probes = Self {
            kernel,
            support: support.clone(),
            disks: DiskBoard::default(),
            care: DiskCare::new(config.disk_io.clone()),
            lost: 0,
        };
        probes.list_disks(config);
        probes
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

    /// Writes to a map of the programs; without programs there is nothing to write to.
    pub(super) fn write(&mut self, update: MapUpdate) {
        if let Some(kernel) = &mut self.kernel {
            execute::write(kernel, update);
        }
    }

    /// What the kernel has counted, with one or two system calls for each number.
    pub(super) fn figures(&self) -> ProbeCounters {
        let Some(kernel) = &self.kernel else {
            return ProbeCounters::default();
        };
        let disk = |(device, _)| Some((device, kernel.disk(device)?.histogram));
        ProbeCounters {
            losses: kernel.losses().map(Vec::from).unwrap_or_default(),
            runs: kernel.runs(),
            disks: self.disks.watched().filter_map(disk).collect(),
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

fn tell(support: &Support) {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::config::DiskIo;

    pub(super) fn calm() -> Probes {
        let settings = DiskIo {
            solid_state_slow: Duration::from_millis(20),
            rotational_slow: Duration::from_millis(100),
            devices: BTreeMap::new(),
            window: Duration::from_secs(1),
        };
        Probes {
            kernel: None,
            support: Support::all(),
            disks: DiskBoard::default(),
            care: DiskCare::new(settings),
            lost: 0,
        }
    }
}
