//! Updates the metrics.
//!
//! Counters of the kernel and of other tasks are read only for a scrape, so a node that is not
//! scraped does not pay for them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::UNIX_EPOCH;

use nodepulse_core::client_certificate::Certificate;
use nodepulse_core::clock::{BootNanos, Now, Stamp};
use nodepulse_core::kube_event::Finding;
use nodepulse_core::node_status::nodepulse_condition::NodepulseCondition;
use nodepulse_core::node_status::{Condition, Status};
use nodepulse_core::pressure::Policy;
use nodepulse_core::pressure::disks::Health;
use nodepulse_core::pressure::sample::Sample;
use nodepulse_core::reading::oom::{Consequence, LimitOwner, OomScope};
use nodepulse_core::reading::{AbsentSource, DiskReport};
use nodepulse_core::record::{DecodeError, Record};
use nodepulse_core::settings::Mode;
use nodepulse_core::subjects::{Decision, DiskDecision};
use nodepulse_core::units::latency::DiskLatency;
use nodepulse_io::lane::Lanes;
use nodepulse_kube::lease::Cycle;
use nodepulse_kube::recorder::EventCounts;
use nodepulse_kube::taints::TaintOutcome;
use nodepulse_kube::{Client, Refusal};
use nodepulse_linux::kernel::counters::ProbeCounters;
use nodepulse_linux::kernel::{ProbeState, Support};
use tokio::sync::{mpsc, watch};
use tracing::info;

use crate::config::{Config, PerPodMetrics};
use crate::metrics::{Label, Metrics, SetTotal as _};
use crate::reporting::{Report, Why};
use crate::serve::{self, Pages, ReadyPage, Server, Site, StateRequest};
use crate::telemetry::series::{HistoryCounters, SinkSeries};

mod scrape;

/// Pods with a series of their OOM kills. Kills of further pods are counted by scope only.
const MAX_PODS: usize = 256;

/// Advice if a port cannot be opened.
const ADVICE: &str = "set serve.address (--serve-address) to another address, or to off";

/// Opens the configured ports. Called after the check that no kubelet uses them.
pub fn open(config: &Config, reports: bool) -> Vec<Site> {
    const KUBELET: &str =
        "stop the process that uses it, such as a kubelet, or set serve.address: off";

    let Some(address) = config.serve else {
        return Vec::new();
    };
    let mut sites = Vec::new();
    sites.extend(Site::open(address, Pages::All, ADVICE));
    if reports && config.mode == Mode::Node {
        sites.extend(Site::open(serve::KUBELET_HEALTHZ, Pages::Healthz, KUBELET));
    }
    sites
}

pub struct Metering {
    metrics: Metrics,
    ready_page: watch::Sender<ReadyPage>,
    requests: mpsc::Receiver<StateRequest>,
    server: Server,
    /// `true` after all signals were evaluated once.
    evaluated: bool,
    client: Option<Client>,
    /// Types of the conditions that have series.
    conditions: BTreeSet<String>,
    omitted: BTreeMap<NodepulseCondition, AbsentSource>,
    /// Namespace and name of the pods that have a series.
    pods: BTreeSet<[String; 2]>,
    per_pod: PerPodMetrics,
    lanes: Lanes,
}

impl Metering {
    /// Starts the server; requests wait until the loop takes them. `tier` is the agent's; `lanes`
    /// are those that a scrape reports.
    pub fn start(
        node_name: &str,
        tier: &'static str,
        sites: Vec<Site>,
        client: Option<Client>,
        lanes: Lanes,
    ) -> Self {
        let (ready_page, receiver) = watch::channel(ReadyPage {
            not_ready: Some("no signal has been evaluated yet"),
            ..ReadyPage::default()
        });
        let missing = client.as_ref().map(Client::missing_credentials);
        let (server, requests) = Server::start(sites, receiver, lanes.all().into(), missing);
        Self {
            metrics: Metrics::new(env!("CARGO_PKG_VERSION"), tier, node_name),
            evaluated: false,
            ready_page,
            requests,
            server,
            client,
            conditions: BTreeSet::new(),
            omitted: BTreeMap::new(),
            pods: BTreeSet::new(),
            per_pod: PerPodMetrics::Off,
            lanes,
        }
    }

