//! Implements connections that can be frozen, reset and closed with GOAWAY while they are used.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Open,
    /// No bytes are read or written, without a notification.
    Frozen,
    /// Closes the stream without a notification, over TCP with a FIN.
    Cut,
    /// Resets the stream, over TCP with an RST.
    Reset,
}

/// Controls a connection from the server.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) id: u64,
    gate: Mutex<(Mode, Vec<Waker>)>,
    pub(super) go_away: Notify,
    ended: Notify,
}

impl Control {
    pub(super) fn new(id: u64, mode: Mode) -> Self {
        Self {
            id,
            gate: Mutex::new((mode, Vec::new())),
            go_away: Notify::new(),
            ended: Notify::new(),
        }
    }

    pub(super) fn set(&self, mode: Mode) {
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        // An ended connection cannot continue.
        if matches!(gate.0, Mode::Open | Mode::Frozen) {
            gate.0 = mode;
        }
        if matches!(mode, Mode::Cut | Mode::Reset) {
            self.ended.notify_one();
        }
        gate.1.drain(..).for_each(Waker::wake);
    }

    /// Waits until the connection must be dropped.
    pub(super) async fn ended(&self) {
        self.ended.notified().await;
    }

    fn mode(&self) -> Mode {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    /// Returns the mode, and wakes this task when it changes.
    fn watch(&self, cx: &Context<'_>) -> Mode {
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        if !gate.1.iter().any(|waker| waker.will_wake(cx.waker())) {
            gate.1.push(cx.waker().clone());
        }
        gate.0
    }
}

#[derive(Debug)]
pub(super) enum Wire {
    Tcp(TcpStream),
    Memory(DuplexStream),
}

/// A stream that follows its [`Control`]. It is below TLS, so that a cut omits `close_notify`.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) wire: Wire,
    pub(super) control: Arc<Control>,
}

impl Gate {
    fn pass(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        match self.control.watch(cx) {
            Mode::Open => Poll::Ready(Ok(())),
            Mode::Frozen => Poll::Pending,
            Mode::Cut => Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
            Mode::Reset => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let (Wire::Tcp(stream), Mode::Reset) = (&self.wire, self.control.mode()) {
            // If it fails, the client receives a FIN, and its test fails.
            let _: io::Result<()> = stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Gate {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.pass(cx))?;
        match &mut self.wire {
            Wire::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Wire::Memory(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Gate {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.pass(cx))?;
        match &mut self.wire {
            Wire::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Wire::Memory(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.pass(cx))?;
        match &mut self.wire {
            Wire::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Wire::Memory(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.pass(cx))?;
        match &mut self.wire {
            Wire::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Wire::Memory(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
