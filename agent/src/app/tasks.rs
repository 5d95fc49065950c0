//! The tasks that talk to the API server. Each does one request at a time and says what it came to.

use std::collections::BTreeMap;

use tokio::sync::{mpsc, oneshot, watch};
use tracing::{debug, warn};

use super::companion::{Companion, Parts};
use super::reporting::{Channels, Outlet, Report, SyncRequest, Wait};
use crate::api::backoff::Jitter;
use crate::api::holder::{self, Holder};
use crate::api::lease::LeaseKeeper;
use crate::api::node_watch::{self, NodeEvent};
use crate::api::recorder::{EventInput, EventSink, Involved, Recorder, Reporter};
use crate::api::register::{DeviceCheckpoint, Registrar};
use crate::api::status::{Decision, Part, Sent, StatusWriter, SyncOutcome};
use crate::api::{ApiError, Client, Disposition};
use crate::clock::{Clock, Now, Stamp};
use crate::config::{Config, Mode};
use crate::host::HostRoot;
use crate::node_status::report::{self, Reporter as Schedule};
use crate::node_status::setters::{self, SetterError, Setters};
use crate::node_status::transition::{Edge, edges, schedulable_edge};
use crate::node_status::{Facts, NodeStatus, Registration, Runtime, StoredNode};
use crate::reading::Resource;

/// Deliveries of Events to the loop. When it is full, one way from the kernel goes untold.
const DELIVERIES: usize = 64;

/// States of the Node that wait for the writer while it waits for an answer. When it is full the
/// watch waits too.
const NODE_EVENTS: usize = 4;

/// Where a kubelet's device manager keeps what it has handed out.
const DEVICE_CHECKPOINT: &str = "device-plugins/kubelet_internal_checkpoint";

/// Starts all of them. They end when the loop drops its side.
pub(super) fn start(
    config: &Config,
    outlet: Outlet,
    clock: Clock,
    channels: Channels,
) -> (EventSink, tokio::task::JoinHandle<()>) {
    let Outlet {
        client,
        jitter,
        setters,
    } = outlet;
    let Channels {
        facts,
        syncs,
        leases,
        reports,
    } = channels;
    let (uid, uid_seen) = watch::channel(String::new());
    let (deliveries, delivered) = mpsc::channel(DELIVERIES);
    let reporter = Reporter {
        node: config.node_name.clone(),
        uid: uid_seen,
    };
    let (sink, recorder) =
        Recorder::new(client.clone(), clock, reporter, jitter.clone(), deliveries);
    let recorder = tokio::spawn(recorder.run());
    tokio::spawn(tell_deliveries(delivered, reports.clone()));
    let parts = Parts {
        line: Line {
            client,
            clock,
            reports,
        },
        facts,
        uid,
        events: sink.clone(),
        jitter,
        setters,
    };
    match config.mode {
        Mode::Companion => drop(tokio::spawn(Companion::new(config, parts).run(syncs))),
        Mode::Node => keep_node(config, parts, syncs, leases),
    }
    (sink, recorder)
}

/// Node mode: the Lease, and the whole Node.
fn keep_node(
    config: &Config,
    parts: Parts,
    syncs: mpsc::Receiver<SyncRequest>,
    leases: mpsc::Receiver<Option<String>>,
) {
    let Parts {
        line,
        facts,
        uid,
        events,
        jitter,
        setters,
    } = parts;
    // Nothing is written before it is clear that nobody else looks after this Node.
    let (ours, ours_seen) = watch::channel(config.take_over);
    tokio::spawn(keep_lease(
        LeaseKeeper::new(config.node_name.clone(), config.lease_duration),
        line.clone(),
        leases,
        ours_seen,
    ));
    let registration = registration(config, facts.borrow().runtime);
    let writer = NodeWriter {
        registration,
        ours,
        register: config.register_node,
        setters,
        checkpoint: checkpoint(config),
        status: StatusWriter::new(config.node_name.clone(), line.clock, Part::Whole),
        settled: false,
        seen: StoredNode::default(),
        rebooted: false,
        schedule: Schedule::new(config.status_report_frequency),
        jitter,
        facts,
        uid,
        events,
        line,
    };
    tokio::spawn(writer.run(syncs));
}

/// What every task needs to say something and to tell what came of it.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) reports: mpsc::Sender<Report>,
}

fn registration(config: &Config, runtime: Runtime) -> Registration {
    let mut taints = config.taints.clone();
    taints.extend(runtime.taint());
    Registration::new(
        config.node_name.clone(),
        config.node_labels.clone(),
        taints,
        config.provider_id.clone(),
        config.attach_detach,
    )
}

