//! The interface to the API server: connections, requests, and the handling of each error.
//!
//! Nothing here decides the status of a condition, or the time of the next sample.
// tidy: long: the client, with one method for each kind of request

#![forbid(unsafe_code)]

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Method;
use hyper::body::Body as _;
use nodepulse_core::backoff::Jitter;
use nodepulse_io::lane::Lane;
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::sync::watch;
use tracing::{debug, warn};

pub mod access;
mod body;
pub mod collection_watch;
pub mod companion;
pub mod convert;
mod credential_reader;
pub mod credentials;
pub mod dry_run;
pub mod endpoint;
pub mod error;
pub mod fuzzing;
pub mod generation;
pub mod lease;
pub mod lease_holder;
pub mod node_list;
pub mod node_watch;
pub mod object_watch;
pub mod patch;
pub mod pod_containers;
pub mod pod_watch;
pub mod presence;
pub mod recorder;
pub mod register;
pub mod signing_requests;
pub mod stale;
pub mod status;
mod stream_limit;
pub mod taints;
pub mod tally;
mod tls;
pub mod transport;

#[cfg(any(test, feature = "testing"))]
#[allow(
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::return_self_not_must_use,
    clippy::unwrap_used,
    reason = "only for tests"
)]
#[path = "tests/scripted.rs"]
pub mod scripted;

use credential_reader::CredentialReader;
use credentials::Credentials;
use dry_run::{DryRun, ReadSource, RequestLog};
pub use endpoint::Endpoint;
pub use error::{ApiError, Call, Disposition, Refusal};
pub use generation::Generation;
use generation::{Payload, SendFailure};
pub use presence::Sign;
pub use transport::Connector;

/// Sends requests, each with a deadline. Clones are cheap and share one connection.
///
/// A request that misses its deadline, or whose connection breaks, makes the next request open a
/// new connection: an unresponsive one would block every request until TCP gives up. An HTTP status
/// never does so, because the server is alive. After a 401 the credentials are read again, and if
/// they have changed the request is sent once more.
#[derive(Clone)]
pub struct Client(
    Arc<Shared>,
    /// The user to impersonate; `None` for the user of the credentials.
    Option<Arc<str>>,
);

struct Shared {
    /// Shared behind a mutex, because any task that sends may find the credentials out of date.
    access: Arc<Mutex<Credentials>>,
    jitter: Mutex<Jitter>,
    /// Reads the credentials again; `None` if they never change.
    reader: Option<Arc<CredentialReader>>,
    deadline: Duration,
    /// Set in a dry run, which sends no writes.
    dry_run: Option<DryRun>,
    /// The task that detects a failure first replaces the connection; all tasks read the newest
    /// value.
    current: watch::Sender<Generation>,
    /// No request is sent until this is true.
    available: watch::Sender<bool>,
    /// The credentials are read by [`Client::load`].
    late: bool,
    /// The reason for which the credentials could not be read so far.
    missing: watch::Sender<Option<String>>,
    /// The server rejected the last request with 401.
    rejected: watch::Sender<bool>,
    /// The user stays the same when the credentials are read again.
    keeps_user: AtomicBool,
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
    /// Creates a client for the server and user of `config`, over `connector`. `deadline` applies
    /// to every request, and is a quarter of the lease duration if the agent renews the Lease.
    ///
    /// Must be called in a runtime. Opens no connection yet.
    pub fn new(
        config: kube::Config,
        connector: Connector,
        deadline: Duration,
    ) -> Result<Self, ApiError> {
        Self::with(Credentials::of_config(config, connector)?, None, deadline)
    }

    fn with(
        access: Credentials,
        reader: Option<CredentialReader>,
        deadline: Duration,
    ) -> Result<Self, ApiError> {
        let shared = Shared::new(access, reader, deadline)?;
        Ok(Self(Arc::new(shared), None))
    }

