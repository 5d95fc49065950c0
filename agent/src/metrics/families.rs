//! Every metric: its name, its labels, and what it says.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;

use super::Seconds;
use super::declare::Declared;
use super::labelled::Labelled;

/// From half a millisecond, which a quick API server takes, to what an outage leaves behind.
const TO_ACK: [f64; 14] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0, 60.0,
];

/// Of the probes.
#[derive(Debug)]
#[expect(missing_docs, reason = "each says in the registry what it is")]
pub struct KernelMetrics {
    pub events_received: Labelled<Counter, 1>,
    pub events_lost: Labelled<Counter, 2>,
    pub probe_attached: Labelled<Gauge, 2>,
    pub bpf_run_seconds: Labelled<Seconds, 1>,
    pub bpf_runs: Labelled<Counter, 1>,
}

/// Of the node and its conditions.
#[derive(Debug)]
#[expect(missing_docs, reason = "each says in the registry what it is")]
pub struct NodeMetrics {
    pub condition_status: Labelled<Gauge, 2>,
    pub condition_transitions: Labelled<Counter, 1>,
    pub signal_value: Labelled<Gauge, 1>,
    pub signal_threshold: Labelled<Gauge, 1>,
    pub oom_kills: Labelled<Counter, 1>,
    pub pod_oom_kills: Labelled<Counter, 2>,
}

/// Of what is written to the API server.
#[derive(Debug)]
#[expect(missing_docs, reason = "each says in the registry what it is")]
pub struct ApiMetrics {
    pub event_to_ack: Histogram,
    pub status_patches: Labelled<Counter, 1>,
    pub taint_patches: Labelled<Counter, 1>,
    pub lease_renewals: Labelled<Counter, 1>,
    pub requests: Labelled<Counter, 3>,
    pub events: Labelled<Counter, 1>,
    pub queue_depth: Gauge,
}

/// Of the agent itself.
#[derive(Debug)]
#[expect(missing_docs, reason = "each says in the registry what it is")]
pub struct ProcessMetrics {
    /// `blocked_calls{purpose}`: a file system does not answer.
    pub blocked_calls: Labelled<Gauge, 1>,
    pub wakeups: Labelled<Counter, 1>,
    pub config_reloads: Labelled<Counter, 1>,
    pub cpu: Seconds,
    pub resident_memory: Gauge,
    pub virtual_memory: Gauge,
    pub start_time: Gauge<f64, AtomicU64>,
    pub open_fds: Gauge,
    pub max_fds: Gauge,
}

impl KernelMetrics {
    pub(super) fn declare(to: &mut Declared) -> Self {
        let run_seconds = Labelled::new(["probe"]);
        let measured = "Time in each probe, where the kernel measures it";
        to.in_seconds("bpf_run", measured, run_seconds.family());
        Self {
            events_received: to.labelled("events_received", "Records from the kernel", ["kind"]),
            events_lost: to.labelled(
                "events_lost",
                "What the probes could not report",
                ["ring", "reason"],
            ),
            probe_attached: to.labelled(
                "probe_attached",
                "Whether a probe runs, and why not",
                ["probe", "reason"],
            ),
            bpf_run_seconds: run_seconds,
            bpf_runs: to.labelled(
                "bpf_runs",
                "Runs of each probe, where the kernel counts them",
                ["probe"],
            ),
        }
    }
}

impl NodeMetrics {
    pub(super) fn declare(to: &mut Declared) -> Self {
        Self {
            condition_status: to.labelled(
                "condition_status",
                "1 at the status that a condition should have",
                ["type", "status"],
            ),
            condition_transitions: to.labelled(
                "condition_transitions",
                "Changes of the status that a condition should have",
                ["type"],
            ),
            signal_value: to.labelled(
                "signal_value",
                "What was left at the last look, in bytes, inodes or pids",
                ["signal"],
            ),
            signal_threshold: to.labelled(
                "signal_threshold",
                "Below what there is pressure, in the unit of the signal",
                ["signal"],
            ),
            oom_kills: to.labelled(
                "oom_kills",
                "Processes killed for want of memory, by whose limit was met",
                ["scope"],
            ),
            pod_oom_kills: to.labelled(
                "pod_oom_kills",
                "Those told of a pod that is there",
                ["namespace", "pod"],
            ),
        }
    }
}

impl ApiMetrics {
    pub(super) fn declare(to: &mut Declared) -> Self {
        Self {
            event_to_ack: to.in_seconds(
                "event_to_ack",
                "From the kernel's time stamp to the API server's answer",
                Histogram::new(TO_ACK),
            ),
            status_patches: to.labelled(
                "status_patches",
                "Status patches that the API server took, by what made us send",
                ["why"],
            ),
            taint_patches: to.labelled(
                "taint_patches",
                "Changes of our taints by their end",
                ["result"],
            ),
            lease_renewals: to.labelled("lease_renewals", "Lease cycles by their end", ["result"]),
            requests: to.labelled(
                "api_requests",
                "Requests to the API server by their end",
                ["verb", "resource", "code"],
            ),
            events: to.labelled(
                "api_events",
                "Observations told as Events, by what became of them",
                ["result"],
            ),
            queue_depth: to.metric(
                "api_queue_depth",
                "Events that wait to be written",
                Gauge::default(),
            ),
        }
    }
}

impl ProcessMetrics {
    pub(super) fn declare(to: &mut Declared) -> Self {
        let (bytes, seconds) = (Some(Unit::Bytes), Some(Unit::Seconds));
        Self {
            blocked_calls: to.labelled(
                "blocked_calls",
                "1 while a call to a file system has not returned within its limit",
                ["purpose"],
            ),
            wakeups: to.labelled("wakeups", "Turns of the loop by what woke it", ["source"]),
            config_reloads: to.labelled(
                "config_reloads",
                "Times that the configuration was read again, by what came of it",
                ["result"],
            ),
            cpu: to.process("process_cpu", "User and system time", seconds.clone()),
            resident_memory: to.process(
                "process_resident_memory",
                "Resident memory",
                bytes.clone(),
            ),
            virtual_memory: to.process("process_virtual_memory", "Virtual memory", bytes),
            start_time: to.process("process_start_time", "Start since the epoch", seconds),
            open_fds: to.process("process_open_fds", "Open file descriptors", None),
            max_fds: to.process("process_max_fds", "Most file descriptors allowed", None),
        }
    }
}
