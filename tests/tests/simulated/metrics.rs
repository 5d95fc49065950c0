//! The contents of `/metrics`, and that every metric is updated.

use std::sync::Arc;
use std::time::Duration;

use nodepulse_core::record::ScopeSource;
use nodepulse_core::units::DeviceNumber;
use nodepulse_core::units::latency::DiskLatency;
use nodepulse_linux::kernel::Probe;
use nodepulse_linux::kernel::counters::ProbeCounters;

use agent_common::DropReason;
use nodepulse::testing::Metrics;
use nodepulse_tests::SOON;
use nodepulse_tests::api_server::{ApiServer, Effect, Fault, Issue};
use nodepulse_tests::host_root::{MadeUpHost, PODS};
use nodepulse_tests::node::{BOOTSTRAP, COMPANION, Kill, Limit, Node, Running, in_memory, pass};
use nodepulse_tests::openmetrics::Exposition;
use nodepulse_tests::pod::{CONTAINER, POD, Pod};
use nodepulse_tests::view::{EVENTS, View};

const SDA: DeviceNumber = DeviceNumber { major: 8, minor: 0 };

/// Pods are named in metrics.
const PER_POD: &str = "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\n\
                       serve: {perPodMetrics: true}\n";

/// What a kernel may have counted.
fn figures() -> ProbeCounters {
    let mut latency = DiskLatency::default();
    (latency.reads.buckets[0], latency.reads.buckets[10]) = (5, 2);
    latency.reads.sum = Duration::from_millis(125);
    latency.writes.buckets[15] = 1;
    ProbeCounters {
        losses: DropReason::ALL
            .iter()
            .zip(3..)
            .map(|(reason, count)| (*reason, count))
            .collect(),
        runs: vec![(Probe::PidFork, Duration::from_millis(1500), 7)],
        disks: vec![
            (SDA, latency),
            (DeviceNumber { major: 9, minor: 9 }, latency),
        ],
    }
}

async fn kill(node: &Running, limit: Limit<'_>) {
    let cgroup = "kubepods/burstable/pod1/ctr";
    let kill = Kill {
        victim: ("java", 4321),
        cgroup,
        limit,
        source: ScopeSource::Exact,
    };
    node.kernel().oom_kill(kill).await;
}

#[tokio::test(start_paused = true)]
async fn every_metric_is_updated() {
    let host = MadeUpHost::calm();
    host.disk("sda", "8:0")
        .oom("kubepods/burstable/pod1/ctr", 0, 0);
    let api = in_memory();
    Pod::new("default", "cart-0", "1").put(&api);
    let certificates = tempfile::tempdir().unwrap();
    let node = Node::named("worker-1").host(host).file(PER_POD);
    let requests = "certificatesigningrequests";
    api.grant_all(BOOTSTRAP, &[("create", requests), ("get", requests)]);
    let node = node.requests_certificate(certificates.path()).start(&api);
    let pending = |api: &ApiServer| api.pending_requests().pop();
    let request = api.wait_for(SOON, "a certificate is requested", pending);
    let issue = Issue::now(&api, Duration::from_hours(1));
    api.issue(&request.await, &issue);
    let view = View::of(&api, "worker-1");
    view.settled(SOON).await;
    node.counted(figures());
    // Waits in the queue, after one without a response.
    api.faults()
        .push(Fault::on("POST", EVENTS, Effect::Hang).always());
    node.kernel().slow_window((8, 0)).await;
    view.becomes("DiskIOPressure", "True", SOON).await;
    for _ in 0..5 {
        kill(&node, Limit::Machine).await;
    }
    node.reload(|_| ()).await;
    pass(Duration::from_secs(1)).await;

    let after = node.scrape().await;
    // What only companion mode does: its taint is refused, and a condition is omitted.
    let host = MadeUpHost::calm();
    host.mem_working_set("15700Mi").remove("proc/pressure");
    let companion = Node::companion("worker-2").host(host).config(|overrides| {
        overrides.taints = Some("MemoryLow=NoSchedule".to_owned());
    });
    api.grant_all(COMPANION, &[("get", "nodes"), ("patch", "nodes/status")]);
    api.put_object(serde_json::json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": "worker-2" },
    }));
    let companion = companion.start(&api);
    pass(Duration::from_secs(1)).await;
    let of_companion = companion.scrape().await;

    let declared = Metrics::descriptions();
    assert!(declared.len() > 20);
    let moved = |read: &Exposition, name: &str| read.family(name).is_some_and(|f| f.moved());
    let still: Vec<_> = declared
        .iter()
        .map(|metric| &metric.name)
        .filter(|name| !moved(&after, name) && !moved(&of_companion, name))
        // Updated when a file system hangs, and with a history on a disk or a receiver of
        // incidents: separate tests.
        .filter(|name| *name != "nodepulse_blocked_calls" && *name != "nodepulse_history_revisions")
        .filter(|name| !name.starts_with("nodepulse_sink_"))
        .collect();
    assert_eq!(still, [""; 0], "nothing moves these");
}

