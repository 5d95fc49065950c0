//! The kernel's counters of OOM kills, compared with what was reported: see `ledger.rs`.
//!
//! The difference is reported by number, since the victims are unknown and are not made up: kills
//! while the agent was down, kills whose records a full ring or a rate limit took, and all kills if
//! neither a program nor the kernel's log reports any.
//!
//! The counters are read at samples of memory, which are taken anyway. The only reason to wake is
//! that something was acknowledged. A few kills are saved at most 2 s later, and many at once:
//! after a SIGKILL, the next start reports what is not saved a second time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{BlockingQuery, Decision, Effect, IncidentInput, Input, Query, pass_on};
use crate::clock::{BootNanos, Now};
use crate::incident::{Occurred, Occurrence, by_cause};
use crate::kube_event::{Finding, KillOwner, KillPlace, Period, ReportedKills, UnidentifiedKills};
use crate::pods::{PodRef, classify};

mod baseline;
mod causes;
mod input;
mod ledger;
mod no_pod;
mod saving;
mod states;
#[cfg(test)]
mod tests;

use causes::{counted_in_pods, new_in_pods};
pub use input::{
    AcknowledgedKills, CgroupKills, CountedKills, Counting, KillCounterInput, KillCounterSetup,
    KillSource, PodsCounter, PreviousAgent,
};
use ledger::{ByOwner, KillLedger, owner_of};
use no_pod::NoPodKills;
pub use no_pod::undisturbed;
use states::{Baseline, CounterReading, LastReading, Missed, Patience, Saving};

/// Shortest time between two readings of the counters, each of which walks all pods, and between
/// two writes of the state. Records that were in a ring at the first reading have arrived by then.
const AGAIN: Duration = Duration::from_secs(2);

/// Acknowledged kills that are saved at once. An Event with a count has more than that at one
/// stroke.
const AT_ONCE: u64 = 8;

/// Shortest time between two readings if counters are the only source: about that between samples
/// of memory on a calm node.
const REGULAR: Duration = Duration::from_secs(9);

/// Longest time between two readings if counters are the only source: that of the pods does not
/// show kills outside of them.
const RARELY: Duration = Duration::from_mins(1);

/// The kernel's counters of kills, and the account of what was reported.
#[derive(Debug, Serialize, Deserialize)]
pub struct KillCounters {
    source: KillSource,
    ledger: KillLedger,
    baseline: Baseline,
    reading: CounterReading,
    last_reading: LastReading,
    /// When the counters were last asked for.
    asked_at: BootNanos,
    /// When they were last read.
    read_at: BootNanos,
    saving: Saving,
    saved_at: BootNanos,
    /// Kills that were acknowledged since.
    unsaved: u64,
    patience: Patience,
    suspected: Option<Missed>,
    reported: Option<Missed>,
    /// Kills outside of the pods.
    no_pod: NoPodKills,
}

impl KillCounters {
    /// The counters and what the previous agent saved ([`BlockingQuery::Recall`]) were asked for at
    /// `now`.
    pub fn new(setup: KillCounterSetup, now: BootNanos) -> Self {
        Self {
            source: setup.source,
            ledger: KillLedger::new(setup.counting == Some(Counting::Nested)),
            baseline: Baseline::Unknown,
            reading: CounterReading::Asked,
            last_reading: match setup.counting {
                Some(_) => LastReading::Read,
                None => LastReading::Failed,
            },
            asked_at: now,
            read_at: BootNanos(0),
            saving: if setup.boot_known {
                Saving::Saved
            } else {
                Saving::Impossible
            },
            saved_at: BootNanos(0),
            unsaved: 0,
            patience: match setup.source {
                KillSource::Counters => Patience::None,
                KillSource::Program | KillSource::Log => Patience::SecondReading,
            },
            suspected: None,
            reported: None,
            no_pod: NoPodKills::default(),
        }
    }

