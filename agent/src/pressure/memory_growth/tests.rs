#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "curves of a few hundred MiB over a few hours"
)]

use super::*;

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 512;
const HOUR: u64 = 3600;

/// A container that is at its limit all the time: file pages fill what is left.
struct Container {
    growth: MemoryGrowth,
    hits: u64,
    limit: u64,
    /// Seconds, the time left, and the time of the samples, of each report.
    reports: Vec<(u64, u64, u64)>,
    samples: usize,
    killed: Option<u64>,
}

impl Container {
    fn new() -> Self {
        Self {
            growth: MemoryGrowth::default(),
            hits: 1,
            limit: LIMIT,
            reports: Vec::new(),
            samples: 0,
            killed: None,
        }
    }

    fn sample(&mut self, second: u64, memory: LimitedMemory) -> NextStep {
        self.samples += 1;
        let at = BootNanos(0).plus(Duration::from_secs(100_000 + second));
        self.growth.on(at, memory)
    }

    /// Its anonymous memory is `mib` at each second, until it is killed or `end`.
    fn run(mut self, from: u64, end: u64, mib: impl Fn(u64) -> f64) -> Self {
        let mut next = from;
        for second in from..end {
            let bytes = (mib(second) * 1_048_576.0) as u64;
            if self.limit * MIB <= bytes {
                self.killed = Some(second);
                break;
            }
            self.hits += 1;
            if second < next {
                continue;
            }
            next = match self.sample(second, anonymous(bytes, self.limit, self.hits)) {
                NextStep::Sample(pause) => second + pause.as_secs(),
                // It is reached again at once.
                NextStep::Wait => second + 1,
                NextStep::Report(forecast) => {
                    let (left, within) = (forecast.left, forecast.within);
                    self.reports
                        .push((second, left.as_secs(), within.as_secs()));
                    second + forecast.pause().as_secs()
                }
            };
        }
        self
    }
}

fn anonymous(bytes: u64, limit: u64, hits: u64) -> LimitedMemory {
    LimitedMemory {
        hits,
        limit: Bytes::from_bytes(limit * MIB),
        working_set: Bytes::from_bytes(bytes),
        anon: Bytes::from_bytes(bytes),
        ..LimitedMemory::default()
    }
}

/// Grows from `from` at `rate` MiB a minute.
fn line(from: f64, rate: f64) -> impl Fn(u64) -> f64 {
    move |second| from + rate * second as f64 / 60.0
}

/// Approaches `to` with the time constant `tau`.
fn approach(from: f64, to: f64, tau: f64) -> impl Fn(u64) -> f64 {
    move |second| to - (to - from) * (-(second as f64) / tau).exp()
}

/// Grows from `low` to `high` in `period` seconds, and falls at once.
fn saw(low: f64, high: f64, period: u64, phase: u64) -> impl Fn(u64) -> f64 {
    move |second| {
        let part = ((second + phase) % period) as f64 / period as f64;
        low + (high - low) * part
    }
}

#[test]
fn a_leak_is_reported_once_before_the_kill() {
    //  curve, seconds between the report and the kill: at least, at most
    type Row<'a> = (&'a str, Box<dyn Fn(u64) -> f64>, u64, u64);
    let rows: [Row; 6] = [
        ("12 MiB a minute", Box::new(line(400.0, 12.0)), 180, 300),
        ("1 MiB a minute", Box::new(line(480.0, 1.0)), 120, 300),
        ("60 MiB a minute", Box::new(line(440.0, 60.0)), 25, 60),
        (
            "faster and faster",
            Box::new(|second| 440.0 + (second as f64 / 30.0).exp()),
            20,
            200,
        ),
        (
            "slower, but not enough",
            Box::new(approach(440.0, 560.0, 200.0)),
            30,
            300,
        ),
        (
            "with noise below a hundredth",
            Box::new(|second| 440.0 + second as f64 / 5.0 + (second as f64 / 7.0).sin()),
            60,
            300,
        ),
    ];
    for (name, curve, least, most) in rows {
        let container = Container::new().run(0, HOUR, curve);
        let killed = container.killed.expect(name);
        let [(reported, left, within)] = container.reports[..] else {
            panic!("{name}: {:?}, killed {killed}", container.reports);
        };
        let real = killed - reported;
        assert!(
            (least..=most).contains(&real),
            "{name}: {real} s before the kill"
        );
        assert!((30..=60).contains(&within), "{name}: in {within} s");
        assert!(
            left <= 3 * real && real <= 3 * left,
            "{name}: {left} for {real}"
        );
    }
}

