//! Events, kills, shutdown, and what can be asked on this machine.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nodepulse::logind::PowerMessage;
use nodepulse::notify::Notify;
use nodepulse::record::{ScopeSource, Side};
use nodepulse_tests::api_server::{ApiServer, Effect, Fault, Recorded};
use nodepulse_tests::days::{NAME, Stage};
use nodepulse_tests::node::{Kill, Limit, pass};
use nodepulse_tests::process::{Process, node_mode, program};
use nodepulse_tests::view::{EVENTS, View, gaps};
use nodepulse_tests::{SOON, eventually};
use serde_json::{Value, json};
use tempfile::tempdir;

const PERIOD: Duration = Duration::from_secs(10);
const CONTAINER: &str = "kubepods/burstable/pod6d8a4d2e-1f4b-4a62-9b0e-0f7c0f5d8a11/ctr";

async fn settled() -> Stage {
    let stage = Stage::open(|node| node);
    stage.view().settled(SOON).await;
    pass(Duration::from_millis(1_500)).await;
    stage
}

async fn crowd(stage: &Stage) {
    stage.host.tasks(9_600);
    stage.node.kernel().pid_crossing(Side::Over, 9_600).await;
}

/// The kernel itself says that the machine had no memory left.
fn global(pid: u32) -> Kill<'static> {
    Kill {
        victim: ("stress", pid),
        cgroup: CONTAINER,
        limit: Limit::Machine,
        source: ScopeSource::Exact,
    }
}

/// Writes of Events from `from` on.
fn writes(api: &ApiServer, from: Duration) -> Vec<Recorded> {
    api.requests_where(|request| from <= request.at && request.path.starts_with(EVENTS))
}

/// Events of the node live in `default`, are about the Node by name, core/v1 and UID, and say who
/// reports: nodepulse, where a kubelet names itself, and leaves the UID out.
#[tokio::test(start_paused = true)]
async fn a088_an_event_says_what_it_is_about_and_who_says_so() {
    let stage = settled().await;
    crowd(&stage).await;
    stage.node.kernel().oom_kill(global(4321)).await;
    stage.view().event("SystemOOM", SOON).await;
    stage.view().event("NodeHasInsufficientPID", SOON).await;
    let uid = stage.view().node().unwrap()["metadata"]["uid"].clone();
    let about = json!({"apiVersion": "v1", "kind": "Node", "name": NAME, "uid": uid});
    let events = stage.api.list(EVENTS);
    assert!(events.len() > 2);
    for event in events {
        assert_eq!(event["metadata"]["namespace"], "default");
        assert_eq!(event["involvedObject"], about);
        assert_eq!(
            event["source"],
            json!({"component": "nodepulse", "host": NAME})
        );
        assert_eq!(event["reportingComponent"], "nodepulse");
        assert_eq!(event["reportingInstance"], NAME);
        assert_eq!(event["eventTime"], Value::Null);
        let warns = event["reason"] == "SystemOOM" || event["reason"] == "GlobalOOMKill";
        let expected = if warns { "Warning" } else { "Normal" };
        assert_eq!(event["type"], expected, "{event}");
        let name = event["metadata"]["name"].as_str().unwrap();
        let (node, nanos) = name.rsplit_once('.').unwrap();
        assert_eq!(node, NAME);
        u128::from_str_radix(nanos, 16).unwrap();
    }
}

/// What a new node's start is told by: that it started, and its first conditions, each once and
/// after the Node was created. A kubelet tells at every try. The next start adds one.
#[tokio::test(start_paused = true)]
async fn a088_what_a_start_is_told_by() {
    let api = nodepulse_tests::node::in_memory();
    let create = |request: &Recorded| request.method == "POST" && request.path == "/api/v1/nodes";
    api.faults()
        .push(Fault::when(create, Effect::Status(500)).times(3));
    let stage = Stage::at(&api, |node| node);
    stage.view().settled(SOON).await;
    pass(Duration::from_mins(1)).await;
    let told = |stage: &Stage| -> Vec<(String, usize)> {
        stage.view().event_counts().into_iter().collect()
    };
    let once = |reason: &str| (reason.to_owned(), 1);
    // That our own condition is well is no news.
    let mut expected = [
        "NodeHasNoDiskPressure",
        "NodeHasSufficientMemory",
        "NodeHasSufficientPID",
        "Starting",
    ]
    .map(once);
    assert_eq!(told(&stage), expected);
    let starting = stage.view().event("Starting", SOON).await;
    assert_eq!(starting["message"], "Starting kubelet.");
    assert_eq!(
        starting["firstTimestamp"], "2026-01-01T00:00:00Z",
        "not when it came through"
    );

    let Stage { api, host, node } = stage;
    node.stop().await.unwrap();
    let stage = Stage::on(&api, host, |node| node);
    pass(Duration::from_mins(1)).await;
    expected[3].1 = 2;
    assert_eq!(told(&stage), expected);
}

