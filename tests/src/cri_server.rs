//! Simulates a container runtime: answers CRI calls over any stream, and injects faults.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::stream::{self, Stream, StreamExt as _};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use nodepulse_linux::cri::messages::{
    FilesystemIdentifier, FilesystemUsage, Image, ImageFsInfoResponse, ListImagesResponse,
    RuntimeCondition, RuntimeFeatures, RuntimeHandler, RuntimeHandlerFeatures, RuntimeStatus,
    StatusResponse, VersionResponse,
};
use nodepulse_linux::cri::{Connector, Io};
use prost::Message;
use tokio::io::{AsyncWriteExt as _, DuplexStream};
use tokio::net::UnixListener;
use tokio::task::{AbortHandle, JoinHandle};

/// Buffer of a connection in memory.
const PIPE: usize = 64 << 10;

/// The frame `GOAWAY` of HTTP/2 for no stream, with the error `INTERNAL_ERROR`, after empty
/// settings.
const GO_AWAY: [u8; 26] = [
    0, 0, 0, 4, 0, 0, 0, 0, 0, // SETTINGS
    0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, // GOAWAY
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CriFault {
    /// Calls are never answered.
    Hang,
    /// This call is never answered.
    HangOn(&'static str),
    /// The stream does not contain HTTP/2.
    Garbage,
    /// Every answer has this HTTP status.
    Http(u16),
    /// Every call fails with this gRPC status, in the trailers.
    Status(u32),
    /// This call fails with this gRPC status, in the headers.
    StatusOn(&'static str, u32),
    /// The trailers are missing.
    NoTrailers,
    /// The status in the trailers is not a number.
    BadStatus,
    /// Messages announce this length.
    Length(u32),
    /// Messages end before their length.
    Short,
    /// There is a second message.
    Two,
    /// Messages are marked as compressed.
    Compressed,
    /// There is no message.
    NoMessage,
    /// A message of the maximum size is followed by more data, without an end.
    Endless,
    /// Messages arrive one byte per second.
    Drip,
    /// The connection ends with an error (`GOAWAY`) instead of an answer.
    GoAway,
}

/// Clones are the same container runtime.
#[derive(Debug, Clone, Default)]
pub struct CriServer(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    listening: bool,
    fault: Option<CriFault>,
    /// The encoded answer of each call.
    answers: BTreeMap<&'static str, Bytes>,
    calls: Vec<String>,
    connections: Vec<AbortHandle>,
    opened: usize,
}

/// Returns an image with one tag.
pub fn image(id: &str, tag: &str, size: u64) -> Image {
    Image {
        id: id.to_owned(),
        repo_tags: vec![tag.to_owned()],
        repo_digests: Vec::new(),
        size,
    }
}

pub fn condition(type_: &str, status: bool) -> RuntimeCondition {
    let text = |text: &str| {
        if status {
            String::new()
        } else {
            text.to_owned()
        }
    };
    RuntimeCondition {
        r#type: type_.to_owned(),
        status,
        reason: text("NotYet"),
        message: text("not initialized"),
    }
}

/// Returns a status with these conditions, two handlers and one feature.
pub fn status(runtime: bool, network: bool) -> StatusResponse {
    let handler = |name: &str| RuntimeHandler {
        name: name.to_owned(),
        features: Some(RuntimeHandlerFeatures {
            recursive_read_only_mounts: true,
            user_namespaces: name.is_empty(),
        }),
    };
    StatusResponse {
        status: Some(RuntimeStatus {
            conditions: vec![
                condition("RuntimeReady", runtime),
                condition("NetworkReady", network),
            ],
        }),
        runtime_handlers: vec![handler("runc"), handler("")],
        features: Some(RuntimeFeatures {
            supplemental_groups_policy: true,
        }),
    }
}

impl CriServer {
    /// Creates a ready runtime with one image, and without a directory for images.
    pub fn ready() -> Self {
        let server = Self::default();
        server.answer(
            "Version",
            &VersionResponse {
                runtime_name: "containerd".to_owned(),
                runtime_version: "v2.1.4".to_owned(),
            },
        );
        server.answer("Status", &status(true, true));
        server.images(vec![image("sha256:1", "example.com/a:1", 7)]);
        server.answer("ImageFsInfo", &ImageFsInfoResponse::default());
        server.listen();
        server
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the answer of a call.
    pub fn answer(&self, call: &'static str, answer: &impl Message) {
        self.answer_bytes(call, answer.encode_to_vec());
    }

    /// Sets the answer of a call as bytes.
    pub fn answer_bytes(&self, call: &'static str, answer: impl Into<Bytes>) {
        self.state().answers.insert(call, answer.into());
    }

    pub fn images(&self, images: Vec<Image>) {
        self.answer("ListImages", &ListImagesResponse { images });
    }

    /// Places the images on the file system of this directory.
    pub fn imagefs(&self, directory: &str) {
        let fs_id = Some(FilesystemIdentifier {
            mountpoint: directory.to_owned(),
        });
        let image_filesystems = vec![FilesystemUsage { fs_id }];
        self.answer("ImageFsInfo", &ImageFsInfoResponse { image_filesystems });
    }

    /// Injects a fault until the next call of this function; `None` injects no fault.
    pub fn fault(&self, fault: impl Into<Option<CriFault>>) {
        self.state().fault = fault.into();
    }

    pub fn listen(&self) {
        self.state().listening = true;
    }

    /// Removes the socket, and ends all connections.
    pub fn vanish(&self) {
        let mut state = self.state();
        state.listening = false;
        for connection in state.connections.drain(..) {
            connection.abort();
        }
    }

    /// Returns the calls since the last call of this function.
    pub fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut self.state().calls)
    }

    /// Returns the number of connections that were opened so far.
    pub fn connections(&self) -> usize {
        self.state().opened
    }

    /// Returns a connector that opens connections to this server in memory, whatever the path.
    pub fn connector(&self) -> Connector {
        let server = self.clone();
        Connector::new(move |path| std::future::ready(server.dial(&path)))
    }

    fn dial(&self, path: &Path) -> io::Result<DuplexStream> {
        // Only the first of the usual sockets exists.
        let is_first = path.ends_with("run/containerd/containerd.sock");
        if !is_first || !self.state().listening {
            return Err(io::ErrorKind::NotFound.into());
        }
        let (here, there) = tokio::io::duplex(PIPE);
        self.serve(there);
        Ok(here)
    }

    /// Listens at a UNIX socket until the handle is aborted.
    ///
    /// # Errors
    ///
    /// If the socket cannot be created.
    pub fn listen_at(&self, socket: &Path) -> io::Result<JoinHandle<()>> {
        let listener = UnixListener::bind(socket)?;
        let server = self.clone();
        Ok(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                server.serve(stream);
            }
        }))
    }

    fn serve(&self, io: impl Io + 'static) {
        let server = self.clone();
        let connection = tokio::spawn(async move { server.connection(io).await });
        let mut state = self.state();
        state.opened += 1;
        state.connections.push(connection.abort_handle());
    }

    async fn connection(self, mut io: impl Io + 'static) {
        let fault = self.state().fault;
        if fault == Some(CriFault::Garbage) {
            // The client may have disconnected.
            drop(io.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await);
            return;
        }
        if fault == Some(CriFault::GoAway) {
            drop(io.write_all(&GO_AWAY).await);
            // The client ends the connection.
            return std::future::pending().await;
        }
        let service = service_fn(move |request| {
            let server = self.clone();
            async move { Ok::<_, Infallible>(server.called(&request).await) }
        });
        let http = http2::Builder::new(TokioExecutor::new());
        // It ends when the client or the test ends it.
        drop(http.serve_connection(TokioIo::new(io), service).await);
    }

    async fn called(&self, request: &Request<Incoming>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let (fault, answer) = {
            let mut state = self.state();
            let call = path.rsplit('/').next().unwrap_or_default();
            state.calls.push(call.to_owned());
            (state.fault, state.answers.get(call).cloned())
        };
        let answer = answer.filter(|_| {
            let call = path.strip_prefix("/runtime.v1.");
            call.is_some_and(|call| call.contains("Service/"))
        });
        match fault {
            Some(CriFault::Hang) => std::future::pending().await,
            Some(CriFault::HangOn(call)) if path.ends_with(call) => std::future::pending().await,
            _ => {}
        }
        let fault = fault.filter(|fault| match fault {
            CriFault::HangOn(_) => false,
            CriFault::StatusOn(call, _) => path.ends_with(call),
            _ => true,
        });
        respond(fault, answer)
    }
}

