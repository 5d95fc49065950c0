//! The life of the node's certificate, as a state machine: what is done next, and what follows from
//! each result.
//!
//! ```text
//!                     ┌── pending: read again ──┐
//! none ──► requested ─┴─► issued, stored ──► used ──70 to 90 % of its life──► requested …
//!             ▲   └── denied: a new key, later     └── expired, and the server answers ──► exit
//!             └──────────┘
//! ```

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use super::{Certificate, Problem};
use crate::clock::{BootNanos, Now};

mod early;

use early::Early;

/// How long the first certificate is awaited, as in a kubelet.
const FIRST_LIMIT: Duration = Duration::from_hours(1);
/// Between reads of a pending request.
const POLL: Pause = Pause::new(Duration::from_secs(1), Duration::from_secs(30));
/// After an error of the server, the network or the disk.
const RETRY: Pause = Pause::new(Duration::from_secs(10), Duration::from_mins(5));
/// After a request that was denied, or whose certificate cannot be used.
const REJECTED: Pause = Pause::new(Duration::from_mins(1), Duration::from_hours(1));
/// Between attempts to find out whether the server answers, with an expired certificate; between
/// reads of a certificate that is not valid yet.
const EXPIRED: Pause = Pause::new(Duration::from_secs(10), Duration::from_secs(30));

/// A delay that doubles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pause {
    first: Duration,
    cap: Duration,
}

impl Pause {
    const fn new(first: Duration, cap: Duration) -> Self {
        Self { first, cap }
    }
}

/// When something happens, and a random number for what is to be spread in time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moment {
    /// The time.
    pub now: Now,
    /// From 0 up to, but not including, 1.
    pub random: f64,
}

/// The key of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKey {
    /// The one of a request that has no certificate yet, if there is one: it may have been created
    /// before a restart, or its answer may be lost.
    Pending,
    /// A new one.
    New,
}

/// What takes time. One is under way at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Create a request; if it has a certificate already, store that.
    Request(RequestKey),
    /// Read the request; if it has a certificate, store that.
    Poll,
    /// Use the stored certificate for new connections.
    Use,
    /// Read the stored certificate.
    Read,
    /// Read the stored certificate, and find out whether the server answers.
    Probe,
}

/// The result of a request, or of reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requested {
    /// The certificate is stored.
    Stored(Certificate),
    /// The request of this name is neither approved nor denied yet, or not signed yet.
    Pending(String),
    /// It was denied, or cannot be signed: why.
    Denied(String),
    /// It does not exist any more.
    Deleted,
    /// Another client has created a request of its name for another node or key.
    Foreign,
    /// Its certificate cannot be used.
    Unusable(Problem),
    /// The key or the certificate cannot be written.
    NotStored(String),
    /// The server answered with an error.
    Refused(String),
    /// The server did not answer.
    Unanswered(String),
}

/// What happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Time passes.
    Time,
    /// The stored certificate may have changed.
    FilesChanged,
    /// The result of [`Operation::Request`] or [`Operation::Poll`].
    Requested(Requested),
    /// The result of [`Operation::Use`]: whether the certificate is used.
    Used(bool),
    /// The result of [`Operation::Read`].
    Read(Result<Certificate, Problem>),
    /// The result of [`Operation::Probe`].
    Probed {
        /// The stored certificate.
        found: Result<Certificate, Problem>,
        /// Whether the server answers.
        answers: bool,
    },
}

/// What a person is to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A certificate is used from now on.
    InUse(Certificate),
    /// The request of this name waits for its approval.
    Pending(String),
    /// It has waited for an hour.
    StillPending(String),
    /// See [`Requested::Denied`].
    Denied(String),
    /// See [`Requested::Foreign`].
    Foreign,
    /// The certificate that was issued cannot be used.
    IssuedUnusable(Problem),
    /// The stored certificate cannot be used.
    StoredUnusable(Problem),
    /// See [`Requested::NotStored`].
    NotStored(String),
    /// See [`Requested::Refused`] and [`Requested::Unanswered`].
    NotRequested(String),
    /// The certificate has expired, and the server does not answer.
    ExpiredUnanswered,
    /// This certificate was past its rotation point when it was issued; its successor is requested
    /// after this delay.
    IssuedPastRotation(Certificate, Duration),
}

