//! The client certificate of node mode: when its successor is requested, tried and used.
//!
//! ```text
//!                     ┌── pending: read again ──┐      ┌── rejected: the one in use stays
//! none ──► requested ─┴─► issued, stored ───────┴► tried ──► used ──70 to 90 % of its life──► requested …
//!             ▲   └── denied: a new key, later                 ├── rejected for minutes ──► requested
//!             └──────────┘                                     │   with the bootstrap kubeconfig
//!                                                              └── expired, and the server answers: lost
//! ```

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::{Decision, Effect};
use crate::backoff::{Backoff, Jitter};
use crate::client_certificate::{Certificate, Problem};
use crate::clock::{BootNanos, Now};

mod early;
mod input;
mod results;
mod schedule;

use early::Early;
pub use input::{
    Attempt, CertificateInput, CertificateNotice, CertificateOperation, Pair, RequestKey,
    Requested, Requester, Usage,
};
use schedule::Schedule;

/// How long the first certificate is awaited, as in a kubelet.
const FIRST_LIMIT: Duration = Duration::from_hours(1);
/// How long a certificate may be rejected with 401. An API server whose clock is behind, or that
/// reads its certificate authorities from a file that is being replaced, rejects it for a while.
const REJECTED_LIMIT: Duration = Duration::from_mins(3);
/// Between reads of a pending request.
const POLL: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
/// After an error of the server, the network or the disk.
const RETRY: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_mins(5));
/// After a request that was denied, or whose certificate cannot be used.
const DENIED: Backoff = Backoff::new(Duration::from_mins(1), Duration::from_hours(1));
/// Between attempts to reach the server with an expired certificate or a new one, and between reads
/// of a certificate that is not valid yet.
const PROBE: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_secs(30));

/// The properties of the certificate at the start of the agent.
#[derive(Debug, Clone, PartialEq)]
pub struct RotationSetup {
    pub found: Result<Certificate, Problem>,
    pub read_at: Now,
    /// Spreads requests in time.
    pub jitter: Jitter,
}

