//! The status writer of node mode: registers the Node, then maintains its status.

use std::collections::BTreeMap;
use std::sync::Arc;

use nodepulse_core::clock::{Now, Stamp};
use nodepulse_core::node_status::report;
use nodepulse_core::node_status::transition::{Edge, edges, schedulable_edge};
use nodepulse_core::node_status::{Registration, StoredNode};
use nodepulse_core::reading::Resource;
use nodepulse_kube::lease_holder::{self, LeaseHolder};
use nodepulse_kube::node_watch::{self, NodeEvent};
use nodepulse_kube::register::{DeviceCheckpoint, Registered, Registrar};
use nodepulse_kube::status::Sent;
use nodepulse_kube::{ApiError, Disposition};
use tokio::sync::{mpsc, watch};
use tracing::warn;

use super::writer::{LoopEnded, Synced, Writer, log_unknown};
use super::{Report, SyncRequest, Wait};

/// Versions of the Node that wait for the writer during a request. When it is full, the watch
/// waits. Each is a whole Node, so there is room for one.
const NODE_EVENTS: usize = 1;

/// Registers the Node, or waits until it exists.
///
/// ```text
/// NodeWriter ──first request──► tries ──registered or found──────────► RegisteredNode
///                                 └─────another agent renews the Lease──► ends
/// ```
pub(super) struct NodeWriter {
    pub(super) writer: Writer,
    pub(super) registration: Registration,
    /// `true` once no other agent maintains this Node, so that it may be written.
    pub(super) may_write: watch::Sender<bool>,
    pub(super) register: bool,
    pub(super) checkpoint: DeviceCheckpoint,
    pub(super) started: Now,
}

/// Writes the status of a Node that exists, on request.
struct RegisteredNode {
    writer: Writer,
    /// Whether the stored status equalled the computed one, with no write or deletion since.
    is_equal: bool,
    /// `spec.unschedulable` as last recorded. A Node is schedulable at first.
    unschedulable: bool,
    /// `true` after a reboot was recorded; a process sees one at most.
    rebooted: bool,
}

/// The result of a try to register or find the Node.
enum Known {
    /// Another agent renews the Lease, and nothing was written.
    OtherHolder(LeaseHolder),
    /// The Node was there, and may be written.
    Found,
    /// The Node was created, and these are its first transitions.
    Created(Vec<Edge>),
}

impl NodeWriter {
    pub(super) async fn run(mut self, mut requests: mpsc::Receiver<SyncRequest>) {
        // Nothing is sent before the first request.
        let Some(first) = requests.recv().await else {
            return;
        };
        if self.know_node().await.is_err() {
            return;
        }
        let events = self.watch();
        let node = RegisteredNode {
            writer: self.writer,
            is_equal: false,
            unschedulable: false,
            rebooted: false,
        };
        node.run(first, requests, events).await;
    }

    fn watch(&self) -> mpsc::Receiver<NodeEvent> {
        let (send, events) = mpsc::channel(NODE_EVENTS);
        tokio::spawn(node_watch::watch(
            self.writer.link.client.clone(),
            self.registration.name.clone(),
            self.writer.status.version(),
            send,
        ));
        events
    }

    /// Registers the Node, or waits until it exists; then reports the stored Node to the loop.
    async fn know_node(&mut self) -> Result<(), LoopEnded> {
        let mut registrar = Registrar::default();
        let mut logged = false;
        let created = loop {
            let client = &self.writer.link.client;
            client.back_off(registrar.next_delay()).await;
            if let Some(err) = self.writer.read_release().await? {
                log_unknown(&err, &mut logged);
                continue;
            }
            match self.try_to_know(&mut registrar).await {
                Ok(Known::Found) => break None,
                Ok(Known::Created(transitions)) => break Some(transitions),
                Ok(Known::OtherHolder(holder)) => {
                    self.writer.send(Report::OtherHolder(holder)).await?;
                    return Err(LoopEnded);
                }
                Err(err) => log_unknown(&err, &mut logged),
            }
        };
        self.writer.publish_uid();
        let uncaused = BTreeMap::new();
        let (started, now) = (self.started, self.writer.link.clock.now());
        self.writer.record([Edge::Started], started, &uncaused);
        let is_new = created.is_some();
        self.writer
            .record(created.into_iter().flatten(), now, &uncaused);
        self.writer.report_found(is_new).await
    }

