//! The edge to the API server: how it is reached, what is written to it, and how each of its
//! errors is to be taken.
//!
//! Absent on purpose: nothing here decides what a condition should be, or when to look again.

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
use tokio::io::DuplexStream;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tower::BoxError;
use tracing::{debug, warn};

pub mod access;
pub mod backoff;
pub mod convert;
pub mod credentials;
pub mod error;
pub mod holder;
pub mod lease;
pub mod node_watch;
pub mod object_watch;
pub mod own;
pub mod paper;
pub mod patch;
pub mod place;
pub mod pod_containers;
pub mod pod_watch;
pub mod recorder;
pub mod register;
pub mod status;
mod taints;
pub mod tally;
pub mod transport;

#[cfg(test)]
mod scripted;

pub use error::{ApiError, Call, Disposition, Refusal};
use paper::{Paper, Reads, Tell};
pub use place::Place;
use tally::{End, Tally};
pub use transport::Connector;

/// The largest answer that is read: an object of the API cannot be larger than what etcd takes,
/// 1.5 MiB, but its JSON form can.
const ANSWER_LIMIT: usize = 8 << 20;
/// How long a request waits for the first answer on a new connection to somebody else's.
const TURN_LIMIT: Duration = Duration::from_secs(1);

/// Sends requests, each within a deadline. Cheap to clone; all clones share one connection.
///
/// A request that meets its deadline, or whose connection breaks, makes the next request open a
/// new connection: a silent one would swallow every request until TCP gives it up. An HTTP status
/// never does, since whoever sent it is alive.
#[derive(Clone)]
pub struct Client(Arc<Shared>);

struct Shared {
    config: kube::Config,
    connector: Connector,
    deadline: Duration,
    tally: Arc<Tally>,
    /// Nothing is written but here.
    paper: Option<Paper>,
    /// Whoever sees a failure first replaces the connection; everybody reads the newest value.
    current: watch::Sender<Generation>,
}

/// One connection and what is sent over it.
#[derive(Clone)]
pub struct Generation {
    number: u64,
    client: kube::Client,
    opening: Arc<Opening>,
    tally: Arc<Tally>,
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
    /// For streams, which have no deadline and must start anew on the next generation.
    #[must_use]
    pub fn client(&self) -> &kube::Client {
        &self.client
    }

    /// Opens a watch on `resource`. Nothing ends it but the server or the connection.
    async fn watch(
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
        self.tally.count("WATCH", resource, end);
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

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("server", &self.0.config.cluster_url)
            .field("generation", &self.0.current.borrow().number)
            .finish_non_exhaustive()
    }
}

