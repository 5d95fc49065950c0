//! Tasks that wait for memory or disks: triggers report that a stall begins, and the pressure files
//! are read while one is in effect.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Decision, DiskInput, Effect, FactChange, Input, Query, SignalInput, pass_on};
use crate::clock::{BootNanos, Now};
use crate::pressure::stall::{StallBoard, StallChange, StallReading, StallSample, StallThresholds};
use crate::pressure::{Exceeded, Pressure};
use crate::reading::{Ground, Stall, StallKind, StallOf};

/// Everything that can happen to the stalls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum StallInput {
    /// A trigger fired.
    Reported(Stall),
    /// The answer to [`Query::Stall`].
    Sampled {
        /// Which file.
        stall: Stall,
        /// `None`: not read.
        sample: Option<StallSample>,
    },
    /// The loop woke up.
    Tick {
        /// Files that are due by then are read in this wake-up.
        soon: BootNanos,
    },
    /// The condition is True at the API server, but has no time in the state file.
    Stored(Stall),
    /// The threshold was last exceeded at this moment, before a restart.
    Restored {
        /// The stall.
        stall: Stall,
        /// The moment.
        at: BootNanos,
    },
    /// The configuration changed.
    Configured {
        /// `evictionPressureTransitionPeriod`.
        transition_period: Duration,
        /// The stalls to watch.
        watched: BTreeSet<Stall>,
    },
}

/// A decision about a stall, to be logged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum StallDecision {
    /// A trigger fired.
    Reported(Stall),
    /// The pressure changed.
    Changed {
        /// The change.
        change: StallChange,
        /// The sample that caused it.
        sample: Option<StallSample>,
    },
}

/// How stalls are watched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StallSetup {
    /// `psi.memory` and `psi.io`.
    pub thresholds: StallThresholds,
    /// `evictionPressureTransitionPeriod`.
    pub transition_period: Duration,
    /// Each watched stall, with whether a trigger reports it.
    pub watched: Vec<(Stall, bool)>,
}

/// The stalls that are watched.
#[derive(Debug)]
pub struct StallWatch {
    board: StallBoard,
}

impl StallWatch {
    /// All files are due at once.
    pub fn new(setup: StallSetup) -> Self {
        Self {
            board: StallBoard::new(setup.thresholds, setup.transition_period, setup.watched),
        }
    }

    /// Takes an input, and returns what follows from it.
    pub fn on(&mut self, input: StallInput, now: Now) -> Vec<Effect> {
        match input {
            StallInput::Reported(stall) => self.reported(stall),
            StallInput::Sampled { stall, sample } => {
                let change = self.board.apply_sample(stall, sample, now.boot);
                let changed = change.map(|change| log(StallDecision::Changed { change, sample }));
                let details = change.zip(sample).and_then(details);
                let published = [self.fact(), Effect::Publish];
                changed
                    .into_iter()
                    .chain(details)
                    .chain(published)
                    .collect()
            }
            StallInput::Tick { soon } => {
                let due = self.board.due(soon);
                due.map(|stall| Effect::Query(Query::Stall(stall)))
                    .collect()
            }
            StallInput::Stored(stall) => {
                self.board.seed(stall, now.boot);
                vec![self.fact()]
            }
            StallInput::Restored { stall, at } => {
                self.board.restore(stall, at);
                vec![self.fact()]
            }
            StallInput::Configured {
                transition_period,
                watched,
            } => {
                self.board.set_transition_period(transition_period);
                let added = self.board.watch(&watched).into_iter();
                let queries = added.map(|stall| Effect::Query(Query::Stall(stall)));
                [self.fact()].into_iter().chain(queries).collect()
            }
        }
    }

    /// When to read a file although no trigger fired; `None` while all are calm.
    pub fn due(&self) -> Option<BootNanos> {
        self.board.wake_at()
    }

    /// When the threshold of a stall was last exceeded.
    pub fn exceeded(&self, stall: Stall) -> Exceeded {
        self.board.exceeded(stall)
    }

    /// The last sample of every stall.
    pub fn readings(&self) -> Vec<StallReading> {
        self.board.readings().collect()
    }

    /// A stall can be the first sign of a shortage or of a disk that does not respond. The trigger may
    /// be there only for that.
    fn reported(&self, stall: Stall) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.board.watches(stall) {
            effects.push(log(StallDecision::Reported(stall)));
            effects.push(Effect::Query(Query::Stall(stall)));
        }
        effects.push(pass_on(Input::Signal(match stall.kind {
            StallKind::Memory => SignalInput::MemoryMayBeShort,
            StallKind::Io => SignalInput::StorageRequested,
        })));
        // The pods' tasks are among the node's, which has a trigger.
        if stall == Stall::new(StallOf::Node, StallKind::Io) {
            effects.push(pass_on(Input::Disk(DiskInput::IoStalled)));
        }
        effects
    }

    fn fact(&self) -> Effect {
        let states = self.board.pressures().into_iter().collect();
        Effect::Fact(FactChange::Stalls(states))
    }
}

