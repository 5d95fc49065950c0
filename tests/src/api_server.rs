//! An API server for tests: the semantics that a node's agent meets, and faults on command.
//!
//! It can be reached in two ways. [`ApiServer::start`] listens on loopback with TLS, for real
//! processes and for `kubectl`. [`ApiServer::dial`] returns one end of a connection in memory, so
//! that a whole agent can run under tokio's paused clock; on that path the server takes its time
//! from tokio alone, and does no real input or output.
//!
//! It implements what a node's agent needs: nodes, pods, events, leases and namespaces, with
//! optimistic locks, strategic merge, watches, the node authorizer and the validation that other
//! agents have failed. The kinds of objects that the chart installs are stored, and decoded into
//! their types with `fieldValidation=Strict`. Missing on purpose: JSON patch and server-side apply
//! (415), garbage collection, `managedFields`, admission beyond nodes, and every default that no
//! client of these tests reads.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::io::DuplexStream;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

mod answer;
mod auth;
mod connection;
mod credentials;
mod discovery;
mod failure;
mod faults;
mod http;
mod listener;
mod merge;
mod null;
mod pod_proxy;
mod query;
mod read;
mod record;
mod resource;
mod signer;
mod stamp;
mod state;
mod store;
mod table;
mod tls;
mod typed;
mod validate;
mod watch;
mod write;

pub use auth::{Grant, Identity};
pub use faults::{Effect, Fault, Faults};
pub use null::{Counted, ListedPods, NullServer};
pub use record::{Connections, Recorded};
pub use signer::Issue;

use connection::{Gate, Mode, Wire};
use listener::{accept, until_ended};
use resource::{Resource, Target};
use stamp::ServerClock;
use state::{Freezing, Inner};
use tls::Authority;

/// The server. Its tasks run on the runtime that it was started on.
pub struct ApiServer {
    inner: Arc<Inner>,
    listening: Option<Listening>,
    /// Signs certificates without a listener.
    signer: OnceLock<Authority>,
}

struct Listening {
    authority: Authority,
    address: SocketAddr,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.listening.as_ref().map(|listening| listening.address);
        f.debug_struct("ApiServer")
            .field("address", &address)
            .finish_non_exhaustive()
    }
}

