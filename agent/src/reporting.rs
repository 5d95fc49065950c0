//! EDGE: what is sent to the API server, and when: a status writer, a lease keeper and a recorder of
//! Events, each a separate task, so that none waits for another.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tracing::{debug, info, warn};

use crate::api::backoff::Jitter;
use crate::api::holder::Holder;
use crate::api::lease::Cycle;
use crate::api::recorder::{Delivered, EventCounts, EventSink};
use crate::api::status::Sent;
use crate::api::taints::TaintOutcome;
use crate::api::{ApiError, Client, Disposition};
use crate::clock::{BootNanos, Clock, Stamp};
use crate::config::{Config, Mode};
use crate::kube_event::{Draft, KillOutcomes};
use crate::node_status::budget::{Admission, EdgeBudget};
use crate::node_status::ledger::Computed;
use crate::node_status::{Condition, StoredNode};
use crate::reading::Resource;
use crate::tasks::Tasks;

mod companion;
mod node_writer;
pub mod once;
mod start;
mod writer;

use start::{log_event, log_sync};

/// A period is stretched by up to this share, so that nodes that started together drift apart: the
/// kubelet's `nodeStatusUpdateFrequency` and lease jitter.
const JITTER: f64 = 0.04;

/// Queued Events get so long on the way out.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// Why a status sync is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// It is time to compute it again.
    Tick,
    /// A condition changed.
    Edge,
}

/// When the status is next synced, if nothing changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// As often as a status is computed.
    Short,
    /// As often as an unchanged status is sent.
    Long,
    /// Then.
    Until(BootNanos),
}

/// A status sync to do. One at a time: the loop knows whether the writer is busy, so the channel of
/// one place is never full.
#[derive(Debug)]
struct SyncRequest {
    /// What asked for it.
    why: Why,
    /// What the conditions that changed since the last request were caused by.
    stamps: BTreeMap<Resource, Stamp>,
}

/// What a request came to.
#[derive(Debug)]
pub enum Report {
    /// Another agent renews the Node's Lease. Nothing was written.
    OtherHolder(Holder),
    /// The Node exists. Nothing is sent before the loop has acknowledged that.
    Registered {
        /// As stored.
        stored: Box<StoredNode>,
        /// Sent when the facts that follow from it are set.
        acknowledged: oneshot::Sender<()>,
    },
    /// A status sync is over.
    Synced {
        /// What asked for it.
        why: Why,
        /// What its conditions were caused by.
        stamps: BTreeMap<Resource, Stamp>,
        /// `None`: nothing had changed.
        outcome: Result<Option<Sent>, ApiError>,
        /// The conditions of the Node as last seen.
        node: Vec<Condition>,
        /// When the next one is due.
        next: Wait,
    },
    /// Our taints were changed, could not be, or can be again.
    Tainted(TaintOutcome),
    /// A lease cycle is over.
    Lease(Result<Cycle, ApiError>),
    /// An Event is at the API server.
    Event(Delivered),
}

/// Channels from the loop to the tasks.
struct Channels {
    /// The newest status: only the last one matters, so a slow API server builds no queue.
    computed: watch::Receiver<Arc<Computed>>,
    /// See [`SyncRequest`].
    syncs: mpsc::Receiver<SyncRequest>,
    /// Renew, with the Node's UID where it is known. One at a time, as with syncs. Companion mode
    /// asks for none.
    leases: mpsc::Receiver<Option<String>>,
    /// Results to the loop. The tasks wait while it is full; the loop never waits for them.
    reports: mpsc::Sender<Report>,
}

/// The loop's side.
pub struct Reporting {
    computed: watch::Sender<Arc<Computed>>,
    syncs: mpsc::Sender<SyncRequest>,
    leases: mpsc::Sender<Option<String>>,
    reports: mpsc::Receiver<Report>,
    events: EventSink,
    recorder: AbortHandle,
    writer: Writer,
    lease: Lease,
    jitter: Jitter,
    update_frequency: Duration,
    report_frequency: Duration,
    /// The warning about a missing permission was logged.
    taints_failing: bool,
    node_uid: Option<String>,
}

/// What the loop knows of the status writer.
struct Writer {
    /// Registering or syncing.
    busy: bool,
    /// The next regular sync; far away while one is under way.
    due: BootNanos,
    /// A sync that was asked for while another was under way.
    again: Option<Why>,
    /// An edge that waits for the budget.
    edge_due: Option<BootNanos>,
    budget: EdgeBudget,
    stamps: BTreeMap<Resource, Stamp>,
    /// The warning about an outage was logged.
    failing: bool,
}