/// The averages of a stall that begins, for the Event of its condition.
fn details((change, sample): (StallChange, StallSample)) -> Option<Effect> {
    let begins = matches!(change.to, Pressure::UnderPressure { .. });
    begins.then(|| Effect::EventDetails {
        of: Ground::Stall(change.stall),
        details: Some(format!(
            "over 10 s {:.0}%, over a minute {:.0}%",
            sample.avg10, sample.avg60
        )),
    })
}

fn log(decision: StallDecision) -> Effect {
    Effect::Log(Decision::Stall(decision))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::pressure::stall::READ_INTERVAL;

    const IO: Stall = Stall::new(StallOf::Node, StallKind::Io);
    const MEMORY: Stall = Stall::new(StallOf::Node, StallKind::Memory);
    const PERIOD: Duration = Duration::from_mins(5);

    fn watch<const N: usize>(
        transition_period: Duration,
        watched: [(Stall, bool); N],
    ) -> StallWatch {
        StallWatch::new(StallSetup {
            thresholds: StallThresholds {
                memory: 15.0,
                io: 40.0,
            },
            transition_period,
            watched: watched.into(),
        })
    }

    fn at(seconds: u64) -> BootNanos {
        BootNanos(seconds * 1_000_000_000)
    }

    fn on(watch: &mut StallWatch, seconds: u64, input: StallInput) -> Vec<Effect> {
        let wall = SystemTime::UNIX_EPOCH;
        let boot = at(seconds);
        watch.on(input, Now { boot, wall })
    }

    fn sampled(percent: f32) -> StallInput {
        let sample = StallSample {
            avg10: percent,
            avg60: percent,
        };
        StallInput::Sampled {
            stall: IO,
            sample: Some(sample),
        }
    }

    fn configured<const N: usize>(transition_period: Duration, watched: [Stall; N]) -> StallInput {
        StallInput::Configured {
            transition_period,
            watched: watched.into(),
        }
    }

    /// Stalls whose files are queried.
    fn queried(effects: &[Effect]) -> Vec<Stall> {
        let query = |effect: &Effect| match effect {
            Effect::Query(Query::Stall(stall)) => Some(*stall),
            _ => None,
        };
        effects.iter().filter_map(query).collect()
    }

    /// The pressure of I/O that was published, and whether a change was logged.
    fn published(effects: &[Effect]) -> (Option<Pressure>, bool) {
        let changed = |effect: &Effect| {
            matches!(
                effect,
                Effect::Log(Decision::Stall(StallDecision::Changed { .. }))
            )
        };
        let states = effects.iter().find_map(|effect| match effect {
            Effect::Fact(FactChange::Stalls(states)) => Some(states),
            _ => None,
        });
        let of_io = |states: &Vec<(Stall, Pressure)>| {
            let of_io = states.iter().find(|(stall, _)| *stall == IO);
            of_io.map(|(_, pressure)| *pressure)
        };
        (states.and_then(of_io), effects.iter().any(changed))
    }

    #[test]
    fn files_are_read_at_the_start_when_a_trigger_fires_and_while_not_calm() {
        let mut watch = self::watch(PERIOD, [(IO, true), (MEMORY, false)]);
        let tick = |seconds| StallInput::Tick { soon: at(seconds) };
        let all = on(&mut watch, 1, tick(1));
        assert_eq!(queried(&all), [MEMORY, IO]);
        on(&mut watch, 1, sampled(1.0));
        assert_eq!(watch.due(), None, "a trigger reports it");
        assert_eq!(queried(&on(&mut watch, 2, tick(2))), [MEMORY], "no answer");

        let fired = on(&mut watch, 3, StallInput::Reported(IO));
        let expected = [
            Effect::Log(Decision::Stall(StallDecision::Reported(IO))),
            Effect::Query(Query::Stall(IO)),
            pass_on(Input::Signal(SignalInput::StorageRequested)),
            pass_on(Input::Disk(DiskInput::IoStalled)),
        ];
        assert_eq!(fired, expected);
        let fired = on(&mut watch, 3, StallInput::Reported(MEMORY));
        let memory = pass_on(Input::Signal(SignalInput::MemoryMayBeShort));
        assert_eq!(fired.last(), Some(&memory));
        let pods = Stall::new(StallOf::Pods, StallKind::Io);
        let fired = on(&mut watch, 3, StallInput::Reported(pods));
        let storage = pass_on(Input::Signal(SignalInput::StorageRequested));
        assert_eq!(fired, [storage], "no disk of the node is suspected");
        on(&mut watch, 3, sampled(50.0));
        let again = at(3).plus(READ_INTERVAL);
        assert_eq!(watch.due(), Some(again));
        let early = on(&mut watch, 12, tick(12));
        assert!(!queried(&early).contains(&IO), "{early:?}");
        let due = on(&mut watch, 12, StallInput::Tick { soon: again });
        assert!(queried(&due).contains(&IO), "in the same wake-up: {due:?}");
    }

    #[test]
    fn each_sample_is_published_and_only_a_change_is_logged() {
        let under = |seconds| Pressure::UnderPressure {
            last_exceeded: at(seconds),
        };
        let missing = || StallInput::Sampled {
            stall: IO,
            sample: None,
        };
        let shorter = configured(Duration::from_secs(30), [IO]);
        //  at s, input, published pressure, whether a change was logged, name
        let script = [
            (1, sampled(1.0), Some(Pressure::Normal), true, "the first"),
            (11, sampled(2.0), Some(Pressure::Normal), false, "the same"),
            (21, sampled(50.0), Some(under(21)), true, "exceeded"),
            (31, sampled(50.0), Some(under(31)), false, "still"),
            (41, sampled(1.0), Some(under(31)), false, "kept"),
            (51, missing(), Some(under(31)), false, "one failed read"),
            (52, shorter, Some(under(31)), false, "another period"),
            (
                60,
                sampled(1.0),
                Some(under(31)),
                false,
                "1 s before its end",
            ),
            (61, sampled(1.0), Some(Pressure::Normal), true, "at its end"),
        ];
        let mut watch = self::watch(PERIOD, [(IO, true)]);
        for (seconds, input, pressure, logged, name) in script {
            let effects = on(&mut watch, seconds, input);
            assert_eq!(published(&effects), (pressure, logged), "{name}");
        }
    }

    #[test]
    fn the_event_of_a_stall_that_begins_has_its_averages() {
        let averages = |avg10, avg60| StallInput::Sampled {
            stall: IO,
            sample: Some(StallSample { avg10, avg60 }),
        };
        let details = |effects: Vec<Effect>| {
            effects.into_iter().find_map(|effect| match effect {
                Effect::EventDetails { of, details } => Some((of, details?)),
                _ => None,
            })
        };
        let begins = |text: &str| Some((Ground::Stall(IO), text.to_owned()));
        let mut watch = self::watch(PERIOD, [(IO, true)]);
        let script = [
            (1, averages(80.0, 39.0), None, "below 40 % over a minute"),
            (
                11,
                averages(83.7, 41.2),
                begins("over 10 s 84%, over a minute 41%"),
                "begins",
            ),
            (21, averages(90.0, 50.0), None, "still"),
            (400, averages(1.0, 1.0), None, "ends"),
        ];
        for (seconds, input, expected, name) in script {
            assert_eq!(details(on(&mut watch, seconds, input)), expected, "{name}");
        }
    }

    #[test]
    fn a_stall_whose_condition_is_off_is_not_read_even_if_its_trigger_fires() {
        let mut watch = self::watch(PERIOD, [(IO, true), (MEMORY, true)]);
        on(&mut watch, 1, sampled(50.0));
        assert!(watch.due().is_some());
        let off = on(&mut watch, 2, configured(PERIOD, [MEMORY]));
        assert_eq!(published(&off).0, None, "it has no state any more");
        assert_eq!(watch.due(), None, "nothing wakes the agent");
        let tick = |seconds| StallInput::Tick { soon: at(seconds) };
        assert_eq!(queried(&on(&mut watch, 20, tick(20))), [MEMORY]);
        let expected = [
            pass_on(Input::Signal(SignalInput::StorageRequested)),
            pass_on(Input::Disk(DiskInput::IoStalled)),
        ];
        let fired = on(&mut watch, 21, StallInput::Reported(IO));
        assert_eq!(fired, expected, "only what else a stall can be a sign of");
        assert_eq!(published(&on(&mut watch, 22, sampled(50.0))).0, None);

        let again = on(&mut watch, 30, configured(PERIOD, [IO, MEMORY]));
        assert_eq!(queried(&again), [IO], "at once");
        let read = on(&mut watch, 30, sampled(1.0));
        assert_eq!(published(&read).0, Some(Pressure::Normal));
        assert!(
            queried(&on(&mut watch, 50, tick(50))).contains(&IO),
            "it has no trigger now"
        );
    }

    #[test]
    fn what_was_exceeded_before_a_restart_is_kept() {
        let restored = |seconds| StallInput::Restored {
            stall: IO,
            at: at(seconds),
        };
        let under = |seconds| {
            Some(Pressure::UnderPressure {
                last_exceeded: at(seconds),
            })
        };
        //  at s before and after the first sample, then published
        let rows = [
            ("by the state file", restored(50), None, under(50)),
            ("too long ago", restored(1), None, Some(Pressure::Normal)),
            (
                "by the Node",
                configured(Duration::from_mins(1), [IO]),
                Some(StallInput::Stored(IO)),
                under(100),
            ),
        ];
        for (name, before, after, expected) in rows {
            let minute = Duration::from_mins(1);
            let mut watch = self::watch(minute, [(IO, true)]);
            let state = on(&mut watch, 99, before);
            let unread = Some(Pressure::Unknown);
            assert_eq!(published(&state).0, unread, "{name}: not sampled yet");
            let mut effects = on(&mut watch, 100, sampled(1.0));
            if let Some(after) = after {
                effects = on(&mut watch, 101, after);
            }
            assert_eq!(published(&effects).0, expected, "{name}");
        }
    }
}