#[test]
fn memory_that_stops_growing_or_is_freed_is_not_reported() {
    //  curve
    type Row<'a> = (&'a str, Box<dyn Fn(u64) -> f64>);
    let rows: [Row; 7] = [
        ("page cache around a small heap", Box::new(|_| 100.0)),
        (
            "a heap of 80 % is filled",
            Box::new(|second| line(100.0, 60.0)(second).min(410.0)),
        ),
        ("a pool of 99 % that is full", Box::new(|_| 507.0)),
        (
            "slower and slower up to 96 %",
            Box::new(approach(300.0, 492.0, 120.0)),
        ),
        (
            "one large allocation at 92 %",
            Box::new(|second| if second < 25 { 430.0 } else { 470.0 }),
        ),
        (
            "a little more every ten minutes",
            Box::new(|second| 490.0 + (second / 600) as f64 * 0.4),
        ),
        (
            "noise",
            Box::new(|second| 500.0 + 2.0 * (second as f64 / 9.0).sin()),
        ),
    ];
    for (name, curve) in rows {
        let container = Container::new().run(0, HOUR, curve);
        assert_eq!(container.reports, [], "{name}");
        assert_eq!(container.killed, None, "{name}");
    }
    for phase in 0..40 {
        let container = Container::new().run(0, 6 * HOUR, saw(300.0, 497.0, 40, phase));
        assert_eq!(container.reports, [], "a garbage collector, phase {phase}");
    }
}

#[test]
fn a_garbage_collector_with_a_long_cycle_is_reported_at_most_in_its_first() {
    for (period, phase) in [(300, 0), (300, 150), (600, 77), (1800, 900)] {
        let container = Container::new().run(0, 12 * HOUR, saw(300.0, 500.0, period, phase));
        let reports = container.reports;
        assert!(reports.len() <= 1, "{period} {phase}: {reports:?}");
        assert!(
            reports.iter().all(|(second, ..)| *second < period),
            "{period} {phase}"
        );
    }
}

#[test]
fn a_container_at_its_limit_by_page_cache_is_sampled_every_five_minutes_and_a_full_one_every_minute()
 {
    let container = Container::new().run(0, 24 * HOUR, |_| 100.0);
    assert!(container.samples <= 300, "{}", container.samples);
    let container = Container::new().run(0, 24 * HOUR, |_| 507.0);
    let samples = container.samples;
    assert!(
        (1400..1500).contains(&samples),
        "full, once a minute: {samples}"
    );
}

#[test]
fn a_leak_after_a_long_time_of_page_cache_is_found() {
    let curve = |second| {
        if second < 2 * HOUR {
            200.0
        } else {
            line(200.0, 12.0)(second - 2 * HOUR)
        }
    };
    let container = Container::new().run(0, 3 * HOUR, curve);
    let killed = container.killed.unwrap();
    let [(reported, ..)] = container.reports[..] else {
        panic!("{:?}", container.reports);
    };
    assert!(60 < killed - reported, "{}", killed - reported);
}

#[test]
fn a_second_leak_is_reported_if_the_memory_fell_and_exceeds_the_first() {
    //  where the first leak ends; the number of reports
    for (first, expected) in [(490.0, 2), (505.0, 2)] {
        let curve = move |second: u64| {
            let leak = line(430.0, 12.0);
            let end = ((first - 430.0) * 5.0) as u64;
            match second {
                _ if second < end => leak(second),
                _ if second < end + 400 => 200.0,
                _ => line(430.0, 3.0)(second - end - 400),
            }
        };
        let container = Container::new().run(0, HOUR, curve);
        assert_eq!(
            container.reports.len(),
            expected,
            "{first}: {:?}",
            container.reports
        );
    }
}

