//! Prepares the client certificate of node mode, before privileges are dropped: the directory, the
//! kubeconfig that refers to it, and the client that may request the first one.

use std::io;
use std::path::Path;
use std::time::Duration;

use nodepulse_core::client_certificate::Problem;
use nodepulse_io::clock::Clock;
use nodepulse_kube::Client;
use nodepulse_kube::credentials::bootstrap::{self, KubeconfigState, NotWritten};
use nodepulse_kube::credentials::{CredentialSource, Programs};
use nodepulse_linux::certificate_store::{CURRENT, CertificateStore, DirectoryError};
use nodepulse_linux::os::file_watch::{self, WatchedFiles};
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use super::obstacle::Obstacle;
use super::settings;
use crate::app::{CertificateSetup, RunMode};
use crate::config::{CertificateConfig, Config, key};
use crate::reporting::certificate::Kubeconfigs;
use crate::telemetry::certificate::describe;

/// Returns the client of the API server, and how its certificate is requested, if it is. `deadline`
/// applies to each request. Opens no connection. Must be called in a runtime.
pub(super) async fn client(
    config: &Config,
    deadline: Duration,
    run_mode: RunMode,
) -> Result<(Option<Client>, Option<CertificateSetup>), Obstacle> {
    let Some(certificate) = &config.certificate else {
        return Ok((other_client(config, deadline, run_mode).await?, None));
    };
    let pair = certificate.directory.join(CURRENT);
    let state = bootstrap::state(&certificate.kubeconfig, &pair).map_err(not_written)?;
    if state == KubeconfigState::Other {
        info!(
            kubeconfig = %certificate.kubeconfig.display(),
            "the kubeconfig has other credentials; no client certificate is requested"
        );
        return Ok((other_client(config, deadline, run_mode).await?, None));
    }
    let store = open(certificate, &config.node_name)?;
    write_missing(certificate, &pair, state)?;
    let now = Clock::kernel().now().wall;
    let found = store.current(now);
    let from = CredentialSource::Kubeconfig;
    let (client, bootstrap) = if let Err(problem) = &found {
        if *problem != Problem::Missing {
            warn!(
                problem = describe(problem, now),
                "the stored client certificate is not used"
            );
        }
        let source = from(&certificate.bootstrap);
        let bootstrap = Client::from_bootstrap_credentials(source, deadline).await;
        let bootstrap = bootstrap.map_err(|err| {
            let mut obstacle = Obstacle::from(err);
            let (Obstacle::Lasting(why) | Obstacle::Passing(why)) = &mut obstacle;
            why.insert_str(0, &format!("{}: ", key::bootstrap_kubeconfig));
            obstacle
        })?;
        let client = Client::awaiting(from(&certificate.kubeconfig), deadline)?;
        (client, Some(bootstrap))
    } else {
        // Its user has a pair of files, and no program.
        let unknown = Programs::Refused;
        let source = from(&certificate.kubeconfig);
        let client = Client::from_late_credentials(source, deadline, unknown).await?;
        (client, None)
    };
    let setup = CertificateSetup {
        changes: watch(&certificate.directory),
        store,
        found,
        bootstrap,
        kubeconfigs: Some(Kubeconfigs {
            node: certificate.kubeconfig.clone(),
            bootstrap: certificate.bootstrap.clone(),
        }),
    };
    Ok((Some(client.keeping_user()), Some(setup)))
}

/// A client whose certificate is not requested. A single run does not wait for its credentials.
async fn other_client(
    config: &Config,
    deadline: Duration,
    run_mode: RunMode,
) -> Result<Option<Client>, Obstacle> {
    match run_mode {
        RunMode::Once => settings::client(config, deadline).await,
        RunMode::UntilStopped => settings::late_client(config, deadline).await,
    }
}

fn open(certificate: &CertificateConfig, node: &str) -> Result<CertificateStore, Obstacle> {
    let directory = &certificate.directory;
    CertificateStore::open(directory, node).map_err(|err| {
        let (key, shown) = (&key::cert_dir, directory.display());
        let why = format!("{key}: {shown}: {err}; example: {key}: /var/lib/nodepulse/pki");
        match err {
            DirectoryError::Io(err) if err.kind() != io::ErrorKind::NotADirectory => {
                Obstacle::Passing(why)
            }
            DirectoryError::Io(_) | DirectoryError::Owner(_) | DirectoryError::Mode(_) => {
                Obstacle::Lasting(why)
            }
        }
    })
}

fn not_written(err: NotWritten) -> Obstacle {
    match err {
        NotWritten::Invalid(why) => Obstacle::Lasting(why),
        NotWritten::NotYet(why) => Obstacle::Passing(why),
    }
}

/// Writes the kubeconfig, which refers to `pair`, if it is missing or invalid.
fn write_missing(
    certificate: &CertificateConfig,
    pair: &Path,
    state: KubeconfigState,
) -> Result<(), Obstacle> {
    let path = &certificate.kubeconfig;
    match state {
        KubeconfigState::Requested | KubeconfigState::Other => return Ok(()),
        KubeconfigState::Missing => {}
        KubeconfigState::Invalid(why) => {
            let path = path.display();
            warn!(%path, why, "the kubeconfig is invalid, and is written again");
        }
    }
    bootstrap::write(path, &certificate.bootstrap, pair).map_err(not_written)?;
    info!(path = %path.display(), "kubeconfig written");
    Ok(())
}

/// Returns a channel that receives a message for each change of the current certificate.
fn watch(directory: &Path) -> mpsc::Receiver<()> {
    let (sender, changes) = mpsc::channel(1);
    let files = WatchedFiles {
        file: directory.join(CURRENT),
        drop_ins: None,
    };
    tokio::spawn(async move {
        if let Err(err) = file_watch::read(files, sender).await {
            let err = &err as &dyn std::error::Error;
            debug!(err, "cannot watch the client certificate");
        }
    });
    changes
}
