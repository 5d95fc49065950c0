//! Disks that are slow, hang, fail or are not measured.

use nodepulse_core::clock::BootNanos;
use nodepulse_core::reading::{Stall, StallKind, StallOf};
use nodepulse_core::record::{DiskAction, DiskChange, Record};
use nodepulse_core::units::DeviceNumber;

use nodepulse_tests::node::pass;
use serde_json::Value;

use super::*;

/// Between two checks whether the I/O statistics of a disk were switched.
const STATISTICS_INTERVAL: Duration = Duration::from_mins(1);

/// Who waits for I/O is read for a second.
const WAITS_READ: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_slow_disk_is_named_and_does_not_set_disk_pressure() {
    let host = Arc::new(MadeUpHost::calm());
    host.disk("sda", "8:0").disk("sdb", "8:16");
    let sim = Sim::on(&in_memory(), host, |node| {
        node.config(|overrides| overrides.disk_io_slow_for = Some("15s".to_owned()))
    })
    .await;
    let view = sim.view();
    let others = ["DiskPressure", "DiskFailing"];
    let times = || others.map(|type_| view.condition(type_)["lastTransitionTime"].clone());
    let before = times();
    pass(Duration::from_secs(33)).await;

    let slow = sim.api.now();
    let slow_for = Duration::from_secs(15);
    for _ in 0..15 {
        pass(Duration::from_secs(1)).await;
        sim.node.kernel().slow_window((8, 0)).await;
    }
    let (condition, at) = view.becomes("DiskIOPressure", "True", SOON).await;
    let took = at - slow;
    assert!(
        slow_for <= took && took <= slow_for + WAITS_READ + AT_ONCE,
        "{took:?}"
    );
    assert_eq!(condition["reason"], "SlowDisk");
    assert_eq!(condition["message"], "slow disk: sda");

    let quick = sim.api.now();
    let (condition, at) = view
        .becomes("DiskIOPressure", "False", TRANSITION * 2)
        .await;
    // The slow windows count for twice as long.
    let lasted = at - quick;
    let longest = TRANSITION + slow_for * 2 + REGULAR;
    assert!(
        TRANSITION <= lasted && lasted <= longest,
        "lasted {lasted:?}"
    );
    assert_eq!(condition["reason"], "DisksResponsive");
    assert_eq!(times(), before, "transition times of {others:?}");

    // With I/O statistics off, the kernel's start times are outdated, and so are the records.
    sim.host.write("sys/block/sdb/queue/iostats", "0\n");
    for _ in 0..15 {
        pass(Duration::from_secs(1)).await;
        sim.node.kernel().slow_window((8, 16)).await;
    }
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
    pass(Duration::from_millis(300)).await;
    sim.node.kernel().send_record(stalled(BootNanos(0))).await;
    pass(Duration::from_secs(5)).await;
    sim.host.disk_counters("sda", [11, 900, 0, 0, 4]);
    let (condition, at) = view.becomes("DiskFailing", "True", SOON).await;
    let (took, stalled_after) = (at - hung, Duration::from_secs(10));
    let longest = stalled_after + Duration::from_millis(500);
    assert!(stalled_after <= took && took <= longest, "{took:?}");
    assert_eq!(condition["reason"], "StalledDisk");
    assert_eq!(condition["message"], "stalled disk: sdb");
    assert_eq!(view.status("DiskIOPressure"), "False");

    sim.host.disk_counters("sda", [12, 900, 0, 0, 0]);
    sim.host.disk_counters("sdb", [9, 9000, 0, 0, 0]);
    let (condition, _) = view.becomes("DiskFailing", "False", TRANSITION * 2).await;
    assert_eq!(condition["reason"], "DisksHealthy");
}

