//! A condition whose source is lost is Unknown; one whose source cannot exist is omitted.

use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::Duration;

use nodepulse_tests::host_root::{Cgroups, MadeUpHost};
use nodepulse_tests::node::{Node, pass};
use nodepulse_tests::pod::POD;
use serde_json::json;

use super::{
    CONTAINER, LOST, REGULAR, SAMPLE_INTERVAL, Sim, calm, cluster, condition_types, kubelets_node,
    types,
};

/// A pod's container that no directory is left of.
const REMOVED: &str = "kubepods/burstable/pod0c9f1b7e-1f4b-4a62-9b0e-0f7c0f5d8a11/\
     9c5c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c";

/// Names that reach the top of the hierarchy are the whole path. Others a tenant may have chosen.
#[tokio::test(start_paused = true)]
async fn kills_in_removed_cgroups_count_if_the_cgroups_were_certainly_pods() {
    let pod = "kubepods/pod0c9f1b7e-1f4b-4a62-9b0e-0f7c0f5d8a11";
    let rows = [
        (pod, "True"),
        (REMOVED, "False"),
        ("system.slice/a.service/b/c", "False"),
    ];
    for (cgroup, status) in rows {
        let sim = Sim::on(&cluster(), each_kill_is_frequent).await;
        sim.kills_in(&[cgroup], 1).await;
        pass(Duration::from_secs(5)).await;
        assert_eq!(sim.view().status("FrequentOOMKills"), status, "{cgroup}");
    }
}

fn each_kill_is_frequent(node: Node) -> Node {
    node.config(|overrides| {
        overrides.oom_frequent_incidents = Some("1".to_owned());
        overrides.oom_frequent_pods = Some("1".to_owned());
    })
}

/// How many of all pods were killed.
const COUNTERS: &str = "sys/fs/cgroup/kubepods/memory.events";

/// So many kills in one container, according to the counters.
fn counted(host: &MadeUpHost, kills: u64) {
    let all = host.pods_oom(0, kills);
    all.oom(POD, 0, kills).oom(CONTAINER, 0, kills);
}

#[tokio::test(start_paused = true)]
async fn counters_report_kills_after_the_kernel_log_ends_and_without_them_nothing_does() {
    for readable in [true, false] {
        let (kernel, log) = UnixDatagram::pair().unwrap();
        log.set_nonblocking(true).unwrap();
        let host = calm();
        counted(&host, 10);
        if !readable {
            host.remove(COUNTERS);
        }
        let sim = Sim::with(&cluster(), host, |node| {
            each_kill_is_frequent(node.on_log(log))
        })
        .await;
        let view = sim.view();
        pass(Duration::from_secs(30)).await;
        assert_eq!(view.status("FrequentOOMKills"), "False");
        if readable {
            counted(&sim.host, 15);
        }
        // An empty record ends the replacement of the log in some containers.
        kernel.send(b"").unwrap();
        if !readable {
            let (condition, _) = view.becomes("FrequentOOMKills", "Unknown", LOST).await;
            assert_eq!(condition["reason"], "SourceUnavailable");
            continue;
        }
        // Also of those that the log did not record.
        view.becomes("FrequentOOMKills", "True", SAMPLE_INTERVAL * 2 + REGULAR)
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn low_space_is_that_of_the_file_system_of_the_kubelets_directory() {
    let rows = [
        (
            "nodefs.available<99.99%",
            "nodefs.inodesFree<0%",
            "LowSpace",
        ),
        (
            "nodefs.available<0%",
            "nodefs.inodesFree<0%",
            "SpaceAvailable",
        ),
    ];
    for (space, inodes, reason) in rows {
        let sim = Sim::on(&cluster(), |node| {
            let both = format!("{space},{inodes}");
            node.config(|overrides| overrides.eviction_hard = Some(both))
        })
        .await;
        assert_eq!(sim.view().condition("DiskSpaceLow")["reason"], reason);
    }
}

#[tokio::test(start_paused = true)]
async fn a_signal_that_is_off_or_has_no_files_is_unknown_from_the_start() {
    let host = calm();
    host.remove("sys/fs/cgroup");
    let sim = Sim::with(&cluster(), host, Node::on_files).await;
    let of_status = |status: &str| -> Vec<_> {
        let all = types().into_iter();
        all.filter(|type_| sim.view().status(type_) == status)
            .collect()
    };
    let known = [
        "PIDsLow",
        "DiskSpaceLow",
        "DiskIOPressure",
        "DiskFailing",
        "MemoryStallPressure",
        "DiskStallPressure",
    ];
    assert_eq!(of_status("False"), known);
    assert_eq!(of_status("Unknown").len(), 4);
}

/// The reason of each omitted condition in the metrics.
async fn omitted(sim: &Sim) -> Vec<(&'static str, &'static str)> {
    let read = sim.node.scrape().await;
    let mut found = Vec::new();
    for type_ in types() {
        for reason in ["disabled", "no_psi", "cgroup_v1"] {
            let labels = [("type", type_), ("reason", reason)];
            if read.value("nodepulse_condition_omitted", &labels) == Some(1.0) {
                found.push((type_, reason));
            }
        }
    }
    found
}

#[tokio::test(start_paused = true)]
async fn a_condition_whose_source_cannot_exist_is_omitted_and_removed_from_the_node() {
    const OF_NODE: [&str; 2] = ["MemoryStallPressure", "DiskStallPressure"];
    const OF_PODS: [&str; 2] = ["PodsMemoryStallPressure", "PodsDiskStallPressure"];
    let without_psi = MadeUpHost::calm();
    without_psi.remove("proc/pressure");
    let rows = [
        (MadeUpHost::with(Cgroups::V1), "cgroup_v1", &[][..], ""),
        (MadeUpHost::with(Cgroups::Hybrid), "cgroup_v1", &[], ""),
        (without_psi, "no_psi", &OF_NODE, ""),
        (MadeUpHost::calm(), "disabled", &OF_NODE, "false"),
    ];
    for (host, reason, of_node, enabled) in rows {
        // A former run left them on the Node.
        let mut node = kubelets_node();
        let conditions = node["status"]["conditions"].as_array_mut().unwrap();
        for type_ in OF_NODE.into_iter().chain(OF_PODS) {
            conditions.push(json!({ "type": type_, "status": "True" }));
        }
        let api = cluster();
        api.put_object(node);
        let sim = Sim::with(&api, Arc::new(host), |node| {
            node.config(|overrides| {
                overrides.psi_enabled = Some(enabled.to_owned()).filter(|text| !text.is_empty());
            })
        })
        .await;
        let expected: Vec<&str> = of_node.iter().copied().chain(OF_PODS).collect();
        let stored = condition_types(&sim.view().node().unwrap()["status"]);
        for type_ in OF_NODE.into_iter().chain(OF_PODS) {
            let is_omitted = expected.contains(&type_);
            assert_eq!(
                !stored.contains(&type_.to_owned()),
                is_omitted,
                "{reason}: {type_}"
            );
        }
        let with_reason: Vec<_> = expected.iter().map(|type_| (*type_, reason)).collect();
        assert_eq!(omitted(&sim).await, with_reason, "{reason}");
        let off = || Some("PodsDiskStallPressure=false,PodsMemoryStallPressure=true".to_owned());
        sim.node.reload(|now| now.conditions = off()).await;
        pass(Duration::from_secs(2)).await;
        let still = omitted(&sim).await;
        assert!(
            !still.contains(&("PodsDiskStallPressure", reason)),
            "it is off: {still:?}"
        );
        assert!(
            still.contains(&("PodsMemoryStallPressure", reason)),
            "{still:?}"
        );
    }
}
