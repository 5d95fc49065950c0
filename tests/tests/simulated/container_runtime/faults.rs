use std::time::Duration;

use nodepulse_tests::SOON;
use nodepulse_tests::cri_server::{CriFault, CriServer};
use nodepulse_tests::made_up;
use nodepulse_tests::node::pass;
use serde_json::json;

use super::{DOWN, NEVER_CHECKED, REGULAR, ready, stage, status};

/// A size that no answer may have.
const OVERSIZE: u32 = (16 << 20) + 1;

/// From the start on, then until the runtime recovers.
#[tokio::test(start_paused = true)]
async fn a_runtime_that_never_answers_well_keeps_the_node_from_being_ready() {
    let faults = [
        CriFault::Hang,
        CriFault::HangOn("Version"),
        CriFault::HangOn("Status"),
        CriFault::Garbage,
        CriFault::Http(404),
        CriFault::Status(2),
        CriFault::Status(12),
        CriFault::StatusOn("Version", 12),
        CriFault::StatusOn("Status", 14),
        CriFault::NoTrailers,
        CriFault::BadStatus,
        CriFault::Length(OVERSIZE),
        CriFault::Short,
        CriFault::Two,
        CriFault::Compressed,
        CriFault::NoMessage,
        CriFault::Endless,
        CriFault::Drip,
        CriFault::GoAway,
    ];
    for fault in faults {
        let runtime = CriServer::ready();
        runtime.fault(fault);
        let stage = stage(&runtime);
        let message = ready(&stage, "False", SOON * 2).await;
        assert_eq!(message, NEVER_CHECKED, "{fault:?}");
        pass(DOWN).await;
        let message = stage.view().condition("Ready")["message"].clone();
        assert_eq!(message, NEVER_CHECKED, "{fault:?}: it was never up");
        runtime.fault(None);
        ready(&stage, "True", REGULAR).await;
        stage.node.stop().await.unwrap();
    }
}

/// While it runs: its last answer counts for 30 s, the Lease is renewed, and the images stay.
#[tokio::test(start_paused = true)]
async fn a_runtime_that_fails_for_long_is_down() {
    let faults = [
        Some(CriFault::Hang),
        Some(CriFault::Status(14)),
        Some(CriFault::Length(OVERSIZE)),
        // It vanishes.
        None,
    ];
    for fault in faults {
        let runtime = CriServer::ready();
        let stage = stage(&runtime);
        ready(&stage, "True", SOON).await;
        // The first patch of the new Node.
        pass(Duration::from_secs(12)).await;
        let (failed, renewals) = (stage.api.now(), stage.view().renewals().len());
        if fault.is_none() {
            runtime.vanish();
        }
        runtime.fault(fault);
        let message = ready(&stage, "False", DOWN).await;
        assert_eq!(message, "container runtime is down", "{fault:?}");
        let after = stage.api.now() - failed;
        // The last good answer is up to 10 s older than the fault.
        assert!(
            after >= Duration::from_secs(20),
            "{fault:?}: after {after:?}"
        );
        let status = status(&stage);
        assert_eq!(
            status["nodeInfo"]["containerRuntimeVersion"],
            "containerd://Unknown"
        );
        assert_eq!(status["images"].as_array().unwrap().len(), 1);
        assert!(stage.view().renewals().len() - renewals >= 2, "{fault:?}");
        runtime.fault(None);
        runtime.listen();
        ready(&stage, "True", REGULAR).await;
        let version = super::status(&stage)["nodeInfo"]["containerRuntimeVersion"].clone();
        assert_eq!(version, "containerd://2.1.4");
        stage.node.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_of_the_runtime_changes_nothing() {
    let runtime = CriServer::ready();
    let stage = stage(&runtime);
    ready(&stage, "True", SOON).await;
    pass(Duration::from_secs(30)).await;
    let before = stage.view().patches().len();
    // Until the first report of an unchanged status.
    for _ in 0..3 {
        runtime.vanish();
        pass(Duration::from_secs(15)).await;
        runtime.listen();
        pass(Duration::from_secs(15)).await;
    }
    assert_eq!(stage.view().patches().len(), before);
    assert_eq!(
        runtime.connections(),
        4,
        "one for each start of the runtime"
    );
}

/// Its status still counts; its images stay as they were.
#[tokio::test(start_paused = true)]
async fn images_that_cannot_be_listed_do_not_disturb_the_status() {
    let faults = [
        CriFault::HangOn("ListImages"),
        CriFault::HangOn("ImageFsInfo"),
        CriFault::StatusOn("ListImages", 2),
        CriFault::StatusOn("ImageFsInfo", 12),
    ];
    for fault in faults {
        let runtime = CriServer::ready();
        let stage = stage(&runtime);
        ready(&stage, "True", SOON).await;
        runtime.fault(fault);
        pass(Duration::from_mins(5)).await;
        assert_eq!(stage.view().status("Ready"), "True", "{fault:?}");
        let images = json!([{ "names": ["example.com/a:1"], "sizeBytes": 7 }]);
        assert_eq!(status(&stage)["images"], images, "{fault:?}");
        runtime.images((0..2).map(made_up::image).collect());
        runtime.fault(None);
        pass(Duration::from_secs(51)).await;
        assert_eq!(
            status(&stage)["images"].as_array().unwrap().len(),
            2,
            "{fault:?}"
        );
        stage.node.stop().await.unwrap();
    }
}

/// Bytes that are no list of images, each followed by a good list.
#[tokio::test(start_paused = true)]
async fn lists_that_cannot_be_decoded_are_ignored() {
    let long_image = [&[0x0a, 0xff, 0xff, 0xff, 0x03][..], &[0; 300_000]].concat();
    let rows: [(&str, Vec<u8>); 6] = [
        ("text", b"images: many".to_vec()),
        ("an image that ends too early", vec![0x0a, 0x05, 0x0a]),
        ("an endless number", vec![0xff; 40]),
        (
            "a name that is no text",
            vec![0x0a, 0x04, 0x12, 0x02, 0xff, 0xfe],
        ),
        ("an image of 8 MiB", long_image),
        ("a group that never ends", vec![0x1b; 100_000]),
    ];
    let runtime = CriServer::ready();
    let stage = stage(&runtime);
    ready(&stage, "True", SOON).await;
    for (name, bytes) in rows {
        runtime.answer_bytes("ListImages", bytes);
        pass(Duration::from_secs(60)).await;
        assert_eq!(stage.view().status("Ready"), "True", "{name}");
        let images = status(&stage)["images"].clone();
        assert_eq!(images.as_array().unwrap().len(), 1, "{name}");
    }
    runtime.images((0..3).map(made_up::image).collect());
    pass(Duration::from_secs(60)).await;
    assert_eq!(status(&stage)["images"].as_array().unwrap().len(), 3);
}
