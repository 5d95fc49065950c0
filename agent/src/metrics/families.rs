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

/// Defines a struct of metrics, and the function that declares each of its fields.
macro_rules! families {
    ($name:ident { $($field:ident: $metric:ty = $declare:ident($($argument:expr),*);)* }) => {
        #[derive(Debug)]
        pub struct $name {
            $(pub $field: $metric,)*
        }

        impl $name {
            pub(super) fn declare(to: &mut Declarations) -> Self {
                Self {
                    $($field: to.$declare($($argument),*),)*
                }
            }
        }
    };
}

families! { KernelMetrics {
    events_received: Labelled<Counter, 1> =
        labelled("events_received", "Records received from the kernel", ["kind"]);
    events_lost: Labelled<Counter, 2> =
        labelled("events_lost", "Records that the probes lost", ["ring", "reason"]);
    probe_attached: Labelled<Gauge, 2> =
        labelled("probe_attached", "1 if the probe is attached, else 0 with the reason",
                 ["probe", "reason"]);
    bpf_run_seconds: Labelled<Seconds, 1> =
        labelled_in_seconds("bpf_run", "Run time of each probe, if the kernel collects BPF statistics",
                            ["probe"]);
    bpf_runs: Labelled<Counter, 1> =
        labelled("bpf_runs", "Runs of each probe, if the kernel collects BPF statistics", ["probe"]);
} }

families! { NodeMetrics {
    condition_status: Labelled<Gauge, 2> =
        labelled("condition_status", "1 for the desired status of the condition", ["type", "status"]);
    condition_omitted: Labelled<Gauge, 2> =
        labelled("condition_omitted",
                 "1 for a condition without a possible source on this node, with the reason",
                 ["type", "reason"]);
    condition_transitions: Labelled<Counter, 1> =
        labelled("condition_transitions", "Changes of the desired status of the condition", ["type"]);
    signal_value: Labelled<Gauge, 1> =
        labelled("signal_value", "Available amount in the last sample, in bytes, inodes or pids",
                 ["signal"]);
    signal_threshold: Labelled<Gauge, 1> =
        labelled("signal_threshold",
                 "Threshold below which there is pressure, in the unit of the signal", ["signal"]);
    oom_kills: Labelled<Counter, 2> =
        labelled("oom_kills",
                 "OOM-killed processes, by the scope of the limit and the consequence for the container",
                 ["scope", "consequence"]);
    pod_oom_kills: Labelled<Counter, 2> =
        labelled("pod_oom_kills", "OOM-killed processes of existing pods", ["namespace", "pod"]);
    disk_unhealthy: Labelled<Gauge, 2> =
        labelled("disk_unhealthy",
                 "1 for each disk that is slow, stalled or failing, also if no pod uses it",
                 ["device", "state"]);
} }

families! { ApiMetrics {
    event_to_ack: Histogram =
        in_seconds("event_to_ack", "Time from the kernel's time stamp to the API server's answer",
                   Histogram::new(TO_ACK));
    status_patches: Labelled<Counter, 1> =
        labelled("status_patches", "Status patches accepted by the API server, by reason", ["why"]);
    taint_patches: Labelled<Counter, 1> =
        labelled("taint_patches", "Changes of nodepulse's taints, by result", ["result"]);
    lease_renewals: Labelled<Counter, 1> =
        labelled("lease_renewals", "Lease renewals, by result", ["result"]);
    requests: Labelled<Counter, 3> =
        labelled("api_requests", "Requests to the API server, by result",
                 ["verb", "resource", "code"]);
    events: Labelled<Counter, 1> =
        labelled("api_events", "Observations for Kubernetes Events, by result", ["result"]);
    queue_depth: Gauge =
        metric("api_queue_depth", "Events in the queue to the API server", Gauge::default());
    client_certificate_expiration: Labelled<Gauge<f64, AtomicU64>, 0> =
        labelled_in_seconds("client_certificate_expiration",
                            "Time at which the client certificate expires that the agent requested, \
                             since the epoch",
                            []);
} }

families! { ProcessMetrics {
    history_revisions: Labelled<Counter, 1> =
        labelled("history_revisions", "Revisions of incidents for the history on the disk, by result",
                 ["result"]);
    sink_delivered: Labelled<Counter, 1> =
        labelled("sink_delivered", "Revisions of incidents that a receiver has accepted", ["sink"]);
    sink_lost: Labelled<Counter, 2> =
        labelled("sink_lost", "Revisions of incidents that a receiver did not get: `refused`, `expired`, \
                               `removed` from the history before, which a summary reports, or `unrecorded`, \
                               because the disk did not take or return them",
                 ["sink", "reason"]);
    sink_lag: Labelled<Gauge, 1> =
        labelled("sink_lag", "Revisions of incidents since the agent's start that are not delivered yet",
                 ["sink"]);
    sink_failing: Labelled<Gauge, 1> =
        labelled("sink_failing", "1 while a receiver does not accept incidents", ["sink"]);
    blocked_calls: Labelled<Gauge, 1> =
        labelled("blocked_calls", "1 while a file system call exceeds its time limit", ["purpose"]);
    wakeups: Labelled<Counter, 1> =
        labelled("wakeups", "Iterations of the main loop, by the source of the wake-up", ["source"]);
    config_reloads: Labelled<Counter, 1> =
        labelled("config_reloads", "Reloads of the configuration, by result", ["result"]);
    config_valid: Gauge =
        metric("config_last_reload_successful",
               "1 if the configuration that was read last is valid, 0 if it was refused",
               Gauge::default());
    config_read: Gauge<f64, AtomicU64> =
        in_seconds("config_last_reload_success_timestamp",
                   "Time at which the configuration in effect was read, since the epoch",
                   Gauge::default());
    cpu: Seconds = process("process_cpu", "User and system CPU time", Some(Unit::Seconds));
    resident_memory: Gauge =
        process("process_resident_memory", "Resident memory size", Some(Unit::Bytes));
    virtual_memory: Gauge =
        process("process_virtual_memory", "Virtual memory size", Some(Unit::Bytes));
    start_time: Gauge<f64, AtomicU64> =
        process("process_start_time", "Start time since the epoch", Some(Unit::Seconds));
    open_fds: Gauge = process("process_open_fds", "Open file descriptors", None);
    max_fds: Gauge = process("process_max_fds", "Maximum number of open file descriptors", None);
} }
