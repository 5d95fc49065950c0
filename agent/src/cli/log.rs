//! Log lines that never wait: a log on a disk that hangs must not stop the lease.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait for the writer thread. When there is no room a line is dropped, and the next one
/// that is written says how many were.
const LINES: usize = 1024;

/// Lines that wait at the end get so long.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Hands lines to a thread that writes them to standard error.
#[derive(Debug, Clone)]
pub struct Lines {
    send: SyncSender<Vec<u8>>,
    dropped: Arc<AtomicU64>,
}

/// The other end of [`Lines`].
#[derive(Debug)]
pub struct Writer {
    lines: Receiver<Vec<u8>>,
    dropped: Arc<AtomicU64>,
}

/// Waits for the last lines when it is dropped, which must come after the last [`Lines`].
#[derive(Debug)]
pub struct Flush {
    done: Receiver<()>,
}

/// Both ends. Lines wait until the writer is started.
#[must_use]
pub fn channel() -> (Lines, Writer) {
    let (send, lines) = sync_channel(LINES);
    let dropped: Arc<AtomicU64> = Arc::default();
    let writer = Writer {
        lines,
        dropped: Arc::clone(&dropped),
    };
    (Lines { send, dropped }, writer)
}

impl Writer {
    /// Starts the thread, with the rights that its starter has by then.
    ///
    /// # Errors
    ///
    /// When there can be no thread.
    pub fn start(self) -> io::Result<Flush> {
        let (running, done) = sync_channel(0);
        std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                let _running: SyncSender<()> = running;
                self.write();
            })?;
        Ok(Flush { done })
    }

    fn write(self) {
        while let Ok(line) = self.lines.recv() {
            if line.is_empty() {
                return; // The end: see `Flush`.
            }
            // Nobody is left to tell of a log that cannot be written.
            let mut stderr = io::stderr().lock();
            let mut written = stderr.write_all(&line);
            let missing = self.dropped.swap(0, Ordering::Relaxed);
            if missing > 0 {
                written = written.and(writeln!(stderr, "{missing} log lines dropped"));
            }
            drop(written);
        }
    }
}

impl Lines {
    /// Lets the thread end after the lines that wait.
    pub fn end(&self) {
        // Full: then the thread hangs, and waiting for it is what the limit is for.
        drop(self.send.try_send(Vec::new()));
    }
}

impl Flush {
    /// Waits until everything is written, or for a second.
    pub fn wait(self) {
        // The thread's end closes the channel. A log that hangs is left behind.
        match self.done.recv_timeout(LAST_LINES) {
            Ok(()) | Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => {}
        }
    }
}

/// One line while it is being put together; sent when it is dropped.
#[derive(Debug)]
pub struct Line<'a> {
    text: Vec<u8>,
    lines: &'a Lines,
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line {
            text: Vec::with_capacity(256),
            lines: self,
        }
    }
}

impl Write for Line<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        let text = std::mem::take(&mut self.text);
        if !text.is_empty() && self.lines.send.try_send(text).is_err() {
            self.lines.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_which_there_is_no_room_is_dropped_and_counted() {
        let (send, waiting) = sync_channel(2);
        let lines = Lines {
            send,
            dropped: Arc::default(),
        };
        for n in 0..5 {
            writeln!(lines.make_writer(), "line {n}").unwrap();
        }
        let written: Vec<_> = waiting.try_iter().collect();
        assert_eq!(written, [b"line 0\n", b"line 1\n"]);
        assert_eq!(lines.dropped.load(Ordering::Relaxed), 3);
    }
}
