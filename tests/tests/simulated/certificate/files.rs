//! Files that others change.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;

use nodepulse_tests::api_server::Effect;
use nodepulse_tests::api_server::Fault;
use nodepulse_tests::node::pass;
use tempfile::tempdir;

use super::*;

/// Connections that the node's agent has opened.
fn connections(node: &Running) -> usize {
    node.dials().len()
}

#[tokio::test(start_paused = true)]
async fn a_pair_that_another_program_stored_is_used_for_new_connections() {
    let (api, dir, other) = (server(), tempdir().unwrap(), tempdir().unwrap());
    let node = settled(&api, dir.path()).await;
    let elsewhere = settled(&server(), other.path()).await;
    elsewhere.stop().await.unwrap();
    let before = connections(&node);

    // The same pair again.
    node.certificate_changed().await;
    pass(Duration::from_secs(30)).await;
    assert_eq!(connections(&node), before);

    let (from, new) = (current(other.path()), dir.path().join("renewed.pem"));
    fs::copy(other.path().join(from), &new).unwrap();
    fs::rename(new, dir.path().join(CURRENT)).unwrap();
    node.certificate_changed().await;
    pass(Duration::from_secs(30)).await;
    assert_eq!(connections(&node), before + 1);

    // Of the next request, the key is a new one.
    next_request(&api).await;
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn errors_of_the_server_and_of_the_disk_only_delay_the_certificate() {
    let (api, dir) = (server(), tempdir().unwrap());
    let requests = "/apis/certificates.k8s.io";
    for effect in [
        Effect::Status(500),
        Effect::TooManyRequests(5),
        Effect::Garbage,
        Effect::Hang,
        Effect::Status(403),
    ] {
        api.faults().push(Fault::on("*", requests, effect));
    }
    // A directory is in the way of the key.
    let pki = dir.path().join("pki");
    let mut builder = DirBuilder::new();
    let builder = builder.recursive(true).mode(0o700);
    builder.create(pki.join(PENDING_KEY)).unwrap();
    let node = start(&api, "worker-1", &pki);
    pass(Duration::from_mins(2)).await;
    assert_eq!(api.requests().len(), 0);
    fs::remove_dir(pki.join(PENDING_KEY)).unwrap();
    let request = next_request(&api).await;
    api.issue(&request, &Issue::now(&api, HOUR));
    View::of(&api, "worker-1").settled(LATER).await;
    node.stop().await.unwrap();
}
