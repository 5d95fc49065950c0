//! Other writers of the same Node lose nothing, and conditions that are turned off are removed.

use std::sync::Arc;
use std::time::Duration;

use nodepulse_tests::SOON;
use nodepulse_tests::api_server::{ApiServer, Effect, Fault, Recorded};
use nodepulse_tests::node::pass;
use serde_json::{Value, json};

use super::{
    Cause, MEMORY_TAINT, NODE, SHORT, Sim, TRANSITION, cluster, grant, kubelets_node, lines,
    patches, taint_keys, theirs, writes_only_nodepulse_fields,
};

/// A client that writes to the Node all the time: its condition, label and taint.
async fn scribble(api: Arc<ApiServer>) {
    for n in 0_u64.. {
        pass(Duration::from_millis(50)).await;
        let Some(mut node) = api.object(NODE) else {
            continue;
        };
        node["metadata"]["labels"]["tick"] = json!(n.to_string());
        let conditions = node["status"]["conditions"].as_array_mut().unwrap();
        conditions.last_mut().unwrap()["message"] = json!(format!("tick {n}"));
        let taints = node["spec"]["taints"].as_array_mut().unwrap();
        taints[0]["value"] = json!(format!("tick-{n}"));
        api.put_object(node);
    }
}

#[tokio::test(start_paused = true)]
async fn with_a_busy_writer_no_write_of_another_client_is_lost_or_repeated() {
    let api = cluster();
    grant(&api, "patch", "nodes");
    let scribbler = tokio::spawn(scribble(Arc::clone(&api)));
    // Two of the agent's requests take longer than a write of another client.
    let slow = |request: &Recorded| request.method == "PATCH";
    let latency = Effect::Latency(Duration::from_millis(30));
    api.faults().push(Fault::when(slow, latency).always());
    let sim = Sim::on(&api, |node| {
        node.config(|overrides| {
            overrides.taints =
                Some("MemoryLow=NoSchedule,DiskIOPressure=PreferNoSchedule".to_owned());
            overrides.eviction_pressure_transition_period = Some("20s".to_owned());
        })
    })
    .await;
    // Each begins in another phase of the other client's writes.
    for cause in [Cause::GlobalKill, Cause::Disk, Cause::Pids, Cause::Kills] {
        sim.begin(cause).await;
        pass(Duration::from_millis(15_015)).await;
        sim.end(cause).await;
        pass(Duration::from_millis(50_015)).await;
    }
    scribbler.abort();
    pass(Duration::from_secs(20)).await;
    let conflicts = api.requests_where(|r| r.path == NODE && r.status == Some(409));
    assert!(
        !conflicts.is_empty(),
        "no other client was quicker: {:#?}",
        lines(&api.requests())
    );
    let node = sim.view().node().unwrap();
    let ticks = &node["metadata"]["labels"]["tick"];
    assert_eq!(
        node["spec"]["taints"],
        json!([{ "key": "dedicated", "value": format!("tick-{}", ticks.as_str().unwrap()), "effect": "NoSchedule" }])
    );
    let mut expected = kubelets_node();
    expected["metadata"]["labels"]["tick"] = ticks.clone();
    expected["spec"]["taints"] = node["spec"]["taints"].clone();
    let message = format!("tick {}", ticks.as_str().unwrap());
    expected["status"]["conditions"][4]["message"] = json!(message);
    assert_eq!(theirs(&node), theirs(&expected));
    assert!(8 <= patches(&api).len());
    writes_only_nodepulse_fields(&api);
}

#[tokio::test(start_paused = true)]
async fn conditions_that_another_client_removes_or_changes_are_corrected_with_the_next_patch() {
    let sim = Sim::start().await;
    pass(Duration::from_secs(60)).await;
    let before = sim.view().condition("MemoryLow");
    let mut node = sim.view().node().unwrap();
    let conditions = node["status"]["conditions"].as_array_mut().unwrap();
    conditions.retain(|condition| condition["type"] != "MemoryLow");
    let changed = conditions.iter_mut().find(|c| c["type"] == "PIDsLow");
    changed.unwrap()["status"] = json!("True");
    sim.api.put_object(node);

    sim.node.kernel().slow_window((8, 0)).await;
    sim.view().becomes("DiskIOPressure", "True", SOON).await;
    let mut after = sim.view().condition("MemoryLow");
    assert_ne!(after["lastHeartbeatTime"], before["lastHeartbeatTime"]);
    after["lastHeartbeatTime"] = before["lastHeartbeatTime"].clone();
    assert_eq!(after, before);
    assert_eq!(sim.view().status("PIDsLow"), "False");
    assert_eq!(sim.view().condition_types().len(), 15);
}

#[tokio::test(start_paused = true)]
async fn a_condition_that_is_turned_off_is_removed_from_the_node_with_its_taint() {
    let api = cluster();
    grant(&api, "patch", "nodes");
    let mut node = kubelets_node();
    let taints = node["spec"]["taints"].as_array_mut().unwrap();
    taints.push(json!({ "key": MEMORY_TAINT, "effect": "NoExecute" }));
    let conditions = node["status"]["conditions"].as_array_mut().unwrap();
    for type_ in ["MemoryLow", "PIDsLow"] {
        conditions.insert(0, json!({ "type": type_, "status": "True" }));
    }
    api.put_object(node);
    let sim = Sim::on(&api, |node| {
        node.config(|overrides| overrides.conditions = Some("MemoryLow=false".to_owned()))
    })
    .await;
    pass(Duration::from_secs(1)).await;
    let types = sim.view().condition_types();
    assert!(!types.contains(&"MemoryLow".to_owned()), "{types:?}");
    assert_eq!((types.len(), types[0].as_str()), (10, "PIDsLow"));
    assert_eq!(taint_keys(sim.view()), ["dedicated"]);
    let deletion = json!({ "type": "MemoryLow", "$patch": "delete" });
    let first = patches(&api).remove(0).body.unwrap();
    let listed = first["status"]["conditions"].as_array().unwrap();
    assert!(listed.contains(&deletion), "{first}");

    sim.host.mem_working_set(SHORT);
    pass(TRANSITION * 2).await;
    assert_eq!(sim.view().condition("MemoryLow"), Value::Null);
    let last = patches(&api).pop().unwrap().body.unwrap();
    assert!(!last.to_string().contains("MemoryLow"), "sent once: {last}");
}
