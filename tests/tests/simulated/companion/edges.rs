//! Each condition begins with its cause, and ends a transition period after it.

use std::time::Duration;

use nodepulse_core::reading::{Stall, StallKind, StallOf};

use nodepulse_tests::SOON;
use nodepulse_tests::api_server::Recorded;
use nodepulse_tests::node::pass;

use super::{
    AT_ONCE, Cause, NODE, REGULAR, SAMPLE_INTERVAL, SHORTAGE, STATUS, Sim, TRANSITION, WATCHED,
    calm, cluster, companion, condition_types, lines, theirs, types, writes_only_nodepulse_fields,
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
