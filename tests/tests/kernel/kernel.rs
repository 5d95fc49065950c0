//! Loads the programs into this machine's kernel and provokes the events that they must report.
//!
//! Always compiled; run with the feature `kernel`, as root or with CAP_BPF and CAP_PERFMON. The
//! tests share one kernel and change what it counts, so they run one at a time. Their steps are
//! in `nodepulse_tests::loaded`, where the virtual machines do it too.

use std::future::Future;
use std::io;
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::Path;

use nodepulse_core::reading::StallKind;
use nodepulse_core::record::{DiskAction, Via};
use nodepulse_core::units::DeviceNumber;
use nodepulse_linux::host::{HostRoot, pod_volumes};
use nodepulse_linux::kernel::{KillHook, ProbeState, Support, Wanted, loader, object};

use nodepulse_tests::eventually;
use nodepulse_tests::loaded::judged::Passthrough;
use nodepulse_tests::loaded::{Loaded, disks, flood, judged, kills, pids, programs, psi};
use nodepulse_tests::provoke::Provoke;
use nodepulse_tests::provoke::disk::{
    DirectFile, FreezableFileSystem, Loop, disk_of, disk_of_node,
};
use nodepulse_tests::skip;

/// Number of forks, since other tasks start and end on this machine.
const CROWD: u32 = 300;
/// Number of kills in a storm: more than fit in their ring.
const KILLS: usize = 200;
/// Number of kills for a check that the last fallback is fast enough.
const FEW: usize = 40;

/// Attaches all programs, passes them to the test, and checks for losses afterwards.
fn with_probes<F: Future<Output = io::Result<Loaded>>>(test: impl FnOnce(Loaded) -> F) {
    with(
        &Wanted::ALL,
        |support| assert_eq!(support.tier(), "btf"),
        test,
    );
}

/// Reports only kills, at the exit of the thread that was marked by its pid.
fn with_exit_rung<F: Future<Output = io::Result<Loaded>>>(test: impl FnOnce(Loaded) -> F) {
    let by_exit = |support: &Support| assert_eq!(support.kills(), Some(KillHook::Exit));
    with(&kills::only(KillHook::Exit), by_exit, test);
}

fn with<F: Future<Output = io::Result<Loaded>>>(
    wanted: &Wanted,
    check: impl FnOnce(&Support),
    test: impl FnOnce(Loaded) -> F,
) {
    let object = object::embedded().expect("the tests are built with the eBPF object");
    let loaded =
        loader::load(object, wanted).expect("load: run as root or with CAP_BPF and CAP_PERFMON");
    for (probe, state) in &loaded.kernel.support().probes {
        println!("probe {} on {}: {state:?}", probe.program(), probe.hook());
    }
    check(loaded.kernel.support());
    block_on(async {
        test(Loaded::start(loaded))
            .await
            .unwrap()
            .assert_nothing_lost();
    });
}

fn block_on<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(test)
}

fn provoke() -> Provoke {
    Provoke::new(env!("CARGO_BIN_EXE_provoke"))
}

#[cfg_attr(feature = "kernel", test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
fn a_kill_names_the_victim_its_position_and_the_cgroup_that_was_at_its_limit() {
    with_probes(|mut loaded| async move {
        println!("{}", kills::nested(&mut loaded, &provoke()).await?);
        Ok(loaded)
    });
}

#[cfg_attr(feature = "kernel", test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
fn the_inferred_limit_is_the_one_that_the_kernels_log_names() {
    let inferred = |support: &Support| assert!(!support.exact_scope());
    with(
        &kills::only(KillHook::Task),
        inferred,
        |mut loaded| async move {
            println!("{}", kills::limit(&mut loaded, &provoke()).await?);
            Ok(loaded)
        },
    );
}

#[cfg_attr(feature = "kernel", test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
fn a_kill_in_a_cgroup_that_is_removed_at_once_keeps_its_names() {
    with_probes(|mut loaded| async move {
        println!("{}", kills::removed_at_once(&mut loaded, &provoke()).await?);
        Ok(loaded)
    });
}

#[cfg_attr(feature = "kernel", test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
fn each_of_two_hundred_kills_has_its_record() {
    with_probes(|mut loaded| async move {
        println!("{}", kills::storm(&mut loaded, &provoke(), KILLS).await?);
        Ok(loaded)
    });
}

#[cfg_attr(feature = "kernel", test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
fn a_kill_reported_at_the_exit_names_victim_cgroup_and_limit() {
    with_exit_rung(|mut loaded| async move {
        println!("{}", kills::by(&mut loaded, &provoke(), Via::Exit).await?);
        println!("{}", kills::storm(&mut loaded, &provoke(), FEW).await?);
        Ok(loaded)
    });
}