    /// Creates a client that logs its writes instead of sending them. It reads with `reader`, or
    /// without a cluster. Must be called in a runtime.
    pub fn dry_run(
        reader: Option<Self>,
        deadline: Duration,
        log: RequestLog,
    ) -> Result<Self, ApiError> {
        let (client, reads) = match reader {
            Some(client) => (client, ReadSource::Cluster),
            None => (Self::without_a_cluster(deadline)?, ReadSource::None),
        };
        let shared = &client.0;
        let shared = Shared {
            access: Arc::clone(&shared.access),
            jitter: Mutex::new(Jitter::NONE),
            reader: shared.reader.clone(),
            deadline,
            dry_run: Some(DryRun::new(reads, log)),
            current: watch::Sender::new(shared.current.borrow().clone()),
            available: watch::Sender::new(true),
            late: false,
            missing: watch::Sender::default(),
            rejected: watch::Sender::default(),
            keeps_user: AtomicBool::new(false),
        };
        Ok(Self(Arc::new(shared), None))
    }

    /// Creates a client for credentials that do not exist yet: requests wait until
    /// [`Client::use_stored`] has read them from `source`. Must be called in a runtime.
    pub fn awaiting(
        source: credentials::CredentialSource<'_>,
        deadline: Duration,
    ) -> Result<Self, ApiError> {
        let (nowhere, silent) = no_server();
        let access = Credentials::fixed(nowhere, silent);
        let client = Self::with(access, Some(CredentialReader::new(source)), deadline)?;
        client.0.available.send_replace(false);
        Ok(client)
    }

    /// Makes requests wait until [`Client::use_stored`] is called, for a simulation.
    #[must_use]
    pub fn without_credentials(self) -> Self {
        self.0.available.send_replace(false);
        self
    }

    /// Sends each request as this user of the group `system:nodes`, which needs the permission
    /// `impersonate` on both.
    /// <https://kubernetes.io/docs/reference/access-authn-authz/user-impersonation/>
    #[must_use]
    pub fn as_node(&self, name: &str) -> Self {
        let user = format!("system:node:{name}").into();
        Self(Arc::clone(&self.0), Some(user))
    }

    pub async fn available(&self) {
        let mut available = self.0.available.subscribe();
        // The sender lives as long as the client.
        drop(available.wait_for(|available| *available).await);
    }

    fn without_a_cluster(deadline: Duration) -> Result<Self, ApiError> {
        let (nowhere, silent) = no_server();
        Self::new(nowhere, silent, deadline)
    }

    /// Returns true if writes are not sent, see [`Client::dry_run`]. A dry run does not watch
    /// objects either, because their state would replace its simulated writes.
    pub fn is_dry_run(&self) -> bool {
        self.0.dry_run.is_some()
    }

    /// Creates a client over TCP and TLS, with credentials from `source`, which are read again when
    /// necessary. Opens no connection yet. Runs the program of the kubeconfig, if any, on this
    /// thread.
    pub async fn from_credentials(
        source: credentials::CredentialSource<'_>,
        deadline: Duration,
    ) -> Result<Self, ApiError> {
        let reader = CredentialReader::new(source);
        let access = reader.first(source).await?;
        Self::with(access, Some(reader), deadline)
    }

    /// Like [`Client::from_credentials`], but the program runs on another thread, which has ended
    /// afterwards.
    pub async fn from_bootstrap_credentials(
        source: credentials::CredentialSource<'_>,
        deadline: Duration,
    ) -> Result<Self, ApiError> {
        let reader = CredentialReader::new(source);
        let access = if credentials::have_a_plugin(source).await? {
            reader.first_apart().await?
        } else {
            reader.first(source).await?
        };
        Self::with(access, Some(reader), deadline)
    }

    /// Creates a client with the credentials of `source`, which are read on `lane`, and not again.
    /// Runs no program: [`ApiError::NeedsRestart`] if one issues them.
    pub async fn from_files(
        source: credentials::CredentialSource<'_>,
        lane: &Lane,
        deadline: Duration,
    ) -> Result<Self, ApiError> {
        Self::with(
            CredentialReader::read_once(source, lane).await?,
            None,
            deadline,
        )
    }

