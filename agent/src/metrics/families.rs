//! Every metric: name, labels, help.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;

use super::Seconds;
use super::declare::Declarations;
use super::labelled::Labelled;

/// Buckets from the latency of a fast API server to that of an outage.
const TO_ACK: [f64; 14] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0, 60.0,
];

#[derive(Debug)]
pub struct KernelMetrics {
    pub events_received: Labelled<Counter, 1>,
    pub events_lost: Labelled<Counter, 2>,
    pub probe_attached: Labelled<Gauge, 2>,
    pub bpf_run_seconds: Labelled<Seconds, 1>,
    pub bpf_runs: Labelled<Counter, 1>,
}

#[derive(Debug)]
pub struct NodeMetrics {
    pub condition_status: Labelled<Gauge, 2>,
    pub condition_omitted: Labelled<Gauge, 2>,
    pub condition_transitions: Labelled<Counter, 1>,
    pub signal_value: Labelled<Gauge, 1>,
    pub signal_threshold: Labelled<Gauge, 1>,
    pub oom_kills: Labelled<Counter, 2>,
    pub pod_oom_kills: Labelled<Counter, 2>,
    pub disk_unhealthy: Labelled<Gauge, 2>,
}

#[derive(Debug)]
pub struct ApiMetrics {
    pub event_to_ack: Histogram,
    pub status_patches: Labelled<Counter, 1>,
    pub taint_patches: Labelled<Counter, 1>,
    pub lease_renewals: Labelled<Counter, 1>,
    pub requests: Labelled<Counter, 3>,
    pub events: Labelled<Counter, 1>,
    pub queue_depth: Gauge,
    pub client_certificate_expiration: Labelled<Gauge<f64, AtomicU64>, 0>,
}

#[derive(Debug)]
pub struct ProcessMetrics {
    /// `blocked_calls{purpose}`.
    pub blocked_calls: Labelled<Gauge, 1>,
    pub wakeups: Labelled<Counter, 1>,
    pub config_reloads: Labelled<Counter, 1>,
    pub config_valid: Gauge,
    pub config_read: Gauge<f64, AtomicU64>,
    pub cpu: Seconds,
    pub resident_memory: Gauge,
    pub virtual_memory: Gauge,
    pub start_time: Gauge<f64, AtomicU64>,
    pub open_fds: Gauge,
    pub max_fds: Gauge,
}

impl KernelMetrics {
    pub(super) fn declare(to: &mut Declarations) -> Self {
        Self {
            events_received: to.labelled(
                "events_received",
                "Records received from the kernel",
                ["kind"],
            ),
            events_lost: to.labelled(
                "events_lost",
                "Records that the probes lost",
                ["ring", "reason"],
            ),
            probe_attached: to.labelled(
                "probe_attached",
                "1 if the probe is attached, else 0 with the reason",
                ["probe", "reason"],
            ),
            bpf_run_seconds: to.labelled_in_seconds(
                "bpf_run",
                "Run time of each probe, if the kernel collects BPF statistics",
                ["probe"],
            ),
            bpf_runs: to.labelled(
                "bpf_runs",
                "Runs of each probe, if the kernel collects BPF statistics",
                ["probe"],
            ),
        }
    }
}

impl NodeMetrics {
    pub(super) fn declare(to: &mut Declarations) -> Self {
        Self {
            condition_status: to.labelled(
                "condition_status",
                "1 for the desired status of the condition",
                ["type", "status"],
            ),
            condition_omitted: to.labelled(
                "condition_omitted",
                "1 for a condition without a possible source on this node, with the reason",
                ["type", "reason"],
            ),
            condition_transitions: to.labelled(
                "condition_transitions",
                "Changes of the desired status of the condition",
                ["type"],
            ),
            signal_value: to.labelled(
                "signal_value",
                "Available amount in the last sample, in bytes, inodes or pids",
                ["signal"],
            ),
            signal_threshold: to.labelled(
                "signal_threshold",
                "Threshold below which there is pressure, in the unit of the signal",
                ["signal"],
            ),
            oom_kills: to.labelled(
                "oom_kills",
                "OOM-killed processes, by the scope of the limit and the consequence for the container",
                ["scope", "consequence"],
            ),
            pod_oom_kills: to.labelled(
                "pod_oom_kills",
                "OOM-killed processes of existing pods",
                ["namespace", "pod"],
            ),
            disk_unhealthy: to.labelled(
                "disk_unhealthy",
                "1 for each disk that is slow, stalled or failing, also if no pod uses it",
                ["device", "state"],
            ),
        }
    }
}

impl ApiMetrics {
    pub(super) fn declare(to: &mut Declarations) -> Self {
        Self {
            event_to_ack: to.in_seconds(
                "event_to_ack",
                "Time from the kernel's time stamp to the API server's answer",
                Histogram::new(TO_ACK),
            ),
            status_patches: to.labelled(
                "status_patches",
                "Status patches accepted by the API server, by reason",
                ["why"],
            ),
            taint_patches: to.labelled(
                "taint_patches",
                "Changes of nodepulse's taints, by result",
                ["result"],
            ),
            lease_renewals: to.labelled("lease_renewals", "Lease renewals, by result", ["result"]),
            requests: to.labelled(
                "api_requests",
                "Requests to the API server, by result",
                ["verb", "resource", "code"],
            ),
            events: to.labelled(
                "api_events",
                "Observations for Kubernetes Events, by result",
                ["result"],
            ),
            queue_depth: to.metric(
                "api_queue_depth",
                "Events in the queue to the API server",
                Gauge::default(),
            ),
            client_certificate_expiration: to.labelled_in_seconds(
                "client_certificate_expiration",
                "Time at which the client certificate expires that the agent requested, since the epoch",
                [],
            ),
        }
    }
}

impl ProcessMetrics {
    pub(super) fn declare(to: &mut Declarations) -> Self {
        let (bytes, seconds) = (Some(Unit::Bytes), Some(Unit::Seconds));
        Self {
            blocked_calls: to.labelled(
                "blocked_calls",
                "1 while a file system call exceeds its time limit",
                ["purpose"],
            ),
            wakeups: to.labelled(
                "wakeups",
                "Iterations of the main loop, by the source of the wake-up",
                ["source"],
            ),
            config_reloads: to.labelled(
                "config_reloads",
                "Reloads of the configuration, by result",
                ["result"],
            ),
            config_valid: to.metric(
                "config_last_reload_successful",
                "1 if the configuration that was read last is valid, 0 if it was refused",
                Gauge::default(),
            ),
            config_read: to.in_seconds(
                "config_last_reload_success_timestamp",
                "Time at which the configuration in effect was read, since the epoch",
                Gauge::default(),
            ),
            cpu: to.process("process_cpu", "User and system CPU time", seconds.clone()),
            resident_memory: to.process(
                "process_resident_memory",
                "Resident memory size",
                bytes.clone(),
            ),
            virtual_memory: to.process("process_virtual_memory", "Virtual memory size", bytes),
            start_time: to.process("process_start_time", "Start time since the epoch", seconds),
            open_fds: to.process("process_open_fds", "Open file descriptors", None),
            max_fds: to.process(
                "process_max_fds",
                "Maximum number of open file descriptors",
                None,
            ),
        }
    }
}
