//! When tasks wait for memory or disks so much that it is a condition: the rule of KEP-5394.
//!
//! A trigger wakes us when a stall begins; from then on the file is read every ten seconds until it
//! is calm again. Without a trigger it is read as often, when somebody is awake anyway.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::BootNanos;
use crate::pressure::source::Source;
use crate::pressure::{Exceeded, Observed, Pressure};
use crate::reading::Stall;

/// How often a pressure file is read while it is not calm.
pub const READ_INTERVAL: Duration = Duration::from_secs(10);

/// `some` of a pressure file, in percent of the time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StallSample {
    /// Over the last 10 s.
    pub avg10: f32,
    /// Over the last 60 s.
    pub avg60: f32,
}

/// A stall's state became another one. A longer hold alone is no change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallChange {
    /// Which.
    pub stall: Stall,
    /// Before.
    pub from: Pressure,
    /// Now.
    pub to: Pressure,
}

#[derive(Debug, Clone, Copy)]
struct State {
    pressure: Pressure,
    /// Since when it is relieved, its hold not counted; `None` while it is not.
    well_since: Option<BootNanos>,
    source: Source,
    /// When it was last over, as long as that holds it.
    last_exceeded: Option<BootNanos>,
    /// By the last look.
    over: bool,
    /// When to read the file.
    due: Option<BootNanos>,
    has_trigger: bool,
    /// It is worth waking up for it.
    active: bool,
}

/// The stalls that are watched.
#[derive(Debug, Clone)]
pub struct StallBoard {
    threshold: f32,
    transition_period: Duration,
    states: BTreeMap<Stall, State>,
}

impl StallBoard {
    /// `threshold` is in percent. Each of `stalls` says whether a trigger wakes us for it. All are
    /// due at once.
    pub fn new(
        threshold: f32,
        transition_period: Duration,
        stalls: impl IntoIterator<Item = (Stall, bool)>,
    ) -> Self {
        let unread = |(stall, has_trigger)| {
            let state = State {
                pressure: Pressure::Unknown,
                well_since: None,
                source: Source::NeverRead,
                last_exceeded: None,
                over: false,
                due: Some(BootNanos(0)),
                has_trigger,
                active: false,
            };
            (stall, state)
        };
        Self {
            threshold,
            transition_period,
            states: stalls.into_iter().map(unread).collect(),
        }
    }

    /// Takes another transition period, from the next look on.
    pub const fn set_transition_period(&mut self, period: Duration) {
        self.transition_period = period;
    }

    /// The state of every stall.
    #[must_use]
    pub fn pressures(&self) -> BTreeMap<Stall, Pressure> {
        let all = self.states.iter();
        all.map(|(stall, state)| (*stall, state.pressure)).collect()
    }

    /// The API server has it as True when we start, `now` known to us: held for a transition period
    /// from when we first saw it calm, and looked at. What cannot be read stays unknown.
    pub fn seed(&mut self, stall: Stall, now: BootNanos) {
        if let Some(state) = self.states.get_mut(&stall)
            && let Some(since) = state.well_since
            && now.since(since) < self.transition_period
        {
            state.pressure = Pressure::UnderPressure {
                last_exceeded: since,
            };
            state.last_exceeded = Some(since);
            state.well_since = None;
            state.active = true;
            state.due = Some(now.plus(READ_INTERVAL));
        }
    }

    /// Before a restart it was last over at `last_exceeded`: held from the first look on that gives
    /// something, as if there had been none.
    pub fn restore(&mut self, stall: Stall, last_exceeded: BootNanos) {
        if let Some(state) = self.states.get_mut(&stall) {
            state.last_exceeded = state.last_exceeded.max(Some(last_exceeded));
        }
    }

    /// When a stall was last over. What cannot be read at present is not forgotten.
    #[must_use]
    pub fn exceeded(&self, stall: Stall) -> Exceeded {
        match self.states.get(&stall) {
            Some(state) if state.over => Exceeded::Now,
            Some(State {
                last_exceeded: Some(last_exceeded),
                ..
            }) => Exceeded::At(*last_exceeded),
            Some(_) | None => Exceeded::Never,
        }
    }

