//! What a patch of the status contains.

use std::collections::BTreeSet;
use std::time::Duration;

use nodepulse_tests::SOON;
use nodepulse_tests::days::Stage;
use nodepulse_tests::node::{in_memory, pass};
use nodepulse_tests::view::NODES;
use serde_json::{Value, json};

use super::status_loop::{
    CONDITION_TYPES, FEW, STATUS, TICK, TRANSITION, bodies, busy, calm, change, conditions,
};

/// Every patch is a strategic merge patch of the status.
#[tokio::test(start_paused = true)]
async fn a027_patches_are_strategic_merges_of_the_status() {
    let stage = busy().await;
    let patches = stage
        .api
        .requests_where(|request| request.method == "PATCH");
    let of_nodes = patches.iter().filter(|patch| patch.path.starts_with(NODES));
    for patch in of_nodes {
        assert_eq!(patch.path, STATUS);
        let type_ = &patch.headers["content-type"];
        assert_eq!(type_, "application/strategic-merge-patch+json");
    }
}

/// No patch contains a part of the spec, or a version.
#[tokio::test(start_paused = true)]
async fn a028_patches_contain_no_spec_and_no_version() {
    for body in bodies(&busy().await) {
        assert_eq!(body.get("spec"), None, "{body}");
        assert_eq!(body["metadata"].get("resourceVersion"), None, "{body}");
    }
}

/// A patch of conditions lists all types, in their order.
#[tokio::test(start_paused = true)]
async fn a029_patches_contain_the_order_of_all_conditions() {
    let stage = calm().await;
    change(&stage, |node| {
        let theirs = json!({"type": "KernelDeadlock", "status": "False"});
        let list = node["status"]["conditions"].as_array_mut().unwrap();
        list.insert(1, theirs);
    });
    pass(Duration::from_secs(1)).await;
    let before = stage.view().patches().len();
    stage.node.kernel().crowd().await;
    stage.view().becomes("PIDPressure", "True", SOON).await;
    pass(TRANSITION * 2).await;
    let mut expected = CONDITION_TYPES.to_vec();
    expected.insert(1, "KernelDeadlock");
    let bodies = bodies(&stage).split_off(before);
    assert!(2 <= bodies.len());
    for body in bodies {
        let order = body["status"]["$setElementOrder/conditions"].as_array();
        let order: Vec<_> = order.unwrap().iter().map(|entry| &entry["type"]).collect();
        assert_eq!(order, expected, "{body}");
    }
}

/// Addresses that differ are replaced as a list.
#[tokio::test(start_paused = true)]
async fn a030_addresses_are_replaced_as_a_list() {
    let stage = calm().await;
    let view = stage.view();
    let whole = view.node().unwrap()["status"]["addresses"].clone();
    change(&stage, |node| {
        node["status"]["addresses"] = json!([
            {"type": "InternalIP", "address": "198.51.100.7"},
            {"type": "InternalIP", "address": "198.51.100.8"},
        ]);
    });
    let before = view.patches().len();
    pass(TICK).await;
    let body = bodies(&stage).split_off(before).remove(0);
    let mut expected = whole.as_array().unwrap().clone();
    expected.push(json!({"$patch": "replace"}));
    assert_eq!(body["status"]["addresses"], Value::Array(expected));
    assert_eq!(view.node().unwrap()["status"]["addresses"], whole);
}

/// Conditions of other clients are preserved, byte for byte, and are in no patch.
#[tokio::test(start_paused = true)]
async fn a031_conditions_of_other_clients_are_not_changed() {
    let api = in_memory();
    let theirs = json!({
        "type": "KernelDeadlock", "status": "False", "reason": "KernelHasNoDeadlock",
        "message": "  kept \"as is\" \u{1F600}", "lastHeartbeatTime": "2025-12-31T23:59:59Z",
        "lastTransitionTime": "2025-12-31T23:59:59Z",
    });
    api.put_object(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-1"},
        "status": {"conditions": [theirs]},
    }));
    let stage = Stage::at(&api, |node| node);
    let view = stage.view();
    view.settled(SOON).await;
    stage.node.kernel().crowd().await;
    view.becomes("PIDPressure", "True", SOON).await;
    stage.host.tasks(FEW);
    view.becomes("PIDPressure", "False", TRANSITION * 2).await;

    let stored = view.condition("KernelDeadlock");
    assert_eq!(stored.to_string(), theirs.to_string());
    for body in bodies(&stage) {
        let written = body["status"]["conditions"].to_string();
        assert!(!written.contains("KernelDeadlock"), "{body}");
    }
}

/// All conditions have one heartbeat in one patch.
#[tokio::test(start_paused = true)]
async fn a033_one_heartbeat_for_all() {
    let stage = busy().await;
    let mut beats = 0;
    for body in bodies(&stage) {
        let list = conditions(&body);
        let types: BTreeSet<_> = list.iter().map(|c| c["type"].to_string()).collect();
        let times: BTreeSet<_> = list
            .iter()
            .map(|c| c["lastHeartbeatTime"].to_string())
            .collect();
        assert_eq!(
            (types.len(), times.len()),
            (CONDITION_TYPES.len(), 1),
            "{body}"
        );
        beats += 1;
    }
    assert!(5 <= beats);
}

