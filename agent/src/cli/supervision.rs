//! Interfaces to the service manager and the administrator: notifications, the state directory with
//! the control socket, and requests to reload the configuration.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::fstat;
use nodepulse_linux::journal::{self, Journal};
use nodepulse_linux::os::file_watch::{self, WatchedFiles};
use nodepulse_linux::state::{Claim, Holder, StateError, holder, is_known};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::obstacle::Obstacle;
use super::settings::variable;
use crate::app::RunMode;
use crate::black_box::OpenBlackBox;
use crate::config::{Config, JournaldUse, key};
use crate::history::HistoryFiles;
use crate::notify::{self, Notify};
use crate::serve::socket::Socket;
use crate::telemetry::Journald;

/// Time without running after which the process that keeps the state directory locked counts as
/// halted. On a node that thrashes, an agent runs within a minute.
const HALT_LIMIT: Duration = Duration::from_mins(1);

/// Connects to the service manager of the environment. `Err`: one line on an invalid variable.
pub(super) fn notify(run_mode: RunMode) -> Result<Notify, String> {
    let (usec, pid) = (variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"));
    let watchdog = notify::watchdog(usec.as_deref(), pid.as_deref(), std::process::id())?;
    let Some(address) = variable("NOTIFY_SOCKET").filter(|address| !address.is_empty()) else {
        return Ok(Notify::default());
    };
    // A single run sends no watchdog notifications.
    let watchdog = watchdog.filter(|_| run_mode == RunMode::UntilStopped);
    let connected = Notify::connect(&address, watchdog);
    Ok(ok_or_log!(warn, connected, "cannot notify the service manager").unwrap_or_default())
}

/// Exclusive use of the state directory, if possible.
#[derive(Debug)]
pub(super) enum StateClaim {
    Taken(Claim),
    /// The directory cannot be used. No state is saved, and there is no control socket.
    Unusable(StateError),
    /// A process that cannot run keeps the directory, with the same consequences.
    Halted(String),
}

/// Takes the state directory, repeatedly while another process that can run has it: two agents must
/// not write to one Node.
#[derive(Debug)]
pub(super) struct Claiming<'a> {
    directory: &'a Path,
    /// The other process, if it cannot run, and the time since which it has not.
    halted: Option<(Holder, Instant)>,
}

impl<'a> Claiming<'a> {
    pub(super) fn new(directory: &'a Path) -> Self {
        Self {
            directory,
            halted: None,
        }
    }