    /// Like [`Client::from_credentials`], for an agent that starts in any state of the credentials:
    /// if they cannot be read yet, or a program issues them, requests wait until [`Client::load`]
    /// has read them. Returns `Err` only for a problem that a person has to solve. Runs no program.
    ///
    /// While it is unknown whether a program issues the credentials, one may be run only if
    /// `unknown` permits it.
    pub async fn from_late_credentials(
        source: credentials::CredentialSource<'_>,
        deadline: Duration,
        unknown: credentials::Programs,
    ) -> Result<Self, ApiError> {
        let (plugin, unreadable) = match credentials::have_a_plugin(source).await {
            Ok(true) => (true, None),
            Ok(false) => match Self::from_credentials(source, deadline).await {
                Err(err @ ApiError::Unreadable { .. }) => (false, Some(err)),
                client => return client,
            },
            Err(err @ ApiError::Unreadable { .. }) => (false, Some(err)),
            Err(err) => return Err(err),
        };
        let (nowhere, silent) = no_server();
        let mut access = Credentials::fixed(nowhere, silent);
        access.plugin = plugin;
        let reader = match unknown {
            credentials::Programs::Refused if !plugin => CredentialReader::without_programs(source),
            credentials::Programs::Permitted | credentials::Programs::Refused => {
                CredentialReader::new(source)
            }
        };
        let mut shared = Shared::new(access, Some(reader), deadline)?;
        shared.late = true;
        shared.available.send_replace(false);
        let client = Self(Arc::new(shared), None);
        if let Some(err) = &unreadable {
            client.record_missing(err);
        }
        Ok(client)
    }

    /// Returns the reason for which requests wait for credentials; `None` if they do not, or if no
    /// attempt to read them has ended.
    pub fn missing_credentials(&self) -> watch::Receiver<Option<String>> {
        self.0.missing.subscribe()
    }

    /// Keeps the user, whose certificate another program may replace in its file, when credentials
    /// are read again: only [`Client::use_stored`] changes it.
    #[must_use]
    pub fn keeping_user(self) -> Self {
        self.0.keeps_user.store(true, Ordering::Relaxed);
        self
    }

    /// Returns true while the server rejects the credentials with 401, and changes of that. Answers
    /// that do not depend on the user change nothing.
    pub fn rejections(&self) -> watch::Receiver<bool> {
        self.0.rejected.subscribe()
    }

    /// Spreads requests at random from now on, so that nodes that were refused together do not
    /// return together. Before this call, nothing is spread.
    pub fn spread_by(&self, jitter: Jitter) {
        *lock(&self.0.jitter) = jitter;
    }

    /// Returns a separate random sequence, for a task that sends periodic requests.
    pub fn jitter(&self) -> Jitter {
        lock(&self.0.jitter).fork()
    }

    /// Returns true if the credentials come from a program, which is run again when they expire.
    pub fn runs_a_plugin(&self) -> bool {
        self.access().plugin
    }

    pub fn deadline(&self) -> Duration {
        self.0.deadline
    }

    /// Returns the counts of requests so far, by kind and result.
    pub fn requests(&self) -> Vec<(tally::Request, u64)> {
        self.0.current.borrow().counts().tally.all()
    }

    /// Returns the current connection, and each that replaces it.
    pub fn generations(&self) -> watch::Receiver<Generation> {
        self.0.current.subscribe()
    }

    pub async fn get(&self, endpoint: &Endpoint) -> Result<Value, ApiError> {
        self.call(Method::GET, endpoint, Payload::None).await
    }

    /// Returns the object as stored.
    pub async fn create(&self, endpoint: &Endpoint, object: &Value) -> Result<Value, ApiError> {
        self.call(Method::POST, endpoint, Payload::Object(object))
            .await
    }

    /// Replaces the object with the resourceVersion of `object` and returns it as stored.
    pub async fn replace(&self, endpoint: &Endpoint, object: &Value) -> Result<Value, ApiError> {
        self.call(Method::PUT, endpoint, Payload::Object(object))
            .await
    }

    /// `patch` is a strategic merge patch. Returns the object as stored.
    pub async fn patch(&self, endpoint: &Endpoint, patch: &[u8]) -> Result<Value, ApiError> {
        self.call(Method::PATCH, endpoint, Payload::StrategicMerge(patch))
            .await
    }

    /// Deletes the object if it has this UID, within `grace` seconds; `None` for the grace period
    /// of the object.
    pub async fn delete(
        &self,
        endpoint: &Endpoint,
        uid: Option<&str>,
        grace: Option<u32>,
    ) -> Result<(), ApiError> {
        let mut options = json!({ "apiVersion": "v1", "kind": "DeleteOptions" });
        let map = convert::object_at(&mut options, []);
        if let Some(uid) = uid {
            map.insert("preconditions".to_owned(), json!({ "uid": uid }));
        }
        if let Some(grace) = grace {
            map.insert("gracePeriodSeconds".to_owned(), json!(grace));
        }
        let payload = Payload::Object(&options);
        self.call(Method::DELETE, endpoint, payload).await.map(drop)
    }