#[cfg_attr(feature = "kernel", test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
fn only_what_is_wanted_is_loaded() {
    let object = object::embedded().expect("the tests are built with the eBPF object");
    let pids = Wanted {
        scope: true,
        pids: true,
        ..Wanted::NOTHING
    };
    let rows: [(Wanted, &[&str]); 4] = [
        (kills::only(KillHook::Task), &["oom_victim"]),
        (kills::only(KillHook::Exit), &["oom_exit", "oom_pid"]),
        (pids, &["pid_fork"]),
        (Wanted::NOTHING, &[]),
    ];
    for (wanted, expected) in rows {
        let before = programs();
        let loaded = loader::load(object, &wanted).unwrap();
        let mut new_programs = programs();
        new_programs.retain(|program| !before.contains(program));
        let mut names: Vec<_> = new_programs.iter().map(|(_, name)| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, expected, "{wanted:?}: {:?}", loaded.kernel.support());
    }
}

#[cfg_attr(feature = "kernel", test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
fn forks_above_the_threshold_are_reported_once() {
    with_probes(|mut loaded| async move {
        println!("{}", pids::crossing(&mut loaded, &provoke(), CROWD).await?);
        Ok(loaded)
    });
}

#[cfg_attr(feature = "kernel", test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
fn the_count_of_pids_is_reported_as_it_moves() {
    with_probes(|mut loaded| async move {
        println!("{}", pids::trend(&mut loaded, &provoke(), CROWD).await?);
        Ok(loaded)
    });
}

#[cfg_attr(feature = "kernel", test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
fn requests_over_the_limit_make_a_disk_slow_and_those_under_it_do_not() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let Some((name, major, minor)) = disk_of(dir) else {
        panic!(
            "{} is not on a disk: set CARGO_TARGET_DIR to one that is",
            dir.display()
        );
    };
    with_probes(|mut loaded| async move {
        let file = DirectFile::create(dir)?;
        let device = DeviceNumber { major, minor };
        println!(
            "{name}: {}",
            disks::limit(&mut loaded, &file, device).await?
        );
        Ok(loaded)
    });
}

#[cfg_attr(feature = "kernel", test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
fn requests_that_a_task_waits_for_are_judged() {
    with_probes(|mut loaded| async move {
        let disk = Loop::new(Path::new(env!("CARGO_TARGET_TMPDIR")), 8 << 20)?;
        let (major, minor) = disk_of_node(&disk.node)?;
        let watched = disks::Disk {
            node: &disk.node,
            device: DeviceNumber { major, minor },
        };
        println!("{}", judged::classes(&mut loaded, watched)?);
        println!("{}", judged::few(&mut loaded, watched).await?);
        println!("{}", judged::silence(&mut loaded, watched).await?);
        Ok(loaded)
    });
}

#[cfg_attr(feature = "kernel", test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
fn commands_that_programs_send_to_a_disk_are_not_counted() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (name, major, minor) = disk_of(dir).expect("a target directory on a disk");
    let Some(commands) = Passthrough::of(&name) else {
        return skip("no disk that takes commands of programs", name);
    };
    with_probes(|mut loaded| async move {
        let file = DirectFile::create(dir)?;
        let disk = (name.as_str(), DeviceNumber { major, minor });
        let summary = judged::passthrough(&mut loaded, &file, disk, commands).await;
        println!("{name}: {}", summary?);
        Ok(loaded)
    });
}

#[cfg_attr(feature = "kernel", test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
fn no_kill_is_lost_in_a_flood_of_other_records_and_every_loss_is_counted() {
    println!("{}", block_on(flood::during_kills(&provoke())).unwrap());
}

#[cfg_attr(feature = "kernel", test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
fn a_disk_that_changes_is_announced() {
    let Some((name, ..)) = disk_of(Path::new(env!("CARGO_TARGET_TMPDIR"))) else {
        panic!("CARGO_TARGET_DIR is not on a disk: set it to one that is");
    };
    let uevent = Path::new("/sys/block").join(&name).join("uevent");
    block_on(async {
        let change = || std::fs::write(&uevent, "change");
        let summary =
            disks::announced(|announced| announced == name, DiskAction::Changed, change).await;
        println!("{}", summary.unwrap());
    });
}

