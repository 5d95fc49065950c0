//! Tests of the report about a change of a disk's health.

use super::*;
use crate::pods::Owner;
use crate::pressure::io_wait::IoWaiter;

fn sda_waited_for_by_a_pod() -> DiskInput {
    let share = StallShare::from_percent(20.0);
    let owner = Owner::NamedPod {
        namespace: "shop".into(),
        name: "database".into(),
        container: None,
    };
    DiskInput::IoWaitRead(IoWait {
        users: Vec::new(),
        waiters: vec![IoWaiter { owner, share }],
        others: OthersStall::Share(share),
    })
}

#[test]
fn a_slow_disk_has_its_causes_and_the_time_of_its_last_window() {
    let mut run = with_probe();
    for second in 1..=16 {
        run.on(second, confirmed(second, true));
    }
    let effects = run.on(17, sda_waited_for_by_a_pod());
    let details = reason(&effects).unwrap();
    let causes = "; waiting most: pod shop/database (20% of the time)";
    assert!(details.ends_with(causes), "{details}");
    let stamps = effects.iter().filter_map(|effect| match effect {
        Effect::Input(input) => match &**input {
            Input::Signal(SignalInput::Disks { stamp, .. }) => Some(*stamp),
            _ => None,
        },
        _ => None,
    });
    assert_eq!(stamps.collect::<Vec<_>>(), [Some(stamp(16))]);
}

#[test]
fn a_stalled_and_a_failing_disk_have_the_rule_that_they_met() {
    let mut run = with_probe();
    run.on(100, DiskInput::IoStalled);
    run.on(100, counters(0, busy(5, 3)));
    let stalled = run.on(110, counters(0, busy(5, 3)));
    let expected = "requests in flight, and none completed for 10 s";
    assert_eq!(reason(&stalled).as_deref(), Some(expected));

    let mut run = with_probe();
    let error = || {
        DiskReport::Error(DiskError {
            write: false,
            errno: 5,
        })
    };
    for second in 1..=2 {
        assert_eq!(reason(&run.on(second, reported(second, error()))), None);
    }
    let failing = run.on(3, reported(3, error()));
    let expected = "at least 3 failed requests within a minute";
    assert_eq!(reason(&failing).as_deref(), Some(expected));
}
