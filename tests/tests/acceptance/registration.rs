//! The Node is created once, or adopted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nodepulse::Overrides;
use nodepulse_tests::SOON;
use nodepulse_tests::api_server::{ApiServer, Effect, Fault, Recorded};
use nodepulse_tests::days::Stage;
use nodepulse_tests::host_root::MadeUpHost;
use nodepulse_tests::node::{Node, in_memory, pass};
use nodepulse_tests::process::Process;
use nodepulse_tests::view::{NODES, View, moments};
use serde_json::{Value, json};
use tempfile::tempdir;

const ARCH: &str = if cfg!(target_arch = "x86_64") {
    "amd64"
} else {
    "arm64"
};
const ATTACH_DETACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
const TICK: Duration = Duration::from_secs(10);

/// What a new Node was created with.
async fn created(configure: impl FnOnce(&mut Overrides)) -> Value {
    let stage = Stage::open(|node| node.config(configure));
    stage.view().settled(SOON).await;
    stage.view().creates()[0].body.clone().unwrap()
}

/// A Node that ran here before: as an agent left it, and then changed.
async fn left(change: impl FnOnce(&mut Value)) -> Arc<ApiServer> {
    let stage = Stage::open(|node| node);
    stage.view().settled(SOON).await;
    let mut node = stage.view().node().unwrap();
    stage.node.stop().await.unwrap();
    change(&mut node);
    stage.api.put_object(node);
    // Heartbeats differ from here on.
    pass(Duration::from_mins(1)).await;
    stage.api
}

/// An agent that finds this Node, and the requests about it until it has been adopted and its
/// first status was sent.
async fn adopting(
    api: &Arc<ApiServer>,
    configure: impl FnOnce(Node) -> Node,
) -> (Stage, Vec<Recorded>) {
    let before = api.requests().len();
    let stage = Stage::at(api, configure);
    pass(Duration::from_secs(5)).await;
    let mut requests = api.requests().split_off(before);
    requests.retain(|request| {
        request.path.starts_with(NODES) && !request.query.starts_with("watch=true")
    });
    (stage, requests)
}

/// `POST 409 GET 200 PATCH 200`.
fn lines(requests: &[Recorded]) -> String {
    let line = |r: &Recorded| format!("{} {}", r.method, r.status.unwrap_or_default());
    requests.iter().map(line).collect::<Vec<_>>().join(" ")
}

/// In an empty cluster one Node is created, once, with the given name, trimmed and in lower case.
#[tokio::test(start_paused = true)]
async fn a001_one_node_is_created_by_its_name() {
    let api = in_memory();
    let _node = Node::named(" Worker-1\n").start(&api);
    let view = View::of(&api, "worker-1");
    view.settled(SOON).await;
    pass(Duration::from_mins(1)).await;
    assert_eq!(lines(&view.creates()), "POST 201");
    let body = view.creates()[0].body.clone().unwrap();
    assert_eq!(body["metadata"]["name"], "worker-1");
    // The server's release, which is older than the newest that nodepulse reports.
    let version = concat!("v1.33.0+nodepulse.", env!("CARGO_PKG_VERSION"));
    assert_eq!(body["status"]["nodeInfo"]["kubeletVersion"], version);
}

/// The new Node has the labels of host name, system and architecture in Go's names, stable and
/// beta.
#[tokio::test(start_paused = true)]
async fn a002_a_new_node_carries_the_default_labels() {
    let expected = json!({
        "kubernetes.io/hostname": "worker-1",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": ARCH,
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": ARCH,
    });
    assert_eq!(created(|_| ()).await["metadata"]["labels"], expected);
}

/// Configured labels are set, and take precedence over the default ones.
#[tokio::test(start_paused = true)]
async fn a003_given_labels_win() {
    let body = created(|overrides| {
        overrides.node_labels = Some("example.com/rack=7,kubernetes.io/hostname=other".to_owned());
    })
    .await;
    let labels = &body["metadata"]["labels"];
    assert_eq!(labels["example.com/rack"], "7");
    assert_eq!(labels["kubernetes.io/hostname"], "other");
    assert_eq!(labels["kubernetes.io/arch"], ARCH);
    assert_eq!(body["metadata"]["name"], "worker-1");
}

