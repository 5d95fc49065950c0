//! EDGE: what is sent to the API server, and when: a status writer, a lease keeper and a recorder
//! of Events, each a separate task, so that none waits for another.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nodepulse_core::backoff::Jitter;
use nodepulse_core::clock::{BootNanos, Stamp};
use nodepulse_core::incident::Position;
use nodepulse_core::node_status::ledger::{Computed, Update};
use nodepulse_core::node_status::release::Release;
use nodepulse_core::node_status::{Condition, StoredNode};
use nodepulse_core::reading::Resource;
use nodepulse_core::subjects::{CertificateInput, CertificateOperation};
use nodepulse_io::clock::Clock;
use nodepulse_io::tasks::Tasks;
use nodepulse_kube::lease::Cycle;
use nodepulse_kube::lease_holder::LeaseHolder;
use nodepulse_kube::recorder::{Delivered, EventSink, Outcome};
use nodepulse_kube::status::Sent;
use nodepulse_kube::taints::TaintOutcome;
use nodepulse_kube::{ApiError, Client, Disposition};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tracing::{debug, info, warn};

use crate::config::Config;

pub mod certificate;
mod companion;
mod lease;
mod node_writer;
pub mod once;
mod start;
mod syncs;
mod writer;

use certificate::CertificateSetup;
use lease::LeaseSchedule;
use start::log_event;
use syncs::{EndedSync, Syncs};

/// A period is stretched by up to this share, so that nodes that started together drift apart: the
/// kubelet's `nodeStatusUpdateFrequency` and lease jitter.
const JITTER: f64 = 0.04;

/// Time limit for the queued Events when the agent stops.
const LAST_EVENTS: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// It is time to compute it again.
    Tick,
    /// A condition became True.
    Edge,
}

/// When the next sync is due if nothing changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// As often as a status is computed.
    Short,
    /// As often as an unchanged status is sent.
    Long,
    Until(BootNanos),
}

/// A request for a status sync. There is one at a time, so the channel of one place is never full.
#[derive(Debug)]
struct SyncRequest {
    why: Why,
    /// The causes of the conditions that changed since the last request.
    stamps: BTreeMap<Resource, Stamp>,
}

#[derive(Debug)]
pub enum Report {
    /// Another agent renews the Node's Lease. Nothing was written.
    OtherHolder(LeaseHolder),
    /// The API server's release, before the Node is registered; `None` if it has no known form.
    ApiServer {
        release: Option<Release>,
        /// Sent when the status has been computed again.
        acknowledged: oneshot::Sender<()>,
    },
    /// The Node exists. Nothing is sent before the loop has acknowledged that.
    Registered {
        stored: Box<StoredNode>,
        /// The agent has created it.
        is_new: bool,
        /// Sent when the facts that follow from it are set.
        acknowledged: oneshot::Sender<()>,
    },
    Synced {
        why: Why,
        stamps: BTreeMap<Resource, Stamp>,
        /// `None`: nothing had changed.
        outcome: Result<Option<Sent>, ApiError>,
        /// The conditions of the Node as last seen.
        node: Vec<Condition>,
        next: Wait,
    },
    /// nodepulse's taints were changed, could not be changed, or can be changed again.
    Tainted(TaintOutcome),
    Lease(Result<Cycle, ApiError>),
    Event(Delivered),
    /// An operation on the node's certificate has ended, or its file may have changed.
    Certificate(CertificateInput),
}

impl Report {
    /// The conditions of the Node, if it was just read or returned by a patch.
    pub fn seen(&self) -> Option<&[Condition]> {
        match self {
            Self::Registered { stored, .. } => Some(&stored.conditions),
            Self::Synced {
                outcome: Ok(Some(_)),
                node,
                ..
            } => Some(node),
            Self::Synced { .. }
            | Self::OtherHolder(_)
            | Self::ApiServer { .. }
            | Self::Tainted(_)
            | Self::Lease(_)
            | Self::Event(_)
            | Self::Certificate(_) => None,
        }
    }
}

/// A status, and the last revision of an incident about a change that it has.
#[derive(Debug, Clone)]
struct Published {
    computed: Arc<Computed>,
    changes: Position,
}

/// Channels from the loop to the tasks.
struct Channels {
    /// The newest status: only the last one matters, so a slow API server builds no queue.
    computed: watch::Receiver<Published>,
    syncs: mpsc::Receiver<SyncRequest>,
    /// Requests to renew, with the Node's UID if known, one at a time; none in companion mode.
    leases: mpsc::Receiver<Option<String>>,
    /// Results to the loop. The tasks wait while it is full; the loop never waits for them.
    reports: mpsc::Sender<Box<Report>>,
    outcomes: mpsc::UnboundedSender<Outcome>,
    written: watch::Sender<Position>,
}

