//! Proof of life: the Lease of our Node. Create, renew, take back.
//!
//! A lease stays a JSON value: whatever others keep in it goes back with each renewal.

#![forbid(unsafe_code)]

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};
use tracing::{debug, warn};

use super::backoff::Backoff;
use super::convert::{micro_time, object, text};
use super::endpoint::LEASE_NAMESPACE;
use super::{ApiError, Client, Disposition, Endpoint, Refusal};
use crate::clock::{BootNanos, Clock};

/// Updates of one base, back to back.
const TRIES: u32 = 5;

/// What one cycle came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cycle {
    /// The API server has our new time.
    Renewed(Renewed),
    /// There is no lease, and no Node that it could belong to. The next cycle looks again.
    NoNode,
}

/// The write that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewed {
    /// Before the accepted request was written.
    pub sent: BootNanos,
    /// After its answer was read.
    pub acked: BootNanos,
}

/// Which base the updates of a cycle start from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    /// The lease as our last write left it.
    Held,
    /// The lease as just read.
    Fetched,
}

/// Where a cycle is.
///
/// ```text
/// (held) ──► Update Held ──5 failures──► Ensure ──► Update Fetched ──5 failures──► error
///              │  ▲                      │  ▲ │         │   ▲
///              │  └── read ── Ensure ◄───┼──┼─┼─────────┘   │   on a conflict, or when it is gone;
///              └─────────────► Ensure    │  │ │             │   the count of failures goes on
/// (none) ──► Ensure ──────── read ───────┼──┼─┼─────────────┘
///                                        │  │ └─ 404 ─► created: done; no Node: done
///                                        └──┘ other failures: wait, again
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Write our time over the base that is held.
    Update { round: Round, failed: u32 },
    /// Read the lease or create it, for as long as it takes; then go on updating.
    Ensure { round: Round, failed: u32 },
}

/// What an update came to, as far as the next step depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// The base is not what the server has.
    Stale,
    /// Anything else: the base is as good as it was.
    Other,
}

impl Step {
    fn first(held: Option<&Value>) -> Self {
        match held {
            Some(_) => Self::Update {
                round: Round::Held,
                failed: 0,
            },
            None => Self::Ensure {
                round: Round::Fetched,
                failed: 0,
            },
        }
    }

    /// After a failed update; `None` when the cycle has failed.
    fn after(round: Round, failed: u32, failure: Failure) -> Option<Self> {
        let failed = failed + 1;
        match (round, failed < TRIES, failure) {
            (_, true, Failure::Stale) => Some(Self::Ensure { round, failed }),
            (_, true, Failure::Other) => Some(Self::Update { round, failed }),
            (Round::Held, false, _) => Some(Self::Ensure {
                round: Round::Fetched,
                failed: 0,
            }),
            (Round::Fetched, false, _) => None,
        }
    }
}

/// Whether the lease is there after looking.
enum Ensured {
    Read,
    Created(Renewed),
    NoNode,
}

/// Renews one lease. Who calls [`cycle`](Self::cycle), and when, is the caller's business.
#[derive(Debug)]
pub struct LeaseKeeper {
    node: String,
    duration: Duration,
    /// As our last write or read left it.
    held: Option<Value>,
}

impl LeaseKeeper {
    /// For the Node `node`; the lease is to be taken as expired `duration` after a renewal.
    #[must_use]
    pub fn new(node: String, duration: Duration) -> Self {
        Self {
            node,
            duration,
            held: None,
        }
    }

