//! Decides if processes of pods are OOM-killed so often, in so many pods, that it is a condition.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::BootNanos;
use crate::pressure::kept::KeptTrue;
use crate::pressure::source::SourceState;
use crate::pressure::{Exceeded, Pressure};

/// `oom.frequent`: the limits from which on OOM kills are frequent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FrequentOom {
    /// The least number of incidents. One decision of the kernel is one incident.
    pub incidents: usize,
    /// The least number of different pods.
    pub pods: usize,
    /// The time within which incidents count.
    pub window: Duration,
}

/// The most recent incidents in pods, which `P` identifies.
///
/// ```text
/// Normal ──enough incidents in enough pods──► exceeded until a window after the oldest of them
///   ▲                                                              │
///   └───────────────────────── transition period ──────────────────┘
/// ```
///
/// At most `incidents` times and `pods` pods are stored, which suffices: the window must reach back
/// to the oldest of the newest `incidents` incidents, and to the newest incident of each of the
/// newest `pods` pods.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IncidentWindow<P> {
    limits: FrequentOom,
    transition_period: Duration,
    /// The source of kills.
    source: SourceState,
    /// The newest incidents, the oldest first.
    newest: VecDeque<BootNanos>,
    /// The pods of the newest incidents, each with its newest one, the oldest first.
    pods: VecDeque<(P, BootNanos)>,
    /// Exceeded until the first time at which fewer incidents or pods are within the window.
    kept: KeptTrue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IncidentCounts {
    /// Counted up to the limit.
    pub incidents: usize,
    /// Different pods, counted up to the limit.
    pub pods: usize,
    pub limits: FrequentOom,
}

impl<P: PartialEq> IncidentWindow<P> {
    pub const fn new(limits: FrequentOom, transition_period: Duration) -> Self {
        Self {
            limits,
            transition_period,
            source: SourceState::NeverRead,
            newest: VecDeque::new(),
            pods: VecDeque::new(),
            kept: KeptTrue::UNREAD,
        }
    }

    pub fn source_read(&mut self, now: BootNanos) {
        self.source = SourceState::Read;
        self.kept.readable(now);
    }

    /// Takes the information that no source of kills is available at `now`. Once it is lost (see
    /// [`SourceState`]), the number of kills is unknown.
    pub fn source_failed(&mut self, now: BootNanos) {
        self.source = self.source.failed(now);
        if self.source == SourceState::Lost {
            self.kept.lose();
        }
    }

    /// The limits apply from the next incident on.
    pub const fn configure(&mut self, limits: FrequentOom, transition_period: Duration) {
        self.limits = limits;
        self.transition_period = transition_period;
    }

    pub const fn window(&self) -> Duration {
        self.limits.window
    }

    pub fn counts(&self, now: BootNanos) -> IncidentCounts {
        let is_recent = |at: BootNanos| now.since(at) <= self.limits.window;
        IncidentCounts {
            incidents: self.newest.iter().filter(|at| is_recent(**at)).count(),
            pods: self.pods.iter().filter(|(_, at)| is_recent(*at)).count(),
            limits: self.limits,
        }
    }

    /// Records an incident at `at`. Incidents can arrive out of order and late.
    pub fn record_incident(&mut self, pod: P, at: BootNanos, now: BootNanos) {
        let at = at.min(now);
        let index = self.newest.partition_point(|known| *known <= at);
        self.newest.insert(index, at);
        let known = self.pods.iter().position(|(known, _)| *known == pod);
        let known = known.and_then(|index| self.pods.remove(index));
        let latest = known.map_or(at, |(_, latest)| latest.max(at));
        let index = self.pods.partition_point(|(_, known)| *known <= latest);
        self.pods.insert(index, (pod, latest));
        while self.newest.len() > self.limits.incidents {
            self.newest.pop_front();
        }
        while self.pods.len() > self.limits.pods {
            self.pods.pop_front();
        }
        let (Some(incident), Some((_, pod)), Some(newest)) =
            (self.newest.front(), self.pods.front(), self.newest.back())
        else {
            return;
        };
        let oldest = *incident.min(pod);
        let enough =
            self.newest.len() == self.limits.incidents && self.pods.len() == self.limits.pods;
        if enough && newest.since(oldest) <= self.limits.window {
            self.restore(oldest.plus(self.limits.window), now);
        }
    }