/// A Kubernetes label that a node may not set ends the process before any request.
#[tokio::test]
async fn a004_a_forbidden_label_stops_the_process() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let kubeconfig = api.node_kubeconfig(dir.path(), "worker-1");
    let kubeconfig = kubeconfig.to_str().unwrap();
    let label = |label: &'static str| {
        let args = ["run", "--mode", "node", "--node-name", "worker-1"];
        let further = ["--kubeconfig", kubeconfig, "--kernel-tier", "files"];
        let labels = ["--node-labels", label];
        Process::start([&args[..], &further, &labels].concat())
    };
    for forbidden in ["kubernetes.io/role=a", "x.k8s.io/role=a"] {
        let ended = label(forbidden).ends(SOON).await;
        assert_eq!(ended.code, Some(2), "{forbidden}: {ended:?}");
        assert_eq!(ended.stderr.len(), 1, "{forbidden}: {ended:?}");
    }
    assert_eq!(api.connections().opened, 0);
    // The same call with a label that a node may set gets as far as the server.
    let _allowed = label("node.kubernetes.io/role=a");
    View::of(&api, "worker-1").settled(SOON).await;
}

/// A new Node has the configured taints, in their order, and no such key without any. nodepulse
/// adds another, the last, if Ready is True without a container runtime.
#[tokio::test(start_paused = true)]
async fn a005_a_new_node_has_its_taints_in_order() {
    let taint = |key: &str, value: &str, effect: &str| {
        let mut taint = json!({"key": key, "effect": effect});
        if !value.is_empty() {
            taint["value"] = json!(value);
        }
        taint
    };
    let given = [
        taint("z", "1", "NoSchedule"),
        taint("a", "", "PreferNoSchedule"),
        taint("m", "2", "NoExecute"),
    ];
    let no_runtime = taint("nodepulse.dev/no-runtime", "", "NoSchedule");
    let text = "z=1:NoSchedule,a:PreferNoSchedule,m=2:NoExecute";
    //  taints, Ready without a runtime, then in the request
    let rows = [
        (None, "false", Value::Null),
        (None, "true", json!([no_runtime])),
        (Some(text), "false", json!(given)),
        (
            Some(text),
            "true",
            json!([&given[..], &[no_runtime]].concat()),
        ),
    ];
    for (taints, ready, expected) in rows {
        let body = created(|overrides| {
            overrides.register_with_taints = taints.map(str::to_owned);
            overrides.allow_ready_without_runtime = Some(ready.to_owned());
        })
        .await;
        assert_eq!(body["spec"]["taints"], expected, "{taints:?}, {ready}");
        assert_eq!(
            body["spec"].get("taints").is_some(),
            !expected.is_null(),
            "{taints:?}, {ready}: no key for none"
        );
    }
}

/// A new Node states that the control plane attaches its volumes, unless configured otherwise.
#[tokio::test(start_paused = true)]
async fn a006_volumes_are_attached_by_the_controller_unless_disabled() {
    let rows = [
        (None, Some(json!("true"))),
        (Some("true"), Some(json!("true"))),
        (Some("false"), None),
    ];
    for (option, expected) in rows {
        let body = created(|overrides| {
            overrides.enable_controller_attach_detach = option.map(str::to_owned);
        })
        .await;
        let annotations = body["metadata"].get("annotations");
        let annotation = annotations.and_then(|annotations| annotations.get(ATTACH_DETACH));
        assert_eq!(annotation, expected.as_ref(), "{option:?}");
    }
}

/// A new Node has the configured provider ID, and none if that is empty.
#[tokio::test(start_paused = true)]
async fn a007_the_provider_id_is_as_configured() {
    let rows = [
        (None, None),
        (Some(""), None),
        (Some("metal://rack-7/3"), Some(json!("metal://rack-7/3"))),
    ];
    for (id, expected) in rows {
        let body = created(|overrides| overrides.provider_id = id.map(str::to_owned)).await;
        assert_eq!(body["spec"].get("providerID"), expected.as_ref(), "{id:?}");
    }
}

