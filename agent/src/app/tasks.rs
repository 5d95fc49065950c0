//! The tasks that talk to the API server. Each does one request at a time and says what it came to.

use std::collections::BTreeMap;

use tokio::sync::{mpsc, watch};
use tracing::{debug, warn};

use super::reporting::{Channels, Report, SyncRequest};
use crate::api::backoff::Jitter;
use crate::api::lease::LeaseKeeper;
use crate::api::recorder::{EventInput, EventSink, EventType, Involved, Recorder, Reporter};
use crate::api::register::{DeviceCheckpoint, Registrar};
use crate::api::status::{Decision, Sent, StatusWriter, SyncOutcome};
use crate::api::{ApiError, Client};
use crate::clock::{Clock, Now, Stamp};
use crate::config::Config;
use crate::node_status::report::{self, Reporter as Schedule};
use crate::node_status::setters;
use crate::node_status::transition::{self, Edge, edges};
use crate::node_status::{AttachDetach, Facts, NodeStatus, Registration, Runtime, StoredNode};
use crate::reading::Resource;

/// Deliveries of Events to the loop. When it is full, one way from the kernel goes untold.
const DELIVERIES: usize = 64;

/// Starts all of them. They end when the loop drops its side.
pub(super) fn start(
    config: &Config,
    client: &Client,
    clock: Clock,
    jitter: Jitter,
    channels: Channels,
) -> (EventSink, tokio::task::JoinHandle<()>) {
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
    tokio::spawn(keep_lease(
        LeaseKeeper::new(config.node_name.clone(), config.lease_duration),
        Line {
            client: client.clone(),
            clock,
            reports: reports.clone(),
        },
        leases,
    ));
    let registration = registration(config, facts.borrow().runtime);
    let writer = NodeWriter {
        registration,
        register: config.register_node,
        registered: false,
        status: StatusWriter::new(config.node_name.clone(), clock),
        schedule: Schedule::new(config.status_report_frequency),
        jitter,
        facts,
        uid,
        events: sink.clone(),
        line: Line {
            client: client.clone(),
            clock,
            reports,
        },
    };
    tokio::spawn(writer.run(syncs));
    (sink, recorder)
}

/// What every task needs to say something and to tell what came of it.
struct Line {
    client: Client,
    clock: Clock,
    reports: mpsc::Sender<Report>,
}

fn registration(config: &Config, runtime: Runtime) -> Registration {
    let mut taints = config.taints.clone();
    taints.extend(runtime.taint());
    Registration::new(
        config.node_name.clone(),
        config.node_labels.clone(),
        taints,
        config.provider_id.clone(),
        AttachDetach::Controller,
    )
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
) {
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
    register: bool,
    registered: bool,
    status: StatusWriter,
    schedule: Schedule,
    jitter: Jitter,
    facts: watch::Receiver<Facts>,
    uid: watch::Sender<String>,
    events: EventSink,
    line: Line,
}

impl NodeWriter {
    async fn run(mut self, mut requests: mpsc::Receiver<SyncRequest>) {
        while let Some(request) = requests.recv().await {
            if self.register && !self.registered && self.register().await.is_err() {
                return;
            }
            let SyncRequest { why, stamps } = request;
            let outcome = self.sync(&stamps).await;
            let report = Report::Synced {
                why,
                stamps,
                outcome,
            };
            if self.line.reports.send(report).await.is_err() {
                return;
            }
        }
    }

    /// Tries for ever. `Err` when the loop is gone.
    async fn register(&mut self) -> Result<(), ()> {
        let mut registrar = Registrar::default();
        let mut told = false;
        loop {
            tokio::time::sleep(registrar.next_delay()).await;
            let now = self.line.clock.now();
            let facts = self.facts.borrow().clone();
            let (status, _) = setters::compute(&facts, &StoredNode::default(), now);
            let tried = registrar
                .attempt(
                    &self.line.client,
                    &self.registration,
                    &status,
                    DeviceCheckpoint::Absent,
                )
                .await;
            match tried {
                Ok(stored) => {
                    self.status.observe(stored);
                    break;
                }
                Err(err) if !told => {
                    told = true;
                    warn!(
                        err = &err as &dyn std::error::Error,
                        "node not registered, will retry"
                    );
                }
                Err(err) => debug!(err = &err as &dyn std::error::Error, "node not registered"),
            }
        }
        self.registered = true;
        let stored = self.status.stored().unwrap_or_default();
        self.uid.send_replace(stored.uid.clone());
        // The loop answers by what it writes into the facts before it takes the next input.
        let report = Report::Registered {
            stored: Box::new(stored),
        };
        self.line.reports.send(report).await.map_err(drop)?;
        tokio::task::yield_now().await;
        Ok(())
    }

    async fn sync(&mut self, stamps: &BTreeMap<Resource, Stamp>) -> Result<Option<Sent>, ApiError> {
        let facts = self.facts.borrow().clone();
        let (clock, schedule) = (self.line.clock, self.schedule);
        let mut computed = Computed::default();
        let outcome = self
            .status
            .sync(&self.line.client, |stored| {
                let now = clock.now();
                computed = Computed::from(&facts, stored, now);
                let decision = match schedule.decide(now.boot) {
                    report::Report::Now(why) => {
                        computed.why = why;
                        Decision::Send
                    }
                    report::Report::IfChanged => Decision::IfChanged,
                };
                (computed.status.clone(), decision)
            })
            .await?;
        let SyncOutcome::Sent(sent) = outcome else {
            return Ok(None);
        };
        let why = if sent.changed {
            report::Why::Changed
        } else {
            computed.why
        };
        self.schedule.sent(sent.acked, why, self.jitter.fraction());
        if let Some(stored) = self.status.stored() {
            self.uid.send_if_modified(|uid| {
                let news = *uid != stored.uid;
                uid.clone_from(&stored.uid);
                news
            });
        }
        for event in computed.events(&facts.hostname, clock.now(), stamps) {
            self.events.record(event);
        }
        Ok(Some(sent))
    }
}

/// One computation: the status, what is new in it, and why it would be sent unchanged.
struct Computed {
    status: NodeStatus,
    edges: Vec<Edge>,
    why: report::Why,
}

impl Default for Computed {
    fn default() -> Self {
        Self {
            status: NodeStatus::default(),
            edges: Vec::new(),
            why: report::Why::Changed,
        }
    }
}

impl Computed {
    fn from(facts: &Facts, stored: &StoredNode, now: Now) -> Self {
        let (status, failed) = setters::compute(facts, stored, now);
        for (setter, err) in failed {
            debug!(
                setter,
                err = &err as &dyn std::error::Error,
                "setter failed"
            );
        }
        Self {
            edges: edges(stored, &status),
            status,
            why: report::Why::Changed,
        }
    }

    /// The Events that tell of what was new. One that the kernel caused carries its time.
    fn events(
        self,
        node: &str,
        now: Now,
        stamps: &BTreeMap<Resource, Stamp>,
    ) -> impl Iterator<Item = EventInput> {
        self.edges.into_iter().map(move |edge| {
            let stamp = edge
                .resource()
                .and_then(|resource| stamps.get(&resource))
                .copied();
            EventInput {
                object: Involved::Node,
                type_: match edge.type_() {
                    transition::EventType::Normal => EventType::Normal,
                    transition::EventType::Warning => EventType::Warning,
                },
                reason: edge.reason().to_owned(),
                message: edge.message(node),
                at: stamp.map_or(now.wall, |stamp| now.wall_at(stamp.kernel)),
                stamp,
            }
        })
    }
}
