//! A recording of the subjects, from the loop to a connection.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use nodepulse_core::checked_line::line;
use nodepulse_core::subjects::Subjects;
use nodepulse_core::subjects::recording::{Header, RunRecorder, Step};
use serde::Serialize;
use tokio::sync::mpsc;

/// Bytes that wait for a client before its recording ends: one with a gap cannot be replayed.
const WAITING: usize = 4 << 20;

/// Sends each line to a connection. Never waits.
#[derive(Debug)]
pub struct LiveRecording {
    /// `None` after a failure.
    lines: Option<mpsc::UnboundedSender<Bytes>>,
    waiting: Arc<AtomicUsize>,
}

/// The body of the answer. It ends with the recording.
#[derive(Debug)]
pub(super) struct RecordedLines {
    lines: mpsc::UnboundedReceiver<Bytes>,
    waiting: Arc<AtomicUsize>,
}

pub(super) fn channel() -> (LiveRecording, RecordedLines) {
    let (send, lines) = mpsc::unbounded_channel();
    let waiting = Arc::<AtomicUsize>::default();
    let recording = LiveRecording {
        lines: Some(send),
        waiting: Arc::clone(&waiting),
    };
    (recording, RecordedLines { lines, waiting })
}

impl LiveRecording {
    /// Returns whether its client has left.
    pub fn is_closed(&self) -> bool {
        let lines = self.lines.as_ref();
        lines.is_none_or(mpsc::UnboundedSender::is_closed)
    }

    fn send(&mut self, entry: &impl Serialize) -> ControlFlow<()> {
        if let Some(lines) = &self.lines
            && self.waiting.load(Ordering::Relaxed) < WAITING
            && let Ok(line) = line(entry)
        {
            self.waiting.fetch_add(line.len(), Ordering::Relaxed);
            // Without spare room, which would not be counted.
            let line = Bytes::from(line.into_boxed_str().into_boxed_bytes());
            if lines.send(line).is_ok() {
                return ControlFlow::Continue(());
            }
        }
        self.lines = None;
        ControlFlow::Break(())
    }
}

impl RunRecorder for LiveRecording {
    fn start(&mut self, header: &Header<&Subjects>) {
        // If it fails, the first step ends the recording.
        let _begun = self.send(header);
    }

    fn record(&mut self, step: &Step) -> ControlFlow<()> {
        self.send(step)
    }
}

impl Body for RecordedLines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let line = ready!(self.lines.poll_recv(context));
        Poll::Ready(line.map(|line| {
            self.waiting.fetch_sub(line.len(), Ordering::Relaxed);
            Ok(Frame::data(line))
        }))
    }
}

#[cfg(test)]
mod tests {
    use nodepulse_core::clock::{BootNanos, Now};
    use nodepulse_core::subjects::Input;

    use super::*;

    #[test]
    fn a_client_that_reads_nothing_ends_its_recording_and_a_reader_none() {
        let step = Step {
            now: Now {
                boot: BootNanos(0),
                wall: std::time::SystemTime::UNIX_EPOCH,
            },
            input: Input::Starting,
            effects: Vec::new(),
        };
        let size = line(&step).unwrap().len();
        let (mut recording, mut lines) = channel();
        for _ in 0..=3 * WAITING / size {
            assert!(recording.record(&step).is_continue());
            let mut context = Context::from_waker(std::task::Waker::noop());
            assert!(Pin::new(&mut lines).poll_frame(&mut context).is_ready());
        }
        let most = WAITING / size + 1;
        let recorded = (0..=most).take_while(|_| recording.record(&step).is_continue());
        assert_eq!(recorded.count(), most);
        drop(lines);
        assert!(recording.record(&step).is_break());
    }
}
