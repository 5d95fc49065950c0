//! Whether pods' processes are OOM-killed so often that it is a condition.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::BootNanos;
use crate::pressure::kept::KeptTrue;
use crate::pressure::source::SourceState;
use crate::pressure::{Exceeded, Pressure};

/// This many kills are frequent.
pub const FREQUENT: usize = 5;

/// If they occur within this time.
pub const WITHIN: Duration = Duration::from_mins(10);

/// The most recent kills.
///
/// ```text
/// Normal ──FREQUENT within WITHIN──► exceeded until WITHIN after the oldest of them
///   ▲                                             │
///   └────────────── transition period ────────────┘
/// ```
#[derive(Debug, Clone)]
pub struct KillWindow {
    transition_period: Duration,
    /// Whether the source of kills can be read.
    source: SourceState,
    /// At most [`FREQUENT`], the oldest first.
    newest: VecDeque<BootNanos>,
    /// Exceeded until the first moment at which fewer kills are within the window.
    kept: KeptTrue,
}

impl KillWindow {
    /// Without kills, and without a source.
    pub const fn new(transition_period: Duration) -> Self {
        Self {
            transition_period,
            source: SourceState::NeverRead,
            newest: VecDeque::new(),
            kept: KeptTrue::UNREAD,
        }
    }

    /// A source of kills is available at `now`.
    pub fn source_read(&mut self, now: BootNanos) {
        self.source = SourceState::Read;
        self.kept.readable(now);
    }

    /// No source of kills is available at `now`. Once it is lost (see [`SourceState`]), the number of
    /// kills is unknown.
    pub fn source_failed(&mut self, now: BootNanos) {
        self.source = self.source.failed(now);
        if self.source == SourceState::Lost {
            self.kept.lose();
        }
    }

    /// Applies from now on.
    pub const fn set_transition_period(&mut self, transition_period: Duration) {
        self.transition_period = transition_period;
    }

    /// Records `count` kills at `at`. They can arrive out of order and late.
    pub fn record_kills(&mut self, at: BootNanos, count: u64, now: BootNanos) {
        let at = at.min(now);
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(FREQUENT);
        let index = self.newest.partition_point(|known| *known <= at);
        for _ in 0..count {
            self.newest.insert(index, at);
        }
        while self.newest.len() > FREQUENT {
            self.newest.pop_front();
        }
        let (Some(oldest), Some(newest)) = (self.newest.front(), self.newest.back()) else {
            return;
        };
        if self.newest.len() == FREQUENT && newest.since(*oldest) <= WITHIN {
            self.restore(oldest.plus(WITHIN), now);
        }
    }

    /// The API server had the condition as True when the agent started: kept for a transition
    /// period that begins when the source became available.
    pub fn seed(&mut self, now: BootNanos) {
        self.kept.seed(self.transition_period, now);
    }

    /// Before a restart it was exceeded until `until`: kept as without the restart.
    pub fn restore(&mut self, until: BootNanos, now: BootNanos) {
        self.kept.restore(until);
        self.advance(now);
    }

    /// Until when it is exceeded, which may be in the future.
    pub fn exceeded(&self) -> Exceeded {
        self.kept
            .last_exceeded()
            .map_or(Exceeded::Never, Exceeded::At)
    }

    /// When the condition becomes False if there are no further kills.
    pub fn fall_at(&self) -> Option<BootNanos> {
        self.kept.ends_at(self.transition_period)
    }

    /// Ends the transition period if it has expired.
    pub fn advance(&mut self, now: BootNanos) {
        self.kept.advance(self.transition_period, now);
    }

