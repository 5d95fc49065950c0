//! One connection, and one request over it.

#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, Method, StatusCode};
use kube::client::Body;
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};
use tower::BoxError;
use tracing::{debug, warn};

use super::body::{self, BodyError, Limit};
use super::credentials::Credentials;
use super::presence::Presence;
use super::stream_limit::StreamLimit;
use super::tally::{RequestEnd, RequestTally};
use super::{ApiError, Endpoint, lock};

/// Timeout of the answer to a watch. A server that fills its cache first, after a restart, takes
/// longer than for other requests.
const WATCH_LIMIT: Duration = Duration::from_secs(30);
/// Maximum wait of a request for the first answer to another request on a new connection.
pub(super) const TURN_LIMIT: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub struct Generation {
    number: u64,
    client: kube::Client,
    /// Used for watches that need a separate connection, and for the next connection.
    access: Arc<Mutex<Credentials>>,
    /// The limit that was learned on this connection and those before.
    limit: StreamLimit,
    opening: Arc<Opening>,
    counts: Arc<RequestCounts>,
}

/// Counters that all generations share.
#[derive(Debug, Default)]
pub(super) struct RequestCounts {
    pub(super) tally: RequestTally,
    pub(super) presence: Presence,
    /// Sums of the lengths of bodies: sent, received.
    pub(super) traffic: [AtomicU64; 2],
}

/// Sends requests one at a time until the first answer: only after a handshake does the pool know
/// that one connection can carry all of them.
struct Opening {
    answered: AtomicBool,
    turn: Semaphore,
}

impl Opening {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            answered: AtomicBool::new(false),
            turn: Semaphore::new(1),
        })
    }

    /// Waits for a turn, but not for long: one slow answer must not delay a lease, and a connection
    /// that is only slow to answer is in the pool by then.
    async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        if self.answered.load(Ordering::Relaxed) {
            return None;
        }
        let turn = tokio::time::timeout(TURN_LIMIT, self.turn.acquire()).await;
        // After the first answer no turns are needed.
        turn.ok()?
            .ok()
            .filter(|_| !self.answered.load(Ordering::Relaxed))
    }
}

impl Generation {
    pub(super) fn new(access: Arc<Mutex<Credentials>>) -> Result<Self, ApiError> {
        let limit = StreamLimit::default();
        let client = lock(&access).connect(limit.clone())?;
        Ok(Self {
            number: 0,
            client,
            access,
            limit,
            opening: Opening::new(),
            counts: Arc::default(),
        })
    }

    pub(super) fn next(&self) -> Result<Self, ApiError> {
        Ok(Self {
            number: self.number.wrapping_add(1),
            client: self.connect()?,
            opening: Opening::new(),
            ..self.clone()
        })
    }

    fn connect(&self) -> Result<kube::Client, ApiError> {
        lock(&self.access).connect(self.limit.clone())
    }

    pub(super) fn counts(&self) -> &Arc<RequestCounts> {
        &self.counts
    }

    /// Sends the request for a watch on `resource`, without a body. Returns the server's answer,
    /// whatever its status, and the client whose connection it uses; `None` without an answer.
    ///
    /// A watch has a separate connection if the server answers only few requests at once on one: it
    /// would leave no room for the Lease and the status.
    pub(super) async fn watch(
        &self,
        resource: &'static str,
        request: http::Request<Body>,
    ) -> Option<(http::Response<Body>, kube::Client)> {
        let (head, _) = request.into_parts();
        let request = || http::Request::from_parts(head.clone(), Body::empty());
        if !self.limit.is_scarce() {
            let turn = self.opening.turn().await;
            let response = self.open_watch(&self.client, resource, request()).await;
            if response.is_some() {
                self.opening.answered.store(true, Ordering::Relaxed);
            }
            drop(turn);
            // The answer may be the first one, before which the limit was not known.
            if response.is_none() || !self.limit.is_scarce() {
                return Some((response?, self.client.clone()));
            }
        }
        let separate = self.connect().inspect_err(|err| {
            debug!(resource, err = err.as_dyn(), "no connection for a watch");
        });
        let separate = separate.ok()?;
        let response = self.open_watch(&separate, resource, request()).await?;
        Some((response, separate))
    }

