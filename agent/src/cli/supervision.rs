//! Interfaces to the service manager and the administrator: notifications, the state directory with
//! the control socket, and requests to reload the configuration.

use std::io::{self, Write as _};
use std::path::Path;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::settings::variable;
use crate::app::RunMode;
use crate::config::key;
use crate::escape::{escape, escape_json};
use crate::notify::{self, Notify};
use crate::os::file_watch::{self, WatchedFiles};
use crate::serve::socket::{self, Socket};
use crate::state::{Claim, StateError};

/// Connects to the service manager, if the environment names one. `Err` is a message of one line
/// about an invalid variable.
pub(super) fn notify(run_mode: RunMode) -> Result<Notify, String> {
    let (usec, pid) = (variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"));
    let watchdog = notify::watchdog(usec.as_deref(), pid.as_deref(), std::process::id())?;
    let Some(address) = variable("NOTIFY_SOCKET").filter(|address| !address.is_empty()) else {
        return Ok(Notify::default());
    };
    // A single run sends no watchdog notifications.
    let watchdog = watchdog.filter(|_| run_mode == RunMode::UntilStopped);
    Ok(Notify::connect(&address, watchdog).unwrap_or_else(|err| {
        warn!(
            err = &err as &dyn std::error::Error,
            "cannot notify the service manager"
        );
        Notify::default()
    }))
}

/// Claims the state directory, and opens the control socket in it. `Err` if another process has
/// claimed it, or another user owns it. A missing directory or socket is a warning.
pub(super) fn claim(directory: &Path) -> Result<(Option<Claim>, Option<Socket>), String> {
    let claim = match Claim::take(directory) {
        Ok(Some(claim)) => claim,
        Ok(None) => {
            let shown = directory.display();
            return Err(format!(
                "another nodepulse uses the state directory {shown} and is listening on \
                 {shown}/{}; stop it, or use another directory; example: --state-directory \
                 /run/nodepulse-2",
                socket::NAME
            ));
        }
        Err(err @ StateError::Owner { .. }) => {
            return Err(format!("{}: {err}", key::state_directory));
        }
        Err(err) => {
            warn!(
                err = &err as &dyn std::error::Error,
                "cannot use the state directory; no state is saved"
            );
            return Ok((None, None));
        }
    };
    let socket = Socket::bind(directory).inspect_err(|err| {
        let err = err as &dyn std::error::Error;
        warn!(directory = %directory.display(), err, "cannot open the control socket");
    });
    Ok((Some(claim), socket.ok()))
}

/// Receives a message for each SIGHUP and each change of `files`. At most one message is queued.
/// Must be called in a runtime.
pub(super) fn reload_requests(files: Option<WatchedFiles>) -> io::Result<mpsc::Receiver<()>> {
    let (sender, requests) = mpsc::channel(1);
    let mut hangup = signal(SignalKind::hangup())?;
    let by_signal = sender.clone();
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            // Full: a reload is pending already.
            if let Err(mpsc::error::TrySendError::Closed(())) = by_signal.try_send(()) {
                return;
            }
        }
    });
    let Some(files) = files else {
        return Ok(requests);
    };
    tokio::spawn(async move {
        if let Err(err) = file_watch::read(files, sender).await {
            // Expected if there is no configuration file.
            let err = &err as &dyn std::error::Error;
            debug!(
                err,
                "cannot watch the configuration files; they are read again on SIGHUP"
            );
        }
    });
    Ok(requests)
}

/// Prints one request of a dry run.
pub(super) fn print(method: &str, path: &str, body: &[u8]) {
    // It is JSON, but contains names of others.
    let body = escape_json(body).unwrap_or_else(|| escape(body));
    let mut out = io::stdout().lock();
    // The reader may have closed the pipe.
    let _closed: io::Result<()> =
        write!(out, "{method} {path}\n{body}\n\n").and_then(|()| out.flush());
}
