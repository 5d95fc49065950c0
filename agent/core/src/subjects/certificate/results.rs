//! What follows from the result of each operation.

use super::{
    Attempt, Candidate, CertificateLost, CertificateNotice, CertificateOperation, DENIED,
    FIRST_LIMIT, POLL, PROBE, Pair, REJECTED_LIMIT, RETRY, RequestKey, Requested, Requester,
    Rotation, Usage,
};
use crate::backoff::Backoff;
use crate::client_certificate::{Certificate, Problem};
use crate::clock::{BootNanos, Now};
use crate::subjects::{Decision, Effect};

impl Rotation {
    pub(super) fn requested(
        &mut self,
        requested: Requested,
        now: BootNanos,
        effects: &mut Vec<Effect>,
    ) {
        use CertificateOperation::{Poll, Request};

        let retry = Request(RequestKey::Pending, Requester::Node);
        let renewed = Request(RequestKey::New, Requester::Node);
        self.successor.key = RequestKey::Pending;
        let schedule = &mut self.schedule;
        match requested {
            Requested::Stored(certificate) => self.attempt(Pair::Issued, certificate, now),
            Requested::Pending(name) => {
                schedule.plan_after(POLL, Poll(Requester::Node), now);
                if self.current.is_some() && FIRST_LIMIT <= self.waited(now) {
                    let notice = CertificateNotice::StillPending(name);
                    self.log("still pending", notice, effects);
                } else {
                    self.log("pending", CertificateNotice::Pending(name), effects);
                }
            }
            Requested::Denied(why) => {
                schedule.plan_after(DENIED, renewed, now);
                self.log("denied", CertificateNotice::Denied(why), effects);
            }
            Requested::Deleted => schedule.plan_after(POLL, retry, now),
            Requested::Foreign => {
                schedule.plan_after(DENIED, renewed, now);
                self.log("foreign", CertificateNotice::Foreign, effects);
            }
            Requested::Unusable(problem) => {
                let again = match problem {
                    Problem::NotYetValid(_) => Poll(Requester::Node),
                    _ => renewed,
                };
                schedule.plan_after(DENIED, again, now);
                let notice = CertificateNotice::IssuedUnusable(problem);
                self.log("unusable", notice, effects);
            }
            Requested::NotStored(why) => {
                schedule.plan_after(RETRY, retry, now);
                self.log("not stored", CertificateNotice::NotStored(why), effects);
            }
            Requested::Refused(why) => {
                schedule.plan_after(RETRY, retry, now);
                self.log("refused", CertificateNotice::NotRequested(why), effects);
            }
            Requested::Unanswered(why) => {
                schedule.plan_after(RETRY, retry, now);
                self.log("unanswered", CertificateNotice::NotRequested(why), effects);
            }
        }
    }

    /// Tries a pair that is not in use.
    pub(super) fn attempt(&mut self, pair: Pair, certificate: Certificate, now: BootNanos) {
        self.successor.candidate = Some(Candidate {
            pair,
            certificate,
            rejected_since: None,
        });
        self.schedule.plan(CertificateOperation::Try(pair), now);
    }

    pub(super) fn tried(&mut self, attempt: Attempt, now: BootNanos, effects: &mut Vec<Effect>) {
        let Some(candidate) = &mut self.successor.candidate else {
            return self.confirmed(&attempt, now);
        };
        let pair = candidate.pair;
        match attempt {
            Attempt::Accepted => self.schedule.plan(CertificateOperation::Use(pair), now),
            Attempt::Rejected
                if now.since(*candidate.rejected_since.get_or_insert(now)) < REJECTED_LIMIT =>
            {
                let again = CertificateOperation::Try(pair);
                self.schedule.plan_after(PROBE, again, now);
            }
            Attempt::Rejected => {
                let fingerprint = candidate.certificate.fingerprint;
                self.successor.rejected = Some(fingerprint);
                self.give_up(pair, DENIED, RequestKey::New, now);
                let notice = CertificateNotice::PairRejected(pair);
                self.log("pair rejected", notice, effects);
            }
            Attempt::Unreadable(why) => {
                self.give_up(pair, RETRY, RequestKey::Pending, now);
                self.log("not tried", CertificateNotice::NotTried(why), effects);
            }
            Attempt::Unknown(why) => {
                candidate.rejected_since = None;
                let again = CertificateOperation::Try(pair);
                self.schedule.plan_after(PROBE, again, now);
                self.log("not tried", CertificateNotice::NotTried(why), effects);
            }
        }
    }

