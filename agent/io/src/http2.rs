//! EDGE: a budget for HTTP/2 frames without data, between a socket and hyper.
//!
//! hyper reads, and for some kinds answers, every frame that a server sends: interim answers (1xx),
//! PING, PRIORITY, SETTINGS, `WINDOW_UPDATE`. A server that sends nothing else can occupy a core.
//! Here the headers of the frames are read, and a connection that exceeds the budget ends with an
//! error that names it.

#![forbid(unsafe_code)]

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::budget::Budget;

/// Number of frames without data that may arrive at once.
const BURST: u32 = 1000;
/// Interval after which one more frame may arrive: 100 a second, which cost less than 1 % of a
/// core.
///
/// Servers send far fewer. Beyond those of [`PER_ANSWER`], they are SETTINGS with its
/// acknowledgement at the start, and the acknowledgements of hyper's PINGs, one in 30 s.
const INTERVAL: Duration = Duration::from_millis(10);
/// Number of frames without data that belong to an answer. Go's servers, which are those of
/// Kubernetes and containerd, send a `WINDOW_UPDATE` for the stream and one for the connection, a
/// PING that measures the bandwidth, and trailers. The agent opens the streams, so a server cannot
/// earn more.
const PER_ANSWER: u32 = 4;
/// Time for which no connection is opened to a server that exceeded the budget. The Lease is
/// renewed every 10 s.
const PAUSE: Duration = Duration::from_secs(5);

/// Length of the header of a frame: <https://www.rfc-editor.org/rfc/rfc9113#section-4.1>.
const HEADER: usize = 9;

/// Types of frames: <https://www.rfc-editor.org/rfc/rfc9113#section-6>.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
/// The flag of a DATA frame that contains padding.
const PADDED: u8 = 8;

#[derive(Debug, thiserror::Error)]
#[error(
    "the server sent more than {} HTTP/2 frames without data a second; the connection was closed, and \
     the next one is opened {} s later at the earliest: check the server, and proxies before it",
    Duration::from_secs(1).as_millis() / INTERVAL.as_millis(),
    PAUSE.as_secs()
)]
struct TooManyFrames;

/// The time at which a server last exceeded the budget.
///
/// The connection writes it, and the task that opens the next one reads it. A message would arrive
/// too late, because hyper opens the next connection when a request finds none.
#[derive(Debug, Clone, Default)]
pub struct FloodPause(Arc<Mutex<Option<Instant>>>);

impl FloodPause {
    /// Fails while no connection may be opened.
    pub fn check(&self) -> io::Result<()> {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|last| last.elapsed() < PAUSE) {
            Err(io::Error::other(TooManyFrames))
        } else {
            Ok(())
        }
    }

    fn begin(&self, now: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }
}

/// A stream from an HTTP/2 server that fails if it exceeds the budget.
#[derive(Debug)]
pub struct FrameBudget<S> {
    io: S,
    frames: FrameReader,
    budget: Budget,
    exceeded: bool,
    pause: FloodPause,
}

impl<S> FrameBudget<S> {
    /// Requires that `io` has not been read yet. `pause` begins when the budget is exceeded.
    pub fn new(io: S, pause: FloodPause) -> Self {
        Self {
            io,
            frames: FrameReader::default(),
            budget: Budget::new(BURST, INTERVAL, Instant::now()),
            exceeded: false,
            pause,
        }
    }

