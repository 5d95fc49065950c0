//! How many requests the agent sends to an API server that misbehaves: no response makes it send
//! requests without a pause. OVERHEAD.md states the ceilings.
//!
//! Every fault is applied to all requests at once and to each watch, which nothing else limits. To
//! one other kind of request at a time, only those are applied after which the agent continues in
//! different ways: 401, 404, 409, 429, 500, an empty and a costly body, a reset, a huge
//! `Retry-After`. The rest, and megabytes of answer to all requests at once, would take a minute
//! more and end in the same branches. Left out entirely are late answers, which make requests
//! fewer, and `Effect::FreezeAll`, after which the server sees none.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nodepulse_core::record::ScopeSource::Exact;

use futures_util::future::join_all;
use nodepulse_tests::api_server::{ApiServer, Effect, Fault, Recorded};
use nodepulse_tests::days::MISHAPS;
use nodepulse_tests::host_root::MadeUpHost;
use nodepulse_tests::node::{COMPANION, COMPANION_PERMISSIONS, Kill, Limit, Node, in_memory, pass};
use nodepulse_tests::pod::{ID, Pod, UID};
use nodepulse_tests::view::{LEASES, NODES};
use serde_json::json;

/// At most so many requests of each kind in ten minutes, whatever the server answers: the table in
/// OVERHEAD.md.
const CEILINGS: [(&str, usize); 10] = [
    ("reads of the version", 110),
    ("creates of the Node", 110),
    ("reads of the Node", 450),
    ("status patches", 400),
    ("taint patches", 500),
    ("lease", 1300),
    ("watches of the Node", 850),
    ("watches of pods", 850),
    ("Events", 700),
    ("reads of pods", 50),
];

/// The limit of all requests.
const TOTAL: usize = 2000;

/// The number of threads that run simulations.
const THREADS: usize = 2;

const TIME: Duration = Duration::from_mins(10);

/// Which line of the table a request belongs to.
fn kind(request: &Recorded) -> &'static str {
    let watches = request.query.contains("watch=");
    let path = request.path.as_str();
    match request.method.as_str() {
        _ if path.starts_with(LEASES) => "lease",
        _ if path.ends_with("/events") || path.contains("/events/") => "Events",
        "GET" if path == NODES && watches => "watches of the Node",
        "GET" if path == "/api/v1/pods" && watches => "watches of pods",
        "GET" if path == "/version" => "reads of the version",
        "GET" if path.contains("/pods/") => "reads of pods",
        "GET" if path.starts_with(NODES) => "reads of the Node",
        "POST" if path == NODES => "creates of the Node",
        "PATCH" if path.ends_with("/status") => "status patches",
        "PATCH" if path.starts_with(NODES) => "taint patches",
        _ => panic!("a request of no kind: {request}"),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Node,
    Companion,
}

/// When the server starts to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    TheStart,
    OneMinute,
}

/// One way to misbehave, towards requests of one kind or towards all.
#[derive(Debug, Clone)]
struct Case {
    mode: Mode,
    from: From,
    kind: Option<&'static str>,
    method: &'static str,
    effect: Effect,
}

fn effects() -> Vec<Effect> {
    let codes = [400, 401, 403, 404, 409, 410, 422, 504].map(Effect::Status);
    let more = [
        Effect::ResetAfterHeaders,
        Effect::FreezeConnection,
        Effect::FreezeConnections,
        Effect::Bookmark,
    ];
    codes
        .into_iter()
        .chain(more)
        .chain(MISHAPS.iter().cloned())
        .collect()
}

/// The effect on all requests, and on one kind at a time: see above on which.
fn cases(mode: Mode, effect: &Effect) -> Vec<Case> {
    let kinds: &[(Option<&'static str>, &'static str)] = match mode {
        Mode::Node => &[
            (None, "*"),
            (Some("reads of the version"), "*"),
            (Some("creates of the Node"), "*"),
            (Some("reads of the Node"), "*"),
            (Some("status patches"), "*"),
            (Some("lease"), "GET"),
            (Some("lease"), "PUT"),
            (Some("watches of the Node"), "*"),
            (Some("watches of pods"), "*"),
            (Some("Events"), "POST"),
            (Some("Events"), "PATCH"),
            (Some("reads of pods"), "*"),
        ],
        Mode::Companion => &[
            (None, "*"),
            (Some("reads of the Node"), "*"),
            (Some("status patches"), "*"),
            (Some("taint patches"), "*"),
        ],
    };
    let case = |(kind, method): &(Option<&'static str>, &'static str)| Case {
        mode,
        from: match kind {
            None
            | Some(
                "reads of the version"
                | "creates of the Node"
                | "watches of the Node"
                | "watches of pods",
            ) => From::TheStart,
            Some(_) => From::OneMinute,
        },
        kind: *kind,
        method,
        effect: effect.clone(),
    };
    let endless = matches!(effect, Effect::EndlessLine | Effect::LargeHeaders);
    let usual = [401, 404, 409, 500].map(Effect::Status);
    let is_usual = usual.contains(effect)
        || matches!(
            effect,
            Effect::TooManyRequests(_)
                | Effect::HugeRetryAfter
                | Effect::Empty
                | Effect::Reset
                | Effect::ManyMembers
        );
    let small = |(kind, _): &&(Option<&'static str>, _)| match kind {
        None => !endless,
        Some(kind) => is_usual || kind.contains("watches"),
    };
    kinds.iter().filter(small).map(case).collect()
}