type Body = StreamBody<Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>>;

fn body(frames: impl Stream<Item = Frame<Bytes>> + Send + 'static) -> Body {
    StreamBody::new(frames.map(Ok).boxed())
}

/// Repeats two bytes, which are an empty image, or an empty part of another message.
fn endless() -> impl Stream<Item = Frame<Bytes>> {
    let prefix = [&[0][..], &(16_u32 << 20).to_be_bytes()].concat();
    let parts = stream::repeat(Bytes::from([0x0a, 0].repeat(500)));
    let parts = stream::once(std::future::ready(Bytes::from(prefix))).chain(parts);
    parts.map(Frame::data)
}

/// Sends the bytes of a message, one per second.
fn dripping(message: Bytes) -> impl Stream<Item = Frame<Bytes>> {
    stream::iter(message).then(|byte| async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Frame::data(Bytes::copy_from_slice(&[byte]))
    })
}

fn respond(fault: Option<CriFault>, answer: Option<Bytes>) -> Response<Body> {
    let mut response = Response::new(body(stream::empty()));
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/grpc"));
    let Some(answer) = answer else {
        headers.insert("grpc-status", HeaderValue::from_static("12"));
        headers.insert("grpc-message", HeaderValue::from_static("unknown service"));
        return response;
    };
    if let Some(CriFault::StatusOn(_, status)) = fault {
        headers.insert("grpc-status", HeaderValue::from(status));
        headers.insert("grpc-message", HeaderValue::from_static("on purpose"));
        return response;
    }
    let mut frames = Vec::new();
    let compressed = u8::from(fault == Some(CriFault::Compressed));
    let length = match fault {
        Some(CriFault::Length(length)) => length,
        Some(CriFault::Short) => u32::try_from(answer.len()).unwrap_or(u32::MAX) + 1,
        _ => u32::try_from(answer.len()).unwrap_or(u32::MAX),
    };
    let mut message = BytesMut::new();
    message.put_u8(compressed);
    message.put_u32(length);
    message.put(answer);
    match fault {
        Some(CriFault::Endless) => {
            *response.body_mut() = body(endless());
            return response;
        }
        Some(CriFault::Drip) => {
            *response.body_mut() = body(dripping(message.freeze()));
            return response;
        }
        _ => {}
    }
    if fault == Some(CriFault::Two) {
        message.put_slice(&[0; 5]);
    }
    let refused = matches!(fault, Some(CriFault::Status(_) | CriFault::NoMessage));
    // A runtime's frames do not end with images either.
    let pieces = message.chunks(1000).map(Bytes::copy_from_slice);
    frames.extend(pieces.filter(|_| !refused).map(Frame::data));
    let mut trailers = HeaderMap::new();
    let status = match fault {
        Some(CriFault::Status(status)) => HeaderValue::from(status),
        Some(CriFault::BadStatus) => HeaderValue::from_static("fine"),
        _ => HeaderValue::from_static("0"),
    };
    trailers.insert("grpc-status", status);
    trailers.insert("grpc-message", HeaderValue::from_static("on purpose"));
    if fault != Some(CriFault::NoTrailers) {
        frames.push(Frame::trailers(trailers));
    }
    if let Some(CriFault::Http(status)) = fault {
        *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    }
    *response.body_mut() = body(stream::iter(frames));
    response
}
