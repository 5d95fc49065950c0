//! The writer of node mode: registers the Node, then keeps its status.

use std::collections::BTreeMap;

use tokio::sync::{mpsc, oneshot, watch};
use tracing::{debug, warn};

use super::reporting::{Report, SyncRequest, Wait};
use super::tasks::{Line, events, log_failed};
use crate::api::backoff::Jitter;
use crate::api::holder::{self, Holder};
use crate::api::node_watch::{self, NodeEvent};
use crate::api::recorder::EventSink;
use crate::api::register::{DeviceCheckpoint, Registered, Registrar};
use crate::api::status::{Decision, Sent, StatusWriter, SyncOutcome};
use crate::api::{ApiError, Disposition};
use crate::clock::{Now, Stamp};
use crate::node_status::report::{self, Reporter as Schedule};
use crate::node_status::setters::{self, Setters};
use crate::node_status::transition::{Edge, edges, schedulable_edge};
use crate::node_status::{Facts, NodeStatus, Registration, StoredNode};
use crate::reading::Resource;

/// States of the Node that wait for the writer while it waits for an answer. When it is full the
/// watch waits too.
const NODE_EVENTS: usize = 4;

/// Registers the Node, then writes its status when asked to.
pub(super) struct NodeWriter {
    pub(super) registration: Registration,
    /// Whether it is clear that nobody else looks after this Node.
    pub(super) ours: watch::Sender<bool>,
    pub(super) register: bool,
    pub(super) setters: Setters,
    pub(super) checkpoint: DeviceCheckpoint,
    pub(super) started: Now,
    pub(super) status: StatusWriter,
    /// Nobody has written to the Node since we last compared, and what is stored is what we say.
    pub(super) settled: bool,
    /// The Node as last looked at.
    pub(super) seen: StoredNode,
    /// Whether a reboot was told of; there is one at most in the life of a process.
    pub(super) rebooted: bool,
    pub(super) schedule: Schedule,
    pub(super) jitter: Jitter,
    pub(super) facts: watch::Receiver<Facts>,
    pub(super) uid: watch::Sender<String>,
    pub(super) events: EventSink,
    pub(super) line: Line,
}

/// What looking for the Node came to.
enum Known {
    /// Somebody else keeps it alive, and nothing was written.
    Held(Holder),
    /// It is ours, and this is new about it.
    Ours(Vec<Edge>),
}

impl NodeWriter {
    pub(super) async fn run(mut self, mut requests: mpsc::Receiver<SyncRequest>) {
        // Something to do comes before anything is said.
        let Some(first) = requests.recv().await else {
            return;
        };
        if self.know_node().await.is_err() {
            return;
        }
        let mut node = self.watch();
        let mut request = Some(first);
        loop {
            if let Some(SyncRequest { why, stamps }) = request.take() {
                let outcome = self.sync(&stamps).await;
                let report = Report::Synced {
                    why,
                    stamps,
                    outcome,
                    next: Wait::Short,
                };
                if self.line.reports.send(report).await.is_err() {
                    return;
                }
            }
            tokio::select! {
                asked = requests.recv() => match asked {
                    Some(asked) => request = Some(asked),
                    None => return,
                },
                Some(event) = node.recv() => match event {
                    NodeEvent::Stored(node) => {
                        self.settled = false;
                        self.status.observe(node);
                        self.tell_schedulable();
                    }
                    NodeEvent::Deleted => {
                        self.settled = false;
                        self.status.forget();
                    }
                },
            }
        }
    }

    /// Somebody cordoned the Node, or let pods come again. One that is found cordoned counts.
    fn tell_schedulable(&mut self) {
        let stored = self.status.stored().unwrap_or_default();
        if let Some(edge) = schedulable_edge(&self.seen, &stored) {
            self.record(vec![edge], self.line.clock.now(), &BTreeMap::new());
        }
        self.seen = stored;
    }

    fn record(&self, news: Vec<Edge>, now: Now, stamps: &BTreeMap<Resource, Stamp>) {
        for event in events(news, &self.registration.name, now, stamps) {
            self.events.record(event);
        }
    }

    fn watch(&self) -> mpsc::Receiver<NodeEvent> {
        let (send, events) = mpsc::channel(NODE_EVENTS);
        tokio::spawn(node_watch::watch(
            self.line.client.clone(),
            self.registration.name.clone(),
            self.status.version(),
            self.jitter.clone(),
            send,
        ));
        events
    }

