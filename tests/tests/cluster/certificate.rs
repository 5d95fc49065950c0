//! The client certificate that node mode requests: on a real server, the controller manager
//! approves and signs it.

use serde_json::Value;

use super::caller::{Caller, text, until};
use super::node::is_kept;
use super::running::stop;
use super::stage::{REQUESTS, Stage, scenario};

#[tokio::test]
async fn a_node_requests_its_certificate_and_uses_it() {
    scenario("certificate", requested).await;
}

async fn requested(stage: &Stage) {
    let bootstrap = stage.bootstrap_file().await;
    let (kubeconfig, pki) = (stage.file("written"), stage.file("pki"));
    let config = format!(
        "nodeLeaseDurationSeconds: 8\nbootstrapKubeconfig: {}\ncertDir: {}\n",
        bootstrap.display(),
        pki.display()
    );
    let agent = stage.run("node", &kubeconfig, &config);
    let user = stage.bootstrap_user();
    let request = until("a request for a certificate", async || {
        let requests = stage.admin.items(REQUESTS).await.into_iter();
        let mut requests = requests.filter(|request| text(&request["spec"], "username") == user);
        requests.next()
    })
    .await;
    stage.issue(&request);
    stage.node_is("the Node has its conditions", is_kept).await;

    // Others can use the files as well.
    let node = Caller::from_file(&kubeconfig).await;
    until("the Lease, read as the node", async || {
        let (code, _) = node.get(&stage.lease_path()).await;
        code.is_success().then_some(())
    })
    .await;
    let (code, answer) = node.get("/api/v1/nodes").await;
    assert_eq!(code, 403, "{answer}");
    stop(agent).await;

    // The next start requests no other.
    let agent = stage.run("node", &kubeconfig, &config);
    let before = stage.lease().await["spec"]["renewTime"].clone();
    until("a renewal", async || {
        let renewed = stage.lease().await["spec"]["renewTime"].clone();
        (renewed != before).then_some(())
    })
    .await;
    let count = |requests: Vec<Value>| {
        let of_node = format!("system:node:{}", stage.name());
        let requests = requests.into_iter();
        let users = requests.map(|request| text(&request["spec"], "username").to_owned());
        users.filter(|one| *one == user || *one == of_node).count()
    };
    assert_eq!(count(stage.admin.items(REQUESTS).await), 1);
    stop(agent).await;
}
