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
