use std::time::Duration;

use nodepulse_linux::cri::messages::{
    ListImagesResponse, RuntimeStatus, StatusResponse, VersionResponse,
};

use nodepulse_tests::SOON;
use nodepulse_tests::cri_server::{CriServer, condition, image, status as runtime_status};
use nodepulse_tests::days::Stage;
use nodepulse_tests::made_up;
use nodepulse_tests::node::pass;
use prost::Message;
use serde_json::{Value, json};

use super::{REGULAR, ready, stage, stage_with, status};

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
async fn the_runtime_is_checked_every_ten_seconds_over_one_connection() {
    let runtime = CriServer::ready();
    let stage = stage(&runtime);
    stage.view().settled(SOON).await;
    assert_eq!(
        runtime.take_calls(),
        ["Version", "Status", "ImageFsInfo", "ListImages"]
    );
    pass(Duration::from_mins(10)).await;
    let calls = runtime.take_calls();
    let count = |call: &str| calls.iter().filter(|one| *one == call).count();
    assert!((59..=61).contains(&count("Status")), "{}", count("Status"));
    assert!(
        (19..=21).contains(&count("ListImages")),
        "{}",
        count("ListImages")
    );
    assert_eq!((count("Version"), runtime.connections()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_list_of_images_is_not_sent_again() {
    let runtime = CriServer::ready();
    let mut images: Vec<_> = (0..500).map(made_up::image).collect();
    // Its name was given to a newer image.
    images[498].repo_tags.clear();
    images[498].repo_digests.clear();
    runtime.images(images.clone());
    let stage = stage(&runtime);
    stage.view().settled(SOON).await;
    // Past the first patch of a new Node.
    pass(Duration::from_secs(30)).await;
    let before = stage.view().patches().len();
    let reported = status(&stage)["images"].clone();
    assert_eq!(reported.as_array().unwrap().len(), 50);
    assert_eq!(reported[0]["sizeBytes"], 500 << 20, "the largest first");
    assert!(reported[1]["names"].is_null());

    // A runtime lists images and names in any order.
    let mut reversed = images.clone();
    reversed.reverse();
    for image in &mut reversed {
        image.repo_tags.reverse();
    }
    runtime.images(reversed);
    pass(Duration::from_secs(100)).await;
    assert_eq!(stage.view().patches().len(), before);

    let mut changed = images;
    changed[499].size += 1;
    runtime.images(changed);
    pass(Duration::from_secs(41)).await;
    assert_eq!(stage.view().patches().len(), before + 1);
    assert_eq!(status(&stage)["images"][0]["sizeBytes"], (500 << 20) + 1);
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

/// Fields that this agent does not know, as a newer runtime has them.
#[derive(Clone, PartialEq, Message)]
struct NewerVersion {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(string, tag = "2")]
    runtime_name: String,
    #[prost(string, tag = "3")]
    runtime_version: String,
    #[prost(string, tag = "4")]
    runtime_api_version: String,
    #[prost(fixed64, tag = "999")]
    unknown: u64,
}

#[derive(Clone, PartialEq, Message)]
struct NewerImages {
    #[prost(message, repeated, tag = "1")]
    images: Vec<NewerImage>,
    #[prost(bytes, tag = "77")]
    unknown: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct NewerImage {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, repeated, tag = "2")]
    repo_tags: Vec<String>,
    #[prost(uint64, tag = "4")]
    size: u64,
    #[prost(string, tag = "6")]
    username: String,
    #[prost(bool, tag = "8")]
    pinned: bool,
    #[prost(fixed32, tag = "99")]
    unknown: u32,
}

#[tokio::test(start_paused = true)]
async fn a_newer_runtime_is_understood() {
    let runtime = CriServer::ready();
    let version = NewerVersion {
        version: "0.1.0".to_owned(),
        runtime_name: "cri-o".to_owned(),
        runtime_version: "9.0.0-rc.1".to_owned(),
        runtime_api_version: "v1".to_owned(),
        unknown: 7,
    };
    runtime.answer("Version", &version);
    let images = (0..9).map(|n| NewerImage {
        id: format!("sha256:{n}"),
        repo_tags: vec![format!("example.com/{n}:1")],
        size: n,
        username: "root".to_owned(),
        pinned: true,
        unknown: 7,
    });
    let images = NewerImages {
        images: images.collect(),
        unknown: vec![7; 5000],
    };
    runtime.answer("ListImages", &images);
    let stage = stage(&runtime);
    ready(&stage, "True", SOON).await;
    let status = status(&stage);
    assert_eq!(
        status["nodeInfo"]["containerRuntimeVersion"],
        "cri-o://9.0.0-rc.1"
    );
    assert_eq!(status["images"].as_array().unwrap().len(), 9);
    assert_eq!(status["images"][8], json!({ "names": ["example.com/0:1"] }));
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

#[tokio::test(start_paused = true)]
async fn a_runtime_that_is_not_ready_is_named_with_its_reason() {
    let runtime_text = "container runtime not ready: RuntimeReady=false reason:NotYet \
                        message:not initialized";
    let network_text = "container runtime network not ready: NetworkReady=false reason:NotYet \
                        message:not initialized";
    let runtime = CriServer::ready();
    let stage = stage(&runtime);
    ready(&stage, "True", SOON).await;
    runtime.answer("Status", &runtime_status(true, false));
    assert_eq!(ready(&stage, "False", REGULAR).await, network_text);
    runtime.answer("Status", &runtime_status(true, true));
    ready(&stage, "True", REGULAR).await;
    runtime.answer("Status", &runtime_status(false, false));
    let message = ready(&stage, "False", REGULAR).await;
    assert_eq!(message, format!("[{runtime_text}, {network_text}]"));
    pass(super::DOWN).await;
    let message = stage.view().condition("Ready")["message"].clone();
    let expected = format!("[container runtime is down, {runtime_text}, {network_text}]");
    assert_eq!(message, expected, "it was ready more than 30 s ago");
    runtime.answer("Status", &runtime_status(true, true));
    ready(&stage, "True", REGULAR).await;
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