/// The client of the API server, and how its certificate is requested, if it is.
#[derive(Debug)]
pub struct ApiAccess {
    pub client: Client,
    /// `None` if its credentials are given.
    pub certificate: Option<CertificateSetup>,
    /// The outcomes of Events about incidents.
    pub outcomes: mpsc::UnboundedSender<Outcome>,
    /// The API server has the status with all changes up to this revision of an incident.
    pub written: watch::Sender<Position>,
}

/// The loop's side.
pub struct Reporting {
    computed: watch::Sender<Published>,
    syncs: Syncs,
    lease: LeaseSchedule,
    /// One operation at a time; `None` if the agent does not request its certificate.
    certificate: Option<mpsc::Sender<CertificateOperation>>,
    reports: mpsc::Receiver<Box<Report>>,
    pub events: EventSink,
    recorder: AbortHandle,
    jitter: Jitter,
    update_frequency: Duration,
    report_frequency: Duration,
    /// The warning about a missing permission was logged.
    taints_failing: bool,
}

/// The deadline of what is not due.
const NEVER: BootNanos = BootNanos(u64::MAX);

impl Reporting {
    /// Starts the tasks. Must be called in a runtime.
    pub fn start(
        config: &Config,
        access: ApiAccess,
        clock: Clock,
        computed: Arc<Computed>,
        tasks: &mut Tasks,
    ) -> Self {
        let ApiAccess {
            client,
            certificate,
            outcomes,
            written,
        } = access;
        let now = clock.now().boot;
        let (computed, computed_seen) = watch::channel(Published {
            computed,
            changes: Position::default(),
        });
        let (syncs, sync_requests) = mpsc::channel(1);
        let (leases, lease_requests) = mpsc::channel(1);
        let (send_reports, reports) = mpsc::channel(64);
        let channels = Channels {
            computed: computed_seen,
            syncs: sync_requests,
            leases: lease_requests,
            reports: send_reports,
            outcomes,
            written,
        };
        let certificate = certificate.map(|setup| {
            let (operations, requested) = mpsc::channel(1);
            let reports = channels.reports.clone();
            let worker = certificate::run(setup, client.clone(), clock, requested, reports);
            tasks.spawn("certificate", worker);
            operations
        });
        let jitter = client.jitter();
        let (events, recorder) = start::start(config, client, clock, channels, tasks);
        Self {
            computed,
            syncs: Syncs::new(syncs),
            lease: LeaseSchedule::new(config, leases, now),
            certificate,
            reports,
            events,
            recorder,
            jitter,
            update_frequency: config.status_update_frequency,
            report_frequency: config.status_report_frequency,
            taints_failing: false,
        }
    }

    /// Sets the status to send from now on. It has all changes up to the revision `changes`.
    pub fn publish(&self, computed: Arc<Computed>, changes: Position) {
        self.computed.send_if_modified(|known| {
            let is_new = !Arc::ptr_eq(&known.computed, &computed);
            *known = Published { computed, changes };
            is_new
        });
    }

    pub fn due(&self) -> BootNanos {
        let (syncs, lease) = (&self.syncs, &self.lease);
        let due = [syncs.due(), syncs.urgent_due(), lease.due()];
        due.into_iter().flatten().min().unwrap_or(NEVER)
    }

    /// Whether the regular sync is due, or so nearly that it shares this wake-up.
    pub fn status_due(&self, now: BootNanos) -> bool {
        self.syncs.due().is_some_and(|due| due <= now)
    }

    /// Requests what is due except the regular sync.
    pub fn on_time(&mut self, now: BootNanos) {
        self.lease.on_time(now);
        self.syncs.send_urgent(now);
    }

    pub fn on_certificate(&self, operation: CertificateOperation) {
        // One at a time, so there is room.
        let sent = self.certificate.as_ref().map(|one| one.try_send(operation));
        if let Some(Err(err)) = sent {
            debug!(%err, "the certificate task has ended");
        }
    }

    /// Sets the cause of a change of `resource`. The oldest cause that was not reported yet counts.
    pub fn caused_by(&mut self, resource: Resource, stamp: Stamp) {
        self.syncs.caused_by(resource, stamp);
    }

    /// Conditions changed. Those that became True are urgent; the rest is sent with the next
    /// regular sync, one update period from now at the latest.
    pub fn changed(&mut self, update: &Update, now: BootNanos) {
        if update.conditions {
            let regular = self.next(now, self.update_frequency, self.lease.due());
            self.syncs.changed(update, regular);
        }
    }