    pub fn record_support(&self, support: &Support) {
        for (probe, state) in &support.probes {
            let (attached, reason) = match state {
                ProbeState::Attached => (1, "none"),
                ProbeState::NotNeeded => (0, "not_needed"),
                ProbeState::Missing(missing) => (0, missing.token()),
            };
            let probe = [probe.program(), reason];
            self.metrics.kernel.probe_attached.of(probe).set(attached);
        }
    }

    pub fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// Records that all signals were evaluated once. Without an API server the agent is ready then.
    pub fn evaluated(&mut self, reports: bool) {
        self.evaluated = true;
        let why = "the node's status has not reached the API server yet";
        self.set_not_ready(reports.then_some(why));
    }

    /// The next request; pending if no port is open. `None` if the server has ended.
    pub async fn next_request(&mut self) -> Option<StateRequest> {
        tokio::select! {
            Some(request) = self.requests.recv() => Some(request),
            () = self.server.ended() => None,
        }
    }

    pub fn record_wakeup(&self, cause: &'static str) {
        self.metrics.process.wakeups.of([cause]).inc();
    }

    pub fn record_received(&self, event: &Result<Record, DecodeError>) {
        let kind = match event {
            Ok(Record::OomKill(_) | Record::LoggedKill(_)) => "oom_kill",
            Ok(Record::LogEnded) => "log_ended",
            Ok(Record::PidCrossing { .. }) => "pid_crossing",
            Ok(Record::PidTrend { .. }) => "pid_trend",
            Ok(Record::DiskReported { report, .. }) => match report {
                DiskReport::SlowWindow(_) => "slow_window",
                DiskReport::Error(_) => "disk_errors",
            },
            Ok(Record::CgroupsChanged { .. }) => "cgroups_changed",
            Ok(Record::Disk(_) | Record::DisksMissed) => "disk",
            Ok(Record::Stall { .. }) => "stall",
            Ok(Record::Unknown { .. }) => "unknown",
            Err(_) => "malformed",
        };
        self.metrics.kernel.events_received.of([kind]).inc();
    }

    /// Counts an OOM kill by the owner of the limit that was reached, and by its consequence.
    fn record_kill(&self, finding: &Finding) {
        let scope = match &finding.scope {
            OomScope::Unknown => "unknown",
            OomScope::Global => "global",
            OomScope::Memcg(limiting) => match limiting.owner {
                LimitOwner::Container => "container",
                LimitOwner::Pod => "pod",
                LimitOwner::PodsCgroup => "pods",
                LimitOwner::Other => "other",
            },
        };
        let consequence = finding.consequence.map_or("unknown", Consequence::as_str);
        self.metrics.node.oom_kills.of([scope, consequence]).inc();
    }

    pub fn record_decision(&mut self, decision: &Decision) {
        match decision {
            Decision::KillFound(finding) => self.record_kill(finding),
            Decision::PodKilled {
                namespace,
                name,
                kills,
            } => self.record_pod_kills(namespace, name, *kills),
            Decision::PodRemoved { namespace, name } => self.remove_pod(namespace, name),
            Decision::Disk(decision) => self.record_disk(decision),
            _ => {}
        }
    }

    /// Sets the gauges of a disk, or removes those of one that is not watched any more. At most
    /// [`nodepulse_core::reading::Disk::MAX`] are watched.
    fn record_disk(&self, decision: &DiskDecision) {
        let gauges = &self.metrics.node.disk_unhealthy;
        for state in [Health::Slow, Health::Stalled, Health::Failing] {
            let labels = |name: &str| [name.to_owned(), state.as_str().to_owned()];
            match decision {
                // 0 at first. It may be watched already, by another limit, and keeps its health.
                DiskDecision::Watched(disk) => drop(gauges.of(labels(&disk.name))),
                DiskDecision::HealthChanged { name, health, .. } => {
                    gauges.of(labels(name)).set((state == *health).into());
                }
                DiskDecision::Unwatched { name, .. } => gauges.remove(labels(name)),
                _ => {}
            }
        }
    }

    fn record_pod_kills(&mut self, namespace: &str, pod: &str, kills: u64) {
        if self.per_pod == PerPodMetrics::Off {
            return;
        }
        let labels = [namespace.to_owned(), pod.to_owned()];
        if self.pods.len() < MAX_PODS || self.pods.contains(&labels) {
            self.metrics
                .node
                .pod_oom_kills
                .of(labels.clone())
                .inc_by(kills);
            self.pods.insert(labels);
        }
    }

