//! Whether a disk responds late: by its slow windows, and by whether other tasks wait.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::DiskRules;
use crate::clock::BootNanos;

/// At most this many slow windows are stored for each disk: one a second in twice the longest
/// `diskIO.slowFor`.
const MAX_WINDOWS: usize = 1200;

/// Who waits for I/O is read this long before `diskIO.slowFor` is reached, because it takes a second.
const LEAD: Duration = Duration::from_secs(2);

/// A slow window: at least half of its latency-sensitive requests took the limit or longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Latency-sensitive requests.
    pub judged: u32,
    /// Those of them that took the limit or longer.
    pub slow: u32,
    /// How long the window was.
    pub length: Duration,
    /// The longest of them.
    pub longest: Duration,
}

/// ```text
///            slow windows for slowFor within twice that, and others wait
/// Responsive ───────────────────────────────────────────────────────────► Slow
///      ▲                                                                   │
///      └──────────── less than slowFor of slow windows within that ────────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Latency {
    #[default]
    Responsive,
    Slow,
}

/// The slow windows of a disk, and what follows from them.
#[derive(Debug, Clone, Default)]
pub(super) struct Slowness {
    /// Each with its end, in the order of their ends.
    windows: VecDeque<(BootNanos, Window)>,
    latency: Latency,
}

/// What the slow windows of a disk contain: for texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowRequests {
    /// Latency-sensitive requests in slow windows.
    pub judged: u64,
    /// Those of them that took the limit or longer.
    pub slow: u64,
    /// The longest of them.
    pub longest: Duration,
    /// The length of all slow windows.
    pub length: Duration,
    /// When the first of them began.
    pub since: BootNanos,
}

/// Whether tasks other than the main user of the disk wait for I/O.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) enum OthersWait {
    /// It was not read recently.
    #[default]
    Unread,
    /// It was read.
    Read {
        /// For which share of the time, in percent. `None`: there is no PSI.
        percent: Option<f32>,
        /// When.
        at: BootNanos,
    },
}

impl OthersWait {
    /// It is read again after this time.
    const VALID: Duration = Duration::from_secs(5);

    fn is_valid(self, now: BootNanos) -> bool {
        matches!(self, Self::Read { at, .. } if now.since(at) < Self::VALID)
    }

    /// Without PSI, the slow windows alone decide.
    fn confirms(self, rules: &DiskRules, now: BootNanos) -> bool {
        let Self::Read { percent, .. } = self else {
            return false;
        };
        self.is_valid(now) && percent.is_none_or(|percent| percent >= rules.min_stall)
    }
}

impl Slowness {
    pub(super) const fn is_slow(&self) -> bool {
        matches!(self.latency, Latency::Slow)
    }

    /// Whether there are slow windows that still count.
    pub(super) fn is_suspected(&self) -> bool {
        !self.windows.is_empty()
    }

    /// A slow window ended at `end`.
    pub(super) fn add(&mut self, window: Window, end: BootNanos) {
        if self.windows.len() == MAX_WINDOWS {
            self.windows.pop_front();
        }
        self.windows.push_back((end, window));
    }

    /// Whether it has to be known if others wait.
    pub(super) fn needs_io_wait(
        &self,
        rules: &DiskRules,
        others: OthersWait,
        now: BootNanos,
    ) -> bool {
        let soon = self.slow_time(rules, now).saturating_add(LEAD) >= rules.slow_for;
        self.is_suspected() && !self.is_slow() && soon && !others.is_valid(now)
    }

    /// Updates the state. Returns whether it changed.
    pub(super) fn update(&mut self, rules: &DiskRules, others: OthersWait, now: BootNanos) -> bool {
        let period = rules.slow_for.saturating_mul(2);
        while let Some((end, _)) = self.windows.front()
            && now.since(*end) >= period
        {
            self.windows.pop_front();
        }
        let enough = self.slow_time(rules, now) >= rules.slow_for;
        let next = match self.latency {
            Latency::Responsive if enough && others.confirms(rules, now) => Latency::Slow,
            Latency::Slow if !enough => Latency::Responsive,
            unchanged => unchanged,
        };
        let changed = self.latency != next;
        self.latency = next;
        changed
    }

    /// What the slow windows contain; `None` if there are none.
    pub(super) fn requests(&self) -> Option<SlowRequests> {
        let (end, first) = self.windows.front()?;
        let mut all = SlowRequests {
            judged: 0,
            slow: 0,
            longest: Duration::ZERO,
            length: Duration::ZERO,
            since: end.minus(first.length),
        };
        for (_, window) in &self.windows {
            all.judged = all.judged.saturating_add(window.judged.into());
            all.slow = all.slow.saturating_add(window.slow.into());
            all.longest = all.longest.max(window.longest);
            all.length = all.length.saturating_add(window.length);
        }
        Some(all)
    }

    /// The time of slow windows within twice `slowFor`.
    fn slow_time(&self, rules: &DiskRules, now: BootNanos) -> Duration {
        let from = now.minus(rules.slow_for.saturating_mul(2));
        let within = |(end, window): &(BootNanos, Window)| window.length.min(end.since(from));
        self.windows.iter().map(within).sum()
    }
}