#[tokio::test(start_paused = true)]
async fn a_disk_with_three_errors_is_named_until_they_are_a_minute_old() {
    let host = Arc::new(MadeUpHost::calm());
    host.disk("sda", "8:0");
    let sim = Sim::on(&in_memory(), host, |node| node).await;
    let view = sim.view();
    pass(Duration::from_secs(33)).await;
    for _ in 0..2 {
        sim.node.kernel().disk_errors((8, 0)).await;
        pass(Duration::from_secs(20)).await;
        assert_eq!(view.status("DiskFailing"), "False", "a single bad sector");
    }
    let failed = sim.api.now();
    sim.node.kernel().disk_errors((8, 0)).await;
    let (condition, at) = view.becomes("DiskFailing", "True", SOON).await;
    assert!(at - failed <= AT_ONCE, "{:?} after it", at - failed);
    assert_eq!(condition["reason"], "DiskErrors");
    assert_eq!(condition["message"], "disk errors: sda");
    let (_, at) = view.becomes("DiskFailing", "False", TRANSITION * 2).await;
    // The first error was 40 s before the third.
    let lasted = at - failed - TRANSITION;
    let longest = Duration::from_secs(22) + REGULAR;
    assert!(lasted <= longest, "{lasted:?} and the period");
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_only_pods_mount_sets_no_condition() {
    let host = Arc::new(MadeUpHost::calm());
    host.disk("sda", "8:0").disk("sdb", "8:16");
    let mounts = "1 0 8:0 / / rw - ext4 /dev/sda rw\n";
    host.write("proc/1/mountinfo", mounts);
    host.write("sys/dev/block/8:0/dev", "8:0\n");
    let sim = Sim::on(&in_memory(), host, |node| node).await;
    let view = sim.view();
    pass(Duration::from_secs(33)).await;
    for _ in 0..3 {
        sim.node.kernel().slow_window((8, 16)).await;
        sim.node.kernel().disk_errors((8, 16)).await;
        pass(Duration::from_secs(1)).await;
    }
    pass(REGULAR).await;
    for type_ in ["DiskIOPressure", "DiskFailing"] {
        assert_eq!(view.status(type_), "False", "{type_}");
    }
    for _ in 0..3 {
        sim.node.kernel().disk_errors((8, 0)).await;
    }
    let (condition, _) = view.becomes("DiskFailing", "True", SOON).await;
    assert_eq!(condition["message"], "disk errors: sda");
}

#[tokio::test(start_paused = true)]
async fn a_root_file_system_that_becomes_read_only_after_an_error_is_a_failure() {
    let root = |options: &str| format!("1 0 8:0 / / rw - ext4 /dev/sda {options}\n");
    for (at_start, expected) in [("rw", "True"), ("ro", "False")] {
        let host = Arc::new(MadeUpHost::calm());
        host.disk("sda", "8:0");
        host.write("proc/1/mountinfo", root(at_start));
        // nodefs is another file system, which stays writable.
        let kubelet = "2 1 0:9 / /var/lib/kubelet rw - tmpfs tmpfs rw\n";
        let table = |options: &str| format!("{}{kubelet}", root(options));
        host.write("proc/1/mountinfo", table(at_start));
        let sim = Sim::on(&in_memory(), host, |node| node).await;
        let view = sim.view();
        pass(Duration::from_mins(6)).await;
        sim.host
            .write("proc/1/mountinfo", table("ro,errors=remount-ro"));
        sim.node.kernel().disk_errors((8, 0)).await;
        pass(AT_ONCE).await;
        assert_eq!(
            view.status("DiskFailing"),
            expected,
            "{at_start} at the start"
        );
        if expected == "True" {
            let condition = view.condition("DiskFailing");
            assert_eq!(condition["reason"], "ReadOnlyFilesystem");
            assert_eq!(condition["message"], "read-only file system: root");
        }
    }
}

/// The root file system has counted so many errors, the last one at this time.
fn count_errors(host: &MadeUpHost, device: &str, count: u64, last: u64) {
    let at = format!("sys/fs/ext4/{device}");
    host.write(&format!("{at}/last_error_time"), format!("{last}\n"))
        .write(&format!("{at}/last_error_func"), "ext4_lookup\n")
        .write(&format!("{at}/errors_count"), format!("{count}\n"));
}

#[tokio::test(start_paused = true)]
async fn an_ext4_of_the_node_that_counts_another_error_is_a_failure_and_one_of_a_pod_is_not() {
    let host = Arc::new(MadeUpHost::calm());
    let blocks = host.path().join("sys/dev/block");
    std::fs::create_dir_all(&blocks).unwrap();
    for (number, name) in [("253:0", "dm-0"), ("253:1", "dm-1")] {
        let target = format!("../../devices/virtual/block/{name}");
        std::os::unix::fs::symlink(target, blocks.join(number)).unwrap();
        host.write(
            &format!("proc/fs/ext4/{name}/options"),
            "rw\nerrors=continue\n",
        );
        count_errors(&host, name, 3, 1_700_000_000);
    }
    host.write(
        "proc/1/mountinfo",
        "1 0 253:0 / / rw - ext4 /dev/mapper/root rw\n\
         2 1 0:9 / /var/lib/kubelet rw - tmpfs tmpfs rw\n\
         3 2 253:1 / /var/lib/kubelet/pods/a/volumes/b/c rw - ext4 /dev/mapper/data rw\n",
    );
    let sim = Sim::on(&in_memory(), host, |node| node).await;
    let view = sim.view();
    pass(Duration::from_mins(6)).await;
    count_errors(&sim.host, "dm-1", 4, 1_800_000_000);
    pass(Duration::from_mins(6)).await;
    assert_eq!(view.status("DiskFailing"), "False", "old, or of a pod");

    count_errors(&sim.host, "dm-0", 4, 1_800_000_000);
    // With the next sample of storage.
    let sampled = REGULAR + SOON;
    let (condition, _) = view.becomes("DiskFailing", "True", sampled).await;
    assert_eq!(condition["reason"], "FilesystemShutdown");
    assert_eq!(condition["message"], "file system errors: root (/ on dm-0)");
    // A minute, then the transition period.
    pass(Duration::from_mins(5)).await;
    assert_eq!(view.status("DiskFailing"), "True");
    pass(Duration::from_secs(90)).await;
    assert_eq!(view.status("DiskFailing"), "False");
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
    sim.node.kernel().slow_window(numbers).await;
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
    sim.node.kernel().slow_window(numbers).await;
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
    sim.node.kernel().slow_window((8, 0)).await;
    view.becomes("DiskIOPressure", "True", SOON).await;
    assert_eq!(explained().await.get("unwatched"), None);

    let statistics = |name: &str, on: &str| {
        sim.host
            .write(&format!("sys/block/{name}/queue/iostats"), on);
    };
    statistics("sda", "0\n");
    let (condition, _) = view
        .becomes("DiskIOPressure", "False", STATISTICS_INTERVAL + REGULAR)
        .await;
    assert_eq!(condition["reason"], "DisksResponsive");
    assert_eq!(explained().await["unwatched"], serde_json::json!(["sda"]));

    // The other one is watched, and the first raises nothing.
    sim.node.kernel().slow_window((8, 0)).await;
    pass(Duration::from_secs(3)).await;
    assert_eq!(view.status("DiskIOPressure"), "False");
    sim.node.kernel().slow_window((8, 16)).await;
    let (condition, _) = view.becomes("DiskIOPressure", "True", SOON).await;
    assert_eq!(condition["message"], "slow disk: sdb");

    statistics("sdb", "0\n");
    let (condition, _) = view
        .becomes("DiskIOPressure", "Unknown", STATISTICS_INTERVAL + REGULAR)
        .await;
    assert_eq!(condition["reason"], "SourceUnavailable");
    assert_eq!(
        condition["message"],
        "the latency of the disks cannot be read: I/O statistics are off \
         (/sys/block/sda/queue/iostats, /sys/block/sdb/queue/iostats)"
    );
    statistics("sdb", "1\n");
    view.becomes("DiskIOPressure", "False", STATISTICS_INTERVAL + REGULAR)
        .await;
}