/// An Event that says the same again is a patch that counts it up.
#[tokio::test(start_paused = true)]
async fn a089_the_same_again_is_counted() {
    let stage = Stage::open(|node| {
        node.config(|overrides| {
            overrides.eviction_pressure_transition_period = Some("1s".to_owned());
        })
    });
    stage.view().settled(SOON).await;
    for _ in 0..2 {
        crowd(&stage).await;
        stage.view().becomes("PIDPressure", "True", SOON).await;
        stage.host.tasks(200);
        stage.view().becomes("PIDPressure", "False", SOON * 2).await;
        pass(PERIOD).await;
    }
    let event = stage.view().event("NodeHasInsufficientPID", SOON).await;
    assert_eq!(event["count"], 2);
    assert_ne!(event["firstTimestamp"], event["lastTimestamp"]);
    let about = |request: &Recorded| request.path.contains(&name_of(&event));
    let patches = stage
        .api
        .requests_where(|request| request.method == "PATCH" && about(request));
    let [patch] = patches.as_slice() else {
        panic!("{} patches", patches.len());
    };
    let content_type = "application/strategic-merge-patch+json";
    assert_eq!(patch.headers["content-type"], content_type);
    assert_eq!(patch.body.clone().unwrap()["count"], 2);
}

fn name_of(event: &Value) -> String {
    event["metadata"]["name"].as_str().unwrap().to_owned()
}

/// Of more than 25 Events of one type in a burst 25 are written, and then one in five minutes. What
/// is held back is added to the count of the next, where a kubelet drops it.
#[tokio::test(start_paused = true)]
async fn a090_a_burst_is_cut_and_nothing_of_it_is_lost() {
    const KILLS: u32 = 40;
    let stage = settled().await;
    let from = stage.api.now();
    for pid in 1..=KILLS {
        stage.node.kernel().oom_kill(global(pid)).await;
        pass(Duration::from_secs(1)).await;
    }
    let of_kills = |from| -> Vec<Recorded> {
        let writes = writes(&stage.api, from).into_iter();
        let about = |write: &Recorded| {
            let body = write.body.clone().unwrap_or_default().to_string();
            body.contains("System OOM")
        };
        writes.filter(about).collect()
    };
    assert_eq!(of_kills(from).len(), 25);
    let later = stage.api.now();
    pass(Duration::from_mins(11)).await;
    let rest = of_kills(later);
    assert!((1..=2).contains(&rest.len()), "{} more", rest.len());
    for gap in gaps(&rest) {
        assert!(
            Duration::from_mins(5) <= gap + Duration::from_secs(1),
            "{gap:?}"
        );
    }
    let told = stage.view().event_counts()["SystemOOM"];
    assert_eq!(told, usize::try_from(KILLS).unwrap());
}

/// What the server refuses with 403 is not tried again.
#[tokio::test(start_paused = true)]
async fn a091_a_refused_event_is_not_tried_again() {
    let stage = settled().await;
    let fault = Fault::on("POST", EVENTS, Effect::Status(403)).always();
    stage.api.faults().push(fault);
    let from = stage.api.now();
    crowd(&stage).await;
    stage.view().becomes("PIDPressure", "True", SOON).await;
    pass(Duration::from_mins(10)).await;
    assert_eq!(writes(&stage.api, from).len(), 1);
}

