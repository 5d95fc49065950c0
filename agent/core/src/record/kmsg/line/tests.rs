use super::*;

fn parse(text: &str) -> Option<KillLine> {
    let bytes = format!("6,1,5,-;{text}\n SUBSYSTEM=cpu\n");
    record(bytes.as_bytes())?.line()
}

fn parse_summary(text: &str) -> Summary {
    match parse(text) {
        Some(KillLine::Summary(summary)) => summary,
        other => panic!("{text}: {other:?}"),
    }
}

fn text(bytes: Option<Vec<u8>>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |b| String::from_utf8(b).unwrap())
}

const HEAD: &str = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=";

#[test]
fn only_complete_lines_of_the_kernel_are_read() {
    let line = "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,\
                global_oom,task_memcg=/a,task=x,pid=7,uid=0";
    let rows = [
        ("6,1,5,-", true, "as captured"),
        ("6,1,5,-,caller=T17", true, "with its caller"),
        ("14,1,5,-", false, "facility 1: any process may write it"),
        (
            "6,1,5,c",
            false,
            "a continuation, which can begin with a name",
        ),
        ("6,1,5", false, "no flags"),
        ("x,1,5,-", false, "garbage"),
        ("", false, "empty"),
    ];
    for (head, read, why) in rows {
        let bytes = format!("{head};{line}\n");
        let found = record(bytes.as_bytes()).and_then(|record| record.line());
        assert_eq!(found.is_some(), read, "{why}");
    }
    assert!(record(b"6,1,5,- no semicolon").is_none());
    assert!(record(&vec![b'9'; 100_000]).is_none(), "huge");
}

#[test]
fn a_summary_has_the_scope_and_the_victims_cgroup() {
    let numa = "oom-kill:constraint=CONSTRAINT_CPUSET,nodemask=0-1,4,cpuset=pod,mems_allowed=0-1,4,\
                global_oom,task_memcg=/kubepods/podA,task=a b,pid=1,uid=4294967295";
    let got = parse_summary(numa);
    assert_eq!(got.constraint, OomConstraint::Cpuset);
    assert_eq!(
        (got.limiting, text(got.cgroup)),
        (None, "/kubepods/podA".into())
    );
    let victim = got.victim.unwrap();
    assert_eq!((victim.pid, victim.uid), (Pid(1), u32::MAX));
    assert_eq!(victim.comm, b"a b");
}

/// Pod A belongs to the hostile tenant, pod B to another one.
#[test]
fn a_hostile_name_never_names_another_pod() {
    const A: &str = "/kubepods/podA/ctr";
    //  cpuset, limiting, victim's, comm -> limiting, victim's, comm
    #[rustfmt::skip]
    let rows: [(&str, String, String, &str, &str, &str, &str); 11] = [
        ("/", A.into(), A.into(), "x", A, A, "plain"),
        ("/", A.into(), A.into(), "x,pid=1,uid=0", A, A, "a name like the end"),
        ("/", A.into(), A.into(), "a,task=b", A, A, "a name like a key"),
        ("/", A.into(), format!("{A}/x,task=b"), "c", A, "/kubepods/podA/ctr/x",
            "a cgroup like a key: its last name is cut"),
        ("x,mems_allowed=0,global_oom", A.into(), A.into(), "x", A, A, "a cpuset that contains global_oom"),
        ("x,oom_memcg=,task_memcg=", A.into(), A.into(), "x", A, A, "a cpuset like the keys"),
        ("/", A.into(), format!("{A}/x,task_memcg=/kubepods/podB/ctr"), "x", A,
            "/kubepods/podA/ctr/x,task_memcg=/kubepods/podB/ctr", "the victim's cgroup names another"),
        ("/", format!("{A}/x,task_memcg=/kubepods/podB/ctr"), format!("{A}/x,task_memcg=/kubepods/podB/ctr"),
            "x", "/kubepods/podA/ctr/x,task_memcg=/kubepods/podB/ctr",
            "/kubepods/podA/ctr/x,task_memcg=/kubepods/podB/ctr", "and so does the limiting one"),
        ("/", format!("{A}/x,global_oom,task_memcg=/kubepods/podB"),
            format!("{A}/x,global_oom,task_memcg=/kubepods/podB"), "x",
            "/kubepods/podA/ctr/x,global_oom,task_memcg=/kubepods/podB",
            "/kubepods/podA/ctr/x,global_oom,task_memcg=/kubepods/podB", "a cgroup that contains global_oom"),
        ("/", A.into(), format!("{A}/y,oom_memcg=/kubepods,task_memcg=/kubepods/podB"), "x", A,
            "/kubepods/podA/ctr/y,oom_memcg=/kubepods,task_memcg=/kubepods/podB",
            "a cgroup that names the limit of all pods"),
        ("/", "/".into(), A.into(), "x", "/", A, "the top"),
    ];
    for (cpuset, oom, task, comm, limiting, cgroup, why) in rows {
        let line = format!(
            "{HEAD}{cpuset},mems_allowed=0,oom_memcg={oom},task_memcg={task},task={comm},pid=7,uid=0"
        );
        let got = parse_summary(&line);
        assert_eq!(text(got.limiting), limiting, "limiting, {why}");
        assert_eq!(text(got.cgroup), cgroup, "cgroup, {why}");
        let victim = got.victim.unwrap();
        assert_eq!((victim.pid, victim.uid), (Pid(7), 0), "{why}");
    }
}

