//! EDGE: metrics and health over HTTP, for whoever can reach a port of this node, and more of the
//! agent's state for whoever may open its control socket.
//!
//! | path | says |
//! |---|---|
//! | `/metrics` | every metric; asked of the loop, at most one at a time |
//! | `/livez`, `/healthz` | 200 while the agent's one thread turns; knows nothing of the API server |
//! | `/readyz` | 200 while the agent does its work, else 503 and why not: not yet, or a call that hangs |
//! | `/v1/status` | control socket only: the status that should be at the API server, as JSON |
//! | `/v1/explain` | control socket only: why each condition has its status, as JSON |
//!
//! Absent on purpose: TLS, and anything that changes something. One request a connection. A client
//! that is slow loses the connection: at a limit, and earlier if newer connections need its place, so
//! that nobody can keep a probe from an answer.

#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::DuplexStream;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tracing::{info, warn};

mod accept;
mod pages;
mod queue;
pub mod socket;

use crate::lane::Lane;
use socket::Socket;

/// Where a kubelet says that it is well.
pub const KUBELET_HEALTHZ: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10248);

/// Longest that the loop may take to answer. Less than a Prometheus waits.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// What is served at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// Metrics and health.
    All,
    /// `/healthz` alone.
    Healthz,
    /// Everything that there is.
    Control,
}

/// Where connections come from.
#[derive(Debug)]
pub enum Listener {
    /// A port.
    Tcp(TcpListener),
    /// The control socket.
    Unix(Socket),
    /// Whoever holds the other end: a simulation.
    InMemory(mpsc::Receiver<DuplexStream>),
}

/// A place where something is served.
#[derive(Debug)]
pub struct Site {
    /// Where.
    pub listener: Listener,
    /// What.
    pub pages: Pages,
}

impl Site {
    /// Listens at `address`. A port that cannot be had is one warning that names `cure`, and the
    /// agent runs without. Must be called in a runtime.
    #[must_use]
    pub fn open(address: SocketAddr, pages: Pages, cure: &'static str) -> Option<Self> {
        match listen(address) {
            Ok((listener, address)) => {
                info!(%address, "serving");
                let listener = Listener::Tcp(listener);
                Some(Self { listener, pages })
            }
            Err(err) => {
                let err = &err as &dyn std::error::Error;
                warn!(%address, err, cure, "not serving");
                None
            }
        }
    }
}

/// Connections that the kernel accepts before we do. If there are more, the kernel answers none until
/// its peer tries again, a second later: too late for a probe.
const BACKLOG: u32 = 4096;

fn listen(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Whether the agent does its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// It does.
    Ready,
    /// Not yet, and why.
    NotReady(&'static str),
}

/// What only the loop knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryKind {
    /// The metrics, in their own format.
    Metrics,
    /// The status that should be at the API server, as JSON.
    Status,
    /// Why each condition has its status, as JSON.
    Explain,
}

/// Somebody wants to know something.
#[derive(Debug)]
pub struct Query {
    /// What.
    pub subject: QueryKind,
    /// Takes the text.
    pub answer: oneshot::Sender<String>,
}

/// Runs the sites until dropped.
#[derive(Debug)]
pub struct Server {
    tasks: JoinSet<()>,
    /// Those that serve metrics and health at a port.
    ports: Vec<AbortHandle>,
    front: Front,
}

/// What the pages are made from.
#[derive(Debug, Clone)]
struct Front {
    readiness: watch::Receiver<Readiness>,
    lanes: Arc<[Lane]>,
    /// To the loop. Holds one: who asks has the only permit.
    queries: mpsc::Sender<Query>,
    one: Arc<Semaphore>,
}

impl Server {
    /// Serves `sites`. Queries go to the receiver that is given back. Must be called in a runtime.
    #[must_use]
    pub fn start(
        sites: Vec<Site>,
        readiness: watch::Receiver<Readiness>,
        lanes: Arc<[Lane]>,
    ) -> (Self, mpsc::Receiver<Query>) {
        let (queries, asked) = mpsc::channel(1);
        let front = Front {
            readiness,
            lanes,
            queries,
            one: Arc::new(Semaphore::new(1)),
        };
        let mut server = Self {
            tasks: JoinSet::new(),
            ports: Vec::new(),
            front,
        };
        for site in sites {
            server.open(site);
        }
        (server, asked)
    }

    /// Serves one place more.
    pub fn open(&mut self, Site { listener, pages }: Site) {
        let is_port = pages == Pages::All;
        let task = accept::run(listener, pages, self.front.clone());
        let task = self.tasks.spawn(task);
        if is_port {
            self.ports.push(task);
        }
    }

    /// Waits until a place is not served any more without [`Server::close_ports`], which no client
    /// can cause.
    pub async fn ended(&mut self) {
        while let Some(ended) = self.tasks.join_next().await {
            if !ended.is_err_and(|err| err.is_cancelled()) {
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    /// Serves metrics and health at no port any more. Connections that are open are cut.
    pub fn close_ports(&mut self) {
        for port in self.ports.drain(..) {
            port.abort();
        }
        // Those that have ended.
        while self.tasks.try_join_next().is_some() {}
    }
}

impl Front {
    /// Whether the agent does its work; `Err`: why not.
    fn ready(&self) -> Result<(), Cow<'static, str>> {
        if let Readiness::NotReady(why) = *self.readiness.borrow() {
            return Err(why.into());
        }
        let blocked = self.lanes.iter().filter(|lane| lane.is_blocked());
        let blocked: Vec<_> = blocked.map(|lane| lane.purpose().as_str()).collect();
        if blocked.is_empty() {
            return Ok(());
        }
        let blocked = blocked.join(", ");
        Err(format!("a file system does not answer; blocked calls: {blocked}").into())
    }

    /// What the loop says of it; `None` where it has no time for that.
    async fn ask(&self, subject: QueryKind) -> Option<String> {
        let ask = async {
            let _one = self.one.acquire().await.ok()?;
            let (answer, answered) = oneshot::channel();
            self.queries.send(Query { subject, answer }).await.ok()?;
            answered.await.ok()
        };
        tokio::time::timeout(ANSWER_LIMIT, ask).await.ok().flatten()
    }
}
