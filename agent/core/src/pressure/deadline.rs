//! Computes when to take the next samples: at the earliest time at which a threshold could be
//! reached.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::BootNanos;
use crate::pressure::Pressure;
use crate::pressure::evaluate::Evaluator;
use crate::pressure::sample::{LONGEST, Sample};
use crate::reading::{Reading, Signal};

/// The minimum interval: a value close to its threshold costs four samples a second.
pub const SHORTEST: Duration = Duration::from_millis(250);

/// The interval while a condition is True. Its end is minutes away.
pub const WHILE_TRUE: Duration = Duration::from_secs(5);

/// The minimum time over which a fall is measured: otherwise two reads a few microseconds apart
/// make a small step a steep fall.
const SHORTEST_FALL: Duration = Duration::from_millis(100);

/// The factor by which the next fall may exceed the fastest one that is remembered.
const MARGIN: u64 = 2;

/// The remembered rate is halved each time this passes without a fall of at least 1 / [`MARGIN`] of
/// it. So a value that falls again within this time is expected to fall at full rate, and a fast
/// allocation costs frequent samples for some minutes only.
const HALVED_AFTER: Duration = Duration::from_mins(1);

/// Returns the rate, in units per second, at which a signal may fall before any fall was observed.
const fn floor(signal: Signal) -> u64 {
    match signal {
        // The rate of one thread that touches new pages on current hardware.
        Signal::MemoryAvailable | Signal::AllocatableMemoryAvailable => 2 << 30,
        // The rate of sequential writes to a solid-state disk.
        Signal::NodefsAvailable | Signal::ImagefsAvailable => 500 << 20,
        // The rates of unpacking an archive of small files, and of creating threads, at 16.5 µs
        // each on one CPU.
        Signal::NodefsInodesFree
        | Signal::ImagefsInodesFree
        | Signal::PidAvailable
        | Signal::AllocatablePidAvailable => 50_000,
    }
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Trend {
    /// Start of the current measurement.
    base: Reading,
    base_at: BootNanos,
    /// The newest reading; `None` if the last sample had none.
    last: Option<Reading>,
    /// The rate of the fastest fall, in units per second, as remembered at `fastest_at`.
    fastest: u64,
    fastest_at: BootNanos,
}

impl Trend {
    /// Returns the remembered rate at `now`, in units per second.
    fn remembered(&self, now: BootNanos) -> u64 {
        let passed = now.since(self.fastest_at).as_secs();
        let halvings = passed.checked_div(HALVED_AFTER.as_secs()).unwrap_or(0);
        let halvings = u32::try_from(halvings).unwrap_or(u32::MAX);
        self.fastest.checked_shr(halvings).unwrap_or(0)
    }

    /// Remembers a fall, in units per second.
    fn remember(&mut self, fall: u64, now: BootNanos) {
        let remembered = self.remembered(now);
        if remembered <= fall.saturating_mul(MARGIN) {
            self.fastest = remembered.max(fall);
            self.fastest_at = now;
        }
    }
}

/// Computes when to take the next samples, for all signals that are sampled together.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Deadlines {
    signals: Cow<'static, [Signal]>,
    announced: Vec<Signal>,
    trends: BTreeMap<Signal, Trend>,
    due: BootNanos,
    /// The time from the last samples to the next; zero after a hint.
    interval: Duration,
}

impl Deadlines {
    /// Creates the deadlines of `signals`, which are due at once. The kernel reports crossings of
    /// those in `announced`, which need samples at the maximum interval only.
    pub const fn new(signals: &'static [Signal], announced: Vec<Signal>) -> Self {
        Self {
            signals: Cow::Borrowed(signals),
            announced,
            trends: BTreeMap::new(),
            due: BootNanos(0),
            interval: Duration::ZERO,
        }
    }

    pub const fn due(&self) -> BootNanos {
        self.due
    }

    /// Returns the regular interval up to [`Deadlines::due`]; zero if an event is the reason to
    /// sample.
    pub const fn interval(&self) -> Duration {
        self.interval
    }

