//! The attached probes: their reports, their maps and their counters.

use std::error::Error;
use std::time::Duration;

use agent_common::settings::TICK_MASK;
use agent_common::{DiskEntry, DropReason, PidSettings};
use nodepulse_core::clock::BootNanos;
use nodepulse_core::escape::quote;
use nodepulse_core::pressure::disks::DiskCounts;
use nodepulse_core::pressure::pids::PidLevels;
use nodepulse_core::reading::Signal;
use nodepulse_core::subjects::{DiskInput, DiskProbe, Input, MapUpdate, WatchedDisk};
use nodepulse_core::units::DeviceNumber;
use nodepulse_core::units::latency::Buckets;
use nodepulse_linux::kernel::counters::{self, ProbeCounters};
use nodepulse_linux::kernel::{Kernel, Probe, ProbeState, Support};
use tokio::sync::watch;
use tracing::{debug, info, warn};

pub struct Probes {
    kernel: Option<Kernel>,
    simulated: Option<watch::Receiver<ProbeCounters>>,
    support: Support,
    lost: u64,
}

impl Probes {
    /// Logs which probes are attached. `simulated` are the counters of a simulated kernel.
    pub fn start(
        kernel: Option<Kernel>,
        simulated: Option<watch::Receiver<ProbeCounters>>,
        support: &Support,
    ) -> Self {
        log_support(support);
        Self {
            kernel,
            simulated,
            support: support.clone(),
            lost: 0,
        }
    }

    /// Returns `true` if the kernel announces crossings of the pid threshold.
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

    pub fn disk_probe(&self) -> DiskProbe {
        if self.support.attached(Probe::DiskComplete) {
            DiskProbe::Attached
        } else {
            DiskProbe::Missing
        }
    }

    /// Time at which a request of a disk completed last, to a tick of the kernel, if known. Too
    /// early after the machine was suspended, in which the program's clock stops.
    pub fn last_completion(&self, device: DeviceNumber) -> Option<BootNanos> {
        let entry = self.kernel.as_ref()?.disk(device)?;
        let at = entry.tick & !TICK_MASK;
        (at != 0).then_some(BootNanos(at))
    }

    /// The judged requests of these disks by latency. Without programs there are none.
    pub fn judged_latency(&self, disks: &[DeviceNumber]) -> Vec<(DeviceNumber, Buckets)> {
        let read = |device: &DeviceNumber| Some((*device, self.disk_counts(*device)?.judged));
        disks.iter().filter_map(read).collect()
    }

    /// Counts of the completion probe for a disk. `None` without the program.
    pub fn disk_counts(&self, device: DeviceNumber) -> Option<DiskCounts> {
        let entry = self.kernel.as_ref()?.disk(device)?;
        Some(DiskCounts {
            judged: counters::judged(&entry),
            errors: entry.errors,
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
            MapUpdate::DiskLimit { device, limit } => (
                "disks",
                kernel.map(|kernel| kernel.limit_disk(device, nanos(limit))),
            ),
        };
        if let Some(Err(err)) = written {
            warn!(map, err = &err as &dyn Error, "cannot update BPF map");
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
                warn!(disk = %quote(&disk.name), err, "disk not watched");
            });
            written.is_ok()
        };
        disks.into_iter().filter(accepted).collect()
    }

    /// The probes' counters, read with one or two system calls each.
    pub fn figures(&self, disks: impl Iterator<Item = DeviceNumber>) -> ProbeCounters {
        if let Some(simulated) = &self.simulated {
            return simulated.borrow().clone();
        }
        let Some(kernel) = &self.kernel else {
            return ProbeCounters::default();
        };
        let disk = |device| Some((device, counters::latency(&kernel.disk(device)?)));
        ProbeCounters {
            losses: kernel.losses().map(Vec::from).unwrap_or_default(),
            runs: kernel.runs(),
            disks: disks.filter_map(disk).collect(),
        }
    }

    /// Logs records that the probes could not write. Returns `true` if their number has increased.
    pub fn log_losses(&mut self) -> bool {
        let counted = self.kernel.as_ref().map(Kernel::losses);
        let losses = match (&self.simulated, counted) {
            (Some(simulated), _) => simulated.borrow().losses.clone(),
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
    info!(programs = support.tier(), "eBPF programs attached");
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

#[cfg(test)]
mod tests {
    use nodepulse_core::reading::DiskRole;
    use nodepulse_linux::kernel::support::Missing;

    use super::*;

    fn simulated(support: &Support) -> (watch::Sender<ProbeCounters>, Probes) {
        let (counted, counters) = watch::channel(ProbeCounters::default());
        (counted, Probes::start(None, Some(counters), support))
    }

    #[test]
    fn pids_of_pods_never_determine_the_next_sample_and_others_only_without_a_probe() {
        let none = Support::none(&Missing::TurnedOff);
        for (support, announced, probe) in [
            (none, &[][..], DiskProbe::Missing),
            (Support::all(), &[Signal::PidAvailable], DiskProbe::Attached),
        ] {
            let probes = Probes::start(None, None, &support);
            let expected: Vec<Signal> = [Signal::AllocatablePidAvailable]
                .iter()
                .chain(announced)
                .copied()
                .collect();
            assert_eq!(probes.announced(), expected);
            assert_eq!(probes.disk_probe(), probe);
        }
    }

    #[test]
    fn losses_are_reported_when_their_number_increases() {
        let (counted, mut probes) = simulated(&Support::all());
        for (full, unreadable, more) in [
            (0, 0, false),
            (3, 0, true),
            (3, 0, false),
            (3, 1, true),
            (3, 1, false),
        ] {
            counted.send_replace(ProbeCounters {
                losses: vec![
                    (DropReason::CritFull, full),
                    (DropReason::Unreadable, unreadable),
                ],
                ..ProbeCounters::default()
            });
            assert_eq!(probes.log_losses(), more, "{full} {unreadable}");
        }
    }

    #[test]
    fn without_a_kernel_every_disk_counts_as_watched() {
        let (_counted, mut probes) = simulated(&Support::all());
        let disk = WatchedDisk {
            device: DeviceNumber { major: 8, minor: 0 },
            name: "sda".to_owned(),
            slow: Duration::from_millis(20),
            auto: true,
            window: Duration::from_secs(1),
            role: DiskRole::Node,
        };
        let watched = probes.write(MapUpdate::WatchDisks(vec![disk.clone()]));
        let expected = Input::Disk(DiskInput::Watched(vec![disk.clone()]));
        assert_eq!(watched, Some(expected));
        assert_eq!(probes.write(MapUpdate::ForgetDisk(disk.device)), None);
        assert_eq!(probes.last_completion(disk.device), None);
    }
}