#[test]
fn a_raised_limit_starts_again() {
    let mut container = Container::new().run(0, 150, line(450.0, 12.0));
    assert_eq!(container.reports.len(), 1);
    container.limit = 1024;
    let mut container = container.run(150, 400, line(450.0, 12.0));
    assert_eq!((container.reports.len(), container.killed), (1, None));
    container.limit = 600;
    let container = container.run(400, HOUR, line(450.0, 12.0));
    assert_eq!(container.reports.len(), 2, "and this limit is reached too");
}

#[test]
fn shared_memory_counts_and_swap_that_is_left_is_room() {
    let mut shared = MemoryGrowth::default();
    let mut swapping = MemoryGrowth::default();
    let (mut reported, mut with_swap) = (0, 0);
    for n in 0..12 {
        let at = BootNanos(0).plus(INTERVAL.saturating_mul(n + 1));
        let memory = anonymous((480 + u64::from(n)) * MIB, LIMIT, u64::from(n));
        let tmpfs = LimitedMemory {
            anon: Bytes::default(),
            shmem: memory.anon,
            ..memory
        };
        let swap = LimitedMemory {
            swap_left: Bytes::from_bytes(1024 * MIB),
            ..memory
        };
        let is_report = |step| u32::from(matches!(step, NextStep::Report(_)));
        reported += is_report(shared.on(at, tmpfs));
        with_swap += is_report(swapping.on(at, swap));
    }
    assert_eq!((reported, with_swap), (1, 0));
}

#[test]
fn a_limit_that_is_not_reached_again_ends_the_samples() {
    let mut container = Container::new();
    let memory = |mib: u64| anonymous(mib * MIB, LIMIT, 5);
    assert_eq!(container.sample(0, memory(100)), NextStep::Sample(INTERVAL));
    assert_eq!(container.sample(10, memory(100)), NextStep::Wait);
    let mut container = Container::new();
    for (second, mib) in [(0, 470), (10, 475), (20, 480)] {
        let step = container.sample(second, memory(mib));
        assert_eq!(step, NextStep::Sample(INTERVAL), "{second}");
    }
    assert_eq!(
        container.sample(30, memory(485)),
        NextStep::Wait,
        "it grows, but below the limit"
    );
}

#[test]
fn samples_before_a_suspend_are_not_compared() {
    let mut container = Container::new();
    for (second, mib, hits) in [(0, 470, 1), (10, 475, 2), (20, 480, 3), (30_000, 490, 4)] {
        let step = container.sample(second, anonymous(mib * MIB, LIMIT, hits));
        assert!(matches!(step, NextStep::Sample(_)), "{second}: {step:?}");
    }
}

/// Samples 10 s apart of this many MiB each, with the number of hits.
fn samples(sizes: &[(f64, u64)]) -> Vec<NextStep> {
    let mut container = Container::new();
    let sample = |(n, (mib, hits)): (u64, &(f64, u64))| {
        let bytes = (mib * 1_048_576.0) as u64;
        container.sample(n * 10, anonymous(bytes, LIMIT, *hits))
    };
    (0..).zip(sizes).map(sample).collect()
}

