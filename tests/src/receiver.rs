//! A receiver of incidents: what a collector or a webhook got, and answers as a test wants them.

use std::convert::Infallible;
use std::io::{self, Read as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::header::{CONTENT_ENCODING, LOCATION, RETRY_AFTER};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// One request.
#[derive(Debug, Clone)]
pub struct Received {
    pub path: String,
    pub headers: HeaderMap,
    /// The body, decompressed.
    pub body: Value,
    /// The status of the answer.
    pub answered: u16,
}

#[derive(Debug)]
struct State {
    status: u16,
    received: Vec<Received>,
}

/// A server on a port of 127.0.0.1. It ends with the runtime.
#[derive(Debug, Clone)]
pub struct Receiver {
    pub port: u16,
    state: Arc<Mutex<State>>,
}

impl Receiver {
    /// Starts a server that answers with `status`.
    pub async fn start(status: u16, tls: Option<TlsAcceptor>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let receiver = Self {
            port: listener.local_addr()?.port(),
            state: Arc::new(Mutex::new(State {
                status,
                received: Vec::new(),
            })),
        };
        let server = receiver.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (server, tls) = (server.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => server.serve(stream).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                server.serve(stream).await;
                            }
                        }
                    }
                });
            }
        });
        Ok(receiver)
    }

    async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let server = self.clone();
        let answer = service_fn(move |request| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        let served = auto::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), answer)
            .await;
        // The agent may be killed at any time.
        drop(served);
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (parts, body) = request.into_parts();
        let bytes = body
            .collect()
            .await
            .map(|body| body.to_bytes())
            .unwrap_or_default();
        let mut text = Vec::new();
        if parts.headers.contains_key(CONTENT_ENCODING) {
            GzDecoder::new(&bytes[..])
                .read_to_end(&mut text)
                .expect("gzip");
        } else {
            text.extend_from_slice(&bytes);
        }
        let status = {
            let mut state = self.lock();
            let answered = state.status;
            state.received.push(Received {
                path: parts.uri.path().to_owned(),
                headers: parts.headers,
                body: serde_json::from_slice(&text).expect("JSON"),
                answered,
            });
            answered
        };
        let location = format!("http://127.0.0.1:{}/elsewhere", self.port);
        Response::builder()
            .status(status)
            .header(RETRY_AFTER, "0")
            .header(LOCATION, location)
            .body(Full::from("{}"))
            .expect("a response")
    }

    /// Sets the status of further answers.
    pub fn set_status(&self, status: u16) {
        self.lock().status = status;
    }

    pub fn received(&self) -> Vec<Received> {
        self.lock().received.clone()
    }

    /// Returns the incidents that were accepted: id, revision and kills.
    pub fn accepted(&self) -> Vec<(String, u64, u64)> {
        let received = self.received().into_iter();
        let accepted = received.filter(|one| one.answered == 200);
        accepted.flat_map(|one| incidents(&one.body)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn incidents(body: &Value) -> Vec<(String, u64, u64)> {
    let number = |value: &Value| {
        let text = value.as_str().map(str::to_owned);
        text.unwrap_or_else(|| value.to_string())
            .parse()
            .unwrap_or(0)
    };
    if let Some(incident) = body.get("data") {
        let facts = &incident["facts"];
        let kills = [&facts["processes"], &facts["kills"]].map(number);
        let id = incident["id"].as_str().unwrap_or_default().to_owned();
        return vec![(id, number(&incident["revision"]), kills[0] + kills[1])];
    }
    let records = &body["resourceLogs"][0]["scopeLogs"][0]["logRecords"];
    let records = records.as_array().cloned().unwrap_or_default();
    let attribute = |attributes: &Value, key: &str, kind: &str| {
        let all = attributes.as_array().into_iter().flatten();
        let mut found = all.filter(|one| one["key"] == key);
        found
            .next()
            .map_or(Value::Null, |one| one["value"][kind].clone())
    };
    let incident = |record: &Value| {
        let of = &record["attributes"];
        let id = attribute(of, "nodepulse.incident.id", "stringValue");
        let revision = attribute(of, "nodepulse.incident.revision", "intValue");
        let facts = attribute(of, "nodepulse.facts", "kvlistValue");
        let kills = ["processes", "kills"];
        let kills = kills.map(|key| number(&attribute(&facts["values"], key, "intValue")));
        let id = id.as_str().unwrap_or_default().to_owned();
        (id, number(&revision), kills[0] + kills[1])
    };
    records.iter().map(incident).collect()
}
