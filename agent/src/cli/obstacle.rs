//! Obstacles to the start of the agent, and the wait for those that pass by themselves.

use std::fmt;
use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use nodepulse_kube::ApiError;
use tokio::sync::watch;
use tracing::{info, warn};

use super::log::LogWriter;
use super::{fail, refuse};
use crate::config::Config;
use crate::serve::{ReadyPage, Server};
use crate::telemetry::metering;

/// Interval between attempts.
const RETRY: Duration = Duration::from_secs(2);

/// An obstacle to the start of a command, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// A person has to change it.
    Lasting(String),
    /// The kernel or another program caused it.
    Passing(String),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lasting(why) | Self::Passing(why) => f.write_str(why),
        }
    }
}

impl From<ApiError> for Obstacle {
    fn from(err: ApiError) -> Self {
        match err {
            ApiError::Unreadable { .. } => Self::Passing(err.chain()),
            err => Self::Lasting(err.chain()),
        }
    }
}

impl Obstacle {
    /// Prints it, and returns the exit code: only what a person has to change prevents a restart.
    pub(super) fn report(&self) -> ExitCode {
        match self {
            Self::Lasting(why) => refuse(why),
            Self::Passing(why) => fail(why),
        }
    }
}

/// Repeats `attempt` until it succeeds, or fails for a reason that a person has to change. From the
/// first failure on, `/livez` is served where the port is free, `/readyz` has the reason, and the
/// log is written on this thread: a thread that is started now would keep all privileges. Returns
/// `None` after `stop`.
pub(super) async fn wait_out<T>(
    config: &Config,
    log: &LogWriter,
    stop: impl Future<Output = ()>,
    mut attempt: impl AsyncFnMut() -> Result<T, Obstacle>,
) -> Option<Result<T, String>> {
    let repeated = async {
        let mut waiting: Option<(String, watch::Sender<Option<String>>, Server)> = None;
        loop {
            let why = match attempt().await {
                Ok(done) => {
                    if let Some((_, _, server)) = waiting.take() {
                        // The agent listens on the same port.
                        server.stop().await;
                        info!("the start continues");
                    }
                    return Ok(done);
                }
                Err(Obstacle::Lasting(why)) => return Err(why),
                Err(Obstacle::Passing(why)) => why,
            };
            match &mut waiting {
                Some((known, _, _)) if *known == why => {}
                Some((known, reason, _)) => {
                    warn!(why, "the agent waits, and tries again");
                    reason.send_replace(Some(why.clone()));
                    *known = why;
                }
                None => {
                    warn!(why, "the agent waits, and tries again");
                    let (reason, server) = serve(config, &why);
                    waiting = Some((why, reason, server));
                }
            }
            log.write_queued();
            tokio::time::sleep(RETRY).await;
        }
    };
    tokio::select! {
        done = repeated => Some(done),
        () = stop => None,
    }
}

/// Serves the pages that need no agent.
fn serve(config: &Config, why: &str) -> (watch::Sender<Option<String>>, Server) {
    let (reason, obstacle) = watch::channel(Some(why.to_owned()));
    let (_, ready_page) = watch::channel(ReadyPage {
        not_ready: Some("the agent is starting"),
        ..ReadyPage::default()
    });
    let sites = metering::open(config, false);
    // There is no loop: requests to it are refused at once.
    let (server, _) = Server::start(sites, ready_page, [].into(), Some(obstacle));
    (reason, server)
}