    /// Returns true if the budget allows the bytes that were read.
    fn allows(&mut self, read: &[u8]) -> bool {
        let now = Instant::now();
        let (budget, exceeded) = (&mut self.budget, &mut self.exceeded);
        self.frames.read(read, |frame| match frame {
            Frame::WithData => {}
            Frame::Answer => budget.give(PER_ANSWER),
            Frame::WithoutData => *exceeded |= !budget.take(now),
        });
        if *exceeded {
            self.pause.begin(now);
        }
        !*exceeded
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FrameBudget<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
        let read = buf.filled().get(before..).unwrap_or_default();
        Poll::Ready(if this.allows(read) {
            Ok(())
        } else {
            Err(io::Error::other(TooManyFrames))
        })
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FrameBudget<S> {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Frame {
    /// A part of an answer's body.
    WithData,
    /// The first headers on a stream.
    Answer,
    /// Everything else, among it further headers on a stream, as of interim answers.
    WithoutData,
}

/// Finds the headers of frames in what is read, wherever it is split.
#[derive(Debug, Default)]
struct FrameReader {
    /// The beginning of a header, of which `known` bytes have arrived.
    header: [u8; HEADER],
    known: usize,
    /// Bytes of the payload that are still to come.
    payload: usize,
    /// The highest stream with an answer.
    highest: u32,
}

impl FrameReader {
    /// Calls `found` for each header that ends in `bytes`.
    fn read(&mut self, mut bytes: &[u8], mut found: impl FnMut(Frame)) {
        while !bytes.is_empty() {
            let skipped = self.payload.min(bytes.len());
            self.payload -= skipped;
            bytes = bytes.get(skipped..).unwrap_or_default();
            let missing = self.header.get_mut(self.known..).unwrap_or_default();
            let taken = missing.len().min(bytes.len());
            let (head, rest) = bytes.split_at(taken);
            for (to, from) in missing.iter_mut().zip(head) {
                *to = *from;
            }
            self.known += taken;
            bytes = rest;
            if self.known == HEADER {
                self.known = 0;
                found(self.frame());
            }
        }
    }

    /// Classifies the frame of a complete header.
    fn frame(&mut self) -> Frame {
        let [a, b, c, kind, flags, stream @ ..] = self.header;
        let length = u32::from_be_bytes([0, a, b, c]);
        self.payload = usize::try_from(length).unwrap_or(usize::MAX);
        let stream = u32::from_be_bytes(stream) & 0x7fff_ffff;
        match kind {
            // Padding alone would count as data.
            DATA if length > 0 && flags & PADDED == 0 => Frame::WithData,
            HEADERS if stream > self.highest => {
                self.highest = stream;
                Frame::Answer
            }
            _ => Frame::WithoutData,
        }
    }
}

/// Used by the tests of the crates above.
#[cfg(any(test, feature = "testing"))]
#[allow(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "only for tests"
)]
pub mod testing {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    pub(super) const SETTINGS: u8 = 4;
    pub(super) const PING: u8 = 6;

    pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut bytes = length[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    /// Runs a server that sends many more PINGs than the budget allows, and reads everything that
    /// it receives.
    pub async fn flood(server: DuplexStream) {
        let (mut read, mut write) = tokio::io::split(server);
        let mut bytes = frame(SETTINGS, 0, 0, &[]);
        bytes.extend(frame(PING, 0, 0, &[7; 8]).repeat(100_000));
        let write = async {
            // It fails when the client has closed the connection.
            let _closed = write.write_all(&bytes).await;
            std::future::pending::<()>().await;
        };
        let read = async {
            let mut buf = vec![0; 4096];
            while read.read(&mut buf).await.is_ok_and(|n| n > 0) {}
        };
        tokio::select! {
            () = read => {}
            () = write => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::testing::{PING, SETTINGS, frame};
    use super::*;

    const END_HEADERS: u8 = 4;

    fn frames(reader: &mut FrameReader, bytes: &[u8]) -> Vec<Frame> {
        let mut all = Vec::new();
        reader.read(bytes, |frame| all.push(frame));
        all
    }

    #[test]
    fn only_data_and_the_first_headers_of_a_stream_are_not_counted() {
        use Frame::{Answer, WithData, WithoutData};
        #[rustfmt::skip]
        let table = [
            (frame(SETTINGS, 0, 0, &[0; 36]), WithoutData, "SETTINGS"),
            (frame(HEADERS, END_HEADERS, 1, b"h"), Answer, "HEADERS"),
            (frame(DATA, 0, 1, b"d"), WithData, "DATA"),
            (frame(DATA, 0, 1, b""), WithoutData, "DATA without data"),
            (frame(DATA, PADDED, 1, &[1, 0]), WithoutData, "only padding"),
            (frame(HEADERS, 5, 1, b"t"), WithoutData, "trailers, or after a 1xx"),
            (frame(HEADERS, END_HEADERS, 5, b""), Answer, "another stream"),
            (frame(HEADERS, END_HEADERS, 3, b""), WithoutData, "an older stream"),
            (frame(2, 0, 1, &[0; 5]), WithoutData, "PRIORITY"),
            (frame(PING, 1, 0, &[0; 8]), WithoutData, "PING"),
            (frame(8, 0, 1, &[0; 4]), WithoutData, "WINDOW_UPDATE"),
            (frame(0xfe, 0, 0, &[0; 300]), WithoutData, "an unknown type"),
            (frame(DATA, 1, 0x8000_0003, &[0; 16_384]), WithData, "a reserved bit"),
        ];
        let mut reader = FrameReader::default();
        for (bytes, expected, case) in table {
            assert_eq!(frames(&mut reader, &bytes), [expected], "{case}");
        }
    }

    #[test]
    fn frames_are_found_wherever_the_stream_is_split() {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from((state >> 16) % below).unwrap()
        };
        for round in 0..200 {
            let (mut bytes, mut sent) = (Vec::new(), Vec::new());
            let mut whole = FrameReader::default();
            for _ in 0..random(60) {
                let length = [0, 1, random(20), random(70_000)][random(4)];
                let [kind, flags, stream] = [random(11), random(256), random(8)]
                    .map(|number| u8::try_from(number).unwrap());
                let one = frame(kind, flags, stream.into(), &vec![kind; length]);
                sent.extend(frames(&mut whole, &one));
                bytes.extend(one);
            }
            let (mut reader, mut found, mut rest) =
                (FrameReader::default(), Vec::new(), &bytes[..]);
            while !rest.is_empty() {
                let size = [1, random(12), random(9_000)][random(3)].min(rest.len());
                let (part, after) = rest.split_at(size);
                found.extend(frames(&mut reader, part));
                rest = after;
            }
            assert_eq!(found, sent, "round {round}");
            // Bytes that are not HTTP/2 are read to their end, too.
            let noise: Vec<u8> = (0..random(5_000))
                .map(|n| u8::try_from(n * 31 % 251).unwrap())
                .collect();
            frames(&mut reader, &noise);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_fails_above_the_budget_and_not_below() {
        let (client, mut server) = tokio::io::duplex(1 << 16);
        let pause = FloodPause::default();
        let mut client = FrameBudget::new(client, pause.clone());
        let mut buf = vec![0; 1 << 16];
        let ping = frame(PING, 0, 0, &[0; 8]);
        let mut send = async |times: usize| {
            server.write_all(&ping.repeat(times)).await.unwrap();
            client.read(&mut buf).await
        };
        send(1000).await.unwrap();
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            send(100).await.unwrap();
        }
        pause.check().unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let err = send(101).await.unwrap_err().to_string();
        assert!(
            err.contains("more than 100 HTTP/2 frames without data"),
            "{err}"
        );
        tokio::time::sleep(Duration::from_millis(4_999)).await;
        assert_eq!(pause.check().unwrap_err().to_string(), err);
        tokio::time::sleep(Duration::from_millis(1)).await;
        pause.check().unwrap();
        send(1).await.unwrap_err();
    }

    #[tokio::test(start_paused = true)]
    async fn answers_add_their_frames_to_the_budget() {
        let (client, mut server) = tokio::io::duplex(1 << 16);
        let mut client = FrameBudget::new(client, FloodPause::default());
        let mut buf = vec![0; 1 << 16];
        // Ten thousand requests that are answered at once.
        for stream in (1..20_000).step_by(2) {
            let mut answer = frame(HEADERS, END_HEADERS, stream, b"200");
            answer.extend(frame(8, 0, 0, &[0; 4]).repeat(2));
            answer.extend(frame(DATA, 0, stream, b"{}"));
            answer.extend(frame(HEADERS, 5, stream, b"trailers"));
            server.write_all(&answer).await.unwrap();
            assert_ne!(client.read(&mut buf).await.unwrap(), 0);
        }
    }
}
