//! How each signal is computed.

use std::time::Duration;

use nix::sys::statvfs::statvfs;
use nodepulse_tests::host_root::{Cgroups, MadeUpHost};
use nodepulse_tests::node::pass;
use nodepulse_tests::{SOON, skip};

use super::pressure::{GI, SAMPLE_INTERVAL, TRANSITION, float, settled, settled_on, signal};

/// With cgroup version 2, `memory.available` is `MemTotal` minus anonymous memory and active file
/// memory: memory of the kernel does not count.
#[tokio::test(start_paused = true)]
async fn a062_on_cgroup_v2_available_memory_is_total_minus_anon_and_active_file() {
    let stage = settled(|node| node).await;
    //  anon, file, inactive_file, then what is used
    let rows = [
        (3 * GI, 2 * GI, GI, 4 * GI),
        (0, GI, 0, GI),
        (GI, 2 * GI, 4 * GI, 0),
    ];
    for (anon, file, inactive, used) in rows {
        let text = format!(
            "anon {anon}\nfile {file}\nkernel {GI}\nslab {GI}\nsock 4096\n\
             active_file 1\ninactive_file {inactive}\n"
        );
        stage.host.write("sys/fs/cgroup/memory.stat", text);
        let available = signal(&stage, "memory.available").await;
        assert_eq!(
            available,
            Some(float(16 * GI - used)),
            "{anon} {file} {inactive}"
        );
    }
}

/// The same line on version 1: minus the usage of the root without inactive file memory.
#[tokio::test(start_paused = true)]
async fn a062_on_cgroup_v1_it_is_total_minus_usage_without_inactive_file() {
    for cgroups in [Cgroups::V1, Cgroups::Hybrid] {
        let stage = settled_on(MadeUpHost::with(cgroups), |node| node).await;
        for (usage, inactive, used) in [(5 * GI, GI, 4 * GI), (GI, 2 * GI, 0)] {
            let stat = format!("inactive_file 7\ntotal_cache 9\ntotal_inactive_file {inactive}\n");
            let top = "sys/fs/cgroup/memory";
            stage.host.write(&format!("{top}/memory.stat"), stat);
            let text = format!("{usage}\n");
            stage
                .host
                .write(&format!("{top}/memory.usage_in_bytes"), text);
            let available = signal(&stage, "memory.available").await;
            assert_eq!(
                available,
                Some(float(16 * GI - used)),
                "{cgroups:?} {usage}"
            );
        }
    }
}

/// `pid.available` is the smaller of the two limits, minus all threads that `/proc/loadavg` counts.
#[tokio::test(start_paused = true)]
async fn a063_available_pids_are_the_smaller_limit_minus_all_threads() {
    let stage = settled(|node| node).await;
    //  pid_max, threads-max, then what is available with 900 threads
    for (pid_max, threads_max, available) in [
        (4_194_304, 30_000, 29_100.0),
        (32_768, 128_000, 31_868.0),
        (1_000, 1_000, 100.0),
    ] {
        let host = &stage.host;
        host.pid_max(pid_max).threads_max(threads_max);
        // Seven of them run, and the newest is number 31337.
        host.write("proc/loadavg", "0.10 0.20 0.30 7/900 31337\n");
        let signal = signal(&stage, "pid.available").await;
        assert_eq!(signal, Some(available), "{pid_max} {threads_max}");
    }
}

/// `nodefs.available` is what users other than root may still write.
#[tokio::test(start_paused = true)]
async fn a064_space_reserved_for_root_is_not_available() {
    let stage = settled(|node| node).await;
    let found = statvfs(stage.host.path()).unwrap();
    let share = |blocks: u64| {
        let percent = u128::from(blocks) * 10_000 / u128::from(found.blocks());
        u32::try_from(percent).unwrap()
    };
    let (available, free) = (share(found.blocks_available()), share(found.blocks_free()));
    // Other programs write to it meanwhile.
    if free - available < 100 {
        return skip(
            "no reserved blocks",
            "root has less than 1 % of the file system for itself",
        );
    }
    let capacity = float(found.blocks() * found.fragment_size());
    let share_available = signal(&stage, "nodefs.available").await.unwrap() / capacity * 10_000.0;
    let off = |share: u32| (share_available - f64::from(share)).abs();
    assert!(
        off(available) < off(free),
        "{share_available}: {available} or {free}"
    );
}

