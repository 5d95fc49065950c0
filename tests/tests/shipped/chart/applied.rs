//! Applies objects to the API server of the tests.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use nodepulse_tests::api_server::ApiServer;
use serde_json::{Value, json};

/// A server with the release's namespace.
pub struct Applied {
    /// Stops on drop.
    pub server: ApiServer,
    requests: SendRequest<Full<Bytes>>,
}

impl Applied {
    pub async fn to_new_server() -> Self {
        let server = ApiServer::in_memory();
        server.put_object(json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "agents"},
        }));
        let io = TokioIo::new(server.dial());
        let (requests, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        Self { server, requests }
    }

    /// Creates or replaces it, with strict decoding; an error is the server's answer.
    pub async fn apply(&mut self, object: &Value) -> Result<(), String> {
        let collection = ApiServer::collection(object);
        let collection = collection.ok_or_else(|| format!("{}: not served", object["kind"]))?;
        match self.send("POST", &collection, object).await {
            (201, _) => Ok(()),
            (409, _) => {
                let name = object["metadata"]["name"].as_str().unwrap();
                let path = format!("{collection}/{name}");
                match self.send("PUT", &path, object).await {
                    (200, _) => Ok(()),
                    (code, answer) => Err(format!("PUT {path}: {code} {answer}")),
                }
            }
            (code, answer) => Err(format!("POST {collection}: {code} {answer}")),
        }
    }

    async fn send(&mut self, method: &str, path: &str, object: &Value) -> (u16, Value) {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://server{path}?fieldValidation=Strict"))
            .header("content-type", "application/json")
            .body(Full::from(object.to_string()))
            .unwrap();
        let answer = self.requests.send_request(request).await.unwrap();
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or_default())
    }
}

/// Fields that an API server adds.
const ADDED: [&str; 3] = ["uid", "creationTimestamp", "resourceVersion"];

/// Returns the stored object without the server's additions.
pub fn stored(server: &ApiServer, object: &Value) -> Option<Value> {
    let name = object["metadata"]["name"].as_str()?;
    let mut stored = server.object(&format!("{}/{name}", ApiServer::collection(object)?))?;
    let metadata = stored["metadata"].as_object_mut()?;
    metadata.retain(|key, _| !ADDED.contains(&key.as_str()));
    // The phase of a Pod.
    stored.as_object_mut()?.remove("status");
    Some(stored)
}
