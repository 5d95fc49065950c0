//! Loads the programs into this machine's kernel and provokes what they are to see.
//!
//! Always compiled; run with the feature `kernel`, as root or with CAP_BPF and CAP_PERFMON. The
//! tests share one kernel and change what it counts, so they run one at a time.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use agent_common::{DiskEntry, DropReason, PidSettings};
use nodepulse::clock::Clock;
use nodepulse::event::{Event, OomKill, OomScope, Received, Side};
use nodepulse::kernel::handle::CgroupMount;
use nodepulse::kernel::{Kernel, Probe, loader, object, ring};
use nodepulse::units::{DeviceNumber, Pid};
use nodepulse_tests::provoke::cgroup::CgroupTree;
use nodepulse_tests::provoke::disk::{DirectFile, disk_of};
use nodepulse_tests::provoke::{Provoke, tasks};
use nodepulse_tests::{SOON, eventually};
use tokio::sync::mpsc;

const MIB: u64 = 1 << 20;

/// The attached programs, and what they say.
struct Loaded {
    kernel: Kernel,
    events: mpsc::Receiver<Received>,
}

fn with_probes<F: Future<Output = ()>>(test: impl FnOnce(Loaded) -> F) {
    let object = object::embedded().expect("the tests are built with the eBPF object");
    let loaded = loader::load(object).expect("load: run as root or with CAP_BPF and CAP_PERFMON");
    for (probe, state) in &loaded.kernel.support().probes {
        println!(
            "probe {} on {}: {state:?}",
            probe.program(),
            probe.tracepoint()
        );
        assert!(
            loaded.kernel.support().attached(*probe),
            "{probe:?} is attached"
        );
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (send, events) = mpsc::channel(1024);
        tokio::spawn(ring::read(loaded.crit, Clock::kernel(), send.clone()));
        tokio::spawn(ring::read(loaded.bulk, Clock::kernel(), send));
        test(Loaded {
            kernel: loaded.kernel,
            events,
        })
        .await;
    });
}

impl Loaded {
    /// The first event for which `pick` gives something, within [`SOON`].
    async fn next<T>(&mut self, what: &str, pick: impl Fn(&Event) -> Option<T>) -> T {
        let mut seen = Vec::new();
        let search = async {
            loop {
                let event = self
                    .events
                    .recv()
                    .await
                    .expect("the rings are read")
                    .event
                    .unwrap();
                if let Some(found) = pick(&event) {
                    return found;
                }
                seen.push(event);
            }
        };
        match tokio::time::timeout(SOON, search).await {
            Ok(found) => found,
            Err(_) => panic!("no {what} within {SOON:?}; seen: {seen:?}"),
        }
    }

    async fn kill_of(&mut self, pid: u32) -> OomKill {
        self.next("OOM kill", |event| match event {
            Event::OomKill(kill) if kill.victim == Pid(pid) => Some((**kill).clone()),
            _ => None,
        })
        .await
    }

    fn assert_nothing_lost(&self) {
        for (reason, count) in self.kernel.losses().unwrap() {
            assert_eq!((reason, count), (reason, 0));
        }
    }
}

fn provoke() -> Provoke {
    Provoke::new(env!("CARGO_BIN_EXE_provoke"))
}

#[cfg_attr(feature = "kernel", test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
fn a_kill_names_the_victim_its_cgroup_and_the_cgroup_that_was_at_its_limit() {
    with_probes(|mut loaded| async move {
        let mut tree =
            CgroupTree::new(&format!("nodepulse-kernel-{}", std::process::id())).unwrap();
        tree.add("pod/container").unwrap();
        tree.limit("pod", 32 * MIB).unwrap();

        let (pid, status) = provoke()
            .eat_in(&tree.dir("pod/container"), 256 * MIB)
            .unwrap();
        assert!(!status.success(), "it was killed");
        let kill = loaded.kill_of(pid).await;

        assert_eq!(kill.comm, b"provoke");
        assert_eq!(kill.names[0], b"container");
        assert_eq!(kill.names[1], b"pod");
        let OomScope::Memcg {
            limiting,
            usage_pages,
            max_pages,
        } = kill.scope
        else {
            panic!("scope is {:?}", kill.scope);
        };
        let page = u64::try_from(
            nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)
                .unwrap()
                .unwrap(),
        )
        .unwrap();
        assert_eq!(max_pages * page, 32 * MIB);
        assert!(usage_pages <= max_pages, "{usage_pages} of {max_pages}");
        assert!(
            kill.anon_pages * page > 16 * MIB,
            "{} anonymous pages",
            kill.anon_pages
        );
        let below = tree.path("");
        let mount = tree.dir("");
        let mount = mount
            .to_str()
            .unwrap()
            .trim_end_matches('/')
            .strip_suffix(&below)
            .unwrap();
        let mount = CgroupMount::open(Path::new(mount)).unwrap();
        assert_eq!(mount.path(limiting).unwrap(), tree.path("pod"));
        assert_eq!(mount.path(kill.cgroup).unwrap(), tree.path("pod/container"));
        drop(tree);
        assert!(
            mount.path(limiting).is_err(),
            "a removed cgroup has no path"
        );
        loaded.assert_nothing_lost();
    });
}