#[test]
fn at_least_four_samples_must_agree() {
    type Row = (&'static [(f64, u64)], Option<u64>, &'static str);
    //  MiB and hits of each sample; the time left in the last one, if it is reported
    #[rustfmt::skip]
    let rows: [Row; 9] = [
        (&[(470.0, 1), (475.0, 2), (480.0, 3), (485.0, 4)], Some(54), "a leak"),
        (&[(470.0, 1), (475.0, 2), (480.0, 2), (485.0, 4)], None, "the limit is reached twice"),
        (&[(470.0, 1), (480.0, 2), (480.0, 3), (485.0, 4)], None, "it grows twice"),
        (&[(470.0, 1), (472.0, 2), (474.0, 3), (476.0, 4)], None, "three minutes after half a minute"),
        (&[(470.0, 1), (472.0, 2), (474.0, 3), (476.0, 4), (478.0, 5)], Some(170), "and after 40 s"),
        (&[(445.0, 1), (457.0, 2), (468.0, 3), (478.0, 4)], Some(34), "at the slower rate"),
        (&[(470.0, 1), (476.0, 2), (474.0, 3), (480.0, 4), (486.0, 5)], Some(65), "a dip below 1/128"),
        (&[(470.0, 1), (476.0, 2), (470.0, 3), (480.0, 4), (486.0, 5)], None, "a dip above it"),
        (&[(511.7, 1), (511.8, 2), (511.85, 3), (511.9, 4)], None, "noise"),
    ];
    for (sizes, expected, why) in rows {
        let steps = samples(sizes);
        let (last, others) = steps.split_last().unwrap();
        let left = match last {
            NextStep::Report(forecast) => Some(forecast.left.as_secs()),
            _ => None,
        };
        assert_eq!(left, expected, "{why}");
        let is_report = |step: &NextStep| matches!(step, NextStep::Report(_));
        assert!(!others.iter().any(is_report), "{why}");
    }
}

#[test]
fn samples_of_another_limit_or_of_memory_of_the_kernel_are_not_compared() {
    let mut raised = MemoryGrowth::default();
    let mut kernel = MemoryGrowth::default();
    for (n, limit) in (1..).zip([500, 500, 512, 512]) {
        let at = BootNanos(0).plus(INTERVAL.saturating_mul(n));
        let (mib, hits) = (465 + 5 * u64::from(n), u64::from(n));
        let memory = anonymous(mib * MIB, limit, hits);
        assert_eq!(raised.on(at, memory), NextStep::Sample(INTERVAL), "{n}");
        let anon = Bytes::from_bytes((mib - 300) * MIB);
        let memory = LimitedMemory {
            anon,
            ..anonymous(mib * MIB, LIMIT, hits)
        };
        assert!(matches!(kernel.on(at, memory), NextStep::Sample(_)), "{n}");
    }
}

#[test]
fn a_leak_that_goes_on_after_an_hour_is_reported_again() {
    let curve = |second| match second {
        0..300 => line(430.0, 12.0)(second),
        300..7500 => 490.0,
        _ => line(490.0, 4.0)(second - 7500),
    };
    let container = Container::new().run(0, 4 * HOUR, curve);
    assert_eq!(container.reports.len(), 2, "{:?}", container.reports);
}

#[test]
fn after_a_long_time_without_a_hit_pauses_are_short_again() {
    let mut container = Container::new();
    let mut sample = |second| container.sample(second, anonymous(50 * MIB, LIMIT, second));
    let pauses: Vec<_> = [1, 20, 50, 100].map(&mut sample).into();
    assert_eq!(pauses[3], NextStep::Sample(INTERVAL * 8));
    container.growth.was_calm();
    let step = container.sample(5000, anonymous(50 * MIB, LIMIT, 5000));
    assert_eq!(step, NextStep::Sample(INTERVAL));
}

#[test]
fn the_largest_size_is_forgotten_after_two_hours() {
    //  at s, the memory falls from a peak for good; then a leak to less than that peak
    for (pause, reports) in [(HOUR / 2, 0), (3 * HOUR, 1)] {
        let mut container = Container::new();
        for second in [0, 10, 20] {
            container.sample(second, anonymous(500 * MIB, LIMIT, second + 1));
        }
        for second in (30..pause).step_by(60) {
            container.sample(second, anonymous(100 * MIB, LIMIT, second + 1));
        }
        let leak = |second| line(470.0, 12.0)(second - pause).min(490.0);
        let container = container.run(pause, pause + 120, leak);
        assert_eq!(container.reports.len(), reports, "{pause}");
    }
}