    /// Registers the Node, or waits for it to be there, for as long as that takes; then lets the
    /// loop take note of what is stored. `Err` when the loop is gone.
    async fn know_node(&mut self) -> Result<(), ()> {
        let mut registrar = Registrar::default();
        let mut told = false;
        let news = loop {
            tokio::time::sleep(registrar.next_delay()).await;
            let err = match self.try_to_know(&mut registrar).await {
                Ok(Known::Ours(news)) => break news,
                Ok(Known::Held(holder)) => {
                    let report = Report::Held(holder);
                    self.line.reports.send(report).await.map_err(drop)?;
                    return Err(());
                }
                Err(err) => err,
            };
            let err = &err as &dyn std::error::Error;
            if std::mem::replace(&mut told, true) {
                debug!(err, "node not known");
            } else {
                warn!(err, "node not known to the API server, will retry");
            }
        };
        let stored = self.status.stored().unwrap_or_default();
        self.uid.send_replace(stored.uid.clone());
        let uncaused = BTreeMap::new();
        self.record(vec![Edge::Started], self.started, &uncaused);
        self.record(news, self.line.clock.now(), &uncaused);
        let (noted, seen) = oneshot::channel();
        let report = Report::Registered {
            stored: Box::new(stored),
            noted,
        };
        self.line.reports.send(report).await.map_err(drop)?;
        seen.await.map_err(drop)
    }

    async fn try_to_know(&mut self, registrar: &mut Registrar) -> Result<Known, ApiError> {
        if let Some(holder) = self.other_holder().await? {
            return Ok(Known::Held(holder));
        }
        if !self.register {
            self.status.fetch(&self.line.client).await?;
            return Ok(Known::Ours(Vec::new()));
        }
        let facts = self.facts.borrow().clone();
        let (status, _) = setters::compute(
            self.setters,
            &facts,
            &StoredNode::default(),
            self.line.clock.now(),
        );
        let (client, registration) = (&self.line.client, &self.registration);
        let registered = registrar
            .attempt(client, registration, &status, self.checkpoint)
            .await?;
        let (stored, news) = match registered {
            // A new Node's conditions are told once, and not at every try as a kubelet does.
            Registered::Created(stored) => (stored, edges(&StoredNode::default(), &status)),
            Registered::Adopted(stored) => (stored, Vec::new()),
        };
        self.status.observe(stored);
        Ok(Known::Ours(news))
    }

    /// Whoever else renews our Lease; asked until it is clear once that nobody does.
    async fn other_holder(&self) -> Result<Option<Holder>, ApiError> {
        if *self.ours.borrow() {
            return Ok(None);
        }
        let now = self.line.clock.now().wall;
        match holder::look(&self.line.client, &self.registration.name, now).await {
            Ok(Some(holder)) => return Ok(Some(holder)),
            Ok(None) => {}
            // Who may not read the Lease cannot be told who renews it.
            Err(err) if err.disposition() == Disposition::GiveUp => {
                let err = &err as &dyn std::error::Error;
                warn!(err, "cannot tell whether a kubelet looks after this node");
            }
            Err(err) => return Err(err),
        }
        self.ours.send_replace(true);
        Ok(None)
    }

    async fn sync(&mut self, stamps: &BTreeMap<Resource, Stamp>) -> Result<Option<Sent>, ApiError> {
        let (clock, schedule, setters) = (self.line.clock, self.schedule, self.setters);
        let due = schedule.decide(clock.now().boot) != report::Report::IfChanged;
        if self.settled && !due && matches!(self.facts.has_changed(), Ok(false)) {
            return Ok(None); // The same over the same gives the same.
        }
        self.settled = false;
        let facts = self.facts.borrow_and_update().clone();
        let mut unchanged = report::Why::Heartbeat;
        // Those of all tries: one whose answer got lost may have been applied, and then the next
        // one finds nothing new.
        let mut news: Vec<Edge> = Vec::new();
        let outcome = self
            .status
            .sync(&self.line.client, |stored| {
                let now = clock.now();
                let (status, edges) = computed(setters, &facts, stored, now);
                news.extend(
                    edges
                        .into_iter()
                        .filter(|edge| !news.contains(edge))
                        .collect::<Vec<_>>(),
                );
                let decision = match schedule.decide(now.boot) {
                    report::Report::Now(why) => {
                        unchanged = why;
                        Decision::Send
                    }
                    report::Report::IfChanged => Decision::IfChanged,
                };
                (status, decision)
            })
            .await?;
        // Whoever writes an old boot id back must not make us tell of one boot twice.
        news.retain(|edge| {
            !matches!(edge, Edge::Rebooted { .. }) || !std::mem::replace(&mut self.rebooted, true)
        });
        self.record(news, clock.now(), stamps);
        let SyncOutcome::Sent(sent) = outcome else {
            self.settled = true;
            return Ok(None);
        };
        let why = if sent.changed {
            report::Why::Changed
        } else {
            unchanged
        };
        self.schedule.sent(sent.acked, why, self.jitter.fraction());
        let uid = self
            .status
            .stored()
            .map(|stored| stored.uid)
            .unwrap_or_default();
        self.uid.send_if_modified(|known| {
            let news = *known != uid;
            *known = uid;
            news
        });
        Ok(Some(sent))
    }
}

/// The status, and what is new in it.
fn computed(
    setters: Setters,
    facts: &Facts,
    stored: &StoredNode,
    now: Now,
) -> (NodeStatus, Vec<Edge>) {
    let (status, failed) = setters::compute(setters, facts, stored, now);
    log_failed(failed);
    let edges = edges(stored, &status);
    (status, edges)
}