#[cfg_attr(feature = "kernel", test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
fn failed_reads_are_reported_and_limited_in_number() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    with_probes(|mut loaded| async move {
        let disk = Loop::new(dir, 2 << 20)?;
        // The part beyond the end of the file can no longer be read.
        disk.cut_to(1 << 20)?;
        let (major, minor) = disk_of_node(&disk.node)?;
        let watched = disks::Disk {
            node: &disk.node,
            device: DeviceNumber { major, minor },
        };
        let read_bad = || {
            let mut block = [0; 512];
            std::fs::File::open(&disk.node)?.read_exact_at(&mut block, (2 << 20) - 4096)
        };
        println!("{}", disks::failing(&mut loaded, watched, read_bad).await?);
        Ok(loaded)
    });
}

#[cfg_attr(feature = "kernel", test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
fn a_disk_that_hangs_is_stalled_once_tasks_wait() {
    if let Some(why) = psi::missing(StallKind::Io) {
        return skip("no pressure trigger", why);
    }
    let disk = match FreezableFileSystem::new(Path::new(env!("CARGO_TARGET_TMPDIR"))) {
        Ok(disk) => disk,
        Err(why) => return skip("no disk that can be made to hang", why),
    };
    let node = &disk.disk.node;
    let name = node.file_name().unwrap().to_str().unwrap();
    let (major, minor) = disk_of_node(node).unwrap();
    let device = DeviceNumber { major, minor };
    let file = DirectFile::device(node).unwrap();
    block_on(async {
        let summary = psi::hung((name, device), file, |on| disk.hang(on)).await;
        println!("{}", summary.unwrap());
    });
}

#[cfg_attr(feature = "kernel", test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
fn the_counters_of_a_disk_move_with_what_is_written() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (name, ..) = disk_of(dir).expect("a target directory on a disk");
    let file = DirectFile::create(dir).unwrap();
    println!("{}", disks::counters(&name, &file).unwrap());
}

#[cfg_attr(feature = "kernel", test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
fn a_block_volume_is_on_the_disk_below_its_device() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (_, major, minor) = disk_of(dir).expect("a target directory on a disk");
    let volume = Loop::new(dir, 1 << 20).unwrap();
    let kubelet = tempfile::tempdir_in(dir).unwrap();
    let (pod, volumes) = ("4e7b6a2e-6d1f-4c55-9a3e-0a1b2c3d4e5f", "kubernetes.io~csi");
    let links = kubelet.path().join("pods").join(pod).join("volumeDevices");
    let links = links.join(volumes);
    std::fs::create_dir_all(&links).unwrap();
    symlink(&volume.node, links.join("pvc-1")).unwrap();
    symlink(dir, links.join("no-device")).unwrap();
    let on = |device| {
        let found = pod_volumes::on_disk(&HostRoot::new("/"), kubelet.path(), device).unwrap();
        let named = found.into_iter().map(|of| (of.pod, of.volume));
        named.collect::<Vec<_>>()
    };
    let expected = [(pod.to_owned(), "pvc-1".to_owned())];
    assert_eq!(on(DeviceNumber { major, minor }), expected);
    let (major, minor) = disk_of_node(&volume.node).unwrap();
    let none: [(String, String); 0] = [];
    assert_eq!(
        on(DeviceNumber { major, minor }),
        none,
        "a loop device is no disk"
    );
}

#[cfg_attr(feature = "kernel", test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
fn a_trigger_fires_when_tasks_wait_for_a_disk() {
    if let Some(why) = psi::missing(StallKind::Io) {
        return skip("no pressure trigger", why);
    }
    let file = DirectFile::create(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    block_on(async { println!("{}", psi::io(file).await.unwrap()) });
}

#[cfg_attr(feature = "kernel", test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
fn a_trigger_fires_when_tasks_wait_for_memory() {
    if let Some(why) = psi::missing(StallKind::Memory) {
        return skip("no pressure trigger", why);
    }
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    block_on(async { println!("{}", psi::memory(&provoke(), dir).await.unwrap()) });
}

#[cfg_attr(feature = "kernel", test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
fn nothing_remains_in_the_kernel_when_the_handle_is_dropped() {
    let before = programs();
    let mut new_programs = Vec::new();
    with_probes(|loaded| async {
        new_programs = programs();
        new_programs.retain(|program| !before.contains(program));
        for (probe, state) in &loaded.kernel.support().probes {
            let there = new_programs.iter().any(|(_, name)| name == probe.program());
            assert_eq!(
                there,
                *state == ProbeState::Attached,
                "{probe:?} in {new_programs:?}"
            );
        }
        Ok(loaded)
    });
    // The kernel frees them a moment after the last reference is dropped.
    block_on(eventually("programs gone", || {
        let mut left = programs();
        left.retain(|program| new_programs.contains(program));
        if left.is_empty() { Ok(()) } else { Err(left) }
    }));
}