impl fmt::Display for SlowRequests {
    /// `61 of 65 latency-sensitive requests slow, longest 120ms, in 16s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} latency-sensitive requests slow, longest {}ms, in {}s",
            self.slow,
            self.judged,
            self.longest.as_millis(),
            self.length.as_secs()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> BootNanos {
        BootNanos(millis * 1_000_000)
    }

    fn window(millis: u64) -> Window {
        Window {
            judged: 20,
            slow: 15,
            length: Duration::from_millis(millis),
            longest: Duration::from_millis(200),
        }
    }

    const RULES: DiskRules = DiskRules {
        slow_for: Duration::from_secs(15),
        min_stall: 10.0,
        stalled_after: Duration::from_secs(10),
    };

    fn read(percent: f32, millis: u64) -> OthersWait {
        OthersWait::Read {
            percent: Some(percent),
            at: at(millis),
        }
    }

    #[test]
    fn fifteen_seconds_of_slow_windows_within_thirty_are_slow_if_others_wait() {
        // Windows of a second: how many, one in how many seconds; the share of others; expected.
        let rows = [
            (15, 1, 10.0, true, "one after the other"),
            (14, 1, 90.0, false, "a second short"),
            (15, 1, 9.9, false, "the main user alone waits"),
            (15, 2, 10.0, true, "every other second"),
            (15, 3, 90.0, false, "spread over 45 s"),
            (1000, 3, 90.0, false, "for long, but one in three"),
        ];
        for (windows, every, percent, expected, why) in rows {
            let mut slowness = Slowness::default();
            for n in 1..=windows {
                slowness.add(window(1000), at(1000 + n * every * 1000));
            }
            let now = 1000 + windows * every * 1000;
            slowness.update(&RULES, read(percent, now), at(now));
            assert_eq!(slowness.is_slow(), expected, "{why}");
        }
    }

    #[test]
    fn a_window_counts_with_its_length_as_far_as_it_is_recent() {
        let mut slowness = Slowness::default();
        for end in [6_000, 11_000, 16_000] {
            slowness.add(window(5000), at(end));
        }
        assert_eq!(slowness.slow_time(&RULES, at(16_000)), RULES.slow_for);
        let half_of_the_first = Duration::from_millis(12_500);
        assert_eq!(slowness.slow_time(&RULES, at(33_500)), half_of_the_first);
        slowness.update(&RULES, OthersWait::Unread, at(46_000));
        assert!(!slowness.is_suspected(), "all are too old");
        assert_eq!(slowness.requests(), None);
    }

    #[test]
    fn it_is_slow_until_slow_windows_are_rare_and_without_psi_they_alone_decide() {
        let mut slowness = Slowness::default();
        for n in 1..=15 {
            slowness.add(window(1000), at(n * 1000));
        }
        let without_psi = OthersWait::Read {
            percent: None,
            at: at(12_000),
        };
        let outdated = at(17_000);
        assert!(!slowness.update(&RULES, without_psi, outdated), "outdated");
        assert!(slowness.update(&RULES, without_psi, at(15_000)));
        let numbers = slowness.requests().map(|numbers| numbers.to_string());
        let expected = "225 of 300 latency-sensitive requests slow, longest 200ms, in 15s";
        assert_eq!(numbers.as_deref(), Some(expected));
        assert!(!slowness.update(&RULES, OthersWait::Unread, at(30_000)));
        assert!(slowness.update(&RULES, OthersWait::Unread, at(30_001)));
        assert!(!slowness.is_slow());
    }

    #[test]
    fn who_waits_is_read_shortly_before_it_decides_and_not_more_than_once_in_five_seconds() {
        let mut slowness = Slowness::default();
        let idle = OthersWait::Unread;
        assert!(!slowness.needs_io_wait(&RULES, idle, at(1)));
        for n in 1..=12 {
            slowness.add(window(1000), at(n * 1000));
        }
        assert!(!slowness.needs_io_wait(&RULES, idle, at(12_000)));
        slowness.add(window(1000), at(13_000));
        assert!(slowness.needs_io_wait(&RULES, idle, at(13_000)));
        let once = read(1.0, 14_000);
        assert!(!slowness.needs_io_wait(&RULES, once, at(18_999)));
        assert!(slowness.needs_io_wait(&RULES, once, at(19_000)));
        for n in 14..=15 {
            slowness.add(window(1000), at(n * 1000));
        }
        slowness.update(&RULES, read(50.0, 15_000), at(15_000));
        assert!(!slowness.needs_io_wait(&RULES, idle, at(25_000)), "known");
    }

    #[test]
    fn windows_have_a_limit() {
        let mut slowness = Slowness::default();
        for n in 0..2 * MAX_WINDOWS as u64 {
            slowness.add(window(1), at(n));
        }
        assert_eq!(slowness.windows.len(), MAX_WINDOWS);
    }
}