    /// Takes an input, and returns what follows from it.
    pub fn on(&mut self, input: KillCounterInput, now: Now) -> Vec<Effect> {
        use KillCounterInput as In;
        match input {
            In::Found(findings) => self.found(findings, now),
            In::RecordsLost => {
                self.reading.want();
                Vec::new()
            }
            In::LogEnded => self.log_ended(now.boot),
            In::Recorded { kills, until } => {
                if !kills.is_empty() {
                    self.saving.acknowledged();
                    self.unsaved = self.unsaved.saturating_add(kills.total());
                }
                self.ledger.acknowledge(kills, until);
                self.save_if_many(now.boot)
            }
            In::Sampled => self.sampled(now.boot),
            In::PodsCounter(counter) => self.pods_counted(counter, now.boot),
            In::Recalled { previous, counted } => self.recalled(&previous, counted, now.boot),
            In::Counted(counted) => self.counted(counted, now),
            In::Saved => {
                self.saving.saved();
                self.save_if_many(now.boot)
            }
            In::Due => self.save_if_due(now.boot),
            In::Stopping => self.stopping(now.boot),
            In::Stopped => self.save(now.boot),
        }
    }

    /// When to save what was acknowledged since the last time.
    pub fn due(&self) -> Option<BootNanos> {
        let behind = self.baseline != Baseline::Unknown && self.saving == Saving::Behind;
        let wait = if self.unsaved < AT_ONCE {
            AGAIN
        } else {
            Duration::ZERO
        };
        behind.then(|| self.saved_at.plus(wait))
    }

    /// Whether no source of kills is available.
    pub fn is_unavailable(&self) -> bool {
        self.source == KillSource::Counters && self.last_reading == LastReading::Failed
    }

    /// Whether the counters were asked for, and the answer is to come.
    pub const fn is_asked(&self) -> bool {
        self.reading.is_asked()
    }

    /// Whether something is being saved.
    pub const fn is_saving(&self) -> bool {
        self.saving.is_writing()
    }

    /// Kills of which records came: those that were reported by number already are not reported
    /// again.
    fn found(&mut self, mut findings: Vec<Finding>, now: Now) -> Vec<Effect> {
        for first in findings.iter().filter(|one| one.is_first_of_group()) {
            self.ledger.seen_group(&first.counter, first.stamp.kernel);
        }
        // Of the lines with the cgroup, the kernel logs ten in five seconds. The counters have the
        // pods of the other kills, which are not reported twice.
        let is_counted = self.last_reading == LastReading::Read && self.ledger.counts_node();
        findings.retain(|finding| {
            let is_left = is_counted && finding.cgroup.is_none();
            if is_left {
                self.reading.want();
            }
            !is_left && self.is_new(&finding.counter, finding.stamp.kernel)
        });
        if findings.is_empty() {
            return Vec::new();
        }
        let in_pods = new_in_pods(&findings);
        let mut effects = vec![report(by_cause(findings, now))];
        effects.extend(in_pods.into_iter().map(pass_on));
        effects
    }

    fn is_new(&mut self, owner: &KillOwner, at: BootNanos) -> bool {
        self.reading.want();
        let reported = self.reported.as_mut();
        if reported.is_some_and(|reported| reported.take(owner, at)) {
            return false;
        }
        if let Some(suspected) = &mut self.suspected {
            suspected.take(owner, at);
        }
        self.ledger.seen(owner, at <= self.asked_at);
        true
    }

    /// From here on the counters report kills. They include those since the log's last record.
    fn log_ended(&mut self, now: BootNanos) -> Vec<Effect> {
        if self.source != KillSource::Log {
            return Vec::new();
        }
        self.source = KillSource::Counters;
        self.patience = Patience::None;
        self.reading.want();
        let mut effects = vec![Effect::Log(Decision::KillLogEnded)];
        if !self.reading.is_asked() {
            effects.push(self.ask(now));
        }
        effects
    }

