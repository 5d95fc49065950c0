//! Interfaces to the service manager and the administrator: notifications, the state directory with
//! the control socket, and requests to reload the configuration.

use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::client;
use super::obstacle::Obstacle;
use super::settings::variable;
use crate::app::RunMode;
use crate::config::key;
use crate::escape::{escape, escape_json};
use crate::notify::{self, Notify};
use crate::os::file_watch::{self, WatchedFiles};
use crate::serve::socket::{self, Socket};
use crate::state::{Claim, StateError};

/// How long another agent may take to answer on its control socket.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// How long a process that keeps the state directory locked may be silent. An agent on a node that
/// thrashes answers again within a minute.
const SILENT_LIMIT: Duration = Duration::from_mins(1);

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

/// Exclusive use of the state directory, if possible.
#[derive(Debug)]
pub(super) enum StateClaim {
    Taken(Claim),
    /// The directory cannot be used. No state is saved, and there is no control socket.
    Unusable(StateError),
    /// A process that does not answer keeps the directory. The same applies.
    Silent(String),
}

/// Takes the state directory, again and again while another agent has it and answers: two agents must not
/// write to one Node.
#[derive(Debug)]
pub(super) struct Claiming<'a> {
    directory: &'a Path,
    /// Since when the other process has not answered.
    silent: Option<Instant>,
}

impl<'a> Claiming<'a> {
    pub(super) fn new(directory: &'a Path) -> Self {
        Self {
            directory,
            silent: None,
        }
    }

    /// Tries once.
    pub(super) fn attempt(&mut self) -> Result<StateClaim, Obstacle> {
        let other = match Claim::take(self.directory) {
            Ok(Some(claim)) => return Ok(StateClaim::Taken(claim)),
            Ok(None) => holder(self.directory),
            Err(err @ (StateError::Owner { .. } | StateError::Shared { .. })) => {
                return Err(Obstacle::Lasting(format!(
                    "{}: {err}",
                    key::state_directory
                )));
            }
            Err(err) => return Ok(StateClaim::Unusable(err)),
        };
        let shown = self.directory.display();
        let of = other
            .pid
            .map_or_else(String::new, |pid| format!(" (PID {pid})"));
        if other.answers {
            self.silent = None;
            return Err(Obstacle::Passing(format!(
                "another nodepulse{of} uses the state directory {shown} and answers on {shown}/{}; \
                 stop it, or use another directory; example: --state-directory /run/nodepulse-2",
                socket::NAME
            )));
        }
        let now = Instant::now();
        let silent = *self.silent.get_or_insert(now);
        let why = format!(
            "another process{of} keeps the state directory {shown} locked, but does not answer"
        );
        if now.duration_since(silent) < SILENT_LIMIT {
            return Err(Obstacle::Passing(why));
        }
        Ok(StateClaim::Silent(why))
    }
}

/// The process that has locked the state directory.
struct Holder {
    /// Unknown if it is in another PID namespace, or has no control socket.
    pid: Option<i32>,
    answers: bool,
}

fn holder(directory: &Path) -> Holder {
    let (pid, answers) = client::holder(directory, ANSWER_LIMIT);
    Holder { pid, answers }
}

/// Opens the control socket in a claimed directory. Logs why nothing can be saved or opened.
pub(super) fn open(directory: &Path, claim: StateClaim) -> (Option<Claim>, Option<Socket>) {
    let claim = match claim {
        StateClaim::Taken(claim) => {
            if let Some(mode) = claim.closed_from {
                let (directory, mode) = (directory.display(), format!("{mode:o}"));
                info!(%directory, mode, "closed the state directory to other users");
            }
            claim
        }
        StateClaim::Unusable(err) => {
            warn!(
                err = &err as &dyn std::error::Error,
                "cannot use the state directory; no state is saved"
            );
            return (None, None);
        }
        StateClaim::Silent(why) => {
            warn!(
                why,
                "no state is saved and there is no control socket until the next start"
            );
            return (None, None);
        }
    };
    let socket = Socket::bind(directory).inspect_err(|err| {
        let err = err as &dyn std::error::Error;
        warn!(directory = %directory.display(), err, "cannot open the control socket");
    });
    (Some(claim), socket.ok())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::scratch::Scratch;

    #[tokio::test(start_paused = true)]
    async fn a_process_that_is_silent_for_a_minute_does_not_stop_the_start() {
        let dir = Scratch::new();
        let state = dir.path().join("state");
        let kept = Claim::take(&state).unwrap();
        let mut claiming = Claiming::new(&state);
        for seconds in [0, 30, 29] {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            let Err(Obstacle::Passing(why)) = claiming.attempt() else {
                panic!("it waits");
            };
            assert!(why.contains("does not answer"), "{why}");
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        let kept_for_long = claiming.attempt().unwrap();
        assert!(
            matches!(kept_for_long, StateClaim::Silent(_)),
            "{kept_for_long:?}"
        );
        assert!(open(&state, kept_for_long).0.is_none());
        drop(kept);
        let taken = claiming.attempt().unwrap();
        assert!(matches!(taken, StateClaim::Taken(_)), "{taken:?}");
    }
}