#[test]
fn a_line_that_was_cut_or_contradicts_itself_names_nothing() {
    let global = HEAD.replace("MEMCG", "NONE");
    #[rustfmt::skip]
    let rows = [
        (format!("{HEAD}/"), "before the cgroups"),
        (format!("{HEAD}/,mems_allowed=0,oom_memcg=/kubepods/podA,task_memcg=/kubepods/podA"), "before the victim"),
        (format!("{HEAD}/,mems_allowed=0,global_oom,task_memcg=/kubepods/podB,task=x,pid=7,uid=0"),
            "a cgroup's limit, but global"),
        (format!("{global}/,mems_allowed=0,oom_memcg=/k,task_memcg=/k,task=x,pid=7,uid=0"), "no limit, but a cgroup"),
        (format!("{HEAD}/,mems_allowed=0,oom_memcg=/podA,task_memcg=/podB,task=x,pid=7,uid=0"),
            "the victim is not below the limit"),
        (format!("{HEAD}/,mems_allowed=0,oom_memcg=/pod,task_memcg=/podB,task=x,pid=7,uid=0"), "a common prefix"),
    ];
    for (line, why) in rows {
        let got = parse_summary(&line);
        assert_eq!((got.limiting, got.cgroup), (None, None), "{why}");
    }
    assert_eq!(parse("oom-kill:constraint=CONSTRAINT_NEW,x"), None);
}

#[test]
fn the_victim_is_parsed_from_both_ends() {
    const SIZES: &str = "total-vm:19392kB, anon-rss:16384kB, file-rss:1848kB, shmem-rss:4kB, \
                           UID:1000 pgtables:80kB oom_score_adj:-998";
    let kib = |n| Bytes::from_kib(n);
    for (words, memcg) in [
        ("Memory cgroup out of memory", true),
        ("Out of memory", false),
        ("Out of memory (oom_kill_allocating_task)", false),
    ] {
        for comm in [
            "provoke",
            "a) total-vm:9kB",
            "(sd-pam)",
            "",
            ") (x) UID:7 (y)",
        ] {
            let line = format!("{words}: Killed process 28146 ({comm}) {SIZES}");
            let expected = KillLine::Killed(Killed {
                pid: Pid(28146),
                comm: comm.into(),
                uid: Some(1000),
                resident: Some([kib(16384), kib(1848), kib(4)]),
                memcg,
            });
            assert_eq!(parse(&line), Some(expected), "{words} {comm}");
        }
    }
    let without = parse("Out of memory: Killed process 3 (x) total-vm:1kB, anon-rss:2kB");
    assert!(
        matches!(&without, Some(KillLine::Killed(k)) if k.resident.is_none() && k.uid.is_none()),
        "absent is not zero: {without:?}"
    );
    let exiting = "Memory cgroup out of memory: OOM victim 9 (x) is already exiting. Skip killing \
                   the task";
    assert_eq!(parse(exiting), Some(KillLine::Exiting));
    for garbage in [
        "Out of memory: Killed process (x) total-vm:1kB",
        "Out of memory: Killed process 99999999999 (x) total-vm:1kB",
        "Out of memory: Killed process 7 (a name that is too long) total-vm:1kB",
        "Out of memory: Killed",
        "x Out of memory: Killed process 7 (x) total-vm:1kB",
    ] {
        assert_eq!(parse(garbage), None, "{garbage}");
    }
}

#[test]
fn the_trigger_and_the_order_are_parsed() {
    let invoked = |comm: &[u8], order| {
        Some(KillLine::Invoked(Invoked {
            comm: comm.to_vec(),
            order,
        }))
    };
    #[rustfmt::skip]
    let rows = [
        ("provoke invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
            invoked(b"provoke", Some(0))),
        ("kworker/0:1 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=-1, oom_score_adj=0",
            invoked(b"kworker/0:1", Some(-1))),
        (r"a\x5cx41\x0a, order=-1 invoked oom-killer: gfp_mask=0x1(X), order=3, oom_score_adj=0", None),
        (r"a\x5cx41\x0a invoked oom-killer: gfp_mask=0x1(X), order=3, oom_score_adj=0", invoked(b"a\\x41\n", Some(3))),
        (", order=-1 invoked oom-killer: gfp_mask=0x1(X), order=3, oom_score_adj=0", invoked(b", order=-1", Some(3))),
        ("x invoked oom-killer: gfp_mask=0x1", invoked(b"x", None)),
    ];
    for (line, expected) in rows {
        assert_eq!(parse(line), expected, "{line}");
    }
}
