//! Metrics, `status` and `explain` report the conditions that are on the Node.

use std::sync::Arc;
use std::time::Duration;

use nodepulse_core::clock::BootNanos;
use nodepulse_core::reading::{Stall, StallKind, StallOf};
use nodepulse_core::record::Record;

use nodepulse_tests::node::pass;
use serde_json::Value;

use super::{
    NODE, SAMPLE_INTERVAL, Sim, TRANSITION, calm, cluster, companion, kubelets_node, pods_pressure,
    types,
};

#[tokio::test(start_paused = true)]
async fn every_condition_has_its_metrics_and_readiness_is_that_of_the_first_patch() {
    let api = cluster();
    api.delete_object(NODE);
    let host = calm();
    let node = companion().host(Arc::clone(&host));
    let node = node.start(&api);
    pass(Duration::from_secs(1)).await;
    assert_eq!(node.get("/readyz").await.code, Some(503));
    api.put_object(kubelets_node());
    pass(Duration::from_secs(10)).await;
    assert_eq!(node.get("/readyz").await.code, Some(200));

    pods_pressure(&host, "io", 80.0);
    let stall = Stall::new(StallOf::Pods, StallKind::Io);
    let at = BootNanos(0);
    node.kernel().send_record(Record::Stall { at, stall }).await;
    pass(Duration::from_secs(1)).await;
    let read = node.scrape().await;
    for type_ in types() {
        let is_true = f64::from(u8::from(type_ == "PodsDiskStallPressure"));
        let labels = [("type", type_), ("status", "True")];
        let status = read.value("nodepulse_condition_status", &labels);
        assert_eq!(status, Some(is_true), "{type_}");
        let name = "nodepulse_condition_transitions_total";
        let transitions = read.value(name, &[("type", type_)]);
        assert_eq!(transitions, Some(is_true), "{type_}");
    }
    let name = "nodepulse_condition_status";
    assert_eq!(read.value(name, &[("type", "MemoryPressure")]), None);
    let why = |why| read.value("nodepulse_status_patches_total", &[("why", why)]);
    assert_eq!((why("change"), why("edge")), (Some(1.0), Some(1.0)));
}

#[tokio::test(start_paused = true)]
async fn explain_shows_the_status_on_the_node_if_it_differs() {
    let sim = Sim::start().await;
    pass(Duration::from_mins(1)).await;
    let explained = async || -> Value {
        let body = sim.node.get("/v1/explain").await.body;
        let body: Value = serde_json::from_str(&body).unwrap();
        let mut all = body["conditions"].as_array().unwrap().iter();
        all.find(|c| c["type"] == "PIDsLow").unwrap().clone()
    };
    assert_eq!(explained().await.get("onNode"), None, "the same");
    sim.node.lose();
    sim.node.kernel().crowd().await;
    pass(SAMPLE_INTERVAL).await;
    let condition = explained().await;
    assert_eq!(condition["status"], "True");
    assert_eq!(condition["onNode"]["status"], "False");
    assert_eq!(condition["onNode"]["reason"], "PIDsAvailable");
    sim.node.reach();
    sim.view().becomes("PIDsLow", "True", TRANSITION).await;
    pass(Duration::from_secs(1)).await;
    assert_eq!(explained().await.get("onNode"), None, "the same again");
}
