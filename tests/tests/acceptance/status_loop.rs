//! The status is computed every ten seconds, and sent if it has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use nodepulse_tests::SOON;
use nodepulse_tests::api_server::{ApiServer, Effect, Fault, Recorded};
use nodepulse_tests::days::Stage;
use nodepulse_tests::host_root::MadeUpHost;
use nodepulse_tests::hung_files::HungDirectory;
use nodepulse_tests::node::{in_memory, pass};
use nodepulse_tests::view::{NODES, View, gaps, moments};
use serde_json::{Value, json};
use tokio::time::advance;

pub const STATUS: &str = "/api/v1/nodes/worker-1/status";
pub const PERIOD: Duration = Duration::from_secs(10);
/// Ticks are stretched by up to a twenty-fifth.
pub const TICK: Duration = Duration::from_millis(10_400);
/// What a request takes in memory.
pub const AT_ONCE: Duration = Duration::from_millis(5);
pub const TRANSITION: Duration = Duration::from_mins(5);
/// A capacity of 10,000 pids; the threshold is 500.
pub const FEW: u64 = 200;

/// In the order in which a new Node gets them. The fourth and the fifth are not a kubelet's.
pub const CONDITION_TYPES: [&str; 6] = [
    "MemoryPressure",
    "DiskPressure",
    "PIDPressure",
    "DiskIOPressure",
    "DiskFailing",
    "Ready",
];

/// A registered node, whose agent has sent its status.
pub async fn calm() -> Stage {
    let stage = Stage::open(|node| node);
    stage.view().settled(SOON).await;
    pass(Duration::from_secs(33)).await;
    stage
}

/// A label that other clients changed has to be restored, and every patch fails. Returns since
/// when.
fn unsendable_change(stage: &Stage) -> Duration {
    let fault = Fault::on("PATCH", STATUS, Effect::Status(500)).always();
    stage.api.faults().push(fault);
    let from = stage.api.now();
    change(stage, |node| {
        node["metadata"]["labels"]["kubernetes.io/os"] = json!("plan9")
    });
    from
}

/// Another client changes the Node.
pub fn change(stage: &Stage, with: impl FnOnce(&mut Value)) {
    let mut node = stage.view().node().unwrap();
    with(&mut node);
    stage.api.put_object(node);
}

/// Bodies of the status patches so far.
pub fn bodies(stage: &Stage) -> Vec<Value> {
    let patches = stage.view().patches().into_iter();
    patches.map(|patch| patch.body.unwrap()).collect()
}

pub fn conditions(body: &Value) -> Vec<Value> {
    let list = body["status"]["conditions"].as_array();
    list.cloned().unwrap_or_default()
}

/// A bit of everything: an edge up and down, labels put right, and reports in between.
pub async fn busy() -> Stage {
    let stage = calm().await;
    stage.node.kernel().crowd().await;
    stage.view().becomes("PIDPressure", "True", SOON).await;
    stage.host.tasks(FEW);
    change(&stage, |node| {
        node["metadata"]["labels"]["kubernetes.io/os"] = json!("plan9");
        node["spec"]["unschedulable"] = json!(true);
    });
    let view = stage.view();
    view.becomes("PIDPressure", "False", TRANSITION * 2).await;
    pass(TRANSITION * 2).await;
    assert!(5 <= view.patches().len());
    stage
}

/// The first update of a process sends the status, even if only heartbeats differ.
#[tokio::test(start_paused = true)]
async fn a019_the_first_sync_always_sends() {
    let Stage { api, host, node } = calm().await;
    node.stop().await.unwrap();
    let before = View::of(&api, "worker-1").patches().len();
    pass(Duration::from_secs(1)).await;
    let stage = Stage::on(&api, host, |node| node);
    pass(Duration::from_secs(1)).await;
    let bodies = bodies(&stage).split_off(before);
    assert_eq!(bodies.len(), 1);
    for condition in conditions(&bodies[0]) {
        let keys: Vec<_> = condition.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["lastHeartbeatTime", "type"]);
    }
    assert_eq!(conditions(&bodies[0]).len(), CONDITION_TYPES.len());
}

