//! EDGE: metrics and health over HTTP on a port, and the agent's state on the control socket.
//!
//! | path | answer |
//! |---|---|
//! | `/metrics` | all metrics; limited, see below |
//! | `/livez`, `/healthz` | 200 while the agent's thread runs; independent of the API server |
//! | `/readyz` | 200 if the agent is ready with its last configuration, else 503 with the reason |
//! | `/readyz?verbose` | the same, and whether each receiver of incidents accepts them |
//! | `/v1/status` | control socket only: the desired node status, as JSON |
//! | `/v1/explain` | control socket only: why each condition has its status, as JSON |
//! | `/v1/record` | control socket only: a recording, for as long as the client reads it |
//!
//! Requests for metrics reach the loop one at a time, and after 8 at once one a second: more are
//! answered from the last page.
//!
//! There is no TLS, and no request changes state. A connection serves one request. A slow client is
//! disconnected at a time limit, or earlier if newer connections need its place, so that no client
//! can starve a health probe.

#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::DuplexStream;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tracing::{info, warn};

mod accept;
mod pages;
mod queue;
pub mod recording;
pub mod socket;

use nodepulse_io::budget::Budget;
use nodepulse_io::lane::Lane;

use crate::telemetry::series::SinkSeries;
use recording::{LiveRecording, RecordedLines};
use socket::Socket;

/// The kubelet's health endpoint.
pub const KUBELET_HEALTHZ: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10248);

/// Time limit for an answer of the loop, below Prometheus' scrape timeout.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Pages of metrics that are written at once: for a few Prometheus servers and a person.
const WRITTEN: u32 = 8;

/// Interval after which one more is written. Others get the last one, which is not older.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// Metrics and health.
    All,
    /// `/healthz` alone.
    Healthz,
    Control,
}

#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    Unix(Socket),
    /// In-memory streams, in a simulation.
    InMemory(mpsc::Receiver<DuplexStream>),
}

#[derive(Debug)]
pub struct Site {
    pub listener: Listener,
    pub pages: Pages,
}

impl Site {
    /// Listens on `address`. If that fails, it logs a warning with `remedy`, and the agent runs
    /// without. Must be called in a runtime.
    pub fn open(address: SocketAddr, pages: Pages, remedy: &'static str) -> Option<Self> {
        match listen(address) {
            Ok((listener, address)) => {
                info!(%address, "serving");
                let listener = Listener::Tcp(listener);
                Some(Self { listener, pages })
            }
            Err(err) => {
                let err = &err as &dyn std::error::Error;
                warn!(%address, err, remedy, "not serving");
                None
            }
        }
    }
}

/// Backlog of the listener. If it is full, a retry after a second is too late for a probe.
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

#[derive(Debug, Clone, Default)]
pub struct ReadyPage {
    /// Reason why the agent is not ready.
    pub not_ready: Option<&'static str>,
    /// Reason why the last configuration that was read is not in effect.
    pub refused_configuration: Option<String>,
    /// The receivers of incidents. A failing one does not make the agent unready.
    pub sinks: Vec<(&'static str, SinkSeries)>,
}

/// A page with the state of the agent, which only the loop can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatePage {
    Metrics,
    Status,
    Explain,
}

/// A request that only the loop can answer.
#[derive(Debug)]
pub enum StateRequest {
    /// The sender waits for the answer.
    Page {
        page: StatePage,
        answer: oneshot::Sender<String>,
    },
    /// Record what the subjects do.
    Record(LiveRecording),
}

/// Serves the sites until dropped.
#[derive(Debug)]
pub struct Server {
    tasks: JoinSet<()>,
    /// Tasks of the sites with [`Pages::All`].
    ports: Vec<AbortHandle>,
    responder: PageResponder,
}

#[derive(Debug, Clone)]
struct PageResponder {
    ready_page: watch::Receiver<ReadyPage>,
    lanes: Arc<[Lane]>,
    /// The obstacle that the agent waits for before it can send anything.
    obstacle: Option<watch::Receiver<Option<String>>>,
    /// Requests to the loop; capacity 1.
    requests: mpsc::Sender<StateRequest>,
    /// The permit to send, which one of the connections keeps while it waits for the answer.
    one: Arc<Mutex<Metrics>>,
}

/// The metrics that were last written, for clients that request them in a loop.
#[derive(Debug)]
struct Metrics {
    last: Option<Bytes>,
    budget: Budget,
}

impl Server {
    /// Closes all sockets, which dropping it does only when the runtime next runs its tasks.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }

