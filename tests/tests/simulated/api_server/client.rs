//! A client that sends only the given requests: one connection, no retries.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use nodepulse_tests::api_server::ApiServer;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// One HTTP/2 connection.
pub struct Client(http2::SendRequest<Full<Bytes>>);

/// A status code and a body.
pub type Answer = (u16, Value);

pub const MERGE: &str = "application/merge-patch+json";

impl Client {
    pub async fn admin(server: &ApiServer) -> Self {
        Self::over(server.dial()).await
    }

    pub async fn over(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        let io = TokioIo::new(stream);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    pub async fn over_tls(server: &ApiServer, kubeconfig: &Path) -> Self {
        Self::over(tls(server, kubeconfig).await).await
    }

    pub async fn send(
        &self,
        method: &str,
        path: &str,
        media: &str,
        body: Option<Value>,
    ) -> hyper::Result<http::Response<Incoming>> {
        let body = body
            .map(|body| Bytes::from(body.to_string()))
            .unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(format!("http://api{path}"))
            .header("content-type", media)
            .header("accept", "application/json")
            .body(Full::new(body))
            .unwrap();
        self.0.clone().send_request(request).await
    }

    async fn call(&self, method: &str, path: &str, media: &str, body: Option<Value>) -> Answer {
        let response = self.send(method, path, media, body).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, "application/json", None).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.call("POST", path, "application/json", Some(body))
            .await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.call("PUT", path, "application/json", Some(body)).await
    }

    pub async fn patch(&self, path: &str, media: &str, body: Value) -> Answer {
        self.call("PATCH", path, media, Some(body)).await
    }

    pub async fn watch(&self, path: &str) -> Lines {
        let response = self
            .send("GET", path, "application/json", None)
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
        Lines {
            body: response.into_body(),
            buffer: Vec::new(),
        }
    }
}

/// The events of a watch.
pub struct Lines {
    body: Incoming,
    buffer: Vec<u8>,
}

impl Lines {
    /// The next event; `None` when the server closed the watch.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = self.body.frame().await?.unwrap();
            self.buffer.extend_from_slice(&frame.into_data().unwrap());
        }
    }

    /// Type, name and resource version of the next event.
    pub async fn event(&mut self) -> (String, String, u64) {
        let event = self.next().await.expect("a watch that goes on");
        let metadata = &event["object"]["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let version = text(&metadata["resourceVersion"])
            .parse()
            .unwrap_or_default();
        (text(&event["type"]), text(&metadata["name"]), version)
    }
}

/// A TLS connection with the credentials of a kubeconfig.
pub async fn tls(
    server: &ApiServer,
    kubeconfig: &Path,
) -> tokio_rustls::client::TlsStream<TcpStream> {
    let text = fs::read_to_string(kubeconfig).unwrap();
    let data = |key: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(key));
        line.map(|data| STANDARD.decode(data.trim()).unwrap())
    };
    let mut roots = RootCertStore::empty();
    let ca = data("certificate-authority-data:").unwrap();
    roots
        .add(CertificateDer::from_pem_slice(&ca).unwrap())
        .unwrap();
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let certificate = data("client-certificate-data:").unwrap();
    let key = data("client-key-data:").unwrap();
    let mut config = builder
        .with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(&certificate).unwrap()],
            PrivateKeyDer::from_pem_slice(&key).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let address = server.url().trim_start_matches("https://").to_owned();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = "127.0.0.1".try_into().unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap()
}
