//! The edge to the API server: how it is reached, what is written to it, and how each of its
//! errors is to be taken.
//!
//! Absent on purpose: nothing here decides what a condition should be, or when to look again.

#![forbid(unsafe_code)]

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Method;
use serde_json::Value;
use tokio::io::DuplexStream;
use tokio::sync::watch;
use tracing::{debug, warn};

pub mod access;
pub mod backoff;
mod body;
pub mod companion;
pub mod convert;
pub mod credentials;
pub mod dry_run;
pub mod endpoint;
pub mod error;
pub mod fuzzing;
pub mod generation;
pub mod holder;
pub mod lease;
pub mod node_watch;
pub mod object_watch;
pub mod patch;
pub mod pod_containers;
pub mod pod_watch;
pub mod presence;
pub mod recorder;
pub mod register;
mod renewal;
pub mod status;
pub mod taints;
pub mod tally;
pub mod transport;

#[cfg(test)]
mod scripted;

use backoff::Jitter;
use credentials::Credentials;
use dry_run::{DryRun, ReadSource, RequestLog};
pub use endpoint::Endpoint;
pub use error::{ApiError, Call, Disposition, Refusal};
pub use generation::Generation;
use generation::{Failure, Payload};
pub use presence::Sign;
use renewal::Renewal;
pub use transport::Connector;

/// Sends requests, each within a deadline. Cheap to clone; all clones share one connection.
///
/// A request that meets its deadline, or whose connection breaks, makes the next request open a
/// new connection: a silent one would swallow every request until TCP gives it up. An HTTP status
/// never does, since whoever sent it is alive; but after a 401 the credentials are read anew, and
/// where they have changed the request is sent once more with them.
#[derive(Clone)]
pub struct Client(Arc<Shared>);

