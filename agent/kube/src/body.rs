//! Bodies of answers. This is the only place that reads what the API server sends: each body has a
//! limit, and every reader has a deadline.
//!
//! The chart limits the agent to 64 MiB. At the same time it reads at most 32 pods, two watches and
//! five other objects: 30 MiB, if the server fills all of them. They are parsed one at a time.

#![forbid(unsafe_code)]
// Sums and products of durations panic on overflow, and these numbers are external.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

use std::io;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde::de::Error as _;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use tower::BoxError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) bytes: usize,
    /// Memory after parsing in bytes: JSON of two bytes can become a value of 600.
    pub(super) parsed: usize,
}

impl Limit {
    /// One object, in an answer or in a line of a watch. etcd accepts 1.5 MiB, in which a Node or a
    /// pod is stored more compactly than as JSON; real ones are below 100 KiB.
    pub(super) const OBJECT: Self = Self {
        bytes: 2 << 20,
        parsed: 6 << 20,
    };
    /// A pod, which is read for the names of its containers. Without an answer their IDs are used.
    pub(super) const POD: Self = Self {
        bytes: 512 << 10,
        parsed: 3 << 20,
    };
    /// One page of a list, which only commands request.
    pub(super) const PAGE: Self = Self {
        bytes: 8 << 20,
        parsed: 64 << 20,
    };
    /// An error: a `Status`, or a page of a proxy, whose first line is logged. The rest is not
    /// read.
    pub(super) const REFUSAL: Self = Self {
        bytes: 64 << 10,
        parsed: 1 << 20,
    };
}

/// Timeout of one line of a watch: 2 MiB at 70 KiB a second. A watch without any bytes is idle,
/// which is not an error.
const LINE_TIME: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("more than {limit} bytes")]
    TooLarge { limit: usize },
    /// A line started, but did not end in time.
    #[error("a line took longer than {}s", LINE_TIME.as_secs())]
    TooSlow,
    #[error("the stream broke")]
    Broken(#[source] BoxError),
}

impl BodyError {
    /// Returns true if the stream ended without the formal end of a body. Proxies that cut a watch
    /// after their time limit do so.
    pub(super) fn is_end_of_stream(&self) -> bool {
        let Self::Broken(source) = self else {
            return false;
        };
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(source.as_ref());
        while let Some(err) = cause {
            let incomplete = err.downcast_ref::<hyper::Error>();
            let eof = err.downcast_ref::<io::Error>();
            if incomplete.is_some_and(hyper::Error::is_incomplete_message)
                || eof.is_some_and(|err| err.kind() == io::ErrorKind::UnexpectedEof)
            {
                return true;
            }
            cause = err.source();
        }
        false
    }
}

pub(super) async fn whole(body: Body, limit: Limit) -> Result<Vec<u8>, BodyError> {
    let limit = limit.bytes;
    let (bytes, is_whole) = read(body, limit).await?;
    is_whole
        .then_some(bytes)
        .ok_or(BodyError::TooLarge { limit })
}

/// Bytes beyond `limit` are not read.
pub(super) async fn start(body: Body, limit: Limit) -> Result<Vec<u8>, BodyError> {
    Ok(read(body, limit.bytes).await?.0)
}

/// Returns the first bytes of the body, and true if these are all.
async fn read(mut body: Body, limit: usize) -> Result<(Vec<u8>, bool), BodyError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = chunk(&mut body).await? {
        let room = limit.saturating_sub(bytes.len());
        bytes.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
        if room < chunk.len() {
            return Ok((bytes, false));
        }
    }
    Ok((bytes, true))
}

/// Returns the next bytes; `None` at the end. Can be cancelled without loss.
async fn chunk(body: &mut Body) -> Result<Option<Bytes>, BodyError> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|err| BodyError::Broken(err.into()))?;
        // The other kind of frame is trailers, which are ignored.
        if let Ok(data) = frame.into_data()
            && !data.is_empty()
        {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// A body that is a sequence of lines: a watch.
pub(super) struct Lines {
    body: Body,
    limit: usize,
    received: Bytes,
    line: Vec<u8>,
    /// The time at which the first byte of the current line was received.
    begun: Option<Instant>,
}

impl Lines {
    pub(super) fn new(body: Body, limit: Limit) -> Self {
        Self {
            body,
            limit: limit.bytes,
            received: Bytes::new(),
            line: Vec::new(),
            begun: None,
        }
    }

    /// Returns the next line without its line end; `None` at the end of the body, where an
    /// incomplete line is dropped. Can be cancelled without loss.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, BodyError> {
        loop {
            let end = self.received.iter().position(|byte| *byte == b'\n');
            let part = self.received.split_to(end.unwrap_or(self.received.len()));
            if self.limit.saturating_sub(self.line.len()) < part.len() {
                return Err(BodyError::TooLarge { limit: self.limit });
            }
            self.line.extend_from_slice(&part);
            if end.is_some() {
                self.received.advance(1);
                self.begun = None;
                return Ok(Some(std::mem::take(&mut self.line)));
            }
            let more = chunk(&mut self.body);
            let more = if self.line.is_empty() {
                more.await?
            } else {
                let begun = *self.begun.get_or_insert_with(Instant::now);
                let late = begun.checked_add(LINE_TIME).unwrap_or(begun);
                timeout_at(late, more)
                    .await
                    .map_err(|_| BodyError::TooSlow)??
            };
            match more {
                Some(bytes) => self.received = bytes,
                None => return Ok(None),
            }
        }
    }
}