struct Lease {
    busy: bool,
    due: BootNanos,
    interval: Duration,
    failing: bool,
}

impl Lease {
    fn of(config: &Config, now: BootNanos) -> Self {
        Self {
            busy: false,
            due: match config.mode {
                Mode::Node => now,
                // It is the kubelet's.
                Mode::Companion => NEVER,
            },
            interval: config.lease_duration / 4,
            failing: false,
        }
    }
}

/// The end of time: something under way has no due moment.
const NEVER: BootNanos = BootNanos(u64::MAX);

impl Reporting {
    /// Starts the tasks. Must be called in a runtime.
    #[must_use]
    pub fn start(
        config: &Config,
        client: Client,
        clock: Clock,
        computed: Arc<Computed>,
        tasks: &mut Tasks,
    ) -> Self {
        let now = clock.now().boot;
        let (computed, computed_seen) = watch::channel(computed);
        let (syncs, sync_requests) = mpsc::channel(1);
        let (leases, lease_requests) = mpsc::channel(1);
        let (send_reports, reports) = mpsc::channel(64);
        let channels = Channels {
            computed: computed_seen,
            syncs: sync_requests,
            leases: lease_requests,
            reports: send_reports,
        };
        let jitter = client.jitter();
        let (events, recorder) = start::start(config, client, clock, channels, tasks);
        Self {
            computed,
            syncs,
            leases,
            reports,
            events,
            recorder,
            writer: Writer {
                busy: false,
                due: NEVER,
                again: None,
                edge_due: None,
                budget: EdgeBudget::new(now),
                stamps: BTreeMap::new(),
                failing: false,
            },
            lease: Lease::of(config, now),
            jitter,
            update_frequency: config.status_update_frequency,
            report_frequency: config.status_report_frequency,
            taints_failing: false,
            node_uid: None,
        }
    }

    /// The status to send from now on. `false` if it is the same computation as before.
    #[must_use]
    pub fn publish(&self, computed: Arc<Computed>) -> bool {
        self.computed.send_if_modified(|known| {
            let is_new = !Arc::ptr_eq(known, &computed);
            *known = computed;
            is_new
        })
    }

    /// The next moment at which a request is due.
    #[must_use]
    pub fn due(&self) -> BootNanos {
        let edge = self.writer.edge_due.unwrap_or(NEVER);
        self.writer.due.min(self.lease.due).min(edge)
    }

    /// Whether the regular sync is due, or so nearly that it shares this wake-up.
    #[must_use]
    pub fn status_due(&self, now: BootNanos) -> bool {
        self.writer.due <= now
    }

    /// Does what else is due.
    pub fn on_time(&mut self, now: BootNanos) {
        if self.lease.due <= now && !self.lease.busy {
            self.lease.busy = true;
            self.lease.due = NEVER;
            if self.leases.try_send(self.node_uid.clone()).is_err() {
                debug!("the lease keeper is gone");
            }
        }
        if self.writer.edge_due.is_some_and(|due| due <= now) {
            self.writer.edge_due = None;
            self.edge(now);
        }
    }

    /// Sets the cause of a change of `resource`. The oldest cause that was not reported yet counts.
    pub fn caused_by(&mut self, resource: Resource, stamp: Stamp) {
        self.writer.stamps.entry(resource).or_insert(stamp);
    }

    /// A condition changed: sync as soon as the budget allows.
    pub fn edge(&mut self, now: BootNanos) {
        if self.writer.edge_due.is_some() {
            return; // It goes with the one that waits.
        }
        match self.writer.budget.admit(now) {
            Admission::Now => self.sync(Why::Edge),
            Admission::At(moment) => {
                debug!(wait_ms = moment.since(now).as_millis(), "an edge waits");
                self.writer.edge_due = Some(moment);
            }
        }
    }

    /// Has the status computed and, if it is due or differs, sent.
    pub fn sync(&mut self, why: Why) {
        if self.writer.busy {
            self.writer.again = self.writer.again.max(Some(why));
            return;
        }
        self.writer.busy = true;
        self.writer.due = NEVER;
        let request = SyncRequest {
            why,
            stamps: std::mem::take(&mut self.writer.stamps),
        };
        if self.syncs.try_send(request).is_err() {
            debug!("the status writer has ended");
        }
    }

    /// Whether a status sync is under way, or waits for one that is.
    #[must_use]
    pub fn is_syncing(&self) -> bool {
        self.writer.busy
    }

    /// Records an Event.
    pub fn record(&mut self, event: Draft) {
        self.events.record(event);
    }

    /// What became of kills since the last call.
    #[must_use]
    pub fn kill_outcomes(&self) -> KillOutcomes {
        self.events.kill_outcomes()
    }

