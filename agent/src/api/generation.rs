//! One connection, and one request over it.

#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};
use tower::BoxError;

use super::Place;
use super::presence::Presence;
use super::tally::{End, Tally};

/// The largest answer that is read: an object of the API cannot be larger than what etcd takes,
/// 1.5 MiB, but its JSON form can.
const ANSWER_LIMIT: usize = 8 << 20;
/// How long a request waits for the first answer on a new connection to somebody else's.
pub(super) const TURN_LIMIT: Duration = Duration::from_secs(1);

/// One connection and what is sent over it.
#[derive(Clone)]
pub struct Generation {
    number: u64,
    client: kube::Client,
    opening: Arc<Opening>,
    counts: Arc<Counts>,
}

/// What all generations count together.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) tally: Tally,
    pub(super) presence: Presence,
}

/// Until the first answer, requests go one by one: the pool below learns only from a finished
/// handshake that one connection can carry all of them.
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

    /// Waits for a turn. Not for long: one slow answer must not hold up a lease, and a connection
    /// that is only slow to answer is in the pool by then.
    async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        if self.answered.load(Ordering::Relaxed) {
            return None;
        }
        let turn = tokio::time::timeout(TURN_LIMIT, self.turn.acquire()).await;
        // Once somebody has an answer there is nothing left to take turns for.
        turn.ok()?
            .ok()
            .filter(|_| !self.answered.load(Ordering::Relaxed))
    }
}

impl Generation {
    /// The first.
    pub(super) fn new(client: kube::Client) -> Self {
        Self {
            number: 0,
            client,
            opening: Opening::new(),
            counts: Arc::default(),
        }
    }

    /// The one after this.
    pub(super) fn next(&self, client: kube::Client) -> Self {
        Self {
            number: self.number.wrapping_add(1),
            client,
            opening: Opening::new(),
            counts: Arc::clone(&self.counts),
        }
    }

    pub(super) fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    /// For streams, which have no deadline and must start anew on the next generation.
    #[must_use]
    pub fn client(&self) -> &kube::Client {
        &self.client
    }

    /// Opens a watch on `resource`. Nothing ends it but the server or the connection.
    pub(super) async fn watch(
        &self,
        resource: &'static str,
        request: http::Request<Vec<u8>>,
    ) -> Result<impl Stream<Item = Result<WatchEvent<Value>, kube::Error>> + use<>, kube::Error>
    {
        let turn = self.opening.turn().await;
        let opened = self.client.request_events(request).await;
        let end = match &opened {
            Ok(_) => End::Answered(StatusCode::OK.as_u16()),
            Err(kube::Error::Api(status)) => End::answered(status.code),
            Err(kube::Error::Auth(_)) => End::Credentials,
            Err(_) => End::Unreachable,
        };
        if let End::Answered(_) = end {
            self.opening.answered.store(true, Ordering::Relaxed);
        }
        drop(turn);
        self.counts.ended("WATCH", resource, end);
        opened
    }

    /// Counts the connections that were given up.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Generation({})", self.number)
    }
}

/// A body and how it is meant.
pub(super) enum Payload<'a> {
    None,
    Object(&'a Value),
    StrategicMerge(&'a [u8]),
}

/// An answer, read whole.
pub(super) struct Answer {
    pub(super) code: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Why there is no answer.
pub(super) enum Failure {
    Credentials(BoxError),
    Connection(BoxError),
}

pub(super) fn end(ended: &Result<Result<Answer, Failure>, tokio::time::error::Elapsed>) -> End {
    match ended {
        Ok(Ok(answer)) => End::answered(answer.code.as_u16()),
        Ok(Err(Failure::Credentials(_))) => End::Credentials,
        Ok(Err(Failure::Connection(_))) => End::Unreachable,
        Err(_) => End::Deadline,
    }
}

impl Counts {
    pub(super) fn ended(&self, verb: &'static str, resource: &'static str, end: End) {
        self.tally.count(verb, resource, end);
        match end {
            End::Answered(_) => self.presence.answered(),
            End::Deadline | End::Unreachable | End::Credentials => self.presence.unanswered(),
        }
    }
}

impl Generation {
    pub(super) async fn exchange(
        &self,
        request: http::Request<kube::client::Body>,
    ) -> Result<Answer, Failure> {
        let turn = self.opening.turn().await;
        let response = self.send(request).await?;
        self.opening.answered.store(true, Ordering::Relaxed);
        drop(turn);
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_LIMIT)
            .collect()
            .await
            .map_err(Failure::Connection)?
            .to_bytes();
        Ok(Answer {
            code: head.status,
            headers: head.headers,
            body,
        })
    }

    async fn send(
        &self,
        request: http::Request<kube::client::Body>,
    ) -> Result<http::Response<kube::client::Body>, Failure> {
        self.client.send(request).await.map_err(|err| match err {
            kube::Error::Auth(_) => Failure::Credentials(err.into()),
            // Everything else that `send` gives comes from below HTTP.
            _ => Failure::Connection(err.into()),
        })
    }
}

pub(super) fn request(
    method: Method,
    place: &Place,
    payload: &Payload<'_>,
) -> Result<http::Request<kube::client::Body>, http::Error> {
    let builder = http::Request::builder()
        .method(method)
        .uri(&place.path)
        .header(ACCEPT, "application/json");
    match payload {
        Payload::None => builder.body(kube::client::Body::empty()),
        Payload::Object(object) => builder
            .header(CONTENT_TYPE, "application/json")
            .body(object.to_string().into_bytes().into()),
        Payload::StrategicMerge(patch) => builder
            .header(CONTENT_TYPE, "application/strategic-merge-patch+json")
            .body(patch.to_vec().into()),
    }
}
