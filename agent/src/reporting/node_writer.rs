//! The writer of node mode: registers the Node, then keeps its status.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tracing::warn;

use super::writer::{Gone, Synced, Writer, log_unknown};
use super::{Report, SyncRequest, Wait};
use crate::api::holder::{self, Holder};
use crate::api::node_watch::{self, NodeEvent};
use crate::api::register::{DeviceCheckpoint, Registered, Registrar};
use crate::api::status::Sent;
use crate::api::{ApiError, Disposition};
use crate::clock::{Now, Stamp};
use crate::node_status::report;
use crate::node_status::transition::{Edge, edges, schedulable_edge};
use crate::node_status::{Registration, StoredNode};
use crate::reading::Resource;

/// States of the Node that wait for the writer while it waits for an answer. When it is full the
/// watch waits too. Each is a whole Node, so there is one.
const NODE_EVENTS: usize = 1;

/// Registers the Node, then writes its status when asked to.
pub(super) struct NodeWriter {
    pub(super) writer: Writer,
    pub(super) registration: Registration,
    /// Whether it is clear that nobody else looks after this Node.
    pub(super) ours: watch::Sender<bool>,
    pub(super) register: bool,
    pub(super) checkpoint: DeviceCheckpoint,
    pub(super) started: Now,
    /// Nobody has written to the Node since we last compared, and what is stored is what we say.
    pub(super) settled: bool,
    /// The Node as last looked at.
    pub(super) seen: StoredNode,
    /// Whether a reboot was told of; there is one at most in the life of a process.
    pub(super) rebooted: bool,
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
                    node: self.writer.on_node(),
                    next: Wait::Short,
                };
                if self.writer.tell(report).await.is_err() {
                    return;
                }
            }
            tokio::select! {
                asked = requests.recv() => match asked {
                    Some(asked) => request = Some(asked),
                    None => return,
                },
                event = node.recv() => match event {
                    Some(NodeEvent::Stored(node)) => {
                        self.settled = false;
                        self.writer.status.observe(node);
                        self.tell_schedulable();
                    }
                    Some(NodeEvent::Deleted) => {
                        self.settled = false;
                        self.writer.status.forget();
                    }
                    // Without its watch a writer would go by an old Node.
                    None => return,
                },
            }
        }
    }

    /// Somebody cordoned the Node, or let pods come again. One that is found cordoned counts.
    fn tell_schedulable(&mut self) {
        let stored = self.writer.status.stored().unwrap_or_default();
        if let Some(edge) = schedulable_edge(&self.seen, &stored) {
            self.writer
                .record(vec![edge], self.writer.line.clock.now(), &BTreeMap::new());
        }
        self.seen = stored;
    }

    fn watch(&self) -> mpsc::Receiver<NodeEvent> {
        let (send, events) = mpsc::channel(NODE_EVENTS);
        tokio::spawn(node_watch::watch(
            self.writer.line.client.clone(),
            self.registration.name.clone(),
            self.writer.status.version(),
            self.writer.jitter.clone(),
            send,
        ));
        events
    }

    /// Registers the Node, or waits for it to be there, for as long as that takes; then lets the
    /// loop take note of what is stored.
    async fn know_node(&mut self) -> Result<(), Gone> {
        let mut registrar = Registrar::default();
        let mut told = false;
        let news = loop {
            tokio::time::sleep(registrar.next_delay()).await;
            match self.try_to_know(&mut registrar).await {
                Ok(Known::Ours(news)) => break news,
                Ok(Known::Held(holder)) => {
                    self.writer.tell(Report::Held(holder)).await?;
                    return Err(Gone);
                }
                Err(err) => log_unknown(&err, &mut told),
            }
        };
        self.writer.tell_uid();
        let uncaused = BTreeMap::new();
        let (started, now) = (self.started, self.writer.line.clock.now());
        self.writer.record(vec![Edge::Started], started, &uncaused);
        self.writer.record(news, now, &uncaused);
        self.writer.tell_found().await
    }

    async fn try_to_know(&mut self, registrar: &mut Registrar) -> Result<Known, ApiError> {
        if let Some(holder) = self.other_holder().await? {
            return Ok(Known::Held(holder));
        }
        if !self.register {
            self.writer.status.fetch(&self.writer.line.client).await?;
            return Ok(Known::Ours(Vec::new()));
        }
        let computed = Arc::clone(&self.writer.computed.borrow());
        let status = computed.at(&StoredNode::default(), self.writer.line.clock.now());
        let (client, registration) = (&self.writer.line.client, &self.registration);
        let registered = registrar
            .attempt(client, registration, &status, self.checkpoint)
            .await?;
        let (stored, news) = match registered {
            // A new Node's conditions are told once, and not at every try as a kubelet does.
            Registered::Created(stored) => (stored, edges(&StoredNode::default(), &status)),
            Registered::Adopted(stored) => (stored, Vec::new()),
        };
        self.writer.status.observe(stored);
        Ok(Known::Ours(news))
    }

    /// Whoever else renews our Lease; asked until it is clear once that nobody does.
    async fn other_holder(&self) -> Result<Option<Holder>, ApiError> {
        if *self.ours.borrow() {
            return Ok(None);
        }
        let now = self.writer.line.clock.now().wall;
        match holder::find(&self.writer.line.client, &self.registration.name, now).await {
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
        let writer = &mut self.writer;
        let now = writer.line.clock.now();
        let due = writer.schedule.decide(now.boot) != report::ReportDue::IfChanged;
        if self.settled && !due && matches!(writer.computed.has_changed(), Ok(false)) {
            return Ok(None); // The same over the same gives the same.
        }
        self.settled = false;
        let Synced {
            outcome, mut news, ..
        } = writer.sync().await;
        let sent = outcome?;
        // Whoever writes an old boot id back must not make us tell of one boot twice.
        news.retain(|edge| {
            !matches!(edge, Edge::Rebooted { .. }) || !std::mem::replace(&mut self.rebooted, true)
        });
        self.writer
            .record(news, self.writer.line.clock.now(), stamps);
        self.settled = sent.is_none();
        Ok(sent)
    }
}