    /// Applies a condition that the API server had as True when the agent started: it is kept for a
    /// transition period that begins when the source became available.
    pub fn seed(&mut self, now: BootNanos) {
        self.kept.seed(self.transition_period, now);
    }

    /// Continues a condition that was exceeded until `until`, before a restart.
    pub fn restore(&mut self, until: BootNanos, now: BootNanos) {
        self.kept.restore(until);
        self.advance(now);
    }

    /// The time may be in the future.
    pub fn exceeded(&self) -> Exceeded {
        self.kept
            .last_exceeded()
            .map_or(Exceeded::Never, Exceeded::At)
    }

    /// Returns the time at which the condition becomes False if there are no further kills.
    pub fn fall_at(&self) -> Option<BootNanos> {
        self.kept.ends_at(self.transition_period)
    }

    /// Ends the transition period if it has expired.
    pub fn advance(&mut self, now: BootNanos) {
        self.kept.advance(self.transition_period, now);
    }

    pub fn pressure(&self) -> Pressure {
        self.kept.pressure()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::boot as at;

    const PERIOD: Duration = Duration::from_mins(5);
    const WITHIN: Duration = Duration::from_mins(10);
    const LIMITS: FrequentOom = FrequentOom {
        incidents: 5,
        pods: 3,
        window: WITHIN,
    };

    type Window = IncidentWindow<char>;

    fn is_exceeded(window: &Window) -> bool {
        matches!(window.pressure(), Pressure::UnderPressure { .. })
    }

    fn available_since(seconds: u64) -> Window {
        let mut window = Window::new(LIMITS, PERIOD);
        window.source_read(at(seconds));
        window
    }

    /// Records incidents in pods at the given seconds, in this order.
    fn record(window: &mut Window, incidents: &[(char, u64)], now: u64) {
        for (pod, seconds) in incidents {
            window.record_incident(*pod, at(*seconds), at(now));
        }
    }

    fn window_with(incidents: &[(char, u64)]) -> Window {
        let mut window = available_since(0);
        record(&mut window, incidents, 2000);
        window
    }

    /// Name, incidents, frequent.
    type Row<'a> = (&'a str, &'a [(char, u64)], bool);

    #[test]
    fn five_incidents_in_three_pods_within_ten_minutes_are_frequent_in_any_order() {
        #[rustfmt::skip]
        let rows: [Row<'_>; 12] = [
            ("four", &[('a', 1400), ('b', 1401), ('c', 1402), ('d', 1403)], false),
            ("five", &[('a', 1400), ('b', 1401), ('c', 1402), ('a', 1403), ('a', 1404)], true),
            ("one pod", &[('a', 1400), ('a', 1401), ('a', 1402), ('a', 1403), ('a', 1404), ('a', 1405)], false),
            ("two pods", &[('a', 1400), ('b', 1401), ('a', 1402), ('b', 1403), ('a', 1404), ('b', 1405)], false),
            ("the third pod last", &[('a', 1400), ('b', 1401), ('a', 1402), ('b', 1403), ('a', 1404), ('c', 1405)], true),
            ("just within", &[('a', 1400), ('b', 1401), ('b', 1402), ('b', 1403), ('c', 2000)], true),
            ("just outside", &[('a', 1399), ('b', 1401), ('b', 1402), ('b', 1403), ('c', 2000)], false),
            ("out of order", &[('a', 1700), ('b', 1500), ('c', 1800), ('a', 1600), ('b', 1900)], true),
            ("a pod of long ago", &[('c', 100), ('a', 1500), ('b', 1600), ('a', 1700), ('b', 1800), ('a', 1900)], false),
            ("a pod again", &[('c', 100), ('a', 1500), ('b', 1600), ('a', 1700), ('c', 1800), ('a', 1900)], true),
            ("five different pods", &[('a', 1500), ('b', 1600), ('c', 1700), ('d', 1800), ('e', 1900)], true),
            ("recorded after the window", &[('a', 1), ('b', 2), ('c', 3), ('a', 4), ('b', 5)], false),
        ];
        for (name, incidents, expected) in rows {
            assert_eq!(is_exceeded(&window_with(incidents)), expected, "{name}");
        }
    }

    #[test]
    fn it_ends_a_transition_period_after_too_few_are_within_the_window() {
        let all = [
            ('a', 1600),
            ('b', 1650),
            ('b', 1700),
            ('c', 1750),
            ('c', 1800),
        ];
        let mut window = window_with(&all);
        let end = at(1600).plus(WITHIN).plus(PERIOD);
        assert_eq!(window.fall_at(), Some(end));
        window.advance(BootNanos(end.0 - 1));
        assert!(is_exceeded(&window));

        // The five newest begin at 1650 s, but the third pod's is still that of 1600 s.
        record(&mut window, &[('c', 2100)], 2100);
        assert_eq!(window.fall_at(), Some(end));
        record(&mut window, &[('a', 2101)], 2101);
        // The newest incident of pod b.
        let end = at(1700).plus(WITHIN).plus(PERIOD);
        assert_eq!(window.fall_at(), Some(end));
        window.advance(end);
        assert_eq!(
            (window.pressure(), window.fall_at()),
            (Pressure::Normal, None)
        );
    }

    #[test]
    fn what_is_stored_is_bounded_and_a_future_time_counts_as_now() {
        let mut window = available_since(0);
        for pod in ('a'..='z').cycle().take(10_000) {
            window.record_incident(pod, at(9999), at(100));
        }
        assert_eq!(window.fall_at(), Some(at(100).plus(WITHIN).plus(PERIOD)));
        assert_eq!((window.newest.len(), window.pods.len()), (5, 3));
    }

    #[test]
    fn changed_limits_apply_from_the_next_incident_on() {
        let mut window = available_since(0);
        record(&mut window, &[('a', 1), ('a', 2)], 2);
        let limits = FrequentOom {
            incidents: 3,
            pods: 1,
            window: WITHIN,
        };
        window.configure(limits, PERIOD);
        assert!(!is_exceeded(&window));
        record(&mut window, &[('a', 3)], 3);
        assert!(is_exceeded(&window));
    }

    const ENOUGH: [(char, u64); 5] = [('a', 210), ('b', 210), ('c', 210), ('a', 210), ('b', 210)];

    #[test]
    fn a_condition_stored_as_true_is_kept_from_the_start_of_the_source_and_never_shortened() {
        let mut window = available_since(50);
        window.source_read(at(51));
        window.seed(at(200));
        assert_eq!(window.fall_at(), Some(at(50).plus(PERIOD)));
        record(&mut window, &ENOUGH, 210);
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
        let mut window = Window::new(LIMITS, PERIOD);
        window.seed(at(50));
        assert_eq!(
            (window.pressure(), window.fall_at()),
            (Pressure::Unknown, None)
        );
        window.source_read(at(60));
        assert_eq!(window.pressure(), Pressure::Normal);
        record(&mut window, &ENOUGH, 210);
        window.source_failed(at(215));
        window.source_failed(at(234));
        assert!(is_exceeded(&window), "not lost yet");
        window.source_failed(at(235));
        assert_eq!(
            window.pressure(),
            Pressure::Unknown,
            "an old state does not apply"
        );
        window.source_read(at(236));
        assert!(
            is_exceeded(&window),
            "the incidents are still within the window"
        );
    }
}
