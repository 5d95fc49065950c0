//! Runs one scenario with and without faults of the API server, which must have the same objects in
//! the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use serde_json::Value;

use crate::api_server::{ApiServer, Effect, Fault, Recorded};
use crate::host_root::MadeUpHost;
use crate::node::{Node, Running, in_memory, pass};
use crate::view::{NODES, View};

pub const NAME: &str = "worker-1";

/// Time after which everything that is retried has succeeded.
const SETTLED: Duration = Duration::from_mins(2);

/// Time limit of an immediate report without delays: well before the next tick.
const PROMPT: Duration = Duration::from_secs(5);
/// Time limit if one request is never answered, which is detected after ten seconds, or waits for
/// the next tick.
const DELAYED: Duration = Duration::from_secs(30);
/// Time limit if any number of requests can fail.
const PATIENCE: Duration = Duration::from_mins(3);

/// Faults of the API server in a run.
#[derive(Debug, Clone, Copy)]
pub enum Day<'a> {
    Good,
    /// The delay of every answer.
    Late(Duration),
    /// The percentage of requests that fail, each in one of many ways selected by the seed.
    Faulty {
        percent: u64,
        /// Determines which requests fail.
        seed: u64,
    },
    /// Requests fail from one of the good day's on.
    From {
        /// A request of the good day.
        request: &'a Recorded,
        /// Number of earlier requests with this method and path.
        nth: u32,
        effect: &'a Effect,
        /// Number of failures.
        times: u32,
    },
}

/// The number of faulty days on which a scenario must succeed.
const FAULTY_DAYS: u64 = 10;

/// Number of renewals that fail on a separate day, since all are alike.
const RENEWALS: u32 = 3;

/// Number of attempts at a status before it waits for the next tick.
const A_SYNC: u32 = 5;

/// Returns the days for a scenario whose good day had these requests: on each, one of them fails,
/// and each status also so often that it has to be sent at another tick.
fn bad_days(requests: &[Recorded]) -> Vec<Day<'_>> {
    let faulty = (1..=FAULTY_DAYS).map(|seed| Day::Faulty { percent: 5, seed });
    let late = Day::Late(Duration::from_millis(300));
    let mut days: Vec<Day<'_>> = std::iter::once(late).chain(faulty).collect();
    let mut seen = BTreeMap::<(&str, &str), u32>::new();
    let mut effects = MISHAPS.iter().cycle();
    for request in requests {
        let nth = seen.entry((&request.method, &request.path)).or_default();
        // A watch that ends is opened again, which other days test.
        let watched = request.query.contains("watch=");
        if !watched
            && (request.method != "PUT" || *nth < RENEWALS)
            && let Some(effect) = effects.next()
        {
            days.push(Day::From {
                request,
                nth: *nth,
                effect,
                times: 1,
            });
        }
        if request.path.ends_with("/status") {
            days.push(Day::From {
                request,
                nth: *nth,
                effect: &Effect::Status(500),
                times: A_SYNC + 1,
            });
        }
        *nth += 1;
    }
    days
}

/// The possible effects on a request of a faulty day.
pub static MISHAPS: [Effect; 17] = [
    Effect::Status(500),
    Effect::ResetAfterwards,
    Effect::TooManyRequests(1),
    Effect::Hang,
    Effect::Truncated,
    Effect::Status(503),
    Effect::HangAfterwards,
    Effect::Reset,
    Effect::Garbage,
    Effect::GoAway,
    Effect::HugeRetryAfter,
    Effect::EndlessError,
    Effect::EndlessLine,
    Effect::ManyMembers,
    Effect::LargeHeaders,
    Effect::Empty,
    Effect::Drip,
];

impl fmt::Display for Day<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::From {
                request,
                nth,
                effect,
                times,
            } => write!(f, "{effect:?} {times} times from number {nth} of {request}"),
            Self::Good | Self::Late(_) | Self::Faulty { .. } => write!(f, "{self:?}"),
        }
    }
}

