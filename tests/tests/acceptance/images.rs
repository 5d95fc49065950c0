//! The images of the container runtime.

use std::time::Duration;

use nodepulse_linux::cri::messages::Image;

use nodepulse_tests::SOON;
use nodepulse_tests::cri_server::CriServer;
use nodepulse_tests::days::Stage;
use nodepulse_tests::node::pass;
use serde_json::Value;

/// Some of equal size, each with more names than are reported.
fn image(number: u64) -> Image {
    let names =
        |suffix: &'static str| (0..4).map(move |n| format!("example.com/{number:02}/{n}{suffix}"));
    Image {
        id: format!("sha256:{number:064}"),
        repo_tags: names(":1").collect(),
        repo_digests: names("@sha256:1").collect(),
        size: number / 3,
    }
}

/// At most 50 images with 5 names each, largest first, in a stable order.
#[tokio::test(start_paused = true)]
async fn a057_the_largest_images_in_a_stable_order() {
    let runtime = CriServer::ready();
    let mut images: Vec<Image> = (0..60).map(image).collect();
    runtime.images(images.clone());
    let stage = Stage::open(|node| node.runtime(&runtime));
    stage.view().settled(SOON).await;
    let reported = || stage.view().node().unwrap()["status"]["images"].clone();
    let first = reported();
    let list: Vec<&Value> = first.as_array().unwrap().iter().collect();
    assert_eq!(list.len(), 50);
    for (image, number) in list.into_iter().zip((0..60).rev()) {
        assert_eq!(image["sizeBytes"], number / 3);
        let names: Vec<_> = (0..4)
            .map(|n| format!("example.com/{number:02}/{n}@sha256:1"))
            .collect();
        let expected = [names, vec![format!("example.com/{number:02}/0:1")]].concat();
        assert_eq!(image["names"], Value::from(expected));
    }
    // The first report of an unchanged status comes after half of its period at the earliest.
    pass(Duration::from_secs(31)).await;
    let before = stage.view().patches().len();
    for _ in 0..3 {
        images.rotate_left(17);
        runtime.images(images.clone());
        pass(Duration::from_secs(35)).await;
        assert_eq!(reported(), first);
        assert_eq!(stage.view().patches().len(), before);
    }
}
