//! The node heartbeat: creates, renews and adopts the Lease of the Node.
//!
//! A lease stays a JSON value: fields of other clients are written back with each renewal.

#![forbid(unsafe_code)]

use std::time::{Duration, SystemTime};

use nodepulse_core::clock::BootNanos;
use nodepulse_io::clock::Clock;
use serde_json::{Map, Value, json};
use tracing::{debug, warn};

use super::convert::{micro_time, object, text};
use super::endpoint::LEASE_NAMESPACE;
use super::{ApiError, Client, Disposition, Endpoint, Refusal};
use nodepulse_core::backoff::Backoff;

/// Maximum number of updates of one base.
const TRIES: u32 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cycle {
    /// The API server has stored the new time.
    Renewed(Renewed),
    /// There is no lease, and no Node that could own it. The next cycle tries again.
    NoNode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewed {
    /// Time before the accepted request was written.
    pub sent: BootNanos,
    /// Time after its answer was read.
    pub acked: BootNanos,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    /// The lease after the last write.
    Cached,
    /// The lease that was just read.
    Fetched,
}

/// The state machine of a cycle.
///
/// ```text
/// (cached) ► Update Cached ──5 failures─► Ensure ──► Update Fetched ──5 failures──► error
///              │  ▲                      │  ▲ │         │   ▲
///              │  └── read ── Ensure ◄───┼──┼─┼─────────┘   │   after a conflict or a deletion;
///              └─────────────► Ensure    │  │ │             │   the count of failures continues
/// (none) ──► Ensure ──────── read ───────┼──┼─┼─────────────┘
///                                        │  │ └─ 404 ─► created: done; no Node: done
///                                        └──┘ other failures: wait, again
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CycleStep {
    /// Writes the new time into the base.
    Update { round: Round, failed: u32 },
    /// Reads the lease or creates it, as often as necessary, then continues to update.
    Ensure { round: Round, failed: u32 },
}

/// The failures of an update that lead to different steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UpdateFailure {
    /// The base is outdated, or the lease is deleted.
    Stale,
    /// The base is still valid.
    Other,
}

impl CycleStep {
    fn first(cached: Option<&Value>) -> Self {
        match cached {
            Some(_) => Self::Update {
                round: Round::Cached,
                failed: 0,
            },
            None => Self::Ensure {
                round: Round::Fetched,
                failed: 0,
            },
        }
    }

    /// Returns the next step after a failed update; `None` if the cycle has failed.
    fn after(round: Round, failed: u32, failure: UpdateFailure) -> Option<Self> {
        let failed = failed + 1;
        match (round, failed < TRIES, failure) {
            (_, true, UpdateFailure::Stale) => Some(Self::Ensure { round, failed }),
            (_, true, UpdateFailure::Other) => Some(Self::Update { round, failed }),
            (Round::Cached, false, _) => Some(Self::Ensure {
                round: Round::Fetched,
                failed: 0,
            }),
            (Round::Fetched, false, _) => None,
        }
    }
}

enum Ensured {
    Read,
    Created(Renewed),
    NoNode,
}

/// Renews one lease. The caller decides the times of [`cycle`](Self::cycle).
#[derive(Debug)]
pub struct LeaseKeeper {
    node: String,
    duration: Duration,
    /// The UID of the only Node whose lease this is, if set.
    node_uid: Option<String>,
    /// The lease after the last write or read.
    cached: Option<Value>,
}

impl LeaseKeeper {
    /// The lease of the Node `node` expires `duration` after a renewal.
    pub fn new(node: String, duration: Duration) -> Self {
        Self {
            node,
            duration,
            node_uid: None,
            cached: None,
        }
    }

    /// Renews only while the Node has this UID: for another one, the cycle ends with
    /// [`Cycle::NoNode`].
    #[must_use]
    pub fn requiring_node(self, uid: String) -> Self {
        let node_uid = Some(uid);
        Self { node_uid, ..self }
    }

    /// Continues with a lease of which only this was kept: the UID of its Node, and the
    /// `resourceVersion` as of the last write. Labels of other clients on the lease are lost.
    #[must_use]
    pub fn resumed(mut self, node_uid: &str, version: &str) -> Self {
        let mut lease = self.new_lease(node_uid, SystemTime::UNIX_EPOCH);
        object(&mut lease, "metadata").insert("resourceVersion".to_owned(), json!(version));
        self.cached = Some(lease);
        self
    }

    /// Returns the `resourceVersion` of the known lease; `None` if there is none.
    pub fn version(&self) -> Option<String> {
        self.cached
            .as_ref()
            .map(|lease| text(lease, "/metadata/resourceVersion"))
    }

    /// Returns the renewal interval, a quarter of a lease's duration.
    pub fn interval(&self) -> Duration {
        self.duration / 4
    }

