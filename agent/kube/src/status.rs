//! Writes the Node's status: computes it, compares it with the stored one, and sends the
//! differences.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use nodepulse_core::clock::BootNanos;
use nodepulse_core::node_status::{NodeStatus, StoredNode};
use nodepulse_io::clock::Clock;
use serde_json::{Value, json};
use tracing::{debug, warn};

use super::convert::{desired_node, object, stored_node, text};
use super::patch::{CONDITIONS, changes, is_change, status_patch};
use super::taints::{NodepulseTaints, StoredTaints, TaintKeeper, TaintOutcome};
use super::{ApiError, Client, Disposition, Endpoint, Refusal, companion};

/// Maximum number of attempts of one sync. Against a server that fails at random, five are enough;
/// against one that is down, more would only add load to its start.
const MAX_ATTEMPTS: u32 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The whole status of the Node, and its default labels.
    Whole,
    NodepulseConditions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendRule {
    /// Now, even if only heartbeat times differ: the report period has elapsed, or something has
    /// changed that a comparison cannot show.
    Always,
    /// Now, but only if something other than heartbeat times and annotations differs from the
    /// stored status.
    IfChanged,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncOutcome {
    Unchanged,
    Sent(Sent),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// Time before the accepted request was written.
    pub sent: BootNanos,
    /// Time after its answer was read.
    pub acked: BootNanos,
    pub patch: Vec<u8>,
    /// The patch changed more than heartbeat times.
    pub changed: bool,
    /// The number of the attempt, from 1.
    pub attempt: u32,
}

/// Keeps the Node as the API server last returned it, so that a sync needs no read.
#[derive(Debug)]
pub struct StatusWriter {
    name: String,
    clock: Clock,
    part: Part,
    /// The only Node that is written, if set.
    uid: Option<String>,
    /// The last known Node, without parts that no patch depends on.
    cached: Option<Value>,
    /// Changes in the last patch that the API server accepted but did not store. They are not sent
    /// again until the status is due, or until something else changes.
    unstored: BTreeMap<String, Value>,
    taints: TaintKeeper,
}

impl StatusWriter {
    pub fn new(name: String, clock: Clock, part: Part) -> Self {
        Self {
            name,
            clock,
            part,
            uid: None,
            cached: None,
            unstored: BTreeMap::new(),
            taints: TaintKeeper::default(),
        }
    }

    /// Writes only the Node with this UID: another one is [`ApiError::OtherNode`].
    #[must_use]
    pub fn requiring_uid(self, uid: String) -> Self {
        let uid = Some(uid);
        Self { uid, ..self }
    }

    /// Updates the known Node, from registration or from a watch. An older one is ignored, because
    /// a watch can be behind the writes of this client.
    pub fn observe(&mut self, node: Value) {
        let version = |node: &Value| text(node, "/metadata/resourceVersion").parse::<u64>().ok();
        if let (Some(known), Some(new)) = (self.cached.as_ref().and_then(version), version(&node))
            && new < known
            // The version of a Node that was deleted and created again keeps rising, so this one is
            // only late.
            && self.cached.as_ref().map(|cached| text(cached, "/metadata/uid"))
                == Some(text(&node, "/metadata/uid"))
        {
            return;
        }
        self.cached = Some(self.part.of(node));
    }

    /// Records that the Node was deleted, so that the next attempt reads it.
    pub fn forget(&mut self) {
        self.cached = None;
    }

    pub async fn fetch(&mut self, client: &Client) -> Result<(), ApiError> {
        let node = client.get(&Endpoint::node(&self.name)).await?;
        self.observe(node);
        Ok(())
    }

    /// Returns the `resourceVersion` of the known Node; empty if none is known.
    pub fn version(&self) -> String {
        self.cached
            .as_ref()
            .map(|node| text(node, "/metadata/resourceVersion"))
            .unwrap_or_default()
    }

    /// Returns the known Node; `None` before the first answer.
    pub fn stored(&self) -> Option<StoredNode> {
        self.cached.as_ref().map(stored_node)
    }

    fn is_deleted(&self, err: &ApiError) -> bool {
        self.part == Part::NodepulseConditions && err.refusal() == Some(Refusal::NotFound)
    }

    /// Brings the Node's taints to the desired state. The first attempt uses the known Node.
    pub async fn taint(&mut self, client: &Client, wanted: NodepulseTaints<'_>) -> TaintOutcome {
        let seen = self.cached.as_ref().and_then(StoredTaints::of);
        let (node, failed) = self.taints.keep(client, &self.name, seen, wanted).await;
        let written = node.is_some();
        if let Some(node) = node {
            self.observe(node);
        }
        TaintOutcome { written, failed }
    }

    /// Makes up to five consecutive attempts to compute a status and to send the differences.
    ///
    /// The first attempt uses the known Node; the others read it. `compute` runs once per attempt,
    /// because it depends on what is stored. Fails with [`ApiError::RetriesExceeded`] after the
    /// last attempt, or at once if no attempt can help: for nodepulse's conditions also after a
    /// 404.
    pub async fn sync(
        &mut self,
        client: &Client,
        mut compute: impl FnMut(&StoredNode) -> (NodeStatus, SendRule),
    ) -> Result<SyncOutcome, ApiError> {
        let mut attempt = 1;
        loop {
            let err = match self.try_once(client, attempt, &mut compute).await {
                Ok(outcome) => return Ok(outcome),
                Err(err) => err,
            };
            debug!(attempt, err = err.as_dyn(), "status sync failed");
            if self.is_deleted(&err) {
                // The kubelet may create the Node again, which takes longer than these attempts.
                return Err(err);
            }
            if attempt == MAX_ATTEMPTS {
                return Err(ApiError::RetriesExceeded {
                    what: "update of node status",
                    tries: MAX_ATTEMPTS,
                    source: Box::new(err),
                });
            }
            match err.disposition() {
                Disposition::GiveUp => return Err(err),
                Disposition::RetryAfter(wait) => client.pause(wait).await,
                Disposition::Retry | Disposition::Reread => {}
            }
            attempt += 1;
        }
    }

    async fn try_once(
        &mut self,
        client: &Client,
        attempt: u32,
        compute: &mut impl FnMut(&StoredNode) -> (NodeStatus, SendRule),
    ) -> Result<SyncOutcome, ApiError> {
        let (part, unstored) = (self.part, &self.unstored);
        let read = match &mut self.cached {
            Some(cached) if attempt == 1 => cached,
            cached => {
                let node = client.get(&Endpoint::node(&self.name)).await?;
                cached.insert(part.of(node))
            }
        };
        let stored = stored_node(read);
        if self.uid.as_ref().is_some_and(|uid| *uid != stored.uid) {
            let node = self.name.clone();
            return Err(ApiError::OtherNode { node });
        }
        let (status, decision) = compute(&stored);
        let patch = part.patch(read, &status);
        let patch = patch.map(|(patch, changed)| {
            let again = !unstored.is_empty() && are(&changes(&patch), unstored);
            (patch, changed && !again)
        });
        let Some((mut patch, changed)) = patch.filter(|(_, changed)| decision.sends(*changed))
        else {
            return Ok(SyncOutcome::Unchanged);
        };
        if let Some(uid) = &self.uid {
            // The server answers 409 if another Node has the name meanwhile.
            object(&mut patch, "metadata").insert("uid".to_owned(), json!(uid));
        }
        let patch = patch.to_string().into_bytes();
        let sent = self.clock.now().boot;
        let stored = client
            .patch(&Endpoint::node_status(&self.name), &patch)
            .await?;
        let acked = self.clock.now().boot;
        self.observe(stored);
        self.record_unstored(&status);
        Ok(SyncOutcome::Sent(Sent {
            sent,
            acked,
            patch,
            changed,
            attempt,
        }))
    }
}

impl StatusWriter {
    /// Compares the answer to a patch with the status in it. An API server drops fields that its
    /// release does not have, and stores some values in another form.
    fn record_unstored(&mut self, status: &NodeStatus) {
        if self.part == Part::NodepulseConditions {
            return;
        }
        let left = self.cached.as_ref().and_then(|stored| {
            let left = status_patch(stored, &desired_node(stored, status))?;
            let left = changes(&left).into_iter();
            let left = left.filter(|(key, _)| *key != CONDITIONS);
            Some(
                left.map(|(key, value)| (key.to_owned(), value.clone()))
                    .collect(),
            )
        });
        let before = std::mem::replace(&mut self.unstored, left.unwrap_or_default());
        if !self.unstored.is_empty() && !before.keys().eq(self.unstored.keys()) {
            let fields: Vec<&str> = self.unstored.keys().map(String::as_str).collect();
            let fields = fields.join(", ");
            warn!(
                fields,
                "the API server did not store a part of the node status"
            );
        }
    }
}

fn are(changes: &BTreeMap<&str, &Value>, known: &BTreeMap<String, Value>) -> bool {
    let known = known.iter().map(|(key, value)| (key.as_str(), value));
    changes.iter().map(|(key, value)| (*key, *value)).eq(known)
}

impl SendRule {
    const fn sends(self, changed: bool) -> bool {
        match self {
            Self::Always => true,
            Self::IfChanged => changed,
        }
    }
}

impl Part {
    fn of(self, mut node: Value) -> Value {
        match self {
            Self::Whole => {
                trim(&mut node);
                node
            }
            Self::NodepulseConditions => companion::reduced(&node),
        }
    }

    /// Returns the patch from `read` to `status`, and true if it changes more than heartbeat times.
    fn patch(self, read: &Value, status: &NodeStatus) -> Option<(Value, bool)> {
        match self {
            Self::Whole => {
                let patch = status_patch(read, &desired_node(read, status))?;
                let changed = is_change(&patch);
                Some((patch, changed))
            }
            Self::NodepulseConditions => Some(companion::status_patch(read, status)),
        }
    }
}

/// Drops a large part that no patch depends on: both sides of the diff lack it.
fn trim(node: &mut Value) {
    if let Some(Value::Object(metadata)) = node.get_mut("metadata") {
        metadata.remove("managedFields");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nodepulse_core::clock::Now;
    use nodepulse_core::node_status::Status;
    use serde_json::json;

    use super::*;
    use crate::convert::initial_node;
    use crate::convert::tests::{at, registration, status};
    use crate::scripted::{Reply, Scripted, refusal};

    const PATCH: &str = "PATCH /api/v1/nodes/worker-1/status";
    const GET: &str = "GET /api/v1/nodes/worker-1";

    fn node(version: u64) -> Value {
        let mut node = initial_node(&registration(), &status(0));
        node["metadata"]["uid"] = json!("uid-1");
        node["metadata"]["resourceVersion"] = json!(version.to_string());
        node
    }

    fn writer() -> StatusWriter {
        let clock = Clock::runtime(Now {
            boot: BootNanos(0),
            wall: at(0),
        });
        let mut writer = StatusWriter::new("worker-1".to_owned(), clock, Part::Whole);
        writer.observe(node(1));
        writer
    }

    fn sent(outcome: SyncOutcome) -> Sent {
        match outcome {
            SyncOutcome::Sent(sent) => sent,
            SyncOutcome::Unchanged => panic!("nothing was sent"),
        }
    }

    /// Sends a status that is due.
    async fn sync(server: &Scripted) -> Result<Sent, ApiError> {
        let (client, mut writer) = (server.client(), writer());
        let outcome = writer.sync(&client, |_| (status(10), SendRule::Always));
        outcome.await.map(sent)
    }

    #[tokio::test(start_paused = true)]
    async fn an_unchanged_status_is_sent_only_when_it_is_due() {
        let server = Scripted::new([Reply::json(200, node(2))]);
        let (client, mut writer) = (server.client(), writer());
        let beat = |decision| move |_: &StoredNode| (status(10), decision);

        let outcome = writer.sync(&client, beat(SendRule::IfChanged)).await;
        assert_eq!(outcome.unwrap(), SyncOutcome::Unchanged);
        assert_eq!(server.lines(), [""; 0]);

        let outcome = writer.sync(&client, beat(SendRule::Always)).await;
        let sent = sent(outcome.unwrap());
        assert!(!sent.changed);
        assert_eq!(sent.attempt, 1);
        assert_eq!(server.lines(), [PATCH], "no read before it");
        assert_eq!(
            server.content_type(0),
            "application/strategic-merge-patch+json"
        );
        assert_eq!(server.body(0).to_string().into_bytes(), sent.patch);
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_node_with_the_required_uid_is_written() {
        let mut other = node(2);
        other["metadata"]["uid"] = json!("uid-2");
        let server = Scripted::new([refusal(409, "Conflict"), Reply::json(200, other)]);
        let mut writer = writer().requiring_uid("uid-1".to_owned());
        let client = server.client();
        let synced = writer.sync(&client, |_| (status(10), SendRule::Always));
        let err = synced.await.unwrap_err();
        assert!(matches!(err, ApiError::OtherNode { .. }), "{err}");
        assert_eq!(server.lines(), [PATCH, GET]);
        assert_eq!(server.body(0)["metadata"]["uid"], "uid-1");
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_server_does_not_store_is_sent_again_only_with_another_change() {
        let mut computed = status(10);
        computed.supplemental_groups_policy = Some(true);
        let mut other = computed.clone();
        other.kubelet_port = Some(10_250);
        let mut other_stored = node(3);
        other_stored["status"]["daemonEndpoints"] =
            json!({ "kubeletEndpoint": { "Port": 10_250 } });
        let server = Scripted::new([
            Reply::json(200, node(2)),
            Reply::json(200, other_stored),
            Reply::json(200, node(4)),
        ]);
        let (client, mut writer) = (server.client(), writer());

        for sends in [true, false, false] {
            let sync = writer.sync(&client, |_| (computed.clone(), SendRule::IfChanged));
            let sent = matches!(sync.await.unwrap(), SyncOutcome::Sent(_));
            assert_eq!(sent, sends);
        }
        for sends in [true, false] {
            let sync = writer.sync(&client, |_| (other.clone(), SendRule::IfChanged));
            let sent = matches!(sync.await.unwrap(), SyncOutcome::Sent(_));
            assert_eq!(sent, sends, "the port is new");
        }
        let sync = writer.sync(&client, |_| (other.clone(), SendRule::Always));
        assert!(!sent(sync.await.unwrap()).changed, "it is due");
        assert_eq!(server.lines(), [PATCH; 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_transition_and_a_missing_label_are_changes() {
        let mut transition = status(10);
        transition.conditions[0].status = Status::True;
        let mut bare = node(5);
        bare["metadata"]["labels"] = json!({});
        for (name, stored, computed) in [
            ("transition", node(5), transition),
            ("label", bare, status(0)),
        ] {
            let server = Scripted::new([Reply::json(200, node(6))]);
            let mut writer = writer();
            writer.observe(stored);
            let outcome = writer
                .sync(&server.client(), |_| {
                    (computed.clone(), SendRule::IfChanged)
                })
                .await;
            assert!(sent(outcome.unwrap()).changed, "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_attempt_after_the_first_reads_and_the_fifth_is_the_last() {
        let replies = (0..9).map(|n| match n % 2 {
            0 => refusal(500, ""),
            _ => Reply::json(200, node(2)),
        });
        let server = Scripted::new(replies);
        let mut computed = 0;
        let err = writer()
            .sync(&server.client(), |_| {
                computed += 1;
                (status(10), SendRule::Always)
            })
            .await
            .unwrap_err();
        assert_eq!(
            server.lines(),
            [PATCH, GET, PATCH, GET, PATCH, GET, PATCH, GET, PATCH]
        );
        assert_eq!(computed, 5);
        assert!(err.to_string().contains("exceeds retry count"), "{err}");
        assert_eq!(err.refusal(), Some(Refusal::Server));
        assert_eq!(
            server.connections(),
            1,
            "an HTTP status never closes a connection"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_deleted_node_is_read_again_and_a_permanent_error_is_not_retried() {
        #[rustfmt::skip]
        let rows = [
            (404, "NotFound", Refusal::NotFound, &[PATCH, GET, GET, GET, GET][..]),
            (403, "Forbidden", Refusal::Forbidden, &[PATCH]),
        ];
        for (code, reason, refused, lines) in rows {
            let server = Scripted::new((0..lines.len()).map(|_| refusal(code, reason)));
            let err = sync(&server).await.unwrap_err();
            assert_eq!(server.lines(), lines, "{reason}");
            assert_eq!(err.refusal(), Some(refused), "{reason}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_throttling_server_gets_the_time_that_it_requests() {
        let server = Scripted::new([
            refusal(429, "TooManyRequests").retry_after(3),
            Reply::json(200, node(2)),
            Reply::json(200, node(2)),
        ]);
        let before = tokio::time::Instant::now();
        assert_eq!(sync(&server).await.unwrap().attempt, 2);
        assert_eq!(before.elapsed(), Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn an_unresponsive_server_gets_a_new_connection_at_the_deadline() {
        let server = Scripted::new([
            Reply::Silent,
            Reply::json(200, node(2)),
            Reply::json(200, node(2)),
        ]);
        let before = tokio::time::Instant::now();
        let sent = sync(&server).await.unwrap();
        assert_eq!(sent.attempt, 2);
        assert_eq!(before.elapsed(), Duration::from_secs(10));
        assert_eq!(sent.sent, BootNanos(0).plus(Duration::from_secs(10)));
        assert_eq!((server.connections(), server.open()), (2, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_older_than_the_last_answer_is_ignored() {
        let mut writer = writer();
        let with_boot_id = |version, boot_id: &str| {
            let mut node = node(version);
            node["status"]["nodeInfo"]["bootID"] = json!(boot_id);
            node["metadata"]["managedFields"] = json!([1]);
            node
        };
        writer.observe(with_boot_id(10, "ten"));
        writer.observe(with_boot_id(9, "nine"));
        assert_eq!(writer.stored().unwrap().boot_id, "ten");
        writer.observe(with_boot_id(11, "eleven"));
        assert_eq!(writer.stored().unwrap().boot_id, "eleven");
        let cached = writer.cached.unwrap();
        assert_eq!(cached["metadata"].get("managedFields"), None);
    }
}