    /// Makes samples due at once, because of an event: an OOM kill, a stall.
    pub fn hint(&mut self, now: BootNanos) {
        self.due = self.due.min(now);
        self.interval = Duration::ZERO;
    }

    /// Adapts to the samples taken at `now`, and computes when the next ones are due.
    ///
    /// `evaluator` must have evaluated them already.
    pub fn next(&mut self, samples: &[Sample], evaluator: &Evaluator, now: BootNanos) -> BootNanos {
        for sample in samples {
            self.learn(sample, now);
        }
        let wait = self
            .signals
            .iter()
            .map(|signal| self.wait(*signal, evaluator, now))
            .min()
            .unwrap_or(LONGEST);
        self.interval = wait;
        self.due = now.plus(wait);
        self.due
    }

    fn learn(&mut self, sample: &Sample, now: BootNanos) {
        let reading = match sample {
            Sample::Read(reading) => *reading,
            Sample::Absent(signal) | Sample::Missing(signal) => {
                if let Some(trend) = self.trends.get_mut(signal) {
                    trend.last = None;
                }
                return;
            }
        };
        let trend = self.trends.entry(reading.signal).or_insert(Trend {
            base: reading,
            base_at: now,
            last: None,
            fastest: 0,
            fastest_at: now,
        });
        trend.last = Some(reading);
        let passed = now.since(trend.base_at);
        // Another capacity means another file system or limit: the value did not fall.
        let comparable = trend.base.capacity == reading.capacity;
        if comparable && passed < SHORTEST_FALL {
            return;
        }
        if comparable {
            let fall = i128::from(trend.base.available) - i128::from(reading.available);
            trend.remember(per_second(fall, passed), now);
        }
        trend.base = reading;
        trend.base_at = now;
    }

    /// Returns the time for which a signal needs no sample.
    fn wait(&self, signal: Signal, evaluator: &Evaluator, now: BootNanos) -> Duration {
        // A failing signal is lost by a sample at that moment, not by the passage of time.
        if let Some(lost_at) = evaluator.lost_at(signal) {
            return lost_at.since(now).clamp(SHORTEST, LONGEST);
        }
        let Some(trend) = self.trends.get(&signal) else {
            return LONGEST;
        };
        let Some(last) = trend.last else {
            return LONGEST;
        };
        match evaluator.pressure(signal.resource()) {
            Pressure::UnderPressure { .. } => return WHILE_TRUE,
            Pressure::Unknown | Pressure::Normal => {}
        }
        if self.announced.contains(&signal) {
            return LONGEST;
        }
        let nearest = evaluator
            .thresholds()
            .filter(|threshold| threshold.signal == signal)
            .map(|threshold| threshold.value.amount(last.capacity))
            .max();
        let Some(nearest) = nearest else {
            return LONGEST;
        };
        let expected = trend.remembered(now).saturating_mul(MARGIN);
        let rate = floor(signal).max(expected);
        let distance = i128::from(last.available) - i128::from(nearest);
        time_to_fall(distance, rate).clamp(SHORTEST, LONGEST)
    }
}

/// Returns units per second; zero for a rise.
fn per_second(fall: i128, passed: Duration) -> u64 {
    let nanos = i128::try_from(passed.as_nanos()).unwrap_or(i128::MAX);
    let rate = fall
        .saturating_mul(1_000_000_000)
        .checked_div(nanos)
        .unwrap_or(0);
    u64::try_from(rate.max(0)).unwrap_or(u64::MAX)
}

