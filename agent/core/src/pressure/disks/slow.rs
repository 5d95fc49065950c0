//! Detects a disk that responds late, by its slow windows and by the I/O wait of other tasks.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{DiskRules, LatencySource};
use crate::clock::BootNanos;
use crate::reading::SlowWindow;
use crate::units::latency::{Buckets, MEDIAN, Median, Millis, quantile, total};
use crate::units::rate::Rate;

/// The maximum number of slow windows that are stored for each disk: one a second in twice the
/// longest `diskIO.slowFor`.
const MAX_WINDOWS: usize = 1200;

/// The kernel program extends a window with fewer requests than this. As many may complete until
/// the counters are read, in addition to a quarter of those of the window.
const FEW: u32 = 5;

/// The I/O wait of other tasks is read this long before `diskIO.slowFor` is reached, because
/// reading it takes a second.
const LEAD: Duration = Duration::from_secs(2);

/// Counters of a disk at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DiskTotals {
    /// Bytes read and written since the disk appeared. `None`: unknown.
    pub bytes: Option<u64>,
    /// Latency-sensitive requests since the agent began to watch the disk. `None`: not counted.
    pub judged: Option<Buckets>,
}

/// A slow window that is over, with counters of the disk.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct EndedWindow {
    pub window: SlowWindow,
    pub end: BootNanos,
    /// Time at which `totals` were read.
    pub counted: BootNanos,
    /// In a stored window, `judged` has only the requests of this window.
    pub totals: DiskTotals,
}

impl EndedWindow {
    /// Returns the rate of transfer between the counters of this window and those of a `later` one.
    fn rate(&self, later: &Self) -> Option<Rate> {
        let bytes = later.totals.bytes?.checked_sub(self.totals.bytes?)?;
        let elapsed = later.counted.since(self.counted);
        (elapsed > Duration::ZERO).then(|| Rate::of(bytes, elapsed))
    }

    /// Returns the requests since the counters were `before`. `None` if clearly more requests than
    /// those of the window completed in between, or if the counters were reset.
    fn requests_since(&self, before: &Buckets) -> Option<Buckets> {
        let mut difference = self.totals.judged?;
        for (count, before) in difference.iter_mut().zip(before) {
            *count = count.checked_sub(*before)?;
        }
        let requests = self.window.judged;
        let most = requests.saturating_add(requests / 4).saturating_add(FEW);
        (total(&difference) <= most.into()).then_some(difference)
    }
}

/// The slow windows of a disk, and the state that they cause.
///
/// ```text
///            slow windows for slowFor within twice that, and others wait
/// Responsive ───────────────────────────────────────────────────────────► Slow
///      ▲                                                                   │
///      └──────────── less than slowFor of slow windows within that ────────┘
/// ```
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Slowness {
    /// In the order of their ends.
    windows: VecDeque<EndedWindow>,
    /// The latency-sensitive requests until the last window, even if that is no longer stored.
    judged: Option<Buckets>,
    slow: bool,
}

/// A summary of the slow windows of a disk, for texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowRequests {
    pub all: SlowWindow,
    /// Computed from the histogram; see [`Self::median`]. `None`: unknown.
    pub median: Option<Duration>,
    /// Rate of transfer. `None`: unknown.
    pub rate: Option<Rate>,
    /// The time since the start of the first window.
    pub period: Duration,
    pub source: LatencySource,
}

/// The I/O wait of tasks other than the main user of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(super) enum OthersWait {
    #[default]
    Unread,
    Read {
        /// The share of the time, in percent. `None`: there is no PSI.
        percent: Option<f32>,
        at: BootNanos,
    },
}

impl OthersWait {
    /// A value is read again after this time.
    const VALID: Duration = Duration::from_secs(5);

