//! Watches the pids of the node: sets the levels at which the kernel reports a crossing, and counts
//! tasks while it has reported one.
//!
//! The fork probe counts ids, and thresholds are about tasks, which can be fewer. A crossing by ids
//! alone raises the kernel's levels by the difference.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Decision, Effect, MapUpdate};
use crate::clock::{BootNanos, Now};
use crate::pressure::Pressure;
use crate::pressure::deadline::SHORTEST;
use crate::pressure::pids::{Excess, PidLevels, pid_levels};
use crate::pressure::threshold::Threshold;
use crate::record::Side;

/// The interval at which tasks are counted while pids are over the level: no hook reports in time
/// that pids were freed.
pub const COUNT_AGAIN: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum PidInput {
    /// Thresholds or capacity were read, or changed.
    Configured {
        thresholds: Vec<Threshold>,
        /// The maximum number of pids of the machine; `None` if it was not read.
        capacity: Option<u64>,
    },
    Crossed {
        side: Side,
        /// Ids in the initial pid namespace.
        ids: u32,
        /// Tasks just after the report; `None` if not read.
        tasks: Option<u64>,
    },
    /// The kernel reported that the number of ids changed by a step.
    Counted {
        /// Ids in the initial pid namespace.
        ids: u32,
        /// Tasks just after the report; `None` if not read.
        tasks: Option<u64>,
    },
    Sampled {
        /// `None` if not read.
        tasks: Option<u64>,
        /// The state according to the thresholds on pids.
        pressure: Pressure,
    },
}

/// The state of the fork probe, as far as the agent knows.
///
/// ```text
///                 crossed over, tasks at the level or over it
/// Armed ────────────────────────────────────────────────────────► Reported ──┐ still over:
///   ▲  │  crossed over, tasks below it: the levels are raised       ▲   │  ▲   │ count again
///   │  ├──── the first time within SHORTEST: the probe is armed ────│───│──└───┘
///   │  └──── again within SHORTEST: count instead ──────────────────┘   │
///   └──────── tasks back under the level, or crossed under ─────────────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
enum ForkProbe {
    #[default]
    Armed,
    /// The probe reported that ids are over the level, and is silent until they are under it or it
    /// is armed.
    Reported {
        /// Time of the next count of tasks.
        count_at: BootNanos,
    },
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct PidWatch {
    probe: ForkProbe,
    /// The levels in tasks. `None`: there is no threshold, or the capacity is unknown.
    levels: Option<PidLevels>,
    excess: Excess,
    /// Time at which ids last crossed the level but tasks did not.
    refuted: Option<BootNanos>,
}

impl PidWatch {
    pub fn on(&mut self, input: PidInput, now: Now) -> Vec<Effect> {
        match input {
            PidInput::Configured {
                thresholds,
                capacity,
            } => {
                self.levels = capacity.and_then(|capacity| pid_levels(thresholds.iter(), capacity));
                vec![self.write_levels()]
            }
            PidInput::Crossed { side, ids, tasks } => self.crossed(side, ids, tasks, now.boot),
            PidInput::Counted { ids, tasks } => self.counted(ids, tasks),
            PidInput::Sampled { tasks, pressure } => self.sampled(tasks, pressure, now.boot),
        }
    }

    /// Returns the time at which tasks need to be counted because the kernel has pids over the
    /// level.
    pub fn due(&self) -> Option<BootNanos> {
        match self.probe {
            ForkProbe::Armed => None,
            ForkProbe::Reported { count_at } => Some(count_at),
        }
    }

    fn crossed(&mut self, side: Side, ids: u32, tasks: Option<u64>, now: BootNanos) -> Vec<Effect> {
        let mut effects = vec![Effect::Log(Decision::PidLevelCrossed { side, ids, tasks })];
        self.probe = match side {
            Side::Over => ForkProbe::Reported {
                count_at: now.plus(COUNT_AGAIN),
            },
            Side::Under => ForkProbe::Armed,
        };
        let (Side::Over, Some(levels), Some(tasks)) = (side, self.levels, tasks) else {
            return effects;
        };
        if tasks >= u64::from(levels.high) {
            return effects;
        }
        self.excess = Excess::refuted(ids, tasks);
        effects.push(self.write_levels());
        // If forks and exits alternate at the level, a report of each costs more than a count four
        // times a second.
        let often = self.refuted.is_some_and(|last| now.since(last) < SHORTEST);
        self.refuted = Some(now);
        if often {
            let count_at = now.plus(SHORTEST);
            self.probe = ForkProbe::Reported { count_at };
        } else {
            effects.push(self.arm());
        }
        effects
    }

