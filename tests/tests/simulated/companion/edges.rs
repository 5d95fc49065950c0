//! Each condition begins with its cause, and ends a transition period after it.

use std::time::Duration;

use nodepulse_core::reading::{Stall, StallKind, StallOf};
use nodepulse_core::record::ScopeSource;

use nodepulse_tests::SOON;
use nodepulse_tests::api_server::Recorded;
use nodepulse_tests::node::{Kill, Limit, Node, pass};
use nodepulse_tests::view::View;

use super::{
    AT_ONCE, Cause, KILLED_PODS, NODE, REGULAR, SAMPLE_INTERVAL, SHORT, SHORTAGE, STATUS, Sim,
    TRANSITION, WATCHED, calm, cluster, companion, condition_types, lines, patches, theirs, types,
    writes_only_nodepulse_fields,
};

#[tokio::test(start_paused = true)]
async fn it_reads_once_and_adds_ten_conditions_before_ready() {
    let api = cluster();
    let before = theirs(&api.object(NODE).unwrap());
    let sim = Sim::on(&api, |node| node).await;
    pass(Duration::from_secs(60)).await;
    let expected = [format!("GET {NODE} 200"), format!("PATCH {STATUS} 200")];
    let about_the_node = api.requests_where(|request| request.path != WATCHED);
    assert_eq!(lines(&about_the_node), expected);
    assert_eq!(theirs(&sim.view().node().unwrap()), before);
    let all = sim.view().condition_types();
    assert_eq!(all.len(), 15);
    // At the place at which the API's merge inserts new ones.
    assert_eq!(all[..10], types());
    assert_eq!(all[14], "Ready");
    let rows = [
        "MemoryAvailable",
        "PIDsAvailable",
        "SpaceAvailable",
        "DisksResponsive",
        "DisksHealthy",
        "FewOOMKills",
        "NotStalled",
        "NotStalled",
        "NotStalled",
        "NotStalled",
    ];
    for (type_, reason) in types().into_iter().zip(rows) {
        let condition = sim.view().condition(type_);
        assert_eq!(condition["status"], "False", "{type_}");
        assert_eq!(condition["reason"], reason, "{type_}");
        assert_eq!(condition["lastTransitionTime"], "2026-01-01T00:00:00Z");
    }
    writes_only_nodepulse_fields(&api);
}