/// An unchanged machine is not reported for two minutes, in which any change would have been
/// detected at each tick.
#[tokio::test(start_paused = true)]
async fn a020_an_unchanged_status_is_not_sent() {
    let stage = calm().await;
    let before = stage.view().patches().len();
    pass(Duration::from_mins(2)).await;
    assert_eq!(stage.view().patches().len(), before);
    let changed = stage.api.now();
    change(&stage, |node| {
        node["metadata"]["labels"]["kubernetes.io/os"] = json!("plan9")
    });
    pass(TICK).await;
    let patches = stage.view().patches();
    assert_eq!(patches.len(), before + 1);
    assert!(patches[before].at - changed <= TICK);
}

/// The first patches of a node that is there already, and those of one that is created.
pub async fn three_patches(seed: u64, existing: bool) -> Vec<Duration> {
    let api = in_memory();
    let view = View::of(&api, "worker-1");
    if existing {
        let stage = Stage::at(&api, |node| node);
        view.settled(SOON).await;
        stage.node.stop().await.unwrap();
        pass(Duration::from_mins(1)).await;
    }
    let (started, before) = (api.now(), view.patches().len());
    let stage = Stage::at(&api, |node| node.seed(seed));
    let patches = api
        .wait_for(Duration::from_mins(20), "three patches", |_| {
            let patches = view.patches().split_off(before);
            (patches.len() == 3).then_some(patches)
        })
        .await;
    stage.node.stop().await.unwrap();
    let since_start = moments(&patches).into_iter().map(|at| at - started);
    since_start.collect()
}

/// An unchanged status is sent again after 2.5 to 7.5 minutes, and from then on every 5.
#[tokio::test(start_paused = true)]
async fn a021_reports_are_sent_after_a_random_time_and_then_every_five_minutes() {
    let drawn = Duration::from_secs(150)..=Duration::from_secs(450) + TICK;
    let plain = Duration::from_mins(5)..=Duration::from_mins(5) + TICK;
    for seed in 1..=4 {
        for existing in [true, false] {
            let at = three_patches(seed, existing).await;
            let name = format!("seed {seed}, existing {existing}: {at:?}");
            // A Node that has just been created has this very status, heartbeats included.
            let first = if existing { SOON / 10 } else { SOON + TICK };
            assert!(at[0] < first, "{name}");
            assert!(drawn.contains(&(at[1] - at[0])), "{name}");
            assert!(plain.contains(&(at[2] - at[1])), "{name}");
        }
    }
}

/// Over 200 restarts, the first of these reports are spread over the whole of that time.
#[tokio::test(start_paused = true)]
async fn a022_first_reports_are_spread() {
    let Stage { api, host, node } = calm().await;
    node.stop().await.unwrap();
    let left = View::of(&api, "worker-1").node().unwrap();
    let restarted = |seed| {
        let api = in_memory();
        api.put_object(left.clone());
        Stage::on(&api, Arc::clone(&host), |node| node.seed(seed))
    };
    let stages: Vec<Stage> = (1..=200).map(restarted).collect();
    pass(Duration::from_mins(8)).await;
    let mut spread = BTreeMap::<u64, u32>::new();
    for stage in stages {
        let gap = gaps(&stage.view().patches())[0];
        *spread.entry(gap.as_secs() / 50).or_default() += 1;
        stage.node.stop().await.unwrap();
    }
    // From 150 to 450 seconds, and up to a tick later: six slices of fifty seconds and a bit.
    assert!(
        spread.keys().all(|slice| (3..=9).contains(slice)),
        "{spread:?}"
    );
    for slice in 4..=8 {
        // 33 on average; one in ten thousand runs of fair dice would leave this range.
        let restarts = spread.get(&slice).copied().unwrap_or_default();
        assert!((14..=56).contains(&restarts), "{slice}: {spread:?}");
    }
}

