//! Pressure in, condition out.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::Duration;

use nodepulse::clock::BootNanos;
use nodepulse::event::{DiskAction, DiskChange, Event, ScopeSource, Side};
use nodepulse::reading::{Stall, StallKind, StallOf};
use nodepulse::units::DeviceNumber;
use nodepulse_tests::SOON;
use nodepulse_tests::api_server::ApiServer;
use nodepulse_tests::host_root::{MadeUpHost, PODS};
use nodepulse_tests::node::{Kill, Limit, Node, Running, in_memory, pass};
use nodepulse_tests::view::{View, gaps};
use serde_json::Value;

/// What a request takes in memory.
const AT_ONCE: Duration = Duration::from_millis(5);
const TRANSITION: Duration = Duration::from_mins(5);
/// Room for 10,000 pids, of which the threshold wants 500 left.
const FEW: u64 = 200;
const MANY: u64 = 9_600;

/// A node that is registered and calm, its host, and the server.
struct Sim {
    api: Arc<ApiServer>,
    host: Arc<MadeUpHost>,
    node: Running,
}

impl Sim {
    async fn start(configure: impl FnOnce(Node) -> Node) -> Self {
        Self::on(&in_memory(), Arc::new(MadeUpHost::calm()), configure).await
    }

    async fn on(
        api: &Arc<ApiServer>,
        host: Arc<MadeUpHost>,
        configure: impl FnOnce(Node) -> Node,
    ) -> Self {
        host.pid_max(10_000);
        let node = Node::named("worker-1").host(Arc::clone(&host));
        let node = configure(node).start(api);
        let api = Arc::clone(api);
        View::of(&api, "worker-1").settled(SOON).await;
        Self { api, host, node }
    }

    fn view(&self) -> View<'_> {
        View::of(&self.api, "worker-1")
    }

    async fn crowd(&self) {
        self.host.tasks(MANY);
        self.node.kernel().pid_crossing(Side::Over, 9_600).await;
    }
}

