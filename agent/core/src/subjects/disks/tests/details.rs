//! Tests of the facts about each disk.

use super::*;
use crate::pods::Owner;
use crate::pressure::disks::DiskCounts;
use crate::pressure::io_wait::IoWaiter;

#[test]
fn details_have_the_state_of_each_disk_and_the_users_of_the_slow_one() {
    let volume = Disk {
        role: DiskRole::Volume,
        ..disk("sdb", 16)
    };
    let found = Some(vec![volume, disk("sda", 0)]);
    let mut run = Run::new(DiskProbe::Attached, IoTrigger::Set, found);
    let counts = |device| {
        let errors = 4;
        let judged = Buckets::default();
        (device == number(0)).then_some(DiskCounts { judged, errors })
    };
    for second in 1..=15 {
        run.on(second, confirmed(second, true));
    }
    run.on(15, io_wait(20.0));
    run.on(20, reported(20, error()));
    run.stalled(21, 16, true);

    let details = run.watch.details(counts, at(22));
    let [sda, sdb] = details.as_slice() else {
        panic!("{details:?}");
    };
    assert_eq!(
        (&*sda.name, sda.role, sda.health),
        ("sda", DiskRole::Node, Health::Slow)
    );
    assert_eq!(
        (&*sdb.name, sdb.role, sdb.health),
        ("sdb", DiskRole::Volume, Health::Stalled)
    );
    let rate = sda
        .slow
        .and_then(|slow| slow.rate)
        .map(|rate| rate.to_string());
    assert_eq!(rate.as_deref(), Some("12 MB/s"));
    assert_eq!(sdb.slow, None);
    assert_eq!((sda.recent_errors, sdb.recent_errors), (1, 0));
    assert_eq!(sda.counts.map(|counts| counts.errors), Some(4));
    assert_eq!(sdb.counts, None);
    assert_eq!(
        (sda.pending, sdb.pending),
        (None, Some(Duration::from_secs(61)))
    );
    let ago = sda.io_wait.as_ref().map(|(_, ago)| *ago);
    assert_eq!(ago, Some(Duration::from_secs(7)));
    assert!(sdb.io_wait.is_none(), "it was not read for this one");
    assert_eq!(sda.limit.limit, Duration::from_millis(20));
    assert!(sda.limit.computed.is_some());

    // A minute later neither the error nor the slow windows count.
    let later = run.watch.details(counts, at(81));
    assert_eq!((later[0].recent_errors, later[0].slow), (0, None));
}

#[test]
fn users_are_those_of_the_disk_that_was_read_while_another_one_is_queried() {
    let found = Some(vec![disk("sda", 0), disk("sdb", 16)]);
    let mut run = Run::new(DiskProbe::Attached, IoTrigger::Set, found);
    let known = |run: &Run| {
        let details = run.watch.details(|_| None, at(40));
        let known = details.iter().map(|disk| disk.io_wait.is_some());
        known.collect::<Vec<_>>()
    };
    for second in 1..=15 {
        run.on(second, confirmed(second, true));
    }
    run.on(15, io_wait(20.0));
    assert_eq!(known(&run), [true, false]);
    let mut queried = false;
    for second in 21..=34 {
        let window = confirmed_of(16, second, true);
        let query = Effect::BlockingQuery(BlockingQuery::IoWait(number(16)));
        queried |= run.on(second, window).contains(&query);
    }
    assert!(queried);
    assert_eq!(known(&run), [true, false], "not answered yet");
    run.on(35, io_wait(1.0));
    assert_eq!(known(&run), [true, true]);
}

#[test]
fn what_was_read_of_one_disk_decides_nothing_about_another() {
    let found = Some(vec![disk("sda", 0), disk("sdb", 16)]);
    let mut run = Run::new(DiskProbe::Attached, IoTrigger::Set, found);
    let query = |n| Effect::BlockingQuery(BlockingQuery::IoWait(number(n)));
    let mut queries = Vec::new();
    for second in 1..=16 {
        for n in [0, 16] {
            queries.extend(run.on(second, confirmed_of(n, second, true)));
        }
    }
    queries.retain(|effect| [query(0), query(16)].contains(effect));
    assert_eq!(queries, [query(0)], "one at a time");
    let user = |name: &str, percent| {
        let owner = Owner::Other(name.to_owned());
        let share = StallShare::from_percent(percent);
        DiskInput::IoWaitRead(IoWait {
            waiters: vec![IoWaiter { owner, share }],
            others: OthersStall::Share(share),
            ..IoWait::default()
        })
    };
    let effects = run.on(17, user("/of-sda", 20.0));
    assert_eq!(slow(&effects), Some(vec!["sda".to_owned()]));
    assert!(effects.contains(&query(16)), "the next one: {effects:?}");
    let effects = run.on(18, user("/of-sdb", 9.0));
    assert_eq!(slow(&effects), None, "{effects:?}");
    let details = run.watch.details(|_| None, at(18));
    for (disk, expected) in details.iter().zip(["of-sda", "of-sdb"]) {
        let (read, _) = disk.io_wait.as_ref().unwrap();
        let text = read.to_string();
        assert!(text.contains(expected), "{}: {text}", disk.name);
    }
}

#[test]
fn the_limit_of_a_disk_is_the_configured_one_if_none_is_computed() {
    let limit = Duration::from_millis(7);
    let mut settings = settings();
    let fixed = SlowLimit::Fixed(limit);
    settings.devices.insert("sda".to_owned(), fixed);
    let mut run = with_probe();
    run.on(2, DiskInput::Configured(settings));
    run.on(2, DiskInput::Listed(Some(vec![disk("sda", 0)])));
    let details = run.watch.details(|_| None, at(3));
    let computed = details[0].limit.computed.is_some();
    assert_eq!((details[0].limit.limit, computed), (limit, false));
}
