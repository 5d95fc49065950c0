//! EDGE: hears from logind that the machine goes down, and holds that up for a moment.
//!
//! A connection to the system bus with one subscription, which is silent until then. If there is no
//! bus, there is one line, and nobody tries again. If the bus ends later, it can be connected to again
//! only without a sandbox.

#![forbid(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tracing::{info, warn};

pub mod fuzzing;
mod session;
mod wire;

use session::Session;

/// Where the system bus listens, on the node.
pub const BUS: &str = "run/dbus/system_bus_socket";

/// A bus that went away is looked for so soon, and then half as often each time.
const AGAIN: Duration = Duration::from_secs(1);

/// But no more seldom than this.
const SELDOM: Duration = Duration::from_mins(5);

/// What logind said.
#[derive(Debug)]
pub enum PowerMessage {
    /// The machine goes down, in logind's own time once the lock is dropped; `None`: at once.
    ShuttingDown(Option<Lock>),
    /// It does not after all.
    Cancelled,
}

/// Holds up the shutdown until it is dropped, or until logind's patience ends (`InhibitDelayMaxSec`,
/// 5 s by default).
#[derive(Debug)]
pub struct Lock {
    _descriptor: OwnedFd,
}

/// Messages of logind that wait for the agent. If there are more, logind's next one waits too.
const WORDS: usize = 4;

/// Connects to the bus at `bus` now, since the sandbox opens no UNIX sockets, and passes on what logind
/// says from the first turn of the runtime on. Must be called in a runtime.
#[must_use]
pub fn start(bus: PathBuf) -> mpsc::Receiver<PowerMessage> {
    let (send, words) = mpsc::channel(WORDS);
    let first = connect(&bus);
    tokio::spawn(follow(first, bus, send));
    words
}

/// Without waiting: a bus that has no place for us is none.
fn connect(bus: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(bus)?)?;
    UnixStream::from_std(socket.into())
}

/// Passes on what logind says on the connection `first`, and on others once that has ended, until
/// nobody listens. Returns where there is no bus to begin with, and where it must not be connected to
/// again.
async fn follow(first: io::Result<UnixStream>, bus: PathBuf, words: mpsc::Sender<PowerMessage>) {
    let mut wait = AGAIN;
    let mut known = false;
    let mut first = Some(first);
    while !words.is_closed() {
        let connected = first.take().unwrap_or_else(|| connect(&bus));
        let session = match connected {
            Ok(stream) => Session::open(stream).await,
            Err(err) => Err(err),
        };
        let ended = match session {
            Ok(session) => {
                info!("logind is heard");
                known = true;
                wait = AGAIN;
                listen(session, &words).await
            }
            Err(err) => Err(err),
        };
        let Err(err) = ended else { return };
        if !known {
            tell_absent(&bus, &err);
            return;
        }
        if err.kind() == io::ErrorKind::PermissionDenied {
            tell_confined(&err);
            return;
        }
        tell_lost(&err);
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(SELDOM);
    }
}

fn tell_absent(bus: &Path, err: &io::Error) {
    let err = err as &dyn std::error::Error;
    info!(bus = %bus.display(), err, "logind is not heard: a shutdown shows as silence");
}

fn tell_confined(err: &io::Error) {
    let err = err as &dyn std::error::Error;
    warn!(
        err,
        "the sandbox does not let the agent connect to the system bus again; restart it, else a \
         shutdown shows as silence"
    );
}

fn tell_lost(err: &io::Error) {
    let err = err as &dyn std::error::Error;
    warn!(err, "logind is lost, will retry");
}

/// `Ok` once nobody listens any more.
async fn listen(mut session: Session, words: &mpsc::Sender<PowerMessage>) -> io::Result<()> {
    let mut lock = session.inhibit().await?;
    loop {
        let heard = tokio::select! {
            heard = session.next() => heard?,
            () = words.closed() => return Ok(()),
        };
        let word = match heard {
            session::BusEvent::Prepare(true) => PowerMessage::ShuttingDown(lock.take()),
            session::BusEvent::Prepare(false) => PowerMessage::Cancelled,
            // Its locks went with it.
            session::BusEvent::NewManager => {
                lock = session.inhibit().await?;
                continue;
            }
        };
        let cancelled = matches!(word, PowerMessage::Cancelled);
        if words.send(word).await.is_err() {
            return Ok(());
        }
        // Reported first: logind may refuse another lock.
        if cancelled && lock.is_none() {
            lock = session.inhibit().await?;
        }
    }
}

#[cfg(test)]
mod tests;
