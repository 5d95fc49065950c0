//! Decoding with `fieldValidation=Strict`.

use nodepulse_tests::api_server::ApiServer;
use serde_json::{Value, json};

use super::client::Client;

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

fn job(container: &Value) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    })
}

#[tokio::test(start_paused = true)]
async fn an_unknown_field_is_refused_if_the_client_asks_for_it() {
    let server = ApiServer::in_memory();
    let client = Client::admin(&server).await;
    let rows = [
        (
            json!({"name": "a", "arg": []}),
            "unknown field \\\"spec.template.spec.containers[0].arg",
        ),
        (
            json!({"name": "a", "args": "x"}),
            "cannot be handled as a Job: invalid type",
        ),
    ];
    let strict = format!("{JOBS}?fieldValidation=Strict");
    for (container, words) in rows {
        let (code, answer) = client.post(&strict, job(&container)).await;
        assert_eq!(code, 400, "{container}");
        assert!(answer.to_string().contains(words), "{answer}");
        assert_eq!(client.get(&format!("{JOBS}/a")).await.0, 404);
    }
    let (code, created) = client.post(&strict, job(&json!({"name": "a"}))).await;
    assert_eq!(code, 201, "{created}");
    let unknown = job(&json!({"name": "a", "arg": []}));
    let (code, answer) = client
        .put(&format!("{JOBS}/a?fieldValidation=Strict"), unknown.clone())
        .await;
    assert_eq!(code, 400, "{answer}");
    let (code, answer) = client.put(&format!("{JOBS}/a"), unknown).await;
    assert_eq!(code, 200, "{answer}");
}