/// The status is computed every 10.0 to 10.4 seconds.
#[tokio::test(start_paused = true)]
async fn a023_ticks_are_ten_seconds_apart_and_a_little_more() {
    for seed in [1, 77] {
        let stage = Stage::open(|node| node.seed(seed));
        let view = stage.view();
        view.settled(SOON).await;
        pass(Duration::from_secs(15)).await;
        // Each tick tries.
        let from = unsendable_change(&stage);
        pass(Duration::from_mins(10)).await;
        let tries = moments(&view.patches()).into_iter().filter(|at| from < *at);
        let ticks: Vec<Duration> = BTreeSet::from_iter(tries).into_iter().collect();
        assert!((56..=60).contains(&ticks.len()), "{}", ticks.len());
        let between = ticks.iter().zip(ticks.iter().skip(1));
        let between: BTreeSet<Duration> = between.map(|(one, next)| *next - *one).collect();
        for gap in &between {
            let expected = PERIOD..=TICK + Duration::from_millis(1);
            assert!(expected.contains(gap), "{gap:?}");
        }
        assert!(1 < between.len(), "not drawn: {between:?}");
    }
}

/// The Node of an idle node is never read.
#[tokio::test(start_paused = true)]
async fn a024_no_reads_at_rest() {
    let stage = calm().await;
    let from = stage.api.now();
    pass(Duration::from_mins(20)).await;
    let reads = |request: &Recorded| {
        from < request.at
            && request.method == "GET"
            && request.path.starts_with(NODES)
            && !request.query.starts_with("watch=true")
    };
    assert_eq!(stage.api.requests_where(reads), []);
}

/// A failed patch is tried five times a tick, and the Node is read before each attempt but the
/// first.
#[tokio::test(start_paused = true)]
async fn a025_five_tries_a_tick_and_a_read_before_each_but_the_first() {
    let stage = Stage::open(|node| node);
    stage.view().settled(SOON).await;
    pass(Duration::from_secs(15)).await;
    let from = unsendable_change(&stage);
    pass(Duration::from_mins(5)).await;

    let about_status = |request: &Recorded| {
        from < request.at && request.path.starts_with(NODES) && !request.query.starts_with("watch")
    };
    let mut ticks = BTreeMap::<Duration, Vec<String>>::new();
    for request in stage.api.requests_where(about_status) {
        ticks.entry(request.at).or_default().push(request.method);
    }
    assert!(10 < ticks.len(), "{} ticks", ticks.len());
    for (at, methods) in &ticks {
        let expected = "PATCH GET PATCH GET PATCH GET PATCH GET PATCH";
        assert_eq!(methods.join(" "), expected, "at {at:?}");
    }
    // Meanwhile the lease is renewed.
    for gap in gaps(&stage.view().renewals()) {
        assert_eq!(gap, PERIOD);
    }
}

/// A kubelet closes connections after two failures in a tick; nodepulse closes one without a
/// response, at the first request; a response, whatever it contains, never closes it.
#[tokio::test(start_paused = true)]
async fn a026_a_silent_connection_is_dropped_and_one_that_answers_is_not() {
    let stage = calm().await;
    let opened = || stage.api.connections().opened;
    stage
        .api
        .faults()
        .push(Fault::on("PATCH", STATUS, Effect::Status(500)).times(20));
    stage.node.kernel().crowd().await;
    pass(Duration::from_mins(1)).await;
    let view = stage.view();
    view.becomes("PIDPressure", "True", SOON).await;
    assert_eq!(opened(), 1, "twenty refusals");

    let silent = stage.api.now();
    stage.api.freeze_connections();
    let before = view.renewals().len();
    let renewed = |_: &ApiServer| {
        let done = view.renewals().split_off(before).into_iter();
        done.rev()
            .find(|put| put.status == Some(200))
            .map(|put| put.at)
    };
    let wait = Duration::from_mins(1);
    let at = stage.api.wait_for(wait, "a renewed lease", renewed).await;
    // It was due within ten seconds, and the deadline is ten more.
    assert!(at - silent <= PERIOD * 2 + AT_ONCE, "{:?}", at - silent);
    assert_eq!(opened(), 2);
}