#[cfg_attr(feature = "kernel", test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
fn a_kill_whose_cgroup_is_removed_at_once_keeps_its_names() {
    with_probes(|mut loaded| async move {
        let mut tree = CgroupTree::new(&format!("nodepulse-gone-{}", std::process::id())).unwrap();
        tree.add("container").unwrap();
        tree.limit("container", 16 * MIB).unwrap();
        let (pid, _) = provoke().eat_in(&tree.dir("container"), 128 * MIB).unwrap();
        let top = tree.path("");
        drop(tree);
        let kill = loaded.kill_of(pid).await;
        assert_eq!(kill.names[0], b"container");
        assert_eq!(kill.names[1], top.trim_start_matches('/').as_bytes());
    });
}

#[cfg_attr(feature = "kernel", test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
fn forks_over_the_level_are_told_once_and_at_the_level() {
    with_probes(|mut loaded| async move {
        let high = tasks().unwrap() + 150;
        let settings = PidSettings {
            high,
            low: high - 100,
            trend_step: 0,
            pad: 0,
        };
        loaded.kernel.set_pid_settings(settings).unwrap();
        let crossing = |side| {
            move |event: &Event| match event {
                Event::PidCrossing { value, side: s, .. } if *s == side => Some(*value),
                _ => None,
            }
        };
        let crowd = provoke().crowd(300).unwrap();
        assert_eq!(loaded.next("crossing", crossing(Side::Over)).await, high);

        drop(crowd);
        // User space ends the state, and the next crossing is told again.
        loaded.kernel.end_pid_state().unwrap();
        let high = tasks().unwrap() + 150;
        loaded
            .kernel
            .set_pid_settings(PidSettings { high, ..settings })
            .unwrap();
        let _crowd = provoke().crowd(300).unwrap();
        assert_eq!(loaded.next("crossing", crossing(Side::Over)).await, high);
        loaded.assert_nothing_lost();
    });
}

#[cfg_attr(feature = "kernel", test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
fn the_count_of_pids_is_reported_as_it_moves() {
    with_probes(|mut loaded| async move {
        let settings = PidSettings {
            high: 0,
            low: 0,
            trend_step: 50,
            pad: 0,
        };
        loaded.kernel.set_pid_settings(settings).unwrap();
        let before = tasks().unwrap();
        let _crowd = provoke().crowd(300).unwrap();
        let reached = loaded
            .next("trend", |event| match event {
                Event::PidTrend { value, .. } if *value >= before + 200 => Some(*value),
                _ => None,
            })
            .await;
        assert!(reached <= before + 400, "{before} before, then {reached}");
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
            "{} is not on a disk of its own: set CARGO_TARGET_DIR to one that is",
            dir.display()
        );
    };
    with_probes(|mut loaded| async move {
        let device = DeviceNumber { major, minor };
        let hour = u64::try_from(Duration::from_secs(3600).as_nanos()).unwrap();
        loaded
            .kernel
            .watch_disk(device, DiskEntry::new(hour, 1_000_000))
            .unwrap();
        let file = DirectFile::create(dir).unwrap();
        file.write(200).unwrap();
        let entry = loaded.kernel.disk(device).unwrap();
        assert!(
            entry.completed >= 200,
            "{name}: {} completed",
            entry.completed
        );
        assert_eq!(entry.histogram.iter().sum::<u64>(), entry.completed);
        assert_eq!((entry.state, entry.slow), (0, 0), "nothing takes an hour");

        // Everything takes a nanosecond.
        loaded
            .kernel
            .watch_disk(device, DiskEntry::new(1, 1_000_000))
            .unwrap();
        file.write(200).unwrap();
        let side = loaded
            .next("disk state", |event| match event {
                Event::DiskState {
                    device: d,
                    side,
                    slow,
                    ..
                } if *d == device => Some((*side, *slow > 0)),
                _ => None,
            })
            .await;
        assert_eq!(side, (Side::Over, true));

        loaded.kernel.end_disk_state(device).unwrap();
        assert_eq!(loaded.kernel.disk(device).unwrap().state, 0);
        assert!(
            loaded
                .kernel
                .losses()
                .unwrap()
                .contains(&(DropReason::NoStartTime, 0))
        );
    });
}

#[cfg_attr(feature = "kernel", test)]
#[cfg_attr(
    not(feature = "kernel"),
    expect(dead_code, reason = "runs with the feature `kernel`")
)]
fn nothing_stays_in_the_kernel_when_the_handle_is_dropped() {
    let before = programs();
    with_probes(|loaded| async move {
        let ours: Vec<_> = programs()
            .into_iter()
            .filter(|p| !before.contains(p))
            .collect();
        for probe in Probe::ALL {
            assert!(
                ours.iter().any(|(_, name)| name == probe.program()),
                "{probe:?} in {ours:?}"
            );
        }
        drop(loaded);
        // The kernel frees them a moment after the last reference is gone.
        eventually("programs gone", || {
            let left: Vec<_> = programs()
                .into_iter()
                .filter(|p| ours.contains(p))
                .collect();
            if left.is_empty() { Ok(()) } else { Err(left) }
        })
        .await;
    });
}

/// Id and name of all programs in the kernel.
fn programs() -> Vec<(u32, String)> {
    let programs = aya::programs::loaded_programs();
    programs
        .filter_map(|info| {
            info.ok()
                .map(|i| (i.id(), i.name_as_str().unwrap_or("").to_owned()))
        })
        .collect()
}