    pub(super) fn attempt(&mut self) -> Result<StateClaim, Obstacle> {
        let other = match Claim::take(self.directory, is_known) {
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
        self.decide(other)
    }

    /// Decides while `other` has the directory. `None` if it is in another PID namespace.
    fn decide(&mut self, other: Option<Holder>) -> Result<StateClaim, Obstacle> {
        let shown = self.directory.display();
        let of = other.map_or_else(String::new, |other| format!(" (PID {})", other.pid));
        let now = Instant::now();
        let halted = other.filter(|other| other.halted.is_some());
        let known = self.halted.filter(|(known, _)| Some(*known) == halted);
        let since = known.map_or(now, |(_, since)| since);
        self.halted = halted.map(|other| (other, since));
        if halted.is_some() && HALT_LIMIT <= now.duration_since(since) {
            return Ok(StateClaim::Halted(format!(
                "another process{of} keeps the state directory {shown} locked, but was killed, and has \
                 not run for a minute"
            )));
        }
        Err(Obstacle::Passing(format!(
            "another nodepulse{of} uses the state directory {shown}; stop it, or use another \
             directory; example: --state-directory /run/nodepulse-2"
        )))
    }
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
            let err = &err as &dyn std::error::Error;
            warn!(err, "cannot use the state directory; no state is saved");
            return (None, None);
        }
        StateClaim::Halted(why) => {
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

/// Opens the history of incidents. Logs why none can be kept. `state`: the claimed directory.
pub(super) fn history(directory: &Path, state: Option<&Path>) -> Option<HistoryFiles> {
    let shown = directory.display();
    let warn = |why: &str| {
        warn!(directory = %shown, why, "incidents are not recorded in the history until it can be opened");
    };
    let opened = HistoryFiles::open(directory, state, warn);
    opened
        .inspect_err(|err| {
            let err = err as &dyn std::error::Error;
            warn!(directory = %shown, err, "no history of incidents is kept in this directory");
        })
        .ok()
}

/// Opens the black box. Logs why there is none.
pub(super) fn black_box(files: &HistoryFiles, config: &Config) -> Option<OpenBlackBox> {
    let opened = OpenBlackBox::open(files, config);
    ok_or_log!(warn, opened, "no black box is kept")
}

/// Opens systemd's journal, if incidents are recorded there.
pub(super) fn journald(config: &Config) -> Option<Journald> {
    let is_outside = config.host_root == Path::new("/");
    let wanted = match config.journald {
        JournaldUse::Off => false,
        JournaldUse::On => true,
        JournaldUse::Auto => is_outside && Path::new(journal::SOCKET).exists(),
    };
    if !wanted {
        return None;
    }
    let opened = Journal::open(Path::new(journal::SOCKET));
    let journal = ok_or_log!(warn, opened, "cannot record incidents in the journal")?;
    let stream = variable("JOURNAL_STREAM");
    let has_log = stream.is_some_and(|stream| is_stream(&stream, io::stderr()));
    Some(Journald::new(journal, has_log))
}

/// Compares the device and inode that systemd sets for what writes to the journal: the variable is
/// inherited by programs with another output, too.
fn is_stream(stream: &str, output: impl AsFd) -> bool {
    fstat(output).is_ok_and(|found| stream == format!("{}:{}", found.st_dev, found.st_ino))
}

/// Keeps SIGHUP for [`reload_requests`] instead of ending the process. Call it with one thread.
pub(super) fn postpone_reloads() -> io::Result<()> {
    SigSet::from(Signal::SIGHUP).thread_block()?;
    Ok(())
}

/// Returns a channel that receives a message for each SIGHUP and each change of `files`. At most
/// one message is queued. Must be called in a runtime.
pub(super) fn reload_requests(files: Option<WatchedFiles>) -> io::Result<mpsc::Receiver<()>> {
    let (sender, requests) = mpsc::channel(1);
    let mut hangup = signal(SignalKind::hangup())?;
    SigSet::from(Signal::SIGHUP).thread_unblock()?;
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

#[cfg(test)]
mod tests {
    use nodepulse_linux::host::scratch::Scratch;

    use super::*;

    #[test]
    fn the_journal_has_the_log_only_if_the_output_is_its_stream() {
        let dir = Scratch::new();
        dir.write("stream", "");
        let path = dir.path().join("stream");
        let found = nix::sys::stat::stat(&path).unwrap();
        let stream = format!("{}:{}", found.st_dev, found.st_ino);
        assert!(is_stream(&stream, std::fs::File::open(&path).unwrap()));
        assert!(!is_stream(
            &stream,
            std::fs::File::open("/dev/null").unwrap()
        ));
    }

    fn assert_waits(attempt: Result<StateClaim, Obstacle>) {
        let Err(Obstacle::Passing(why)) = attempt else {
            panic!("it does not wait");
        };
        assert!(why.contains("another nodepulse (PID "), "{why}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_can_run_is_waited_for_without_end() {
        let dir = Scratch::new();
        let state = dir.path().join("state");
        let kept = Claim::take(&state, is_known).unwrap();
        let mut claiming = Claiming::new(&state);
        // It has no control socket, as one that waits for its kubeconfig.
        for seconds in [0, 59, 2, 3600] {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            assert_waits(claiming.attempt());
        }
        drop(kept);
        let taken = claiming.attempt().unwrap();
        assert!(matches!(taken, StateClaim::Taken(_)), "{taken:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_killed_process_that_has_not_run_for_a_minute_does_not_stop_the_start() {
        let dir = Scratch::new();
        let state = dir.path().join("state");
        let mut claiming = Claiming::new(&state);
        //  seconds, the PID and the CPU time of a holder that is halted
        let rows = [
            (0, 1, 7),
            (59, 1, 7),
            (1, 1, 8),
            (59, 1, 8),
            (1, 2, 8),
            (59, 2, 8),
        ];
        for (seconds, pid, ticks) in rows {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            let halted = Some(ticks);
            assert_waits(claiming.decide(Some(Holder { pid, halted })));
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        let halted = Holder {
            pid: 2,
            halted: Some(8),
        };
        let halted = claiming.decide(Some(halted)).unwrap();
        assert!(matches!(halted, StateClaim::Halted(_)), "{halted:?}");
        assert!(open(&state, halted).0.is_none());
    }
}