/// `lastTransitionTime` of every condition.
fn transitions(view: View<'_>) -> Vec<Value> {
    let types = view.condition_types();
    types
        .iter()
        .map(|type_| view.condition(type_)["lastTransitionTime"].clone())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_pid_crossing_is_reported_at_once_and_ends_after_the_transition_period() {
    let sim = Sim::start(|node| node).await;
    let view = sim.view();
    pass(Duration::from_secs(33)).await;
    let before = transitions(view);

    let crossed = sim.api.now();
    sim.crowd().await;
    let (condition, at) = view.becomes("PIDPressure", "True", SOON).await;
    assert!(at - crossed <= AT_ONCE, "{:?} after it", at - crossed);
    assert_eq!(condition["reason"], "KubeletHasInsufficientPID");
    assert_eq!(
        condition["message"],
        "kubelet has insufficient PID available"
    );
    assert_eq!(condition["lastTransitionTime"], "2026-01-01T00:00:33Z");
    let event = view.event("NodeHasInsufficientPID", SOON).await;
    assert_eq!(
        event["involvedObject"]["uid"],
        view.node().unwrap()["metadata"]["uid"]
    );

    // Over again a minute later: no second edge, and the period starts anew.
    sim.host.tasks(FEW);
    pass(Duration::from_mins(1)).await;
    let again = sim.api.now();
    sim.crowd().await;
    pass(Duration::from_secs(1)).await;
    sim.host.tasks(FEW);
    let (condition, at) = view.becomes("PIDPressure", "False", TRANSITION * 2).await;
    let held = at - again;
    assert!(
        TRANSITION <= held && held <= TRANSITION + AT_ONCE,
        "held for {held:?}"
    );
    assert_eq!(condition["reason"], "KubeletHasSufficientPID");
    pass(AT_ONCE).await;
    assert_eq!(
        view.event_reasons(),
        ["NodeHasInsufficientPID", "NodeHasSufficientPID"]
    );

    let after = transitions(view);
    assert_ne!(after[2], before[2]);
    for n in [0, 1, 3, 4] {
        assert_eq!(after[n], before[n], "condition {n} did not change");
    }
}

#[tokio::test(start_paused = true)]
async fn falling_memory_is_met_within_a_quarter_of_a_second() {
    // MiB a second; the quickest is as quick as one thread touches memory.
    for rate in [100_u64, 500, 1_000, 2_000] {
        let host = Arc::new(MadeUpHost::calm());
        host.mem_working_set("11Gi");
        let sim = Sim::on(&in_memory(), host, |node| node.hard("memory.available<1Gi")).await;
        pass(Duration::from_millis(12_345)).await;
        let mut used = 11 << 10;
        let mut crossed = None;
        while sim.view().status("MemoryPressure") != "True" {
            used += rate / 20;
            sim.host.mem_working_set(&format!("{used}Mi"));
            if crossed.is_none() && used > 15 << 10 {
                crossed = Some(sim.api.now());
            }
            pass(Duration::from_millis(50)).await;
            assert!(used < 20 << 10, "{rate} MiB/s: not met at all");
        }
        let (_, at) = sim.view().becomes("MemoryPressure", "True", SOON).await;
        let late = at - crossed.expect("no pressure before the threshold");
        let limit = Duration::from_millis(250) + AT_ONCE;
        assert!(late <= limit, "{rate} MiB/s: {late:?} late");
    }
}

#[tokio::test(start_paused = true)]
async fn a_threshold_is_met_below_it_and_not_at_it() {
    //  used of 16 GiB, hard, soft, then the condition is
    let (one_gi, two_gi) = ("memory.available<1Gi", "memory.available<2Gi");
    let at_15: u64 = 15 << 30;
    let at_14: u64 = 14 << 30;
    let rows = [
        ("at a hard one", at_15, one_gi, None, "False"),
        ("one byte below it", at_15 + 1, one_gi, None, "True"),
        ("at a soft one", at_14, one_gi, Some(two_gi), "False"),
        (
            "below it, long before its grace period ends",
            at_14 + 1,
            one_gi,
            Some(two_gi),
            "True",
        ),
    ];
    for (name, used, hard, soft, expected) in rows {
        let sim = Sim::start(|node| {
            node.hard(hard).config(|overrides| {
                overrides.eviction_soft = soft.map(str::to_owned);
                let grace = soft.map(|_| "memory.available=10m".to_owned());
                overrides.eviction_soft_grace_period = grace;
            })
        })
        .await;
        sim.host.mem_working_set(&used.to_string());
        pass(Duration::from_secs(11)).await;
        assert_eq!(sim.view().status("MemoryPressure"), expected, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_disk_is_named_and_leaves_disk_pressure_alone() {
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
    assert_eq!(condition["message"], "answering late: sda");

    let quick = sim.api.now();
    sim.node.kernel().disk_state((8, 0), Side::Under).await;
    let (condition, at) = view
        .becomes("DiskIOPressure", "False", TRANSITION * 2)
        .await;
    let held = at - quick;
    assert!(
        TRANSITION <= held && held <= TRANSITION + AT_ONCE,
        "held for {held:?}"
    );
    assert_eq!(condition["reason"], "DisksResponsive");
    assert_eq!(view.condition("DiskPressure")["lastTransitionTime"], space);
    assert_eq!(view.status("DiskPressure"), "False");

    // With I/O statistics off the kernel's start times are stale, and so is what it says.
    sim.host.write("sys/block/sdb/queue/iostats", "0\n");
    sim.node.kernel().disk_state((8, 16), Side::Over).await;
    pass(Duration::from_secs(15)).await;
    assert_eq!(view.status("DiskIOPressure"), "False");
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_is_told_by_its_counters_once_tasks_wait() {
    let host = Arc::new(MadeUpHost::calm());
    host.disk("sda", "8:0").disk("sdb", "8:16");
    let sim = Sim::on(&in_memory(), host, |node| node).await;
    let view = sim.view();
    pass(Duration::from_secs(33)).await;

    let stalled = |at| Event::Stall {
        at,
        stall: Stall::new(StallOf::Node, StallKind::Io),
    };
    // Requests that go on, however many are in flight, are no hang.
    sim.host.disk_counters("sda", [10, 10, 0, 0, 4]);
    sim.host.disk_counters("sdb", [7, 7, 0, 0, 2]);
    let hung = sim.api.now();
    sim.node.kernel().tell(stalled(BootNanos(0))).await;
    pass(Duration::from_millis(500)).await;
    sim.host.disk_counters("sda", [11, 900, 0, 0, 4]);
    let (condition, at) = view.becomes("DiskIOPressure", "True", SOON).await;
    let took = at - hung;
    assert!(took <= Duration::from_secs(1) + AT_ONCE, "{took:?}");
    assert_eq!(condition["reason"], "StalledDisk");
    assert_eq!(condition["message"], "not answering: sdb");

    sim.host.disk_counters("sdb", [9, 9000, 0, 0, 0]);
    let (condition, _) = view
        .becomes("DiskIOPressure", "False", TRANSITION * 2)
        .await;
    assert_eq!(condition["reason"], "DisksResponsive");
}

#[tokio::test(start_paused = true)]
async fn a_disk_with_errors_is_named_until_its_io_ends() {
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
    assert_eq!(condition["message"], "answering with errors: sda");
    let (_, at) = view
        .becomes("DiskIOPressure", "False", TRANSITION * 2)
        .await;
    // Two looks at a disk without I/O, two seconds apart.
    let held = at - failed - TRANSITION;
    assert!(held <= Duration::from_secs(5), "{held:?} and the period");
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_is_plugged_in_is_watched_and_one_that_is_pulled_is_forgotten() {
    let sim = Sim::on(&in_memory(), Arc::new(MadeUpHost::calm()), |node| node).await;
    let view = sim.view();
    pass(Duration::from_secs(33)).await;
    let (sdc, numbers) = ("sdc", (8, 32));
    let change = |action| {
        Event::Disk(DiskChange {
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
    assert_eq!(view.status("DiskIOPressure"), "False", "nobody knows it");

    // Announced before its files are there, as before Linux 5.17.
    sim.node.kernel().tell(change(DiskAction::Added)).await;
    pass(Duration::from_millis(100)).await;
    sim.host.disk(sdc, "8:32");
    pass(Duration::from_millis(900)).await;
    sim.node.kernel().disk_state(numbers, Side::Over).await;
    let (condition, _) = view.becomes("DiskIOPressure", "True", SOON).await;
    assert_eq!(condition["message"], "answering late: sdc");

    let pulled = sim.api.now();
    sim.node.kernel().tell(change(DiskAction::Removed)).await;
    let (_, at) = view
        .becomes("DiskIOPressure", "False", TRANSITION * 2)
        .await;
    let held = at - pulled;
    assert!(held <= TRANSITION + AT_ONCE, "held for {held:?}");
}

#[tokio::test(start_paused = true)]
async fn edges_are_sent_at_once_then_each_second_and_then_each_ten() {
    // Regular syncs would carry edges too, and are out of the way here.
    let sim = Sim::start(|node| {
        node.config(|overrides| {
            overrides.node_status_update_frequency = Some("1h".to_owned());
            overrides.eviction_pressure_transition_period = Some("300ms".to_owned());
        })
    })
    .await;
    let view = sim.view();
    pass(Duration::from_mins(2)).await;
    let before = view.patches().len();
    let began = sim.api.now();
    // Over for less than half of each 0.7 s, for a minute and a half.
    for _ in 0..128 {
        sim.crowd().await;
        pass(Duration::from_millis(50)).await;
        sim.host.tasks(FEW);
        sim.node.kernel().pid_crossing(Side::Under, 200).await;
        pass(Duration::from_millis(650)).await;
    }
    let ended = sim.api.now();
    pass(Duration::from_secs(20)).await;

    let patches = view.patches().split_off(before);
    assert!(patches[0].at - began <= AT_ONCE, "the first at once");
    for gap in gaps(&patches) {
        assert!(Duration::from_secs(1) <= gap, "{gap:?} between two");
    }
    let at: Vec<_> = patches.iter().map(|patch| patch.at - began).collect();
    let within =
        |from: Duration, to: Duration| at.iter().filter(|&at| (from..to).contains(at)).count();
    let seconds = Duration::from_secs;
    let first = within(seconds(0), seconds(10));
    assert!((2..=5).contains(&first), "a bucket of five: {at:?}");
    let later = within(seconds(10), ended - began);
    assert!((1..=8).contains(&later), "then one in ten seconds: {at:?}");
    assert_eq!(
        view.status("PIDPressure"),
        "False",
        "the last word is the truth"
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_true_before_a_restart_stays_for_a_whole_transition_period() {
    let sim = Sim::start(|node| node).await;
    sim.crowd().await;
    sim.view().becomes("PIDPressure", "True", SOON).await;
    let since = sim.view().condition("PIDPressure")["lastTransitionTime"].clone();
    pass(Duration::from_mins(1)).await;
    let Sim { api, host, node } = sim;
    node.stop().await.unwrap();

    host.tasks(FEW);
    pass(Duration::from_mins(1)).await;
    let restarted = api.now();
    let sim = Sim::on(&api, host, |node| node).await;
    let (condition, at) = sim
        .view()
        .becomes("PIDPressure", "False", TRANSITION * 2)
        .await;
    let held = at - restarted;
    // Counted from the moment at which it learnt of it: 100 ms into the run.
    let expected = TRANSITION..=TRANSITION + Duration::from_millis(100) + AT_ONCE;
    assert!(expected.contains(&held), "held for {held:?}");
    assert_ne!(condition["lastTransitionTime"], since);
    pass(AT_ONCE).await;
    let reasons = sim.view().event_reasons();
    assert_eq!(
        reasons
            .iter()
            .filter(|r| *r == "NodeHasSufficientPID")
            .count(),
        1
    );
    assert_eq!(
        sim.view().creates().len(),
        2,
        "the second was told that it exists"
    );
    assert_eq!(sim.view().requests("GET", &sim.view().path()).len(), 2);
}

/// A kubelet that is started after us makes the cgroup of its pods when it likes.
#[tokio::test(start_paused = true)]
async fn the_cgroup_of_the_pods_is_what_exists_or_comes_unless_its_name_is_given() {
    const SLICE: &str = "kubepods.slice";
    // What is configured, what there is, whether it comes later, what a former kubelet has left,
    // whether pressure in it is seen.
    let rows = [
        (None, PODS, false, None, "True"),
        (None, PODS, true, None, "True"),
        (None, SLICE, false, None, "True"),
        (None, SLICE, true, None, "True"),
        (None, PODS, false, Some(SLICE), "True"),
        (None, PODS, true, Some(SLICE), "True"),
        (None, SLICE, true, Some(PODS), "True"),
        (Some("systemd"), SLICE, true, None, "True"),
        (Some("cgroupfs"), SLICE, false, None, "False"),
    ];
    for (driver, name, later, left, expected) in rows {
        let host = Arc::new(MadeUpHost::calm());
        let cgroups = host.path().join("sys/fs/cgroup");
        let (aside, at) = (host.path().join("aside"), cgroups.join(name));
        host.pods_limit("15Gi").pods_working_set("14Gi");
        fs::rename(cgroups.join(PODS), &aside).unwrap();
        fs::write(aside.join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        if let Some(left) = left {
            fs::create_dir(cgroups.join(left)).unwrap();
            let empty = "populated 0\nfrozen 0\n";
            fs::write(cgroups.join(left).join("cgroup.events"), empty).unwrap();
        }
        let appear = || fs::rename(&aside, &at).unwrap();
        if !later {
            appear();
        }
        let sim = Sim::on(&in_memory(), host, |node| {
            node.hard("memory.available<1Gi").config(|overrides| {
                overrides.cgroup_driver = driver.map(str::to_owned);
            })
        })
        .await;
        pass(Duration::from_mins(1)).await;
        if later {
            appear();
            pass(Duration::from_secs(11)).await;
        }
        let row = format!("{driver:?}, {name}, later: {later}, beside {left:?}");
        assert_eq!(sim.view().status("MemoryPressure"), "False", "{row}");
        let kill = Kill {
            victim: ("stress", 4321),
            cgroup: &format!("{name}/pod1/ctr"),
            limit: Limit::Of(name),
            source: ScopeSource::Exact,
        };
        sim.node.kernel().oom_kill(kill).await;
        pass(AT_ONCE).await;
        let status = sim.view().status("MemoryPressure");
        assert_eq!(status, expected, "{row}: a kill at the limit of all pods");

        pass(TRANSITION * 2).await;
        assert_eq!(sim.view().status("MemoryPressure"), "False", "{row}");
        let used = fs::read_to_string(at.join("memory.max")).unwrap();
        fs::write(at.join("memory.current"), used).unwrap();
        pass(Duration::from_secs(11)).await;
        let status = sim.view().status("MemoryPressure");
        assert_eq!(status, expected, "{row}: at the limit of all pods");
        sim.node.stop().await.unwrap();
    }
}

/// The longest that nobody looks.
const LOOK: Duration = Duration::from_secs(10);
/// Two sampling periods, after which a source that cannot be read is lost.
const LOST: Duration = Duration::from_secs(20);

/// How a source of a condition is broken, and mended.
struct Source {
    type_: &'static str,
    /// What it says while the source is lost.
    message: &'static str,
    low: fn(&MadeUpHost),
    broken: fn(&MadeUpHost),
    mended: fn(&MadeUpHost),
}

/// A link to itself: there, but not to be read by anybody, like a mount whose server is gone.
fn unreadable(host: &MadeUpHost, rel: &str) {
    host.remove(rel);
    let path = host.path().join(rel);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    symlink(path.file_name().unwrap(), &path).unwrap();
}

const SOURCES: [Source; 4] = [
    Source {
        type_: "MemoryPressure",
        message: "memory.available cannot be read",
        low: |host| _ = host.mem_working_set("15500Mi"),
        broken: |host| unreadable(host, "sys/fs/cgroup/memory.stat"),
        mended: |host| {
            _ = host
                .remove("sys/fs/cgroup/memory.stat")
                .mem_working_set("4Gi")
        },
    },
    Source {
        type_: "MemoryPressure",
        message: "memory.available of the pods cgroup /kubepods cannot be read",
        low: |host| _ = host.pods_working_set("14500Mi"),
        broken: |host| unreadable(host, "sys/fs/cgroup/kubepods/memory.current"),
        mended: |host| {
            host.remove("sys/fs/cgroup/kubepods/memory.current");
            host.pods_working_set("2Gi");
        },
    },
    Source {
        type_: "PIDPressure",
        message: "pid.available cannot be read",
        low: |host| _ = host.tasks(MANY),
        broken: |host| unreadable(host, "proc/loadavg"),
        mended: |host| _ = host.remove("proc/loadavg").tasks(FEW),
    },
    Source {
        type_: "DiskPressure",
        message: "nodefs.available cannot be read",
        // There is no low disk space in a test.
        low: |_| {},
        broken: |host| unreadable(host, "var/lib/kubelet"),
        mended: |host| {
            host.remove("var/lib/kubelet");
            fs::create_dir(host.path().join("var/lib/kubelet")).unwrap();
        },
    },
];

/// With thresholds on all of them.
fn judged(node: Node) -> Node {
    let hard = "memory.available<1Gi,pid.available<500,nodefs.available<1Ki,nodefs.inodesFree<0%";
    node.config(|overrides| overrides.eviction_hard = Some(hard.to_owned()))
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_lost_leaves_its_condition_unknown_after_two_sampling_periods() {
    for Source {
        type_,
        message,
        broken,
        mended,
        ..
    } in SOURCES
    {
        let sim = Sim::start(judged).await;
        let view = sim.view();
        pass(Duration::from_secs(33)).await;
        assert_eq!(view.status(type_), "False", "{message}");

        // For less than two periods nothing is said.
        broken(&sim.host);
        pass(LOST - Duration::from_secs(1)).await;
        mended(&sim.host);
        pass(LOST * 2).await;
        assert_eq!(view.status(type_), "False", "{message}");
        assert_eq!(view.event_reasons(), [""; 0], "{message}");

        broken(&sim.host);
        let lost = sim.api.now();
        let longest = LOOK + LOST + LOOK;
        let (condition, at) = view.becomes(type_, "Unknown", longest).await;
        let took = at - lost;
        assert!(
            (LOST..=LOST + LOOK + AT_ONCE).contains(&took),
            "{took:?}: {message}"
        );
        assert_eq!(condition["reason"], "SourceUnavailable");
        assert_eq!(condition["message"], message);
        pass(TRANSITION).await;
        assert_eq!(view.status(type_), "Unknown", "{message}");
        assert_eq!(view.event_reasons(), ["SourceUnavailable"], "{message}");
        let others = view.condition_types().into_iter();
        let others = others.filter(|other| other != type_ && view.status(other) == "Unknown");
        assert_eq!(others.count(), 0, "{message}");

        mended(&sim.host);
        view.becomes(type_, "False", LOOK * 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_true_whose_source_is_lost_is_neither_kept_nor_taken_for_false() {
    for Source {
        type_,
        message,
        low,
        broken,
        mended,
    } in &SOURCES[..3]
    {
        let sim = Sim::start(|node| {
            // Shorter than the time after which a source is lost.
            judged(node).config(|overrides| {
                overrides.eviction_pressure_transition_period = Some("15s".to_owned());
            })
        })
        .await;
        let view = sim.view();
        low(&sim.host);
        view.becomes(type_, "True", LOOK * 2).await;
        broken(&sim.host);
        let mut said = vec!["True".to_owned()];
        for _ in 0..60 {
            pass(Duration::from_secs(1)).await;
            let now = view.status(type_);
            if said.last() != Some(&now) {
                said.push(now);
            }
        }
        assert_eq!(said, ["True", "Unknown"], "{message}");
        mended(&sim.host);
        view.becomes(type_, "False", LOOK * 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_was_never_there_leaves_its_condition_unknown_from_the_start() {
    for source in SOURCES {
        let host = Arc::new(MadeUpHost::calm());
        (source.broken)(&host);
        let sim = Sim::on(&in_memory(), host, judged).await;
        let condition = sim.view().condition(source.type_);
        assert_eq!(condition["status"], "Unknown", "{}", source.message);
        assert_eq!(condition["message"], source.message);
        pass(Duration::from_mins(1)).await;
        (source.mended)(&sim.host);
        sim.view().becomes(source.type_, "False", LOOK * 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_threshold_that_is_met_by_what_can_be_read_decides_beside_a_lost_source() {
    let [node, pods, ..] = SOURCES;
    let sim = Sim::start(judged).await;
    let view = sim.view();
    (node.broken)(&sim.host);
    view.becomes("MemoryPressure", "Unknown", LOOK + LOST + LOOK)
        .await;
    (pods.low)(&sim.host);
    view.becomes("MemoryPressure", "True", LOOK * 2).await;
    // Held for the whole period by the source that raised it, and not known after that.
    (pods.mended)(&sim.host);
    pass(TRANSITION - LOOK * 2).await;
    assert_eq!(view.status("MemoryPressure"), "True");
    view.becomes("MemoryPressure", "Unknown", LOOK * 4).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_pods_cgroup_or_a_limit_of_it_nothing_is_lost() {
    let sim = Sim::start(judged).await;
    for change in [
        (|host| _ = host.pods_limit("max")) as fn(&MadeUpHost),
        |host| _ = host.remove("sys/fs/cgroup/kubepods"),
    ] {
        change(&sim.host);
        pass(Duration::from_mins(2)).await;
        let types = sim.view().condition_types();
        let unknown: Vec<_> = types
            .iter()
            .filter(|t| sim.view().status(t) == "Unknown")
            .collect();
        assert_eq!(unknown, [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_nobody_watches_any_more_raises_nothing() {
    let host = Arc::new(MadeUpHost::calm());
    host.remove("sys/block")
        .disk("sda", "8:0")
        .disk("sdb", "8:16");
    let sim = Sim::on(&in_memory(), host, |node| node).await;
    let view = sim.view();
    let explained = async || -> Value {
        let told = sim.node.get("/v1/explain").await.body;
        let told: Value = serde_json::from_str(&told).unwrap();
        let mut all = told["conditions"].as_array().unwrap().iter();
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
        .becomes("DiskIOPressure", "False", LOOK + AT_ONCE)
        .await;
    assert_eq!(condition["reason"], "DisksResponsive");
    assert_eq!(explained().await["unwatched"], serde_json::json!(["sda"]));

    // The other one is watched, and the first raises nothing.
    sim.node.kernel().disk_state((8, 0), Side::Over).await;
    pass(Duration::from_secs(3)).await;
    assert_eq!(view.status("DiskIOPressure"), "False");
    sim.node.kernel().disk_state((8, 16), Side::Over).await;
    let (condition, _) = view.becomes("DiskIOPressure", "True", SOON).await;
    assert_eq!(condition["message"], "answering late: sdb");

    statistics("sdb", "0\n");
    let (condition, _) = view
        .becomes("DiskIOPressure", "Unknown", LOOK + AT_ONCE)
        .await;
    assert_eq!(condition["reason"], "SourceUnavailable");
    assert_eq!(
        condition["message"],
        "the latency of the disks cannot be read: I/O statistics are off \
         (/sys/block/sda/queue/iostats, /sys/block/sdb/queue/iostats)"
    );
    statistics("sdb", "1\n");
    view.becomes("DiskIOPressure", "False", LOOK + AT_ONCE)
        .await;
}
