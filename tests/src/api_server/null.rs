//! An API server that stores nothing: it answers from templates and counts, so that a client can be
//! measured alone.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::auth::Identity;
use super::lock;
use super::tls::{self, Authority, TlsCredentials};

type Body = BoxBody<Bytes, Infallible>;

/// The pods that a watch on pods lists: `count` on each of the first `nodes` nodes of this prefix.
#[derive(Debug, Clone, Default)]
pub struct ListedPods {
    pub prefix: String,
    pub nodes: u32,
    pub count: u32,
}

/// How often a request was answered, and when the last was.
#[derive(Debug, Clone, Copy)]
pub struct Counted {
    pub requests: u64,
    pub last: Duration,
}

pub struct NullServer {
    authority: Authority,
    address: SocketAddr,
    state: Arc<State>,
}

struct State {
    started: Instant,
    counts: Mutex<BTreeMap<String, Counted>>,
    pods: ListedPods,
}

impl NullServer {
    /// Listens with TLS on a free port of 127.0.0.1.
    pub async fn start(pods: ListedPods) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let authority = Authority::new();
        let state = Arc::new(State {
            started: Instant::now(),
            counts: Mutex::default(),
            pods,
        });
        let (acceptor, shared) = (authority.acceptor.clone(), Arc::clone(&state));
        tokio::spawn(async move {
            loop {
                if let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, acceptor.clone(), Arc::clone(&shared)));
                }
            }
        });
        Ok(Self {
            authority,
            address,
            state,
        })
    }

    /// Writes a kubeconfig to `path`.
    pub fn kubeconfig(&self, path: &Path) -> PathBuf {
        let issued = self.authority.issue(&Identity::admin());
        let credentials = TlsCredentials::Certificate(&issued);
        let url = format!("https://{}", self.address);
        tls::write_kubeconfig(path, &url, &self.authority.ca_pem, &credentials)
    }

    /// Returns what was requested so far, by verb and resource.
    pub fn counts(&self) -> BTreeMap<String, Counted> {
        lock(&self.state.counts).clone()
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, state: Arc<State>) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let service = service_fn(move |request| answer(Arc::clone(&state), request));
    let builder = Builder::new(TokioExecutor::new());
    let served = builder.serve_connection(TokioIo::new(stream), service);
    // A client that leaves is of no interest.
    drop(served.await);
}

async fn answer(
    state: Arc<State>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let is_watch = head.uri.query().unwrap_or_default().contains("watch=true");
    let (resource, name) = match parts.as_slice() {
        ["api", "v1", "nodes"] => ("nodes", ""),
        ["api", "v1", "nodes", name] => ("nodes", *name),
        ["api", "v1", "nodes", _, "status"] => ("nodes/status", ""),
        ["api", "v1", "pods"] => ("pods", ""),
        ["api", "v1", "namespaces", _, "pods", _, "status"] => ("pods/status", ""),
        ["api", "v1", "namespaces", _, "pods", ..] => ("pods", ""),
        ["api", "v1", "namespaces", _, "events", ..] => ("events", ""),
        [
            "apis",
            "coordination.k8s.io",
            "v1",
            "namespaces",
            _,
            "leases",
            ..,
        ] => ("leases", ""),
        _ => ("other", ""),
    };
    let body = body
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes);
    let body = body.unwrap_or_default();
    let verb = if is_watch {
        "WATCH"
    } else {
        head.method.as_str()
    };
    {
        let mut counts = lock(&state.counts);
        let count = counts
            .entry(format!("{verb} {resource}"))
            .or_insert(Counted {
                requests: 0,
                last: Duration::ZERO,
            });
        count.requests += 1;
        count.last = state.started.elapsed();
    }
    Ok(match (&head.method, resource) {
        (&Method::GET, "pods") if is_watch => listed(&state.pods),
        (&Method::GET, _) if is_watch => endless(Vec::new()),
        (&Method::GET, "nodes" | "pods") if name.is_empty() => text(200, r#"{"items":[]}"#.into()),
        (&Method::GET, "nodes") => {
            text(200, format!(r#"{{"metadata":{{"uid":"{}"}}}}"#, uid(name)))
        }
        (&Method::GET, "leases") => text(404, r#"{"kind":"Status","code":404}"#.into()),
        (&Method::GET, _) => text(200, r#"{"gitVersion":"v1.36.0"}"#.into()),
        (&Method::POST, "nodes" | "leases") => text(201, stored(&body)),
        (&Method::PUT, _) => bytes(200, body),
        _ => text(200, "{}".into()),
    })
}

/// Returns the object with a UID and a version.
fn stored(body: &Bytes) -> String {
    let object = String::from_utf8_lossy(body);
    let name = object.split(r#""name":""#).nth(1).unwrap_or_default();
    let name = name.split('"').next().unwrap_or_default();
    let added = format!(
        r#""metadata":{{"uid":"{}","resourceVersion":"1","#,
        uid(name)
    );
    object.replacen(r#""metadata":{"#, &added, 1)
}

fn uid(name: &str) -> String {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    format!("00000000-0000-4000-8000-{:012x}", hasher.finish() >> 16)
}

fn text(code: u16, text: String) -> Response<Body> {
    bytes(code, text.into())
}

fn bytes(code: u16, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(bytes).boxed());
    *response.status_mut() = StatusCode::from_u16(code).expect("a status");
    response
}

/// A watch that has these lines, and stays open.
fn endless(lines: Vec<Bytes>) -> Response<Body> {
    let lines = lines.into_iter().map(|line| Ok(Frame::data(line)));
    let lines = stream::iter(lines).chain(stream::pending());
    Response::new(BoxBody::new(StreamBody::new(lines)))
}

fn listed(pods: &ListedPods) -> Response<Body> {
    let prefix = &pods.prefix;
    let each = (0..pods.nodes).flat_map(|node| (0..pods.count).map(move |n| (node, n)));
    let lines = each.map(|(node, n)| {
        let name = format!("web-{node}-{n}");
        let labels = r#""nodepulse.dev/simulated":"true","pod-template-hash":"6d4cf56db6""#;
        Bytes::from(format!(
            r#"{{"type":"ADDED","object":{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","#
        ) + &format!(
            r#""namespace":"default","uid":"{}","resourceVersion":"1","labels":{{{labels}}}}},"#,
            uid(&name)
        ) + &format!(
            r#""spec":{{"nodeName":"{prefix}-{node}","restartPolicy":"Always","containers":[{{"name":"main","#
        ) + r#""image":"registry.example/team/web:1"}]},"status":{"phase":"Pending"}}}"#
            + "\n")
    });
    endless(lines.collect())
}
