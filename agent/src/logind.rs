//! EDGE: hears from logind that the machine goes down, and holds that up for a moment.
//!
//! A connection to the system bus with one subscription, which is silent until then. Where there is
//! no bus there is one line, and nobody tries again.

#![forbid(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::{info, warn};

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
pub enum Word {
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

/// Passes on what logind says, until nobody listens. Returns where there is no bus to begin with.
pub async fn follow(bus: PathBuf, words: mpsc::Sender<Word>) {
    let mut wait = AGAIN;
    let mut known = false;
    while !words.is_closed() {
        let ended = match Session::open(&bus).await {
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
        tell_lost(&err);
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(SELDOM);
    }
}

fn tell_absent(bus: &Path, err: &io::Error) {
    let err = err as &dyn std::error::Error;
    info!(bus = %bus.display(), err, "logind is not heard: a shutdown shows as silence");
}

fn tell_lost(err: &io::Error) {
    let err = err as &dyn std::error::Error;
    warn!(err, "logind is lost, will retry");
}

/// `Ok` once nobody listens any more.
async fn listen(mut session: Session, words: &mpsc::Sender<Word>) -> io::Result<()> {
    let mut lock = session.inhibit().await?;
    loop {
        let heard = tokio::select! {
            heard = session.next() => heard?,
            () = words.closed() => return Ok(()),
        };
        let word = match heard {
            session::Heard::Prepare(true) => Word::ShuttingDown(lock.take()),
            session::Heard::Prepare(false) => Word::Cancelled,
            // Its locks went with it.
            session::Heard::NewManager => {
                lock = session.inhibit().await?;
                continue;
            }
        };
        if matches!(word, Word::Cancelled) && lock.is_none() {
            lock = session.inhibit().await?;
        }
        if words.send(word).await.is_err() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests;
