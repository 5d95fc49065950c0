//! What stands between the daemon and whoever runs it: the service manager, the state directory with
//! the control socket in it, and the wish to read the configuration again.

use std::io::{self, Write as _};
use std::path::Path;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::settings::variable;
use crate::app::Stay;
use crate::notify::{self, Notify};
use crate::os::file_watch::{self, WatchedFiles};
use crate::serve::socket::{self, Socket};
use crate::state::{Claim, StateError};

/// The service manager, where the environment names one. `Err` is one line that says what is wrong
/// with what it wants.
pub(super) fn notify(stay: Stay) -> Result<Notify, String> {
    let (usec, pid) = (variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"));
    let watchdog = notify::watchdog(usec.as_deref(), pid.as_deref(), std::process::id())?;
    let Some(address) = variable("NOTIFY_SOCKET").filter(|address| !address.is_empty()) else {
        return Ok(Notify::default());
    };
    // What runs for a moment has no rhythm.
    let watchdog = watchdog.filter(|_| stay == Stay::Running);
    Ok(Notify::connect(&address, watchdog).unwrap_or_else(|err| {
        warn!(
            err = &err as &dyn std::error::Error,
            "the service manager hears nothing of us"
        );
        Notify::default()
    }))
}

/// Makes the state directory ours, and opens the control socket in it. `Err` where another process
/// has it, or another user owns it; without a directory, or without a socket, there is a warning.
pub(super) fn claim(directory: &Path) -> Result<(Option<Claim>, Option<Socket>), String> {
    let claim = match Claim::take(directory) {
        Ok(Some(claim)) => claim,
        Ok(None) => {
            let shown = directory.display();
            return Err(format!(
                "another nodepulse runs with the state directory {shown} and answers at \
                 {shown}/{}; stop it, or name another directory; example: --state-directory \
                 /run/nodepulse-2",
                socket::NAME
            ));
        }
        Err(err @ StateError::Owner { .. }) => return Err(format!("stateDirectory: {err}")),
        Err(err) => {
            warn!(err = &err as &dyn std::error::Error, "nothing is kept");
            return Ok((None, None));
        }
    };
    let socket = Socket::bind(directory).inspect_err(|err| {
        let err = err as &dyn std::error::Error;
        warn!(directory = %directory.display(), err, "no control socket");
    });
    Ok((Some(claim), socket.ok()))
}

/// A word for each SIGHUP, and for each time that one of `files` may have changed. One word waits at
/// most. Must be called in a runtime.
pub(super) fn reloads(files: Option<WatchedFiles>) -> io::Result<mpsc::Receiver<()>> {
    let (ask, asked) = mpsc::channel(1);
    let mut hangup = signal(SignalKind::hangup())?;
    let by_signal = ask.clone();
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            // Full: it is about to be read anyway.
            if let Err(mpsc::error::TrySendError::Closed(())) = by_signal.try_send(()) {
                return;
            }
        }
    });
    let Some(files) = files else {
        return Ok(asked);
    };
    tokio::spawn(async move {
        if let Err(err) = file_watch::read(files, ask).await {
            // Usual where there is no file at all.
            let err = &err as &dyn std::error::Error;
            debug!(err, "changes of the configuration are read on SIGHUP only");
        }
    });
    Ok(asked)
}

/// One request of a dry run, as it would be sent.
pub(super) fn print(method: &str, path: &str, body: &[u8]) {
    let mut out = io::stdout().lock();
    // Whoever listens may have seen enough.
    let _closed: io::Result<()> = writeln!(out, "{method} {path}")
        .and_then(|()| out.write_all(body))
        .and_then(|()| out.write_all(b"\n\n"))
        .and_then(|()| out.flush());
}