impl ApiServer {
    /// Listens with TLS on a free port of 127.0.0.1.
    pub async fn start() -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::listen(any).await.expect("a free port on loopback")
    }

    /// Listens with TLS on this address. The certificate is good for loopback addresses.
    pub async fn listen(address: SocketAddr) -> io::Result<Self> {
        let inner = Inner::new(ServerClock::Machine);
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let authority = Authority::new();
        let acceptor = authority.acceptor.clone();
        let accepting = tokio::spawn(accept(listener, Arc::clone(&inner), acceptor));
        let listening = Listening {
            authority,
            address,
            accepting: Mutex::new(Some(accepting)),
        };
        Ok(Self {
            inner,
            listening: Some(listening),
            signer: OnceLock::new(),
        })
    }

    /// Limits how many requests at once are answered on one of the connections that follow.
    pub fn limit_streams(&self, max: u32) {
        self.inner.state().max_streams = Some(max);
    }

    /// Listens nowhere: [`ApiServer::dial`] is the only way in, and time is tokio's.
    ///
    /// Must be called on a tokio runtime. Wall time begins at 2026-01-01T00:00:00Z.
    pub fn in_memory() -> Self {
        let clock = ServerClock::Runtime {
            start: Instant::now(),
        };
        Self {
            inner: Inner::new(clock),
            listening: None,
            signer: OnceLock::new(),
        }
    }

    /// `https://127.0.0.1:<port>`; `http://in-memory` without a listener.
    pub fn url(&self) -> String {
        match &self.listening {
            Some(listening) => format!("https://{}", listening.address),
            None => "http://in-memory".to_owned(),
        }
    }

    /// A connection in memory, as an administrator. HTTP/2 with prior knowledge, or HTTP/1.1.
    pub fn dial(&self) -> DuplexStream {
        self.dial_as(Identity::admin())
    }

    /// A connection in memory, as this identity.
    pub fn dial_as(&self, identity: Identity) -> DuplexStream {
        // As much as a loopback socket takes before the writer has to wait.
        const BUFFER: usize = 64 * 1024;
        let (server, client) = tokio::io::duplex(BUFFER);
        let control = self.inner.open();
        let gate = Gate {
            wire: Wire::Memory(server),
            control: Arc::clone(&control),
        };
        let inner = Arc::clone(&self.inner);
        let served = http::serve(gate, inner, Arc::clone(&control), Some(identity));
        tokio::spawn(until_ended(Arc::clone(&self.inner), control, served));
        client
    }

    /// Stops to listen: who connects is refused. Connections there are go on.
    pub async fn refuse(&self) {
        let Some(listening) = &self.listening else {
            return;
        };
        let accepting = lock(&listening.accepting).take();
        if let Some(accepting) = accepting {
            accepting.abort();
            // Cancelled, as requested; the listener is closed when the task has ended.
            let _: Result<(), _> = accepting.await;
        }
    }

    /// Stops listening and closes all connections. The stored objects stay.
    pub async fn stop(&self) {
        self.refuse().await;
        self.inner.set_connections(Mode::Cut);
        let mut changed = self.inner.changed.subscribe();
        let none = changed
            .wait_for(|()| self.inner.state().open.is_empty())
            .await;
        drop(none.expect("the sender lives as long as the server"));
    }

    /// Listens again, on the same port, after [`ApiServer::refuse`] or [`ApiServer::stop`].
    pub async fn restart(&self) {
        let Some(listening) = &self.listening else {
            return;
        };
        self.refuse().await;
        let listener = TcpListener::bind(listening.address)
            .await
            .expect("the port from before");
        let acceptor = listening.authority.acceptor.clone();
        let accepting = tokio::spawn(accept(listener, Arc::clone(&self.inner), acceptor));
        *lock(&listening.accepting) = Some(accepting);
    }

    /// The connections there are stop for ever; new ones work.
    pub fn freeze_connections(&self) {
        self.inner.freeze_connections();
    }

    /// All connections stop, and new ones too.
    pub fn freeze_all(&self) {
        self.inner.freeze_all();
    }

    /// Frozen connections continue.
    pub fn thaw(&self) {
        self.inner.state().freezing = Freezing::No;
        self.inner.set_connections(Mode::Open);
    }

    /// Resets the connections there are.
    pub fn reset_connections(&self) {
        self.inner.set_connections(Mode::Reset);
    }

    /// Sends every client GOAWAY, and answers the requests that it has received before.
    pub fn go_away(&self) {
        for control in self.inner.state().open.values() {
            control.go_away.notify_one();
        }
    }

    /// The fault plan.
    pub fn faults(&self) -> &Faults {
        &self.inner.faults
    }

    /// Forgets all changes: every watch gets 410, as after a restart of the API server.
    pub fn expire_watches(&self) {
        self.inner.state().store.compact();
        self.inner.touch();
    }

    /// The object at a path such as `/api/v1/nodes/worker-1`.
    pub fn object(&self, path: &str) -> Option<Value> {
        let Target {
            resource,
            namespace,
            name,
            ..
        } = target(path);
        let state = self.inner.state();
        state
            .store
            .get(resource, &(namespace, name))
            .map(|object| Value::clone(object))
    }

    /// The path at which an object is created; `None` if the server does not serve its kind.
    pub fn collection(object: &Value) -> Option<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let resource = Resource::of_kind(&text(&object["apiVersion"]), &text(&object["kind"]))?;
        Some(resource.collection(&text(&object["metadata"]["namespace"])))
    }

    /// Stores an object as it is, past all checks; what it lacks of metadata is added. Replaces the
    /// object of that name, status included.
    pub fn put_object(&self, object: Value) -> Value {
        self.inner.put(object)
    }

    /// Removes the object at a path at once, past all checks.
    pub fn delete_object(&self, path: &str) -> Option<Value> {
        let Target {
            resource,
            namespace,
            name,
            ..
        } = target(path);
        let removed = self
            .inner
            .state()
            .store
            .remove(resource, &(namespace, name));
        self.inner.touch();
        removed.map(|object| Value::clone(&object))
    }

    /// The objects below a path such as `/api/v1/namespaces/default/events`, by name.
    pub fn list(&self, path: &str) -> Vec<Value> {
        let Target {
            resource,
            namespace,
            ..
        } = target(path);
        let state = self.inner.state();
        let all = state
            .store
            .snapshot(resource, state.store.revision())
            .unwrap_or_default();
        all.into_iter()
            .filter(|((object_namespace, _), _)| {
                namespace.is_empty() || *object_namespace == namespace
            })
            .map(|(_, object)| Value::clone(&object))
            .collect()
    }

    /// Every request so far, in the order in which they were read.
    pub fn requests(&self) -> Vec<Recorded> {
        self.inner.state().requests.clone()
    }

    /// The requests so far for which `wanted` is true.
    pub fn requests_where(&self, wanted: impl Fn(&Recorded) -> bool) -> Vec<Recorded> {
        let state = self.inner.state();
        let all = state.requests.iter();
        all.filter(|request| wanted(request)).cloned().collect()
    }

    /// This moment, on the clock of [`Recorded::at`].
    pub fn now(&self) -> Duration {
        self.inner.clock.boot()
    }

    /// Wall time since 1970.
    pub fn wall(&self) -> Duration {
        self.inner.clock.wall()
    }

    /// How many connections there were and are.
    #[must_use]
    pub fn connections(&self) -> Connections {
        let state = self.inner.state();
        Connections {
            opened: state.opened,
            open: state.open.len() as u64,
        }
    }

    /// Calls `log` for each request when it is answered. `log` must not call back into the server.
    pub fn log_requests(&self, log: impl Fn(&Recorded) + Send + 'static) {
        self.inner.state().log = Some(Box::new(log));
    }

    /// Waits until `predicate` returns a value. It is called at once, and then after each
    /// request, answer, write, and change of connections.
    pub async fn wait_for<T>(
        &self,
        deadline: Duration,
        what: &str,
        mut predicate: impl FnMut(&Self) -> Option<T>,
    ) -> T {
        let mut changed = self.inner.changed.subscribe();
        let search = async {
            loop {
                changed.mark_unchanged();
                if let Some(found) = predicate(self) {
                    return found;
                }
                changed
                    .changed()
                    .await
                    .expect("the sender lives as long as the server");
            }
        };
        if let Ok(found) = timeout(deadline, search).await {
            return found;
        }
        let requests = self.requests();
        let last: Vec<String> = requests
            .iter()
            .rev()
            .take(20)
            .rev()
            .map(Recorded::to_string)
            .collect();
        panic!(
            "waited {deadline:?} for {what}; {} requests, the last:\n{}",
            requests.len(),
            last.join("\n")
        );
    }

    fn listening(&self) -> &Listening {
        self.listening
            .as_ref()
            .expect("a server with a listener: use ApiServer::start")
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        if let Some(listening) = &self.listening
            && let Some(accepting) = lock(&listening.accepting).take()
        {
            accepting.abort();
        }
        self.inner.set_connections(Mode::Cut);
    }
}

fn target(path: &str) -> Target {
    Target::parse(path).unwrap_or_else(|_| panic!("{path} is no path that the server serves"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
