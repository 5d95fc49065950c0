//! One unary gRPC call: a message after its length in the body, and the status in the trailers.
//! tonic would read a whole message before it is decoded; a list of images is read one by one.

use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use nodepulse_core::escape::escape;
use nodepulse_io::http2::{FloodPause, FrameBudget};
use prost::DecodeError;
use tokio::task::JoinHandle;

use super::{CriError, Io};

/// Maximum size of a message, which is also that of the kubelet.
const MESSAGE_LIMIT: usize = 16 << 20;
/// Number of bytes that the runtime may send before they are read: about 1,000 images of 242 bytes
/// each, so that it need not wait until the agent has read a part.
const WINDOW: u32 = 256 << 10;
/// Maximum size of headers and trailers, which contain error messages.
const HEADERS_LIMIT: u32 = 16 << 10;
/// Length of the prefix of a message: a compression flag, and the length of the message.
const PREFIX: usize = 5;
/// The empty message, which is the request of every call.
const EMPTY: [u8; PREFIX] = [0; PREFIX];

/// The trailer with the result of a call.
const STATUS: &str = "grpc-status";
/// Value of [`STATUS`] for a successful call.
const OK: u32 = 0;
/// Value of [`STATUS`] for an unknown method.
const UNIMPLEMENTED: u32 = 12;

/// Takes an answer while it arrives.
pub(super) trait Answer {
    type Value;

    const TIME_LIMIT: Duration;

    /// Maximum number of bytes that wait for the rest of the part to which they belong.
    const PART_LIMIT: usize;

    /// Takes the complete parts off the beginning of `received`.
    fn take(&mut self, received: &mut BytesMut) -> Result<(), DecodeError>;

    /// Ends the answer, of which `rest` remains.
    fn end(self, rest: Bytes) -> Result<Self::Value, DecodeError>;
}

/// A connection to the runtime. Closed on drop.
pub(super) struct Connection {
    requests: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
    /// The reason why it was closed, if that was for too many frames: hyper reports only that it
    /// was.
    pause: FloodPause,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    pub(super) async fn open(io: Box<dyn Io>) -> Result<Self, CriError> {
        let pause = FloodPause::default();
        let io = FrameBudget::new(io, pause.clone());
        let opened = Builder::new(TokioExecutor::new())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_header_list_size(HEADERS_LIMIT)
            .handshake(TokioIo::new(io))
            .await;
        let (requests, connection) = opened.map_err(failed("connect"))?;
        let driver = tokio::spawn(async move {
            // The request that fails returns the error.
            drop(connection.await);
        });
        Ok(Self {
            requests,
            driver,
            pause,
        })
    }

    pub(super) fn is_open(&self) -> bool {
        !self.requests.is_closed()
    }

    pub(super) async fn call<A: Answer>(
        &mut self,
        call: &'static str,
        answer: A,
    ) -> Result<A::Value, CriError> {
        let request = request(call).map_err(|err| CriError::NotGrpc {
            call,
            why: err.to_string(),
        })?;
        let response = self.requests.send_request(request).await;
        let answered = match response {
            Ok(response) => read(call, response, answer).await,
            Err(err) => Err(failed(call)(err)),
        };
        match (answered, self.pause.check()) {
            (Err(_), Err(reason)) => Err(CriError::NotGrpc {
                call,
                why: reason.to_string(),
            }),
            (answered, _) => answered,
        }
    }
}

fn failed(call: &'static str) -> impl FnOnce(hyper::Error) -> CriError {
    move |source| CriError::Connection { call, source }
}

fn request(call: &str) -> http::Result<Request<Full<Bytes>>> {
    let service = match call {
        "ListImages" | "ImageFsInfo" => "ImageService",
        _ => "RuntimeService",
    };
    Request::post(format!("http://localhost/runtime.v1.{service}/{call}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header(
            "user-agent",
            concat!("nodepulse/", env!("CARGO_PKG_VERSION")),
        )
        .body(Full::new(Bytes::from_static(&EMPTY)))
}

async fn read<A: Answer>(
    call: &'static str,
    response: Response<Incoming>,
    mut answer: A,
) -> Result<A::Value, CriError> {
    let not_grpc = |why: String| CriError::NotGrpc { call, why };
    if response.status() != StatusCode::OK {
        return Err(not_grpc(format!("HTTP status {}", response.status())));
    }
    // An error may come without a message, in the headers.
    if let Some(refused) = refused(call, response.headers()) {
        return Err(refused);
    }
    let mut body = response.into_body();
    let mut received = BytesMut::new();
    // Number of bytes of the message that have not arrived, after its prefix.
    let mut missing: Option<usize> = None;
    let mut trailers = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(failed(call))?;
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(frame) => {
                trailers = frame.into_trailers().ok();
                continue;
            }
        };
        received.extend_from_slice(&data);
        let mut new = data.len();
        if missing.is_none() {
            if received.len() < PREFIX {
                continue;
            }
            missing = Some(length(call, &received.split_to(PREFIX))?);
            new = received.len();
        }
        let rest = missing.and_then(|missing| missing.checked_sub(new));
        missing = Some(rest.ok_or_else(|| not_grpc("more than one message".to_owned()))?);
        let undecodable = |source| CriError::Undecodable { call, source };
        answer.take(&mut received).map_err(undecodable)?;
        if received.len() > A::PART_LIMIT {
            let (size, limit) = (received.len(), A::PART_LIMIT);
            return Err(CriError::TooLarge { call, size, limit });
        }
    }
    let status = trailers.filter(|trailers| trailers.contains_key(STATUS));
    let trailers = status.ok_or_else(|| not_grpc("it ends without a status".to_owned()))?;
    match (refused(call, &trailers), missing) {
        (Some(refused), _) => Err(refused),
        (None, Some(0)) => {
            let value = answer.end(received.freeze());
            value.map_err(|source| CriError::Undecodable { call, source })
        }
        (None, Some(_) | None) => Err(not_grpc("the message is incomplete".to_owned())),
    }
}

/// Returns the length of the message after this prefix.
fn length(call: &'static str, mut prefix: &[u8]) -> Result<usize, CriError> {
    if prefix.get_u8() != 0 {
        let why = "the message is compressed".to_owned();
        return Err(CriError::NotGrpc { call, why });
    }
    let size = usize::try_from(prefix.get_u32()).unwrap_or(usize::MAX);
    if size > MESSAGE_LIMIT {
        let limit = MESSAGE_LIMIT;
        return Err(CriError::TooLarge { call, size, limit });
    }
    Ok(size)
}

/// Returns the error in headers or trailers.
fn refused(call: &'static str, headers: &HeaderMap) -> Option<CriError> {
    let status = headers.get(STATUS)?;
    let status = str::from_utf8(status.as_bytes()).ok();
    let status = status.and_then(|status| status.parse().ok());
    let message = headers
        .get("grpc-message")
        .map_or(&b""[..], |text| text.as_bytes());
    let message = escape(message);
    match status {
        Some(OK) => None,
        Some(UNIMPLEMENTED) => Some(CriError::Unimplemented { call, message }),
        Some(status) => Some(CriError::Refused {
            call,
            status,
            message,
        }),
        None => Some(CriError::NotGrpc {
            call,
            why: "its status is no number".to_owned(),
        }),
    }
}
