//! Whether processes of pods are killed so often that it is a condition.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::BootNanos;
use crate::pressure::source::Source;
use crate::pressure::{Exceeded, Pressure};

/// So many kills are frequent.
pub const FREQUENT: usize = 5;

/// Within this time.
pub const WITHIN: Duration = Duration::from_mins(10);

/// The newest kills.
///
/// ```text
/// Relieved ──FREQUENT within WITHIN──► over until WITHIN after the oldest of them
///     ▲                                             │
///     └──────────── transition period ──────────────┘
/// ```
#[derive(Debug, Clone)]
pub struct KillWindow {
    transition_period: Duration,
    /// Since when something tells of kills; `None`: nothing does.
    available_since: Option<BootNanos>,
    /// Whether what tells of kills can be read.
    source: Source,
    /// At most [`FREQUENT`], the oldest first.
    newest: VecDeque<BootNanos>,
    /// The first moment at which fewer are within the window; past while it is only held.
    exceeded_until: Option<BootNanos>,
}

impl KillWindow {
    /// Without kills, and with nothing that tells of them.
    #[must_use]
    pub const fn new(transition_period: Duration) -> Self {
        Self {
            transition_period,
            available_since: None,
            source: Source::NeverRead,
            newest: VecDeque::new(),
            exceeded_until: None,
        }
    }

    /// Something tells of kills, from `now` on unless it did before.
    pub fn source_read(&mut self, now: BootNanos) {
        self.source = Source::Read;
        self.available_since.get_or_insert(now);
    }

    /// Nothing tells of kills at `now`. Once that is lost (see [`Source`]), how many there are is not
    /// known.
    pub fn source_failed(&mut self, now: BootNanos) {
        self.source = self.source.failed(now);
        if self.source == Source::Lost {
            self.available_since = None;
        }
    }

    /// From here on.
    pub const fn set_transition_period(&mut self, transition_period: Duration) {
        self.transition_period = transition_period;
    }

    /// Takes note of `count` kills at `at`. Records can come out of order, and late.
    pub fn record_kills(&mut self, at: BootNanos, count: u64, now: BootNanos) {
        let at = at.min(now);
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(FREQUENT);
        let place = self.newest.partition_point(|known| *known <= at);
        for _ in 0..count {
            self.newest.insert(place, at);
        }
        while self.newest.len() > FREQUENT {
            self.newest.pop_front();
        }
        let (Some(oldest), Some(newest)) = (self.newest.front(), self.newest.back()) else {
            return;
        };
        if self.newest.len() == FREQUENT && newest.since(*oldest) <= WITHIN {
            self.hold(oldest.plus(WITHIN));
            self.advance(now);
        }
    }

    /// The API server has it as True when we start: held for a transition period from when we began
    /// to be told of kills.
    pub fn seed(&mut self, now: BootNanos) {
        if let Some(since) = self.available_since {
            self.hold(since);
            self.advance(now);
        }
    }

    /// Before a restart it was over until `until`: held as if there had been none.
    pub fn restore(&mut self, until: BootNanos, now: BootNanos) {
        self.hold(until);
        self.advance(now);
    }

    /// Until when it is over, which may be in the future.
    #[must_use]
    pub fn exceeded(&self) -> Exceeded {
        self.exceeded_until.map_or(Exceeded::Never, Exceeded::At)
    }

    fn hold(&mut self, until: BootNanos) {
        self.exceeded_until = self.exceeded_until.max(Some(until));
    }

    /// When the condition ends, if no more are killed.
    #[must_use]
    pub fn fall_at(&self) -> Option<BootNanos> {
        self.exceeded_until
            .map(|until| until.plus(self.transition_period))
    }

    /// Time goes by.
    pub fn advance(&mut self, now: BootNanos) {
        if self.fall_at().is_some_and(|at| at <= now) {
            self.exceeded_until = None;
        }
    }

    /// Whether kills are frequent.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        match self.exceeded_until {
            _ if self.available_since.is_none() => Pressure::Unknown,
            Some(last_exceeded) => Pressure::UnderPressure { last_exceeded },
            None => Pressure::Normal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_mins(5);

    fn at(seconds: u64) -> BootNanos {
        BootNanos(seconds * 1_000_000_000)
    }

    fn is_over(window: &KillWindow) -> bool {
        matches!(window.pressure(), Pressure::UnderPressure { .. })
    }

    fn available_since(seconds: u64) -> KillWindow {
        let mut window = KillWindow::new(PERIOD);
        window.source_read(at(seconds));
        window
    }

    /// Each kill at its second, told in this order at once.
    fn told(kills: &[u64]) -> KillWindow {
        let mut window = available_since(0);
        for kill in kills {
            window.record_kills(at(*kill), 1, at(2000));
        }
        window
    }

    #[test]
    fn five_within_ten_minutes_are_frequent_in_whatever_order_they_are_told() {
        let rows: [(&str, &[u64], bool); 7] = [
            ("four", &[1400, 1401, 1402, 1403], false),
            ("five", &[1400, 1401, 1402, 1403, 1404], true),
            ("just within", &[1400, 1401, 1402, 1403, 2000], true),
            ("just not", &[1399, 1401, 1402, 1403, 2000], false),
            ("out of order", &[1700, 1500, 1800, 1600, 1900], true),
            (
                "the newest five count",
                &[1000, 1100, 1500, 1600, 1700, 1800, 1900],
                true,
            ),
            ("told when it is over", &[1, 2, 3, 4, 5], false),
        ];
        for (name, kills, expected) in rows {
            assert_eq!(is_over(&told(kills)), expected, "{name}");
        }
    }

    #[test]
    fn it_ends_a_transition_period_after_fewer_are_within_the_window() {
        let mut window = told(&[1600, 1650, 1700, 1750, 1800]);
        let end = at(1600).plus(WITHIN).plus(PERIOD);
        assert_eq!(window.fall_at(), Some(end));
        window.advance(BootNanos(end.0 - 1));
        assert!(is_over(&window));

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
    fn many_at_once_count_as_many_and_the_future_is_now() {
        let mut window = available_since(0);
        window.record_kills(at(9999), u64::MAX, at(100));
        assert_eq!(window.fall_at(), Some(at(100).plus(WITHIN).plus(PERIOD)));
        assert_eq!(window.newest.len(), FREQUENT);
    }

    #[test]
    fn what_was_true_before_a_restart_is_held_from_when_we_are_told_and_never_shortened() {
        let mut window = available_since(50);
        window.source_read(at(51));
        window.seed(at(200));
        assert_eq!(window.fall_at(), Some(at(50).plus(PERIOD)));
        window.record_kills(at(210), 5, at(210));
        window.seed(at(220));
        assert_eq!(window.fall_at(), Some(at(210).plus(WITHIN).plus(PERIOD)));

        let mut window = available_since(50);
        window.seed(at(50).plus(PERIOD));
        assert_eq!(window.pressure(), Pressure::Normal, "well for as long");
    }

    #[test]
    fn where_nothing_tells_of_kills_nothing_is_known() {
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
        assert!(is_over(&window), "one look decides nothing");
        window.source_failed(at(95));
        assert_eq!(window.pressure(), Pressure::Unknown, "no old truth");
        window.source_read(at(96));
        assert!(is_over(&window), "what is known is within the window yet");
    }
}