/// A kubelet waits for the next tick; nodepulse sends a changed condition at once.
#[tokio::test(start_paused = true)]
async fn a032_a_changed_condition_does_not_wait_for_the_tick() {
    let stage = calm().await;
    let crossed = stage.api.now();
    stage.node.kernel().crowd().await;
    let (_, at) = stage.view().becomes("PIDPressure", "True", SOON).await;
    assert!(at - crossed <= AT_ONCE, "{:?}", at - crossed);
}

/// A request without a response times out after ten seconds, and the next is sent.
#[tokio::test(start_paused = true)]
async fn a039_a_request_without_a_response_times_out() {
    let stage = calm().await;
    let view = stage.view();
    let before = view.patches().len();
    let fault = Fault::on("PATCH", STATUS, Effect::Hang);
    stage.api.faults().push(fault);
    stage.node.kernel().crowd().await;
    let (_, at) = view.becomes("PIDPressure", "True", TICK * 2).await;
    let patches = view.patches().split_off(before);
    let waited = at - patches[0].at;
    assert!(PERIOD <= waited && waited <= PERIOD + AT_ONCE, "{waited:?}");
    assert_eq!(patches[0].status, None);
    pass(TICK * 3).await;
    assert_eq!(gaps(&view.renewals()).last(), Some(&PERIOD));
}

/// A node that starts is reported to be ready within 300 ms of the end of the last reason against
/// it. Only the size of its storage can be late: here a volume's directory does not respond at
/// first.
#[tokio::test(start_paused = true)]
async fn a040_ready_is_reported_at_once_during_the_start() {
    const VOLUME: &str = "var/lib/kubelet/plugins/kubernetes.io/csi/d.example.com/1a";
    let host = MadeUpHost::calm();
    let volume = host.path().join(VOLUME);
    let data = volume.join("vol_data.json");
    host.mount(&format!("/{VOLUME}/globalmount"));
    fs::create_dir_all(volume.join("globalmount")).unwrap();
    fs::write(
        &data,
        r#"{"driverName": "d.example.com", "volumeHandle": "vol-a"}"#,
    )
    .unwrap();
    // Simulated time is paused for a thread that waits.
    let hung = HungDirectory::over(&volume);
    let stage = Stage::on(&in_memory(), Arc::new(host), |node| node);
    let view = stage.view();
    // What does not answer within five seconds is missing at first.
    let unheard = Duration::from_secs(20);
    while view.status("Ready").is_empty() && stage.api.now() < unheard {
        advance(Duration::from_millis(10)).await;
    }
    let condition = view.condition("Ready");
    let expected = "missing node capacity for resources: ephemeral-storage";
    assert_eq!(condition["message"], expected, "{condition}");

    let answered = stage.api.now();
    hung.answers();
    let (_, at) = view.becomes("Ready", "True", SOON).await;
    let late = at - answered;
    assert!(late <= Duration::from_millis(300), "{late:?} after it");
    stage.node.stop().await.unwrap();
}

/// If only the update frequency is set, the status is also sent that often.
#[tokio::test(start_paused = true)]
async fn a041_the_update_frequency_alone_is_the_report_frequency_too() {
    let every = |update: &'static str, report: Option<&'static str>| async move {
        let stage = Stage::open(|node| {
            node.config(|overrides| {
                overrides.node_status_update_frequency = Some(update.to_owned());
                overrides.node_status_report_frequency = report.map(str::to_owned);
            })
        });
        stage.view().settled(SOON).await;
        pass(Duration::from_mins(20)).await;
        // The first after the start comes after a drawn time.
        gaps(&stage.view().patches()).split_off(2)
    };
    let alone = every("30s", None).await;
    let expected = Duration::from_secs(30);
    assert!(30 < alone.len(), "{alone:?}");
    assert!(alone.iter().all(|gap| *gap == expected), "{alone:?}");
    let both = every("30s", Some("5m")).await;
    assert!(both.iter().all(|gap| *gap == expected * 10), "{both:?}");
}