    async fn try_to_know(&mut self, registrar: &mut Registrar) -> Result<Known, ApiError> {
        if let Some(holder) = self.other_holder().await? {
            return Ok(Known::OtherHolder(holder));
        }
        if !self.register {
            self.writer.status.fetch(&self.writer.link.client).await?;
            return Ok(Known::Found);
        }
        let computed = Arc::clone(&self.writer.computed.borrow().computed);
        let status = computed.at(&StoredNode::default(), self.writer.link.clock.now());
        let (client, registration) = (&self.writer.link.client, &self.registration);
        let registered = registrar
            .attempt(client, registration, &status, self.checkpoint)
            .await?;
        let (stored, known) = match registered {
            // A new Node's conditions are recorded once, not at every try as by a kubelet.
            Registered::Created(stored) => {
                let transitions = edges(&StoredNode::default(), &status);
                (stored, Known::Created(transitions))
            }
            Registered::Adopted(stored) => (stored, Known::Found),
        };
        self.writer.status.observe(stored);
        Ok(known)
    }

    /// The other agent that renews the Lease, if any; read until there is none once.
    async fn other_holder(&self) -> Result<Option<LeaseHolder>, ApiError> {
        if *self.may_write.borrow() {
            return Ok(None);
        }
        let now = self.writer.link.clock.now().wall;
        match lease_holder::find(&self.writer.link.client, &self.registration.name, now).await {
            Ok(Some(holder)) => return Ok(Some(holder)),
            Ok(None) => {}
            // Without the permission to read the Lease its holder is unknown.
            Err(err) if err.disposition() == Disposition::GiveUp => {
                let err = &err as &dyn std::error::Error;
                warn!(
                    err,
                    "cannot determine whether a kubelet maintains this node"
                );
            }
            Err(err) => return Err(err),
        }
        self.may_write.send_replace(true);
        Ok(None)
    }
}

impl RegisteredNode {
    async fn run(
        mut self,
        first: SyncRequest,
        mut requests: mpsc::Receiver<SyncRequest>,
        mut events: mpsc::Receiver<NodeEvent>,
    ) {
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
                let sent = self.writer.send(report).await;
                if sent.is_err() || self.writer.read_release().await.is_err() {
                    return;
                }
            }
            tokio::select! {
                asked = requests.recv() => match asked {
                    Some(asked) => request = Some(asked),
                    None => return,
                },
                event = events.recv() => match event {
                    Some(NodeEvent::Stored(node)) => {
                        self.is_equal = false;
                        self.writer.status.observe(node);
                        self.record_schedulable();
                    }
                    Some(NodeEvent::Deleted) => {
                        self.is_equal = false;
                        self.writer.status.forget();
                    }
                    // Without the watch the stored Node would be outdated.
                    None => return,
                },
            }
        }
    }

    /// Records that the Node was cordoned or uncordoned, also if it was so when it was found.
    fn record_schedulable(&mut self) {
        let stored = self.writer.status.stored().unwrap_or_default();
        if let Some(edge) = schedulable_edge(self.unschedulable, stored.unschedulable) {
            self.writer
                .record([edge], self.writer.link.clock.now(), &BTreeMap::new());
        }
        self.unschedulable = stored.unschedulable;
    }

    async fn sync(&mut self, stamps: &BTreeMap<Resource, Stamp>) -> Result<Option<Sent>, ApiError> {
        let writer = &mut self.writer;
        let now = writer.link.clock.now();
        let due = writer.schedule.decide(now.boot) != report::ReportDue::IfChanged;
        let computed_again = !matches!(writer.computed.has_changed(), Ok(false));
        if self.is_equal && !due && !computed_again {
            writer.publish_written(writer.computed.borrow().changes);
            return Ok(None);
        }
        let Synced {
            outcome,
            mut transitions,
            ..
        } = writer.sync().await;
        // What was sent may not be what is stored now, and what failed may have been applied.
        self.is_equal = matches!(outcome, Ok(None));
        let sent = outcome?;
        // A client that writes an old boot id back must not cause a second Event for one boot.
        transitions.retain(|edge| {
            !matches!(edge, Edge::Rebooted { .. }) || !std::mem::replace(&mut self.rebooted, true)
        });
        self.writer
            .record(transitions, self.writer.link.clock.now(), stamps);
        Ok(sent)
    }
}