    /// When to wake up to read a file; `None` while all are calm.
    #[must_use]
    pub fn wake_at(&self) -> Option<BootNanos> {
        let active = self.states.values().filter(|state| state.active);
        active.filter_map(|state| state.due).min()
    }

    /// The files that are to be read by `now`.
    pub fn due(&self, now: BootNanos) -> impl Iterator<Item = Stall> {
        let due = move |state: &State| state.due.is_some_and(|due| due <= now);
        let states = self.states.iter().filter(move |(_, state)| due(state));
        states.map(|(stall, _)| *stall)
    }

    /// One look at one file; `None` where it cannot be read. The state stays until the file is lost
    /// (see [`Source`]), and is unknown from then on.
    pub fn apply_sample(
        &mut self,
        stall: Stall,
        sample: Option<StallSample>,
        now: BootNanos,
    ) -> Option<StallChange> {
        let state = self.states.get_mut(&stall)?;
        let from = state.pressure;
        let high = |percent: f32| percent >= self.threshold;
        state.over = sample.is_some_and(|s| high(s.avg60) && (state.over || high(s.avg10)));
        state.source = match sample {
            Some(_) => Source::Read,
            None => state.source.failed(now),
        };
        state.pressure = match state.source {
            Source::Read => state.step(self.transition_period, now),
            Source::Failing { .. } => from,
            Source::Lost | Source::NeverRead => Pressure::Unknown,
        };
        state.well_since = match (state.pressure, from) {
            (Pressure::Normal, Pressure::Normal) => state.well_since,
            (Pressure::Normal, Pressure::UnderPressure { last_exceeded }) => Some(last_exceeded),
            (Pressure::Normal, Pressure::Unknown) => Some(now),
            (Pressure::Unknown | Pressure::UnderPressure { .. }, _) => None,
        };
        let under = matches!(state.pressure, Pressure::UnderPressure { .. });
        state.active = under || sample.is_some_and(|s| high(s.avg10));
        // A cgroup that is gone took its trigger along; the next one of its name has none.
        state.has_trigger &= sample.is_some();
        let again = state.active || !state.has_trigger;
        state.due = again.then(|| now.plus(READ_INTERVAL));
        let to = state.pressure;
        let moved = std::mem::discriminant(&from) != std::mem::discriminant(&to);
        moved.then_some(StallChange { stall, from, to })
    }
}