    async fn open_watch(
        &self,
        client: &kube::Client,
        resource: &'static str,
        request: http::Request<Body>,
    ) -> Option<http::Response<Body>> {
        let answered = tokio::time::timeout(WATCH_LIMIT, send(client, request)).await;
        let end = match &answered {
            Ok(Ok(response)) => RequestEnd::answered(response.status().as_u16()),
            Ok(Err(SendFailure::Credentials(_))) => RequestEnd::Credentials,
            Ok(Err(SendFailure::Connection(_) | SendFailure::TooLarge(_))) => {
                RequestEnd::Unreachable
            }
            Err(_) => RequestEnd::Deadline,
        };
        self.counts.ended("WATCH", resource, end);
        match answered {
            Ok(Ok(response)) => Some(response),
            Ok(Err(SendFailure::Credentials(err) | SendFailure::Connection(err))) => {
                debug!(
                    resource,
                    err = err.as_ref() as &dyn Error,
                    "cannot open a watch"
                );
                None
            }
            Ok(Err(SendFailure::TooLarge(_))) | Err(_) => None,
        }
    }

    /// Returns the number of connections that were replaced before this one.
    pub const fn number(&self) -> u64 {
        self.number
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Generation({})", self.number)
    }
}

pub(super) enum Payload<'a> {
    None,
    Object(&'a Value),
    StrategicMerge(&'a [u8]),
}

pub(super) struct ServerResponse {
    pub(super) code: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

pub(super) enum SendFailure {
    Credentials(BoxError),
    Connection(BoxError),
    /// The answer exceeds this limit in bytes.
    TooLarge(usize),
}

pub(super) fn end(
    ended: &Result<Result<ServerResponse, SendFailure>, tokio::time::error::Elapsed>,
) -> RequestEnd {
    match ended {
        Ok(Ok(answer)) => RequestEnd::answered(answer.code.as_u16()),
        Ok(Err(SendFailure::Credentials(_))) => RequestEnd::Credentials,
        Ok(Err(SendFailure::Connection(_))) => RequestEnd::Unreachable,
        Ok(Err(SendFailure::TooLarge(_))) => RequestEnd::TooLarge,
        Err(_) => RequestEnd::Deadline,
    }
}

impl RequestCounts {
    pub(super) fn carried(&self, sent: u64, received: usize) {
        let [all_sent, all_received] = &self.traffic;
        all_sent.fetch_add(sent, Ordering::Relaxed);
        let received = u64::try_from(received).unwrap_or(u64::MAX);
        all_received.fetch_add(received, Ordering::Relaxed);
    }

    pub(super) fn ended(&self, verb: &'static str, resource: &'static str, end: RequestEnd) {
        let before = self.tally.count(verb, resource, end);
        match end {
            RequestEnd::TooLarge => {
                if before == 0 {
                    warn!(verb, resource, "the API server's answer is too large");
                }
                self.presence.answered();
            }
            RequestEnd::Answered(_) => self.presence.answered(),
            RequestEnd::Deadline | RequestEnd::Unreachable | RequestEnd::Credentials => {
                self.presence.unanswered();
            }
        }
    }
}

impl Generation {
    pub(super) async fn exchange(
        &self,
        request: http::Request<Body>,
        limit: Limit,
    ) -> Result<ServerResponse, SendFailure> {
        let turn = self.opening.turn().await;
        let response = send(&self.client, request).await?;
        self.opening.answered.store(true, Ordering::Relaxed);
        drop(turn);
        let (head, body) = response.into_parts();
        let body = if head.status.is_success() {
            body::whole(body, limit).await
        } else {
            body::start(body, Limit::REFUSAL).await
        };
        let body = body.map_err(|err| match err {
            BodyError::TooLarge { limit } => SendFailure::TooLarge(limit),
            err @ (BodyError::TooSlow | BodyError::Broken(_)) => {
                SendFailure::Connection(err.into())
            }
        })?;
        Ok(ServerResponse {
            code: head.status,
            headers: head.headers,
            body,
        })
    }
}

async fn send(
    client: &kube::Client,
    request: http::Request<Body>,
) -> Result<http::Response<Body>, SendFailure> {
    client.send(request).await.map_err(|err| match err {
        kube::Error::Auth(_) => SendFailure::Credentials(err.into()),
        // All other errors of `send` come from below HTTP.
        _ => SendFailure::Connection(err.into()),
    })
}

pub(super) fn request(
    method: Method,
    endpoint: &Endpoint,
    payload: &Payload<'_>,
    user: Option<&str>,
) -> Result<http::Request<Body>, http::Error> {
    let mut builder = http::Request::builder()
        .method(method)
        .uri(&endpoint.path)
        .header(ACCEPT, "application/json");
    if let Some(user) = user {
        builder = builder
            .header("Impersonate-User", user)
            .header("Impersonate-Group", "system:nodes");
    }
    match payload {
        Payload::None => builder.body(Body::empty()),
        Payload::Object(object) => builder
            .header(CONTENT_TYPE, "application/json")
            .body(object.to_string().into_bytes().into()),
        Payload::StrategicMerge(patch) => builder
            .header(CONTENT_TYPE, "application/strategic-merge-patch+json")
            .body(patch.to_vec().into()),
    }
}
