//! Non-blocking log output: a hanging disk must not stop lease renewal.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::warn;
use tracing_subscriber::fmt::MakeWriter;

/// Capacity of the queue to the writer. If it is full, lines are dropped; their number is logged.
const LINES: usize = 1024;

/// Interval of attempts to start the thread.
const RETRY: Duration = Duration::from_secs(1);

/// Time limit for the remaining lines at exit.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

/// Sends lines to a thread that writes them to standard error.
#[derive(Debug, Clone)]
pub struct LogSender {
    send: SyncSender<Vec<u8>>,
    dropped: Arc<AtomicU64>,
}

#[derive(Debug, Clone)]
pub struct LogWriter {
    /// Locked by the thread once it runs, and until then while queued lines are written: a thread
    /// that cannot be started does not take the lines with it.
    lines: Arc<Mutex<Receiver<Vec<u8>>>>,
    dropped: Arc<AtomicU64>,
}

/// Creates both ends. Lines are queued until the writer is started.
pub fn channel() -> (LogSender, LogWriter) {
    let (send, lines) = sync_channel(LINES);
    let dropped: Arc<AtomicU64> = Arc::default();
    let writer = LogWriter {
        lines: Arc::new(Mutex::new(lines)),
        dropped: Arc::clone(&dropped),
    };
    (LogSender { send, dropped }, writer)
}

impl LogWriter {
    /// Starts the thread, which inherits the capabilities of the caller. After an error, lines stay
    /// in the queue, and it can be called again. The channel is closed when the thread ends.
    fn start(&self) -> io::Result<Receiver<()>> {
        let (running, done) = sync_channel(0);
        let writer = self.clone();
        std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                let _running: SyncSender<()> = running;
                let lines = writer.lines();
                while let Ok(line) = lines.recv() {
                    if line.is_empty() {
                        return; // The end: see [`LogThread::end`].
                    }
                    writer.write(&line);
                }
            })?;
        Ok(done)
    }

    /// Writes the queued lines on this thread, while there is no other.
    pub fn write_queued(&self) {
        for line in self.lines().try_iter() {
            self.write(&line);
        }
    }

    fn write(&self, line: &[u8]) {
        // An error of the log cannot be logged.
        let mut stderr = io::stderr().lock();
        let mut written = stderr.write_all(line);
        let missing = self.dropped.swap(0, Ordering::Relaxed);
        if missing > 0 {
            written = written.and(writeln!(stderr, "{missing} log lines dropped"));
        }
        drop(written);
    }

    /// A panic elsewhere leaves the queue consistent.
    fn lines(&self) -> MutexGuard<'_, Receiver<Vec<u8>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that writes the log, started as soon as the kernel permits.
#[derive(Debug)]
pub struct LogThread {
    writer: LogWriter,
    /// Closed when the thread ends; `None` while there is none.
    done: Option<Receiver<()>>,
}

impl LogThread {
    /// Starts the thread, with the caller's capabilities, or else see [`LogThread::retry`].
    pub fn start(writer: LogWriter) -> Self {
        let done = writer.start().inspect_err(|err| {
            let err = err as &dyn std::error::Error;
            warn!(
                err,
                lines = LINES,
                "cannot start the log thread; lines wait in memory, and it is tried again"
            );
            // Here, because nothing runs yet that a hanging disk would stop.
            writer.write_queued();
        });
        Self {
            writer,
            done: done.ok(),
        }
    }

    /// Tries again until the thread is started, then waits for ever.
    pub async fn retry<Never>(&mut self) -> Never {
        while self.done.is_none() {
            tokio::time::sleep(RETRY).await;
            self.done = self.writer.start().ok();
        }
        std::future::pending().await
    }

    /// Ends the log: waits for the thread, or writes the lines without one.
    pub fn end(self, lines: &LogSender) {
        match self.done {
            Some(done) => {
                // Full: the thread hangs, and is abandoned after the limit.
                drop(lines.send.try_send(Vec::new()));
                match done.recv_timeout(FLUSH_LIMIT) {
                    Ok(()) | Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => {}
                }
            }
            None => self.writer.write_queued(),
        }
    }
}

/// One log line under construction; sent on drop.
#[derive(Debug)]
pub struct LogLine<'a> {
    text: Vec<u8>,
    lines: &'a LogSender,
}

impl<'a> MakeWriter<'a> for LogSender {
    type Writer = LogLine<'a>;

    fn make_writer(&'a self) -> LogLine<'a> {
        LogLine {
            text: Vec::with_capacity(256),
            lines: self,
        }
    }
}

impl Write for LogLine<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LogLine<'_> {
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
    fn lines_are_dropped_and_counted_if_the_queue_is_full() {
        let (send, waiting) = sync_channel(2);
        let lines = LogSender {
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