    /// How often to renew: four times in a lease's duration.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.duration / 4
    }

    /// One cycle: at most ten updates, and as many reads as conflicts and outages ask for.
    ///
    /// While the lease can be neither read nor created this waits and tries again, for as long as
    /// that lasts; dropping the future stops it. `node_uid` goes into a lease without an owner, and
    /// is read from the API server where it is `None`. A lease is created only for a Node that was
    /// read just before: an owner that is gone would have the lease collected at once.
    ///
    /// # Errors
    ///
    /// The last failure, when every try is used up or none can help.
    pub async fn cycle(
        &mut self,
        client: &Client,
        clock: &Clock,
        node_uid: Option<&str>,
    ) -> Result<Cycle, ApiError> {
        let mut step = Step::first(self.held.as_ref());
        loop {
            step = match step {
                Step::Ensure { round, failed } => match self.ensure(client, clock).await? {
                    Ensured::Read => Step::Update { round, failed },
                    Ensured::Created(renewed) => return Ok(Cycle::Renewed(renewed)),
                    Ensured::NoNode => return Ok(Cycle::NoNode),
                },
                Step::Update { round, failed } => {
                    let err = match self.update(client, clock, node_uid).await {
                        Ok(renewed) => return Ok(Cycle::Renewed(renewed)),
                        Err(err) => err,
                    };
                    debug!(
                        attempt = failed + 1,
                        err = err.as_dyn(),
                        "lease not renewed"
                    );
                    let failure = self.judge(client, &err).await;
                    match Step::after(round, failed, failure) {
                        Some(next) => next,
                        None => {
                            return Err(ApiError::RetriesExceeded {
                                what: "renewal of the lease",
                                tries: 2 * TRIES,
                                source: Box::new(err),
                            });
                        }
                    }
                }
            };
        }
    }

    /// What a failed update means for the next step; waits where the server asked for it.
    async fn judge(&self, client: &Client, err: &ApiError) -> Failure {
        match err.disposition() {
            Disposition::Reread => Failure::Stale,
            // Deleted: no update can bring it back.
            Disposition::Retry if err.refusal() == Some(Refusal::NotFound) => Failure::Stale,
            Disposition::RetryAfter(wait) => {
                client.pause(wait).await;
                Failure::Other
            }
            // Nothing better to do with the tries that are left: being taken for dead is worse
            // than a few requests that are refused.
            Disposition::Retry | Disposition::GiveUp => Failure::Other,
        }
    }

    async fn update(
        &mut self,
        client: &Client,
        clock: &Clock,
        node_uid: Option<&str>,
    ) -> Result<Renewed, ApiError> {
        let mut lease = self.held.clone().unwrap_or(Value::Null);
        if !has_owner(&lease) {
            let uid = match node_uid {
                Some(uid) => uid.to_owned(),
                None => self.read_node_uid(client).await?,
            };
            self.set_owner(&mut lease, &uid);
        }
        let now = clock.now();
        self.renew(&mut lease, now.wall);
        let place = Endpoint::lease(&self.node);
        let stored = client.replace(&place, &lease).await?;
        self.hold(stored);
        Ok(Renewed {
            sent: now.boot,
            acked: clock.now().boot,
        })
    }

    /// Reads the lease or creates it. Fails only where waiting cannot help.
    async fn ensure(&mut self, client: &Client, clock: &Clock) -> Result<Ensured, ApiError> {
        let mut backoff = Backoff::LEASE;
        let mut warned = false;
        loop {
            let err = match self.ensure_once(client, clock).await {
                Ok(ensured) => return Ok(ensured),
                Err(err) => err,
            };
            let wait = match err.disposition() {
                Disposition::GiveUp => return Err(err),
                Disposition::RetryAfter(wait) => backoff.advance().max(client.spread(wait)),
                Disposition::Retry | Disposition::Reread => backoff.advance(),
            };
            let wait_ms = wait.as_millis();
            if warned {
                debug!(wait_ms, err = err.as_dyn(), "no lease, will retry");
            } else {
                warn!(wait_ms, err = err.as_dyn(), "no lease, will retry");
                warned = true;
            }
            client.back_off(wait).await;
        }
    }

    async fn ensure_once(&mut self, client: &Client, clock: &Clock) -> Result<Ensured, ApiError> {
        match client.get(&Endpoint::lease(&self.node)).await {
            Ok(lease) => {
                self.hold(lease);
                return Ok(Ensured::Read);
            }
            Err(err) if err.refusal() == Some(Refusal::NotFound) => self.held = None,
            Err(err) => return Err(err),
        }
        let uid = match self.read_node_uid(client).await {
            Ok(uid) => uid,
            Err(err) => {
                debug!(err = err.as_dyn(), "no node for a lease");
                return Ok(Ensured::NoNode);
            }
        };
        let now = clock.now();
        let lease = self.new_lease(&uid, now.wall);
        let stored = client
            .create(&Endpoint::new_lease(&self.node), &lease)
            .await?;
        self.hold(stored);
        Ok(Ensured::Created(Renewed {
            sent: now.boot,
            acked: clock.now().boot,
        }))
    }

    async fn read_node_uid(&self, client: &Client) -> Result<String, ApiError> {
        let node = client.get(&Endpoint::node(&self.node)).await?;
        Ok(text(&node, "/metadata/uid"))
    }

    /// managedFields are the server's bookkeeping: left out of a write, they stay as they are.
    fn hold(&mut self, mut lease: Value) {
        object(&mut lease, "metadata").remove("managedFields");
        self.held = Some(lease);
    }

    fn new_lease(&self, uid: &str, now: SystemTime) -> Value {
        let mut lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": self.node, "namespace": LEASE_NAMESPACE },
            "spec": { "holderIdentity": self.node },
        });
        self.set_owner(&mut lease, uid);
        self.renew(&mut lease, now);
        lease
    }

    fn set_owner(&self, lease: &mut Value, uid: &str) {
        let owner = json!([{ "apiVersion": "v1", "kind": "Node", "name": self.node, "uid": uid }]);
        object(lease, "metadata").insert("ownerReferences".to_owned(), owner);
    }

    fn renew(&self, lease: &mut Value, now: SystemTime) {
        let spec: &mut Map<String, Value> = object(lease, "spec");
        let seconds = json!(self.duration.as_secs());
        spec.insert("leaseDurationSeconds".to_owned(), seconds);
        spec.insert("renewTime".to_owned(), json!(micro_time(now)));
    }
}

