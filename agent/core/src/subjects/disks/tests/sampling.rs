//! Tests of the schedule of samples.

use super::*;

#[test]
fn without_the_probe_all_disks_are_sampled_every_ten_seconds_and_reads_decide() {
    let mut run = Run::without_probe(Some(vec![disk("sda", 0)]));
    let late = |n: u64| {
        let sample = DiskSample {
            completed: 10 * n,
            reads: 10 * n,
            read_time: Duration::from_secs(n),
            bytes: 3_000_000 * n,
            ..DiskSample::default()
        };
        counters(0, sample)
    };
    let asked = vec![DiskQuery::Counters(vec![(number(0), "sda".to_owned())])];
    assert_eq!(run.tick(10), asked);
    assert_eq!(run.tick(20), [], "the last one is not answered");
    run.on(20, late(1));
    assert_eq!(run.tick(29), []);
    assert_eq!(run.tick(30), asked);
    run.on(30, late(2));
    assert_eq!(run.watch.due(), Some(at(32)), "a slow window of 10 s");
    assert_eq!(run.tick(32), asked);
    run.on(32, late(3));
    assert_eq!(run.tick(34), asked);
    assert!(asks_for_stalls(&run.on(34, late(4))));
    run.on(35, io_wait(50.0));
    assert_eq!(run.tick(36), asked);
    let effects = run.on(36, late(5));
    let numbers = "40 reads took 20 ms or longer on average in the last 16 s (at most 100 ms on \
                   average in one sample), 1.5 MB/s";
    assert_eq!(reason(&effects).as_deref(), Some(numbers));
    let found = slow(&effects);
    assert_eq!(found, Some(vec!["sda".to_owned()]), "100 ms each for 16 s");
}

#[test]
fn a_hang_is_decided_exactly_when_no_request_completed_for_long_enough() {
    let asked = vec![DiskQuery::Counters(vec![(number(0), "sda".to_owned())])];
    let mut run = with_probe();
    assert_eq!(run.tick(100), [], "nothing is sampled before tasks wait");
    assert_eq!(queries(&run.on(100, DiskInput::IoStalled)), asked);
    assert_eq!(run.on(100, counters(0, busy(5, 3))), []);
    let decided = at(110).minus(WAITED);
    assert_eq!(run.watch.due(), Some(decided));
    let soon = decided;
    assert_eq!(queries(&run.at(decided, DiskInput::Tick { soon })), asked);
    let effects = run.at(decided, counters(0, busy(5, 3)));
    let rule = "requests in flight, and none completed for 10 s";
    assert_eq!(reason(&effects).as_deref(), Some(rule));
    let stalled = facts(&effects).map(|disks| disks.stalled);
    assert_eq!(stalled, Some(vec!["sda".to_owned()]));
    assert_eq!(run.tick(112), asked, "while it is unhealthy");
    let effects = run.on(112, counters(0, busy(6, 3)));
    let stalled = facts(&effects).map(|disks| disks.stalled);
    assert_eq!(stalled, Some(Vec::new()));
}
