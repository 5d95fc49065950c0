//! Opens one HTTP/2 connection to the API server.
//!
//! kube's stack supports HTTP/1.1 only, so that every open stream needs a connection; it waits
//! without limit for an unresponsive server, and retries throttled requests itself. This one does
//! not: it opens connections and sends requests, and [`Client`](super::Client) handles failures.

#![forbid(unsafe_code)]

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::{HeaderValue, USER_AGENT};
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::client::ConfigExt;
use nodepulse_io::http2::{FloodPause, FrameBudget};
use nodepulse_io::names::{self, NameError, Names};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tower::util::{BoxCloneSyncService, MapRequestLayer};
use tower::{BoxError, ServiceBuilder, ServiceExt};

use super::ApiError;
use super::credentials::authorization::Authorization;
use super::stream_limit::{FirstFrame, StreamLimit};
use super::tls;

/// Opens a stream to the API server: TCP and TLS in production, memory in a simulation.
pub type Connector = BoxCloneSyncService<http::Uri, Stream, BoxError>;

/// Timeout of opening a connection, including the TLS handshake. Two attempts fit into one
/// deadline.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// A lookup ends early enough for its error to be that of the connection.
const _: () = assert!(
    names::LIMIT.as_millis() + names::FILES_LIMIT.as_millis() + 1000 <= CONNECT_LIMIT.as_millis()
);
/// Idle time after which TCP probes a connection.
const TCP_KEEPALIVE: Duration = Duration::from_secs(15);
/// Maximum time for which sent bytes may stay unacknowledged.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(20);
/// Idle time after which HTTP/2 pings a connection with open streams. The lease detects an
/// unresponsive one earlier, because its renewal has a deadline; each ping costs three wake-ups.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of bytes that the server may send on one stream before they are read: the memory
/// that it can make the agent use. In a data centre a larger window makes no answer faster.
const STREAM_WINDOW: u32 = 256 << 10;
/// Like [`STREAM_WINDOW`], for all streams of a connection.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Maximum size of an answer's headers over HTTP/2. Those of an API server have less than 1 KiB.
const HEADERS_LIMIT: u32 = 16 << 10;
/// Like [`HEADERS_LIMIT`] over HTTP/1.1, where it is also the size of a read.
const BUFFER_LIMIT: usize = 64 << 10;

/// Size of a read until the first frame is complete.
const FIRST_READ: usize = 512;

trait Io: Read + Write + Send + Unpin {}
impl<T: Read + Write + Send + Unpin> Io for T {}

pub struct Stream {
    io: Box<dyn Io>,
    protocol: Protocol,
    /// `None` after the first frame, and for HTTP/1.1.
    first: Option<FirstFrame>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

impl Stream {
    /// Creates a stream that uses HTTP/2 from the first byte of `io`, without negotiation.
    fn prior_knowledge(
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        pause: FloodPause,
    ) -> Self {
        Self {
            io: Box::new(TokioIo::new(FrameBudget::new(io, pause))),
            protocol: Protocol::Http2,
            first: None,
        }
    }

    /// Creates a stream with the negotiated protocol; plain HTTP negotiates nothing and uses
    /// HTTP/1.1.
    fn negotiated(io: MaybeHttpsStream<TokioIo<tokio::net::TcpStream>>, pause: FloodPause) -> Self {
        if io.connected().is_negotiated_h2() {
            return Self::prior_knowledge(TokioIo::new(io), pause);
        }
        Self {
            io: Box::new(io),
            protocol: Protocol::Http1,
            first: None,
        }
    }

    /// Writes the server's limit to `limit` when it is known.
    fn reporting(mut self, limit: StreamLimit) -> Self {
        self.first = match self.protocol {
            Protocol::Http1 => None,
            Protocol::Http2 => Some(FirstFrame::new(limit)),
        };
        self
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        match self.protocol {
            Protocol::Http1 => Connected::new(),
            Protocol::Http2 => Connected::new().negotiated_h2(),
        }
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { io, first, .. } = &mut *self;
        let Some(frame) = first else {
            return Pin::new(io).poll_read(cx, buf);
        };
        let mut room = [0; FIRST_READ];
        let length = room.len().min(buf.remaining());
        let mut read = ReadBuf::new(room.get_mut(..length).unwrap_or_default());
        ready!(Pin::new(io).poll_read(cx, read.unfilled()))?;
        buf.put_slice(read.filled());
        if !frame.continues(read.filled()) {
            *first = None;
        }
        Poll::Ready(Ok(()))
    }
}

impl Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }
}