impl Day<'_> {
    /// Applies the faults until the server's plan is cleared.
    pub fn begin(self, api: &ApiServer) {
        match self {
            Self::Good => {}
            Self::Late(late) => api
                .faults()
                .push(Fault::on("*", "/", Effect::Latency(late)).always()),
            Self::Faulty { percent, seed } => {
                let kinds = MISHAPS.len() as u64;
                for (n, effect) in (1..).zip(&MISHAPS) {
                    let drawn = Draws::new(seed.wrapping_mul(kinds).wrapping_add(n));
                    let hit = move |_: &_| drawn.next() % (100 * kinds) < percent;
                    api.faults().push(Fault::when(hit, effect.clone()).always());
                }
            }
            Self::From {
                request,
                nth,
                effect,
                times,
            } => {
                let (method, path) = (request.method.clone(), request.path.clone());
                let hit =
                    move |request: &Recorded| (&request.method, &request.path) == (&method, &path);
                api.faults()
                    .push(Fault::when(hit, effect.clone()).skip(nth).times(times));
            }
        }
    }

    /// Returns how long an immediate report may take on this day.
    const fn patience(self) -> Duration {
        match self {
            Self::Good | Self::Late(_) => PROMPT,
            Self::From { effect, times, .. } => match (effect, times) {
                (
                    Effect::Hang | Effect::HangAfterwards | Effect::Drip | Effect::HugeRetryAfter,
                    _,
                ) => DELAYED,
                (_, 1) => PROMPT,
                (_, _) => DELAYED,
            },
            Self::Faulty { .. } => PATIENCE,
        }
    }
}

/// `SplitMix64`: the same numbers in every run.
#[derive(Debug)]
pub struct Draws(AtomicU64);

impl Draws {
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// Returns a number less than `count`.
    pub fn below(&self, count: u64) -> u64 {
        self.next() % count
    }

    /// Returns an index less than `count`.
    pub fn index(&self, count: usize) -> usize {
        let count = u64::try_from(count).expect("a count that fits");
        usize::try_from(self.below(count)).expect("below the count")
    }

    pub fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// An agent on its host, and its API server.
pub struct Stage {
    pub api: Arc<ApiServer>,
    pub host: Arc<MadeUpHost>,
    pub node: Running,
}

impl Stage {
    /// Starts an agent on a calm host with room for 10,000 pids, and an empty cluster.
    pub fn open(configure: impl FnOnce(Node) -> Node) -> Self {
        Self::at(&in_memory(), configure)
    }

    /// Starts an agent with this server, whatever it contains.
    pub fn at(api: &Arc<ApiServer>, configure: impl FnOnce(Node) -> Node) -> Self {
        let host = Arc::new(MadeUpHost::calm());
        host.pid_max(10_000);
        Self::on(api, host, configure)
    }

    /// Starts an agent with this server on this host.
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

    /// Returns the server's view of the node.
    pub fn view(&self) -> View<'_> {
        View::of(&self.api, NAME)
    }

    /// Returns the server's objects, without what differs between runs.
    pub fn end(&self) -> End {
        let view = self.view();
        let (mut node, mut lease) = (
            view.node().unwrap_or_default(),
            view.lease().unwrap_or_default(),
        );
        let mut renewals = view.renewals().into_iter();
        let renewed = renewals.rfind(|renewal| renewal.status == Some(200));
        let renewed = renewed.is_some_and(|last| self.api.now() - last.at <= RENEWED);
        strip(&mut node);
        strip(&mut lease);
        let events = self.api.list(EVENTS_EVERYWHERE).into_iter();
        End {
            node,
            lease,
            renewed,
            events: events.map(|event| what_about(&event)).collect(),
        }
    }
}

/// A lease is renewed every ten seconds and a little more.
const RENEWED: Duration = Duration::from_secs(11);

