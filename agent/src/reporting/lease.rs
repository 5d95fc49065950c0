//! The loop's side of the lease keeper: the schedule of renewals of the Lease, and their results.

use std::time::Duration;

use nodepulse_core::clock::BootNanos;
use nodepulse_core::settings::Mode;
use nodepulse_kube::ApiError;
use nodepulse_kube::lease::Cycle;
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use crate::config::Config;

/// State of the renewals.
///
/// ```text
/// Waiting { due } ──due──► Renewing ──ended──► Waiting { due }
///        └── the Node is registered: due at once ──┘
/// Kubelets: stays so, in companion mode, where the kubelet renews the Lease
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaseState {
    Kubelets,
    Waiting { due: BootNanos },
    Renewing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaseInput {
    Time { now: BootNanos },
    Registered { now: BootNanos },
    Ended { due: BootNanos },
}

impl LeaseState {
    /// The state after `input`. A request is sent if it becomes [`Self::Renewing`].
    fn step(self, input: LeaseInput) -> Self {
        match (self, input) {
            (Self::Kubelets, _) => Self::Kubelets,
            (Self::Waiting { due }, LeaseInput::Time { now }) if due <= now => Self::Renewing,
            (Self::Waiting { .. }, LeaseInput::Registered { now }) => Self::Waiting { due: now },
            (Self::Waiting { .. } | Self::Renewing, LeaseInput::Ended { due }) => {
                Self::Waiting { due }
            }
            (Self::Waiting { .. }, LeaseInput::Time { .. })
            | (Self::Renewing, LeaseInput::Time { .. } | LeaseInput::Registered { .. }) => self,
        }
    }
}

pub(super) struct LeaseSchedule {
    state: LeaseState,
    interval: Duration,
    /// `true` after the warning about an outage was logged.
    failing: bool,
    /// Requests to renew, with the Node's UID if it is known.
    requests: mpsc::Sender<Option<String>>,
    node_uid: Option<String>,
}

impl LeaseSchedule {
    pub(super) fn new(
        config: &Config,
        requests: mpsc::Sender<Option<String>>,
        now: BootNanos,
    ) -> Self {
        Self {
            state: match config.mode {
                Mode::Node => LeaseState::Waiting { due: now },
                Mode::Companion => LeaseState::Kubelets,
            },
            interval: config.lease_duration / 4,
            failing: false,
            requests,
            node_uid: None,
        }
    }

    pub(super) const fn due(&self) -> Option<BootNanos> {
        match self.state {
            LeaseState::Waiting { due } => Some(due),
            LeaseState::Kubelets | LeaseState::Renewing => None,
        }
    }

    pub(super) const fn interval(&self) -> Duration {
        self.interval
    }

    pub(super) fn on_time(&mut self, now: BootNanos) {
        let before = self.state;
        self.state = before.step(LeaseInput::Time { now });
        if self.state != before && self.requests.try_send(self.node_uid.clone()).is_err() {
            debug!("the lease keeper has ended");
        }
    }

    /// Records that the Node exists, with this UID.
    pub(super) fn registered(&mut self, uid: String, now: BootNanos) {
        self.node_uid = Some(uid);
        self.state = self.state.step(LeaseInput::Registered { now });
    }

    /// Records the outcome of a renewal. Returns `true` if it succeeded after others had failed.
    pub(super) fn outcome(&mut self, outcome: Result<Cycle, ApiError>) -> bool {
        match outcome {
            Ok(Cycle::Renewed(renewed)) => {
                debug!(
                    took_us = renewed.acked.since(renewed.sent).as_micros(),
                    "lease renewed"
                );
                let recovered = std::mem::take(&mut self.failing);
                if recovered {
                    info!("lease renewed again");
                }
                return recovered;
            }
            Ok(Cycle::NoNode) => debug!("no lease: there is no node for it yet"),
            Err(err) => {
                if !std::mem::replace(&mut self.failing, true) {
                    let err = &err as &dyn std::error::Error;
                    warn!(err, "lease not renewed, will retry");
                }
            }
        }
        false
    }

    /// Records that the renewal has ended; the next one is due at `due`.
    pub(super) fn ended(&mut self, due: BootNanos) {
        self.state = self.state.step(LeaseInput::Ended { due });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_renewal_is_under_way_and_none_if_a_kubelet_does_it() {
        use LeaseInput::{Ended, Registered, Time};
        use LeaseState::{Kubelets, Renewing, Waiting};

        let at = BootNanos;
        let waiting = |due| Waiting { due: at(due) };
        #[rustfmt::skip]
        let rows = [
            (waiting(5), Time { now: at(4) }, waiting(5), "too early"),
            (waiting(5), Time { now: at(5) }, Renewing, "due"),
            (waiting(5), Registered { now: at(2) }, waiting(2), "at once"),
            (Renewing, Time { now: at(9) }, Renewing, "under way"),
            (Renewing, Registered { now: at(9) }, Renewing, "under way"),
            (Renewing, Ended { due: at(9) }, waiting(9), "the next"),
            (Kubelets, Time { now: at(9) }, Kubelets, "the kubelet's"),
            (Kubelets, Registered { now: at(9) }, Kubelets, "the kubelet's"),
        ];
        for (state, input, next, why) in rows {
            assert_eq!(state.step(input), next, "{state:?} {input:?}: {why}");
        }
    }
}