    /// Whether kills are frequent.
    pub fn pressure(&self) -> Pressure {
        self.kept.pressure()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_mins(5);

    fn at(seconds: u64) -> BootNanos {
        BootNanos(seconds * 1_000_000_000)
    }

    fn is_exceeded(window: &KillWindow) -> bool {
        matches!(window.pressure(), Pressure::UnderPressure { .. })
    }

    fn available_since(seconds: u64) -> KillWindow {
        let mut window = KillWindow::new(PERIOD);
        window.source_read(at(seconds));
        window
    }

    /// Kills at the given seconds, recorded in this order.
    fn window_with(kills: &[u64]) -> KillWindow {
        let mut window = available_since(0);
        for kill in kills {
            window.record_kills(at(*kill), 1, at(2000));
        }
        window
    }

    #[test]
    fn five_within_ten_minutes_are_frequent_in_any_order() {
        let rows: [(&str, &[u64], bool); 7] = [
            ("four", &[1400, 1401, 1402, 1403], false),
            ("five", &[1400, 1401, 1402, 1403, 1404], true),
            ("just within", &[1400, 1401, 1402, 1403, 2000], true),
            ("just outside", &[1399, 1401, 1402, 1403, 2000], false),
            ("out of order", &[1700, 1500, 1800, 1600, 1900], true),
            (
                "the newest five count",
                &[1000, 1100, 1500, 1600, 1700, 1800, 1900],
                true,
            ),
            ("recorded after the window", &[1, 2, 3, 4, 5], false),
        ];
        for (name, kills, expected) in rows {
            assert_eq!(is_exceeded(&window_with(kills)), expected, "{name}");
        }
    }

    #[test]
    fn it_ends_a_transition_period_after_fewer_are_within_the_window() {
        let mut window = window_with(&[1600, 1650, 1700, 1750, 1800]);
        let end = at(1600).plus(WITHIN).plus(PERIOD);
        assert_eq!(window.fall_at(), Some(end));
        window.advance(BootNanos(end.0 - 1));
        assert!(is_exceeded(&window));

        // One more: the second oldest counts now.
        window.record_kills(at(2100), 1, at(2100));
        let end = at(1650).plus(WITHIN).plus(PERIOD);
        assert_eq!(window.fall_at(), Some(end));
        window.advance(end);
        assert_eq!(
            (window.pressure(), window.fall_at()),
            (Pressure::Normal, None)
        );
    }

    #[test]
    fn simultaneous_kills_all_count_and_a_future_time_counts_as_now() {
        let mut window = available_since(0);
        window.record_kills(at(9999), u64::MAX, at(100));
        assert_eq!(window.fall_at(), Some(at(100).plus(WITHIN).plus(PERIOD)));
        assert_eq!(window.newest.len(), FREQUENT);
    }

    #[test]
    fn a_condition_stored_as_true_is_kept_from_the_start_of_the_source_and_never_shortened() {
        let mut window = available_since(50);
        window.source_read(at(51));
        window.seed(at(200));
        assert_eq!(window.fall_at(), Some(at(50).plus(PERIOD)));
        window.record_kills(at(210), 5, at(210));
        window.seed(at(220));
        assert_eq!(window.fall_at(), Some(at(210).plus(WITHIN).plus(PERIOD)));

        let mut window = available_since(50);
        window.seed(at(50).plus(PERIOD));
        assert_eq!(
            window.pressure(),
            Pressure::Normal,
            "normal for the whole period"
        );
    }

    #[test]
    fn without_a_source_of_kills_the_state_is_unknown() {
        let mut window = KillWindow::new(PERIOD);
        window.seed(at(50));
        assert_eq!(
            (window.pressure(), window.fall_at()),
            (Pressure::Unknown, None)
        );
        window.source_read(at(60));
        assert_eq!(window.pressure(), Pressure::Normal);
        window.record_kills(at(70), 5, at(70));
        window.source_failed(at(75));
        window.source_failed(at(94));
        assert!(is_exceeded(&window), "not lost yet");
        window.source_failed(at(95));
        assert_eq!(
            window.pressure(),
            Pressure::Unknown,
            "an old state does not apply"
        );
        window.source_read(at(96));
        assert!(
            is_exceeded(&window),
            "the kills are still within the window"
        );
    }
}