/// The same line: what got no answer is tried again until it has one, but not at full
/// speed; an outage is no fault of the Event.
#[tokio::test(start_paused = true)]
async fn a091_an_event_without_an_answer_is_tried_again() {
    let stage = settled().await;
    let fault = Fault::on("POST", EVENTS, Effect::Reset).times(6);
    stage.api.faults().push(fault);
    let from = stage.api.now();
    crowd(&stage).await;
    let longest = Duration::from_mins(5);
    let event = stage.view().event("NodeHasInsufficientPID", longest).await;
    assert_eq!(event["count"], 1);
    let tries = writes(&stage.api, from);
    assert_eq!(tries.len(), 7);
    let waited: Duration = gaps(&tries).iter().sum();
    assert!(waited >= Duration::from_secs(5), "{waited:?}");
}

/// Events that nobody takes hold up neither lease nor status.
#[tokio::test(start_paused = true)]
async fn a092_a_blocked_sink_of_events_delays_nothing() {
    let stage = settled().await;
    let fault = Fault::on("*", EVENTS, Effect::Hang).always();
    stage.api.faults().push(fault);
    stage.node.kernel().oom_kill(global(1)).await;
    pass(Duration::from_secs(5)).await;
    let crossed = stage.api.now();
    crowd(&stage).await;
    let (_, at) = stage.view().becomes("PIDPressure", "True", SOON).await;
    assert!(
        at - crossed <= Duration::from_millis(5),
        "{:?}",
        at - crossed
    );
    pass(Duration::from_mins(2)).await;
    let renewals = stage.view().renewals();
    assert!(renewals.len() >= 12);
    for gap in gaps(&renewals) {
        // On a new connection the lease goes first, up to a second early or late.
        let longest = PERIOD + Duration::from_secs(1);
        assert!((PERIOD..=longest).contains(&gap), "{gap:?}");
    }
}

/// A kill for want of memory on the machine is one `SystemOOM` that names victim and pid; one at a
/// cgroup's limit is none.
#[tokio::test(start_paused = true)]
async fn a093_only_the_machines_own_kills_are_system_oom() {
    let stage = settled().await;
    stage.host.oom(CONTAINER, 1, 1);
    let own_limit = Kill {
        limit: Limit::Of(CONTAINER),
        ..global(1234)
    };
    stage.node.kernel().oom_kill(own_limit).await;
    pass(PERIOD).await;
    assert_eq!(stage.view().messages("SystemOOM"), [""; 0]);

    stage.node.kernel().oom_kill(global(4321)).await;
    stage.view().event("SystemOOM", SOON).await;
    pass(Duration::from_mins(1)).await;
    let messages = stage.view().messages("SystemOOM");
    assert_eq!(
        messages,
        ["System OOM encountered, victim process: stress, pid: 4321"]
    );
    assert_eq!(stage.view().event_counts()["SystemOOM"], 1);
}

fn on_files(further: &[&str]) -> Vec<String> {
    node_mode(&[&["--kernel-tier", "files"], further].concat())
}

/// A shutdown that logind announces makes Ready False at once, and an Event; called off, Ready is
/// True again at once, not at the next tick. The lease is renewed meanwhile.
#[tokio::test(start_paused = true)]
async fn a094_a_machine_that_goes_down_says_so_at_once_and_takes_it_back() {
    let stage = settled().await;
    let view = stage.view();
    let before = stage.api.now();
    stage
        .node
        .logind_says(PowerMessage::ShuttingDown(None))
        .await;
    let (ready, at) = view.becomes("Ready", "False", SOON).await;
    assert!(at - before < Duration::from_millis(1), "{:?}", at - before);
    assert_eq!(ready["reason"], "KubeletNotReady");
    assert_eq!(ready["message"], "node is shutting down");
    view.event("Shutdown", SOON).await;
    view.event("NodeNotReady", SOON).await;
    let renewed = view.renewals().len();
    pass(Duration::from_secs(31)).await;
    assert_eq!(view.renewals().len(), renewed + 3, "it still lives");

    let before = stage.api.now();
    stage.node.logind_says(PowerMessage::Cancelled).await;
    let (_, at) = view.becomes("Ready", "True", SOON).await;
    assert!(at - before < Duration::from_millis(1), "{:?}", at - before);
    pass(PERIOD).await;
    let word = |end: &str| format!("Shutdown manager detected shutdown {end}");
    assert_eq!(
        view.messages("Shutdown"),
        [word("event"), word("cancellation")]
    );
    stage.node.stop().await.unwrap();
}