    /// Turns the series of pods on or off; off removes the existing ones.
    pub fn set_per_pod(&mut self, per_pod: PerPodMetrics) {
        self.per_pod = per_pod;
        if per_pod == PerPodMetrics::Off {
            for labels in std::mem::take(&mut self.pods) {
                self.metrics.node.pod_oom_kills.remove(labels);
            }
        }
    }

    fn remove_pod(&mut self, namespace: &str, pod: &str) {
        let labels = [namespace.to_owned(), pod.to_owned()];
        if self.pods.remove(&labels) {
            self.metrics.node.pod_oom_kills.remove(labels);
        }
    }

    pub fn record_samples(&self, samples: &[Sample], policy: &Policy) {
        let node = &self.metrics.node;
        for sample in samples {
            let signal = sample.signal();
            let Sample::Read(reading) = sample else {
                node.signal_value.remove([signal.as_str()]);
                if matches!(sample, Sample::Absent(_)) {
                    node.signal_threshold.remove([signal.as_str()]);
                }
                continue;
            };
            node.signal_value
                .of([signal.as_str()])
                .set(reading.available);
            let Some(threshold) = policy.threshold(signal) else {
                node.signal_threshold.remove([signal.as_str()]);
                continue;
            };
            let amount = threshold.amount(reading.capacity);
            let amount = i64::try_from(amount).unwrap_or(i64::MAX);
            node.signal_threshold.of([signal.as_str()]).set(amount);
        }
    }

    /// Sets the gauges of the conditions, and counts a transition of each type in `transitions`. A
    /// condition that is no longer written has no series, so that no alert about it remains.
    pub fn conditions(&mut self, conditions: &[Condition], transitions: &[String]) {
        if !self.evaluated {
            return; // The initial statuses are not transitions.
        }
        let node = &self.metrics.node;
        let written = conditions.iter().map(|condition| condition.type_.clone());
        let before = std::mem::replace(&mut self.conditions, written.collect());
        for type_ in before.difference(&self.conditions) {
            for labels in Status::ALL.map(|status| condition_labels(type_, status)) {
                node.condition_status.remove(labels);
            }
            node.condition_transitions.remove([type_.clone()]);
        }
        for condition in conditions {
            let type_ = &condition.type_;
            for each in Status::ALL {
                let is = i64::from(each == condition.status);
                node.condition_status
                    .of(condition_labels(type_, each))
                    .set(is);
            }
            // Created at 0 too: the first increase of a counter shows only if the counter existed.
            let count = node.condition_transitions.of([type_.clone()]);
            if transitions.contains(type_) {
                count.inc();
            }
        }
    }

    /// Logs each newly omitted condition, whose source cannot exist here, and sets all gauges.
    pub fn omitted(&mut self, omitted: BTreeMap<NodepulseCondition, AbsentSource>) {
        let gauge = &self.metrics.node.condition_omitted;
        let before = std::mem::take(&mut self.omitted);
        for (condition, source) in &before {
            gauge.remove([condition.type_(), source.as_str()]);
        }
        for (condition, source) in &omitted {
            let labels = [condition.type_(), source.as_str()];
            gauge.of(labels).set(1);
            if !before.contains_key(condition) {
                let (condition, why, remedy) = (condition.type_(), source.why(), source.remedy());
                info!(condition, why, remedy, "condition omitted");
            }
        }
        self.omitted = omitted;
    }

    pub fn record_report(&self, report: &Report) {
        let api = &self.metrics.api;
        match report {
            Report::Synced {
                why,
                stamps,
                outcome: Ok(sent),
                ..
            } => {
                self.set_not_ready(None);
                let Some(sent) = sent else {
                    return;
                };
                let why = match why {
                    Why::Edge => "edge",
                    Why::Tick if sent.changed => "change",
                    Why::Tick => "heartbeat",
                };
                api.status_patches.of([why]).inc();
                for stamp in stamps.values() {
                    self.acked(*stamp, sent.acked);
                }
            }
            Report::Tainted(tainted) => self.tainted(tainted),
            // The expiry of a certificate is read for a scrape.
            Report::Certificate(_)
            | Report::ApiServer { .. }
            | Report::Registered { .. }
            | Report::OtherHolder(_)
            | Report::Synced {
                outcome: Err(_), ..
            } => {}
            Report::Lease(outcome) => {
                let result = match outcome {
                    Ok(Cycle::Renewed(_)) => "renewed",
                    Ok(Cycle::NoNode) => "no_node",
                    Err(_) => "failed",
                };
                api.lease_renewals.of([result]).inc();
            }
            Report::Event(delivered) => {
                if let Some(stamp) = delivered.stamp {
                    self.acked(stamp, delivered.acked);
                }
            }
        }
    }

