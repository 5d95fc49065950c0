//! EDGE: metrics and health over HTTP, for whoever can reach a port of this node.
//!
//! | path | says |
//! |---|---|
//! | `/metrics` | every metric; asked of the loop, at most one at a time |
//! | `/livez`, `/healthz` | 200 while the agent's one thread turns; knows nothing of the API server |
//! | `/readyz` | 200 once the agent does its work, else 503 and why not yet |
//!
//! Absent on purpose: TLS, and anything that changes something. One request a connection; whoever
//! is slow loses the connection.

#![forbid(unsafe_code)]

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::DuplexStream;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};

mod accept;
mod pages;

/// Where a kubelet says that it is well.
pub const KUBELET_HEALTHZ: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10248);

/// Longest that the loop may take to answer a scrape. Less than a Prometheus waits.
const SCRAPE_LIMIT: Duration = Duration::from_secs(5);

/// What is served at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// All of it.
    All,
    /// `/healthz` alone.
    Healthz,
}

/// Where connections come from.
#[derive(Debug)]
pub enum Listener {
    /// A port.
    Tcp(TcpListener),
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
    pub async fn open(address: SocketAddr, pages: Pages, cure: &'static str) -> Option<Self> {
        match listen(address).await {
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

async fn listen(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
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

/// Somebody wants the metrics.
#[derive(Debug)]
pub struct Scrape {
    /// Takes the text.
    pub answer: oneshot::Sender<String>,
}

/// Runs the sites until dropped.
#[derive(Debug)]
pub struct Server {
    _tasks: JoinSet<()>,
}

/// What the pages are made from.
#[derive(Debug, Clone)]
struct Front {
    readiness: watch::Receiver<Readiness>,
    /// To the loop. Holds one: who asks has the only permit.
    scrapes: mpsc::Sender<Scrape>,
    one: Arc<Semaphore>,
}

impl Server {
    /// Serves `sites`. Scrapes go to the receiver that is given back. Must be called in a runtime.
    #[must_use]
    pub fn start(
        sites: Vec<Site>,
        readiness: watch::Receiver<Readiness>,
    ) -> (Self, mpsc::Receiver<Scrape>) {
        let (scrapes, asked) = mpsc::channel(1);
        let front = Front {
            readiness,
            scrapes,
            one: Arc::new(Semaphore::new(1)),
        };
        let mut tasks = JoinSet::new();
        for Site { listener, pages } in sites {
            tasks.spawn(accept::run(listener, pages, front.clone()));
        }
        (Self { _tasks: tasks }, asked)
    }
}

impl Front {
    /// The metrics; `None` where the loop has no time for them.
    async fn scrape(&self) -> Option<String> {
        let ask = async {
            let _one = self.one.acquire().await.ok()?;
            let (answer, answered) = oneshot::channel();
            self.scrapes.send(Scrape { answer }).await.ok()?;
            answered.await.ok()
        };
        tokio::time::timeout(SCRAPE_LIMIT, ask).await.ok().flatten()
    }
}