/// On SIGTERM the lease stays, and so does Ready.
#[tokio::test]
async fn a095_the_end_of_the_process_is_no_end_of_the_node() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let kubeconfig = api.node_kubeconfig(dir.path(), NAME);
    let agent = Process::start(on_files(&[
        "--kubeconfig",
        &kubeconfig.display().to_string(),
    ]));
    let view = View::of(&api, NAME);
    view.settled(SOON).await;
    view.becomes("Ready", "True", SOON).await;
    let before = (view.condition("Ready"), view.lease().map(holder));
    agent.terminate();
    assert_eq!(agent.ends(SOON).await.code, Some(0));
    assert_eq!((view.condition("Ready"), view.lease().map(holder)), before);
    let deletes = api.requests_where(|request| request.method == "DELETE");
    assert_eq!(deletes, []);
}

fn holder(lease: Value) -> (Value, Value) {
    (
        lease["metadata"]["uid"].clone(),
        lease["spec"]["holderIdentity"].clone(),
    )
}

/// The program with these arguments in a network of its own, where only loopback is, and up.
/// `None`, with a word on why, where this user may not make one.
fn alone(args: &[String]) -> Option<Process> {
    const UP: &str = "ip link set lo up && ip route add default dev lo && exec \"$@\"";
    let may = Command::new("unshare")
        .args(["--net", "sh", "-c", UP, "sh", "true"])
        .status();
    if !may.is_ok_and(|status| status.success()) {
        println!("skipped: no network of our own to be had (unshare --net, ip)");
        return None;
    }
    let agent = program().display().to_string();
    let wrapper = ["--net", "sh", "-c", UP, "sh", &agent].map(str::to_owned);
    let args = wrapper.into_iter().chain(args.iter().cloned());
    Some(Process::start_program(Path::new("unshare"), args))
}

