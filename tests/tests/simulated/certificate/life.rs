//! Certificates that are issued, expire or are never issued.

use nodepulse::AppError;
use nodepulse_core::subjects::certificate::CertificateLost;
use nodepulse_tests::api_server::{Effect, Fault};
use nodepulse_tests::node::pass;
use nodepulse_tests::view::NODES;
use tempfile::tempdir;

use super::*;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

#[tokio::test(start_paused = true)]
async fn from_the_first_request_to_the_third_replacement() {
    let (api, dir) = (server(), tempdir().unwrap());
    let pki = dir.path().join("pki");
    let node = start(&api, "worker-1", &pki);
    let first = next_request(&api).await;
    let spec = &first["spec"];
    assert_eq!(
        spec["signerName"],
        "kubernetes.io/kube-apiserver-client-kubelet"
    );
    assert_eq!(
        spec["usages"],
        serde_json::json!(["digital signature", "client auth"])
    );
    assert_eq!(spec["username"], BOOTSTRAP);
    pass(Duration::from_mins(20)).await;
    // Nothing but the request is sent, and it is read less and less often.
    let other = api.requests_where(|request| !request.path.starts_with(REQUESTS));
    assert_eq!(other.len(), 0, "{other:?}");
    let polls = api.requests_where(|request| request.method == "GET").len();
    assert!((20..60).contains(&polls), "{polls}");
    assert_eq!(api.signing_requests().len(), 1);
    assert_eq!(names(&pki), [PENDING_KEY]);
    assert_eq!((mode(&pki), mode(&pki.join(PENDING_KEY))), (0o700, 0o600));

    let mut issued = api.wall();
    api.issue(&first, &Issue::now(&api, HOUR));
    View::of(&api, "worker-1").settled(LATER).await;
    let running = api.now();
    let mut keys = vec![first["spec"]["request"].clone()];
    let mut pairs = vec![current(&pki)];
    for replacement in 1..=3 {
        let request = next_request(&api).await;
        let used = (api.wall() - issued).as_secs_f64() / HOUR.as_secs_f64();
        assert!((0.69..0.91).contains(&used), "{replacement}: {used}");
        assert_eq!(request["spec"]["username"], "system:node:worker-1");
        keys.push(request["spec"]["request"].clone());
        issued = api.wall();
        api.issue(&request, &Issue::now(&api, HOUR));
        pass(Duration::from_secs(50)).await;
        pairs.push(current(&pki));
        let expires = node.scrape().await;
        let expires = expires.value("nodepulse_client_certificate_expiration_seconds", &[]);
        assert_eq!(
            expires,
            Some((issued + HOUR).as_secs().to_string().parse().unwrap())
        );
    }
    keys.dedup();
    pairs.dedup();
    assert_eq!((keys.len(), pairs.len()), (4, 4));
    // The current pair and the one before.
    let kept = [&pairs[2], &pairs[3], &CURRENT.to_owned()].map(String::clone);
    assert_eq!(names(&pki), kept);
    assert_eq!(mode(&pki.join(&pairs[3])), 0o600);
    assert!(
        longest_gap(&api, running) <= RENEWED,
        "{:?}",
        longest_gap(&api, running)
    );
    assert_eq!(api.signing_requests().len(), 4);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_restart_and_a_lost_answer_lead_to_the_same_request() {
    let (api, dir) = (server(), tempdir().unwrap());
    api.faults()
        .push(Fault::on("POST", REQUESTS, Effect::ResetAfterwards));
    let node = start(&api, "worker-1", dir.path());
    let request = next_request(&api).await;
    pass(Duration::from_mins(1)).await;
    let creates = |api: &ApiServer| {
        let is_create = |path: &str| path.starts_with(REQUESTS);
        let posts = api.requests_where(|one| one.method == "POST" && is_create(&one.path));
        posts.len()
    };
    assert_eq!(creates(&api), 2, "the answer to the first one was lost");
    node.kill();
    let node = start(&api, "worker-1", dir.path());
    pass(Duration::from_mins(1)).await;
    assert_eq!(creates(&api), 3, "after the restart");
    assert_eq!(api.signing_requests(), std::slice::from_ref(&request));
    api.issue(&request, &Issue::now(&api, HOUR));
    View::of(&api, "worker-1").settled(LATER).await;
    node.stop().await.unwrap();

    // The stored certificate is used by the next start.
    let node = start(&api, "worker-1", dir.path());
    pass(Duration::from_mins(1)).await;
    assert_eq!(creates(&api), 3, "with the stored certificate");
    assert_eq!(api.list(NODES).len(), 1);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_expired_certificate_is_kept_while_the_server_does_not_answer() {
    let (api, dir) = (server(), tempdir().unwrap());
    let node = settled(&api, dir.path()).await;
    pass(Duration::from_mins(30)).await;
    node.lose();
    pass(Duration::from_mins(90)).await;
    assert!(!node.is_ended(), "the server does not answer");
    node.reach();
    pass(Duration::from_mins(1)).await;
    let ended = node.ended().await;
    let expired = |end: &CertificateLost| matches!(end, CertificateLost::Expired(_));
    assert!(
        matches!(&ended, Err(AppError::Certificate(end)) if expired(end)),
        "{ended:?}"
    );
}
