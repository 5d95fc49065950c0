//! Messages about a container that is killed as a whole.

use super::*;

#[test]
fn of_a_group_the_largest_victims_are_named_with_their_sizes_and_all_together() {
    let kib = Bytes::from_kib;
    let had = |pid: u32, anon: Option<u64>| Finding {
        resident: anon.map(|anon| [kib(anon << 10), kib(1 << 10), kib(0)]),
        ..finding(pid, Some("/a"), None)
    };
    let many = |sizes: &[u64]| -> Vec<_> {
        let sizes = (1..).zip(sizes);
        sizes.map(|(pid, anon)| had(pid, Some(*anon))).collect()
    };
    let later = |further| {
        let mut kills = Kills::from(many(&[40, 2]));
        kills.further = further;
        kills
    };
    #[rustfmt::skip]
    let rows = [
        (many(&[3, 40, 7]).into(),
            "The processes were 2 (p2) with 41.0Mi, 3 (p3) with 8.0Mi, 1 (p1) with 4.0Mi; together they had 50.0Mi \
             of anonymous memory."),
        (many(&[1, 1, 1, 1, 1, 1, 40]).into(),
            "The largest processes were 7 (p7) with 41.0Mi, 1 (p1) with 2.0Mi, 2 (p2) with 2.0Mi, 3 (p3) with \
             2.0Mi, 4 (p4) with 2.0Mi, and 2 more; together they had 46.0Mi of anonymous memory."),
        (vec![had(1, None), had(2, Some(40))].into(),
            "The processes were 2 (p2) with 41.0Mi, 1 (p1); together they had at least 40.0Mi of anonymous memory."),
        (later(998),
            "The largest processes were 1 (p1) with 41.0Mi, 2 (p2) with 3.0Mi, and 998 more; together they had at \
             least 42.0Mi of anonymous memory."),
        (vec![had(1, None), had(2, None)].into(), "The processes were 1 (p1), 2 (p2)."),
    ];
    for (kills, expected) in rows {
        assert_eq!(victims(&kills), expected);
    }
}

#[test]
fn the_message_of_a_group_fits() {
    let all = (0..1000).map(|n| Finding {
        comm: "\\u{1}".repeat(15),
        consequence: Some(Consequence::WholeContainer),
        resident: Some([Bytes::from_kib(999 << 20); 3]),
        ..finding(4_000_000 + n, Some("/a"), Some("process 1 (x)"))
    });
    let kills = Kills::from(all.collect::<Vec<_>>());
    let message = in_pod(&kills, Some((&"c".repeat(63), None)), None);
    assert!(message.len() <= 1024, "{} bytes: {message}", message.len());
}

#[test]
fn what_remains_of_a_group_is_reported_if_it_is_more_than_a_tenth() {
    let mib = |n: u64| Bytes::from_kib(n << 10);
    let victim = |group: Option<&str>| Finding {
        group: group.map(str::to_owned),
        resident: Some([mib(100), mib(0), mib(0)]),
        ..finding(7, Some("/a"), None)
    };
    let left = |shmem, releasing| KillDetails {
        split: Some(MemorySplit {
            anon: mib(0),
            file: mib(0),
            shmem: mib(shmem),
            kernel: None,
            sockets: None,
        }),
        releasing,
        ..KillDetails::default()
    };
    // cgroup whose processes died, MiB that remain, whether a process still dies, whether it is
    // reported
    let rows = [
        (Some("/a"), 10, false, false),
        (Some("/a"), 11, false, true),
        (Some("/a"), 90, true, false),
        (Some("/a/b"), 1, false, true),
        (None, 1, false, true),
    ];
    for (group, remains, releasing, expected) in rows {
        let details = left(remains, releasing).without(&[victim(group)]);
        assert_eq!(
            details.split.is_some(),
            expected,
            "{group:?}, {remains}Mi, {releasing}"
        );
    }
}