/// A body and how it is meant.
enum Payload<'a> {
    None,
    Object(&'a Value),
    StrategicMerge(&'a [u8]),
}

impl Client {
    /// For the server and user that `config` names, over `connector`; `deadline` holds for every
    /// request, and is a quarter of the lease duration where the lease is ours.
    ///
    /// Must be called in a runtime. Opens nothing yet.
    ///
    /// # Errors
    ///
    /// [`ApiError::Setup`] when the credentials in `config` cannot be used.
    pub fn new(
        config: kube::Config,
        connector: Connector,
        deadline: Duration,
    ) -> Result<Self, ApiError> {
        let tally = Arc::<Tally>::default();
        let first = Generation {
            number: 0,
            client: transport::connect(&config, connector.clone())?,
            opening: Opening::new(),
            tally: Arc::clone(&tally),
        };
        Ok(Self(Arc::new(Shared {
            config,
            connector,
            deadline,
            tally,
            paper: None,
            current: watch::Sender::new(first),
        })))
    }

    /// One that tells what it would write instead of writing it: the one given, or without a
    /// cluster. Must be called in a runtime.
    ///
    /// # Errors
    ///
    /// None that can be expected.
    pub fn on_paper(
        reader: Option<Self>,
        deadline: Duration,
        tell: Tell,
    ) -> Result<Self, ApiError> {
        let (client, reads) = match reader {
            Some(client) => (client, Reads::Cluster),
            None => (Self::without_a_cluster(deadline)?, Reads::Nowhere),
        };
        let shared = &client.0;
        Ok(Self(Arc::new(Shared {
            config: shared.config.clone(),
            connector: shared.connector.clone(),
            deadline,
            tally: Arc::clone(&shared.tally),
            paper: Some(Paper::new(reads, tell)),
            current: watch::Sender::new(shared.current.borrow().clone()),
        })))
    }

    fn without_a_cluster(deadline: Duration) -> Result<Self, ApiError> {
        let nowhere = kube::Config::new(http::Uri::from_static("http://nowhere.invalid"));
        // What is asked of nobody stays unasked, and nothing tries again.
        let silent = transport::in_memory(std::future::pending::<std::io::Result<DuplexStream>>);
        Self::new(nowhere, silent, deadline)
    }

    /// Whether nothing is written: see [`Client::on_paper`]. What others write is not followed then
    /// either, since it would undo what was written here.
    #[must_use]
    pub fn is_on_paper(&self) -> bool {
        self.0.paper.is_some()
    }

    /// Over TCP and TLS, with credentials from `source`. Opens nothing yet.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the credentials.
    pub async fn from_credentials(
        source: credentials::Source<'_>,
        deadline: Duration,
    ) -> Result<Self, ApiError> {
        let config = credentials::load(source).await?;
        let connector = transport::tcp_tls(&config)?;
        Self::new(config, connector, deadline)
    }

    /// Whether the credentials come from a program, which is run again when they expire.
    #[must_use]
    pub fn runs_a_plugin(&self) -> bool {
        let user = &self.0.config.auth_info;
        user.exec.is_some() || user.auth_provider.is_some()
    }

    /// The limit on every request.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.0.deadline
    }

    /// The requests so far, by kind and end.
    #[must_use]
    pub fn requests(&self) -> Vec<(tally::Request, u64)> {
        self.0.tally.all()
    }

    /// The connection in use, and each that replaces it.
    #[must_use]
    pub fn generations(&self) -> watch::Receiver<Generation> {
        self.0.current.subscribe()
    }

    /// The newest state of an object.
    pub async fn get(&self, place: &Place) -> Result<Value, ApiError> {
        self.call(Method::GET, place, Payload::None).await
    }

    /// Creates `object`; gives it as stored.
    pub async fn create(&self, place: &Place, object: &Value) -> Result<Value, ApiError> {
        self.call(Method::POST, place, Payload::Object(object))
            .await
    }

    /// Replaces an object whose resourceVersion is that of `object`; gives it as stored.
    pub async fn replace(&self, place: &Place, object: &Value) -> Result<Value, ApiError> {
        self.call(Method::PUT, place, Payload::Object(object)).await
    }

    /// Applies a strategic merge patch; gives the object as stored.
    pub async fn patch(&self, place: &Place, patch: &[u8]) -> Result<Value, ApiError> {
        self.call(Method::PATCH, place, Payload::StrategicMerge(patch))
            .await
    }

    /// Waits for as long as the server asked to be left alone, but never longer than a deadline.
    pub(super) async fn pause(&self, wanted: Duration) {
        tokio::time::sleep(wanted.min(self.0.deadline)).await;
    }

    async fn call(
        &self,
        method: Method,
        place: &Place,
        payload: Payload<'_>,
    ) -> Result<Value, ApiError> {
        match &self.0.paper {
            None => self.send(method, place, payload).await,
            Some(paper) => paper.answer(self, method, place, payload).await,
        }
    }

    async fn send(
        &self,
        method: Method,
        place: &Place,
        payload: Payload<'_>,
    ) -> Result<Value, ApiError> {
        let verb = tally::verb(&method);
        let call = Call {
            verb: method.as_str().to_owned(),
            object: place.object.clone(),
        };
        let request = request(method, place, &payload).map_err(|source| ApiError::Setup {
            what: "a name as part of a path",
            source: source.into(),
        })?;
        let generation = self.0.current.borrow().clone();
        let limit = self.0.deadline;
        let ended = tokio::time::timeout(limit, generation.exchange(request)).await;
        self.0.tally.count(verb, place.resource, end(&ended));
        let answer = match ended {
            Ok(Ok(answer)) => answer,
            Ok(Err(Failure::Credentials(source))) => {
                return Err(ApiError::Credentials { call, source });
            }
            Ok(Err(Failure::Connection(source))) => {
                self.replace_connection(generation.number);
                return Err(ApiError::Unreachable { call, source });
            }
            Err(_) => {
                self.replace_connection(generation.number);
                return Err(ApiError::Deadline { call, limit });
            }
        };
        debug!(
            verb = call.verb,
            object = call.object,
            code = answer.code.as_u16(),
            "answered"
        );
        self.read(call, &answer, generation.number)
    }

    fn read(&self, call: Call, answer: &Answer, number: u64) -> Result<Value, ApiError> {
        let code = answer.code.as_u16();
        if !answer.code.is_success() {
            return Err(ApiError::refused(call, code, &answer.headers, &answer.body));
        }
        serde_json::from_slice(&answer.body).map_err(|source| {
            // Half an answer under a status of success: what is between us and the server is at
            // fault, so look for another way to it.
            self.replace_connection(number);
            ApiError::Garbled { call, code, source }
        })
    }

    /// Gives up connection `number`, unless somebody did so already.
    fn replace_connection(&self, number: u64) {
        self.0.current.send_if_modified(|current| {
            if current.number != number {
                return false;
            }
            match transport::connect(&self.0.config, self.0.connector.clone()) {
                Ok(client) => {
                    *current = Generation {
                        number: current.number.wrapping_add(1),
                        client,
                        opening: Opening::new(),
                        tally: Arc::clone(&self.0.tally),
                    };
                    debug!(generation = current.number, "connection given up");
                    true
                }
                Err(err) => {
                    // The credentials worked at start. The old connection is no worse than none.
                    warn!(err = err.as_dyn(), "cannot renew connection");
                    false
                }
            }
        });
    }
}