    fn sampled(&mut self, now: BootNanos) -> Vec<Effect> {
        let wait = match self.source {
            KillSource::Counters => REGULAR,
            KillSource::Program | KillSource::Log => AGAIN,
        };
        let mut effects = self.save_if_due(now);
        if now < self.read_at.plus(wait) {
            return effects;
        }
        match self.reading {
            CounterReading::Wanted => effects.push(self.ask(now)),
            CounterReading::Idle if self.source == KillSource::Counters => {
                effects.push(Effect::Query(Query::PodsKillCounter));
            }
            CounterReading::Idle | CounterReading::Asked | CounterReading::AskedAndWanted => {}
        }
        effects
    }

    /// One counter shows whether the others need to be read.
    fn pods_counted(&mut self, counter: PodsCounter, now: BootNanos) -> Vec<Effect> {
        let unchanged = match (&self.baseline, counter) {
            (Baseline::Unknown, _) | (_, PodsCounter::Failed | PodsCounter::Counted(None)) => false,
            (Baseline::Known { any, .. }, PodsCounter::NoPods) => !any,
            (Baseline::Known { all, .. }, counter) => counter == PodsCounter::Counted(*all),
        };
        let is_old = self.no_pod.is_known() && self.read_at.plus(RARELY) <= now;
        if (unchanged && !is_old) || self.reading.is_asked() {
            return Vec::new();
        }
        vec![self.ask(now)]
    }

    fn ask(&mut self, now: BootNanos) -> Effect {
        self.reading = CounterReading::Asked;
        self.asked_at = now;
        self.ledger.asked(now);
        Effect::BlockingQuery(match self.baseline {
            Baseline::Unknown => BlockingQuery::Recall,
            Baseline::Known { .. } => BlockingQuery::KillCounters,
        })
    }

    fn stopping(&mut self, now: BootNanos) -> Vec<Effect> {
        self.patience = Patience::None;
        if self.reading.is_asked() {
            return Vec::new();
        }
        vec![self.ask(now)]
    }

    /// Takes an answer; `None` if the counters could not be read, which is then tried again.
    fn answered(
        &mut self,
        counted: Option<CountedKills>,
        now: BootNanos,
    ) -> Result<CountedKills, Vec<Effect>> {
        self.reading.answered();
        self.read_at = now;
        let before = self.last_reading;
        if let Some(counted) = counted {
            self.last_reading = LastReading::Read;
            return Ok(counted);
        }
        self.last_reading = LastReading::Failed;
        self.reading.want();
        let lost = self.is_unavailable() && before == LastReading::Read;
        let effects = lost.then_some(Effect::Log(Decision::KillCountersFailed));
        Err(effects.into_iter().collect())
    }

    fn recalled(
        &mut self,
        previous: &PreviousAgent,
        counted: Option<CountedKills>,
        now: BootNanos,
    ) -> Vec<Effect> {
        let counted = match self.answered(counted, now) {
            Ok(counted) => counted,
            Err(effects) => return effects,
        };
        let counters = self.take(&counted);
        let mut effects = Vec::new();
        match previous {
            PreviousAgent::Acknowledged(kills) => {
                self.ledger.resume(&counters, kills);
                let compared = self.ledger.count(&counters);
                self.suspect(compared.missing, Period::WhileDown, now);
            }
            // Without the counts of then it is not known which kills are new.
            PreviousAgent::Unknown | PreviousAgent::Uncounted => self.ledger.begin(&counters),
            PreviousAgent::OtherBoot => {
                effects.push(Effect::Log(Decision::StateOfOtherBoot));
                self.ledger.begin(&counters);
            }
        }
        self.saving.acknowledged();
        effects.extend(self.save_if_due(now));
        effects
    }

