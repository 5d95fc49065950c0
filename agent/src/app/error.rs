//! Reasons why the agent stops by itself.

use std::io;

use nodepulse_core::settings::Mode;
use nodepulse_core::subjects::certificate::CertificateLost;
use nodepulse_kube::convert::time;
use nodepulse_kube::lease_holder::LeaseHolder;
use nodepulse_linux::host::{HostRoot, listeners};
use tokio::task::JoinError;
use tracing::{debug, error};

use super::kernel_inputs::RingEnd;
use crate::config::{Config, key};

#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error("cannot wait for a deadline on the boot clock")]
    Alarm(#[source] io::Error),
    #[error("cannot read the {ring} ring of the probes")]
    Ring {
        ring: &'static str,
        #[source]
        source: io::Error,
    },
    #[error(
        "something listens on port {}, as a kubelet does, and node mode must not run alongside one; \
         stop it, or set --take-over", list(.0)
    )]
    Ports(Vec<u16>),
    #[error(
        "the lease of this node is renewed by {0}, and node mode must not run alongside a kubelet; \
         stop it, or set --take-over"
    )]
    OtherHolder(LeaseHolder),
    #[error("the {0} could not be written to the API server; see the log for the reason")]
    NotWritten(&'static str),
    #[error("{}", no_certificate(*.0))]
    Certificate(CertificateLost),
    #[error("the {0} task ended early")]
    EndedEarly(&'static str),
}

fn no_certificate(lost: CertificateLost) -> String {
    match lost {
        CertificateLost::Expired(at) => format!(
            "the client certificate expired at {}, and the API server answers; a restart requests \
             another one with {}",
            time(at),
            key::bootstrap_kubeconfig
        ),
        CertificateLost::NotIssued(limit) => format!(
            "no client certificate was issued within {}s; check `kubectl get csr`, approve the request \
             of this node, and restart",
            limit.as_secs()
        ),
    }
}

fn list(ports: &[u16]) -> String {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    ports.join(" and ")
}

/// The kubelet's `healthzPort` and `port`.
const KUBELET_PORTS: [u16; 2] = [10248, 10250];

/// Node mode must not compete with a kubelet, so a port of one in use is an error at the start.
pub(super) fn no_kubelet(config: &Config) -> Result<(), AppError> {
    if config.mode != Mode::Node || config.take_over {
        return Ok(());
    }
    let taken = listeners::taken(&HostRoot::new(&config.host_root), &KUBELET_PORTS);
    match ok_or_log!(debug, taken, "listeners not read") {
        Some(taken) if !taken.is_empty() => Err(AppError::Ports(taken)),
        Some(_) | None => Ok(()),
    }
}

/// Without a reader no kernel event is received: its end is an error.
pub(super) fn ring_ended(ended: Result<RingEnd, JoinError>) -> AppError {
    match ended {
        Ok((ring, Err(source))) => AppError::Ring { ring, source },
        Ok((ring, Ok(()))) => AppError::EndedEarly(ring),
        Err(err) => {
            error!(err = &err as &dyn std::error::Error, "a ring reader failed");
            AppError::EndedEarly("ring")
        }
    }
}