fn has_owner(lease: &Value) -> bool {
    let owners = lease.pointer("/metadata/ownerReferences");
    owners
        .and_then(Value::as_array)
        .is_some_and(|owners| !owners.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::convert::tests::at;
    use crate::api::scripted::{Reply, Scripted, refusal};
    use crate::clock::Now;

    const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/worker-1";
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    const NODE: &str = "/api/v1/nodes/worker-1";

    fn keeper() -> LeaseKeeper {
        LeaseKeeper::new("worker-1".to_owned(), Duration::from_secs(40))
    }

    fn holding() -> LeaseKeeper {
        let mut keeper = keeper();
        keeper.hold(lease(7));
        keeper
    }

    fn lease(version: u64) -> Value {
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": "worker-1", "namespace": "kube-node-lease",
                "resourceVersion": version.to_string(),
                "ownerReferences": [
                    { "apiVersion": "v1", "kind": "Node", "name": "worker-1", "uid": "uid-1" },
                ],
                "labels": { "of": "others" },
                "managedFields": [{}],
            },
            "spec": { "holderIdentity": "worker-1", "leaseDurationSeconds": 40 },
        })
    }

    fn found() -> Reply {
        Reply::json(200, lease(8))
    }

    fn node() -> Reply {
        Reply::json(200, json!({ "metadata": { "uid": "uid-1" } }))
    }

    fn gone() -> Reply {
        refusal(404, "NotFound")
    }

    async fn cycle(keeper: &mut LeaseKeeper, server: &Scripted) -> Result<Cycle, ApiError> {
        let clock = Clock::runtime(Now {
            boot: BootNanos(0),
            wall: at(0),
        });
        keeper.cycle(&server.client(), &clock, None).await
    }

    /// The requests of one cycle, which ends as `expected`.
    async fn requests(mut keeper: LeaseKeeper, replies: Vec<Reply>, expected: &str) -> Vec<String> {
        let server = Scripted::new(replies);
        let ended = match cycle(&mut keeper, &server).await {
            Ok(Cycle::Renewed(_)) => "renewed",
            Ok(Cycle::NoNode) => "no node",
            Err(_) => "failed",
        };
        assert_eq!(ended, expected, "{:?}", server.lines());
        server.lines()
    }

    fn lines(words: &str) -> Vec<String> {
        words
            .split_whitespace()
            .map(|word| match word {
                "get" => format!("GET {LEASE}"),
                "put" => format!("PUT {LEASE}"),
                "post" => format!("POST {LEASES}"),
                _ => format!("GET {NODE}"),
            })
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_cycle_sends_for_each_way_in_which_it_can_go() {
        let conflict = || refusal(409, "Conflict");
        let failures = |n: usize| vec![refusal(500, ""); n];
        let rows: Vec<(&str, LeaseKeeper, Vec<Reply>, &str, &str)> = vec![
            ("held: no read", holding(), vec![found()], "put", "renewed"),
            (
                "found",
                keeper(),
                vec![found(), found()],
                "get put",
                "renewed",
            ),
            (
                "created",
                keeper(),
                vec![gone(), node(), found()],
                "get node post",
                "renewed",
            ),
            (
                "no node",
                keeper(),
                vec![gone(), gone()],
                "get node",
                "no node",
            ),
            (
                "conflict",
                holding(),
                vec![conflict(), found(), found()],
                "put get put",
                "renewed",
            ),
            (
                "deleted",
                holding(),
                vec![gone(), gone(), node(), found()],
                "put get node post",
                "renewed",
            ),
            (
                "deleted together with the node",
                holding(),
                vec![gone(), gone(), gone()],
                "put get node",
                "no node",
            ),
            (
                "created by somebody else meanwhile",
                keeper(),
                vec![
                    gone(),
                    node(),
                    refusal(409, "AlreadyExists"),
                    found(),
                    found(),
                ],
                "get node post get put",
                "renewed",
            ),
            (
                "five failures, then the lease as read",
                holding(),
                [failures(5), vec![found(), found()]].concat(),
                "put put put put put get put",
                "renewed",
            ),
            (
                "ten failures",
                holding(),
                [failures(5), vec![found()], failures(5)].concat(),
                "put put put put put get put put put put put",
                "failed",
            ),
            (
                "nothing held, five failures",
                keeper(),
                [vec![found()], failures(5)].concat(),
                "get put put put put put",
                "failed",
            ),
        ];
        for (name, keeper, replies, expected, ended) in rows {
            assert_eq!(
                requests(keeper, replies, ended).await,
                lines(expected),
                "{name}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_cannot_be_read_is_looked_for_ever_more_slowly() {
        let server =
            Scripted::new(std::iter::repeat_n(refusal(500, ""), 7).chain([found(), found()]));
        let before = tokio::time::Instant::now();
        let renewed = cycle(&mut keeper(), &server).await;
        assert!(matches!(renewed, Ok(Cycle::Renewed(_))), "{renewed:?}");
        let waited = 200 + 400 + 800 + 1600 + 3200 + 6400 + 7000;
        assert_eq!(before.elapsed(), Duration::from_millis(waited));
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_lease_names_its_node() {
        let server = Scripted::new([gone(), node(), found()]);
        cycle(&mut keeper(), &server).await.unwrap();
        assert_eq!(
            server.body(2),
            json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {
                    "name": "worker-1", "namespace": "kube-node-lease",
                    "ownerReferences": [
                        { "apiVersion": "v1", "kind": "Node", "name": "worker-1", "uid": "uid-1" },
                    ],
                },
                "spec": {
                    "holderIdentity": "worker-1", "leaseDurationSeconds": 40,
                    "renewTime": "2023-11-14T22:13:20.000000Z",
                },
            })
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_sends_the_lease_as_last_seen_with_a_new_time() {
        let server = Scripted::new([found(), found()]);
        let mut keeper = holding();
        cycle(&mut keeper, &server).await.unwrap();
        let mut expected = lease(7);
        expected["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("managedFields");
        expected["spec"]["renewTime"] = json!("2023-11-14T22:13:20.000000Z");
        assert_eq!(server.body(0), expected);
        cycle(&mut keeper, &server).await.unwrap();
        assert_eq!(server.body(1)["metadata"]["resourceVersion"], "8");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_without_owner_gets_one() {
        let mut bare = lease(7);
        bare["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("ownerReferences");
        for (uid, expected) in [(Some("known"), "put"), (None, "node put")] {
            let server = Scripted::new([node(), node()]);
            let mut keeper = keeper();
            keeper.hold(bare.clone());
            let clock = Clock::kernel();
            keeper.cycle(&server.client(), &clock, uid).await.unwrap();
            assert_eq!(server.lines(), lines(expected));
            let put = server.body(server.lines().len() - 1);
            let owner = &put["metadata"]["ownerReferences"][0];
            assert_eq!(owner["uid"], uid.unwrap_or("uid-1"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_broken_connection_is_replaced_and_the_renewal_sent_again() {
        let server = Scripted::new([Reply::Cut, Reply::Garbage, found()]);
        cycle(&mut holding(), &server).await.unwrap();
        assert_eq!(server.lines(), lines("put put put"));
        assert_eq!(server.connections(), 3);
    }
}