/// Returns the time of a fall by `distance` at `rate` units per second; zero if it is already
/// reached.
fn time_to_fall(distance: i128, rate: u64) -> Duration {
    let nanos = distance
        .max(0)
        .saturating_mul(1_000_000_000)
        .checked_div(i128::from(rate))
        .unwrap_or(i128::MAX);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pressure::threshold::Threshold;
    use crate::pressure::{Policy, SlowDisks};

    const GI: i64 = 1 << 30;

    fn memory(available: i64) -> Sample {
        read(Signal::MemoryAvailable, available, 64 << 30)
    }

    fn read(signal: Signal, available: i64, capacity: u64) -> Sample {
        Sample::Read(Reading {
            signal,
            available,
            capacity,
        })
    }

    fn evaluator() -> Evaluator {
        let threshold = |signal, value| Threshold::parse(signal, value).unwrap().unwrap();
        Evaluator::new(Policy {
            thresholds: vec![
                threshold("memory.available", "1Gi"),
                threshold("memory.available", "2Gi").soft(Duration::from_mins(1)),
                threshold("nodefs.available", "1Gi"),
                threshold("nodefs.inodesFree", "1000"),
                threshold("pid.available", "1000"),
            ],
            transition_period: Duration::from_mins(5),
            slow_disks: SlowDisks::NodepulseConditionOnly,
        })
    }

    fn millis(n: u64) -> BootNanos {
        BootNanos(n * 1_000_000)
    }

    /// Returns the wait after one evaluation at `now`, in milliseconds.
    fn wait(
        deadlines: &mut Deadlines,
        evaluator: &mut Evaluator,
        samples: &[Sample],
        now: u64,
    ) -> u128 {
        evaluator.evaluate(samples, millis(now));
        let due = deadlines.next(samples, evaluator, millis(now));
        assert_eq!(due, deadlines.due());
        due.since(millis(now)).as_millis()
    }

    #[test]
    fn the_nearest_threshold_at_the_highest_rate_sets_the_deadline() {
        let nodefs = |n| read(Signal::NodefsAvailable, n, 100 << 30);
        let inodes = |n| read(Signal::NodefsInodesFree, n, 1_000_000);
        let pids = |n| read(Signal::PidAvailable, n, 1_000_000);
        let missing = Sample::Missing(Signal::MemoryAvailable);
        #[rustfmt::skip]
        let rows: [(&str, Vec<Sample>, u128); 13] = [
            ("no samples", vec![], 10_000),
            ("no reading", vec![missing], 10_000),
            ("no threshold", vec![read(Signal::ImagefsAvailable, 5, 10)], 10_000),
            ("far away", vec![memory(60 * GI)], 10_000),
            ("4 GiB above the higher threshold", vec![memory(6 * GI)], 2_000),
            ("half a GiB above it", vec![memory(2 * GI + GI / 2)], 250),
            ("a little more", vec![memory(2 * GI + GI * 3 / 4)], 375),
            ("at it", vec![memory(2 * GI)], 250),
            ("below it", vec![memory(2 * GI - 1)], 5_000),
            ("disk space", vec![nodefs(GI + (1000 << 20))], 2_000),
            ("inodes", vec![inodes(1000 + 150_000)], 3_000),
            ("pids", vec![pids(1000 + 100_000)], 2_000),
            ("the earliest of all", vec![memory(60 * GI), inodes(1000 + 50_000), nodefs(50 * GI)], 1_000),
        ];
        for (name, samples, expected) in rows {
            let mut deadlines = Deadlines::new(&Signal::ALL, vec![]);
            let actual = wait(&mut deadlines, &mut evaluator(), &samples, 1_000);
            assert_eq!(actual, expected, "{name}");
        }
    }

    #[test]
    fn a_signal_that_the_kernel_announces_is_sampled_at_the_maximum_interval() {
        let samples = [read(Signal::PidAvailable, 1001, 1_000_000)];
        let mut announced = Deadlines::new(&Signal::ALL, vec![Signal::PidAvailable]);
        assert_eq!(wait(&mut announced, &mut evaluator(), &samples, 0), 10_000);
        let mut polled = Deadlines::new(&Signal::ALL, vec![]);
        assert_eq!(wait(&mut polled, &mut evaluator(), &samples, 0), 250);
    }

    #[test]
    fn twice_the_fastest_recent_fall_is_expected() {
        let mut deadlines = Deadlines::new(&Signal::ALL, vec![]);
        let mut evaluator = evaluator();
        let mut at = |now, available| {
            let samples = [memory(available)];
            wait(&mut deadlines, &mut evaluator, &samples, now)
        };
        assert_eq!(at(0, 42 * GI), 10_000, "20 s at 2 GiB/s");
        assert_eq!(at(1_000, 38 * GI), 4_500, "36 GiB at twice 4 GiB/s");
        assert_eq!(at(2_000, 42 * GI), 5_000, "a rise changes nothing");
        assert_eq!(at(3_000, 41 * GI), 4_875, "nor does a slower fall");
        assert_eq!(
            at(3_099, 33 * GI),
            3_875,
            "within 0.1 s a fall does not count yet"
        );
        assert_eq!(at(4_000, 33 * GI), 1_937, "and then it is 8 GiB/s, no more");
    }

    #[test]
    fn a_rate_is_halved_each_minute_without_a_fall_of_at_least_half_of_it() {
        type Row = (Option<(u64, i64)>, u64, u128);

        // 40 GiB above the threshold, after a fall by 16 GiB in a second and, at the second time,
        // by the given size in a second. Second fall and its GiB, sample, in seconds after the
        // first fall; then, wait in ms.
        let rows: [Row; 14] = [
            (None, 0, 1_250),
            (None, 59, 1_250),
            (None, 60, 2_500),
            (None, 119, 2_500),
            (None, 120, 5_000),
            (None, 180, 10_000),
            (None, 100_000, 10_000),
            (Some((59, 16)), 118, 1_250),
            (Some((59, 8)), 118, 1_250),
            (Some((59, 8)), 119, 2_500),
            (Some((59, 7)), 60, 2_500),
            (Some((60, 4)), 119, 2_500),
            (Some((60, 3)), 120, 5_000),
            (Some((120, 32)), 179, 625),
        ];
        for (second, sampled, expected) in rows {
            let mut deadlines = Deadlines::new(&Signal::ALL, vec![]);
            let mut evaluator = evaluator();
            let mut at = |now, available| {
                let samples = [memory(available)];
                wait(&mut deadlines, &mut evaluator, &samples, now)
            };
            at(0, 58 * GI);
            let mut last = at(1_000, 42 * GI);
            if let Some((second, size)) = second {
                at(second * 1_000, (42 + size) * GI);
                last = at((second + 1) * 1_000, 42 * GI);
            }
            if second.is_none_or(|(second, _)| second < sampled) {
                last = at((sampled + 1) * 1_000, 42 * GI);
            }
            assert_eq!(last, expected, "{second:?}, sampled after {sampled} s");
        }
    }

    /// Returns the time of each sample, in seconds, of a file system of 10 GB whose threshold is 1
    /// GB. Of it, 5.6 GB are allocated at some times, each in one step, and freed half an hour
    /// later; events are further reasons to sample.
    fn samples_of_allocations(allocated_at: &[u64], events: &[u64], until: u64) -> Vec<f64> {
        const GB: i64 = 1_000_000_000;
        let threshold = Threshold::parse("nodefs.available", "10%")
            .unwrap()
            .unwrap();
        let mut evaluator = Evaluator::new(Policy {
            thresholds: vec![threshold],
            transition_period: Duration::from_mins(5),
            slow_disks: SlowDisks::NodepulseConditionOnly,
        });
        let mut deadlines = Deadlines::new(&Signal::ALL, vec![]);
        let mut taken = Vec::new();
        let mut events = events.iter().map(|at| millis(*at)).peekable();
        while deadlines.due() < millis(until) {
            if let Some(event) = events.next_if(|at| *at < deadlines.due()) {
                deadlines.hint(event);
            }
            let now = deadlines.due();
            let is_allocated = |at: &u64| (millis(*at)..millis(*at + 1_800_000)).contains(&now);
            let used = if allocated_at.iter().any(is_allocated) {
                5_600_000_000
            } else {
                0
            };
            let samples = [read(
                Signal::NodefsAvailable,
                10 * GB - used,
                10_000_000_000,
            )];
            evaluator.evaluate(&samples, now);
            deadlines.next(&samples, &evaluator, now);
            taken.push(now.since(BootNanos(0)).as_secs_f64());
        }
        taken
    }

    #[test]
    fn from_the_tenth_minute_after_a_fast_allocation_samples_are_as_rare_as_without_it() {
        let in_minutes = |taken: &[f64], from: f64, to: f64| {
            let range = 100.0 + from * 60.0..100.0 + to * 60.0;
            taken.iter().filter(|at| range.contains(*at)).count()
        };
        let idle = samples_of_allocations(&[0], &[], 1_500_000);
        let idle = [(0.0, 1.0), (10.0, 20.0)].map(|(from, to)| in_minutes(&idle, from, to));
        assert_eq!(idle, [9, 93], "allocated before the first sample");
        // Allocated in the 10 s before the sample that is due at 100 s, or between two samples
        // because of events, with the minimum time over which a fall is measured.
        let rows: [(u64, &[u64]); 3] = [(95_000, &[]), (99_900, &[99_000]), (99_999, &[99_900])];
        for (allocated, events) in rows {
            let taken = samples_of_allocations(&[allocated], events, 1_500_000);
            let first = in_minutes(&taken, 0.0, 1.0);
            assert!(idle[0] < first, "the margin remains: {first}");
            let tenth = in_minutes(&taken, 10.0, 20.0);
            assert!(tenth <= idle[1], "{tenth} after {allocated}");
        }
    }

    #[test]
    fn an_allocation_every_hour_costs_few_samples() {
        const HOUR: u64 = 3_600_000;
        // Each is at another time between two samples.
        let pulls: Vec<u64> = (0..24).map(|n| n * HOUR + 60_000 + n * 409).collect();
        let taken = samples_of_allocations(&pulls, &[], 24 * HOUR).len();
        // A sample is three wake-ups, and 0.17 a second have other reasons: 0.8 in all.
        let most = 24 * 3_600 * 21 / 100;
        assert!(taken <= most, "{taken} samples, not {most} at most");
    }

    #[test]
    fn another_capacity_is_not_a_fall() {
        let mut deadlines = Deadlines::new(&Signal::ALL, vec![]);
        let mut evaluator = evaluator();
        let big = [read(Signal::NodefsAvailable, 900 * GI, 1_000 << 30)];
        let small = [read(Signal::NodefsAvailable, 9 * GI, 10 << 30)];
        wait(&mut deadlines, &mut evaluator, &big, 0);
        let after = wait(&mut deadlines, &mut evaluator, &small, 1_000);
        assert_eq!(after, 10_000, "8 GiB at 500 MiB/s, not at 1782 GiB/s");
    }

    #[test]
    fn a_failing_source_is_sampled_when_it_is_lost() {
        let mut deadlines = Deadlines::new(&Signal::ALL, vec![]);
        let mut evaluator = evaluator();
        let missing = [Sample::Missing(Signal::MemoryAvailable)];
        let mut at = |now, samples: &[Sample]| wait(&mut deadlines, &mut evaluator, samples, now);
        at(0, &[memory(60 * GI)]);
        assert_eq!(at(10_000, &missing), 10_000, "lost at 30 s");
        assert_eq!(at(19_700, &missing), 10_000, "a little early");
        assert_eq!(at(29_700, &missing), 300, "and not ten seconds late");
        assert_eq!(at(30_000, &missing), 10_000, "lost");
    }

    #[test]
    fn a_hint_makes_it_due_at_once() {
        let mut deadlines = Deadlines::new(&Signal::ALL, vec![]);
        assert_eq!(
            deadlines.due(),
            BootNanos(0),
            "the first samples are due at once"
        );
        wait(&mut deadlines, &mut evaluator(), &[], 1_000);
        assert_eq!(deadlines.due(), millis(11_000));
        deadlines.hint(millis(1_500));
        assert_eq!(deadlines.due(), millis(1_500));
        deadlines.hint(millis(1_700));
        assert_eq!(
            deadlines.due(),
            millis(1_500),
            "a second hint delays nothing"
        );
    }
}
