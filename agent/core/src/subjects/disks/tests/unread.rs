//! Tests with an I/O wait that cannot be read, or not in time.

use super::*;

/// Returns a disk of which slow windows of 13 s were reported, so that its I/O wait is queried.
fn suspected() -> Run {
    let mut run = with_probe();
    for second in 1..=12 {
        run.on(second, confirmed(second, true));
    }
    assert!(asks_for_stalls(&run.on(13, confirmed(13, true))));
    run
}

fn answer(others: OthersStall) -> DiskInput {
    DiskInput::IoWaitRead(IoWait {
        others,
        ..IoWait::default()
    })
}

fn unread(percent: Option<f32>) -> DiskInput {
    let node = percent.map(StallShare::from_percent);
    answer(OthersStall::Unread { node })
}

fn sda() -> Vec<String> {
    vec!["sda".to_owned()]
}

#[test]
fn without_psi_the_slow_windows_alone_decide() {
    let mut run = suspected();
    run.on(14, confirmed(14, true));
    assert_eq!(run.on(14, answer(OthersStall::NoPsi)), []);
    assert_eq!(slow(&run.on(15, confirmed(15, true))), Some(sda()));
}

#[test]
fn cgroups_that_could_not_be_read_decide_nothing_and_are_queried_again() {
    let mut run = suspected();
    for second in 14..=17 {
        run.on(second, confirmed(second, true));
    }
    let effects = run.on(18, unread(Some(90.0)));
    assert_eq!(slow(&effects), None);
    assert!(asks_for_stalls(&effects), "at once");
    for second in 18..=20 {
        assert_eq!(run.on(second, confirmed(second, true)), []);
    }
    assert_eq!(
        slow(&run.on(20, io_wait(10.0))),
        Some(sda()),
        "the second read succeeds"
    );
}

#[test]
fn if_cgroups_cannot_be_read_twice_in_a_row_the_wait_of_the_node_decides() {
    let rows = [
        (Some(10.0), true, "tasks of the node wait"),
        (Some(9.0), false, "tasks of the node hardly wait"),
        (None, false, "that cannot be read either"),
    ];
    for (node, expected, name) in rows {
        let mut run = suspected();
        for second in 14..=17 {
            run.on(second, confirmed(second, true));
        }
        run.on(18, unread(node));
        run.on(23, confirmed(23, true));
        let effects = run.on(23, unread(node));
        assert!(
            !asks_for_stalls(&effects),
            "{name}: not before another slow window"
        );
        assert_eq!(slow(&effects), expected.then(sda), "{name}");
        let queried = asks_for_stalls(&run.on(24, confirmed(24, true)));
        assert_eq!(queried, node.is_none(), "{name}");
    }
    // A successful read in between resets the count of failed ones.
    let mut run = suspected();
    run.on(14, unread(Some(90.0)));
    run.on(14, io_wait(1.0));
    for second in 14..=19 {
        run.on(second, confirmed(second, true));
    }
    assert_eq!(slow(&run.on(20, unread(Some(90.0)))), None);
}
