//! Decides if tasks wait so long for memory or disks that a condition becomes True: the rule of
//! KEP-5394.
//!
//! A trigger wakes the agent when a stall begins; then the file is read every ten seconds until the
//! stall is over. Without a trigger it is read at the same interval, when the agent is awake
//! anyway.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::BootNanos;
use crate::pressure::kept::KeptTrue;
use crate::pressure::source::SourceState;
use crate::pressure::{Exceeded, Pressure};
use crate::reading::{Stall, StallKind};

/// The interval at which a pressure file is read during a stall.
pub const READ_INTERVAL: Duration = Duration::from_secs(10);

/// `some` of a pressure file, in percent of the time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StallSample {
    pub avg10: f32,
    pub avg60: f32,
}

/// `psi.memory` and `psi.io`, in percent of the time.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct StallThresholds {
    pub memory: f32,
    pub io: f32,
}

impl StallThresholds {
    pub const fn of(self, kind: StallKind) -> f32 {
        match kind {
            StallKind::Memory => self.memory,
            StallKind::Io => self.io,
        }
    }
}

/// A change of the state of a stall. An extension of its transition period is not a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallChange {
    pub stall: Stall,
    pub from: Pressure,
    pub to: Pressure,
}

/// The time of the next read of a file, unless its trigger fires before.
///
/// ```text
///                    WhenAwake: at once
///    sample: calm,           │          sample: a stall, or the condition is True
///    with a trigger          ▼                          or seeded
/// OnTrigger ◄──────────── any state ────────────────────► WakeUp { at }
///                            │ sample: calm, or none; without a trigger
///                            ▼
///                      WhenAwake { at }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum NextRead {
    /// The file is read when the trigger fires.
    OnTrigger,
    /// The file is due at `at`, but read only when the agent is awake anyway.
    WhenAwake { at: BootNanos },
    /// The agent wakes up at `at`.
    WakeUp { at: BootNanos },
}

impl NextRead {
    /// Returns the earliest time, if it needs no trigger.
    const fn at(self) -> Option<BootNanos> {
        match self {
            Self::OnTrigger => None,
            Self::WhenAwake { at } | Self::WakeUp { at } => Some(at),
        }
    }

