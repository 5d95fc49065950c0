//! Tests of the selection of disks.

use super::super::listing::RETRY;
use super::*;

#[test]
fn a_disk_that_the_kernel_refuses_is_not_watched() {
    let mut run = Run::without_probe(Some(Vec::new()));
    let listed = DiskInput::Listed(Some(vec![disk("sda", 0), disk("sdb", 16)]));
    let effects = run.watch.on(listed, now(at(2)));
    assert_eq!(writes(&effects), ["watch sda sdb"]);
    let Some(Effect::Map(MapUpdate::WatchDisks(disks))) = effects.last() else {
        panic!("{effects:?}");
    };
    let accepted = DiskInput::Watched(disks[..1].to_vec());
    let effects = run.watch.on(accepted, now(at(2)));
    assert_eq!(run.names(), ["sda"]);
    assert_eq!(judged(&effects), Some((true, None)));
}

#[test]
fn limits_are_those_of_the_name_else_of_the_kind() {
    let configured =
        BTreeMap::from([("sdc".to_owned(), SlowLimit::Fixed(Duration::from_millis(7)))]);
    let kinds = [
        ("sda", false, false, 20),
        ("sdb", true, false, 100),
        ("vda", true, true, 20),
        ("sdc", true, false, 7),
    ];
    let mut run = Run::without_probe(Some(Vec::new()));
    run.on(
        2,
        DiskInput::Configured(DiskIo {
            devices: configured,
            ..settings()
        }),
    );
    for (minor, (name, rotational, virtio, expected)) in (0..).zip(kinds) {
        let added = change(DiskAction::Added, name, minor);
        let disk = Disk {
            rotational,
            virtio,
            ..disk(name, minor)
        };
        let found = DiskInput::Found {
            change: added,
            disk: Some(disk),
        };
        run.on(3, found);
        let limit = run.watch.board.limit(number(minor));
        assert_eq!(limit, Some(Duration::from_millis(expected)), "{name}");
    }
}

#[test]
fn other_limits_and_another_window_are_written_for_the_disks_that_they_concern() {
    let all = || DiskInput::Listed(Some(vec![disk("sda", 0), disk("sdb", 16)]));
    let mut run = Run::without_probe(Some(vec![disk("sda", 0), disk("sdb", 16)]));
    assert_eq!(writes(&run.on(2, all())), [""; 0], "as before");
    let same = run.on(3, DiskInput::Configured(settings()));
    assert_eq!(queries(&same), []);
    let mut other = settings();
    let limit = Duration::from_millis(5);
    let limit = SlowLimit::Fixed(limit);
    other.devices.insert("sdb".to_owned(), limit);
    let asked = run.on(3, DiskInput::Configured(other.clone()));
    assert_eq!(queries(&asked), [DiskQuery::List]);
    assert_eq!(writes(&run.on(3, all())), ["watch sdb"]);
    other.window = Duration::from_secs(2);
    run.on(4, DiskInput::Configured(other));
    assert_eq!(writes(&run.on(4, all())), ["watch sda sdb"]);
    assert_eq!(writes(&run.on(4, all())), [""; 0], "once");
}

#[test]
fn the_list_that_is_read_again_is_what_is_watched() {
    let mut run = Run::without_probe(Some(vec![disk("sda", 0), disk("sdb", 16)]));
    run.stalled(1, 16, true);
    let listed = DiskInput::Listed(Some(vec![disk("sdc", 0), disk("sdb", 16)]));
    let effects = run.on(2, listed);
    assert_eq!(run.names(), ["sdc", "sdb"], "another disk, same number");
    assert_eq!(writes(&effects), ["forget 8:0", "watch sdc"]);
    let unwatched = effects.iter().any(|effect| {
        let Effect::Log(Decision::Disk(DiskDecision::Unwatched { name, reason, .. })) = effect
        else {
            return false;
        };
        name == "sda" && *reason == UnwatchReason::Removed
    });
    assert!(unwatched, "{effects:?}");
    let stalled = facts(&effects).map(|disks| disks.stalled);
    assert_eq!(stalled, Some(vec!["sdb".to_owned()]), "its health is kept");

    let listed = DiskInput::Listed(Some(vec![without_statistics("sdb", 16)]));
    let effects = run.on(3, listed);
    assert_eq!(run.names(), [""; 0]);
    let only_unwatched = Disks {
        unwatched: vec!["sdb".to_owned()],
        ..Disks::default()
    };
    assert_eq!(facts(&effects), Some(only_unwatched));
    let nothing_else = Unwatched { others: None };
    assert_eq!(judged(&effects), Some((false, Some(nothing_else))));

    let effects = run.on(4, DiskInput::Listed(Some(vec![disk("sdb", 16)])));
    assert_eq!(facts(&effects), Some(Disks::default()));
    assert_eq!(judged(&effects), Some((true, None)), "once");
    assert_eq!(run.names(), ["sdb"]);
}

#[test]
fn an_announced_disk_is_read_and_once_more_if_it_came_too_early() {
    use DiskAction::{Added, Changed, Removed};
    let found = |change: &DiskChange, disk| DiskInput::Found {
        change: change.clone(),
        disk,
    };
    let mut run = Run::new(
        DiskProbe::Attached,
        IoTrigger::Set,
        Some(vec![disk("sda", 0)]),
    );
    let excluded = run.on(2, DiskInput::Announced(change(Added, "loop0", 0)));
    assert_eq!(queries(&excluded), []);
    let sdb = change(Added, "sdb", 16);
    let asked = run.on(2, DiskInput::Announced(sdb.clone()));
    assert_eq!(queries(&asked), [DiskQuery::Find(sdb.clone())]);
    run.on(2, found(&change(Changed, "sdb", 16), None));
    assert_eq!(run.watch.due(), None, "it did not come");
    run.on(2, found(&sdb, None));
    let retry = at(2).plus(RETRY);
    assert_eq!(run.watch.due(), Some(retry));
    let effects = run.at(retry, DiskInput::Tick { soon: retry });
    let both = [DiskQuery::List, DiskQuery::Filesystems];
    assert_eq!(queries(&effects), both);
    assert_eq!(run.watch.due(), None, "once");

    run.on(3, found(&sdb, Some(disk("sdb", 16))));
    assert_eq!(run.names(), ["sda", "sdb"]);
    let lost = run.on(3, DiskInput::AnnouncementsLost);
    assert_eq!(queries(&lost), [DiskQuery::List]);
    run.stalled(3, 16, true);
    let removed = run.on(4, DiskInput::Announced(change(Removed, "sdb", 16)));
    assert_eq!(writes(&removed), ["forget 8:16"]);
    assert_eq!(facts(&removed), Some(Disks::default()));
    assert_eq!(run.names(), ["sda"]);
}

#[test]
fn a_list_that_could_not_be_read_is_read_again_after_ten_seconds() {
    let mut run = Run::without_probe(None);
    assert_eq!(run.watch.due(), Some(at(11)));
    assert!(run.tick(11).contains(&DiskQuery::List));
    let read = run.on(12, DiskInput::Listed(Some(Vec::new())));
    assert_eq!(judged(&read), Some((true, None)));
    assert_eq!(run.watch.due(), None);
}
