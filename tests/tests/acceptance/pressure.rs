//! Thresholds, and what crossing one does.

use std::sync::Arc;
use std::time::Duration;

use nodepulse_core::record::Side;

use nodepulse_tests::SOON;
use nodepulse_tests::days::Stage;
use nodepulse_tests::host_root::MadeUpHost;
use nodepulse_tests::node::{Node, in_memory, pass};
use nodepulse_tests::process::Process;
use serde_json::Value;

/// What a request takes in memory.
pub const AT_ONCE: Duration = Duration::from_millis(5);
/// The longest time to the next regular computation, with which changes are sent that are not
/// urgent.
const REGULAR: Duration = Duration::from_millis(10_405);
/// The longest time between two samples.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
pub const TRANSITION: Duration = Duration::from_mins(5);
/// A capacity of 10,000 pids; the default threshold is 500.
pub const FEW: u64 = 200;
pub const MANY: u64 = 9_600;
pub const GI: u64 = 1 << 30;

/// A node that has registered.
pub async fn settled(configure: impl FnOnce(Node) -> Node) -> Stage {
    let stage = Stage::open(configure);
    stage.view().settled(SOON).await;
    stage
}

/// The same, on this host.
pub async fn settled_on(host: MadeUpHost, configure: impl FnOnce(Node) -> Node) -> Stage {
    let stage = Stage::on(&in_memory(), Arc::new(host), configure);
    stage.view().settled(SOON).await;
    stage
}

/// With exactly these hard thresholds over the defaults.
pub fn hard(node: Node, thresholds: &str) -> Node {
    node.config(|overrides| overrides.eviction_hard = Some(thresholds.to_owned()))
}

/// The agent's value of a signal, after its next sample.
pub async fn signal(stage: &Stage, name: &str) -> Option<f64> {
    pass(SAMPLE_INTERVAL).await;
    let read = stage.node.scrape().await;
    read.value("nodepulse_signal_value", &[("signal", name)])
}

pub async fn threshold(stage: &Stage, name: &str) -> Option<f64> {
    let read = stage.node.scrape().await;
    read.value("nodepulse_signal_threshold", &[("signal", name)])
}

pub fn since(stage: &Stage, type_: &str) -> Value {
    stage.view().condition(type_)["lastTransitionTime"].clone()
}

/// A signal at its threshold does not exceed it; one unit less does.
#[tokio::test(start_paused = true)]
async fn a061_a_threshold_is_exceeded_below_it_and_not_at_it() {
    let stage = settled(|node| node.hard("memory.available<1Gi,pid.available<500")).await;
    stage.host.mem_working_set("15Gi").tasks(9_500);
    pass(SAMPLE_INTERVAL).await;
    for type_ in ["MemoryPressure", "PIDPressure"] {
        assert_eq!(
            stage.view().status(type_),
            "False",
            "{type_} at the threshold"
        );
    }
    let one_byte_less = (15 * GI + 1).to_string();
    stage.host.mem_working_set(&one_byte_less).tasks(9_501);
    pass(SAMPLE_INTERVAL).await;
    for type_ in ["MemoryPressure", "PIDPressure"] {
        assert_eq!(stage.view().status(type_), "True", "{type_} one below it");
    }
}

pub fn float(bytes: u64) -> f64 {
    let kib = u32::try_from(bytes / 1024).expect("less than 4 TiB");
    f64::from(kib) * 1024.0
}

/// A soft threshold sets the condition at once: its grace period delays eviction, and nodepulse
/// does not evict.
#[tokio::test(start_paused = true)]
async fn a065_a_soft_threshold_sets_the_condition_before_its_grace_period_ends() {
    let stage = settled(|node| {
        node.config(|overrides| {
            overrides.eviction_soft = Some("memory.available<2Gi".to_owned());
            let grace = "memory.available=10m".to_owned();
            overrides.eviction_soft_grace_period = Some(grace);
        })
    })
    .await;
    stage.host.mem_working_set("14Gi");
    pass(SAMPLE_INTERVAL).await;
    assert_eq!(stage.view().status("MemoryPressure"), "False", "at it");
    let one_byte_less = (14 * GI + 1).to_string();
    stage.host.mem_working_set(&one_byte_less);
    let (_, _) = stage
        .view()
        .becomes("MemoryPressure", "True", SAMPLE_INTERVAL)
        .await;
}