#[tokio::test(start_paused = true)]
async fn by_default_six_conditions_are_written() {
    let api = cluster();
    let node = Node::companion("worker-1").host(calm()).start(&api);
    pass(Duration::from_secs(60)).await;
    let view = View::of(&api, "worker-1");
    let nodepulse: Vec<_> = view.condition_types().into_iter().take(7).collect();
    let expected = [
        "MemoryLow",
        "PIDsLow",
        "DiskSpaceLow",
        "DiskIOPressure",
        "DiskFailing",
        "MemoryStallPressure",
        "NetworkUnavailable",
    ];
    assert_eq!(nodepulse, expected);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn kills_are_frequent_only_if_there_are_enough_in_enough_pods() {
    let [a, b, c] = KILLED_PODS;
    let rows: [(&[&str], u32, &str); 4] = [
        (&[a], 20, "False"),
        (&[a, b], 20, "False"),
        (&[a, b, c], 4, "False"),
        (&[a, b, c], 5, "True"),
    ];
    for (cgroups, kills, expected) in rows {
        let sim = Sim::start().await;
        sim.kills_in(cgroups, kills).await;
        pass(Duration::from_secs(5)).await;
        let status = sim.view().status("FrequentOOMKills");
        assert_eq!(status, expected, "{kills} in {cgroups:?}");
    }
    // One decision of the kernel, by which a whole container dies.
    let sim = Sim::start().await;
    for cgroup in KILLED_PODS {
        for process in 0..20 {
            let kill = Kill {
                victim: ("java", 4321 + process),
                cgroup,
                limit: Limit::Of(cgroup),
                source: ScopeSource::Exact,
            };
            sim.node.kernel().oom_kill_by(kill, ("java", 4321)).await;
        }
    }
    pass(Duration::from_secs(5)).await;
    assert_eq!(sim.view().status("FrequentOOMKills"), "False");
}

#[tokio::test(start_paused = true)]
async fn ten_idle_minutes_cost_one_read_and_three_patches() {
    let api = cluster();
    let node = companion().host(calm()).start(&api);
    pass(Duration::from_mins(10)).await;
    let patch = || format!("PATCH {STATUS} 200");
    let expected = [format!("GET {NODE} 200"), patch(), patch(), patch()];
    let watches = |request: &Recorded| request.path == WATCHED;
    assert_eq!(lines(&api.requests_where(|r| !watches(r))), expected);
    let watches = api.requests_where(watches).len();
    assert!((1..=3).contains(&watches), "{watches} watches on pods");
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_condition_begins_with_its_cause_and_ends_a_transition_period_after_it() {
    use Cause::{
        Disk, GlobalKill, Kills, Memory, Pids, PodsKill, PodsMemory, PodsPids, Stall as Waits,
    };
    let lately = "within the transition period";
    let ten = Duration::from_mins(10);
    let none = Duration::ZERO;
    // Cause, how late, how long it lasts by itself, condition, reason, message, reason of the end.
    #[rustfmt::skip]
    let rows = [
        (Memory, SAMPLE_INTERVAL, SAMPLE_INTERVAL, "MemoryLow", "LowMemory", format!("memory.available has been below min(5%,2Gi) {lately}"), "MemoryAvailable"),
        (PodsMemory, SAMPLE_INTERVAL, SAMPLE_INTERVAL, "MemoryLow", "LowMemory", format!("memory.available of the pods cgroup /kubepods has been below min(5%,2Gi) {lately}"), "MemoryAvailable"),
        (GlobalKill, none, SAMPLE_INTERVAL, "MemoryLow", "GlobalOOMKill", "the kernel killed a process because the node was out of memory".to_owned(), "MemoryAvailable"),
        (PodsKill, none, none, "MemoryLow", "PodsOOMKill", "the kernel killed a process at the memory limit of the pods cgroup /kubepods".to_owned(), "MemoryAvailable"),
        (Pids, none, SAMPLE_INTERVAL, "PIDsLow", "LowPIDs", format!("pid.available has been below 10% {lately}"), "PIDsAvailable"),
        (PodsPids, SAMPLE_INTERVAL, SAMPLE_INTERVAL, "PIDsLow", "PodsLowPIDs", format!("pid.available of the pods cgroup /kubepods has been below 10% {lately}"), "PIDsAvailable"),
        (Disk, Duration::from_secs(1), Duration::from_secs(4), "DiskIOPressure", "SlowDisk", "slow disk: sda".to_owned(), "DisksResponsive"),
        (Kills, none, ten, "FrequentOOMKills", "FrequentOOMKills", "OOM incidents in pods: at least 5, in at least 3 pods, within 10 minutes".to_owned(), "FewOOMKills"),
        (Waits(StallOf::Node, StallKind::Memory), SHORTAGE, SAMPLE_INTERVAL, "MemoryStallPressure", "Stalled", format!("tasks on the node stalled on memory for at least 15% of the time (PSI some) {lately}"), "NotStalled"),
        (Waits(StallOf::Node, StallKind::Io), none, SAMPLE_INTERVAL, "DiskStallPressure", "Stalled", format!("tasks on the node stalled on I/O for at least 40% of the time (PSI some) {lately}"), "NotStalled"),
        (Waits(StallOf::Pods, StallKind::Memory), none, SAMPLE_INTERVAL, "PodsMemoryStallPressure", "Stalled", format!("tasks in the pods cgroup /kubepods stalled on memory for at least 15% of the time (PSI some) {lately}"), "NotStalled"),
        (Waits(StallOf::Pods, StallKind::Io), none, SAMPLE_INTERVAL, "PodsDiskStallPressure", "Stalled", format!("tasks in the pods cgroup /kubepods stalled on I/O for at least 40% of the time (PSI some) {lately}"), "NotStalled"),
    ];
    for (cause, late, lasts, type_, reason, message, end) in rows {
        let sim = Sim::start().await;
        let view = sim.view();
        pass(Duration::from_secs(33)).await;
        let begun = sim.api.now();
        sim.begin(cause).await;
        let (condition, at) = view.becomes(type_, "True", SAMPLE_INTERVAL * 2).await;
        let took = at - begun;
        assert!(took <= late + AT_ONCE, "{type_} {reason}: {took:?} late");
        assert_eq!(condition["reason"], reason);
        assert_eq!(condition["message"], message, "{type_}");
        let event = view.event(reason, SOON).await;
        assert_eq!(event["type"], "Warning", "{reason}");
        if let Waits(of, kind) = cause {
            let averages = event["message"].as_str().unwrap();
            let waiting = "; waiting most: pod with id 0c9f1b7e-1f4b-4a62-9b0e-0f7c0f5d8a11 (100% of the time)";
            let of_memory = Stall::new(of, kind) == Stall::NODE_MEMORY;
            let waiting = if of_memory { waiting } else { "" };
            let expected = format!("; over 10 s 80%, over a minute 80%{waiting}");
            assert!(averages.ends_with(&expected), "{averages}");
        }
        let uid = &view.node().unwrap()["metadata"]["uid"];
        assert_eq!(event["involvedObject"]["uid"], *uid);
        let only: Vec<_> = types()
            .into_iter()
            .filter(|condition| view.status(condition) == "True")
            .collect();
        assert_eq!(only, [type_], "{reason}: alone");

        let over = sim.api.now();
        sim.end(cause).await;
        let (condition, at) = view
            .becomes(type_, "False", TRANSITION + ten + REGULAR * 2)
            .await;
        let lasted = at - over;
        let longest = TRANSITION + lasts + REGULAR;
        assert!(
            TRANSITION - AT_ONCE <= lasted && lasted <= longest,
            "{reason}: {lasted:?}"
        );
        assert_eq!(condition["reason"], end);
        let event = view.event(end, SOON).await;
        assert_eq!(event["type"], "Normal", "{end}");
        writes_only_nodepulse_fields(&sim.api);
    }
}

#[tokio::test(start_paused = true)]
async fn the_message_of_a_condition_does_not_change_while_it_lasts() {
    let sim = Sim::start().await;
    sim.host.mem_working_set(SHORT);
    sim.view()
        .becomes("MemoryLow", "True", SAMPLE_INTERVAL * 2)
        .await;
    let first = sim.view().condition("MemoryLow");
    let before = patches(&sim.api).len();
    for used in [15_710, 15_720, 15_705, 15_730] {
        sim.host.mem_working_set(&format!("{used}Mi"));
        pass(Duration::from_secs(20)).await;
    }
    assert_eq!(
        patches(&sim.api).len(),
        before,
        "a changed number is no change"
    );
    pass(TRANSITION * 2).await;
    let last = sim.view().condition("MemoryLow");
    assert_ne!(last["lastHeartbeatTime"], first["lastHeartbeatTime"]);
    for key in ["status", "reason", "message", "lastTransitionTime"] {
        assert_eq!(last[key], first[key]);
    }
}

#[tokio::test(start_paused = true)]
async fn another_disk_and_a_confirmed_kill_are_reported_regularly_and_are_no_transition() {
    let host = calm();
    host.disk("sdb", "8:16");
    let sim = Sim::with(&cluster(), host, |node| node).await;
    let view = sim.view();
    pass(Duration::from_secs(60)).await;
    sim.node.kernel().slow_window((8, 0)).await;
    let (first, _) = view.becomes("DiskIOPressure", "True", SOON).await;
    pass(Duration::from_millis(500)).await;
    // For longer than until the next regular computation.
    for _ in 0..12 {
        sim.node.kernel().slow_window((8, 0)).await;
        sim.node.kernel().slow_window((8, 16)).await;
        pass(Duration::from_secs(1)).await;
    }
    let second = view.condition("DiskIOPressure");
    assert_eq!(second["message"], "slow disk: sda, sdb");
    assert_eq!(second["lastTransitionTime"], first["lastTransitionTime"]);

    sim.host.mem_working_set(SHORT);
    let (first, _) = view.becomes("MemoryLow", "True", SAMPLE_INTERVAL * 2).await;
    pass(Duration::from_secs(30)).await;
    sim.kill(Limit::Machine).await;
    pass(REGULAR).await;
    let second = view.condition("MemoryLow");
    assert_eq!(first["reason"], "LowMemory");
    assert_eq!(second["reason"], "GlobalOOMKill");
    assert_eq!(second["lastTransitionTime"], first["lastTransitionTime"]);
    pass(Duration::from_secs(20)).await;
    assert_eq!(view.condition("MemoryLow")["reason"], "GlobalOOMKill");
}

#[tokio::test(start_paused = true)]
async fn a_condition_that_is_turned_off_by_a_reload_is_removed_and_can_be_turned_on_again() {
    let sim = Sim::start().await;
    let view = sim.view();
    let has = || condition_types(&view.node().unwrap()["status"]).contains(&"PIDsLow".to_owned());
    assert!(has());
    for (on, there) in [("false", false), ("true", true)] {
        let conditions = Some(format!("PIDsLow={on}"));
        sim.node.reload(|now| now.conditions = conditions).await;
        pass(Duration::from_secs(2)).await;
        assert_eq!(has(), there, "{on}");
        let read = sim.node.scrape().await;
        for status in ["True", "False", "Unknown"] {
            let labels = [("type", "PIDsLow"), ("status", status)];
            let series = read.value("nodepulse_condition_status", &labels);
            assert_eq!(
                series.is_some(),
                there,
                "{on} {status}: no alert may remain"
            );
        }
    }
    writes_only_nodepulse_fields(&sim.api);
}
