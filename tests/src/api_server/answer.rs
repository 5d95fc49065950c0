//! Creates responses, and their bodies: complete, streamed, and malformed ones.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode, header};
use hyper::body::{Body, Frame, SizeHint};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep};

use super::connection::{Control, Mode};
use super::failure::Failure;

#[derive(Debug)]
pub(super) enum ServerAnswer {
    Whole(Option<Bytes>),
    /// Ends when the sender is dropped.
    Stream(mpsc::Receiver<Bytes>),
    Broken(Broken),
    /// Repeats these bytes for ever.
    Endless(Bytes),
    Drip(Drip),
}

/// Sends the bytes of an answer, one per second.
#[derive(Debug)]
pub(super) struct Drip {
    pub(super) bytes: Bytes,
    pub(super) next: Pin<Box<Sleep>>,
}

impl Drip {
    pub(super) fn new(bytes: Bytes) -> Self {
        Self {
            bytes,
            next: Box::pin(sleep(A_DROP)),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.bytes.is_empty() {
            return Poll::Ready(None);
        }
        ready!(self.next.as_mut().poll(cx));
        self.next.as_mut().reset(Instant::now() + A_DROP);
        Poll::Ready(Some(Ok(Frame::data(self.bytes.split_to(1)))))
    }
}

const A_DROP: Duration = Duration::from_secs(1);

/// Announces `length` bytes, sends `start`, and then ends in an error, or resets the connection.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) start: Option<Bytes>,
    pub(super) length: u64,
    pub(super) reset: Option<Arc<Control>>,
    /// Number of polls that are left for the connection to flush the data.
    pub(super) turns: u8,
}

impl Broken {
    fn poll(&mut self, cx: &Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(start) = self.start.take() {
            return Poll::Ready(Some(Ok(Frame::data(start))));
        }
        if self.turns > 0 {
            self.turns -= 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        match &self.reset {
            Some(control) => {
                control.set(Mode::Reset);
                Poll::Pending
            }
            None => Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into()))),
        }
    }
}

impl Body for ServerAnswer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(lines) => lines
                .poll_recv(cx)
                .map(|line| line.map(|line| Ok(Frame::data(line)))),
            Self::Broken(broken) => broken.poll(cx),
            Self::Endless(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes.clone())))),
            Self::Drip(drip) => drip.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Stream(_) | Self::Endless(_) | Self::Drip(_) => SizeHint::default(),
            Self::Broken(broken) => SizeHint::with_exact(broken.length),
        }
    }
}

pub(super) fn refuse(failure: &Failure) -> Response<ServerAnswer> {
    let mut response = json_answer(failure.code, &failure.status());
    if let Some(seconds) = failure.retry_after {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

pub(super) fn json_answer(code: u16, body: &Value) -> Response<ServerAnswer> {
    whole(code, Bytes::from(body.to_string()))
}

pub(super) fn whole(code: u16, bytes: Bytes) -> Response<ServerAnswer> {
    typed(code, ServerAnswer::Whole(Some(bytes)), "application/json")
}

/// Returns a response whose body repeats these bytes for ever.
pub(super) fn endless(code: u16, bytes: &'static [u8]) -> Response<ServerAnswer> {
    typed(
        code,
        ServerAnswer::Endless(Bytes::from_static(bytes)),
        "application/json",
    )
}

/// Returns a watch with one bookmark, which is not a change.
pub(super) fn bookmark() -> Response<ServerAnswer> {
    let bookmark = json!({
        "type": "BOOKMARK",
        "object": { "metadata": { "resourceVersion": "1" } },
    });
    whole(200, Bytes::from(format!("{bookmark}\n")))
}

/// Returns the error event of a watch that the server cannot serve as requested.
pub(super) fn error_event() -> Response<ServerAnswer> {
    let status = Failure::internal("a required storage feature is disabled").status();
    let error = json!({"type": "ERROR", "object": status});
    whole(200, Bytes::from(format!("{error}\n")))
}

/// Returns maps of one member each: 140 KB that take 15 MB once they are parsed.
pub(super) fn many_members() -> Response<ServerAnswer> {
    const MEMBERS: usize = 20_000;
    let maps = r#"{"":0},"#.repeat(MEMBERS);
    let event = format!("{{\"type\":\"ADDED\",\"object\":{{\"a\":[{maps}0]}}}}\n");
    whole(200, Bytes::from(event))
}

/// Returns one megabyte of headers, 1 KiB each.
pub(super) fn large_headers() -> Response<ServerAnswer> {
    let mut response = whole(200, Bytes::from_static(b"{}"));
    for n in 0..1024 {
        let name = header::HeaderName::try_from(format!("x-{n}")).expect("a name");
        let value = header::HeaderValue::try_from("x".repeat(1024)).expect("a value");
        response.headers_mut().insert(name, value);
    }
    response
}

/// Sets the header `Date`.
pub(super) fn dated(mut response: Response<ServerAnswer>, date: &str) -> Response<ServerAnswer> {
    let date = date.parse().expect("a header");
    response.headers_mut().insert(header::DATE, date);
    response
}

/// Returns 429 with a `Retry-After` by which no duration can be multiplied.
pub(super) fn huge_retry_after() -> Response<ServerAnswer> {
    let mut status = Failure::scripted(429, None).status();
    status["details"]["retryAfterSeconds"] = Value::from(u64::MAX);
    let mut response = json_answer(429, &status);
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, u64::MAX.into());
    response
}

pub(super) fn plain(text: &'static str) -> Response<ServerAnswer> {
    typed(
        200,
        ServerAnswer::Whole(Some(Bytes::from_static(text.as_bytes()))),
        "text/plain",
    )
}

pub(super) fn typed(code: u16, body: ServerAnswer, media: &'static str) -> Response<ServerAnswer> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).expect("a valid status code");
    let media = header::HeaderValue::from_static(media);
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response
}