/// After the signal has recovered the condition remains True for a full transition period after the
/// threshold was last exceeded, and then becomes False; also across restarts, unlike in a kubelet.
#[tokio::test(start_paused = true)]
async fn a066_a_condition_remains_true_for_the_transition_period() {
    let stage = settled(|node| node).await;
    pass(Duration::from_secs(33)).await;
    let crossed = stage.api.now();
    stage.node.kernel().crowd().await;
    stage.view().becomes("PIDPressure", "True", SOON).await;
    stage.host.tasks(FEW);
    pass(TRANSITION - Duration::from_millis(1)).await;
    assert_eq!(
        stage.view().status("PIDPressure"),
        "True",
        "one moment before"
    );
    let (_, at) = stage
        .view()
        .becomes("PIDPressure", "False", REGULAR * 2)
        .await;
    let lasted = at - crossed;
    assert!(
        (TRANSITION..=TRANSITION + REGULAR).contains(&lasted),
        "{lasted:?}"
    );
}

/// The same line across restarts, unlike in a kubelet: what was True before a restart is
/// neither set to False and True again nor prolonged.
#[tokio::test(start_paused = true)]
async fn a066_a_condition_remains_true_across_a_restart() {
    let stage = settled(|node| node).await;
    stage.node.kernel().crowd().await;
    stage.view().becomes("PIDPressure", "True", SOON).await;
    let began = since(&stage, "PIDPressure");
    let Stage { api, host, node } = stage;
    node.stop().await.unwrap();
    host.tasks(FEW);
    let stopped = api.now();
    pass(Duration::from_mins(1)).await;

    let stage = Stage::on(&api, host, |node| node);
    stage.view().event("Starting", SOON).await;
    pass(TRANSITION - Duration::from_mins(1) - SOON * 2).await;
    assert_eq!(stage.view().status("PIDPressure"), "True");
    assert_eq!(since(&stage, "PIDPressure"), began, "no new edge");
    let (_, at) = stage.view().becomes("PIDPressure", "False", SOON * 3).await;
    let lasted = at - stopped;
    assert!(
        (TRANSITION..=TRANSITION + REGULAR).contains(&lasted),
        "{lasted:?}"
    );
    let edges = stage.view().event_counts();
    assert_eq!(edges["NodeHasInsufficientPID"], 1);
}

/// Exceeding the threshold again within the period prolongs it, without another transition or
/// Event.
#[tokio::test(start_paused = true)]
async fn a067_exceeding_a_threshold_again_prolongs_the_condition_without_a_transition() {
    let stage = settled(|node| node).await;
    stage.node.kernel().crowd().await;
    stage.view().becomes("PIDPressure", "True", SOON).await;
    let began = since(&stage, "PIDPressure");
    stage.host.tasks(FEW);
    pass(Duration::from_mins(3)).await;
    let again = stage.api.now();
    stage.node.kernel().crowd().await;
    pass(Duration::from_secs(1)).await;
    stage.host.tasks(FEW);
    pass(Duration::from_mins(4)).await;
    assert_eq!(stage.view().status("PIDPressure"), "True");
    assert_eq!(since(&stage, "PIDPressure"), began);
    assert_eq!(stage.view().event_reasons(), ["NodeHasInsufficientPID"]);
    let (_, at) = stage
        .view()
        .becomes("PIDPressure", "False", TRANSITION)
        .await;
    let lasted = at - again;
    assert!(
        (TRANSITION..=TRANSITION + REGULAR).contains(&lasted),
        "{lasted:?}"
    );
}

/// `0%` and `100%` turn a threshold off.
#[tokio::test(start_paused = true)]
async fn a068_zero_and_one_hundred_percent_are_no_thresholds() {
    for off in ["0%", "100%"] {
        let thresholds = format!("memory.available<{off},pid.available<{off}");
        let stage = settled(|node| node.hard(&thresholds)).await;
        stage.host.mem_working_set("16Gi").tasks(10_000);
        pass(Duration::from_mins(1)).await;
        for type_ in ["MemoryPressure", "PIDPressure"] {
            assert_eq!(stage.view().status(type_), "False", "{off}: {type_}");
        }
    }
}

