//! EDGE: receives shutdown announcements from logind, and delays the shutdown for a moment.
//!
//! A connection to the system bus with one subscription, which is silent until then. If there is no
//! bus or no logind, one line is logged, and no attempt follows. If they do not respond in time, or
//! if the connection ends later, the agent can reconnect only if the sandbox permits new UNIX
//! sockets, as for a container runtime.
//!
//! zbus 6.2 would add 540 KiB to the binary and 570 KiB to the resident set.

#![forbid(unsafe_code)]

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nodepulse_core::backoff::Backoff;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

pub mod fuzzing;
pub mod power;
mod session;
mod wire;

use session::{BusEvent, Session};

/// Pause before the first attempt to reconnect.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Pauses before attempts to reconnect.
const PAUSES: Backoff = Backoff::new(FIRST_PAUSE, Duration::from_mins(5));

#[derive(Debug)]
pub enum PowerMessage {
    /// The machine shuts down after the lock is dropped, or at once if it is `None`.
    ShuttingDown(Option<Lock>),
    Cancelled,
}

/// A lock that delays the shutdown until it is dropped, or until logind's limit
/// (`InhibitDelayMaxSec`, 5 s by default).
#[derive(Debug)]
pub struct Lock {
    _descriptor: OwnedFd,
}

/// Capacity of the channel for messages to the agent. If it is full, logind's next message waits.
const CAPACITY: usize = 4;

/// Connects to the bus at `bus` now, because the sandbox may forbid new UNIX sockets, and passes on
/// logind's messages as soon as the runtime runs. Must be called in a runtime.
#[must_use]
pub fn start(bus: PathBuf) -> mpsc::Receiver<PowerMessage> {
    let (send, messages) = mpsc::channel(CAPACITY);
    let first = connect(&bus);
    tokio::spawn(follow(first, bus, send));
    messages
}

/// Connects without waiting, even if the backlog of the bus is full.
fn connect(bus: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(bus)?)?;
    UnixStream::from_std(socket.into())
}

/// Passes on logind's messages from the connection `first`, and from later ones after that has
/// ended, until the receiver is dropped. Returns if there is no logind at first, or if the sandbox
/// forbids a new connection.
async fn follow(first: io::Result<UnixStream>, bus: PathBuf, messages: mpsc::Sender<PowerMessage>) {
    let mut pauses = PAUSES;
    let mut was_connected = false;
    let mut announced = false;
    let mut first = Some(first);
    while !messages.is_closed() {
        let opened = match first.take().unwrap_or_else(|| connect(&bus)) {
            Ok(stream) => open(stream).await,
            Err(err) => Err(err),
        };
        let is_connected = opened.is_ok();
        let ended = match opened {
            Ok((session, lock)) => {
                info!("connected to logind");
                was_connected = true;
                let ended = listen(session, lock, &mut announced, &messages).await;
                // A program that floods the bus would do so again.
                if !matches!(&ended, Err(err) if err.kind() == ErrorKind::QuotaExceeded) {
                    pauses.reset();
                }
                ended
            }
            Err(err) => Err(err),
        };
        let Err(err) = ended else { return };
        let is_late = matches!(err.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock);
        if !was_connected && !is_late {
            log_absent(&bus, &err);
            return;
        }
        if err.kind() == ErrorKind::PermissionDenied {
            log_confined(&err);
            return;
        }
        if is_connected {
            log_lost(&err);
        } else if !was_connected && pauses == PAUSES {
            log_late(&err);
        } else {
            debug!(
                err = &err as &dyn std::error::Error,
                "cannot connect to logind, will retry"
            );
        }
        tokio::time::sleep(pauses.advance()).await;
    }
}

fn log_absent(bus: &Path, err: &io::Error) {
    let err = err as &dyn std::error::Error;
    info!(bus = %bus.display(), err, "cannot connect to logind; shutdowns will not be reported");
}

fn log_late(err: &io::Error) {
    let err = err as &dyn std::error::Error;
    warn!(
        err,
        "logind does not respond, will retry; until then, shutdowns will not be reported"
    );
}

fn log_confined(err: &io::Error) {
    let err = err as &dyn std::error::Error;
    warn!(
        err,
        "the sandbox forbids a new connection to the system bus; shutdowns will not be reported \
         until the agent is restarted"
    );
}

fn log_lost(err: &io::Error) {
    let err = err as &dyn std::error::Error;
    warn!(err, "lost the connection to logind, will retry");
}

/// Subscribes to logind's messages, and takes the first lock.
async fn open(stream: UnixStream) -> io::Result<(Session, Option<Lock>)> {
    let mut session = Session::open(stream).await?;
    let lock = session.inhibit().await?;
    Ok((session, lock))
}

/// Passes on logind's messages. `announced` is `true` if the last message was that a shutdown
/// begins. Returns `Ok` after the receiver is dropped.
async fn listen(
    mut session: Session,
    mut lock: Option<Lock>,
    announced: &mut bool,
    messages: &mpsc::Sender<PowerMessage>,
) -> io::Result<()> {
    loop {
        let event = tokio::select! {
            event = session.next() => event?,
            () = messages.closed() => return Ok(()),
        };
        let begins = match event {
            BusEvent::Prepare(begins) => begins,
            // The shutdown began or was cancelled while there was no connection or no logind.
            BusEvent::Preparing(begins) if begins != *announced => begins,
            BusEvent::Preparing(_) => continue,
            // The locks of the previous logind ended with it.
            BusEvent::NewManager => {
                lock = session.inhibit().await?;
                continue;
            }
        };
        *announced = begins;
        let message = if begins {
            PowerMessage::ShuttingDown(lock.take())
        } else {
            PowerMessage::Cancelled
        };
        if messages.send(message).await.is_err() {
            return Ok(());
        }
        // The message is sent first, because logind may refuse another lock.
        if !begins && lock.is_none() {
            lock = session.inhibit().await?;
        }
    }
}

#[cfg(test)]
mod tests;
