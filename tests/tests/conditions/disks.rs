//! Disks that are slow, hang, fail or are not measured.

use nodepulse::clock::BootNanos;
use nodepulse::reading::{Stall, StallKind, StallOf};
use nodepulse::record::{DiskAction, DiskChange, Record};
use nodepulse::units::DeviceNumber;
use nodepulse_tests::node::pass;
use serde_json::Value;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_slow_disk_is_named_and_does_not_set_disk_pressure() {
    let host = Arc::new(MadeUpHost::calm());
    host.disk("sda", "8:0").disk("sdb", "8:16");
    let sim = Sim::on(&in_memory(), host, |node| node).await;
    let view = sim.view();
    let space = view.condition("DiskPressure")["lastTransitionTime"].clone();
    pass(Duration::from_secs(33)).await;

    let slow = sim.api.now();
    sim.node.kernel().disk_state((8, 0), Side::Over).await;
    let (condition, at) = view.becomes("DiskIOPressure", "True", SOON).await;
    assert!(at - slow <= AT_ONCE, "{:?} after it", at - slow);
    assert_eq!(condition["reason"], "SlowDisk");
    assert_eq!(condition["message"], "slow disk: sda");

    let quick = sim.api.now();
    sim.node.kernel().disk_state((8, 0), Side::Under).await;
    let (condition, at) = view
        .becomes("DiskIOPressure", "False", TRANSITION * 2)
        .await;
    let lasted = at - quick;
    assert!(
        TRANSITION <= lasted && lasted <= TRANSITION + REGULAR,
        "lasted {lasted:?}"
    );
    assert_eq!(condition["reason"], "DisksResponsive");
    assert_eq!(view.condition("DiskPressure")["lastTransitionTime"], space);
    assert_eq!(view.status("DiskPressure"), "False");

    // With I/O statistics off, the kernel's start times are outdated, and so are the records.
    sim.host.write("sys/block/sdb/queue/iostats", "0\n");
    sim.node.kernel().disk_state((8, 16), Side::Over).await;
    pass(Duration::from_secs(15)).await;
    assert_eq!(view.status("DiskIOPressure"), "False");
}

#[tokio::test(start_paused = true)]
async fn a_hung_disk_is_reported_from_its_counters_once_tasks_wait() {
    let host = Arc::new(MadeUpHost::calm());
    host.disk("sda", "8:0").disk("sdb", "8:16");
    let sim = Sim::on(&in_memory(), host, |node| node).await;
    let view = sim.view();
    pass(Duration::from_secs(33)).await;

    let stalled = |at| Record::Stall {
        at,
        stall: Stall::new(StallOf::Node, StallKind::Io),
    };
    // Requests that go on, however many are in flight, are no hang.
    sim.host.disk_counters("sda", [10, 10, 0, 0, 4]);
    sim.host.disk_counters("sdb", [7, 7, 0, 0, 2]);
    let hung = sim.api.now();
    sim.node.kernel().send_record(stalled(BootNanos(0))).await;
    pass(Duration::from_millis(500)).await;
    sim.host.disk_counters("sda", [11, 900, 0, 0, 4]);
    let (condition, at) = view.becomes("DiskIOPressure", "True", SOON).await;
    let took = at - hung;
    assert!(took <= Duration::from_secs(1) + AT_ONCE, "{took:?}");
    assert_eq!(condition["reason"], "StalledDisk");
    assert_eq!(condition["message"], "stalled disk: sdb");

    sim.host.disk_counters("sdb", [9, 9000, 0, 0, 0]);
    let (condition, _) = view
        .becomes("DiskIOPressure", "False", TRANSITION * 2)
        .await;
    assert_eq!(condition["reason"], "DisksResponsive");
}