    fn counted(&mut self, ids: u32, tasks: Option<u64>) -> Vec<Effect> {
        let excess = tasks.map(|tasks| self.excess.observed(ids, tasks));
        match excess {
            Some(excess) if excess != self.excess => {
                self.excess = excess;
                vec![self.write_levels()]
            }
            Some(_) | None => Vec::new(),
        }
    }

    /// Arms the probe once the tasks are back: under the low level if the crossing was real, else
    /// under the high one.
    fn sampled(&mut self, tasks: Option<u64>, pressure: Pressure, now: BootNanos) -> Vec<Effect> {
        let ForkProbe::Reported { count_at } = self.probe else {
            return Vec::new();
        };
        let back = |levels: PidLevels| match pressure {
            Pressure::UnderPressure { .. } => levels.low,
            Pressure::Unknown | Pressure::Normal => levels.high.saturating_sub(1),
        };
        let is_back = match (self.levels, tasks) {
            (Some(levels), Some(tasks)) => tasks <= u64::from(back(levels)),
            (None, _) | (_, None) => false,
        };
        if !is_back {
            let count_at = now.plus(COUNT_AGAIN);
            self.probe = ForkProbe::Reported { count_at };
        } else if count_at <= now {
            return vec![self.arm()];
        }
        Vec::new()
    }

    fn arm(&mut self) -> Effect {
        self.probe = ForkProbe::Armed;
        Effect::Map(MapUpdate::EndPidState)
    }