struct Shared {
    /// Behind mutexes, since every task that sends may be the one that finds them out of date.
    access: Arc<Mutex<Credentials>>,
    jitter: Mutex<Jitter>,
    /// Where credentials are read anew; `None` where they never change.
    renewal: Option<Arc<Renewal>>,
    deadline: Duration,
    /// Nothing is written but here.
    paper: Option<DryRun>,
    /// Whoever sees a failure first replaces the connection; everybody reads the newest value.
    current: watch::Sender<Generation>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = self.access().config.cluster_url.clone();
        f.debug_struct("Client")
            .field("server", &server)
            .field("generation", &self.0.current.borrow().number())
            .finish_non_exhaustive()
    }
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
        Self::with(Credentials::fixed(config, connector), None, deadline)
    }

    fn with(
        access: Credentials,
        renewal: Option<Renewal>,
        deadline: Duration,
    ) -> Result<Self, ApiError> {
        let first = Generation::new(access.connect()?);
        Ok(Self(Arc::new(Shared {
            access: Arc::new(Mutex::new(access)),
            jitter: Mutex::new(Jitter::NONE),
            renewal: renewal.map(Arc::new),
            deadline,
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
    pub fn dry_run(
        reader: Option<Self>,
        deadline: Duration,
        tell: RequestLog,
    ) -> Result<Self, ApiError> {
        let (client, reads) = match reader {
            Some(client) => (client, ReadSource::Cluster),
            None => (Self::without_a_cluster(deadline)?, ReadSource::Nowhere),
        };
        let shared = &client.0;
        Ok(Self(Arc::new(Shared {
            access: Arc::clone(&shared.access),
            jitter: Mutex::new(Jitter::NONE),
            renewal: shared.renewal.clone(),
            deadline,
            paper: Some(DryRun::new(reads, tell)),
            current: watch::Sender::new(shared.current.borrow().clone()),
        })))
    }

    fn without_a_cluster(deadline: Duration) -> Result<Self, ApiError> {
        let nowhere = kube::Config::new(http::Uri::from_static("http://nowhere.invalid"));
        // What is asked of nobody stays unasked, and nothing tries again.
        let silent = transport::in_memory(std::future::pending::<std::io::Result<DuplexStream>>);
        Self::new(nowhere, silent, deadline)
    }

    /// Whether nothing is written: see [`Client::dry_run`]. What others write is not followed then
    /// either, since it would undo what was written here.
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        self.0.paper.is_some()
    }

    /// Over TCP and TLS, with credentials from `source`, which are read anew when they have to be.
    /// Opens nothing yet. Runs the program that the kubeconfig may name, on this thread.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the credentials.
    pub async fn from_credentials(
        source: credentials::Source<'_>,
        deadline: Duration,
    ) -> Result<Self, ApiError> {
        let renewal = Renewal::of(source);
        let access = renewal.first(source).await?;
        Self::with(access, Some(renewal), deadline)
    }

    /// Spreads what is retried at random from now on, so that nodes which were refused together
    /// do not come back together.
    pub fn spread_by(&self, jitter: Jitter) {
        *lock(&self.0.jitter) = jitter;
    }

    /// Whether the credentials come from a program, which is run again when they expire.
    #[must_use]
    pub fn runs_a_plugin(&self) -> bool {
        self.access().plugin
    }

    /// The limit on every request.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.0.deadline
    }

    /// The requests so far, by kind and end.
    #[must_use]
    pub fn requests(&self) -> Vec<(tally::Request, u64)> {
        self.0.current.borrow().counts().tally.all()
    }

    /// The connection in use, and each that replaces it.
    #[must_use]
    pub fn generations(&self) -> watch::Receiver<Generation> {
        self.0.current.subscribe()
    }

    /// The newest state of an object.
    pub async fn get(&self, place: &Endpoint) -> Result<Value, ApiError> {
        self.call(Method::GET, place, Payload::None).await
    }

    /// Creates `object`; gives it as stored.
    pub async fn create(&self, place: &Endpoint, object: &Value) -> Result<Value, ApiError> {
        self.call(Method::POST, place, Payload::Object(object))
            .await
    }

    /// Replaces an object whose resourceVersion is that of `object`; gives it as stored.
    pub async fn replace(&self, place: &Endpoint, object: &Value) -> Result<Value, ApiError> {
        self.call(Method::PUT, place, Payload::Object(object)).await
    }

    /// Applies a strategic merge patch; gives the object as stored.
    pub async fn patch(&self, place: &Endpoint, patch: &[u8]) -> Result<Value, ApiError> {
        self.call(Method::PATCH, place, Payload::StrategicMerge(patch))
            .await
    }

    /// Waits for as long as the server asked to be left alone, and a little longer at random; but
    /// never longer than a deadline.
    pub(super) async fn pause(&self, wanted: Duration) {
        tokio::time::sleep(self.spread(wanted)).await;
    }

    /// The same, as a value.
    pub(super) fn spread(&self, wanted: Duration) -> Duration {
        let stretched = lock(&self.0.jitter).stretch(wanted, 0.5);
        stretched.min(self.0.deadline)
    }

    /// Waits until somebody gets an answer from the server; at most until nobody has even asked
    /// for `patience`.
    pub(super) async fn returned(&self, patience: Duration) -> Sign {
        let counts = Arc::clone(self.0.current.borrow().counts());
        counts.presence.returned(patience).await
    }

    /// Waits before another try; less where the server was away and is back sooner.
    pub(super) async fn back_off(&self, wait: Duration) {
        let counts = Arc::clone(self.0.current.borrow().counts());
        if !counts.presence.is_away() {
            return tokio::time::sleep(wait).await;
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = counts.presence.returned(wait) => {}
        }
    }

    async fn call(
        &self,
        method: Method,
        place: &Endpoint,
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
        place: &Endpoint,
        payload: Payload<'_>,
    ) -> Result<Value, ApiError> {
        if self.access().is_ending() {
            self.renew_ahead();
        }
        self.refresh_token();
        let generation = self.0.current.borrow().clone();
        let result = self.attempt(&generation, &method, place, &payload).await;
        match &result {
            Err(err)
                if err.refusal() == Some(Refusal::Unauthorized)
                    && self.renew(generation.number()).await =>
            {
                let generation = self.0.current.borrow().clone();
                self.attempt(&generation, &method, place, &payload).await
            }
            Ok(_) | Err(_) => result,
        }
    }

    async fn attempt(
        &self,
        generation: &Generation,
        method: &Method,
        place: &Endpoint,
        payload: &Payload<'_>,
    ) -> Result<Value, ApiError> {
        let verb = tally::verb(method);
        let call = Call {
            verb: method.as_str().to_owned(),
            object: place.object.clone(),
        };
        let request = generation::request(method.clone(), place, payload).map_err(|source| {
            ApiError::Setup {
                what: "a name as part of a path",
                source: source.into(),
            }
        })?;
        let limit = self.0.deadline;
        let exchange = generation.exchange(request, place.limit());
        let ended = tokio::time::timeout(limit, exchange).await;
        let counts = generation.counts();
        counts.ended(verb, place.resource, generation::end(&ended));
        let answer = match ended {
            Ok(Ok(answer)) => answer,
            Ok(Err(Failure::Credentials(source))) => {
                return Err(ApiError::Credentials { call, source });
            }
            Ok(Err(Failure::TooLarge(limit))) => {
                return Err(ApiError::TooLarge { call, limit });
            }
            Ok(Err(Failure::Connection(source))) => {
                self.replace_connection(generation.number());
                self.renew_in_passing();
                return Err(ApiError::Unreachable { call, source });
            }
            Err(_) => {
                self.replace_connection(generation.number());
                return Err(ApiError::Deadline { call, limit });
            }
        };
        debug!(
            verb = call.verb,
            object = call.object,
            code = answer.code.as_u16(),
            "answered"
        );
        let code = answer.code.as_u16();
        if !answer.code.is_success() {
            return Err(ApiError::refused(call, code, &answer.headers, &answer.body));
        }
        body::parse(&answer.body, place.limit()).map_err(|source| {
            // Half an answer under a status of success: what is between us and the server is at
            // fault, so look for another way to it.
            self.replace_connection(generation.number());
            ApiError::Garbled { call, code, source }
        })
    }

    fn access(&self) -> MutexGuard<'_, Credentials> {
        lock(&self.0.access)
    }

    /// Gives up connection `number`, unless somebody did so already.
    fn replace_connection(&self, number: u64) {
        self.0.current.send_if_modified(|current| {
            if current.number() != number {
                return false;
            }
            match self.access().connect() {
                Ok(client) => {
                    *current = current.next(client);
                    debug!(generation = current.number(), "connection given up");
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::generation::TURN_LIMIT;
    use super::scripted::{Reply, Scripted, refusal};
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_that_start_together_share_one_connection() {
        let server = Scripted::new(vec![Reply::json(200, json!({})); 8]);
        let client = server.client();
        let requests: Vec<_> = (0..8)
            .map(|n| {
                let client = client.clone();
                tokio::spawn(async move { client.get(&Endpoint::node(&n.to_string())).await })
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
        let silent = tokio::spawn(async move { client.get(&Endpoint::node("a")).await });
        tokio::task::yield_now().await;
        let before = tokio::time::Instant::now();
        other.get(&Endpoint::node("b")).await.unwrap();
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
        let (a, b) = (Endpoint::node("a"), Endpoint::node("b"));
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
            let err = client.get(&Endpoint::node("a")).await.unwrap_err();
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
        server.client().get(&Endpoint::node("a")).await.unwrap();
        let version = env!("CARGO_PKG_VERSION");
        let agent = server.user_agent(0);
        assert!(
            agent.starts_with(&format!("nodepulse/{version} (linux/")),
            "{agent}"
        );
    }
}