/// An answer, read whole.
struct Answer {
    code: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

/// Why there is no answer.
enum Failure {
    Credentials(BoxError),
    Connection(BoxError),
}

fn end(ended: &Result<Result<Answer, Failure>, tokio::time::error::Elapsed>) -> End {
    match ended {
        Ok(Ok(answer)) => End::answered(answer.code.as_u16()),
        Ok(Err(Failure::Credentials(_))) => End::Credentials,
        Ok(Err(Failure::Connection(_))) => End::Unreachable,
        Err(_) => End::Deadline,
    }
}

impl Generation {
    async fn exchange(
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

fn request(
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::scripted::{Reply, Scripted, refusal};
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_that_start_together_share_one_connection() {
        let server = Scripted::new(vec![Reply::json(200, json!({})); 8]);
        let client = server.client();
        let requests: Vec<_> = (0..8)
            .map(|n| {
                let client = client.clone();
                tokio::spawn(async move { client.get(&Place::node(&n.to_string())).await })
            })
            .collect();
        for request in requests {
            request.await.unwrap().unwrap();
        }
        assert_eq!(server.connections(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_first_request_does_not_hold_up_the_others() {
        let server = Scripted::new([Reply::Silent, Reply::json(200, json!({}))]);
        let (client, other) = (server.client(), server.client());
        let silent = tokio::spawn(async move { client.get(&Place::node("a")).await });
        tokio::task::yield_now().await;
        let before = tokio::time::Instant::now();
        other.get(&Place::node("b")).await.unwrap();
        assert_eq!(before.elapsed(), TURN_LIMIT);
        assert_eq!(server.connections(), 1);
        let err = silent.await.unwrap().unwrap_err();
        assert_eq!(err.to_string(), "GET node a: no answer within 10s");
        assert_eq!(err.disposition(), Disposition::Retry);
        assert_eq!(other.generations().borrow().number(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_on_one_connection_replace_it_once() {
        let server = Scripted::new(vec![Reply::Silent; 2]);
        let client = server.client();
        let (a, b) = (Place::node("a"), Place::node("b"));
        let (a, b) = tokio::join!(client.get(&a), client.get(&b));
        assert!(a.is_err() && b.is_err());
        assert_eq!(client.generations().borrow().number(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_status_leaves_the_connection_alone() {
        let rows = [
            ("status", refusal(500, ""), 0, "500", "500"),
            ("no json", Reply::Garbage, 1, "200", "200"),
            ("cut", Reply::Cut, 1, "no answer", "unreachable"),
            ("silent", Reply::Silent, 1, "no answer within", "deadline"),
            ("unheard of", refusal(599, ""), 0, "599", "0"),
        ];
        for (name, reply, generation, words, counted) in rows {
            let server = Scripted::new([reply]);
            let client = server.client();
            let err = client.get(&Place::node("a")).await.unwrap_err();
            assert!(err.to_string().contains(words), "{name}: {err}");
            assert_eq!(client.generations().borrow().number(), generation, "{name}");
            let requests = client.requests();
            let [(request, 1)] = requests.as_slice() else {
                panic!("{name}: {requests:?}");
            };
            assert_eq!((request.verb, request.resource), ("GET", "nodes"), "{name}");
            assert_eq!(request.end.to_string(), counted, "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn every_request_says_who_asks() {
        let server = Scripted::new([Reply::json(200, json!({}))]);
        server.client().get(&Place::node("a")).await.unwrap();
        let version = env!("CARGO_PKG_VERSION");
        let agent = server.user_agent(0);
        assert!(
            agent.starts_with(&format!("nodepulse/{version} (linux/")),
            "{agent}"
        );
    }
}