const EVENTS_EVERYWHERE: &str = "/api/v1/events";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// The Node without times and values that the server assigns.
    pub node: Value,
    /// The Lease without times and values that the server assigns.
    pub lease: Value,
    /// True if the Lease is still renewed.
    pub renewed: bool,
    /// Object, type and reason of each Event; the count differs if a response was lost.
    pub events: BTreeSet<String>,
}

impl End {
    /// Describes the differences.
    fn against(&self, other: &Self) -> String {
        let missing: Vec<_> = self.events.difference(&other.events).collect();
        let more: Vec<_> = other.events.difference(&self.events).collect();
        let mut difference = format!(
            "renewed {}, Events missing {missing:?}, more {more:?}",
            other.renewed
        );
        for (one, there) in [(&self.node, &other.node), (&self.lease, &other.lease)] {
            if one != there {
                difference += &format!("\n{one}\nis {there}");
            }
        }
        difference
    }
}

fn what_about(event: &Value) -> String {
    let object = &event["involvedObject"];
    let parts = [
        &object["kind"],
        &object["name"],
        &event["type"],
        &event["reason"],
    ];
    parts
        .map(|part| part.as_str().unwrap_or_default())
        .join(" ")
}

/// Runs the scenario from the start on each day, and compares the results. It gets the stage as
/// soon as the agent runs, and the time that a report may take on that day; for everything else it
/// must wait with deadlines that a bad day can keep.
pub async fn end_alike<Played>(
    open: impl Fn() -> Stage,
    story: impl Fn(Arc<Stage>, Duration) -> Played,
) where
    Played: Future<Output = ()>,
{
    let (expected, requests) = played(&open, &story, Day::Good).await;
    assert!(expected.renewed, "not even on the good day");
    let days = bad_days(&requests);
    let ends = days.iter().map(async |day| {
        let played = AssertUnwindSafe(played(&open, &story, *day)).catch_unwind();
        let Ok((ended, asked)) = played.await else {
            return (Some(format!("{day}: see above")), 0);
        };
        let mut expected = expected.clone();
        if is_adopted(&asked) && !is_adopted(&requests) {
            // An agent that finds the Node does not know that it has created it, for which there
            // are Events.
            expected.events.retain(|event| ended.events.contains(event));
        }
        let otherwise = (ended != expected).then(|| format!("{day}: {}", expected.against(&ended)));
        (
            otherwise,
            asked.iter().filter(|request| failed(request)).count(),
        )
    });
    let (otherwise, failures): (Vec<_>, Vec<_>) = join_all(ends).await.into_iter().unzip();
    let otherwise: Vec<String> = otherwise.into_iter().flatten().collect();
    assert!(otherwise.is_empty(), "{}", otherwise.join("\n"));
    assert!(failures.iter().sum::<usize>() > 0, "nothing went wrong");
}

/// Returns the objects at the end, and the requests.
async fn played<Played>(
    open: &impl Fn() -> Stage,
    story: &impl Fn(Arc<Stage>, Duration) -> Played,
    day: Day<'_>,
) -> (End, Vec<Recorded>)
where
    Played: Future<Output = ()>,
{
    let stage = Arc::new(open());
    day.begin(&stage.api);
    story(Arc::clone(&stage), day.patience()).await;
    stage.api.faults().clear();
    let requests = stage.api.requests();
    pass(SETTLED).await;
    let end = stage.end();
    let stage = Arc::into_inner(stage).expect("the story is over");
    stage.node.stop().await.expect("the agent still runs");
    (end, requests)
}

/// Returns whether the agent found the Node when it tried to create it.
fn is_adopted(requests: &[Recorded]) -> bool {
    let mut creates = requests.iter().filter(|request| request.path == NODES);
    creates.any(|request| request.method == "POST" && request.status == Some(409))
}

/// Returns whether the request was affected by a visible fault.
fn failed(request: &Recorded) -> bool {
    request.status.is_none_or(|code| code == 429 || code >= 500)
}

/// Removes everything that differs from run to run.
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
