//! A server in memory that answers from a list, for unit tests.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::credential_reader::CredentialReader;
use super::credentials::Credentials;
use super::{ApiError, Client, Connector, lock, transport};

#[derive(Debug, Clone)]
pub enum Reply {
    /// Status, body, and seconds of a `Retry-After` header.
    Json(u16, Value, Option<u64>),
    /// A success status without JSON.
    Garbage,
    Silent,
    /// The connection ends instead of an answer.
    Cut,
}

impl Reply {
    pub fn json(code: u16, body: Value) -> Self {
        Self::Json(code, body, None)
    }

    pub fn retry_after(self, seconds: u64) -> Self {
        match self {
            Self::Json(code, body, _) => Self::Json(code, body, Some(seconds)),
            other => other,
        }
    }
}

/// A `Status` as the API server writes it.
pub fn refusal(code: u16, reason: &str) -> Reply {
    Reply::json(
        code,
        json!({ "kind": "Status", "status": "Failure", "reason": reason, "code": code, "message": "no" }),
    )
}

#[derive(Debug, Clone)]
struct Seen {
    line: String,
    content_type: String,
    user_agent: String,
    body: Value,
}

#[derive(Default)]
struct State {
    replies: VecDeque<Reply>,
    seen: Vec<Seen>,
    connections: usize,
    open: usize,
}

const DEADLINE: Duration = Duration::from_secs(10);

fn config() -> kube::Config {
    kube::Config::new("http://api.test".parse().unwrap())
}

/// The server. A request beyond the end of the list is answered with 418.
#[derive(Clone)]
pub struct Scripted {
    state: Arc<Mutex<State>>,
    connector: Connector,
    client: Client,
}

impl Scripted {
    pub fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let state = Arc::new(Mutex::new(State {
            replies: replies.into_iter().collect(),
            ..State::default()
        }));
        let shared = Arc::clone(&state);
        let connector = transport::in_memory(move || {
            let (near, far) = tokio::io::duplex(1 << 16);
            {
                let mut state = lock(&shared);
                state.connections += 1;
                state.open += 1;
            }
            tokio::spawn(serve(far, Arc::clone(&shared)));
            async move {
                // A handshake takes a while, in which other tasks may need a connection too.
                for _ in 0..8 {
                    tokio::task::yield_now().await;
                }
                Ok(near)
            }
        });
        let client = Client::new(config(), connector.clone(), DEADLINE).unwrap();
        Self {
            state,
            connector,
            client,
        }
    }

    /// Returns a client whose credentials have the first fingerprint, and the next one when they
    /// are read again; `None` stands for credentials that cannot be read.
    pub fn client_that_renews(&self, fingerprints: &[Option<u64>]) -> Client {
        let connector = self.connector.clone();
        let access = move |fingerprint| {
            let mut access = Credentials::fixed(config(), connector.clone());
            access.fingerprint = fingerprint;
            access
        };
        let fingerprints: Vec<_> = fingerprints.into();
        let mut fingerprints = fingerprints.into_iter();
        let first = access(fingerprints.next().flatten().unwrap());
        let fingerprints = Mutex::new(fingerprints);
        let reader = CredentialReader::with(move || {
            let next = fingerprints.lock().unwrap().next().flatten();
            next.map(&access).ok_or(ApiError::InCluster {
                why: "beyond the script".to_owned(),
            })
        });
        Client::with(first, Some(reader), DEADLINE).unwrap()
    }

    /// Returns a client whose credentials expire and are read again by `read`, which returns true
    /// if there are any.
    pub fn client_with_ending_credentials(
        &self,
        read: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Client {
        let connector = self.connector.clone();
        let access = move || {
            let mut access = Credentials::fixed(config(), connector.clone());
            access.renew_at = Some(Instant::now());
            access
        };
        let first = access();
        let reader = CredentialReader::with(move || {
            let renewed = read().then(&access);
            renewed.ok_or(ApiError::InCluster {
                why: "there are none".to_owned(),
            })
        });
        Client::with(first, Some(reader), DEADLINE).unwrap()
    }

    pub fn client(&self) -> Client {
        self.client.clone()
    }

    pub fn lines(&self) -> Vec<String> {
        let seen = &lock(&self.state).seen;
        seen.iter().map(|seen| seen.line.clone()).collect()
    }

    pub fn body(&self, nth: usize) -> Value {
        lock(&self.state).seen[nth].body.clone()
    }

    pub fn content_type(&self, nth: usize) -> String {
        lock(&self.state).seen[nth].content_type.clone()
    }

    pub fn user_agent(&self, nth: usize) -> String {
        lock(&self.state).seen[nth].user_agent.clone()
    }

    /// Returns the number of connections that the client has not closed.
    pub fn open(&self) -> usize {
        lock(&self.state).open
    }

    pub fn connections(&self) -> usize {
        lock(&self.state).connections
    }
}

async fn serve(io: tokio::io::DuplexStream, state: Arc<Mutex<State>>) {
    let (cut, is_cut) = tokio::sync::watch::channel(());
    let cut = Arc::new(cut);
    let mut is_cut = is_cut;
    let shared = Arc::clone(&state);
    let service = service_fn(move |request| answer(request, Arc::clone(&shared), Arc::clone(&cut)));
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(io), service);
    tokio::select! {
        // The client may end the connection in any way.
        _ = connection => {}
        _ = is_cut.changed() => {}
    }
    lock(&state).open -= 1;
}

async fn answer(
    request: Request<Incoming>,
    state: Arc<Mutex<State>>,
    cut: Arc<tokio::sync::watch::Sender<()>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let header = |name: &str| {
        let value = head.headers.get(name);
        value.map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
    };
    let reply = {
        let mut state = lock(&state);
        state.seen.push(Seen {
            line: format!("{} {}", head.method, head.uri.path()),
            content_type: header("content-type"),
            user_agent: header("user-agent"),
            body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        });
        state.replies.pop_front()
    };
    let (code, body, wait) = match reply {
        Some(Reply::Json(code, body, wait)) => (code, body.to_string(), wait),
        Some(Reply::Garbage) => (200, "<html>".to_owned(), None),
        Some(Reply::Silent) => std::future::pending().await,
        Some(Reply::Cut) => {
            cut.send_replace(());
            std::future::pending().await
        }
        None => (418, "beyond the script".to_owned(), None),
    };
    let mut response = Response::builder().status(code);
    if let Some(wait) = wait {
        response = response.header("retry-after", wait.to_string());
    }
    Ok(response.body(Full::new(Bytes::from(body))).unwrap())
}