    fn tainted(&self, tainted: &TaintOutcome) {
        let patches = &self.metrics.api.taint_patches;
        if tainted.written {
            patches.of(["written"]).inc();
        }
        if let Some(err) = &tainted.failed {
            let denied = err.refusal() == Some(Refusal::Forbidden);
            patches.of([if denied { "denied" } else { "failed" }]).inc();
        }
    }

    fn acked(&self, stamp: Stamp, acked: BootNanos) {
        let took = acked.since(stamp.kernel).as_secs_f64();
        self.metrics.api.event_to_ack.observe(took);
    }

    pub fn events(&self, counts: &EventCounts) {
        let api = &self.metrics.api;
        let depth = i64::try_from(counts.waiting).unwrap_or(i64::MAX);
        api.queue_depth.set(depth);
        let results = [
            ("recorded", counts.recorded),
            ("delivered", counts.delivered),
            ("delayed", counts.delayed),
            ("lost_full", counts.lost_full),
            ("lost_refused", counts.lost_refused),
            ("lost_unreachable", counts.lost_unreachable),
        ];
        for (result, count) in results {
            api.events.of([result]).set_total(count);
        }
    }

    pub fn certificate(&self, current: Option<Certificate>) {
        let expires = current.map(|certificate| certificate.not_after);
        let gauge = &self.metrics.api.client_certificate_expiration;
        if let Some(since_epoch) = expires.and_then(|at| at.duration_since(UNIX_EPOCH).ok()) {
            gauge.of::<Label>([]).set(since_epoch.as_secs_f64());
        }
    }

    pub fn is_ready(&self) -> bool {
        self.ready_page.borrow().not_ready.is_none()
    }

    fn set_not_ready(&self, why: Option<&'static str>) {
        self.ready_page.send_modify(|page| page.not_ready = why);
    }

    pub fn record_reload(&self, result: &'static str) {
        self.metrics.process.config_reloads.of([result]).inc();
    }

    pub fn history_counters(&self) -> HistoryCounters {
        HistoryCounters::new(&self.metrics.process)
    }

    pub fn sink_series(&self, sink: &'static str) -> SinkSeries {
        SinkSeries::new(&self.metrics.process, sink)
    }

    /// Sets the receivers that `/readyz?verbose` lists.
    pub fn set_sinks(&self, sinks: impl Iterator<Item = &'static str>) {
        let sinks = sinks.map(|sink| (sink, self.sink_series(sink)));
        self.ready_page
            .send_modify(|page| page.sinks = sinks.collect());
    }

    /// Records the reason why the configuration was refused, or the time of the last valid one.
    pub fn record_config(&self, refused: Option<&str>, now: Now) {
        let process = &self.metrics.process;
        process.config_valid.set(refused.is_none().into());
        self.ready_page
            .send_modify(|page| page.refused_configuration = refused.map(str::to_owned));
        if refused.is_none() {
            let since_epoch = now.wall.duration_since(UNIX_EPOCH).unwrap_or_default();
            process.config_read.set(since_epoch.as_secs_f64());
        }
    }

    /// Serves at `address` only. Returns `false`, without a change, if its port cannot be opened.
    pub fn serve_at(&mut self, address: Option<SocketAddr>) -> bool {
        let site = match address {
            None => None,
            Some(address) => match Site::open(address, Pages::All, ADVICE) {
                None => return false,
                site => site,
            },
        };
        self.server.close_ports();
        if let Some(site) = site {
            self.server.open(site);
        }
        true
    }

    pub fn text(
        &self,
        figures: &ProbeCounters,
        disks: &[(&str, &DiskLatency)],
        now: Now,
    ) -> String {
        self.counted_by_the_kernel(figures);
        self.counted_by_the_client();
        self.process(now);
        self.metrics.text(disks)
    }
}

fn condition_labels(type_: &str, status: Status) -> [Label; 2] {
    [type_.to_owned().into(), status.as_str().into()]
}