    /// Reports what is missing, and saves.
    fn counted(&mut self, counted: Option<CountedKills>, now: Now) -> Vec<Effect> {
        let counted = match self.answered(counted, now.boot) {
            Ok(counted) => counted,
            Err(effects) => return effects,
        };
        let moved = matches!(
            &self.baseline,
            Baseline::Known { under, any: true, .. } if *under != counted.pods
        );
        let counters = self.take(&counted);
        if moved {
            // What was counted in a cgroup that turned out to be the pods' is not new. What follows
            // after there was none is.
            self.ledger.begin(&counters);
        }
        let compared = self.ledger.count(&counters);
        let mut missing = compared.missing;
        if compared.is_corrected {
            self.saving.acknowledged();
        }
        if let Some(suspected) = &mut self.suspected {
            suspected.explain(&compared.counted_twice);
        }
        let mut incidents = Vec::new();
        let patience = self.patience;
        let confirmed = self.suspected.take_if(|suspected| {
            patience == Patience::None || suspected.until.plus(AGAIN) <= self.asked_at
        });
        if let Some(confirmed) = confirmed {
            missing = self.report_confirmed(&confirmed, missing, (&counted, now), &mut incidents);
            self.reported = Some(confirmed);
        }
        match patience {
            Patience::None => {
                for (owner, kills) in missing {
                    let incident = self.report(&owner, kills, Period::Now, (&counted, now));
                    incidents.extend(incident);
                }
            }
            Patience::SecondReading if self.suspected.is_none() => {
                self.suspect(missing, Period::Now, now.boot);
            }
            Patience::SecondReading => {}
        }
        if self.suspected.is_some() || self.ledger.expects_groups() {
            self.reading.want();
        }
        let mut effects = Vec::new();
        let in_pods = counted_in_pods(&incidents, now.boot);
        if !incidents.is_empty() {
            effects.push(report(incidents));
        }
        effects.extend(in_pods.into_iter().map(pass_on));
        effects.extend(self.save_if_due(now.boot));
        effects
    }

    /// Reports those of `missing` that were missing before, and returns the rest.
    fn report_confirmed(
        &mut self,
        confirmed: &Missed,
        missing: ByOwner,
        found: (&CountedKills, Now),
        incidents: &mut Vec<Occurred>,
    ) -> ByOwner {
        let mut rest = ByOwner::new();
        for (owner, kills) in missing {
            let sure = confirmed.by_owner.get(&owner);
            let sure = sure.map_or(0, |sure| kills.min(*sure));
            incidents.extend(self.report(&owner, sure, confirmed.period, found));
            rest.insert(owner, kills - sure);
        }
        rest.retain(|_, kills| *kills > 0);
        rest
    }

    /// These are missing, unless their records are on the way.
    fn suspect(&mut self, by_owner: ByOwner, period: Period, now: BootNanos) {
        if by_owner.is_empty() {
            return;
        }
        self.reading.want();
        self.suspected = Some(Missed {
            until: now,
            by_owner,
            period,
        });
    }

    /// Reports kills by number; `None` for none.
    fn report(
        &mut self,
        owner: &KillOwner,
        kills: u64,
        period: Period,
        (counted, now): (&CountedKills, Now),
    ) -> Option<Occurred> {
        if kills == 0 {
            return None;
        }
        let pods = &counted.pods;
        let of_owner = |one: &&CgroupKills| owner_of(&one.cgroup, pods).as_ref() == Some(owner);
        let place = match owner {
            KillOwner::NoPod => KillPlace::NoPod,
            KillOwner::Node => KillPlace::Unknown,
            KillOwner::Pods | KillOwner::Pod(_) => {
                let cgroup = counted.cgroups.iter().find(of_owner)?.cgroup.clone();
                KillPlace::Cgroup(cgroup)
            }
        };
        let pod = match &place {
            KillPlace::Cgroup(cgroup) => PodRef::of(classify(cgroup, pods)),
            KillPlace::NoPod | KillPlace::Unknown => None,
        };
        self.ledger.report(owner, kills);
        Some(Occurred {
            pod,
            at: now.wall,
            until: now.wall,
            stamp: None,
            kills: ReportedKills::of(owner.clone(), kills),
            occurrence: Occurrence::UnidentifiedKills(UnidentifiedKills {
                place,
                kills,
                period,
            }),
        })
    }
}

/// Passes on what occurred, to become incidents.
fn report(occurred: Vec<Occurred>) -> Effect {
    pass_on(Input::Incident(IncidentInput::Happened(occurred)))
}