/// What these arguments are refused with, in one line, before there is a process to speak of.
pub async fn refused(further: &[&str]) -> String {
    let always = ["run", "--mode", "node", "--kernel-tier", "files"];
    let ended = Process::start(always.iter().chain(further))
        .ends(SOON)
        .await;
    assert_eq!(ended.code, Some(2), "{further:?}: {ended:?}");
    let [line] = ended.stderr.as_slice() else {
        panic!("{further:?}: not one line: {:#?}", ended.stderr);
    };
    line.clone()
}

/// An unknown signal, a zero quantity, or more than 100 % stops the process.
#[tokio::test]
async fn a068_an_invalid_threshold_stops_the_process() {
    for (threshold, named) in [
        ("memory.free<1Gi", "memory.free"),
        ("memory.available<0", "memory.available"),
        ("nodefs.available<100.5%", "100.5%"),
    ] {
        let line = refused(&["--eviction-hard", threshold]).await;
        assert!(line.contains(named), "{line}");
    }
}

/// A soft threshold without a grace period stops the process.
#[tokio::test]
async fn a069_a_soft_threshold_needs_a_grace_period() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.yaml");
    let text = "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\n\
                evictionSoft: {memory.available: 1Gi}\n";
    std::fs::write(&file, text).unwrap();
    let line = refused(&["--config", &file.display().to_string()]).await;
    let words = "grace period must be specified for the soft eviction threshold memory.available";
    assert!(line.contains(words), "{line}");
}

/// Setting one hard threshold keeps the other defaults. A kubelet drops them unless
/// `mergeDefaultEvictionSettings` is true; nodepulse drops them only if it is false.
#[tokio::test(start_paused = true)]
async fn a070_one_threshold_does_not_change_the_other_defaults() {
    let others = ["nodefs.available", "nodefs.inodesFree", "pid.available"];
    for (merge, kept) in [(None, true), (Some("true"), true), (Some("false"), false)] {
        let stage = settled(|node| {
            let merge = merge.map(str::to_owned);
            hard(node, "memory.available<1Gi")
                .config(|overrides| overrides.merge_default_eviction_settings = merge)
        })
        .await;
        let memory = threshold(&stage, "memory.available").await;
        assert_eq!(memory, Some(float(GI)), "{merge:?}");
        for other in others {
            let found = threshold(&stage, other).await.is_some();
            assert_eq!(found, kept, "{merge:?}: {other}");
        }
    }
}

/// The hard threshold on memory applies to the pods cgroup too, if `pods` is enforced and the
/// cgroup has a limit.
#[tokio::test(start_paused = true)]
async fn a071_the_memory_threshold_applies_to_the_pods_cgroup() {
    //  enforced, what the pods use of 15 GiB, then the condition is
    let rows = [
        (None, "14Gi", "False"),
        (None, "14500Mi", "True"),
        (Some(""), "14500Mi", "False"),
    ];
    for (enforced, used, expected) in rows {
        let stage = settled(|node| {
            node.hard("memory.available<1Gi").config(|overrides| {
                overrides.enforce_node_allocatable = enforced.map(str::to_owned);
            })
        })
        .await;
        stage.host.pods_working_set(used);
        pass(SAMPLE_INTERVAL).await;
        let status = stage.view().status("MemoryPressure");
        assert_eq!(status, expected, "{enforced:?}, {used}");
    }
}