/// Why the agent ends: it has no valid certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CertificateLost {
    /// The certificate expired at this time, and the server answers: only a new start can request
    /// another one.
    Expired(SystemTime),
    /// There is none this long after the start.
    NotIssued(Duration),
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Candidate {
    pair: Pair,
    certificate: Certificate,
    /// Since when every answer is 401.
    rejected_since: Option<BootNanos>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Rejection {
    /// When that is confirmed by another request.
    due: BootNanos,
    is_confirmed: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct Successor {
    /// Since when it is requested; `None` if it is not.
    since: Option<BootNanos>,
    key: RequestKey,
    candidate: Option<Candidate>,
    /// The fingerprint of the current pair that the server rejected.
    rejected: Option<u64>,
    /// Notices for this request: each is logged once.
    logged: BTreeSet<Cow<'static, str>>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Rotation {
    current: Option<Certificate>,
    /// When its successor is requested.
    rotate_at: Option<SystemTime>,
    early: Option<Early>,
    successor: Successor,
    schedule: Schedule,
    files_changed: bool,
    rejection: Option<Rejection>,
    lost: Option<CertificateLost>,
}

impl Rotation {
    /// Creates the state at the start of the agent.
    pub fn new(setup: RotationSetup) -> Self {
        let now = setup.read_at;
        let mut rotation = Self {
            current: None,
            rotate_at: None,
            early: None,
            successor: Successor {
                since: None,
                key: RequestKey::Pending,
                candidate: None,
                rejected: None,
                logged: BTreeSet::new(),
            },
            schedule: Schedule::new(setup.jitter),
            files_changed: false,
            rejection: None,
            lost: None,
        };
        match setup.found {
            Ok(certificate) => rotation.adopt(certificate, now),
            // The clock is wrong; the certificate is not.
            Err(Problem::NotYetValid(_)) => {
                let schedule = &mut rotation.schedule;
                schedule.plan_after(PROBE, CertificateOperation::Read, now.boot);
            }
            Err(_) => rotation.request(now.boot),
        }
        rotation
    }

    pub const fn current(&self) -> Option<Certificate> {
        self.current
    }

    pub const fn lost(&self) -> Option<CertificateLost> {
        self.lost
    }

    /// Returns when it must be called although nothing happened. Moments of wall time are compared
    /// whenever it is called, because the clock may be corrected.
    pub fn due(&self) -> Option<BootNanos> {
        let can_confirm = !self.schedule.is_working && self.successor.candidate.is_none();
        let unconfirmed = self
            .rejection
            .filter(|one| can_confirm && !one.is_confirmed);
        let unconfirmed = unconfirmed.map(|one| one.due);
        [self.schedule.due(), unconfirmed]
            .into_iter()
            .flatten()
            .min()
    }

    /// Handles an input. After the certificate is lost there are no effects.
    pub fn on(&mut self, input: CertificateInput, now: Now) -> Vec<Effect> {
        use CertificateInput::{
            FilesChanged, Probed, Read, Rejected, Requested, Tick, Tried, Used,
        };

        let mut effects = Vec::new();
        if self.lost.is_some() {
            return effects;
        }
        if !matches!(input, Tick | FilesChanged | Rejected(_)) {
            self.schedule.is_working = false;
        }
        match input {
            Tick => {}
            FilesChanged => {
                self.files_changed = true;
                self.successor.rejected = None;
            }
            Rejected(is_rejected) => self.rejected(is_rejected, now),
            Requested(requested) => self.requested(requested, now.boot, &mut effects),
            Tried(attempt) => self.tried(attempt, now.boot, &mut effects),
            Used(usage) => self.used(usage, now, &mut effects),
            Read(found) => self.found(found, now.boot, &mut effects),
            Probed { found, answers } => self.probed(&found, answers, now, &mut effects),
        }
        let has_none = self.current.is_none() && self.successor.candidate.is_none();
        let is_idle = !self.schedule.is_working;
        if has_none && is_idle && FIRST_LIMIT <= self.waited(now.boot) {
            self.lost = Some(CertificateLost::NotIssued(FIRST_LIMIT));
        }
        if self.lost.is_none()
            && let Some(operation) = self.next(now, &mut effects)
        {
            self.schedule.is_working = true;
            effects.push(Effect::Certificate(operation));
        }
        effects
    }

    /// Returns true if no successor is requested or tried.
    const fn is_idle(&self) -> bool {
        self.successor.since.is_none() && self.successor.candidate.is_none()
    }

    fn next(&mut self, now: Now, effects: &mut Vec<Effect>) -> Option<CertificateOperation> {
        if self.schedule.is_working {
            return None;
        }
        if std::mem::take(&mut self.files_changed) {
            return Some(CertificateOperation::Read);
        }
        let is_over = |certificate: Certificate| certificate.not_after <= now.wall;
        let is_probe = |plan: schedule::Planned| plan.operation == CertificateOperation::Probe;
        if self.current.is_some_and(is_over)
            && self.successor.candidate.is_none()
            && !self.schedule.plan.is_some_and(is_probe)
        {
            self.schedule.plan = None;
            return Some(CertificateOperation::Probe);
        }
        let is_unconfirmed = |one: Rejection| !one.is_confirmed && one.due <= now.boot;
        if self.successor.candidate.is_none() && self.rejection.is_some_and(is_unconfirmed) {
            return Some(CertificateOperation::Try(Pair::InUse));
        }
        if let Some(plan) = self.schedule.plan.take_if(|plan| plan.due <= now.boot) {
            return Some(self.with_requester(plan.operation, effects));
        }
        if !self.is_idle() || self.schedule.plan.is_some() || self.current.is_none() {
            return None;
        }
        let is_before = self.rotate_at.is_none_or(|at| now.wall < at);
        if !self.is_rejected() && (is_before || self.is_early(now, effects)) {
            return None;
        }
        self.request(now.boot);
        let plan = self.schedule.plan.take()?;
        Some(self.with_requester(plan.operation, effects))
    }

    /// Returns true if the server rejected the certificate in use, and does so after minutes.
    fn is_rejected(&self) -> bool {
        self.rejection.is_some_and(|one| one.is_confirmed)
    }

    fn rejected(&mut self, is_rejected: bool, now: Now) {
        if is_rejected && self.current.is_some() {
            // All nodes can be rejected in one moment.
            let delay = self.schedule.jitter.stretch(REJECTED_LIMIT, 1.0);
            self.rejection.get_or_insert(Rejection {
                due: now.boot.plus(delay),
                is_confirmed: false,
            });
            return;
        }
        self.rejection = None;
        let is_request = |plan: schedule::Planned| {
            use CertificateOperation::{Poll, Request};
            matches!(plan.operation, Request(..) | Poll(_))
        };
        // A request that was sent for the rejection only is not needed any more.
        if self.rotate_at.is_some_and(|at| now.wall < at)
            && self.schedule.plan.is_some_and(is_request)
        {
            self.schedule.plan = None;
            self.successor.since = None;
        }
    }

    /// Sets the identity of a request, which may have changed since it was planned.
    fn with_requester(
        &mut self,
        operation: CertificateOperation,
        effects: &mut Vec<Effect>,
    ) -> CertificateOperation {
        use CertificateOperation::{Poll, Request};

        let requester = if self.current.is_none() || self.is_rejected() {
            Requester::Bootstrap
        } else {
            Requester::Node
        };
        let operation = match operation {
            Request(key, _) => Request(key, requester),
            Poll(_) => Poll(requester),
            other => return other,
        };
        if self.current.is_some() && requester == Requester::Bootstrap {
            self.log("rejected", CertificateNotice::InUseRejected, effects);
        }
        operation
    }

    /// Returns true if it is too early for the next request, see [`Early`], which is logged once.
    fn is_early(&mut self, now: Now, effects: &mut Vec<Effect>) -> bool {
        let is_ahead = |early: &&mut Early| now.boot < early.until;
        let (Some(early), Some(current)) = (self.early.as_mut().filter(is_ahead), self.current)
        else {
            return false;
        };
        if !std::mem::replace(&mut early.is_logged, true) {
            let wait = early.until.since(now.boot);
            let notice = CertificateNotice::IssuedPastRotation(current, wait);
            effects.push(Effect::Log(Decision::Certificate(notice)));
        }
        true
    }

    fn request(&mut self, now: BootNanos) {
        self.successor.since = Some(now);
        let request = CertificateOperation::Request(self.successor.key, Requester::Node);
        self.schedule.plan(request, now);
    }

    fn adopt(&mut self, certificate: Certificate, now: Now) {
        let life = certificate.life();
        let tenths = |tenths: u32| life.saturating_mul(tenths).checked_div(10).unwrap_or(life);
        // 70 % to 90 %.
        let wait = tenths(7).saturating_add(self.schedule.jitter.part(tenths(2)));
        self.current = Some(certificate);
        self.rotate_at = certificate.not_before.checked_add(wait);
        self.early = if self.rotate_at.is_some_and(|at| at <= now.wall) {
            Early::new(&certificate, self.early, now)
        } else {
            None
        };
        self.successor.since = None;
        self.successor.candidate = None;
        self.successor.logged.clear();
        self.schedule.plan = None;
        self.schedule.reset();
        self.rejection = None;
    }

    fn waited(&self, now: BootNanos) -> Duration {
        now.since(self.successor.since.unwrap_or(now))
    }

    /// Logs one notice for each kind and request.
    fn log(&mut self, kind: &'static str, notice: CertificateNotice, effects: &mut Vec<Effect>) {
        if self.successor.logged.insert(kind.into()) {
            effects.push(Effect::Log(Decision::Certificate(notice)));
        }
    }
}

#[cfg(test)]
mod tests;
