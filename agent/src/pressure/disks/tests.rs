use super::*;

const SDA: DeviceNumber = DeviceNumber { major: 8, minor: 0 };
const LIMIT: Duration = Duration::from_millis(20);

fn at(seconds: u64) -> BootNanos {
    BootNanos(seconds * 1_000_000_000)
}

fn board() -> DiskBoard {
    let mut board = DiskBoard::default();
    board.watch(SDA, "sda".to_owned(), LIMIT);
    board
}

fn sample(completed: u64, in_flight: u64) -> DiskSample {
    DiskSample {
        completed,
        in_flight,
        ..DiskSample::default()
    }
}

#[test]
fn a_slow_disk_stalls_recovers_and_ends_when_io_stops() {
    let mut board = board();
    assert_eq!(
        board.sample_at(),
        None,
        "nothing to sample while all disks are healthy"
    );
    assert!(board.set_health(SDA, Health::Slow, at(0)));
    assert!(
        !board.set_health(SDA, Health::Slow, at(0)),
        "reported by two CPUs"
    );
    assert_eq!(board.sample_at(), Some(at(2)));

    // completed, in flight, change, why
    let script = [
        (100, 4, None, "the first sample has no predecessor"),
        (120, 4, None, "it completes requests: slow as before"),
        (
            120,
            4,
            Some(Health::Stalled),
            "none completed, and some are in flight",
        ),
        (120, 3, None, "still stalled"),
        (121, 3, Some(Health::Slow), "one completed"),
        (
            121,
            0,
            Some(Health::Healthy),
            "none completed, and none is in flight: I/O stopped",
        ),
    ];
    for (n, (completed, in_flight, expected, why)) in script.into_iter().enumerate() {
        let now = at(2 * (n as u64 + 1));
        let kernel = Some(Health::Slow);
        let change = board.apply_sample(SDA, sample(completed, in_flight), kernel, now);
        assert_eq!(change, expected, "{why}");
    }
    assert_eq!(board.sample_at(), None);
    assert_eq!(board.named(Health::Slow), Vec::<String>::new());
}

#[test]
fn a_hang_of_a_healthy_disk_is_detected_by_two_samples() {
    // completed and in flight in the first sample and a second later, stalled
    let rows = [
        ((100, 2), (100, 2), true, "nothing completes"),
        ((100, 2), (100, 9), true, "and more are waiting"),
        ((100, 2), (101, 2), false, "slow, but requests complete"),
        ((100, 0), (100, 2), false, "these may be new"),
        ((100, 2), (100, 0), false, "counted late"),
        ((100, 2), (3, 2), false, "another disk with this number"),
    ];
    for ((completed, in_flight), (then, in_flight_then), stalled, why) in rows {
        let mut board = board();
        board.suspect();
        let healthy = Some(Health::Healthy);
        let first = sample(completed, in_flight);
        assert_eq!(
            board.apply_sample(SDA, first, healthy, at(5)),
            None,
            "{why}"
        );
        let again = (in_flight > 0).then_some(at(6));
        assert_eq!(board.sample_at(), again, "{why}");
        let due = board.begin_sampling(at(6));
        assert_eq!(due.len(), usize::from(in_flight > 0), "{why}");

        let second = sample(then, in_flight_then);
        let expected = stalled.then_some(Health::Stalled);
        assert_eq!(
            board.apply_sample(SDA, second, healthy, at(6)),
            expected,
            "{why}"
        );
        assert_eq!(board.sample_at(), stalled.then_some(at(8)), "{why}");
        if stalled {
            let moved = sample(then + 1, 1);
            let change = board.apply_sample(SDA, moved, healthy, at(8));
            assert_eq!(
                change,
                Some(Health::Healthy),
                "requests complete again: {why}"
            );
        }
    }
}

#[test]
fn a_busy_disk_is_sampled_twice_for_each_wake_up() {
    let mut board = board();
    let healthy = Some(Health::Healthy);
    board.apply_sample(SDA, sample(1, 1), healthy, at(0));
    assert_eq!(board.sample_at(), None, "not suspected");
    board.suspect();
    board.apply_sample(SDA, sample(9, 1), healthy, at(5));
    assert_eq!(board.sample_at(), Some(at(6)));
    // A second wake-up neither postpones the sampling nor discards its first half.
    let soon = at(5).plus(Duration::from_millis(400));
    board.suspect();
    assert_eq!(board.apply_sample(SDA, sample(9, 1), healthy, soon), None);
    assert_eq!(board.sample_at(), Some(at(6)));
    board.begin_sampling(at(6));
    board.apply_sample(SDA, sample(20, 1), healthy, at(6));
    assert_eq!(board.sample_at(), None);
}

#[test]
fn errors_apply_until_the_kernel_clears_them_or_io_stops() {
    for (kernel, completed, in_flight, expected) in [
        (Health::Failing, 7, 0, None),
        (Health::Failing, 5, 0, Some(Health::Healthy)),
        (Health::Failing, 5, 2, Some(Health::Stalled)),
        (Health::Healthy, 9, 1, Some(Health::Healthy)),
    ] {
        let mut board = board();
        assert!(board.set_health(SDA, Health::Failing, at(0)));
        assert_eq!(board.named(Health::Failing), ["sda"]);
        let first = board.apply_sample(SDA, sample(5, 2), Some(Health::Failing), at(2));
        assert_eq!(first, None);
        let change = board.apply_sample(SDA, sample(completed, in_flight), Some(kernel), at(4));
        assert_eq!(change, expected, "{kernel:?} {completed} {in_flight}");
    }
}

#[test]
fn by_counters_a_disk_is_slow_on_average_and_healthy_after_three_good_samples() {
    use Health::{Healthy, Slow};
    // requests since the last sample, their milliseconds, change, why
    let script = [
        (1000, 0, None, "the first sample has no predecessor"),
        (4, 4000, None, "too few"),
        (5, 99, None, "just under 20 ms each"),
        (5, 100, Some(Slow), "at the limit"),
        (500, 0, None, "one good sample"),
        (0, 0, None, "two: no I/O is good"),
        (10, 900, None, "late again: the count restarts"),
        (9, 9, None, "one"),
        (9, 9, None, "two"),
        (9, 9, Some(Healthy), "three"),
    ];
    let mut board = board();
    let mut now = sample(0, 0);
    for (n, (requests, ms, expected, why)) in script.into_iter().enumerate() {
        now.completed += requests;
        now.answered += requests;
        now.waited += Duration::from_millis(ms);
        let change = board.apply_sample(SDA, now, None, at(10 * n as u64));
        assert_eq!(change, expected, "{why}");
    }
}

#[test]
fn a_disk_that_is_not_monitored_changes_nothing() {
    let mut board = DiskBoard::default();
    assert!(!board.set_health(SDA, Health::Slow, at(0)));
    assert_eq!(board.apply_sample(SDA, sample(1, 1), None, at(0)), None);
}