/// Once exceeded, a threshold with a minimum reclaim remains exceeded until that is available too.
#[tokio::test(start_paused = true)]
async fn a073_a_minimum_reclaim_raises_the_level_at_which_a_threshold_is_no_longer_exceeded() {
    let stage = settled(|node| {
        node.hard("memory.available<1Gi").config(|overrides| {
            overrides.eviction_minimum_reclaim = Some("memory.available=1Gi".to_owned());
        })
    })
    .await;
    stage.host.mem_working_set("14500Mi");
    pass(SAMPLE_INTERVAL).await;
    assert_eq!(stage.view().status("MemoryPressure"), "False", "never met");

    stage.host.mem_working_set("15500Mi");
    stage
        .view()
        .becomes("MemoryPressure", "True", SAMPLE_INTERVAL)
        .await;
    stage.host.mem_working_set("14500Mi");
    pass(TRANSITION * 3).await;
    assert_eq!(
        stage.view().status("MemoryPressure"),
        "True",
        "not reclaimed"
    );
    let reclaimed = stage.api.now();
    stage.host.mem_working_set("14Gi");
    let longest = TRANSITION + SAMPLE_INTERVAL;
    let (_, at) = stage
        .view()
        .becomes("MemoryPressure", "False", longest)
        .await;
    assert!(
        TRANSITION - SAMPLE_INTERVAL <= at - reclaimed,
        "{:?}",
        at - reclaimed
    );
}

/// A signal changes the condition of its resource and no other.
#[tokio::test(start_paused = true)]
async fn a075_each_signal_sets_one_condition() {
    type Change = fn(&MadeUpHost);
    let rows: [(&str, &str, Change); 3] = [
        ("MemoryPressure", "nodefs.available<0%", |host| {
            host.mem_working_set("16Gi");
        }),
        ("PIDPressure", "nodefs.available<0%", |host| {
            host.tasks(10_000);
        }),
        // Of any file system something is in use.
        ("DiskPressure", "nodefs.available<99.999%", |_| ()),
    ];
    for (wanted, disk, change) in rows {
        let thresholds = format!("nodefs.inodesFree<0%,{disk}");
        let stage = settled(|node| hard(node, &thresholds)).await;
        change(&stage.host);
        pass(SAMPLE_INTERVAL).await;
        let all = ["MemoryPressure", "DiskPressure", "PIDPressure"];
        let under: Vec<_> = all
            .into_iter()
            .filter(|type_| stage.view().status(type_) == "True")
            .collect();
        assert_eq!(under, [wanted]);
    }
}

/// With every event source off, pressure is detected within ten seconds by sampling. The API server
/// gets it at once; a kubelet waits for its next tick.
#[tokio::test(start_paused = true)]
async fn a076_without_events_pressure_is_detected_within_ten_seconds() {
    // Some of them just after a sample.
    for phase in [61_000, 64_900, 70_200, 73_400] {
        let stage = settled(Node::on_files).await;
        pass(Duration::from_millis(phase)).await;
        let crossed = stage.api.now();
        stage.host.tasks(MANY).mem_working_set("16Gi");
        for type_ in ["MemoryPressure", "PIDPressure"] {
            let (_, at) = stage.view().becomes(type_, "True", SOON * 2).await;
            let late = at - crossed;
            assert!(
                late <= SAMPLE_INTERVAL + AT_ONCE,
                "{type_}, {phase} ms: {late:?} late"
            );
        }
    }
}

/// With events, True is at the API server within milliseconds; False never before a full
/// transition period has passed since the threshold was last exceeded, as in a kubelet.
#[tokio::test(start_paused = true)]
async fn a077_events_accelerate_true_and_never_false() {
    let stage = settled(|node| node).await;
    for phase in [700, 3_300, 8_100] {
        pass(Duration::from_millis(phase)).await;
        let crossed = stage.api.now();
        stage.node.kernel().crowd().await;
        let (_, at) = stage.view().becomes("PIDPressure", "True", SOON).await;
        assert!(at - crossed <= AT_ONCE, "{:?} late", at - crossed);
        // It ends for a while, and ends once more at the end of it.
        pass(Duration::from_secs(47)).await;
        let last = stage.api.now();
        stage.node.kernel().crowd().await;
        pass(AT_ONCE).await;
        stage.host.tasks(FEW);
        let few = u32::try_from(FEW).unwrap();
        stage.node.kernel().pid_crossing(Side::Under, few).await;
        let (_, at) = stage
            .view()
            .becomes("PIDPressure", "False", TRANSITION * 2)
            .await;
        assert!(TRANSITION <= at - last, "{:?}", at - last);
    }
}
