use std::time::Duration;

use nodepulse_linux::cri::messages::{
    ListImagesResponse, RuntimeStatus, StatusResponse, VersionResponse,
};

use nodepulse_tests::SOON;
use nodepulse_tests::cri_server::{CriServer, condition, image, status as runtime_status};
use nodepulse_tests::days::Stage;
use nodepulse_tests::made_up;
use nodepulse_tests::node::pass;
use serde_json::{Value, json};

use super::{ready, stage, stage_with, status};

#[tokio::test(start_paused = true)]
async fn a_new_node_has_what_its_runtime_reports() {
    let runtime = CriServer::ready();
    let stage = stage(&runtime);
    stage.view().settled(SOON).await;
    let message = ready(&stage, "True", SOON).await;
    assert_eq!(message, "kubelet is posting ready status");
    let status = status(&stage);
    assert_eq!(
        status["nodeInfo"]["containerRuntimeVersion"],
        "containerd://2.1.4"
    );
    let images = json!([{ "names": ["example.com/a:1"], "sizeBytes": 7 }]);
    assert_eq!(status["images"], images);
    let handler = |name: &str, user_namespaces: bool| {
        json!({ "name": name, "features": {
            "recursiveReadOnlyMounts": true, "userNamespaces": user_namespaces } })
    };
    let handlers = json!([handler("", true), handler("runc", false)]);
    assert_eq!(status["runtimeHandlers"], handlers, "sorted by name");
    assert_eq!(
        status["features"],
        json!({ "supplementalGroupsPolicy": true })
    );
    assert_eq!(stage.view().creates().len(), 1);
    assert!(
        stage.view().patches().len() <= 1,
        "the new Node has all of it"
    );
}

#[tokio::test(start_paused = true)]
async fn node_status_max_images_is_the_limit() {
    //  nodeStatusMaxImages, reported of 60
    for (max, expected) in [("-1", 60), ("0", 0), ("1", 1), ("60", 60), ("50", 50)] {
        let runtime = CriServer::ready();
        runtime.images((0..60).map(made_up::image).collect());
        let stage = stage_with(&runtime, |node| {
            node.config(|overrides| overrides.node_status_max_images = Some(max.to_owned()))
        });
        stage.view().settled(SOON).await;
        let images = status(&stage)["images"].clone();
        let count = images.as_array().map_or(0, Vec::len);
        assert_eq!(count, expected, "{max}");
        stage.node.stop().await.unwrap();
    }
}

/// As containerd 1.6, which has neither handlers nor features, and is packaged as `1.6.20~ds1`.
#[tokio::test(start_paused = true)]
async fn an_older_runtime_is_understood() {
    let runtime = CriServer::ready();
    let version = VersionResponse {
        runtime_name: "containerd".to_owned(),
        runtime_version: "1.6.20~ds1".to_owned(),
    };
    runtime.answer("Version", &version);
    let conditions = vec![
        condition("RuntimeReady", true),
        condition("NetworkReady", true),
    ];
    runtime.answer(
        "Status",
        &StatusResponse {
            status: Some(RuntimeStatus { conditions }),
            ..StatusResponse::default()
        },
    );
    runtime.answer("ListImages", &ListImagesResponse::default());
    let stage = stage(&runtime);
    ready(&stage, "True", SOON).await;
    let status = status(&stage);
    assert_eq!(
        status["nodeInfo"]["containerRuntimeVersion"],
        "containerd://1.6.20"
    );
    for absent in ["images", "runtimeHandlers", "features"] {
        assert_eq!(status[absent], Value::Null, "{absent}");
    }
}

/// Text of the runtime cannot imitate other text, or grow without a limit.
#[tokio::test(start_paused = true)]
async fn hostile_text_is_escaped_and_cut() {
    let runtime = CriServer::ready();
    let mut answer = runtime_status(true, false);
    let network = &mut answer.status.as_mut().unwrap().conditions[1];
    network.reason = "\u{1b}[2J".to_owned();
    network.message = "x".repeat(10_000);
    runtime.answer("Status", &answer);
    runtime.images(vec![
        image("a", "no name", 1),
        image("b", &"y".repeat(9000), 2),
    ]);
    let stage = stage(&runtime);
    let message = ready(&stage, "False", SOON).await;
    assert!(
        message.contains(r"reason:\u{1b}[2J message:xxx"),
        "{message}"
    );
    assert!(message.len() < 500, "{} bytes", message.len());
    let images = json!([{ "names": null, "sizeBytes": 2 }, { "names": null, "sizeBytes": 1 }]);
    assert_eq!(status(&stage)["images"], images);
}

#[tokio::test(start_paused = true)]
async fn ready_does_not_depend_on_a_runtime_that_is_not_required() {
    let runtime = CriServer::ready();
    runtime.answer("Status", &runtime_status(false, false));
    let stage = stage_with(&runtime, |node| {
        node.config(|overrides| overrides.allow_ready_without_runtime = Some("true".to_owned()))
    });
    ready(&stage, "True", SOON).await;
    assert_eq!(status(&stage)["images"].as_array().unwrap().len(), 1);
    let taints = &stage.view().node().unwrap()["spec"]["taints"];
    assert_eq!(taints[0]["key"], "nodepulse.dev/no-runtime");
}

#[tokio::test(start_paused = true)]
async fn companion_mode_does_not_use_the_runtime() {
    let runtime = CriServer::ready();
    let stage = Stage::open(|node| {
        node.runtime(&runtime)
            .config(|overrides| overrides.mode = Some("companion".to_owned()))
    });
    pass(Duration::from_mins(1)).await;
    assert_eq!(runtime.connections(), 0);
    stage.node.stop().await.unwrap();
}