    /// Returns the sums of the lengths of all bodies so far, watches excluded: sent, received.
    pub fn traffic(&self) -> [u64; 2] {
        let current = self.0.current.borrow();
        let traffic = &current.counts().traffic;
        traffic.each_ref().map(|sum| sum.load(Ordering::Relaxed))
    }

    /// Waits as long as the server requested, plus a random part, but never longer than a deadline.
    pub async fn pause(&self, wanted: Duration) {
        tokio::time::sleep(self.spread(wanted)).await;
    }

    /// Returns the duration of [`Client::pause`].
    pub fn spread(&self, wanted: Duration) -> Duration {
        let stretched = lock(&self.0.jitter).stretch(wanted, 0.5);
        stretched.min(self.0.deadline)
    }

    /// Waits until any request is answered, or until no request was sent for `patience`.
    pub async fn returned(&self, patience: Duration) -> Sign {
        let counts = Arc::clone(self.0.current.borrow().counts());
        counts.presence.returned(patience).await
    }

    /// Waits before a retry. The wait is shorter if the server returns sooner from an outage.
    pub async fn back_off(&self, wait: Duration) {
        let counts = Arc::clone(self.0.current.borrow().counts());
        if !counts.presence.is_outage() {
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
        endpoint: &Endpoint,
        payload: Payload<'_>,
    ) -> Result<Value, ApiError> {
        match &self.0.dry_run {
            None => self.send(method, endpoint, payload).await,
            Some(dry_run) => dry_run.answer(self, method, endpoint, payload).await,
        }
    }

    async fn send(
        &self,
        method: Method,
        endpoint: &Endpoint,
        payload: Payload<'_>,
    ) -> Result<Value, ApiError> {
        self.available().await;
        if self.access().is_expiring() {
            self.renew_ahead();
        }
        self.refresh_token();
        let generation = self.0.current.borrow().clone();
        let mut result = self.attempt(&generation, &method, endpoint, &payload).await;
        let is_rejected = |result: &Result<Value, ApiError>| {
            let refusal = result.as_ref().err().and_then(ApiError::refusal);
            refusal == Some(Refusal::Unauthorized)
        };
        if is_rejected(&result) && self.renew(generation.number()).await {
            let generation = self.0.current.borrow().clone();
            result = self.attempt(&generation, &method, endpoint, &payload).await;
        }
        self.record_rejection(&result);
        result
    }

    fn record_rejection(&self, result: &Result<Value, ApiError>) {
        let is_authenticated = match result {
            Ok(_) => Some(true),
            Err(err) => err.is_authenticated(),
        };
        if let Some(is_authenticated) = is_authenticated {
            let is_rejected = !is_authenticated;
            let set = |rejected: &mut bool| std::mem::replace(rejected, is_rejected) != is_rejected;
            self.0.rejected.send_if_modified(set);
        }
    }

    async fn attempt(
        &self,
        generation: &Generation,
        method: &Method,
        endpoint: &Endpoint,
        payload: &Payload<'_>,
    ) -> Result<Value, ApiError> {
        let verb = tally::verb(method);
        let call = Call {
            verb: method.as_str().to_owned(),
            object: endpoint.object.clone(),
        };
        let user = self.1.as_deref();
        let request = generation::request(method.clone(), endpoint, payload, user);
        let request = request.map_err(|source| ApiError::Setup {
            what: "a name as part of a path",
            source: source.into(),
        })?;
        let limit = self.0.deadline;
        let sent = request.body().size_hint().exact().unwrap_or_default();
        let exchange = generation.exchange(request, endpoint.limit());
        let ended = tokio::time::timeout(limit, exchange).await;
        let counts = generation.counts();
        counts.ended(verb, endpoint.resource, generation::end(&ended));
        let answer = match ended {
            Ok(Ok(answer)) => answer,
            Ok(Err(SendFailure::Credentials(source))) => {
                return Err(ApiError::Credentials { call, source });
            }
            Ok(Err(SendFailure::TooLarge(limit))) => {
                return Err(ApiError::TooLarge { call, limit });
            }
            Ok(Err(SendFailure::Connection(source))) => {
                self.replace_connection(generation.number());
                self.renew_without_connection();
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
            "request answered"
        );
        counts.carried(sent, answer.body.len());
        let code = answer.code.as_u16();
        if !answer.code.is_success() {
            return Err(ApiError::refused(call, code, &answer.headers, &answer.body));
        }
        body::parse(&answer.body, endpoint.limit()).map_err(|source| {
            // An incomplete answer with a success status: a proxy may be at fault, so try another
            // connection.
            self.replace_connection(generation.number());
            ApiError::Garbled { call, code, source }
        })
    }

    fn access(&self) -> MutexGuard<'_, Credentials> {
        lock(&self.0.access)
    }

    /// Replaces connection `number`, unless another task already did.
    fn replace_connection(&self, number: u64) {
        self.0.current.send_if_modified(|current| {
            if current.number() != number {
                return false;
            }
            match current.next() {
                Ok(next) => {
                    *current = next;
                    debug!(generation = current.number(), "connection replaced");
                    true
                }
                Err(err) => {
                    // The credentials worked at start, and the old connection is no worse than
                    // none.
                    warn!(err = err.as_dyn(), "cannot replace the connection");
                    false
                }
            }
        });
    }
}

impl Shared {
    fn new(
        access: Credentials,
        reader: Option<CredentialReader>,
        deadline: Duration,
    ) -> Result<Self, ApiError> {
        let access = Arc::new(Mutex::new(access));
        let first = Generation::new(Arc::clone(&access))?;
        Ok(Self {
            access,
            jitter: Mutex::new(Jitter::NONE),
            reader: reader.map(Arc::new),
            deadline,
            dry_run: None,
            current: watch::Sender::new(first),
            available: watch::Sender::new(true),
            late: false,
            missing: watch::Sender::default(),
            rejected: watch::Sender::default(),
            keeps_user: AtomicBool::new(false),
        })
    }
}

/// Returns a server whose connection never opens, so that nothing is retried.
fn no_server() -> (kube::Config, Connector) {
    let nowhere = kube::Config::new(http::Uri::from_static("http://nowhere.invalid"));
    let silent = transport::in_memory(std::future::pending::<std::io::Result<DuplexStream>>);
    (nowhere, silent)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
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
    async fn an_unanswered_first_request_does_not_delay_the_others() {
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
    async fn only_an_http_status_keeps_the_connection() {
        let rows = [
            ("status", refusal(500, ""), 0, "500", "500"),
            ("no json", Reply::Garbage, 1, "200", "200"),
            ("cut", Reply::Cut, 1, "no answer", "unreachable"),
            ("silent", Reply::Silent, 1, "no answer within", "deadline"),
            ("undefined", refusal(599, ""), 0, "599", "0"),
        ];
        for (name, reply, generation, text, counted) in rows {
            let server = Scripted::new([reply]);
            let client = server.client();
            let err = client.get(&Endpoint::node("a")).await.unwrap_err();
            assert!(err.to_string().contains(text), "{name}: {err}");
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
    async fn a_client_is_rejected_until_an_answer_depends_on_its_user() {
        let anonymous = json!({"kind": "Status", "code": 403, "reason": "Forbidden",
            "message": "nodes \"a\" is forbidden: User \"system:anonymous\" cannot get resource"});
        let rows = [
            (refusal(500, ""), false),
            (refusal(401, "Unauthorized"), true),
            (refusal(503, ""), true),
            (Reply::Cut, true),
            (refusal(429, ""), true),
            (refusal(403, "Forbidden"), false),
            (Reply::json(403, anonymous), true),
            (Reply::json(200, json!({})), false),
        ];
        let server = Scripted::new(rows.clone().map(|(reply, _)| reply));
        let client = server.client();
        let rejections = client.rejections();
        for (reply, expected) in rows {
            let result = client.get(&Endpoint::node("a")).await;
            assert_eq!(*rejections.borrow(), expected, "{reply:?}: {result:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn every_request_has_a_user_agent() {
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
