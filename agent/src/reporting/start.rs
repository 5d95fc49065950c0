//! Starts the tasks for the API server. Each sends one request at a time and reports its result.

use std::collections::BTreeMap;
use std::sync::Arc;

use nodepulse_core::clock::Stamp;
use nodepulse_core::node_status::report::ReportSchedule as Schedule;
use nodepulse_core::node_status::{Registration, Runtime};
use nodepulse_core::reading::Resource;
use nodepulse_core::settings::Mode;
use nodepulse_io::clock::Clock;
use nodepulse_io::tasks::Tasks;
use nodepulse_kube::Client;
use nodepulse_kube::lease::LeaseKeeper;
use nodepulse_kube::recorder::{Delivered, EventSink, Recorder, Reporter};
use nodepulse_kube::register::DeviceCheckpoint;
use nodepulse_kube::status::{Part, Sent, StatusWriter};
use nodepulse_linux::host::HostRoot;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tracing::{debug, info};

use super::companion::Companion;
use super::node_writer::NodeWriter;
use super::writer::{LoopLink, Writer};
use super::{Channels, Report, SyncRequest, Why};
use crate::config::Config;

/// Capacity of the queue of Event deliveries. When it is full, a latency is not recorded.
const DELIVERIES: usize = 64;

/// The file in which a kubelet's device manager stores its allocations.
const DEVICE_CHECKPOINT: &str = "device-plugins/kubelet_internal_checkpoint";

/// The one task that writes the Node, in either mode.
const STATUS_WRITER: &str = "status writer";

/// Starts all tasks. They end when the loop drops its channels.
pub(super) fn start(
    config: &Config,
    client: Client,
    clock: Clock,
    channels: Channels,
    tasks: &mut Tasks,
) -> (EventSink, AbortHandle) {
    let Channels {
        computed,
        syncs,
        leases,
        reports,
        outcomes,
        written,
    } = channels;
    let (uid, uid_seen) = watch::channel(String::new());
    let (deliveries, delivered) = mpsc::channel(DELIVERIES);
    let reporter = Reporter {
        node: config.node_name.clone(),
        uid: uid_seen,
        queue: config.event_queue,
    };
    let (sink, recorder) = Recorder::new(client.clone(), clock, reporter, deliveries, outcomes);
    tasks.spawn("credentials", client.clone().load());
    let recorder = tasks.spawn("recorder", recorder.run());
    tasks.spawn("deliveries", forward_deliveries(delivered, reports.clone()));
    let part = match config.mode {
        Mode::Companion => Part::NodepulseConditions,
        Mode::Node => Part::Whole,
    };
    let node = config.node_name.clone();
    let writer = Writer {
        jitter: client.jitter(),
        link: LoopLink {
            client,
            clock,
            reports,
        },
        status: StatusWriter::new(node.clone(), clock, part),
        node,
        computed,
        written,
        uid,
        events: sink.clone(),
        schedule: Schedule::new(config.status_report_frequency),
        unrecorded: Vec::new(),
        sent: Arc::default(),
        release_known: false,
    };
    match config.mode {
        Mode::Companion => {
            tasks.spawn(STATUS_WRITER, Companion::new(config, writer).run(syncs));
        }
        Mode::Node => keep_node(config, writer, syncs, leases, tasks),
    }
    (sink, recorder)
}

/// Starts the tasks of node mode: the Lease, and the whole Node.
fn keep_node(
    config: &Config,
    writer: Writer,
    syncs: mpsc::Receiver<SyncRequest>,
    leases: mpsc::Receiver<Option<String>>,
    tasks: &mut Tasks,
) {
    // Nothing is written before it is clear that no other agent maintains this Node.
    let (may_write, may_renew) = watch::channel(config.take_over);
    let lease = keep_lease(
        LeaseKeeper::new(config.node_name.clone(), config.lease_duration),
        writer.link.clone(),
        leases,
        may_renew,
    );
    tasks.spawn("lease", lease);
    let runtime = writer.computed.borrow().computed.facts().runtime;
    let node = NodeWriter {
        registration: registration(config, runtime),
        may_write,
        register: config.register_node,
        checkpoint: checkpoint(config),
        started: writer.link.clock.now(),
        writer,
    };
    tasks.spawn(STATUS_WRITER, node.run(syncs));
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

async fn forward_deliveries(
    mut delivered: mpsc::Receiver<Box<Delivered>>,
    reports: mpsc::Sender<Box<Report>>,
) {
    while let Some(delivered) = delivered.recv().await {
        if reports
            .send(Box::new(Report::Event(*delivered)))
            .await
            .is_err()
        {
            return;
        }
    }
}

async fn keep_lease(
    mut keeper: LeaseKeeper,
    link: LoopLink,
    mut requests: mpsc::Receiver<Option<String>>,
    mut may_renew: watch::Receiver<bool>,
) {
    if may_renew.wait_for(|may_renew| *may_renew).await.is_err() {
        return;
    }
    while let Some(uid) = requests.recv().await {
        let cycle = keeper
            .cycle(&link.client, &link.clock, uid.as_deref())
            .await;
        if link
            .reports
            .send(Box::new(Report::Lease(cycle)))
            .await
            .is_err()
        {
            return;
        }
    }
}

/// Logs the time from the kernel's record to the API server's answer.
pub(super) fn log_sync(why: Why, sent: &Sent, stamps: &BTreeMap<Resource, Stamp>) {
    debug!(why = ?why, changed = sent.changed, bytes = sent.patch.len(), "node status sent");
    for (resource, stamp) in stamps {
        info!(
            resource = resource.as_str(),
            kernel_ns = stamp.kernel.0,
            read_ns = stamp.read.0,
            sent_ns = sent.sent.0,
            acked_ns = sent.acked.0,
            "condition reported"
        );
    }
}

pub(super) fn log_event(delivered: &Delivered) {
    let Some(stamp) = delivered.stamp else {
        debug!(reason = delivered.reason.as_str(), "event recorded");
        return;
    };
    info!(
        reason = delivered.reason.as_str(),
        kernel_ns = stamp.kernel.0,
        read_ns = stamp.read.0,
        sent_ns = delivered.sent.0,
        acked_ns = delivered.acked.0,
        "event reported"
    );
}