/// While creating fails, the attempts wait 0.1, 0.2, 0.4 … 6.4 and then 7 seconds.
#[tokio::test(start_paused = true)]
async fn a008_attempts_to_create_are_delayed_longer_and_longer() {
    let waits = [100, 200, 400, 800, 1_600, 3_200, 6_400, 7_000, 7_000, 7_000];
    let tries = waits.len();
    for code in [500, 503] {
        let api = in_memory();
        let times = u32::try_from(tries).unwrap() - 1;
        let only_nodes = |request: &Recorded| request.method == "POST" && request.path == NODES;
        let fault = Fault::when(only_nodes, Effect::Status(code)).times(times);
        api.faults().push(fault);
        let stage = Stage::at(&api, |node| node);
        stage.view().settled(Duration::from_mins(2)).await;

        let mut before = Duration::ZERO;
        for (at, wait) in moments(&stage.view().creates()).into_iter().zip(waits) {
            let (wait, took) = (Duration::from_millis(wait), at - before);
            // Timers have a resolution of a millisecond.
            let expected = wait..=wait + Duration::from_millis(1);
            assert!(expected.contains(&took), "{code}: {took:?}, not {wait:?}");
            before = at;
        }
        assert_eq!(stage.view().creates().len(), tries, "{code}");
        let opened = api.connections().opened;
        assert_eq!(opened, 1, "{code}: a status drops no connection");
    }
}

/// If its Node exists, it reads it once and never tries to create it again.
#[tokio::test(start_paused = true)]
async fn a009_a_node_that_exists_is_read_once() {
    let api = left(|_| ()).await;
    let (stage, requests) = adopting(&api, |node| node).await;
    assert!(
        lines(&requests).starts_with("POST 409 GET 200 "),
        "{}",
        lines(&requests)
    );
    let adopted = requests[1].at;
    pass(Duration::from_mins(2)).await;
    assert_eq!(stage.view().creates().len(), 2, "one by each agent");
    let reads = stage.view().requests("GET", &stage.view().path());
    let reads = moments(&reads).into_iter().filter(|at| adopted <= *at);
    assert_eq!(reads.count(), 1);
}

/// A correct Node is adopted without a patch: the first patch is the first report.
#[tokio::test(start_paused = true)]
async fn a010_a_matching_node_is_not_patched() {
    let api = left(|_| ()).await;
    let (_stage, requests) = adopting(&api, |node| node).await;
    assert_eq!(lines(&requests), "POST 409 GET 200 PATCH 200");
    let report = requests[2].body.clone().unwrap();
    let keys: Vec<_> = report["status"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["$setElementOrder/conditions", "conditions"]);
    assert_eq!(report.as_object().unwrap().len(), 1, "{report}");
}

/// A wrong architecture on the existing Node is corrected with a patch of its status.
#[tokio::test(start_paused = true)]
async fn a011_wrong_default_labels_are_corrected() {
    for label in ["kubernetes.io/arch", "beta.kubernetes.io/arch"] {
        let api = left(|node| node["metadata"]["labels"][label] = json!("s390x")).await;
        let (stage, requests) = adopting(&api, |node| node).await;
        assert_eq!(lines(&requests), "POST 409 GET 200 PATCH 200 PATCH 200");
        assert_eq!(requests[2].path, format!("{NODES}/worker-1/status"));
        let expected = json!({"metadata": {"labels": {label: ARCH}}});
        assert_eq!(requests[2].body.as_ref(), Some(&expected));
        let node = stage.view().node().unwrap();
        assert_eq!(node["metadata"]["labels"][label], ARCH);
    }
}

/// A user's label that is missing on the existing Node is not added.
#[tokio::test(start_paused = true)]
async fn a012_other_labels_are_not_added() {
    let api = left(|_| ()).await;
    let (stage, _) = adopting(&api, |node| {
        node.config(|overrides| overrides.node_labels = Some("example.com/rack=7".to_owned()))
    })
    .await;
    pass(Duration::from_mins(1)).await;
    let node = stage.view().node().unwrap();
    assert_eq!(node["metadata"]["labels"].get("example.com/rack"), None);
}

/// Taints of an existing Node remain unchanged, and are in no request.
#[tokio::test(start_paused = true)]
async fn a013_taints_that_exist_are_left_alone() {
    let theirs = json!([{"key": "theirs", "effect": "NoExecute"}]);
    let api = left(|node| {
        node["spec"]["taints"] = theirs.clone();
        node["metadata"]["labels"]["kubernetes.io/os"] = json!("plan9");
    })
    .await;
    let before = api.requests().len();
    let (stage, requests) = adopting(&api, |node| {
        node.config(|overrides| {
            overrides.register_with_taints = Some("nodepulse:NoSchedule".to_owned())
        })
    })
    .await;
    assert_eq!(requests[0].method, "POST");
    pass(Duration::from_mins(10)).await;
    let after = api.requests().split_off(before);
    for request in after.iter().filter(|request| request.method != "POST") {
        let body = request.body.clone().unwrap_or_default().to_string();
        assert!(!body.contains("taints"), "{request}: {body}");
    }
    assert_eq!(stage.view().node().unwrap()["spec"]["taints"], theirs);
}