    /// The same, for when this is gone.
    #[must_use]
    pub fn sink(&self) -> EventSink {
        self.events.clone()
    }

    /// What became of the Events recorded so far.
    #[must_use]
    pub fn events(&self) -> EventCounts {
        self.events.counts()
    }

    /// Takes note of what a request came to.
    pub fn took(&mut self, report: Report, now: BootNanos) {
        match report {
            Report::Registered {
                stored,
                acknowledged,
            } => {
                if acknowledged.send(()).is_err() {
                    debug!("the status writer has ended");
                }
                self.node_uid = Some(stored.uid.clone());
                if self.lease.due != NEVER {
                    // There was no Node to make it for until now.
                    self.lease.due = now;
                }
            }
            // The loop ends with it.
            Report::OtherHolder(_) => {}
            Report::Synced {
                why,
                stamps,
                outcome,
                next,
                node: _,
            } => {
                self.log_synced(why, stamps, outcome);
                self.synced(next, now);
            }
            Report::Tainted(tainted) => self.tainted(tainted),
            Report::Lease(outcome) => self.leased(outcome, now),
            Report::Event(delivered) => log_event(&delivered),
        }
    }

    fn log_synced(
        &mut self,
        why: Why,
        stamps: BTreeMap<Resource, Stamp>,
        outcome: Result<Option<Sent>, ApiError>,
    ) {
        match outcome {
            Ok(sent) => {
                if std::mem::take(&mut self.writer.failing) {
                    info!("node status can be sent again");
                }
                if let Some(sent) = sent {
                    log_sync(why, &sent, &stamps);
                }
            }
            Err(err) => {
                if !std::mem::replace(&mut self.writer.failing, true) {
                    warn!(
                        err = &err as &dyn std::error::Error,
                        "node status not sent, will retry"
                    );
                }
                // The oldest cause that was not reported yet counts.
                self.writer.stamps.extend(stamps);
            }
        }
    }

    fn synced(&mut self, next: Wait, now: BootNanos) {
        self.writer.busy = false;
        self.writer.due = match next {
            Wait::Short => self.next(now, self.update_frequency, self.lease.due),
            Wait::Long => self.next(now, self.report_frequency, self.lease.due),
            Wait::Until(moment) => moment,
        };
        if let Some(why) = self.writer.again.take() {
            self.sync(why);
        }
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
        match outcome {
            Ok(Cycle::Renewed(renewed)) => {
                debug!(
                    took_us = renewed.acked.since(renewed.sent).as_micros(),
                    "lease renewed"
                );
                if std::mem::take(&mut self.lease.failing) {
                    info!("lease renewed again");
                    // The server is back: the status goes before everything else that waits.
                    if self.writer.failing {
                        self.sync(Why::Tick);
                    }
                }
            }
            Ok(Cycle::NoNode) => debug!("no lease: there is no node for it yet"),
            Err(err) => {
                if !std::mem::replace(&mut self.lease.failing, true) {
                    warn!(
                        err = &err as &dyn std::error::Error,
                        "lease not renewed, will retry"
                    );
                }
            }
        }
        self.lease.busy = false;
        self.lease.due = self.next(now, self.lease.interval, self.writer.due);
    }

    /// The moment for periodic work: one period from now, stretched at random, or together with
    /// the `other` work where that falls within the stretch.
    fn next(&mut self, now: BootNanos, period: Duration, other: BootNanos) -> BootNanos {
        let (first, last) = (now.plus(period), now.plus(period * 26 / 25));
        if (first..=last).contains(&other) {
            return other;
        }
        now.plus(self.jitter.stretch(period, JITTER))
    }

    /// Gives queued Events a moment, and leaves everything else as it is.
    pub async fn finish(self, tasks: &mut Tasks) {
        let Self {
            events,
            recorder,
            syncs,
            leases,
            reports,
            ..
        } = self;
        // The status writer records Events too, and may wait for an answer.
        events.leave();
        drop((syncs, leases, reports));
        let recorded = async {
            while !recorder.is_finished() {
                tasks.ended().await;
            }
        };
        if tokio::time::timeout(LAST_EVENTS, recorded).await.is_err() {
            debug!("the recorder was not done");
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

/// The next report; never, without an API server.
pub async fn next(reporting: Option<&mut Reporting>) -> Report {
    let report = match reporting {
        Some(reporting) => reporting.reports.recv().await,
        None => None,
    };
    match report {
        Some(report) => report,
        // Without a sender all tasks have ended, which is reported separately.
        None => std::future::pending().await,
    }
}