    pub(super) const fn read_at(self) -> Option<BootNanos> {
        match self {
            Self::Unread => None,
            Self::Read { at, .. } => Some(at),
        }
    }

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
        self.slow
    }

    /// Returns true if there are slow windows that still count.
    pub(super) fn is_suspected(&self) -> bool {
        !self.windows.is_empty()
    }

    /// Adds a slow window. A window with few requests is longer, and counts for the time of its
    /// requests: a disk that takes long for one request in five seconds is not slow for five
    /// seconds.
    pub(super) fn add(&mut self, mut ended: EndedWindow) {
        let before = self.judged;
        self.judged = ended.totals.judged.or(before);
        ended.totals.judged = before.and_then(|before| ended.requests_since(&before));
        let window = &mut ended.window;
        if window.judged < FEW {
            let requests = window.longest.saturating_mul(window.slow);
            window.length = window.length.min(requests);
        }
        if self.windows.len() == MAX_WINDOWS {
            self.windows.pop_front();
        }
        self.windows.push_back(ended);
    }

    /// Returns true if the state depends on the I/O wait of others, which is unknown.
    pub(super) fn needs_io_wait(
        &self,
        rules: &DiskRules,
        others: OthersWait,
        now: BootNanos,
    ) -> bool {
        let soon = self.slow_time(rules, now).saturating_add(LEAD) >= rules.slow_for;
        self.is_suspected() && !self.is_slow() && soon && !others.is_valid(now)
    }

    /// Returns true if the state changed.
    pub(super) fn update(&mut self, rules: &DiskRules, others: OthersWait, now: BootNanos) -> bool {
        let period = rules.period();
        while let Some(first) = self.windows.front()
            && now.since(first.end) >= period
        {
            self.windows.pop_front();
        }
        let is_slow = |at| self.slow_time(rules, at) >= rules.slow_for;
        let slow = if self.slow {
            is_slow(now)
        } else {
            self.last_end(now).is_some_and(is_slow) && others.confirms(rules, now)
        };
        let changed = self.slow != slow;
        self.slow = slow;
        changed
    }

    /// Returns a summary of the slow windows; `None` if none of them counts.
    pub(super) fn requests(
        &self,
        rules: &DiskRules,
        source: LatencySource,
        now: BootNanos,
    ) -> Option<SlowRequests> {
        let (first, last) = (self.windows.front()?, self.windows.back()?);
        if now.since(last.end) >= rules.period() {
            return None;
        }
        let (mut all, mut latency) = (SlowWindow::default(), Buckets::default());
        for EndedWindow { window, totals, .. } in &self.windows {
            all.judged = all.judged.saturating_add(window.judged);
            all.slow = all.slow.saturating_add(window.slow);
            all.longest = all.longest.max(window.longest);
            all.length = all.length.saturating_add(window.length);
            for (sum, count) in latency.iter_mut().zip(totals.judged.iter().flatten()) {
                *sum = sum.saturating_add(*count);
            }
        }
        Some(SlowRequests {
            all,
            // The end of a bucket can exceed the longest latency.
            median: quantile(&latency, MEDIAN).map(|median| median.min(all.longest)),
            rate: first.rate(last),
            period: now.since(first.end.minus(first.window.length)),
            source,
        })
    }

    /// Returns the end of the last slow window if that is so recent that the I/O wait of others was
    /// not read yet.
    fn last_end(&self, now: BootNanos) -> Option<BootNanos> {
        let end = self.windows.back()?.end;
        (now.since(end) < LEAD).then_some(end)
    }

    /// Returns the time of slow windows within twice `slowFor`.
    fn slow_time(&self, rules: &DiskRules, now: BootNanos) -> Duration {
        let from = now.minus(rules.period());
        let within = |ended: &EndedWindow| ended.window.length.min(ended.end.since(from));
        self.windows.iter().map(within).sum()
    }
}