fn cluster(mode: Mode) -> Arc<ApiServer> {
    let api = in_memory();
    Pod::new("shop", "cart-0", UID)
        .container("web", ID)
        .put(&api);
    if mode == Mode::Companion {
        api.grant_all(COMPANION, &COMPANION_PERMISSIONS);
        api.grant_all(COMPANION, &[("patch", "nodes")]);
        api.put_object(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": "worker-1" },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        }));
    }
    api
}

impl Case {
    fn begin(&self, api: &ApiServer) {
        let (wanted, method) = (self.kind, self.method);
        let case = self.clone();
        let meets = move |request: &Recorded| case.is_of(request);
        api.faults()
            .push(Fault::when(meets, self.effect.clone()).always());
        // The agent reads these after a conflict only.
        let refused = match (wanted, method) {
            (Some("lease"), "GET") => "lease",
            (Some("reads of the Node"), _) => "status patches",
            _ => return,
        };
        let writes = move |request: &Recorded| request.method != "GET" && kind(request) == refused;
        api.faults()
            .push(Fault::when(writes, Effect::Status(409)).always());
    }

    fn is_of(&self, request: &Recorded) -> bool {
        (self.method == "*" || request.method == self.method)
            && self.kind.is_none_or(|wanted| wanted == kind(request))
    }

    /// Ten minutes of it, in which pods are killed and conditions change. Returns how many requests
    /// of each kind there were.
    async fn play(&self) -> BTreeMap<&'static str, usize> {
        let api = cluster(self.mode);
        let container = format!("kubepods/burstable/pod{UID}/{ID}");
        let host = MadeUpHost::calm();
        host.pid_max(10_000).container(&container);
        let node = match self.mode {
            Mode::Node => Node::named("worker-1"),
            Mode::Companion => Node::companion("worker-1").config(|overrides| {
                overrides.taints = Some("PIDsLow=NoSchedule".to_owned());
            }),
        };
        if self.from == From::TheStart {
            self.begin(&api);
        }
        let node = node.host(host).start(&api);
        if self.from == From::OneMinute {
            pass(Duration::from_mins(1)).await;
            self.begin(&api);
        }
        let begun = api.now();
        for n in 0..30_u32 {
            let kill = Kill {
                victim: ("java", n + 1),
                cgroup: &container,
                limit: Limit::Of(&container),
                source: Exact,
            };
            node.kernel().oom_kill(kill).await;
            if n % 3 == 0 {
                node.kernel().crowd().await;
            }
            pass(TIME / 30).await;
        }
        let sent = api.requests_where(|request| begun <= request.at);
        let met = sent.iter().any(|request| self.is_of(request));
        assert!(met, "{self:?}: no such request");
        drop(node);
        let mut counts = BTreeMap::new();
        for request in &sent {
            *counts.entry(kind(request)).or_default() += 1;
        }
        counts
    }
}

/// How often each kind was seen at most, and in which case.
type Most = BTreeMap<&'static str, (usize, Case)>;

fn count(most: &mut Most, case: &Case, counts: BTreeMap<&'static str, usize>) {
    let total = ("total", counts.values().sum());
    for (kind, count) in counts.into_iter().chain([total]) {
        let known = most.entry(kind).or_insert_with(|| (count, case.clone()));
        if known.0 < count {
            *known = (count, case.clone());
        }
    }
}

/// Plays all cases of one effect at the same time. On a separate runtime: an agent ends with it.
fn play(mode: Mode, effect: &Effect) -> Vec<(Case, BTreeMap<&'static str, usize>)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let cases = cases(mode, effect);
    let counts = runtime.block_on(join_all(cases.iter().map(Case::play)));
    cases.into_iter().zip(counts).collect()
}

fn stays_below_the_ceilings(mode: Mode) {
    let effects = Mutex::new(effects().into_iter());
    let most = Mutex::new(Most::new());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let effect = effects.lock().unwrap().next();
                    let Some(effect) = effect else { break };
                    for (case, counts) in play(mode, &effect) {
                        count(&mut most.lock().unwrap(), &case, counts);
                    }
                }
            });
        }
    });
    let most = most.into_inner().unwrap();
    for (kind, (count, case)) in &most {
        println!("{kind}: {count}, {case:?}");
    }
    let ceilings = BTreeMap::from_iter(CEILINGS.into_iter().chain([("total", TOTAL)]));
    for (kind, (count, case)) in most {
        assert!(
            count <= ceilings[kind],
            "{count} {kind} in ten minutes: {case:?}"
        );
    }
}

#[test]
fn no_response_makes_node_mode_send_requests_without_a_pause() {
    stays_below_the_ceilings(Mode::Node);
}

#[test]
fn no_response_makes_companion_mode_send_requests_without_a_pause() {
    stays_below_the_ceilings(Mode::Companion);
}

#[test]
fn the_document_states_these_ceilings() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../OVERHEAD.md");
    let text = std::fs::read_to_string(path).unwrap();
    for (kind, ceiling) in CEILINGS.into_iter().chain([("total", TOTAL)]) {
        let row = format!("| {kind} | {ceiling} |");
        assert!(text.contains(&row), "OVERHEAD.md lacks {row:?}");
    }
}