/// A patch without a change contains the heartbeat times and the order, and nothing else.
#[tokio::test(start_paused = true)]
async fn a033_a_heartbeat_patch_changes_heartbeat_times_only() {
    let stage = calm().await;
    let before = bodies(&stage).len();
    pass(Duration::from_mins(11)).await;
    let bodies = bodies(&stage).split_off(before);
    assert!(2 <= bodies.len());
    for body in bodies {
        let beat = body["status"]["conditions"][0]["lastHeartbeatTime"].clone();
        let mut listed = conditions(&body);
        listed.sort_by_key(ToString::to_string);
        let same = |type_| json!({"type": type_, "lastHeartbeatTime": beat});
        let mut expected = CONDITION_TYPES.map(same);
        expected.sort_by_key(ToString::to_string);
        assert_eq!(listed, expected);
        let status = body["status"].as_object().unwrap();
        assert_eq!(
            (body.as_object().unwrap().len(), status.len()),
            (1, 2),
            "{body}"
        );
    }
}

/// A transition time changes with the status, and with nothing else.
#[tokio::test(start_paused = true)]
async fn a034_transition_times_change_with_the_status_only() {
    let stage = calm().await;
    let view = stage.view();
    let times = || CONDITION_TYPES.map(|type_| view.condition(type_)["lastTransitionTime"].clone());
    let first = times();
    pass(TRANSITION * 2).await;
    assert_eq!(times(), first, "heartbeats");
    let crossed = stage.api.wall();
    stage.node.kernel().crowd().await;
    view.becomes("PIDPressure", "True", SOON).await;
    let up = times();
    let moved = |before: &[Value; 6], after: &[Value; 6]| {
        let pairs = CONDITION_TYPES.into_iter().zip(before.iter().zip(after));
        pairs
            .filter(|(_, (before, after))| before != after)
            .map(|(type_, _)| type_)
            .collect::<Vec<_>>()
    };
    assert_eq!(moved(&first, &up), ["PIDPressure"]);
    let second = format!(":{:02}Z", crossed.as_secs() % 60);
    assert!(up[2].as_str().unwrap().ends_with(&second), "{}", up[2]);
    // New words under an old status are no transition.
    change(&stage, |node| {
        node["status"]["conditions"][5]["message"] = json!("theirs")
    });
    pass(TICK).await;
    assert_eq!(
        view.condition("Ready")["message"],
        "kubelet is posting ready status"
    );
    assert_eq!(times(), up);
}

/// A quantity that the server writes in another notation is no change.
#[tokio::test(start_paused = true)]
async fn a035_another_spelling_is_no_change() {
    let stage = calm().await;
    let before = stage.view().patches().len();
    change(&stage, |node| {
        assert_eq!(node["status"]["capacity"]["memory"], "16Gi");
        node["status"]["capacity"]["memory"] = json!("16777216Ki");
        node["status"]["capacity"]["cpu"] = json!("2000m");
    });
    pass(TICK * 3).await;
    assert_eq!(stage.view().patches().len(), before);
    change(&stage, |node| {
        node["status"]["capacity"]["memory"] = json!("16777217Ki")
    });
    pass(TICK).await;
    assert_eq!(
        stage.view().patches().len(),
        before + 1,
        "another number is"
    );
}

/// An annotation that another client changes is no reason to write.
#[tokio::test(start_paused = true)]
async fn a036_annotations_of_other_clients_are_no_change() {
    let stage = calm().await;
    let before = stage.view().patches().len();
    change(&stage, |node| {
        let annotations = &mut node["metadata"]["annotations"];
        annotations["example.com/of"] = json!("others");
        annotations["volumes.kubernetes.io/controller-managed-attach-detach"] = json!("no");
    });
    pass(TICK * 6).await;
    assert_eq!(stage.view().patches().len(), before);
}

/// A deleted label for system or architecture is restored within one tick.
#[tokio::test(start_paused = true)]
async fn a037_deleted_stable_labels_are_restored() {
    for label in ["kubernetes.io/os", "kubernetes.io/arch"] {
        let stage = calm().await;
        let original = stage.view().node().unwrap()["metadata"]["labels"].clone();
        change(&stage, |node| {
            let labels = node["metadata"]["labels"].as_object_mut().unwrap();
            labels.remove(label).unwrap();
        });
        pass(TICK).await;
        let labels = &stage.view().node().unwrap()["metadata"]["labels"];
        assert_eq!(*labels, original, "{label}");
    }
}

/// Conditions that the control plane has set to Unknown are corrected within one tick, with an
/// Event.
#[tokio::test(start_paused = true)]
async fn a038_unknown_conditions_are_corrected() {
    let stage = calm().await;
    let view = stage.view();
    assert_eq!(
        view.event_reasons().iter().find(|r| *r == "NodeReady"),
        None
    );
    let events = view.event_reasons();
    change(&stage, |node| {
        // As the node lifecycle controller does: it knows of four.
        for n in [0, 1, 2, 5] {
            let condition = &mut node["status"]["conditions"][n];
            condition["status"] = json!("Unknown");
            condition["reason"] = json!("NodeStatusUnknown");
            condition["message"] = json!("Kubelet stopped posting node status.");
        }
    });
    pass(TICK).await;
    let statuses = CONDITION_TYPES.map(|type_| view.status(type_));
    assert_eq!(
        statuses,
        ["False", "False", "False", "False", "False", "True"]
    );
    assert_eq!(view.condition("Ready")["reason"], "KubeletReady");
    assert_eq!(
        view.condition("PIDPressure")["reason"],
        "KubeletHasSufficientPID"
    );
    let expected = [
        "NodeHasNoDiskPressure",
        "NodeHasSufficientMemory",
        "NodeHasSufficientPID",
        "NodeReady",
    ];
    for reason in expected {
        view.event(reason, SOON).await;
    }
    let mut all = [events, expected.map(str::to_owned).to_vec()].concat();
    all.sort();
    all.dedup();
    let mut now = view.event_reasons();
    now.dedup();
    assert_eq!(now, all);
}