impl SlowRequests {
    /// Returns the median latency. The histogram may contain requests that completed between the
    /// windows. But if most requests in the windows took the limit or longer, so did the median.
    pub fn median(&self, limit: Duration) -> Option<Duration> {
        let least = if self.all.slow > self.all.judged / 2 {
            limit.min(self.all.longest)
        } else {
            Duration::ZERO
        };
        self.median.map(|median| median.max(least))
    }

    /// Returns a text such as `34 of 40 latency-sensitive requests took 20 ms or longer in the last
    /// 15 s (median 48 ms, largest 210 ms), 12 MB/s`.
    pub fn describe(&self, limit: Duration) -> String {
        let SlowWindow { judged, slow, .. } = self.all;
        let median = self.median(limit);
        let (limit, longest, period) = (Millis(limit), Millis(self.all.longest), Period(self));
        let rate = self
            .rate
            .map_or_else(String::new, |rate| format!(", {rate}"));
        match self.source {
            LatencySource::Program => {
                let median = median.map(|median| format!("median {}, ", Median(median)));
                let median = median.unwrap_or_default();
                format!(
                    "{slow} of {judged} latency-sensitive requests took {limit} or longer in {period} \
                     ({median}largest {longest}){rate}"
                )
            }
            // The counters have no latency of a single request.
            LatencySource::Counters => format!(
                "{judged} reads took {limit} or longer on average in {period} (at most {longest} on \
                 average in one sample){rate}"
            ),
        }
    }
}

/// Displays the period: `the last 15 s`, or `15 s of the last 28 s`.
struct Period<'a>(&'a SlowRequests);

