//! What is asked of the kernel's side: the levels it wakes us at, and the falling edges that it
//! cannot see.

use std::time::Duration;

use agent_common::PidSettings;
use tracing::{debug, info, warn};

use crate::clock::BootNanos;
use crate::config::Config;
use crate::kernel::counters::ProbeCounters;
use crate::kernel::{Kernel, Probe, ProbeState, Support};
use crate::pressure::Pressure;
use crate::pressure::deadline::SHORTEST;
use crate::pressure::disks::DiskBoard;
use crate::pressure::evaluate::Evaluator;
use crate::pressure::pids::{Excess, PidLevels, pid_levels};
use crate::reading::Signal;
use crate::record::Side;

mod disks;

use disks::DiskCare;

/// While the kernel says that pids are over the level, and only then, the count is looked at so
/// often: no hook tells in time that they are gone.
const PIDS_AGAIN: Duration = Duration::from_secs(5);

pub(super) struct Probes {
    kernel: Option<Kernel>,
    support: Support,
    disks: DiskBoard,
    care: DiskCare,
    levels: Option<PidLevels>,
    excess: Excess,
    /// Set while the kernel has pids over the level: when to look again.
    pids_at: Option<BootNanos>,
    /// When a crossing last turned out to be none.
    refuted: Option<BootNanos>,
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
            levels: None,
            excess: Excess::default(),
            pids_at: None,
            refuted: None,
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

    /// Computes the level at which forks wake us.
    pub(super) fn set_pid_levels(&mut self, evaluator: &Evaluator, capacity: Option<u64>) {
        self.levels = capacity.and_then(|capacity| pid_levels(evaluator.thresholds(), capacity));
        self.write_pid_levels();
    }

    fn write_pid_levels(&mut self) {
        let settings = match self.levels.map(|levels| levels.raised(self.excess.get())) {
            Some(PidLevels {
                high,
                low,
                trend_step,
            }) => PidSettings {
                high,
                low,
                trend_step,
                pad: 0,
            },
            None => PidSettings::default(),
        };
        let written = self
            .kernel
            .as_mut()
            .map(|kernel| kernel.set_pid_settings(settings));
        if let Some(Err(err)) = written {
            warn!(err = &err as &dyn std::error::Error, "pid level not set");
        }
    }

    /// The kernel counted ids, and just after it there were so many tasks.
    pub(super) fn pids_counted(&mut self, ids: u32, tasks: Option<u64>) {
        let Some(tasks) = tasks else {
            return;
        };
        let excess = self.excess.seen(ids, tasks);
        if excess != self.excess {
            self.excess = excess;
            self.write_pid_levels();
        }
    }

    /// The kernel says on which side of the level the ids are, and just after it there were so many
    /// tasks. Where those are not over it, the level moves up by what the ids are more.
    pub(super) fn pids_crossed(
        &mut self,
        side: Side,
        ids: u32,
        tasks: Option<u64>,
        now: BootNanos,
    ) {
        self.pids_at = match side {
            Side::Over => Some(now.plus(PIDS_AGAIN)),
            Side::Under => None,
        };
        let (Side::Over, Some(levels), Some(tasks)) = (side, self.levels, tasks) else {
            return;
        };
        if tasks >= u64::from(levels.high) {
            return;
        }
        self.excess = Excess::refuted(ids, tasks);
        self.write_pid_levels();
        // With forks and exits in turn at the level, being told each time would cost more than
        // looking four times a second.
        let often = self.refuted.is_some_and(|last| now.since(last) < SHORTEST);
        self.refuted = Some(now);
        if often {
            self.pids_at = Some(now.plus(SHORTEST));
        } else {
            self.end_pid_state();
        }
    }

    /// The kernel tells the next crossing.
    fn end_pid_state(&mut self) {
        self.pids_at = None;
        if let Some(Err(err)) = self.kernel.as_mut().map(Kernel::end_pid_state) {
            warn!(err = &err as &dyn std::error::Error, "pid state not ended");
        }
    }

    /// The tasks were counted. Once they are under the level the kernel may tell the next crossing:
    /// under the low one, where the last crossing was real.
    pub(super) fn sampled(&mut self, tasks: Option<u64>, pressure: Pressure, now: BootNanos) {
        let Some(due) = self.pids_at else {
            return;
        };
        let (Some(levels), Some(tasks)) = (self.levels, tasks) else {
            self.pids_at = Some(now.plus(PIDS_AGAIN));
            return;
        };
        let real = matches!(pressure, Pressure::UnderPressure { .. });
        let back = if real {
            levels.low
        } else {
            levels.high.saturating_sub(1)
        };
        if tasks > u64::from(back) {
            self.pids_at = Some(now.plus(PIDS_AGAIN));
        } else if due <= now {
            self.end_pid_state();
        }
    }

    /// When to count tasks because the kernel has them over the level.
    pub(super) fn count_at(&self) -> Option<BootNanos> {
        self.pids_at
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

    use super::*;
    use crate::config::DiskIo;

    #[test]
    fn the_kernel_is_told_when_tasks_are_back_under_the_level() {
        const LEVELS: PidLevels = PidLevels {
            high: 1_000,
            low: 900,
            trend_step: 50,
        };
        let told = BootNanos(1_000_000_000);
        let counted = told.plus(PIDS_AGAIN);
        let again = Some(counted.plus(PIDS_AGAIN));
        let real = Pressure::UnderPressure {
            last_exceeded: told,
        };
        //  name, levels, tasks when counted, pressure, then counted again at
        let rows = [
            ("over the low level", Some(LEVELS), Some(901), real, again),
            ("under it", Some(LEVELS), Some(900), real, None),
            (
                "no pressure, so under the high one is enough",
                Some(LEVELS),
                Some(999),
                Pressure::Normal,
                None,
            ),
            (
                "no pressure, and over it",
                Some(LEVELS),
                Some(1_000),
                Pressure::Normal,
                again,
            ),
            ("cannot be counted", Some(LEVELS), None, real, again),
            ("no level to count against", None, Some(1_000), real, again),
        ];
        for (name, levels, tasks, pressure, expected) in rows {
            let mut probes = calm(levels);
            probes.pids_crossed(Side::Over, 1_000, Some(1_000), told);
            probes.sampled(tasks, pressure, counted);
            assert_eq!(probes.count_at(), expected, "{name}");
        }
    }

    #[test]
    fn a_crossing_by_ids_alone_moves_the_level_and_is_told_again_at_once() {
        let levels = PidLevels {
            high: 1_000,
            low: 900,
            trend_step: 50,
        };
        let mut probes = calm(Some(levels));
        let told = BootNanos(1_000_000_000);
        probes.pids_crossed(Side::Over, 1_000, Some(960), told);
        assert_eq!((probes.excess.get(), probes.count_at()), (40, None));

        // Again within a moment: looking is cheaper than being told of every fork.
        let soon = told.plus(SHORTEST / 2);
        probes.pids_crossed(Side::Over, 1_040, Some(950), soon);
        assert_eq!(
            (probes.excess.get(), probes.count_at()),
            (90, Some(soon.plus(SHORTEST)))
        );
    }

    pub(super) fn calm(levels: Option<PidLevels>) -> Probes {
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
            levels,
            excess: Excess::default(),
            pids_at: None,
            refuted: None,
            lost: 0,
        }
    }
}