    /// Sends the status now if a condition that became True may cause that.
    pub fn send_urgent(&mut self, now: BootNanos) {
        self.syncs.send_urgent(now);
    }

    /// Sends the status if it is due or differs.
    pub fn sync(&mut self, why: Why, now: BootNanos) {
        self.syncs.request(why, now);
    }

    /// Whether a status sync is under way, or waits for one that is.
    pub fn is_syncing(&self) -> bool {
        self.syncs.is_under_way()
    }

    pub fn apply_report(&mut self, report: Report, now: BootNanos) {
        match report {
            Report::ApiServer { acknowledged, .. } => acknowledge(acknowledged),
            Report::Registered {
                stored,
                acknowledged,
                ..
            } => {
                acknowledge(acknowledged);
                self.lease.registered(stored.uid.clone(), now);
            }
            // The loop ends with the first, and passes the second to its subject.
            Report::OtherHolder(_) | Report::Certificate(_) => {}
            Report::Synced {
                why,
                stamps,
                outcome,
                next,
                node,
            } => {
                let due = self.next_sync(next, now);
                let ended = EndedSync {
                    request: SyncRequest { why, stamps },
                    outcome,
                    node: &node,
                };
                self.syncs.ended(ended, due, now);
            }
            Report::Tainted(tainted) => self.tainted(tainted),
            Report::Lease(outcome) => self.leased(outcome, now),
            Report::Event(delivered) => log_event(&delivered),
        }
    }

    fn next_sync(&mut self, next: Wait, now: BootNanos) -> BootNanos {
        let period = match next {
            Wait::Short => self.update_frequency,
            Wait::Long => self.report_frequency,
            Wait::Until(moment) => return moment,
        };
        self.next(now, period, self.lease.due())
    }

    fn tainted(&mut self, TaintOutcome { written, failed }: TaintOutcome) {
        if written {
            info!("taints of the node changed");
        }
        let before = std::mem::replace(&mut self.taints_failing, failed.is_some());
        let Some(err) = failed else {
            return;
        };
        let refused = err.disposition() == Disposition::GiveUp;
        let err = &err as &dyn std::error::Error;
        // The rejected taint was logged with its request.
        if before || refused {
            debug!(err, "taints of the node not changed");
        } else {
            warn!(err, "taints of the node not changed, will retry");
        }
    }

    fn leased(&mut self, outcome: Result<Cycle, ApiError>, now: BootNanos) {
        let recovered = self.lease.outcome(outcome);
        if recovered && self.syncs.is_failing() {
            // The server is available again: the status is sent first.
            self.sync(Why::Tick, now);
        }
        let due = self.next(now, self.lease.interval(), self.syncs.due());
        self.lease.ended(due);
    }

    /// The moment for periodic work: one period from now, stretched at random, or together with
    /// the `other` work if that is due within the stretch.
    fn next(&mut self, now: BootNanos, period: Duration, other: Option<BootNanos>) -> BootNanos {
        let (first, last) = (now.plus(period), now.plus(period * 26 / 25));
        if let Some(other) = other.filter(|other| (first..=last).contains(other)) {
            return other;
        }
        now.plus(self.jitter.stretch(period, JITTER))
    }

    /// Waits for queued Events up to [`LAST_EVENTS`]; leaves the status and the Lease unchanged.
    pub async fn finish(self, tasks: &mut Tasks) {
        let Self {
            events,
            recorder,
            syncs,
            lease,
            reports,
            certificate,
            ..
        } = self;
        // The status writer records Events too, and may wait for an answer.
        events.leave();
        drop((syncs, lease, reports, certificate));
        let recorded = async {
            while !recorder.is_finished() {
                tasks.ended().await;
            }
        };
        if tokio::time::timeout(LAST_EVENTS, recorded).await.is_err() {
            debug!("the recorder was not done");
            // Outcomes are not waited for any more.
            recorder.abort();
        }
        let counts = events.counts();
        if counts.pending() > 0 {
            warn!(
                unsent = counts.pending(),
                delivered = counts.delivered,
                "events could not be sent before the end"
            );
        }
    }
}

/// The next report; pending forever without an API server.
pub async fn next(reporting: Option<&mut Reporting>) -> Report {
    let report = match reporting {
        Some(reporting) => reporting.reports.recv().await,
        None => None,
    };
    match report {
        Some(report) => *report,
        // Without a sender all tasks have ended, which is reported separately.
        None => std::future::pending().await,
    }
}

/// Lets the task that sent a report continue.
fn acknowledge(task: oneshot::Sender<()>) {
    if task.send(()).is_err() {
        debug!("the status writer has ended");
    }
}
