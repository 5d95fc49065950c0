//! Metrics and health over HTTP: their contents, and the limits for clients.

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use nodepulse::testing::CONTENT_TYPE;
use nodepulse_tests::SOON;
use nodepulse_tests::http1::{exchange, get, request};
use nodepulse_tests::node::{Node, in_memory, pass};
use nodepulse_tests::openmetrics::Exposition;
use nodepulse_tests::process::Process;
use nodepulse_tests::view::View;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::Instant;

/// Time limit of a connection.
const LIFE_LIMIT: Duration = Duration::from_secs(15);
/// Time limit for a client to send its request.
const HEADER_LIMIT: Duration = Duration::from_secs(5);
/// Connections at a time that have an answer of the loop, or wait for it.
const ANSWERED: usize = 16;

#[tokio::test(start_paused = true)]
async fn each_page_serves_its_content() {
    let api = in_memory();
    let node = Node::named("worker-1").start(&api);
    View::of(&api, "worker-1").settled(SOON).await;
    let large = format!("GET /livez HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(9 << 10));
    let rows = [
        ("live", request("GET", "/livez"), 200, "ok"),
        ("healthy", request("GET", "/healthz"), 200, "ok"),
        ("ready", request("GET", "/readyz"), 200, "ok"),
        ("a query", request("GET", "/livez?verbose=1"), 200, "ok"),
        ("the head alone", request("HEAD", "/metrics"), 200, ""),
        ("no such page", request("GET", "/"), 404, "not found"),
        (
            "no such page",
            request("GET", "/metrics/"),
            404,
            "not found",
        ),
        ("a write", request("POST", "/metrics"), 405, "only GET"),
        ("a deletion", request("DELETE", "/livez"), 405, "only GET"),
        ("a large head", large, 431, ""),
        ("garbage", "\u{1}\u{2}\r\n\r\n".to_owned(), 400, ""),
        (
            "another protocol",
            "PRI * HTTP/2.0\r\n\r\n".to_owned(),
            400,
            "",
        ),
    ];
    for (name, request, code, body) in rows {
        let answer = exchange(node.visit().await, &request).await;
        assert_eq!(answer.code, Some(code), "{name}: {answer:?}");
        assert!(answer.body.starts_with(body), "{name}: {answer:?}");
        if code == 405 {
            assert!(answer.head.contains("\r\nallow: get, head"), "{answer:?}");
        }
    }
    let metrics = node.get("/metrics").await;
    let content_type = format!("\r\ncontent-type: {CONTENT_TYPE}\r\n");
    assert!(metrics.head.contains(&content_type), "{}", metrics.head);
    Exposition::parse(&metrics.body).unwrap();
}

#[tokio::test(start_paused = true)]
async fn it_is_live_without_the_api_server_and_ready_once_its_status_is_stored() {
    let api = in_memory();
    let node = Node::named("worker-1").out_of_reach().start(&api);
    pass(Duration::from_mins(10)).await;
    assert_eq!(node.get("/livez").await.code, Some(200));
    let waiting = node.get("/readyz").await;
    assert_eq!(waiting.code, Some(503));
    assert!(
        waiting.body.contains("not reached the API server"),
        "{waiting:?}"
    );

    node.reach();
    View::of(&api, "worker-1")
        .settled(Duration::from_mins(5))
        .await;
    pass(Duration::from_secs(15)).await;
    assert_eq!(node.get("/readyz").await.code, Some(200));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_no_request_is_disconnected() {
    let node = Node::named("worker-1").start(&in_memory());
    for (name, request) in [
        ("nothing", ""),
        ("half a header", "GET /livez HTTP/1.1\r\nX: "),
    ] {
        let visit = node.visit().await;
        let began = Instant::now();
        let answer = exchange(visit, request).await;
        assert_ne!(answer.code, Some(200), "{name}");
        assert_eq!(began.elapsed().as_secs(), HEADER_LIMIT.as_secs(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_disconnected_and_delays_no_other() {
    let node = Node::named("worker-1").start(&in_memory());
    pass(Duration::from_secs(1)).await;
    // More than the pipe can buffer, and it is not read.
    let mut lazy = Vec::new();
    for _ in 0..ANSWERED {
        let mut visit = node.visit().await;
        let request = request("GET", "/metrics");
        visit.write_all(request.as_bytes()).await.unwrap();
        lazy.push(visit);
    }
    let began = Instant::now();
    assert_eq!(node.get("/livez").await.code, Some(200));
    let scraped = node.get("/metrics").await;
    assert_eq!(scraped.code, Some(200), "the oldest makes room");
    Exposition::parse(&scraped.body).unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
    let (mut cut, mut kept) = (Vec::new(), Vec::new());
    lazy.remove(0).read_to_end(&mut cut).await.unwrap();
    lazy.remove(0).read_to_end(&mut kept).await.unwrap();
    assert!(Exposition::parse(body(&cut)).is_err(), "closed in between");
    Exposition::parse(body(&kept)).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_connection_ends_at_its_time_limit() {
    let node = Node::named("worker-1").start(&in_memory());
    pass(Duration::from_secs(1)).await;
    // The response is larger than the pipe, and the client does not read.
    let mut visit = node.visit().await;
    let request = request("GET", "/metrics");
    visit.write_all(request.as_bytes()).await.unwrap();
    pass(LIFE_LIMIT + Duration::from_secs(1)).await;
    let mut cut = Vec::new();
    visit.read_to_end(&mut cut).await.unwrap();
    assert!(Exposition::parse(body(&cut)).is_err(), "closed in between");
}

/// The body of an answer.
fn body(answer: &[u8]) -> &str {
    let (_, body) = str::from_utf8(answer)
        .unwrap()
        .split_once("\r\n\r\n")
        .unwrap();
    body
}

#[tokio::test(start_paused = true)]
async fn connections_without_a_request_are_closed_for_a_probe_and_for_a_scrape() {
    let node = Node::named("worker-1").start(&in_memory());
    pass(Duration::from_secs(1)).await;
    let began = Instant::now();
    let mut silent = Vec::new();
    for n in 0..1000 {
        let mut visit = node.visit().await;
        if n % 2 == 0 {
            // Fails once it is closed, as it may be.
            let _: io::Result<()> = visit.write_all(b"GET /livez HTTP/1.1\r\nX: ").await;
        }
        silent.push(visit);
        if n % 100 == 0 {
            assert_eq!(node.get("/livez").await.code, Some(200), "with {n}");
            assert_eq!(node.get("/metrics").await.code, Some(200), "with {n}");
        }
    }
    assert_eq!(
        began.elapsed(),
        Duration::ZERO,
        "no client waited for a limit"
    );
    // The newest are still open: a slow client keeps its seconds while there is no other load.
    let mut newest = silent.pop().unwrap();
    newest
        .write_all(b"GET /livez HTTP/1.1\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    newest.read_to_end(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn scrapes_at_once_are_all_answered() {
    let node = Node::named("worker-1").start(&in_memory());
    pass(Duration::from_secs(1)).await;
    let (a, b, c) = tokio::join!(node.scrape(), node.scrape(), node.scrape());
    let scrapes = |read: &Exposition| {
        let labels = [("source", "scrape")];
        read.value("nodepulse_wakeups_total", &labels).unwrap()
    };
    let mut counted = [scrapes(&a), scrapes(&b), scrapes(&c)].map(|count| count.to_string());
    counted.sort();
    assert_eq!(counted, ["1", "2", "3"], "one after the other");
}

/// Keeps `count` connections half open, each opened again as soon as it is closed, until dropped.
struct Strangers {
    over: Arc<AtomicBool>,
    /// How often one was opened.
    opened: Arc<AtomicUsize>,
}

impl Strangers {
    fn at(address: &str, count: usize) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let opened = Arc::new(AtomicUsize::new(0));
        let (address, until, each) = (address.to_owned(), Arc::clone(&over), Arc::clone(&opened));
        std::thread::spawn(move || {
            let half_open = || {
                let mut stream = std::net::TcpStream::connect(&address).ok()?;
                stream.set_nonblocking(true).ok()?;
                stream.write_all(b"GET /livez HTTP/1.1\r\nX: ").ok()?;
                each.fetch_add(1, Ordering::Relaxed);
                Some(stream)
            };
            let mut open: Vec<_> = (0..count).map(|_| half_open()).collect();
            while !until.load(Ordering::Relaxed) {
                for stream in &mut open {
                    let is_open = stream.as_mut().is_some_and(|stream| {
                        let read = stream.read(&mut [0; 512]);
                        read.is_err_and(|err| err.kind() == io::ErrorKind::WouldBlock)
                    });
                    if !is_open {
                        *stream = half_open();
                    }
                }
            }
        });
        Self { over, opened }
    }

    /// Waits until this many were opened.
    async fn opened(&self, count: usize) {
        let opened = async {
            while self.opened.load(Ordering::Relaxed) < count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(SOON, opened)
            .await
            .expect("they come in");
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn probes_are_answered_while_other_clients_leave_requests_incomplete() {
    let agent = Process::start([
        "run",
        "--mode=node",
        "--kernel-tier=files",
        "--serve-address=127.0.0.1:0",
    ]);
    let address = agent.address().await;
    agent.wait_for_line("eBPF programs attached", SOON).await;
    // The second row is more than the agent has places for, so that each is opened again and again,
    // and less than the usual limit of 1024 descriptors, which this process has for all tests.
    for (count, opened) in [(64, 64), (500, 1500)] {
        let strangers = Strangers::at(&address, count);
        strangers.opened(opened).await;
        for probe in 0..20 {
            let answer = tokio::time::timeout(SOON, get(&address, "/livez")).await;
            let code = answer.map(|answer| answer.unwrap().code);
            assert_eq!(code, Ok(Some(200)), "probe {probe} with {count}");
        }
    }
}

#[tokio::test]
async fn a_port_in_use_is_one_warning_with_the_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let serve = format!("--serve-address={address}");
    let agent = Process::start(["run", "--mode", "node", "--kernel-tier", "files", &serve]);
    let line = agent.wait_for_line("not serving", SOON).await;
    for part in ["WARN", &address, "in use", "serve.address", "off"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    agent.wait_for_line("eBPF programs attached", SOON).await;
    agent.terminate();
    let ended = agent.ends(SOON).await;
    assert_eq!(ended.code, Some(0));
    let warnings = ended.stderr.iter().filter(|line| line.contains(&address));
    assert_eq!(warnings.count(), 1);
}
