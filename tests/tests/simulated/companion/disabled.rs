//! Conditions that are turned off are removed.

use std::time::Duration;

use nodepulse_tests::node::pass;
use serde_json::{Value, json};

use super::{
    MEMORY_TAINT, SHORT, Sim, TRANSITION, cluster, grant, kubelets_node, patches, taint_keys,
};

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