    const fn wakes_at(self) -> Option<BootNanos> {
        match self {
            Self::OnTrigger | Self::WhenAwake { .. } => None,
            Self::WakeUp { at } => Some(at),
        }
    }
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct StallState {
    kept: KeptTrue,
    source: SourceState,
    /// True if the last sample exceeded the threshold.
    exceeded: bool,
    /// The last sample, and the time of its read.
    last: Option<(StallSample, BootNanos)>,
    has_trigger: bool,
    next: NextRead,
}

impl StallState {
    /// The file is due at once.
    const fn unread(has_trigger: bool) -> Self {
        Self {
            kept: KeptTrue::UNREAD,
            source: SourceState::NeverRead,
            exceeded: false,
            last: None,
            has_trigger,
            next: NextRead::WhenAwake { at: BootNanos(0) },
        }
    }
}

/// The distance of a stall from its begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// Tasks waited for less than the threshold over 10 s, or the stall is in effect already.
    Calm,
    /// Tasks waited for as long as the threshold over 10 s, but not over a minute.
    Near,
    /// Both averages reach the threshold.
    Reached,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StallReading {
    pub stall: Stall,
    pub pressure: Pressure,
    /// In percent of the time.
    pub threshold: f32,
    /// The last sample, and the time of its read.
    pub last: Option<(StallSample, BootNanos)>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StallBoard {
    thresholds: StallThresholds,
    transition_period: Duration,
    #[serde(with = "crate::pairs")]
    states: BTreeMap<Stall, StallState>,
}

impl StallBoard {
    /// Each stall comes with true if it has a trigger. All files are due at once.
    pub fn new(
        thresholds: StallThresholds,
        transition_period: Duration,
        stalls: impl IntoIterator<Item = (Stall, bool)>,
    ) -> Self {
        let unread = |(stall, has_trigger)| (stall, StallState::unread(has_trigger));
        Self {
            thresholds,
            transition_period,
            states: stalls.into_iter().map(unread).collect(),
        }
    }

    /// Monitors these stalls and no others. Returns the new ones, which have no trigger.
    pub fn watch(&mut self, stalls: &BTreeSet<Stall>) -> Vec<Stall> {
        self.states.retain(|stall, _| stalls.contains(stall));
        let mut added: Vec<Stall> = stalls.iter().copied().collect();
        added.retain(|stall| !self.watches(*stall));
        let unread = added
            .iter()
            .map(|stall| (*stall, StallState::unread(false)));
        self.states.extend(unread);
        added
    }

    pub fn watches(&self, stall: Stall) -> bool {
        self.states.contains_key(&stall)
    }

    /// Applies from the next sample on.
    pub const fn set_transition_period(&mut self, period: Duration) {
        self.transition_period = period;
    }

    pub fn pressures(&self) -> BTreeMap<Stall, Pressure> {
        let all = self.states.iter();
        all.map(|(stall, state)| (*stall, state.kept.pressure()))
            .collect()
    }

    pub fn readings(&self) -> impl Iterator<Item = StallReading> {
        self.states.iter().map(|(stall, state)| StallReading {
            stall: *stall,
            pressure: state.kept.pressure(),
            threshold: self.thresholds.of(stall.kind),
            last: state.last,
        })
    }

    /// Applies a condition that the API server had as True when the agent started, which is known
    /// since `now`: it is kept for a transition period that begins when the stall was first seen to
    /// be over, and sampled. A stall that cannot be read stays unknown.
    pub fn seed(&mut self, stall: Stall, now: BootNanos) {
        if let Some(state) = self.states.get_mut(&stall)
            && state.kept.seed(self.transition_period, now)
        {
            let at = now.plus(READ_INTERVAL);
            state.next = NextRead::WakeUp { at };
        }
    }

    /// Continues a transition period that began at `last_exceeded`, before a restart, from the
    /// first successful sample on.
    pub fn restore(&mut self, stall: Stall, last_exceeded: BootNanos) {
        if let Some(state) = self.states.get_mut(&stall) {
            state.kept.restore(last_exceeded);
        }
    }

    /// Includes the time of a stall that cannot be read at present.
    pub fn exceeded(&self, stall: Stall) -> Exceeded {
        match self.states.get(&stall) {
            Some(state) if state.exceeded => Exceeded::Now,
            Some(state) => {
                let last_exceeded = state.kept.last_exceeded();
                last_exceeded.map_or(Exceeded::Never, Exceeded::At)
            }
            None => Exceeded::Never,
        }
    }

    pub fn begin(&self, stall: Stall) -> Begin {
        let threshold = self.thresholds.of(stall.kind);
        let is_open = |state: &&StallState| !state.exceeded && state.source == SourceState::Read;
        let last = self.states.get(&stall).filter(is_open);
        let last = last.and_then(|state| Some(state.last?.0));
        match last {
            Some(last) if last.avg10 < threshold => Begin::Calm,
            Some(last) if last.avg60 < threshold => Begin::Near,
            Some(_) => Begin::Reached,
            None => Begin::Calm,
        }
    }

    /// Returns the threshold of a stall, in percent of the time.
    pub const fn threshold(&self, stall: Stall) -> f32 {
        self.thresholds.of(stall.kind)
    }

    /// Returns the time at which to wake up to read a file; `None` if no stall requires it.
    pub fn wake_at(&self) -> Option<BootNanos> {
        let states = self.states.values();
        states.filter_map(|state| state.next.wakes_at()).min()
    }

    pub fn due(&self, now: BootNanos) -> impl Iterator<Item = Stall> {
        let due = move |state: &StallState| state.next.at().is_some_and(|at| at <= now);
        let states = self.states.iter().filter(move |(_, state)| due(state));
        states.map(|(stall, _)| *stall)
    }

    /// Applies a sample of one file; `None` if it cannot be read. The state stays until the file is
    /// lost (see [`SourceState`]), and is unknown from then on. A stall that is not in effect
    /// begins only if it `may_begin`.
    pub fn apply_sample(
        &mut self,
        stall: Stall,
        sample: Option<StallSample>,
        may_begin: bool,
        now: BootNanos,
    ) -> Option<StallChange> {
        let state = self.states.get_mut(&stall)?;
        let from = state.kept.pressure();
        let threshold = self.thresholds.of(stall.kind);
        let high = |percent: f32| percent >= threshold;
        let begins = |s: StallSample| may_begin && high(s.avg10);
        state.exceeded = sample.is_some_and(|s| high(s.avg60) && (state.exceeded || begins(s)));
        state.last = sample.map(|sample| (sample, now)).or(state.last);
        state.source = match sample {
            Some(_) => SourceState::Read,
            None => state.source.failed(now),
        };
        match state.source {
            SourceState::Read if state.exceeded => state.kept.exceed(now),
            SourceState::Read => {
                // A transition period continues after the file was lost.
                state.kept.advance(self.transition_period, now);
                state.kept.readable(now);
            }
            SourceState::Failing { .. } => {}
            SourceState::Lost | SourceState::NeverRead => state.kept.lose(),
        }
        let to = state.kept.pressure();
        let under = matches!(to, Pressure::UnderPressure { .. });
        // A removed cgroup took its trigger along; the next cgroup with its name has none.
        state.has_trigger &= sample.is_some();
        let at = now.plus(READ_INTERVAL);
        state.next = if under || sample.is_some_and(|s| high(s.avg10)) {
            NextRead::WakeUp { at }
        } else if state.has_trigger {
            NextRead::OnTrigger
        } else {
            NextRead::WhenAwake { at }
        };
        let changed = std::mem::discriminant(&from) != std::mem::discriminant(&to);
        changed.then_some(StallChange { stall, from, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::StallOf;
    use crate::tests::boot as at;

    const IO: Stall = Stall::new(StallOf::Node, StallKind::Io);
    const PERIOD: Duration = Duration::from_secs(30);
    const THRESHOLDS: StallThresholds = StallThresholds {
        memory: 15.0,
        io: 40.0,
    };

    /// Returns a sample with this percentage in both averages.
    #[expect(clippy::unnecessary_wraps, reason = "as it is passed")]
    const fn both(percent: f32) -> Option<StallSample> {
        Some(StallSample {
            avg10: percent,
            avg60: percent,
        })
    }

    fn board(has_trigger: bool) -> StallBoard {
        StallBoard::new(THRESHOLDS, PERIOD, [(IO, has_trigger)])
    }

    #[test]
    fn both_averages_begin_a_stall_and_the_longer_one_ends_it() {
        let exceeded = |seconds| Pressure::UnderPressure {
            last_exceeded: at(seconds),
        };
        let normal = Pressure::Normal;
        // At s, avg10, avg60; then, woken at s, why.
        #[rustfmt::skip]
        let script = [
            (0, 0.0, 0.0, normal, None, "no stall: the trigger wakes the agent"),
            (5, 39.9, 90.0, normal, None, "no stall in the last ten seconds"),
            (10, 80.0, 39.9, normal, Some(20), "not for a minute yet"),
            (20, 40.0, 40.0, exceeded(20), Some(30), "both, exactly"),
            (30, 5.0, 40.0, exceeded(30), Some(40), "avg60 alone keeps it"),
            (40, 5.0, 39.0, exceeded(30), Some(50), "ended, but kept True"),
            (50, 5.0, 60.0, exceeded(30), Some(60), "avg60 alone starts nothing"),
            (59, 5.0, 30.0, exceeded(30), Some(69), "one second short"),
            (60, 5.0, 30.0, normal, None, "not exceeded for the whole period"),
        ];
        let mut board = board(true);
        for (seconds, avg10, avg60, expected, wake, why) in script {
            board.apply_sample(IO, Some(StallSample { avg10, avg60 }), true, at(seconds));
            assert_eq!(board.pressures()[&IO], expected, "at {seconds} s: {why}");
            assert_eq!(board.wake_at(), wake.map(at), "at {seconds} s: {why}");
        }
    }

    #[test]
    fn it_is_exceeded_now_or_was_at_some_time_or_never() {
        let mut board = board(true);
        assert_eq!(board.exceeded(IO), Exceeded::Never);
        board.apply_sample(IO, both(50.0), true, at(1));
        assert_eq!(board.exceeded(IO), Exceeded::Now);
        board.apply_sample(IO, both(1.0), true, at(11));
        assert_eq!(board.exceeded(IO), Exceeded::At(at(1)));
        let other = Stall::new(StallOf::Pods, StallKind::Io);
        assert_eq!(board.exceeded(other), Exceeded::Never, "not monitored");
    }

    #[test]
    fn each_resource_has_its_threshold() {
        let rows = [
            (StallKind::Memory, 15.0, true),
            (StallKind::Memory, 14.9, false),
            (StallKind::Io, 39.9, false),
            (StallKind::Io, 40.0, true),
        ];
        for (kind, percent, expected) in rows {
            for of in [StallOf::Node, StallOf::Pods] {
                let stall = Stall::new(of, kind);
                let mut board = StallBoard::new(THRESHOLDS, PERIOD, [(stall, true)]);
                board.apply_sample(stall, both(percent), true, at(1));
                let exceeded = matches!(board.pressures()[&stall], Pressure::UnderPressure { .. });
                assert_eq!(exceeded, expected, "{kind:?} of {of:?} at {percent} %");
            }
        }
    }

    #[test]
    fn a_stall_that_cannot_be_read_for_two_periods_is_unknown() {
        let mut board = board(true);
        assert_eq!(board.due(at(0)).collect::<Vec<_>>(), [IO]);
        let (high, normal) = (both(90.0), both(0.0));
        let change = board.apply_sample(IO, high, true, at(1)).unwrap();
        assert_eq!(change.from, Pressure::Unknown);
        assert!(
            board.apply_sample(IO, high, true, at(2)).is_none(),
            "unchanged"
        );
        assert!(
            board.apply_sample(IO, None, true, at(3)).is_none(),
            "one failure"
        );
        assert!(
            board.apply_sample(IO, None, true, at(22)).is_none(),
            "one second short"
        );
        let change = board.apply_sample(IO, None, true, at(23)).unwrap();
        assert_eq!(change.to, Pressure::Unknown);
        assert_eq!(board.wake_at(), None, "not worth a wake-up");
        assert_eq!(board.due(at(99)).count(), 1, "it lost its trigger");

        // The transition period continues, and is not longer than before.
        board.apply_sample(IO, normal, true, at(24));
        let kept = Pressure::UnderPressure {
            last_exceeded: at(2),
        };
        assert_eq!(board.pressures()[&IO], kept);
        board.apply_sample(IO, normal, true, at(2 + 30));
        assert_eq!(board.pressures()[&IO], Pressure::Normal);
    }

    #[test]
    fn a_condition_stored_as_true_is_kept_and_sampled() {
        let normal = both(0.0);
        let mut board = board(true);
        board.seed(IO, at(1));
        assert_eq!(board.pressures()[&IO], Pressure::Unknown, "not sampled yet");
        board.apply_sample(IO, normal, true, at(2));
        board.apply_sample(IO, normal, true, at(3));
        board.seed(IO, at(12));
        assert_eq!(board.wake_at(), Some(at(22)));
        assert!(
            board.apply_sample(IO, normal, true, at(22)).is_none(),
            "kept"
        );
        let change = board.apply_sample(IO, normal, true, at(32)).unwrap();
        assert_eq!(change.to, Pressure::Normal, "30 s after the first sample");
        assert_eq!(board.wake_at(), None);
        board.seed(IO, at(33));
        assert_eq!(board.pressures()[&IO], Pressure::Normal, "normal for long");
    }

    #[test]
    fn without_a_trigger_it_is_read_when_the_agent_is_awake() {
        let mut board = board(false);
        let normal = both(0.0);
        board.apply_sample(IO, normal, true, at(0));
        assert_eq!(board.wake_at(), None, "not worth a wake-up");
        assert_eq!(board.due(at(9)).count(), 0);
        assert_eq!(board.due(at(10)).count(), 1);
        board.apply_sample(IO, None, true, at(10));
        assert_eq!(board.due(at(20)).count(), 1, "it may be there later");
    }
}