    fn write_levels(&self) -> Effect {
        let levels = self.levels.map(|levels| levels.raised(self.excess.get()));
        Effect::Map(MapUpdate::PidLevels(levels))
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    const LEVELS: PidLevels = PidLevels {
        high: 1_000,
        low: 900,
        trend_step: 50,
    };
    const START: BootNanos = BootNanos(1_000_000_000);

    fn now(boot: BootNanos) -> Now {
        let wall = SystemTime::UNIX_EPOCH;
        Now { boot, wall }
    }

    fn pids(levels: Option<PidLevels>) -> PidWatch {
        PidWatch {
            levels,
            ..PidWatch::default()
        }
    }

    fn over(ids: u32, tasks: u64) -> PidInput {
        PidInput::Crossed {
            side: Side::Over,
            ids,
            tasks: Some(tasks),
        }
    }

    fn under() -> PidInput {
        PidInput::Crossed {
            side: Side::Under,
            ids: 900,
            tasks: Some(900),
        }
    }

    /// Returns the writes of maps: levels are named by the high one.
    fn writes(effects: &[Effect]) -> Vec<String> {
        let write = |effect: &Effect| match effect {
            Effect::Map(MapUpdate::PidLevels(levels)) => {
                Some(levels.map_or("off".to_owned(), |levels| levels.high.to_string()))
            }
            Effect::Map(MapUpdate::EndPidState) => Some("arm".to_owned()),
            _ => None,
        };
        effects.iter().filter_map(write).collect()
    }

    #[test]
    fn the_probe_is_armed_when_tasks_are_back_under_the_level() {
        let counted = START.plus(COUNT_AGAIN);
        let again = Some(counted.plus(COUNT_AGAIN));
        let real = Pressure::UnderPressure {
            last_exceeded: START,
        };
        // Name, levels, counted tasks, pressure, armed, next count.
        #[rustfmt::skip]
        let rows = [
            ("over the low level", Some(LEVELS), Some(901), real, again),
            ("at the low level", Some(LEVELS), Some(900), real, None),
            ("no pressure: under the high level is enough", Some(LEVELS), Some(999), Pressure::Normal, None),
            ("no pressure, and at the high level", Some(LEVELS), Some(1_000), Pressure::Normal, again),
            ("not counted", Some(LEVELS), None, real, again),
            ("no level", None, Some(1_000), real, again),
        ];
        for (name, levels, tasks, pressure, expected) in rows {
            let mut pids = pids(levels);
            pids.on(over(1_000, 1_000), now(START));
            assert_eq!(pids.due(), Some(counted), "{name}: when it crossed");
            let effects = pids.on(PidInput::Sampled { tasks, pressure }, now(counted));
            let armed = if expected.is_none() {
                vec!["arm"]
            } else {
                vec![]
            };
            assert_eq!(writes(&effects), armed, "{name}");
            assert_eq!(pids.due(), expected, "{name}");
        }
    }

    #[test]
    fn a_count_before_it_is_due_arms_nothing_but_postpones_the_next_while_over() {
        let pressure = Pressure::Normal;
        let soon = START.plus(SHORTEST);
        let rows = [
            ("back under it", 10, START.plus(COUNT_AGAIN)),
            ("still over it", 1_000, soon.plus(COUNT_AGAIN)),
        ];
        for (name, tasks, due) in rows {
            let mut pids = pids(Some(LEVELS));
            pids.on(over(1_000, 1_000), now(START));
            let tasks = Some(tasks);
            let effects = pids.on(PidInput::Sampled { tasks, pressure }, now(soon));
            assert_eq!((effects, pids.due()), (vec![], Some(due)), "{name}");
        }
        let mut pids = pids(Some(LEVELS));
        let tasks = Some(1_000);
        let effects = pids.on(PidInput::Sampled { tasks, pressure }, now(START));
        assert_eq!((effects, pids.due()), (vec![], None), "nothing crossed");
    }

    #[test]
    fn a_crossing_by_ids_alone_raises_the_levels() {
        let after = |delay| START.plus(delay);
        let soon = SHORTEST / 2;
        // Name, inputs, writes of the last one; then, due.
        #[rustfmt::skip]
        let rows = [
            ("the first time the probe is armed at once", vec![(START, over(1_000, 960))], vec!["1040", "arm"], None),
            ("soon after that, tasks are counted instead",
                vec![(START, over(1_000, 960)), (after(soon), over(1_040, 950))], vec!["1090"],
                Some(after(soon).plus(SHORTEST))),
            ("later it is armed again", vec![(START, over(1_000, 960)), (after(SHORTEST), over(1_040, 950))],
                vec!["1090", "arm"], None),
            ("soon after the kernel has them under it",
                vec![(START, over(1_000, 960)), (after(soon), over(1_040, 950)), (after(soon), under())],
                vec![], None),
        ];
        for (name, inputs, expected, due) in rows {
            let mut pids = pids(Some(LEVELS));
            let mut last = Vec::new();
            for (at, input) in inputs {
                last = pids.on(input, now(at));
            }
            assert_eq!(
                (writes(&last), pids.due()),
                (owned(&expected), due),
                "{name}"
            );
        }
    }

    #[test]
    fn levels_follow_thresholds_capacity_and_excess() {
        let thresholds = Threshold::parse("pid.available", "1000").unwrap();
        let configured = |capacity| PidInput::Configured {
            thresholds: thresholds.into_iter().collect(),
            capacity,
        };
        let counted = |ids, tasks| PidInput::Counted { ids, tasks };
        let script = [
            (configured(Some(32_768)), vec!["31769"], "at the start"),
            (counted(130, Some(100)), vec!["31799"], "ids exceed tasks"),
            (counted(400, Some(100)), vec![], "it only falls"),
            (counted(110, None), vec![], "tasks were not read"),
            (counted(110, Some(100)), vec!["31779"], "ids were freed"),
            (configured(Some(40_000)), vec!["39011"], "a larger machine"),
            (configured(None), vec!["off"], "the capacity is not known"),
        ];
        let mut pids = PidWatch::default();
        for (input, expected, name) in script {
            let effects = pids.on(input, now(START));
            assert_eq!(writes(&effects), owned(&expected), "{name}");
        }
    }

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }
}