/// Why the process is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The certificate expired then, and the server answers: only a new start can request another.
    Expired(SystemTime),
    /// There is still none, this long after the start.
    NotIssued(Duration),
}

/// What follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Start an operation. Its result is an input.
    Start(Operation),
    /// Log it.
    Log(Notice),
    /// End the process.
    Exit(Exit),
}

/// Something to do later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Planned {
    due: BootNanos,
    operation: Operation,
}

/// The certificate of this node and its successor.
#[derive(Debug)]
pub struct Life {
    current: Option<Certificate>,
    /// When its successor is requested.
    rotate_at: Option<SystemTime>,
    early: Option<Early>,
    /// Since when one is requested.
    since: Option<BootNanos>,
    working: bool,
    plan: Option<Planned>,
    key: RequestKey,
    files_changed: bool,
    /// The kind of the last pause, and how many of its kind there were in a row.
    paused: Option<(Pause, u32)>,
    /// Lines that were logged for this request: each is logged once.
    logged: BTreeSet<&'static str>,
    exit: Option<Exit>,
}

impl Life {
    /// At the start of the process, with the stored certificate.
    pub fn new(found: &Result<Certificate, Problem>, moment: Moment) -> Self {
        let mut life = Self {
            current: None,
            rotate_at: None,
            early: None,
            since: None,
            working: false,
            plan: None,
            key: RequestKey::Pending,
            files_changed: false,
            paused: None,
            logged: BTreeSet::new(),
            exit: None,
        };
        match found {
            Ok(certificate) => life.adopt(*certificate, moment),
            // The clock is wrong; the certificate is not.
            Err(Problem::NotYetValid(_)) => life.plan(EXPIRED, Operation::Read, moment),
            Err(_) => life.request(moment.now.boot),
        }
        life
    }

    /// Whether there is a certificate.
    pub const fn has_certificate(&self) -> bool {
        self.current.is_some()
    }

    /// The certificate in use.
    pub const fn current(&self) -> Option<Certificate> {
        self.current
    }

    /// When it is to be called although nothing happened. Moments of wall time are compared whenever
    /// it is called, because the clock may be corrected.
    pub fn due(&self) -> Option<BootNanos> {
        let plan = self.plan.filter(|_| !self.working);
        plan.map(|plan| plan.due)
    }