/// Creates a connector for the server of `config`: TCP, then TLS if the address begins with
/// `https`. Fails if the certificates or keys in `config` cannot be used.
pub fn tcp_tls(config: &kube::Config) -> Result<Connector, ApiError> {
    let setup = |what| move |source: BoxError| ApiError::Setup { what, source };
    let tls = tls::client_config(config).map_err(setup(
        "the certificate authority, client certificate or key",
    ))?;
    let mut tcp = HttpConnector::new_with_resolver(tower::service_fn(resolve));
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_LIMIT));
    tcp.set_keepalive(Some(TCP_KEEPALIVE));
    tcp.set_tcp_user_timeout(Some(TCP_USER_TIMEOUT));

    let builder = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http();
    let https = match &config.tls_server_name {
        Some(name) => {
            let name = ServerName::try_from(name.clone())
                .map_err(BoxError::from)
                .map_err(setup("tls-server-name"))?;
            builder
                .with_server_name_resolver(FixedServerNameResolver::new(name))
                .enable_all_versions()
                .wrap_connector(tcp)
        }
        None => builder.enable_all_versions().wrap_connector(tcp),
    };
    Ok(connector(move |uri, pause| {
        let opening = https.clone().oneshot(uri);
        async move { Ok(Stream::negotiated(opening.await?, pause)) }
    }))
}

/// Resolves a name without a thread of the C library's resolver for each attempt, which cannot be
/// cancelled.
async fn resolve(name: Name) -> Result<std::vec::IntoIter<SocketAddr>, NameError> {
    let found = Names::system().resolve(name.as_str()).await?;
    // The port is part of the address.
    let found: Vec<_> = found.into_iter().map(|ip| (ip, 0).into()).collect();
    Ok(found.into_iter())
}

/// Creates a connector that calls `open` for each connection and uses HTTP/2 over its result.
pub fn in_memory<F, Opening, S>(open: F) -> Connector
where
    F: Fn() -> Opening + Clone + Send + Sync + 'static,
    Opening: Future<Output = io::Result<S>> + Send + 'static,
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    connector(move |_, pause| {
        let opening = open();
        async move { Ok(Stream::prior_knowledge(opening.await?, pause)) }
    })
}

/// Applies the timeout to every kind of stream, because a handshake can stall like a connect.
fn connector<F, Opening>(open: F) -> Connector
where
    F: Fn(http::Uri, FloodPause) -> Opening + Clone + Send + Sync + 'static,
    Opening: Future<Output = Result<Stream, BoxError>> + Send + 'static,
{
    let pause = FloodPause::default();
    BoxCloneSyncService::new(tower::service_fn(move |uri| {
        let opening = pause.check().map(|()| open(uri, pause.clone()));
        async move {
            let opening = opening?;
            match tokio::time::timeout(CONNECT_LIMIT, opening).await {
                Ok(opened) => opened,
                Err(_) => Err(BoxError::from(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!(
                        "no connection within {}s, TLS included",
                        CONNECT_LIMIT.as_secs_f64()
                    ),
                ))),
            }
        }
    }))
}

/// Creates a client over `connector`. Dropping its last clone closes the connection. `limit`
/// receives the server's limit of concurrent streams.
///
/// Must be called in a runtime.
pub(super) fn connect(
    config: &kube::Config,
    connector: Connector,
    authorization: Option<Authorization>,
    limit: StreamLimit,
) -> Result<kube::Client, ApiError> {
    let setup = |source: kube::Error| ApiError::Setup {
        what: "the extra headers",
        source: source.into(),
    };
    let mut config = config.clone();
    if let Ok(agent) = HeaderValue::from_str(&user_agent()) {
        config.headers.push((USER_AGENT, agent));
    }
    let connector = connector.map_response(move |stream| stream.reporting(limit.clone()));
    let connector = BoxCloneSyncService::new(connector);
    let http: legacy::Client<Connector, kube::client::Body> =
        legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .http1_max_buf_size(BUFFER_LIMIT)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_max_header_list_size(HEADERS_LIMIT)
            .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(authorization.map(|authorization| {
            MapRequestLayer::new(move |request: http::Request<kube::client::Body>| {
                authorization.sign(request)
            })
        }))
        .layer(config.extra_headers_layer().map_err(setup)?)
        .map_err(BoxError::from)
        .service(http);
    Ok(kube::Client::new(service, config.default_namespace))
}

/// First word of the user agent, which the API server records as the manager of written fields.
pub const MANAGER: &str = "nodepulse";

/// Returns `nodepulse/<version> (linux/<architecture in Go's names>)`.
fn user_agent() -> String {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{MANAGER}/{} (linux/{arch})", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use nodepulse_core::escape::chain;
    use nodepulse_io::http2::testing::flood;

    use super::*;

    /// For the first request, hyper reports only that the connection was closed.
    #[tokio::test(start_paused = true)]
    async fn a_request_to_a_server_that_floods_the_connection_fails_with_the_reason() {
        let flooded = in_memory(|| async {
            let (client, server) = tokio::io::duplex(1 << 16);
            tokio::spawn(flood(server));
            Ok(client)
        });
        let config = kube::Config::new("http://server".parse().unwrap());
        let client = connect(&config, flooded, None, StreamLimit::default()).unwrap();
        let mut errors = Vec::new();
        for _ in 0..2 {
            let request = http::Request::get("/version").body(Vec::new()).unwrap();
            let asked = client.request::<serde_json::Value>(request);
            let answer = tokio::time::timeout(Duration::from_secs(1), asked).await;
            errors.push(chain(&answer.unwrap().unwrap_err()));
        }
        let reason = "HTTP/2 frames without data";
        assert!(errors[1].contains(reason), "{errors:?}");
    }
}