    /// Ends the attempts with `pair`, and plans a request. Without a request there is none while a
    /// certificate is in use: another program may correct the pair that it has stored.
    fn give_up(&mut self, pair: Pair, delay: Backoff, key: RequestKey, now: BootNanos) {
        self.successor.candidate = None;
        if pair == Pair::Issued || self.successor.since.is_some() {
            let request = CertificateOperation::Request(key, Requester::Node);
            self.schedule.plan_after(delay, request, now);
        } else if self.current.is_none() {
            self.request(now);
        }
    }

    /// The certificate in use was tried, because the server had rejected it.
    fn confirmed(&mut self, attempt: &Attempt, now: BootNanos) {
        let Some(rejection) = &mut self.rejection else {
            return;
        };
        match attempt {
            Attempt::Accepted => self.rejection = None,
            Attempt::Rejected => {
                rejection.is_confirmed = true;
                // Another program may have stored one that is accepted.
                self.files_changed = true;
            }
            Attempt::Unreadable(_) | Attempt::Unknown(_) => {
                rejection.due = now.plus(self.schedule.delay(PROBE));
            }
        }
    }

    pub(super) fn used(&mut self, usage: Usage, now: Now, effects: &mut Vec<Effect>) {
        let Some(candidate) = self.successor.candidate else {
            return;
        };
        match usage {
            Usage::Used => {
                self.adopt(candidate.certificate, now);
                // The pending request, if there is one, is not needed any more.
                if candidate.pair == Pair::Current {
                    self.successor.key = RequestKey::New;
                }
                let notice = CertificateNotice::InUse(candidate.certificate);
                effects.push(Effect::Log(Decision::Certificate(notice)));
            }
            Usage::NotStored(why) => {
                self.successor.candidate = None;
                let retry = CertificateOperation::Request(RequestKey::Pending, Requester::Node);
                self.schedule.plan_after(RETRY, retry, now.boot);
                self.log("not stored", CertificateNotice::NotStored(why), effects);
            }
            Usage::NotRead => {
                let pair = Pair::Current;
                self.successor.candidate = Some(Candidate { pair, ..candidate });
                let again = CertificateOperation::Try(pair);
                self.schedule.plan_after(PROBE, again, now.boot);
            }
        }
    }

    /// Returns true if `found` is neither in use nor being tried, and was not rejected.
    fn is_other(&self, found: Certificate) -> bool {
        let candidate = self.successor.candidate.map(|one| one.certificate);
        let known = [self.current, candidate].into_iter().flatten();
        let mut known = known
            .map(|one| one.fingerprint)
            .chain(self.successor.rejected);
        !known.any(|one| one == found.fingerprint)
    }

    pub(super) fn found(
        &mut self,
        found: Result<Certificate, Problem>,
        now: BootNanos,
        effects: &mut Vec<Effect>,
    ) {
        match found {
            Ok(found) if self.is_other(found) => self.attempt(Pair::Current, found, now),
            Ok(_) => {}
            Err(problem) => {
                let candidate = &mut self.successor.candidate;
                if candidate.take_if(|one| one.pair == Pair::Current).is_some() {
                    self.schedule.plan = None;
                }
                match problem {
                    _ if self.current.is_some() || self.schedule.plan.is_some() => {}
                    Problem::NotYetValid(_) => {
                        let schedule = &mut self.schedule;
                        schedule.plan_after(PROBE, CertificateOperation::Read, now);
                    }
                    _ => self.request(now),
                }
                if self.current.is_some() || problem != Problem::Missing {
                    let notice = CertificateNotice::StoredUnusable(problem);
                    self.log("stored", notice, effects);
                }
            }
        }
    }

    pub(super) fn probed(
        &mut self,
        found: &Result<Certificate, Problem>,
        answers: bool,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        if let Ok(found) = *found
            && self.is_other(found)
        {
            self.attempt(Pair::Current, found, now.boot);
        } else if self.current.is_some_and(|one| now.wall < one.not_after) {
            // The clock was corrected.
        } else if answers && !self.is_early(now, effects) {
            let expired = self.current.map(|current| current.not_after);
            self.lost = Some(CertificateLost::Expired(expired.unwrap_or(now.wall)));
        } else {
            // If it is early, a new start would request the next certificate at once.
            let schedule = &mut self.schedule;
            schedule.plan_after(PROBE, CertificateOperation::Probe, now.boot);
            if !answers {
                let notice = CertificateNotice::ExpiredUnanswered;
                self.log("expired", notice, effects);
            }
        }
    }
}
