//! Disks that are slow, hang, fail or are not measured.

use nodepulse_core::clock::BootNanos;
use nodepulse_core::reading::{Stall, StallKind, StallOf};
use nodepulse_core::record::Record;

use nodepulse_tests::node::pass;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_hung_disk_is_reported_from_its_counters_once_tasks_wait() {
    let host = Arc::new(MadeUpHost::calm());
    host.disk("sda", "8:0").disk("sdb", "8:16");
    let sim = on(host, |node| node).await;
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
async fn a_disk_that_only_pods_mount_sets_no_condition() {
    let host = Arc::new(MadeUpHost::calm());
    host.disk("sda", "8:0").disk("sdb", "8:16");
    let mounts = "1 0 8:0 / / rw - ext4 /dev/sda rw\n";
    host.write("proc/1/mountinfo", mounts);
    host.write("sys/dev/block/8:0/dev", "8:0\n");
    let sim = on(host, |node| node).await;
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
        let sim = on(host, |node| node).await;
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
    let sim = on(host, |node| node).await;
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
