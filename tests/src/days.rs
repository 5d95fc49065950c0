//! One story, on a good day and on bad ones: what the API server holds in the end must not differ.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::api_server::{ApiServer, Effect, Fault, Recorded};
use crate::host_root::MadeUpHost;
use crate::node::{Node, Running, in_memory, pass};
use crate::view::View;

/// The node that every story is about.
pub const NAME: &str = "worker-1";

/// Long enough for everything that is retried to have come through.
const SETTLED: Duration = Duration::from_mins(1);

/// How the API server is that day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Day {
    /// It answers at once.
    Good,
    /// Every answer is so late.
    Late(Duration),
    /// So many of a hundred requests fail, each in one of many ways, drawn from the seed.
    Faulty {
        /// Of a hundred.
        percent: u64,
        /// Another seed is another day.
        seed: u64,
    },
}

/// So many faulty days a story must come through: enough that each of its steps fails on one.
const FAULTY_DAYS: u64 = 10;

/// Those that a story must come through.
fn bad_days() -> impl Iterator<Item = Day> {
    let faulty = (1..=FAULTY_DAYS).map(|seed| Day::Faulty { percent: 5, seed });
    std::iter::once(Day::Late(Duration::from_millis(300))).chain(faulty)
}

/// What a request can meet on a faulty day.
const MISHAPS: [Effect; 10] = [
    Effect::Status(500),
    Effect::Status(503),
    Effect::TooManyRequests(1),
    Effect::Hang,
    Effect::HangAfterwards,
    Effect::Reset,
    Effect::ResetAfterwards,
    Effect::Truncated,
    Effect::Garbage,
    Effect::GoAway,
];

impl Day {
    /// From now on, until the server's plan is cleared.
    pub fn begin(self, api: &ApiServer) {
        match self {
            Self::Good => {}
            Self::Late(late) => api
                .faults()
                .push(Fault::on("*", "/", Effect::Latency(late)).always()),
            Self::Faulty { percent, seed } => {
                let kinds = MISHAPS.len() as u64;
                for (n, effect) in (1..).zip(MISHAPS) {
                    let drawn = Draws::new(seed.wrapping_mul(kinds).wrapping_add(n));
                    let hit = move |_: &_| drawn.next() % (100 * kinds) < percent;
                    api.faults().push(Fault::when(hit, effect).always());
                }
            }
        }
    }
}

/// `SplitMix64`: the same numbers on every run.
struct Draws(AtomicU64);

impl Draws {
    fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// An agent on its host, and the API server that it talks to.
pub struct Stage {
    /// The API server.
    pub api: Arc<ApiServer>,
    /// The node's files.
    pub host: Arc<MadeUpHost>,
    /// The agent.
    pub node: Running,
}

impl Stage {
    /// A calm host with room for 10,000 pids, an empty cluster, and the agent just started.
    pub fn open(configure: impl FnOnce(Node) -> Node) -> Self {
        Self::at(&in_memory(), configure)
    }

    /// The same, where this server has whatever it has.
    pub fn at(api: &Arc<ApiServer>, configure: impl FnOnce(Node) -> Node) -> Self {
        let host = Arc::new(MadeUpHost::calm());
        host.pid_max(10_000);
        Self::on(api, host, configure)
    }

    /// The same, on this host.
    pub fn on(
        api: &Arc<ApiServer>,
        host: Arc<MadeUpHost>,
        configure: impl FnOnce(Node) -> Node,
    ) -> Self {
        let node = Node::named(NAME).host(Arc::clone(&host));
        Self {
            node: configure(node).start(api),
            api: Arc::clone(api),
            host,
        }
    }

    /// The node as the server has it.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View::of(&self.api, NAME)
    }

    /// Node and Lease as the server has them, without what no two runs share: times, and what the
    /// server gives out.
    #[must_use]
    pub fn end(&self) -> (Value, Value) {
        let view = self.view();
        let mut both = (
            view.node().unwrap_or_default(),
            view.lease().unwrap_or_default(),
        );
        strip(&mut both.0);
        strip(&mut both.1);
        both
    }
}

/// Plays the story once on each day, every time from the start, and compares how it ends. A story
/// gets the stage as soon as the agent runs, and must wait with deadlines that a bad day can keep.
///
/// # Panics
///
/// Where a bad day ends otherwise than the good one, and where no bad day was bad.
pub async fn end_alike<Played>(open: impl Fn() -> Stage, story: impl Fn(Arc<Stage>) -> Played)
where
    Played: Future<Output = ()>,
{
    let (expected, _) = played(&open, &story, Day::Good).await;
    let mut failed = 0;
    for day in bad_days() {
        let (ended, failures) = played(&open, &story, day).await;
        assert_eq!(ended, expected, "{day:?}");
        failed += failures;
    }
    assert!(failed > 0, "nothing went wrong");
}

/// How it ends, and how many requests failed by the day's fault.
async fn played<Played>(
    open: &impl Fn() -> Stage,
    story: &impl Fn(Arc<Stage>) -> Played,
    day: Day,
) -> ((Value, Value), usize)
where
    Played: Future<Output = ()>,
{
    let stage = Arc::new(open());
    day.begin(&stage.api);
    story(Arc::clone(&stage)).await;
    stage.api.faults().clear();
    pass(SETTLED).await;
    let end = stage.end();
    let failed = |request: &Recorded| request.status.is_none_or(|code| code == 429 || code >= 500);
    let failed = stage.api.requests_where(failed).len();
    let stage = Arc::into_inner(stage).expect("the story is over");
    stage.node.stop().await.expect("the agent still runs");
    (end, failed)
}

/// Takes away what differs from run to run, wherever it stands.
fn strip(value: &mut Value) {
    const PASSING: [&str; 7] = [
        "creationTimestamp",
        "lastHeartbeatTime",
        "lastTransitionTime",
        "managedFields",
        "renewTime",
        "resourceVersion",
        "uid",
    ];
    match value {
        Value::Object(map) => {
            map.retain(|key, _| !PASSING.contains(&key.as_str()));
            map.values_mut().for_each(strip);
        }
        Value::Array(list) => list.iter_mut().for_each(strip),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
