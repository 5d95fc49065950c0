//! The configuration, read again while the agent runs; what it answers about itself; and one sync.

use std::time::Duration;

use nodepulse_tests::SOON;
use nodepulse_tests::api_server::{Effect, Fault};
use nodepulse_tests::host_root::MadeUpHost;
use nodepulse_tests::node::{Node, Running, in_memory, pass};
use nodepulse_tests::view::View;
use serde_json::Value;

const RELOADS: &str = "nodepulse_config_reloads_total";

/// Simulated time waits for the helper thread.
async fn reloads(node: &Running, result: &str, count: f64) {
    pass(Duration::from_millis(1)).await;
    let read = node.scrape().await;
    assert_eq!(
        read.value(RELOADS, &[("result", result)]),
        Some(count),
        "{result}"
    );
}

async fn asked(node: &Running, path: &str) -> Value {
    let answer = node.get(path).await;
    assert_eq!(answer.code, Some(200), "{answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// A capacity of 1000 pids, 100 in use.
fn crowded() -> MadeUpHost {
    let host = MadeUpHost::calm();
    host.tasks(100).pid_max(1_000);
    host
}

#[tokio::test(start_paused = true)]
async fn a_new_threshold_applies_at_once_and_an_invalid_one_changes_nothing() {
    let api = in_memory();
    let node = Node::named("worker-1")
        .hard("pid.available<10%")
        .host(crowded())
        .start(&api);
    let view = View::of(&api, "worker-1");
    view.settled(SOON).await;
    assert_eq!(view.status("PIDPressure"), "False");

    let before = api.now();
    node.reload(|now| now.eviction_hard = text("pid.available<95%"))
        .await;
    let (_, at) = view.becomes("PIDPressure", "True", SOON).await;
    assert!(at - before < Duration::from_millis(1), "{:?}", at - before);
    reloads(&node, "applied", 1.0).await;

    node.reload(|now| now.eviction_hard = text("pid.available<lots"))
        .await;
    reloads(&node, "refused", 1.0).await;
    let threshold = [("signal", "pid.available")];
    let read = node.scrape().await;
    let name = "nodepulse_signal_threshold";
    assert_eq!(
        read.value(name, &threshold),
        Some(949.0),
        "the last good one"
    );

    node.reload(|now| now.eviction_hard = text("pid.available<95%"))
        .await;
    reloads(&node, "unchanged", 1.0).await;
    node.reload(|now| now.eviction_hard = text("pid.available<0%"))
        .await;
    reloads(&node, "applied", 2.0).await;
    pass(Duration::from_secs(15)).await;
    let read = node.scrape().await;
    assert_eq!(read.value(name, &threshold), None, "there is none any more");
}

#[tokio::test(start_paused = true)]
async fn changes_that_need_a_restart_wait_and_others_do_not() {
    let api = in_memory();
    let node = Node::named("worker-1").host(crowded()).start(&api);
    let view = View::of(&api, "worker-1");
    view.settled(SOON).await;
    node.reload(|now| {
        now.mode = text("companion");
        now.kernel_tier = text("files");
        now.eviction_hard = text("pid.available<95%");
        now.max_pods = text("7");
    })
    .await;
    reloads(&node, "needs_restart", 1.0).await;
    view.becomes("PIDPressure", "True", SOON).await;
    pass(Duration::from_secs(11)).await;
    assert_eq!(view.node().unwrap()["status"]["capacity"]["pods"], "7");
    let renewed = view.renewals().len();
    pass(Duration::from_secs(30)).await;
    assert_eq!(view.renewals().len(), renewed + 3, "node mode as before");
}

#[tokio::test(start_paused = true)]
async fn a_shorter_transition_period_ends_a_condition_sooner() {
    let api = in_memory();
    let host = std::sync::Arc::new(crowded());
    let node = Node::named("worker-1")
        .hard("pid.available<95%")
        .host(std::sync::Arc::clone(&host))
        .start(&api);
    let view = View::of(&api, "worker-1");
    view.becomes("PIDPressure", "True", SOON).await;
    host.tasks(10);
    pass(Duration::from_secs(60)).await;
    assert_eq!(view.status("PIDPressure"), "True", "for five minutes");
    node.reload(|now| now.eviction_pressure_transition_period = text("30s"))
        .await;
    reloads(&node, "applied", 1.0).await;
    view.becomes("PIDPressure", "False", SOON).await;
}

#[tokio::test(start_paused = true)]
async fn its_reported_status_is_that_of_the_api_server() {
    let api = in_memory();
    let host = std::sync::Arc::new(crowded());
    let node = Node::named("worker-1")
        .hard("pid.available<10%")
        .host(std::sync::Arc::clone(&host))
        .start(&api);
    let view = View::of(&api, "worker-1");
    view.settled(SOON).await;
    pass(Duration::from_secs(60)).await;
    host.tasks(950);
    view.becomes("PIDPressure", "True", Duration::from_secs(20))
        .await;
    pass(Duration::from_secs(5)).await;

    let status = asked(&node, "/v1/status").await;
    let stored = view.node().unwrap()["status"].clone();
    for part in ["addresses", "capacity", "allocatable", "nodeInfo"] {
        assert_eq!(status[part], stored[part], "{part}");
    }
    let conditions = status["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 6);
    for condition in conditions {
        let stored = view.condition(condition["type"].as_str().unwrap());
        for part in ["status", "reason", "message", "lastTransitionTime"] {
            assert_eq!(condition[part], stored[part], "{part} of {condition}");
        }
    }

    let condition = asked(&node, "/v1/explain").await;
    assert_eq!(condition["node"], "worker-1");
    let of = |type_: &str| {
        let mut all = condition["conditions"].as_array().unwrap().iter();
        all.find(|condition| condition["type"] == type_)
            .unwrap()
            .clone()
    };
    let pids = of("PIDPressure");
    let signal = &pids["signals"][0];
    assert_eq!(
        (
            &signal["signal"],
            &signal["available"],
            &signal["threshold"]
        ),
        (&"pid.available".into(), &50.into(), &100.into())
    );
    assert_eq!(signal["below"], true);
    assert_eq!(
        pids["since"],
        view.condition("PIDPressure")["lastTransitionTime"]
    );
    assert_eq!(
        pids["because"][0],
        "pid.available was 50, below the threshold 100"
    );
    assert_eq!(pids["changes"][0]["from"], "False");
    assert!(pids["endsNotBefore"].is_string());
    assert_eq!(of("MemoryPressure").get("endsNotBefore"), None);
    assert_eq!(of("DiskIOPressure")["status"], "False");
}

#[tokio::test(start_paused = true)]
async fn run_once_fails_if_the_status_cannot_be_written() {
    let api = in_memory();
    let node = Node::named("worker-1").once().out_of_reach().start(&api);
    pass(Duration::from_secs(31)).await;
    let err = node.ended().await.unwrap_err();
    assert!(err.to_string().contains("status"), "{err}");

    let refused = [
        ("PATCH", "/api/v1/nodes/worker-1/status", "status"),
        ("PUT", "/apis/coordination", "lease"),
    ];
    for (method, path, what) in refused {
        let api = in_memory();
        Node::named("worker-1")
            .once()
            .start(&api)
            .ended()
            .await
            .unwrap();
        pass(Duration::from_secs(10)).await;
        api.faults()
            .push(Fault::on(method, path, Effect::Status(403)).always());
        let node = Node::named("worker-1").once().start(&api);
        pass(Duration::from_secs(31)).await;
        let err = node.ended().await.unwrap_err();
        assert!(
            err.to_string().starts_with(&format!("the {what} ")),
            "{err}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_configuration_is_reported_by_readyz_until_a_valid_one_is_read() {
    let api = in_memory();
    let node = Node::named("worker-1").host(crowded()).start(&api);
    View::of(&api, "worker-1").settled(SOON).await;
    assert_eq!(node.get("/readyz").await.code, Some(200));
    let gauges = async || {
        let read = node.scrape().await;
        let value = |name: &str| {
            let name = format!("nodepulse_config_last_reload_{name}");
            read.value(&name, &[]).unwrap()
        };
        (value("successful"), value("success_timestamp_seconds"))
    };
    let (successful, read_at) = gauges().await;
    assert_eq!(successful, 1.0);
    pass(Duration::from_secs(5)).await;

    node.reload(|now| now.eviction_hard = text("pid.available<lots"))
        .await;
    reloads(&node, "refused", 1.0).await;
    let refused = node.get("/readyz").await;
    assert_eq!(refused.code, Some(503));
    for words in ["the configuration is refused", "evictionHard", "lots"] {
        assert!(refused.body.contains(words), "{refused:?}");
    }
    assert_eq!(node.get("/livez").await.code, Some(200), "no restart");
    assert_eq!(gauges().await, (0.0, read_at));

    node.reload(|now| now.eviction_hard = text("pid.available<95%"))
        .await;
    reloads(&node, "applied", 1.0).await;
    assert_eq!(node.get("/readyz").await.code, Some(200));
    let (successful, read_again) = gauges().await;
    assert_eq!(successful, 1.0);
    assert!(read_again >= read_at + 5.0, "{read_at} {read_again}");
}
