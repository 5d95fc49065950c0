use super::*;

const SECOND: Duration = Duration::from_secs(1);
const MIB: u64 = 1 << 20;

fn pod(n: u32) -> Owner {
    Owner::from(PodId::Uid(format!("{n:08x}-1f4b-4a62-9b0e-0f7c0f5d8a11")))
}

fn share(percent: f32) -> StallShare {
    StallShare::from_percent(percent)
}

/// A cgroup by number: path, bytes written and requests since the first snapshot, and its stall.
struct Row(u32, &'static str, Option<(u64, u64)>, Option<f32>);

/// Returns two snapshots. Every cgroup had transferred something before the first.
fn snapshots(rows: &[Row], node: Option<f32>) -> (IoSnapshot, IoSnapshot) {
    let snapshot = |passed: bool| {
        let cgroup = |Row(n, path, io, stall): &Row| {
            let owner = if path.starts_with("/kubepods") {
                pod(*n)
            } else {
                Owner::from_path(path, "/kubepods")
            };
            let io = io.map(|(written, requests)| IoCounts {
                read: 7 * MIB,
                written: 5 * MIB + if passed { written } else { 0 },
                requests: 11 + if passed { requests } else { 0 },
            });
            let stall = stall.map(share);
            let path = (*path).to_owned();
            (
                CgroupId(u64::from(*n)),
                CgroupIo {
                    owner,
                    path,
                    io,
                    stall,
                },
            )
        };
        IoSnapshot {
            cgroups: rows.iter().map(cgroup).collect(),
            node: node.map_or(StallRead::NoPsi, |percent| StallRead::Share(share(percent))),
        }
    };
    (snapshot(false), snapshot(true))
}

fn wait(rows: &[Row]) -> IoWait {
    let (before, after) = snapshots(rows, Some(77.0));
    IoWait::between(&before, &after, SECOND)
}

const BULK: Option<(u64, u64)> = Some((200 * MIB, 400));
const SMALL: Option<(u64, u64)> = Some((MIB, 256));

#[test]
fn the_wait_of_the_main_user_counts_only_if_it_does_not_transfer_in_bulk() {
    #[rustfmt::skip]
    let rows = [
        ("a bulk writer waits for its own writes",
            vec![Row(1, "/kubepods/pod1", BULK, Some(90.0)), Row(2, "/kubepods/pod2", SMALL, Some(4.0))], 4.0),
        ("another pod waits too",
            vec![Row(1, "/kubepods/pod1", BULK, Some(90.0)), Row(2, "/kubepods/pod2", SMALL, Some(35.0))],
            35.0),
        ("a database alone on a slow disk", vec![Row(1, "/kubepods/pod1", SMALL, Some(95.0))], 95.0),
        ("large requests on a slow disk", vec![Row(1, "/kubepods/pod1", Some((MIB, 8)), Some(95.0))], 0.0),
        ("many small requests on a fast disk", vec![Row(1, "/kubepods/pod1", Some((8 * MIB, 2048)), Some(95.0))], 0.0),
        (
            "the slice of a service that transfers in bulk is not another",
            vec![
                Row(1, "/system.slice", None, Some(80.0)),
                Row(2, "/system.slice/dump.service", BULK, Some(80.0)),
                Row(3, "/system.slice/ssh.service", SMALL, Some(12.0)),
            ],
            12.0,
        ),
        (
            "nor are the services of a slice that transfers in bulk",
            vec![
                Row(1, "/system.slice", BULK, Some(80.0)),
                Row(2, "/system.slice/dump.service", None, Some(80.0)),
                Row(3, "/system.slice-2", SMALL, Some(3.0)),
            ],
            3.0,
        ),
        (
            "services wait a little each, their slice long",
            vec![
                Row(1, "/system.slice", None, Some(20.0)),
                Row(2, "/system.slice/a.service", SMALL, Some(9.0)),
                Row(3, "/kubepods/pod3", BULK, Some(50.0)),
            ],
            20.0,
        ),
        ("without a pressure file of any cgroup the node counts", vec![Row(1, "/kubepods/pod1", BULK, None)], 77.0),
        ("as on cgroup v1", vec![], 77.0),
    ];
    for (name, rows, expected) in rows {
        assert_eq!(
            wait(&rows).others,
            OthersStall::Share(share(expected)),
            "{name}"
        );
    }
    let (before, after) = snapshots(&[], None);
    let without_psi = IoWait::between(&before, &after, SECOND);
    assert_eq!(without_psi.others, OthersStall::NoPsi);
    let failed = IoSnapshot {
        node: StallRead::Failed,
        ..after
    };
    let unread = IoWait::between(&failed, &failed, SECOND);
    assert_eq!(
        unread,
        IoWait::default(),
        "neither cgroups nor the node's file"
    );
}

#[test]
fn the_three_largest_users_and_the_three_longest_waiters_are_named() {
    let io = |mib: u64| Some((mib * MIB, mib));
    let wait = wait(&[
        Row(1, "/kubepods/pod1", io(3), Some(10.0)),
        Row(2, "/kubepods/pod2", io(9), Some(0.0)),
        Row(3, "/kubepods/pod3", io(0), Some(40.0)),
        Row(4, "/system.slice", io(50), Some(99.0)),
        Row(5, "/system.slice/a", io(40), Some(20.0)),
        Row(6, "/system.slice/b", io(4), Some(30.0)),
    ]);
    let system = |name: &str| Owner::Other(format!("/system.slice/{name}"));
    let users: Vec<_> = wait.users.iter().map(|user| user.owner.clone()).collect();
    assert_eq!(users, [system("a"), pod(2), system("b")]);
    let waiters: Vec<_> = wait.waiters.iter().map(|of| of.owner.clone()).collect();
    assert_eq!(waiters, [pod(3), system("b"), system("a")]);
    let wait = self::wait(&[
        Row(1, "/kubepods/pod1", None, Some(0.0)),
        Row(2, "/kubepods/pod2", None, Some(0.1)),
    ]);
    let waiters: Vec<_> = wait.waiters.iter().map(|of| of.owner.clone()).collect();
    assert_eq!(waiters, [pod(2)], "the other one does not wait");
}

#[test]
fn what_came_or_went_between_the_snapshots_is_not_a_user() {
    let (mut before, mut after) = snapshots(
        &[
            Row(1, "/kubepods/pod1", BULK, Some(1.0)),
            Row(2, "/kubepods/pod2", BULK, Some(2.0)),
            Row(3, "/kubepods/pod3", BULK, Some(3.0)),
        ],
        None,
    );
    before.cgroups.remove(&CgroupId(1));
    after.cgroups.remove(&CgroupId(2));
    // The counters decreased, because the device was replaced.
    let third = after.cgroups.get_mut(&CgroupId(3)).unwrap();
    third.io = Some(IoCounts::default());
    let wait = IoWait::between(&before, &after, SECOND);
    assert_eq!(wait.users, []);
    let waiters: Vec<_> = wait.waiters.iter().map(|of| of.owner.clone()).collect();
    assert_eq!(waiters, [pod(3), pod(1)]);
}

#[test]
fn rates_are_those_of_a_second() {
    let (before, after) = snapshots(&[Row(1, "/kubepods/pod1", BULK, None)], None);
    for (elapsed, expected) in [(500, 400 * MIB), (1000, 200 * MIB), (4000, 50 * MIB)] {
        let wait = IoWait::between(&before, &after, Duration::from_millis(elapsed));
        assert_eq!(wait.users[0].written.get(), expected, "{elapsed} ms");
    }
}

#[test]
fn the_text_names_pods_and_cannot_be_forged_by_a_cgroup() {
    let user = |owner, read, written| IoUser {
        owner,
        read: Bytes::from_bytes(read),
        written: Bytes::from_bytes(written),
    };
    let evil = Owner::Other("/x (1 kB/s); waiting most: pod a/b".to_owned());
    let waiter = |owner, percent| IoWaiter {
        owner,
        share: share(percent),
    };
    let mut wait = IoWait {
        users: vec![
            user(pod(1), 0, 212_300_000),
            user(evil, 1_550_000, 200_000),
            user(pod(9), 900, 10),
        ],
        waiters: vec![waiter(pod(2), 34.4), waiter(pod(1), 9.94)],
        others: OthersStall::NoPsi,
    };
    let known = |n: u32, name: &str| {
        let uid = format!("{n:08x}-1f4b-4a62-9b0e-0f7c0f5d8a11");
        Pod::new("team", name, &uid, None).unwrap()
    };
    let pods = [known(1, "backup"), known(2, "web")];
    wait.name_pods(|id| pods.iter().find(|pod| &*pod.uid == id.as_str()));
    let expected = "used most by pod team/backup (212 MB/s written), \
                    cgroup \"x (1 kB/s); waiting most: pod a/b\" (1.6 MB/s read, 200 kB/s written), \
                    pod with id 00000009-1f4b-4a62-9b0e-0f7c0f5d8a11 (1 kB/s read); \
                    waiting most: pod team/web (34% of the time), \
                    pod team/backup (9.9% of the time)";
    assert_eq!(wait.to_string(), expected);
    wait.users.clear();
    assert!(wait.to_string().starts_with("waiting most: pod team/web"));
    let node = StallRead::Share(share(34.4));
    let unread = "the cgroups that use it could not be read in time; tasks of the node waited for I/O 34% \
                  of the time";
    assert_eq!(IoWait::without_cgroups(node).to_string(), unread);
    let nothing = IoWait::without_cgroups(StallRead::NoPsi);
    assert_eq!(
        (nothing.to_string(), nothing.others),
        (String::new(), OthersStall::NoPsi)
    );
    assert!(IoWait::default().is_empty() && !wait.is_empty());
}

#[test]
fn a_share_is_limited_and_rounded() {
    let rows = [
        (f32::NAN, "0.0%"),
        (-1.0, "0.0%"),
        (0.04, "0.0%"),
        (0.05, "0.1%"),
        (9.94, "9.9%"),
        (9.95, "10%"),
        (99.5, "100%"),
        (101.0, "100%"),
    ];
    for (percent, expected) in rows {
        assert_eq!(share(percent).to_string(), expected, "{percent}");
    }
    assert!((share(12.34).percent() - 12.34).abs() < 0.001);
}