impl State {
    /// The state after a look that gave something. What was over before the file was lost still
    /// holds it.
    fn step(&mut self, transition_period: Duration, now: BootNanos) -> Pressure {
        let held =
            self.last_exceeded
                .map_or(self.pressure, |last_exceeded| Pressure::UnderPressure {
                    last_exceeded,
                });
        let observed = if self.over {
            Observed::Exceeded
        } else {
            Observed::NotExceeded
        };
        let to = held.step(observed, transition_period, now);
        self.last_exceeded = match to {
            Pressure::UnderPressure { last_exceeded } => Some(last_exceeded),
            Pressure::Unknown | Pressure::Normal => None,
        };
        to
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::{StallKind, StallOf};

    const IO: Stall = Stall::new(StallOf::Node, StallKind::Io);
    const PERIOD: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> BootNanos {
        BootNanos(seconds * 1_000_000_000)
    }

    fn board(has_trigger: bool) -> StallBoard {
        StallBoard::new(40.0, PERIOD, [(IO, has_trigger)])
    }

    #[test]
    fn both_averages_begin_a_stall_and_the_longer_one_ends_it() {
        let over = |seconds| Pressure::UnderPressure {
            last_exceeded: at(seconds),
        };
        let calm = Pressure::Normal;
        //  at s, avg10, avg60, then, woken at s, why
        let script = [
            (0, 0.0, 0.0, calm, None, "calm: the trigger wakes us"),
            (5, 39.9, 90.0, calm, None, "the last ten seconds were calm"),
            (10, 80.0, 39.9, calm, Some(20), "not for a minute yet"),
            (20, 40.0, 40.0, over(20), Some(30), "both, exactly"),
            (30, 5.0, 40.0, over(30), Some(40), "avg60 alone keeps it"),
            (40, 5.0, 39.0, over(30), Some(50), "ended, but held"),
            (50, 5.0, 60.0, over(30), Some(60), "avg60 begins nothing"),
            (59, 5.0, 30.0, over(30), Some(69), "a second short"),
            (60, 5.0, 30.0, calm, None, "over for the whole period"),
        ];
        let mut board = board(true);
        for (seconds, avg10, avg60, expected, wake, why) in script {
            board.apply_sample(IO, Some(StallSample { avg10, avg60 }), at(seconds));
            assert_eq!(board.pressures()[&IO], expected, "at {seconds} s: {why}");
            assert_eq!(board.wake_at(), wake.map(at), "at {seconds} s: {why}");
        }
    }

    #[test]
    fn what_cannot_be_read_for_two_periods_is_unknown() {
        let mut board = board(true);
        assert_eq!(board.due(at(0)).collect::<Vec<_>>(), [IO]);
        let high = StallSample {
            avg10: 90.0,
            avg60: 90.0,
        };
        let change = board.apply_sample(IO, Some(high), at(1)).unwrap();
        assert_eq!(change.from, Pressure::Unknown);
        assert!(
            board.apply_sample(IO, Some(high), at(2)).is_none(),
            "still so"
        );
        assert!(board.apply_sample(IO, None, at(3)).is_none(), "one look");
        assert!(
            board.apply_sample(IO, None, at(22)).is_none(),
            "a second short"
        );
        let change = board.apply_sample(IO, None, at(23)).unwrap();
        assert_eq!(change.to, Pressure::Unknown);
        assert_eq!(board.wake_at(), None, "nobody wakes up for it");
        assert_eq!(board.due(at(99)).count(), 1, "its trigger went with it");

        // What held it before holds it still, and no longer than that.
        let calm = StallSample {
            avg10: 0.0,
            avg60: 0.0,
        };
        board.apply_sample(IO, Some(calm), at(24));
        let held = Pressure::UnderPressure {
            last_exceeded: at(2),
        };
        assert_eq!(board.pressures()[&IO], held);
        board.apply_sample(IO, Some(calm), at(2 + 30));
        assert_eq!(board.pressures()[&IO], Pressure::Normal);
    }

    #[test]
    fn what_was_true_before_a_restart_is_held_and_looked_at() {
        let calm = StallSample {
            avg10: 0.0,
            avg60: 0.0,
        };
        let mut board = board(true);
        board.seed(IO, at(1));
        assert_eq!(board.pressures()[&IO], Pressure::Unknown, "nobody can see");
        board.apply_sample(IO, Some(calm), at(2));
        board.apply_sample(IO, Some(calm), at(3));
        board.seed(IO, at(12));
        assert_eq!(board.wake_at(), Some(at(22)));
        assert!(board.apply_sample(IO, Some(calm), at(22)).is_none(), "held");
        let change = board.apply_sample(IO, Some(calm), at(32)).unwrap();
        assert_eq!(change.to, Pressure::Normal, "30 s after the first look");
        assert_eq!(board.wake_at(), None);
        board.seed(IO, at(33));
        assert_eq!(board.pressures()[&IO], Pressure::Normal, "well for long");
    }

    #[test]
    fn without_a_trigger_it_is_read_in_passing() {
        let mut board = board(false);
        let calm = StallSample {
            avg10: 0.0,
            avg60: 0.0,
        };
        board.apply_sample(IO, Some(calm), at(0));
        assert_eq!(board.wake_at(), None, "nobody wakes up for it");
        assert_eq!(board.due(at(9)).count(), 0);
        assert_eq!(board.due(at(10)).count(), 1);
        board.apply_sample(IO, None, at(10));
        assert_eq!(board.due(at(20)).count(), 1, "it may be there later");
    }
}