    /// Runs one cycle: at most ten updates, and as many reads as conflicts and outages require.
    ///
    /// While the lease can be neither read nor created, this waits and tries again without limit;
    /// dropping the future stops it. `node_uid` becomes the owner of a lease without one, and is
    /// read from the API server if it is `None`. A lease is created only for a Node that was just
    /// read: with an owner that no longer exists it would be deleted at once. Fails with the last
    /// error if all attempts are used up or none can help.
    pub async fn cycle(
        &mut self,
        client: &Client,
        clock: &Clock,
        node_uid: Option<&str>,
    ) -> Result<Cycle, ApiError> {
        let mut step = CycleStep::first(self.cached.as_ref());
        loop {
            step = match step {
                CycleStep::Ensure { round, failed } => match self.ensure(client, clock).await? {
                    Ensured::Read => CycleStep::Update { round, failed },
                    Ensured::Created(renewed) => return Ok(Cycle::Renewed(renewed)),
                    Ensured::NoNode => return Ok(Cycle::NoNode),
                },
                CycleStep::Update { round, failed } => {
                    let err = match self.update(client, clock, node_uid).await {
                        Ok(renewed) => return Ok(Cycle::Renewed(renewed)),
                        Err(err) => err,
                    };
                    debug!(
                        attempt = failed + 1,
                        err = err.as_dyn(),
                        "lease not renewed"
                    );
                    let failure = self.classify(client, &err).await;
                    match CycleStep::after(round, failed, failure) {
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

    /// Classifies a failed update; waits if the server requested it.
    async fn classify(&self, client: &Client, err: &ApiError) -> UpdateFailure {
        match err.disposition() {
            Disposition::Reread => UpdateFailure::Stale,
            // Deleted: no update can restore it.
            Disposition::Retry if err.refusal() == Some(Refusal::NotFound) => UpdateFailure::Stale,
            Disposition::RetryAfter(wait) => {
                client.pause(wait).await;
                UpdateFailure::Other
            }
            // The remaining attempts have no better use: a few rejected requests are better than a
            // node that is regarded as dead.
            Disposition::Retry | Disposition::GiveUp => UpdateFailure::Other,
        }
    }

    async fn update(
        &mut self,
        client: &Client,
        clock: &Clock,
        node_uid: Option<&str>,
    ) -> Result<Renewed, ApiError> {
        let mut lease = self.cached.clone().unwrap_or(Value::Null);
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
        self.cache(stored);
        Ok(Renewed {
            sent: now.boot,
            acked: clock.now().boot,
        })
    }

    /// Reads the lease or creates it. Fails only if waiting cannot help.
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
                debug!(
                    wait_ms,
                    err = err.as_dyn(),
                    "cannot read or create the lease, will retry"
                );
            } else {
                warn!(
                    wait_ms,
                    err = err.as_dyn(),
                    "cannot read or create the lease, will retry"
                );
                warned = true;
            }
            client.back_off(wait).await;
        }
    }

    async fn ensure_once(&mut self, client: &Client, clock: &Clock) -> Result<Ensured, ApiError> {
        match client.get(&Endpoint::lease(&self.node)).await {
            Ok(lease) => {
                if self.is_of_another_node(client).await? {
                    return Ok(Ensured::NoNode);
                }
                self.cache(lease);
                return Ok(Ensured::Read);
            }
            Err(err) if err.refusal() == Some(Refusal::NotFound) => self.cached = None,
            Err(err) => return Err(err),
        }
        let uid = match self.read_node_uid(client).await {
            Ok(uid) => uid,
            Err(err) => {
                debug!(err = err.as_dyn(), "no node that could own the lease");
                return Ok(Ensured::NoNode);
            }
        };
        if self.node_uid.as_ref().is_some_and(|wanted| *wanted != uid) {
            return Ok(Ensured::NoNode);
        }
        let now = clock.now();
        let lease = self.new_lease(&uid, now.wall);
        let stored = client
            .create(&Endpoint::new_lease(&self.node), &lease)
            .await?;
        self.cache(stored);
        Ok(Ensured::Created(Renewed {
            sent: now.boot,
            acked: clock.now().boot,
        }))
    }

    async fn is_of_another_node(&self, client: &Client) -> Result<bool, ApiError> {
        let Some(wanted) = &self.node_uid else {
            return Ok(false);
        };
        match self.read_node_uid(client).await {
            Ok(uid) => Ok(uid != *wanted),
            Err(err) if err.refusal() == Some(Refusal::NotFound) => Ok(true),
            Err(err) => Err(err),
        }
    }

    async fn read_node_uid(&self, client: &Client) -> Result<String, ApiError> {
        let node = client.get(&Endpoint::node(&self.node)).await?;
        Ok(text(&node, "/metadata/uid"))
    }

    /// Drops managedFields: the server keeps those that a write does not contain.
    fn cache(&mut self, mut lease: Value) {
        object(&mut lease, "metadata").remove("managedFields");
        self.cached = Some(lease);
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
    use nodepulse_core::clock::Now;

    use super::*;
    use crate::convert::tests::at;
    use crate::scripted::{Reply, Scripted, refusal};

    const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/worker-1";
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    const NODE: &str = "/api/v1/nodes/worker-1";

    fn keeper() -> LeaseKeeper {
        LeaseKeeper::new("worker-1".to_owned(), Duration::from_secs(40))
    }

    fn keeper_with_lease() -> LeaseKeeper {
        let mut keeper = keeper();
        keeper.cache(lease(7));
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

    fn missing() -> Reply {
        refusal(404, "NotFound")
    }

    async fn cycle(keeper: &mut LeaseKeeper, server: &Scripted) -> Result<Cycle, ApiError> {
        let clock = Clock::runtime(Now {
            boot: BootNanos(0),
            wall: at(0),
        });
        keeper.cycle(&server.client(), &clock, None).await
    }

    /// Returns the requests of one cycle, which results in `expected`.
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

    fn lines(text: &str) -> Vec<String> {
        text.split_whitespace()
            .map(|word| match word {
                "get" => format!("GET {LEASE}"),
                "put" => format!("PUT {LEASE}"),
                "post" => format!("POST {LEASES}"),
                _ => format!("GET {NODE}"),
            })
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn each_course_of_a_cycle_sends_these_requests() {
        let conflict = || refusal(409, "Conflict");
        let failures = |n: usize| vec![refusal(500, ""); n];
        #[rustfmt::skip]
        let rows: Vec<(&str, LeaseKeeper, Vec<Reply>, &str, &str)> = vec![
            ("cached: no read", keeper_with_lease(), vec![found()], "put", "renewed"),
            ("found", keeper(), vec![found(), found()], "get put", "renewed"),
            ("created", keeper(), vec![missing(), node(), found()], "get node post", "renewed"),
            ("no node", keeper(), vec![missing(), missing()], "get node", "no node"),
            ("conflict", keeper_with_lease(), vec![conflict(), found(), found()], "put get put", "renewed"),
            ("deleted", keeper_with_lease(), vec![missing(), missing(), node(), found()], "put get node post",
                "renewed"),
            ("deleted together with the node", keeper_with_lease(), vec![missing(), missing(), missing()],
                "put get node", "no node"),
            ("created by another client meanwhile", keeper(),
                vec![missing(), node(), refusal(409, "AlreadyExists"), found(), found()],
                "get node post get put", "renewed"),
            ("five failures, then the lease as read", keeper_with_lease(),
                [failures(5), vec![found(), found()]].concat(), "put put put put put get put", "renewed"),
            ("ten failures", keeper_with_lease(), [failures(5), vec![found()], failures(5)].concat(),
                "put put put put put get put put put put put", "failed"),
            ("nothing cached, five failures", keeper(), [vec![found()], failures(5)].concat(),
                "get put put put put put", "failed"),
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
    async fn a_lease_that_cannot_be_read_is_retried_with_backoff() {
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
        let server = Scripted::new([missing(), node(), found()]);
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
    async fn a_renewal_sends_the_last_known_lease_with_a_new_time() {
        let server = Scripted::new([found(), found()]);
        let mut keeper = keeper_with_lease();
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
            keeper.cache(bare.clone());
            let clock = Clock::kernel();
            keeper.cycle(&server.client(), &clock, uid).await.unwrap();
            assert_eq!(server.lines(), lines(expected));
            let put = server.body(server.lines().len() - 1);
            let owner = &put["metadata"]["ownerReferences"][0];
            assert_eq!(owner["uid"], uid.unwrap_or("uid-1"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_had_to_be_read_is_renewed_only_for_the_required_node() {
        let other = || Reply::json(200, json!({ "metadata": { "uid": "uid-2" } }));
        #[rustfmt::skip]
        let rows = [
            (vec![found(), node(), found()], "get node put", "renewed"),
            (vec![found(), other()], "get node", "no node"),
            (vec![found(), missing()], "get node", "no node"),
            (vec![missing(), other()], "get node", "no node"),
        ];
        for (replies, expected, ended) in rows {
            let keeper = keeper().requiring_node("uid-1".to_owned());
            assert_eq!(requests(keeper, replies, ended).await, lines(expected));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_broken_connection_is_replaced_and_the_renewal_sent_again() {
        let server = Scripted::new([Reply::Cut, Reply::Garbage, found()]);
        cycle(&mut keeper_with_lease(), &server).await.unwrap();
        assert_eq!(server.lines(), lines("put put put"));
        assert_eq!(server.connections(), 3);
    }
}