/// Huge pages of a size that this machine does not have are removed from the existing Node.
#[tokio::test(start_paused = true)]
async fn a014_stale_huge_pages_are_removed() {
    const REMOVED_SIZE: &str = "hugepages-1Gi";
    let api = left(|_| ()).await;
    let view = View::of(&api, "worker-1");
    for map in ["capacity", "allocatable"] {
        assert!(
            view.node().unwrap()["status"][map]
                .get(REMOVED_SIZE)
                .is_some()
        );
    }
    let host = Arc::new(MadeUpHost::calm());
    host.remove("sys/kernel/mm/hugepages/hugepages-1048576kB");
    let stage = Stage::on(&api, host, |node| node);
    pass(Duration::from_secs(5)).await;
    for map in ["capacity", "allocatable"] {
        let map = &stage.view().node().unwrap()["status"][map];
        assert_eq!(map.get(REMOVED_SIZE), None);
        assert!(map.get("hugepages-2Mi").is_some(), "{map}");
    }
}

/// Extended resources of an existing Node are set to zero, unless a device manager left a
/// checkpoint on this machine.
#[tokio::test(start_paused = true)]
async fn a015_extended_resources_are_zeroed_on_a_new_machine() {
    const CHECKPOINT: &str = "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint";
    for (checkpoint, expected) in [(false, "0"), (true, "4")] {
        let api = left(|node| {
            node["status"]["capacity"]["example.com/dongle"] = json!("4");
            node["status"]["allocatable"]["example.com/dongle"] = json!("4");
        })
        .await;
        let host = Arc::new(MadeUpHost::calm());
        if checkpoint {
            host.write(CHECKPOINT, "{}");
        }
        let stage = Stage::on(&api, host, |node| node);
        pass(Duration::from_secs(30)).await;
        let status = &stage.view().node().unwrap()["status"];
        for map in ["capacity", "allocatable"] {
            assert_eq!(status[map]["example.com/dongle"], expected, "{checkpoint}");
        }
    }
}

/// Without permission to create, but to read: it continues as if the Node existed.
#[tokio::test(start_paused = true)]
async fn a016_without_permission_to_create_it_adopts() {
    let api = left(|_| ()).await;
    api.faults()
        .push(Fault::on("POST", NODES, Effect::Status(403)).always());
    let (stage, requests) = adopting(&api, |node| node).await;
    assert_eq!(lines(&requests), "POST 403 GET 200 PATCH 200");
    let renewals = stage.view().renewals().len();
    pass(TICK * 3).await;
    assert!(renewals < stage.view().renewals().len(), "its Lease too");
}

/// A Node that is deleted while the agent runs is not created again; it is read once a tick.
#[tokio::test(start_paused = true)]
async fn a017_a_deleted_node_is_not_created_again() {
    let stage = Stage::open(|node| node);
    let view = stage.view();
    view.settled(SOON).await;
    pass(TICK * 2).await;
    stage.api.delete_object(&view.path()).unwrap();
    let from = stage.api.now();
    pass(TICK * 12).await;
    assert_eq!((view.node(), view.creates().len()), (None, 1));
    let reads = view.requests("GET", &view.path());
    let mut ticks = BTreeMap::<Duration, usize>::new();
    for at in moments(&reads).into_iter().filter(|at| from < *at) {
        *ticks.entry(at).or_default() += 1;
    }
    assert!((11..=12).contains(&ticks.len()), "{ticks:?}");
    assert!(ticks.values().all(|tries| *tries <= 5), "{ticks:?}");
    // Another client's new one is maintained.
    let fresh = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-1"}});
    stage.api.put_object(fresh);
    view.becomes("Ready", "True", TICK * 2).await;
}

/// Without registration, it never creates a Node, and maintains the status of an existing one.
#[tokio::test(start_paused = true)]
async fn a018_without_registration_it_maintains_the_status() {
    let stage = Stage::open(|node| {
        node.config(|overrides| overrides.register_node = Some("false".to_owned()))
    });
    let view = stage.view();
    pass(Duration::from_mins(1)).await;
    let fresh = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-1"}});
    stage.api.put_object(fresh);
    view.becomes("Ready", "True", TICK * 2).await;
    pass(Duration::from_mins(10)).await;
    assert_eq!(view.creates().len(), 0);
    assert!(2 <= view.patches().len());
}