/// A sample by its name and labels, and its value.
type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], Option<f64>);

fn check(read: &Exposition, rows: &[Row<'_>]) {
    for (name, labels, expected) in rows {
        assert_eq!(read.value(name, labels), *expected, "{name} {labels:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_kernels_counters_are_reported_unchanged() {
    let host = MadeUpHost::calm();
    host.disk("sda", "8:0");
    let node = Node::named("worker-1").host(host).start(&in_memory());
    node.counted(figures());
    let read = node.scrape().await;
    let lost = "nodepulse_events_lost_total";
    let bucket = "nodepulse_disk_latency_seconds_bucket";
    const READS: (&str, &str) = ("operation", "read");
    check(
        &read,
        &[
            (lost, &[("ring", "crit"), ("reason", "full")], Some(3.0)),
            (lost, &[("ring", "bulk"), ("reason", "full")], Some(4.0)),
            (lost, &[("reason", "unreadable")], Some(5.0)),
            (lost, &[("reason", "no_start_time")], Some(6.0)),
            (
                "nodepulse_bpf_run_seconds_total",
                &[("probe", "pid_fork")],
                Some(1.5),
            ),
            (
                "nodepulse_bpf_runs_total",
                &[("probe", "pid_fork")],
                Some(7.0),
            ),
            (
                bucket,
                &[("device", "sda"), READS, ("le", "0.000065536")],
                Some(5.0),
            ),
            (
                bucket,
                &[("device", "sda"), READS, ("le", "+Inf")],
                Some(7.0),
            ),
            (
                bucket,
                &[("operation", "write"), ("le", "1.073741824")],
                Some(0.0),
            ),
            ("nodepulse_disk_latency_seconds_sum", &[READS], Some(0.125)),
            ("nodepulse_disk_latency_seconds_count", &[READS], Some(7.0)),
            ("nodepulse_tier_info", &[("tier", "btf")], Some(1.0)),
            (
                "nodepulse_probe_attached",
                &[("probe", "oom_victim"), ("reason", "none")],
                Some(1.0),
            ),
        ],
    );
    let disks = read.family("nodepulse_disk_latency_seconds").unwrap();
    assert_eq!(
        disks.samples.len(),
        2 * (16 + 2),
        "a disk without a name has no series"
    );

    // A counter is the difference to its first value, not a sum of samples.
    assert_eq!(
        node.scrape().await.value(lost, &[("ring", "crit")]),
        Some(3.0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_kill_is_counted_by_the_limit_that_was_reached() {
    let host = MadeUpHost::calm();
    for cgroup in [POD, CONTAINER, "system.slice/db.service"] {
        host.oom(cgroup, 0, 0);
    }
    let node = Node::named("worker-1").host(host).start(&in_memory());
    let rows = [
        ("global", Limit::Machine),
        ("pods", Limit::Of(PODS)),
        ("pod", Limit::Of(POD)),
        ("container", Limit::Of(CONTAINER)),
        ("other", Limit::Of("system.slice/db.service")),
    ];
    for (scope, limit) in rows {
        let name = "nodepulse_oom_kills_total";
        assert_eq!(node.scrape().await.value(name, &[("scope", scope)]), None);
        kill(&node, limit).await;
        pass(Duration::from_millis(10)).await;
        let read = node.scrape().await;
        assert_eq!(read.value(name, &[("scope", scope)]), Some(1.0), "{scope}");
        // Requested in a loop, the metrics would be those of the last page.
        pass(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_metrics_of_conditions_signals_and_requests_match_the_api_server() {
    let host = MadeUpHost::calm();
    host.disk("sda", "8:0").tasks(100).pid_max(1000);
    let api = in_memory();
    let node = Node::named("worker-1")
        .hard("pid.available<10%")
        .host(host)
        .start(&api);
    let view = View::of(&api, "worker-1");
    view.settled(SOON).await;
    node.kernel().slow_window((8, 0)).await;
    view.becomes("DiskIOPressure", "True", SOON).await;
    let unhealthy = |value| {
        let labels: &[_] = &[("device", "sda"), ("state", "slow")];
        ("nodepulse_disk_unhealthy", labels, Some(value))
    };
    check(&node.scrape().await, &[unhealthy(1.0)]);
    // It is watched again, by another limit.
    node.reload(|now| now.disk_io_solid_state_slow = Some("25ms".to_owned()))
        .await;
    pass(Duration::from_secs(1)).await;
    check(&node.scrape().await, &[unhealthy(1.0)]);
    // Not while a request is under way.
    pass(Duration::from_secs(4 * 60 + 5)).await;

    let read = node.scrape().await;
    let status = "nodepulse_condition_status";
    let signal = [("signal", "pid.available")];
    let slow = [("type", "DiskIOPressure")];
    check(
        &read,
        &[
            (status, &[slow[0], ("status", "True")], Some(1.0)),
            (status, &[slow[0], ("status", "False")], Some(0.0)),
            (status, &[("type", "Ready"), ("status", "True")], Some(1.0)),
            ("nodepulse_condition_transitions_total", &slow, Some(1.0)),
            (
                "nodepulse_condition_transitions_total",
                &[("type", "Ready")],
                Some(0.0),
            ),
            unhealthy(0.0),
            ("nodepulse_signal_value", &signal, Some(900.0)),
            ("nodepulse_signal_threshold", &signal, Some(100.0)),
            (
                "nodepulse_status_patches_total",
                &[("why", "edge")],
                Some(1.0),
            ),
        ],
    );
    let patched = [
        ("verb", "PATCH"),
        ("resource", "nodes/status"),
        ("code", "200"),
    ];
    let renewed = [("verb", "PUT"), ("resource", "leases"), ("code", "200")];
    for (labels, recorded) in [(patched, view.patches()), (renewed, view.renewals())] {
        let counted = read.value("nodepulse_api_requests_total", &labels);
        let recorded = recorded
            .iter()
            .filter(|request| request.method == labels[0].1 && request.status == Some(200));
        let recorded = u32::try_from(recorded.count()).unwrap();
        assert!(recorded > 0);
        assert_eq!(counted, Some(f64::from(recorded)), "{labels:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejected_request_is_counted_by_its_code() {
    let api = in_memory();
    api.faults()
        .push(Fault::on("PUT", "/apis/coordination", Effect::Status(500)).always());
    let node = Node::named("worker-1").start(&api);
    View::of(&api, "worker-1").settled(SOON).await;
    pass(Duration::from_mins(2)).await;
    let read = node.scrape().await;
    let refused = [("verb", "PUT"), ("resource", "leases"), ("code", "500")];
    assert!(read.value("nodepulse_api_requests_total", &refused) > Some(5.0));
    let failed = [("result", "failed")];
    assert!(read.value("nodepulse_lease_renewals_total", &failed) > Some(0.0));
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_another_one_replaces_has_no_series() {
    let host = Arc::new(MadeUpHost::calm());
    host.disk("sda", "8:0");
    let node = Node::named("worker-1")
        .host(Arc::clone(&host))
        .start(&in_memory());
    pass(Duration::from_secs(10)).await;
    let watched = async || {
        let read = node.scrape().await;
        ["sda", "sdb"].map(|disk| {
            let labels = [("device", disk), ("state", "slow")];
            read.value("nodepulse_disk_unhealthy", &labels)
        })
    };
    assert_eq!(watched().await, [Some(0.0), None]);
    host.remove("sys/block/sda").disk("sdb", "8:0");
    // The list is read again.
    pass(Duration::from_mins(6)).await;
    assert_eq!(watched().await, [None, Some(0.0)]);
}
