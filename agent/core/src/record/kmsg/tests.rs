use super::*;

/// Captured on Linux 6.18, without the 75 lines between the first two.
const INVOKED: &str = "4,6280,10559209132,-;provoke invoked oom-killer: \
     gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n";
const SUMMARY: &str = "6,6357,10559209325,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),\
     cpuset=/,mems_allowed=0,oom_memcg=/pods/pod,task_memcg=/pods/pod/container,task=provoke,\
     pid=28146,uid=0\n";
const KILLED: &str = "3,6358,10559209367,-;Memory cgroup out of memory: Killed process 28146 \
     (provoke) total-vm:19392kB, anon-rss:16384kB, file-rss:1848kB, shmem-rss:0kB, UID:0 \
     pgtables:80kB oom_score_adj:0\n";
const GROUP: &str = "6,6359,10559209370,-;Tasks in /pods/pod/container are going to be killed due \
     to memory.oom.group set\n";
const OTHER: &str = "6,6400,10559209999,-;eth0: link up\n";

fn all(log: &mut KmsgParser, records: &[&str]) -> Vec<LoggedKill> {
    for text in records {
        log.record(text.as_bytes());
    }
    log.take(BootNanos(20_000_000_000_000))
}

fn as_captured() -> LoggedKill {
    LoggedKill {
        at: BootNanos(20_000_000_000_000),
        victim: Pid(28146),
        comm: b"provoke".to_vec(),
        uid: Some(0),
        cgroup: Some(b"/pods/pod/container".to_vec()),
        group: None,
        scope: OomScope::Memcg(Some(b"/pods/pod".to_vec())),
        constraint: Some(OomConstraint::Memcg),
        order: Some(0),
        trigger: Some(b"provoke".to_vec()),
        resident: Some([16384, 1848, 0].map(Bytes::from_kib)),
    }
}

#[test]
fn records_of_one_kill_are_combined() {
    let whole = as_captured();
    let killed_only = LoggedKill {
        cgroup: None,
        scope: OomScope::Memcg(None),
        order: None,
        trigger: None,
        ..whole.clone()
    };
    let early = LoggedKill {
        resident: None,
        ..whole.clone()
    };
    let no_head = LoggedKill {
        order: None,
        trigger: None,
        ..whole.clone()
    };
    let rows = [
        (vec![INVOKED, SUMMARY, KILLED], whole, "all three"),
        (
            vec![SUMMARY, KILLED],
            no_head,
            "the trigger was overwritten",
        ),
        (vec![INVOKED, SUMMARY], early, "the last line is missing"),
        (vec![KILLED], killed_only, "the first two were suppressed"),
    ];
    for (records, expected, why) in rows {
        assert_eq!(
            all(&mut KmsgParser::default(), &records),
            [expected],
            "{why}"
        );
    }
    assert_eq!(all(&mut KmsgParser::default(), &[INVOKED, OTHER]), []);
}

#[test]
fn a_kill_is_reported_once() {
    let mut log = KmsgParser::default();
    assert_eq!(all(&mut log, &[INVOKED, SUMMARY]).len(), 1);
    assert_eq!(all(&mut log, &[KILLED]), [], "the last line is late");
    assert_eq!(all(&mut log, &[KILLED]).len(), 1, "a separate kill");

    let mut log = KmsgParser::default();
    let exiting = "3,1,2,-;Memory cgroup out of memory: OOM victim 28146 (provoke) is already \
                   exiting. Skip killing the task\n";
    assert_eq!(all(&mut log, &[INVOKED, SUMMARY, exiting]), []);

    let mut log = KmsgParser::default();
    log.record(SUMMARY.as_bytes());
    assert!(log.is_incomplete());
    log.lost();
    let kills = all(&mut log, &[&KILLED.replace("28146", "5")]);
    let known: Vec<_> = kills.iter().map(|k| (k.victim, &k.cgroup)).collect();
    let cgroup = Some(b"/pods/pod/container".to_vec());
    assert_eq!(
        known,
        [(Pid(28146), &cgroup), (Pid(5), &None)],
        "records before and after a gap are not combined"
    );
}

#[test]
fn members_of_a_group_share_the_scope() {
    let member = |pid: &str| KILLED.replace("28146", pid);
    let (one, two) = (member("28147"), member("28148"));
    let kills = all(
        &mut KmsgParser::default(),
        &[INVOKED, SUMMARY, KILLED, GROUP, KILLED, &one, OTHER, &two],
    );
    let pids: Vec<_> = kills.iter().map(|kill| kill.victim.0).collect();
    assert_eq!(pids, [28146, 28147, 28148], "the first is logged twice");
    for kill in &kills {
        assert_eq!(kill.scope, as_captured().scope);
        assert_eq!(kill.cgroup.as_deref(), Some(&b"/pods/pod/container"[..]));
        assert_eq!(kill.trigger, as_captured().trigger);
        assert_eq!(kill.group, kill.cgroup, "also of the first");
    }
    // The line about the group came after the kill was taken.
    let mut log = KmsgParser::default();
    assert_eq!(all(&mut log, &[INVOKED, SUMMARY, KILLED]), [as_captured()]);
    let later = all(&mut log, &[GROUP, KILLED, &one]);
    let later: Vec<_> = later
        .iter()
        .map(|kill| (kill.victim.0, kill.group.is_some()))
        .collect();
    assert_eq!(later, [(28147, true)]);
    // The next kill is in another cgroup.
    let next = SUMMARY.replace("/pods/pod", "/else");
    let mut log = KmsgParser::default();
    let kills = all(
        &mut log,
        &[SUMMARY, KILLED, GROUP, &one, INVOKED, &next, &two],
    );
    let last = kills.last().unwrap();
    assert_eq!(last.scope, OomScope::Memcg(Some(b"/else".to_vec())));
}

#[test]
fn the_time_of_a_kill_is_relative_to_the_newest_record() {
    let later = "6,6400,10562209367,-;eth0: link up\n";
    let kills = all(&mut KmsgParser::default(), &[SUMMARY, KILLED, later]);
    assert_eq!(kills[0].at, BootNanos(20_000_000_000_000 - 3_000_000_000));
    let earlier = "6,6400,7,-;eth0: link up\n";
    let kills = all(&mut KmsgParser::default(), &[SUMMARY, KILLED, earlier]);
    assert_eq!(kills[0].at, BootNanos(20_000_000_000_000), "out of order");
}
