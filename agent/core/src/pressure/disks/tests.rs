use super::*;
use crate::tests::boot as at;

const SDA: DeviceNumber = DeviceNumber { major: 8, minor: 0 };
const LIMIT: Duration = Duration::from_millis(20);
pub const RULES: DiskRules = DiskRules {
    slow_for: Duration::from_secs(15),
    min_stall: 10.0,
    stalled_after: Duration::from_secs(10),
};

fn board(measured: LatencySource) -> DiskBoard {
    let mut board = DiskBoard::new(RULES, measured);
    board.watch(SDA, "sda".to_owned(), DiskRole::Node, LIMIT);
    board
}

/// Returns a sample after this many reads of 30 ms each.
fn reads(reads: u64, in_flight: u64) -> DiskSample {
    DiskSample {
        completed: reads,
        reads,
        read_time: Duration::from_millis(30) * u32::try_from(reads).unwrap(),
        in_flight,
        ..DiskSample::default()
    }
}

fn window(seconds: u64) -> SlowWindow {
    SlowWindow {
        judged: 10,
        slow: 10,
        length: Duration::from_secs(seconds),
        longest: LIMIT,
    }
}

#[test]
fn a_disk_can_be_slow_failing_and_stalled_at_once_and_the_worst_is_its_health() {
    let mut board = board(LatencySource::Program);
    assert_eq!(board.sample_at(), None, "healthy disks are not sampled");
    board.io_wait(SDA, None, at(29));
    let ended = EndedWindow {
        window: window(15),
        end: at(30),
        counted: at(30),
        totals: DiskTotals::default(),
    };
    let slow = board.slow_window(SDA, ended);
    assert_eq!(slow, Some(Health::Slow));
    assert_eq!(board.sample_at(), Some(at(32)));
    for second in [31, 31, 31] {
        board.error(SDA, at(second), at(31));
    }
    assert_eq!(board.health(SDA), Some(Health::Failing));
    board.apply_sample(SDA, reads(5, 2), Some(at(31)), at(31));
    assert_eq!(board.begin_sampling(at(41)), [(SDA, "sda".to_owned())]);
    let stalled = board.apply_sample(SDA, reads(5, 2), Some(at(31)), at(41));
    assert_eq!(stalled, Some(Health::Stalled));
    for health in [Health::Slow, Health::Failing, Health::Stalled] {
        assert_eq!(board.named(health), ["sda"], "{health:?}");
    }
    let idle = |second| (reads(9, 0), Some(at(41)), at(second));
    let (sample, last, now) = idle(42);
    assert_eq!(
        board.apply_sample(SDA, sample, last, now),
        Some(Health::Failing)
    );
    let (sample, last, now) = idle(90);
    assert_eq!(
        board.apply_sample(SDA, sample, last, now),
        Some(Health::Failing)
    );
    let (sample, last, now) = idle(91);
    assert_eq!(
        board.apply_sample(SDA, sample, last, now),
        Some(Health::Healthy)
    );
    assert_eq!(board.last_unhealthy(at(95)), Some(at(91)));
}

#[test]
fn counters_between_two_samples_are_a_window_whose_average_read_decides() {
    // Number of reads, time of each, seconds since the last sample, source, slow.
    #[rustfmt::skip]
    let rows = [
        (5, 20, 10, LatencySource::Counters, true, "at the limit"),
        (5, 19, 10, LatencySource::Counters, false, "below the limit"),
        (4, 90, 10, LatencySource::Counters, false, "too few"),
        (5, 90, 10, LatencySource::Program, false, "the program decides"),
        (5, 90, 0, LatencySource::Counters, false, "too early"),
    ];
    for (reads, millis, seconds, measured, expected, why) in rows {
        let mut board = board(measured);
        let sample = DiskSample {
            completed: 100 + reads,
            reads: 100 + reads,
            read_time: Duration::from_millis(reads * millis),
            ..DiskSample::default()
        };
        let before = DiskSample {
            completed: 100,
            reads: 100,
            ..DiskSample::default()
        };
        board.apply_sample(SDA, before, None, at(10));
        board.apply_sample(SDA, sample, None, at(10 + seconds));
        assert_eq!(board.slow_requests(SDA, at(1)).is_some(), expected, "{why}");
    }
    let mut board = board(LatencySource::Counters);
    board.apply_sample(SDA, reads(100, 0), None, at(10));
    board.apply_sample(SDA, reads(50, 0), None, at(20));
    assert_eq!(
        board.slow_requests(SDA, at(1)),
        None,
        "counters of another disk"
    );
}

#[test]
fn a_scheduled_sample_is_never_postponed_and_one_without_an_answer_is_repeated() {
    let mut board = board(LatencySource::Program);
    board.suspect(at(100));
    board.apply_sample(SDA, reads(1, 1), None, at(101));
    assert_eq!(board.sample_at(), Some(at(110)));
    board.error(SDA, at(105), at(105));
    assert_eq!(board.sample_at(), Some(at(110)));
    assert_eq!(board.begin_sampling(at(110)).len(), 1);
    assert_eq!(board.sample_at(), Some(at(112)), "not answered");
    board.forget(SDA, at(111));
    assert_eq!(board.sample_at(), None);
}

#[test]
fn only_what_a_disk_of_the_node_raised_is_remembered_after_its_removal() {
    for (role, expected) in [(DiskRole::Node, Some(at(41))), (DiskRole::Volume, None)] {
        let mut board = DiskBoard::new(RULES, LatencySource::Program);
        board.watch(SDA, "sda".to_owned(), role, LIMIT);
        board.apply_sample(SDA, reads(5, 2), None, at(30));
        board.apply_sample(SDA, reads(5, 2), None, at(40));
        assert!(board.forget(SDA, at(41)), "it was stalled");
        assert!(!board.forget(SDA, at(42)), "it is not watched");
        assert_eq!(board.last_unhealthy(at(50)), expected);
    }
}

#[test]
fn another_disk_with_the_same_number_is_healthy() {
    let mut board = board(LatencySource::Program);
    for _ in 0..3 {
        board.error(SDA, at(1), at(1));
    }
    board.watch(SDA, "sda".to_owned(), DiskRole::Node, 2 * LIMIT);
    assert_eq!(board.health(SDA), Some(Health::Failing), "another limit");
    assert_eq!(board.limit(SDA), Some(2 * LIMIT));
    board.watch(SDA, "sdb".to_owned(), DiskRole::Node, LIMIT);
    assert_eq!(board.health(SDA), Some(Health::Healthy));
}