/// What a command prints in the network of a process.
fn beside(agent: &Process, command: &[&str]) -> String {
    let pid = agent.id().to_string();
    let output = Command::new("nsenter")
        .args(["-n", "-t", &pid])
        .args(command)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// `/healthz` on port 10248 answers `ok` with 200, and from loopback only.
#[tokio::test]
async fn a096_healthz_answers_where_a_kubelet_answers() {
    const ASK: &str = "exec 3<>/dev/tcp/127.0.0.1/10248; \
         printf 'GET /healthz HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' >&3; cat <&3";
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    // Out of reach of where the agent is: it answers whoever asks nevertheless.
    let kubeconfig = api.node_kubeconfig(dir.path(), NAME).display().to_string();
    let serve = [
        "--kubeconfig",
        &kubeconfig,
        "--serve-address",
        "127.0.0.1:0",
    ];
    let Some(agent) = alone(&on_files(&serve)) else {
        return;
    };
    agent.says("serving address=127.0.0.1:10248", SOON).await;
    let answer = beside(&agent, &["bash", "-c", ASK]);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    // 10248 in hexadecimal, and who may come.
    let tcp = beside(&agent, &["cat", "/proc/net/tcp", "/proc/net/tcp6"]);
    let open = tcp
        .lines()
        .filter(|line| line.contains(":2808 ") && line.contains(" 0A "));
    let open: Vec<_> = open.collect();
    assert_eq!(open.len(), 1, "{tcp}");
    assert!(open[0].contains("0100007F:2808 "), "{open:?}");
}

/// How many connections were asked for in the network of a process.
fn dials(agent: &Process) -> u64 {
    let counters = beside(agent, &["cat", "/proc/net/snmp"]);
    let mut of_tcp = counters.lines().filter(|line| line.starts_with("Tcp: "));
    let (names, values) = of_tcp.next().zip(of_tcp.next()).expect("counters of TCP");
    let mut both = names.split(' ').zip(values.split(' '));
    let opens = both.find(|(name, _)| *name == "ActiveOpens");
    opens.expect("the count").1.parse().expect("a number")
}

/// The service manager hears once that we are ready, and at half of its patience that we turn.
#[tokio::test(start_paused = true)]
async fn a097_the_service_manager_hears_of_us_at_half_of_its_patience() {
    const HALF: Duration = Duration::from_secs(15);
    let dir = tempdir().unwrap();
    let address = dir.path().join("notify");
    let manager = UnixDatagram::bind(&address).unwrap();
    manager.set_nonblocking(true).unwrap();
    let notify = Notify::connect(address.to_str().unwrap(), Some(HALF)).unwrap();
    let stage = Stage::open(|node| node.notify(notify));
    let (mut others, mut beats) = (Vec::new(), Vec::new());
    let mut buf = [0; 256];
    while stage.api.now() < Duration::from_mins(10) {
        pass(Duration::from_millis(100)).await;
        while let Ok(len) = manager.recv(&mut buf) {
            match &buf[..len] {
                b"WATCHDOG=1" => beats.push(stage.api.now()),
                other => others.push(String::from_utf8_lossy(other).into_owned()),
            }
        }
    }
    assert_eq!(others, ["READY=1"]);
    assert!((39..=41).contains(&beats.len()), "{}", beats.len());
    for (one, next) in beats.iter().zip(beats.iter().skip(1)) {
        // Earlier where that saves a wake-up, never later.
        let earliest = HALF - Duration::from_millis(500);
        let gap = *next - *one;
        assert!(
            (earliest..=HALF + Duration::from_millis(100)).contains(&gap),
            "{gap:?}"
        );
    }
    stage.node.stop().await.unwrap();
}

/// Without a kubeconfig no connection is attempted, to whomever; with one, there is by then.
#[tokio::test]
async fn a098_without_a_kubeconfig_nothing_is_dialled() {
    let Some(without) = alone(&on_files(&[])) else {
        return;
    };
    without.says("kernel line", SOON).await;
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let kubeconfig = api.node_kubeconfig(dir.path(), NAME).display().to_string();
    let with = alone(&on_files(&["--kubeconfig", &kubeconfig])).expect("as before");
    eventually("connection of the other", || match dials(&with) {
        0 => Err(0),
        dialled => Ok(dialled),
    })
    .await;
    assert_eq!(dials(&without), 0);
}

/// Ten idle minutes cost at most 61 requests about the lease and 5 status patches, no Event and no
/// read.
#[tokio::test(start_paused = true)]
async fn a099_an_idle_node_hardly_asks() {
    for seed in [1, 2, 3] {
        let stage = Stage::open(|node| node.seed(seed));
        stage.view().settled(SOON).await;
        // Not what the start itself costs.
        pass(Duration::from_secs(1)).await;
        let from = stage.api.now();
        pass(Duration::from_mins(10)).await;
        let watches = |request: &Recorded| request.query.contains("watch");
        let requests = stage.api.requests_where(|r| from < r.at && !watches(r));
        let of = |method: &str| requests.iter().filter(|r| r.method == method).count();
        assert!(
            (57..=61).contains(&of("PUT")),
            "{seed}: {} renewals",
            of("PUT")
        );
        assert!(
            (1..=5).contains(&of("PATCH")),
            "{seed}: {} patches",
            of("PATCH")
        );
        assert_eq!(
            requests.len(),
            of("PUT") + of("PATCH"),
            "{seed}: {requests:?}"
        );
        assert_eq!(writes(&stage.api, from), [], "{seed}");
    }
}

/// Whatever happens to the node, every request of its agent is one that the rules for nodes allow
/// (here those of our own API server; a real cluster has not been asked).
#[tokio::test(start_paused = true)]
async fn a100_no_request_is_one_that_a_node_may_not_make() {
    let stage = settled().await;
    crowd(&stage).await;
    stage.node.kernel().oom_kill(global(4321)).await;
    stage.view().event("SystemOOM", SOON).await;
    stage.api.delete_object(&stage.view().lease_path()).unwrap();
    pass(Duration::from_mins(5)).await;
    stage.api.delete_object(&stage.view().path()).unwrap();
    pass(Duration::from_mins(1)).await;
    let Stage { api, host, node } = stage;
    node.stop().await.unwrap();
    let stage = Stage::on(&api, host, |node| node);
    pass(Duration::from_mins(1)).await;
    let refused = stage
        .api
        .requests_where(|request| request.status == Some(403));
    assert_eq!(refused, []);
    assert!(stage.view().renewals().len() > 10);
}