#[tokio::test(start_paused = true)]
async fn a_disk_with_errors_is_named_until_its_errors_end() {
    let host = Arc::new(MadeUpHost::calm());
    host.disk("sda", "8:0");
    let sim = Sim::on(&in_memory(), host, |node| node).await;
    let view = sim.view();
    pass(Duration::from_secs(33)).await;
    let failed = sim.api.now();
    sim.node.kernel().disk_errors((8, 0)).await;
    let (condition, at) = view.becomes("DiskIOPressure", "True", SOON).await;
    assert!(at - failed <= AT_ONCE, "{:?} after it", at - failed);
    assert_eq!(condition["reason"], "DiskErrors");
    assert_eq!(condition["message"], "disk errors: sda");
    let (_, at) = view
        .becomes("DiskIOPressure", "False", TRANSITION * 2)
        .await;
    // Two samples of a disk without I/O, two seconds apart.
    let lasted = at - failed - TRANSITION;
    assert!(
        lasted <= Duration::from_secs(5) + REGULAR,
        "{lasted:?} and the period"
    );
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_is_added_is_monitored_and_one_that_is_removed_is_not() {
    let sim = Sim::on(&in_memory(), Arc::new(MadeUpHost::calm()), |node| node).await;
    let view = sim.view();
    pass(Duration::from_secs(33)).await;
    let (sdc, numbers) = ("sdc", (8, 32));
    let change = |action| {
        Record::Disk(DiskChange {
            action,
            device: DeviceNumber {
                major: numbers.0,
                minor: numbers.1,
            },
            name: sdc.to_owned(),
        })
    };
    sim.node.kernel().disk_state(numbers, Side::Over).await;
    pass(Duration::from_secs(15)).await;
    assert_eq!(view.status("DiskIOPressure"), "False", "it is unknown");

    // Announced before its files are there, as before Linux 5.17.
    sim.node
        .kernel()
        .send_record(change(DiskAction::Added))
        .await;
    pass(Duration::from_millis(100)).await;
    sim.host.disk(sdc, "8:32");
    pass(Duration::from_millis(900)).await;
    sim.node.kernel().disk_state(numbers, Side::Over).await;
    let (condition, _) = view.becomes("DiskIOPressure", "True", SOON).await;
    assert_eq!(condition["message"], "slow disk: sdc");

    let pulled = sim.api.now();
    sim.node
        .kernel()
        .send_record(change(DiskAction::Removed))
        .await;
    let (_, at) = view
        .becomes("DiskIOPressure", "False", TRANSITION * 2)
        .await;
    let lasted = at - pulled;
    assert!(lasted <= TRANSITION + REGULAR, "lasted {lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_is_no_longer_monitored_sets_no_condition() {
    let host = Arc::new(MadeUpHost::calm());
    host.remove("sys/block")
        .disk("sda", "8:0")
        .disk("sdb", "8:16");
    let sim = Sim::on(&in_memory(), host, |node| node).await;
    let view = sim.view();
    let explained = async || -> Value {
        let explained = sim.node.get("/v1/explain").await.body;
        let explained: Value = serde_json::from_str(&explained).unwrap();
        let mut all = explained["conditions"].as_array().unwrap().iter();
        all.find(|c| c["type"] == "DiskIOPressure").unwrap().clone()
    };
    pass(Duration::from_secs(33)).await;
    sim.node.kernel().disk_state((8, 0), Side::Over).await;
    view.becomes("DiskIOPressure", "True", SOON).await;
    assert_eq!(explained().await.get("unwatched"), None);

    let statistics = |name: &str, on: &str| {
        sim.host
            .write(&format!("sys/block/{name}/queue/iostats"), on);
    };
    statistics("sda", "0\n");
    let (condition, _) = view
        .becomes("DiskIOPressure", "False", SAMPLE_INTERVAL + REGULAR)
        .await;
    assert_eq!(condition["reason"], "DisksResponsive");
    assert_eq!(explained().await["unwatched"], serde_json::json!(["sda"]));

    // The other one is watched, and the first raises nothing.
    sim.node.kernel().disk_state((8, 0), Side::Over).await;
    pass(Duration::from_secs(3)).await;
    assert_eq!(view.status("DiskIOPressure"), "False");
    sim.node.kernel().disk_state((8, 16), Side::Over).await;
    let (condition, _) = view.becomes("DiskIOPressure", "True", SOON).await;
    assert_eq!(condition["message"], "slow disk: sdb");

    statistics("sdb", "0\n");
    let (condition, _) = view
        .becomes("DiskIOPressure", "Unknown", SAMPLE_INTERVAL + REGULAR)
        .await;
    assert_eq!(condition["reason"], "SourceUnavailable");
    assert_eq!(
        condition["message"],
        "the latency of the disks cannot be read: I/O statistics are off \
         (/sys/block/sda/queue/iostats, /sys/block/sdb/queue/iostats)"
    );
    statistics("sdb", "1\n");
    view.becomes("DiskIOPressure", "False", SAMPLE_INTERVAL + REGULAR)
        .await;
}