/// Parses JSON from the server, unless it would need too much memory.
pub(super) fn parse(bytes: &[u8], limit: Limit) -> Result<Value, serde_json::Error> {
    if limit.parsed < parsed_size(bytes) {
        let why = format!("it takes more than {} bytes of memory", limit.parsed);
        return Err(serde_json::Error::custom(why));
    }
    serde_json::from_slice(bytes)
}

/// Returns an upper limit of the memory that the values need, estimated from the characters that
/// start or separate them. A map allocates room for eleven members at once.
fn parsed_size(bytes: &[u8]) -> usize {
    const MAP: usize = 640;
    const MEMBER: usize = 128;
    const LIST: usize = 128;
    const ELEMENT: usize = 64;
    let mut size = bytes.len();
    let mut bytes = bytes.iter();
    let mut in_string = false;
    while let Some(byte) = bytes.next() {
        let more = match (byte, in_string) {
            (b'"', _) => {
                in_string = !in_string;
                0
            }
            (b'\\', true) => {
                bytes.next();
                0
            }
            (b'{', false) => MAP,
            (b':', false) => MEMBER,
            (b'[', false) => LIST,
            (b',', false) => ELEMENT,
            (_, _) => 0,
        };
        size = size.saturating_add(more);
    }
    size
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{StreamExt as _, stream};
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    const SMALL: Limit = Limit {
        bytes: 8,
        parsed: 1 << 20,
    };

    /// Parts of a body, each with the delay in seconds before it. One at 9999 is never sent.
    type Parts = &'static [(u64, &'static str)];

    const NEVER: u64 = 9999;

    async fn body(parts: Parts) -> Body {
        let service = tower::service_fn(move |_: http::Request<Body>| {
            let frames = stream::iter(parts).then(|(after, part)| async move {
                tokio::time::sleep(Duration::from_secs(*after)).await;
                Ok::<_, Infallible>(Frame::data(Bytes::from_static(part.as_bytes())))
            });
            let response = http::Response::new(StreamBody::new(Box::pin(frames)));
            std::future::ready(Ok::<_, BoxError>(response))
        });
        let client = kube::Client::new(service, "default");
        let response = client.send(http::Request::new(Body::empty())).await;
        response.unwrap().into_body()
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_read_up_to_its_limit() {
        // parts, the whole body, its start
        let rows: [(Parts, Option<&str>, &str); 4] = [
            (&[], Some(""), ""),
            (&[(0, "1234"), (5, "5678")], Some("12345678"), "12345678"),
            (&[(0, "1234"), (5, "56789")], None, "12345678"),
            (&[(0, "123456789"), (NEVER, "")], None, "12345678"),
        ];
        for (parts, all, expected) in rows {
            let read = whole(body(parts).await, SMALL).await;
            match all {
                Some(all) => assert_eq!(read.unwrap(), all.as_bytes()),
                None => assert_eq!(read.unwrap_err().to_string(), "more than 8 bytes"),
            }
            let read = start(body(parts).await, SMALL).await.unwrap();
            assert_eq!(read, expected.as_bytes());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_divided_into_lines_with_a_limit_and_a_deadline() {
        // parts, lines, how it ends
        #[rustfmt::skip]
        let rows: [(&str, Parts, &[&str], &str); 7] = [
            ("nothing", &[], &[], "end"),
            ("lines over parts and parts of lines", &[(0, "a\nb"), (20, "c\n\nd"), (20, "e\n")],
                &["a", "bc", "", "de"], "end"),
            ("no end of the last line", &[(0, "a\nb")], &["a"], "end"),
            ("eight bytes, an hour later", &[(3600, "12345678\n")], &["12345678"], "end"),
            ("nine bytes", &[(0, "12345678"), (0, "9\n")], &[], "more than 8 bytes"),
            ("without an end", &[(0, "12345678"), (0, "12345678"), (NEVER, "")], &[], "more than 8 bytes"),
            ("one byte at a time", &[(0, "a\n1"), (10, "2"), (10, "3"), (11, "4"), (0, "\n")], &["a"],
                "a line took longer than 30s"),
        ];
        for (name, parts, expected, end) in rows {
            let mut lines = Lines::new(body(parts).await, SMALL);
            let mut read = Vec::new();
            let ended = loop {
                match lines.next().await {
                    Ok(Some(line)) => read.push(String::from_utf8(line).unwrap()),
                    Ok(None) => break "end".to_owned(),
                    Err(err) => break err.to_string(),
                }
            };
            assert_eq!(
                (read.as_slice(), ended.as_str()),
                (strings(expected).as_slice(), end),
                "{name}"
            );
        }
    }

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn json_that_needs_too_much_memory_is_not_parsed() {
        let maps = format!("[{}null]", r#"{"":0},"#.repeat(10_000));
        let numbers = format!("[{}0]", "0,".repeat(200_000));
        let text = format!("[{:?}]", "{[,:\\\"".repeat(200_000));
        let rows = [
            ("maps", &maps, false),
            ("numbers", &numbers, false),
            ("text", &text, true),
        ];
        for (name, json, taken) in rows {
            assert!(json.len() < Limit::OBJECT.bytes, "{name}");
            let parsed = parse(json.as_bytes(), Limit::OBJECT);
            assert_eq!(parsed.is_ok(), taken, "{name}: {:?}", parsed.err());
        }
        assert!(parse(maps.as_bytes(), Limit::PAGE).is_ok());
        assert!(parse(b"<html>", Limit::OBJECT).is_err());
    }
}