/// A pods cgroup without a limit, or that does not exist, sets no condition, and ends one that it
/// set. A source that exists and cannot be read is different, unlike in a kubelet, for which its
/// threshold is not exceeded: after two sampling periods the condition is Unknown with the reason
/// `SourceUnavailable`, never a guessed False or a stale True.
#[tokio::test(start_paused = true)]
async fn a072_an_unreadable_source_is_unknown_and_a_nonexistent_one_is_no_source() {
    type Source = (&'static str, &'static str, &'static str);
    let rows: [Source; 3] = [
        ("MemoryPressure", "sys/fs/cgroup/memory.stat", "Unknown"),
        ("PIDPressure", "proc/loadavg", "Unknown"),
        ("MemoryPressure", "sys/fs/cgroup/kubepods", "False"),
    ];
    for (type_, file, expected) in rows {
        let stage = settled(|node| node.hard("memory.available<1Gi,pid.available<500")).await;
        stage.host.remove(file);
        pass(SAMPLE_INTERVAL * 2 - SOON).await;
        assert_eq!(stage.view().status(type_), "False", "{file}: not yet");
        pass(SAMPLE_INTERVAL * 2 + SOON).await;
        let condition = stage.view().condition(type_);
        assert_eq!(condition["status"], expected, "{file}");
        let unknown = condition["reason"] == "SourceUnavailable";
        assert_eq!(unknown, expected == "Unknown", "{file}");
    }
}

/// The same line: a pods cgroup without a limit has no signal.
#[tokio::test(start_paused = true)]
async fn a072_without_a_limit_the_pods_cgroup_is_no_source() {
    type Change = fn(&MadeUpHost);
    let rows: [(&str, Change); 2] = [
        ("no limit", |host| {
            host.pods_limit("max");
        }),
        ("no cgroup", |host| {
            host.remove("sys/fs/cgroup/kubepods");
        }),
    ];
    for (name, change) in rows {
        let stage = settled(|node| node.hard("memory.available<1Gi")).await;
        change(&stage.host);
        if name == "no limit" {
            stage.host.pods_working_set("15Gi");
        }
        pass(Duration::from_mins(1)).await;
        assert_eq!(stage.view().status("MemoryPressure"), "False", "{name}");
        let signal = signal(&stage, "allocatableMemory.available").await;
        assert_eq!(signal, None, "{name}");

        stage.host.pods_limit("15Gi").pods_working_set("15Gi");
        stage
            .view()
            .becomes("MemoryPressure", "True", SAMPLE_INTERVAL * 2)
            .await;
        change(&stage.host);
        let longest = TRANSITION + SAMPLE_INTERVAL * 2;
        stage
            .view()
            .becomes("MemoryPressure", "False", longest)
            .await;
    }
}

/// Percentages are a kubelet's to the last unit, including its 32-bit arithmetic.
#[tokio::test(start_paused = true)]
async fn a074_percentages_are_rounded_as_a_kubelet_rounds_them() {
    const BILLION: u64 = 1_000_000_000;
    let pids = |share: &str| format!("pid.available<{share}");
    for (share, wanted) in [
        ("10%", 100_000_001),
        ("15%", 150_000_005),
        ("5%", 50_000_000),
    ] {
        let host = MadeUpHost::calm();
        host.pid_max(BILLION).threads_max(BILLION);
        let stage = settled_on(host, |node| node.hard(&pids(share))).await;
        for (left, expected) in [(wanted, "False"), (wanted - 1, "True")] {
            stage.host.tasks(BILLION - left);
            pass(SAMPLE_INTERVAL).await;
            let status = stage.view().status("PIDPressure");
            assert_eq!(status, expected, "{left} is left of {wanted}, {share}");
        }
    }
    let host = MadeUpHost::calm();
    host.mem_total("64Gi");
    let stage = settled_on(host, |node| node.hard("memory.available<15%")).await;
    for (left, expected) in [(10_307_921_920, "False"), (10_307_921_919, "True")] {
        stage.host.mem_working_set(&(64 * GI - left).to_string());
        pass(SAMPLE_INTERVAL).await;
        assert_eq!(stage.view().status("MemoryPressure"), expected, "{left}");
    }
}