    /// Serves `sites`. Returns the receiver of requests. Must be called in a runtime.
    pub fn start(
        sites: Vec<Site>,
        ready_page: watch::Receiver<ReadyPage>,
        lanes: Arc<[Lane]>,
        obstacle: Option<watch::Receiver<Option<String>>>,
    ) -> (Self, mpsc::Receiver<StateRequest>) {
        let (requests, receiver) = mpsc::channel(1);
        let responder = PageResponder {
            ready_page,
            lanes,
            obstacle,
            requests,
            one: Arc::new(Mutex::new(Metrics {
                last: None,
                budget: Budget::new(WRITTEN, WRITE_INTERVAL, Instant::now()),
            })),
        };
        let mut server = Self {
            tasks: JoinSet::new(),
            ports: Vec::new(),
            responder,
        };
        for site in sites {
            server.open(site);
        }
        (server, receiver)
    }

    pub fn open(&mut self, Site { listener, pages }: Site) {
        let is_port = pages == Pages::All;
        let task = accept::run(listener, pages, self.responder.clone());
        let task = self.tasks.spawn(task);
        if is_port {
            self.ports.push(task);
        }
    }

    /// Returns when serving ends other than by [`Server::close_ports`]. No client can cause it.
    pub async fn ended(&mut self) {
        while let Some(ended) = self.tasks.join_next().await {
            if !ended.is_err_and(|err| err.is_cancelled()) {
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    /// Stops serving metrics and health on ports, and closes open connections.
    pub fn close_ports(&mut self) {
        for port in self.ports.drain(..) {
            port.abort();
        }
        // Removes ended tasks.
        while self.tasks.try_join_next().is_some() {}
    }
}

impl PageResponder {
    /// Returns `Err` with the reason if the agent is not ready.
    fn ready(&self) -> Result<(), Cow<'static, str>> {
        let obstacle = self.obstacle.as_ref();
        if let Some(why) = obstacle.and_then(|obstacle| obstacle.borrow().clone()) {
            return Err(why.into());
        }
        let page = self.ready_page.borrow();
        if let Some(why) = page.not_ready {
            return Err(why.into());
        }
        if let Some(why) = &page.refused_configuration {
            return Err(format!("the configuration is refused: {why}").into());
        }
        let blocked = self.lanes.iter().filter(|lane| lane.is_blocked());
        let blocked: Vec<_> = blocked.map(|lane| lane.purpose().as_str()).collect();
        if blocked.is_empty() {
            return Ok(());
        }
        let blocked = blocked.join(", ");
        Err(format!("blocked file system calls: {blocked}").into())
    }

    /// Returns the state of each receiver of incidents in a line.
    fn sinks(&self) -> String {
        let line = |(sink, series): &(&str, SinkSeries)| match series.failing.get() {
            0 => format!("\n[+]sink/{sink} ok"),
            _ => format!("\n[-]sink/{sink} failing, {} wait", series.lag.get()),
        };
        self.ready_page.borrow().sinks.iter().map(line).collect()
    }

    /// The answer of the loop; `None` after [`ANSWER_LIMIT`].
    async fn ask(&self, page: StatePage) -> Option<Bytes> {
        let ask = async {
            let mut metrics = self.one.lock().await;
            let is_metrics = page == StatePage::Metrics;
            if is_metrics
                && !metrics.budget.take(Instant::now())
                && let Some(last) = &metrics.last
            {
                return Some(last.clone());
            }
            let (answer, answered) = oneshot::channel();
            let request = StateRequest::Page { page, answer };
            self.requests.send(request).await.ok()?;
            let text = Bytes::from(answered.await.ok()?);
            if is_metrics {
                metrics.last = Some(text.clone());
            }
            Some(text)
        };
        tokio::time::timeout(ANSWER_LIMIT, ask).await.ok().flatten()
    }

    /// Begins a recording; `None` after [`ANSWER_LIMIT`].
    async fn record(&self) -> Option<RecordedLines> {
        let (recording, lines) = recording::channel();
        let ask = async {
            let _one = self.one.lock().await;
            let request = StateRequest::Record(recording);
            self.requests.send(request).await.ok()
        };
        let asked = tokio::time::timeout(ANSWER_LIMIT, ask).await;
        asked.ok().flatten().map(|()| lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn metrics_that_are_requested_in_a_loop_are_answered_from_the_last_page() {
        let (_ready, ready_page) = watch::channel(ReadyPage::default());
        let (server, mut requests) = Server::start(Vec::new(), ready_page, Arc::new([]), None);
        tokio::spawn(async move {
            let mut written = 0;
            while let Some(StateRequest::Page { answer, .. }) = requests.recv().await {
                written += 1;
                answer.send(written.to_string()).unwrap();
            }
        });
        let ask = async |page| server.responder.ask(page).await.unwrap();
        for n in 1..=1000 {
            assert_eq!(ask(StatePage::Metrics).await, n.min(8).to_string());
        }
        // milliseconds, the page
        for (wait, expected) in [(999, "8"), (1, "9"), (0, "9")] {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            assert_eq!(ask(StatePage::Metrics).await, expected);
        }
        assert_eq!(ask(StatePage::Explain).await, "10", "another page");
        assert_eq!(ask(StatePage::Metrics).await, "9");
    }
}