impl fmt::Display for Period<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |time: Duration| time.as_millis().saturating_add(500) / 1000;
        let (slow, period) = (seconds(self.0.all.length), seconds(self.0.period));
        if period > slow.saturating_add(1) {
            write!(f, "{slow} s of the last {period} s")
        } else {
            write!(f, "the last {slow} s")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::RULES;
    use super::*;

    fn at(millis: u64) -> BootNanos {
        BootNanos(millis * 1_000_000)
    }

    fn ended(window: SlowWindow, millis: u64) -> EndedWindow {
        EndedWindow {
            window,
            end: at(millis),
            counted: at(millis),
            totals: DiskTotals::default(),
        }
    }

    fn window(millis: u64) -> SlowWindow {
        SlowWindow {
            judged: 20,
            slow: 15,
            length: Duration::from_millis(millis),
            longest: Duration::from_millis(200),
        }
    }

    fn read(percent: f32, millis: u64) -> OthersWait {
        OthersWait::Read {
            percent: Some(percent),
            at: at(millis),
        }
    }

    #[test]
    fn fifteen_seconds_of_slow_windows_within_thirty_are_slow_if_others_wait() {
        // Number of windows of a second, one in so many seconds, share of others in percent,
        // expected.
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
                let end = 1000 + n * every * 1000;
                slowness.add(ended(window(1000), end));
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
            slowness.add(ended(window(5000), end));
        }
        assert_eq!(slowness.slow_time(&RULES, at(16_000)), RULES.slow_for);
        let half_of_the_first = Duration::from_millis(12_500);
        assert_eq!(slowness.slow_time(&RULES, at(33_500)), half_of_the_first);
        slowness.update(&RULES, OthersWait::Unread, at(46_000));
        assert!(!slowness.is_suspected(), "all are too old");
        assert_eq!(
            slowness.requests(&RULES, LatencySource::Program, at(46_000)),
            None
        );
    }

    #[test]
    fn a_window_of_few_requests_counts_for_their_time() {
        // Judged and slow requests of 200 ms, length of the window, time that counts, in
        // milliseconds.
        let rows = [
            (1, 1, 5000, 200),
            (4, 3, 5000, 600),
            (5, 3, 5000, 5000),
            // The requests overlap.
            (4, 4, 500, 500),
        ];
        for (judged, slow, length, expected) in rows {
            let few = SlowWindow {
                judged,
                slow,
                ..window(length)
            };
            let mut slowness = Slowness::default();
            slowness.add(ended(few, 5000));
            let expected = Duration::from_millis(expected);
            assert_eq!(slowness.slow_time(&RULES, at(5000)), expected, "{judged}");
        }
    }

    #[test]
    fn an_answer_about_others_decides_for_the_end_of_the_last_slow_window() {
        // Every other second is slow: exactly enough at the end of the last window, and too little
        // a second later.
        let mut slowness = Slowness::default();
        for n in 1..=15 {
            let end = 1000 + n * 2000;
            slowness.add(ended(window(1000), end));
        }
        assert!(slowness.slow_time(&RULES, at(32_900)) < RULES.slow_for);
        assert!(slowness.update(&RULES, read(10.0, 32_900), at(32_900)));
        assert!(slowness.is_slow());
    }

    #[test]
    fn it_is_slow_until_slow_windows_are_rare_and_without_psi_they_alone_decide() {
        let mut slowness = Slowness::default();
        for n in 1..=15 {
            slowness.add(ended(window(1000), n * 1000));
        }
        let without_psi = OthersWait::Read {
            percent: None,
            at: at(12_000),
        };
        let outdated = OthersWait::Read {
            percent: None,
            at: at(11_900),
        };
        assert!(
            !slowness.update(&RULES, read(90.0, 16_000), at(17_000)),
            "too late"
        );
        assert!(!slowness.update(&RULES, outdated, at(16_900)), "outdated");
        assert!(slowness.update(&RULES, without_psi, at(16_900)));
        assert!(!slowness.update(&RULES, OthersWait::Unread, at(30_000)));
        assert!(slowness.update(&RULES, OthersWait::Unread, at(30_001)));
        assert!(!slowness.is_slow());
    }

    #[test]
    fn stalls_of_others_are_read_shortly_before_they_decide_and_not_more_than_once_in_five_seconds()
    {
        let mut slowness = Slowness::default();
        let idle = OthersWait::Unread;
        for slow_for in [RULES.slow_for, LEAD] {
            let rules = DiskRules { slow_for, ..RULES };
            assert!(!slowness.needs_io_wait(&rules, idle, at(1)), "no window");
        }
        for n in 1..=12 {
            slowness.add(ended(window(1000), n * 1000));
        }
        assert!(!slowness.needs_io_wait(&RULES, idle, at(12_000)));
        slowness.add(ended(window(1000), 13_000));
        assert!(slowness.needs_io_wait(&RULES, idle, at(13_000)));
        let once = read(1.0, 14_000);
        assert!(!slowness.needs_io_wait(&RULES, once, at(18_999)));
        assert!(slowness.needs_io_wait(&RULES, once, at(19_000)));
        for n in 14..=15 {
            slowness.add(ended(window(1000), n * 1000));
        }
        slowness.update(&RULES, read(50.0, 15_000), at(15_000));
        assert!(!slowness.needs_io_wait(&RULES, idle, at(25_000)), "known");
    }

    /// The number of requests of 134 to 268 ms and of 2 ms between the reads of the counters, and
    /// megabytes.
    type Second = (u64, u64, u64);

    /// Returns the state after windows of a second with 20 requests each.
    fn measured(rows: &[Second]) -> Slowness {
        let (mut slowness, mut totals) = (Slowness::default(), DiskTotals::default());
        let (mut judged, mut bytes) = (Buckets::default(), 0);
        for (second, (slow, quick, megabytes)) in (1..).zip(rows) {
            judged[12] += slow;
            judged[5] += quick;
            bytes += megabytes * 1_000_000;
            totals.judged = Some(judged);
            totals.bytes = Some(bytes);
            let ended = EndedWindow {
                totals,
                ..ended(window(1000), second * 1000)
            };
            slowness.add(ended);
        }
        slowness
    }

    fn described(slowness: &Slowness, source: LatencySource) -> String {
        let now = slowness.windows.back().unwrap().end;
        let requests = slowness.requests(&RULES, source, now).unwrap();
        requests.describe(Duration::from_millis(20))
    }

    #[test]
    fn the_median_and_the_rate_are_those_of_the_slow_windows() {
        // Requests before the first window do not count.
        let first = (100_000, 100_000, 9000);
        #[rustfmt::skip]
        let rows: [(&[Second], &str); 6] = [
            (&[first], "(largest 200 ms)"),
            (&[first, (20, 0, 12)], "(median 200 ms, largest 200 ms), 12 MB/s"),
            (&[first, (15, 5, 12), (15, 5, 24)], "(median 179 ms, largest 200 ms), 18 MB/s"),
            (&[first, (9, 12, 1)], "(median 20 ms, largest 200 ms), 1.0 MB/s"),
            // A quick second before the last window has many more requests.
            (&[first, (20, 0, 10), (20, 5000, 500)], "(median 200 ms, largest 200 ms), 255 MB/s"),
            (&[first, (0, 0, 0)], "(largest 200 ms), 0 kB/s"),
        ];
        for (windows, expected) in rows {
            let text = described(&measured(windows), LatencySource::Program);
            assert!(text.ends_with(expected), "{text}, not {expected}");
        }
    }

    #[test]
    fn counters_that_start_again_are_not_compared() {
        let mut slowness = measured(&[(10, 0, 5)]);
        slowness.add(ended(window(1000), 2000));
        let again = EndedWindow {
            totals: DiskTotals {
                bytes: Some(1),
                judged: Some(Buckets::default()),
            },
            ..ended(window(1000), 3000)
        };
        slowness.add(again);
        let requests = |now| slowness.requests(&RULES, LatencySource::Program, at(now));
        let now = requests(3000).unwrap();
        assert_eq!((now.median, now.rate), (None, None));
        assert!(requests(32_999).is_some());
        assert_eq!(requests(33_000), None, "too long ago");
    }

    #[test]
    fn a_window_whose_counters_could_not_be_read_does_not_spoil_the_next_one() {
        let mut slowness = measured(&[(10, 0, 5)]);
        slowness.add(ended(window(1000), 2000));
        let mut judged = Buckets::default();
        judged[12] = 30;
        let read = EndedWindow {
            totals: DiskTotals {
                bytes: Some(20_000_000),
                judged: Some(judged),
            },
            ..ended(window(1000), 3000)
        };
        slowness.add(read);
        let text = described(&slowness, LatencySource::Program);
        assert!(
            text.ends_with("(median 200 ms, largest 200 ms), 7.5 MB/s"),
            "{text}"
        );
    }

    #[test]
    fn the_text_states_the_period_and_what_is_known_without_the_program() {
        let mut slowness = Slowness::default();
        for (end, longest) in [(1000, 100), (2000, 200), (9000, 150)] {
            let longest = Duration::from_millis(longest);
            let window = SlowWindow {
                longest,
                ..window(1000)
            };
            slowness.add(ended(window, end));
        }
        let by_program = "45 of 60 latency-sensitive requests took 20 ms or longer in 3 s of the last 9 s \
                          (largest 200 ms)";
        assert_eq!(described(&slowness, LatencySource::Program), by_program);
        let by_counters = "60 reads took 20 ms or longer on average in 3 s of the last 9 s (at most 200 ms on \
                           average in one sample)";
        assert_eq!(described(&slowness, LatencySource::Counters), by_counters);
    }

    #[test]
    fn windows_have_a_limit_beyond_which_the_oldest_is_dropped() {
        const MOST: u64 = MAX_WINDOWS as u64;
        let mut slowness = Slowness::default();
        for n in 0..2 * MOST {
            slowness.add(ended(window(1), n));
        }
        let ends = slowness.windows.iter().map(|slow| slow.end);
        assert_eq!(
            ends.collect::<Vec<_>>(),
            (MOST..2 * MOST).map(at).collect::<Vec<_>>()
        );
    }
}