fn checkpoint(config: &Config) -> DeviceCheckpoint {
    let directory = HostRoot::new(&config.host_root).path(&config.root_directory);
    if directory.join(DEVICE_CHECKPOINT).exists() {
        DeviceCheckpoint::Present
    } else {
        DeviceCheckpoint::Absent
    }
}

async fn tell_deliveries(
    mut delivered: mpsc::Receiver<crate::api::recorder::Delivered>,
    reports: mpsc::Sender<Report>,
) {
    while let Some(delivered) = delivered.recv().await {
        if reports.send(Report::Event(delivered)).await.is_err() {
            return;
        }
    }
}

async fn keep_lease(
    mut keeper: LeaseKeeper,
    line: Line,
    mut requests: mpsc::Receiver<Option<String>>,
    mut ours: watch::Receiver<bool>,
) {
    if ours.wait_for(|ours| *ours).await.is_err() {
        return;
    }
    while let Some(uid) = requests.recv().await {
        let cycle = keeper
            .cycle(&line.client, &line.clock, uid.as_deref())
            .await;
        if line.reports.send(Report::Lease(cycle)).await.is_err() {
            return;
        }
    }
}

/// Registers the Node, then writes its status when asked to.
struct NodeWriter {
    registration: Registration,
    /// Whether it is clear that nobody else looks after this Node.
    ours: watch::Sender<bool>,
    register: bool,
    setters: Setters,
    checkpoint: DeviceCheckpoint,
    status: StatusWriter,
    /// Nobody has written to the Node since we last compared, and what is stored is what we say.
    settled: bool,
    /// The Node as last looked at.
    seen: StoredNode,
    /// Whether a reboot was told of; there is one at most in the life of a process.
    rebooted: bool,
    schedule: Schedule,
    jitter: Jitter,
    facts: watch::Receiver<Facts>,
    uid: watch::Sender<String>,
    events: EventSink,
    line: Line,
}

impl NodeWriter {
    async fn run(mut self, mut requests: mpsc::Receiver<SyncRequest>) {
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
            self.record(vec![edge], &BTreeMap::new());
        }
        self.seen = stored;
    }

    fn record(&self, news: Vec<Edge>, stamps: &BTreeMap<Resource, Stamp>) {
        let (node, now) = (&self.registration.name, self.line.clock.now());
        for event in events(news, node, now, stamps) {
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
        loop {
            tokio::time::sleep(registrar.next_delay()).await;
            let err = match self.try_to_know(&mut registrar).await {
                Ok(None) => break,
                Ok(Some(holder)) => {
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
        }
        let stored = self.status.stored().unwrap_or_default();
        self.uid.send_replace(stored.uid.clone());
        let (noted, seen) = oneshot::channel();
        let report = Report::Registered {
            stored: Box::new(stored),
            noted,
        };
        self.line.reports.send(report).await.map_err(drop)?;
        seen.await.map_err(drop)
    }

    /// `Some`: somebody else keeps the Node alive, and nothing was written.
    async fn try_to_know(&mut self, registrar: &mut Registrar) -> Result<Option<Holder>, ApiError> {
        if let Some(holder) = self.other_holder().await? {
            return Ok(Some(holder));
        }
        if !self.register {
            self.status.fetch(&self.line.client).await?;
            return Ok(None);
        }
        let facts = self.facts.borrow().clone();
        let (status, _) = setters::compute(
            self.setters,
            &facts,
            &StoredNode::default(),
            self.line.clock.now(),
        );
        let (client, registration) = (&self.line.client, &self.registration);
        let stored = registrar
            .attempt(client, registration, &status, self.checkpoint)
            .await?;
        self.status.observe(stored);
        Ok(None)
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
        self.record(news, stamps);
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

pub(super) fn log_failed(failed: Vec<(&'static str, SetterError)>) {
    for (setter, err) in failed {
        debug!(
            setter,
            err = &err as &dyn std::error::Error,
            "setter failed"
        );
    }
}

/// The Events that tell of what was new. One that the kernel caused carries its time.
pub(super) fn events(
    news: Vec<Edge>,
    node: &str,
    now: Now,
    stamps: &BTreeMap<Resource, Stamp>,
) -> impl Iterator<Item = EventInput> {
    news.into_iter().map(move |edge| {
        let stamp = edge
            .resource()
            .and_then(|resource| stamps.get(&resource))
            .copied();
        EventInput {
            object: Involved::Node,
            type_: edge.type_(),
            reason: edge.reason().to_owned(),
            message: edge.message(node),
            at: stamp.map_or(now.wall, |stamp| now.wall_at(stamp.kernel)),
            stamp,
        }
    })
}