    /// Handles an input. After [`Effect::Exit`] there is no other effect.
    pub fn on(&mut self, input: Input, moment: Moment) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.exit.is_some() {
            return effects;
        }
        match input {
            Input::Time => {}
            Input::FilesChanged => self.files_changed = true,
            Input::Requested(requested) => {
                self.working = false;
                self.requested(requested, moment, &mut effects);
            }
            Input::Used(used) => {
                self.working = false;
                self.used(used, moment, &mut effects);
            }
            Input::Read(found) => {
                self.working = false;
                self.found(found, moment, &mut effects);
            }
            Input::Probed { found, answers } => {
                self.working = false;
                self.probed(&found, answers, moment, &mut effects);
            }
        }
        if self.current.is_none() && !self.working && FIRST_LIMIT <= self.waited(moment) {
            self.exit = Some(Exit::NotIssued(FIRST_LIMIT));
        }
        if let Some(exit) = self.exit {
            effects.push(Effect::Exit(exit));
        } else if let Some(operation) = self.next(moment, &mut effects) {
            self.working = true;
            effects.push(Effect::Start(operation));
        }
        effects
    }

    /// What is to be done now.
    fn next(&mut self, moment: Moment, effects: &mut Vec<Effect>) -> Option<Operation> {
        if self.working {
            return None;
        }
        if std::mem::take(&mut self.files_changed) {
            return Some(Operation::Read);
        }
        let wall = moment.now.wall;
        let is_due = |plan: &Planned| plan.due <= moment.now.boot;
        let is_over = |certificate: Certificate| certificate.not_after <= wall;
        let is_probe = |plan: Planned| plan.operation == Operation::Probe;
        if self.current.is_some_and(is_over) && !self.plan.is_some_and(is_probe) {
            self.plan = None;
            return Some(Operation::Probe);
        }
        if let Some(plan) = self.plan.take_if(|plan| is_due(plan)) {
            return Some(plan.operation);
        }
        let rotate = self.rotate_at.is_some_and(|at| at <= wall);
        if rotate && self.since.is_none() {
            if self.is_early(moment, effects) {
                return None;
            }
            self.request(moment.now.boot);
            return self.plan.take().map(|plan| plan.operation);
        }
        None
    }

    /// Whether it is too early for the next request, see [`Early`], which is logged once.
    fn is_early(&mut self, moment: Moment, effects: &mut Vec<Effect>) -> bool {
        let is_ahead = |early: &&mut Early| moment.now.boot < early.until;
        let (Some(early), Some(current)) = (self.early.as_mut().filter(is_ahead), self.current)
        else {
            return false;
        };
        if !std::mem::replace(&mut early.logged, true) {
            let wait = early.until.since(moment.now.boot);
            effects.push(Effect::Log(Notice::IssuedPastRotation(current, wait)));
        }
        true
    }

    /// Plans a request for now.
    fn request(&mut self, now: BootNanos) {
        self.since = Some(now);
        self.plan = Some(Planned {
            due: now,
            operation: Operation::Request(self.key),
        });
    }

    fn adopt(&mut self, certificate: Certificate, moment: Moment) {
        let life = certificate.life();
        let share = 0.2f64.mul_add(moment.random, 0.7);
        // A share of less than one of a duration that exists.
        let share = Duration::try_from_secs_f64(life.as_secs_f64() * share);
        self.current = Some(certificate);
        self.rotate_at = certificate.not_before.checked_add(share.unwrap_or(life));
        self.early = if self.rotate_at.is_some_and(|at| at <= moment.now.wall) {
            Early::new(&certificate, self.early, moment.now)
        } else {
            None
        };
        self.since = None;
        self.plan = None;
        self.paused = None;
        self.logged.clear();
    }

    /// Plans an operation after a pause, which is up to half as long again.
    fn plan(&mut self, pause: Pause, operation: Operation, moment: Moment) {
        let again = match self.paused {
            Some((last, again)) if last == pause => again.saturating_add(1),
            _ => 0,
        };
        self.paused = Some((pause, again));
        let factor = 2u32.checked_pow(again).unwrap_or(u32::MAX);
        let delay = pause.first.saturating_mul(factor).min(pause.cap);
        let spread = Duration::try_from_secs_f64(delay.as_secs_f64() * moment.random / 2.0);
        let delay = delay.saturating_add(spread.unwrap_or_default());
        self.plan = Some(Planned {
            due: moment.now.boot.plus(delay),
            operation,
        });
    }

    fn requested(&mut self, requested: Requested, moment: Moment, effects: &mut Vec<Effect>) {
        let retry = Operation::Request(RequestKey::Pending);
        let renewed = Operation::Request(RequestKey::New);
        self.key = RequestKey::Pending;
        match requested {
            Requested::Stored(certificate) => self.replace(certificate, moment),
            Requested::Pending(name) => {
                self.plan(POLL, Operation::Poll, moment);
                let waited = self.waited(moment);
                if self.current.is_some() && FIRST_LIMIT <= waited {
                    self.log("still pending", Notice::StillPending(name), effects);
                } else {
                    self.log("pending", Notice::Pending(name), effects);
                }
            }
            Requested::Denied(why) => {
                self.plan(REJECTED, renewed, moment);
                self.log("denied", Notice::Denied(why), effects);
            }
            Requested::Deleted => self.plan(POLL, retry, moment),
            Requested::Foreign => {
                self.plan(REJECTED, renewed, moment);
                self.log("foreign", Notice::Foreign, effects);
            }
            Requested::Unusable(problem) => {
                let again = match problem {
                    Problem::NotYetValid(_) => Operation::Poll,
                    _ => renewed,
                };
                self.plan(REJECTED, again, moment);
                self.log("unusable", Notice::IssuedUnusable(problem), effects);
            }
            Requested::NotStored(why) => {
                self.plan(RETRY, retry, moment);
                self.log("not stored", Notice::NotStored(why), effects);
            }
            Requested::Refused(why) => {
                self.plan(RETRY, retry, moment);
                self.log("refused", Notice::NotRequested(why), effects);
            }
            Requested::Unanswered(why) => {
                self.plan(RETRY, retry, moment);
                self.log("unanswered", Notice::NotRequested(why), effects);
            }
        }
    }

    fn waited(&self, moment: Moment) -> Duration {
        let since = self.since.unwrap_or(moment.now.boot);
        moment.now.boot.since(since)
    }

    /// A certificate is there that is not in use.
    fn replace(&mut self, certificate: Certificate, moment: Moment) {
        self.adopt(certificate, moment);
        self.plan = Some(Planned {
            due: moment.now.boot,
            operation: Operation::Use,
        });
    }

    fn used(&mut self, used: bool, moment: Moment, effects: &mut Vec<Effect>) {
        if !used {
            return self.plan(EXPIRED, Operation::Use, moment);
        }
        self.paused = None;
        effects.extend(self.current.map(|one| Effect::Log(Notice::InUse(one))));
    }

    fn found(
        &mut self,
        found: Result<Certificate, Problem>,
        moment: Moment,
        effects: &mut Vec<Effect>,
    ) {
        let known = self.current.map(|current| current.fingerprint);
        match found {
            Ok(found) if Some(found.fingerprint) != known => {
                self.replace(found, moment);
                // The pending request, if there is one, is not needed any more.
                self.key = RequestKey::New;
            }
            Ok(_) => {}
            Err(problem) => {
                match problem {
                    _ if self.current.is_some() || self.plan.is_some() => {}
                    Problem::NotYetValid(_) => self.plan(EXPIRED, Operation::Read, moment),
                    _ => self.request(moment.now.boot),
                }
                if self.current.is_some() || problem != Problem::Missing {
                    self.log("stored", Notice::StoredUnusable(problem), effects);
                }
            }
        }
    }

    fn probed(
        &mut self,
        found: &Result<Certificate, Problem>,
        answers: bool,
        moment: Moment,
        effects: &mut Vec<Effect>,
    ) {
        let known = self.current.map(|current| current.fingerprint);
        if let Ok(found) = found
            && Some(found.fingerprint) != known
        {
            self.replace(*found, moment);
            self.key = RequestKey::New;
        } else if answers && self.is_early(moment, effects) {
            // A new start would request the next certificate at once.
            self.plan(EXPIRED, Operation::Probe, moment);
        } else if answers {
            let expired = self.current.map(|current| current.not_after);
            self.exit = Some(Exit::Expired(expired.unwrap_or(moment.now.wall)));
        } else {
            self.plan(EXPIRED, Operation::Probe, moment);
            self.log("expired", Notice::ExpiredUnanswered, effects);
        }
    }

    /// Logs one line for each kind and request.
    fn log(&mut self, kind: &'static str, notice: Notice, effects: &mut Vec<Effect>) {
        if self.logged.insert(kind) {
            effects.push(Effect::Log(notice));
        }
    }
}

#[cfg(test)]
mod tests;
