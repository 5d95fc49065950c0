//! What the kernel has counted of kills, compared with what was reported: see [`ledger`]. The
//! difference is reported by number, since who was killed is not known, and not made up: what happened
//! while the agent was down, what a full ring, a rate limit or an outage took, and everything if
//! neither a program nor the kernel's log reports kills.
//!
//! The counters are read at the samples of memory, which happen anyway. What wakes the agent is that
//! something was acknowledged, which is written down at most 2 s later.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use tracing::{info, warn};

use super::blocking::{PodKills, Question};
use super::outside::KillSource;
use crate::clock::{BootNanos, Now};
use crate::config::Config;
use crate::escape::escape;
use crate::host::HostRoot;
use crate::host::cgroup::pods::PodsPath;
use crate::host::cgroup::{Version, oom};
use crate::kernel::{ProbeState, Support};
use crate::kube_event::{
    Incident, KillOutcomes, KillOwner, Occurrence, Period, PodRef, ReportedKills, UnidentifiedKills,
};
use crate::pods::classify;
use crate::state::State;

mod ledger;

use ledger::{ByOwner, Counter, Counters, Ledger, owner_of};

/// The counters are read so often at most, which is a walk of all pods; and the state is written so
/// often at most. Records that were in a ring when the counters were read have come by then.
const AGAIN: Duration = Duration::from_secs(2);

/// If counters are all there is they are read no more often than memory on a calm node.
const REGULAR: Duration = Duration::from_secs(9);

#[expect(
    clippy::struct_excessive_bools,
    reason = "each is about a request of its own, and any may be under way with any other"
)]
pub(super) struct Counts {
    source: KillSource,
    /// What is written down beside the counts; `None`: the boot cannot be told from another.
    state: Option<State>,
    pods: PodsPath,
    ledger: Ledger,
    /// The counters were read once, and what the last start acknowledged is known.
    begun: bool,
    /// The cgroup of all pods when they were last read, and whether there were any pods.
    known_under: String,
    known_any: bool,
    /// What that of all pods counted, if it counts what is below it.
    all: Option<u64>,
    last: Last,
    /// When the counters were asked for.
    asked_at: BootNanos,
    /// They are on their way.
    asked: bool,
    /// They are to be read again.
    check: bool,
    looked: BootNanos,
    /// More was acknowledged than is written down.
    unsaved: bool,
    /// It is being written.
    writing: bool,
    saved: BootNanos,
    /// What was missing, until it is sure that no record of it comes.
    missed: Option<Missed>,
    /// What was last reported by number.
    reported: Option<Missed>,
    /// The agent stops: there is no later.
    leaving: bool,
}

/// What the last look at the counters came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    Read,
    Unread,
}

struct Missed {
    /// Whatever was killed before this is in the counts.
    until: BootNanos,
    by_owner: ByOwner,
    when: Period,
}

impl Missed {
    /// A record of one of these came.
    fn take(&mut self, owner: &KillOwner, at: BootNanos) -> bool {
        if self.until < at {
            return false;
        }
        // On version 2 a pod that is gone is counted with all pods.
        for owner in [owner, &KillOwner::Pods] {
            if let Some(kills) = self.by_owner.get_mut(owner).filter(|kills| **kills > 0) {
                *kills -= 1;
                return true;
            }
        }
        false
    }
}

/// Whether a record is to be reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// By an Event.
    New,
    /// It came so late that its kill was reported by number.
    Reported,
}

impl Counts {
    pub(super) fn new(
        config: &Config,
        pods: PodsPath,
        source: KillSource,
        support: &Support,
        now: BootNanos,
    ) -> Self {
        let root = HostRoot::new(&config.host_root);
        let boot = root.read_string("proc/sys/kernel/random/boot_id").ok();
        let probes = support.probes.iter().map(|(probe, state)| {
            let told = match state {
                ProbeState::Attached => "attached".to_owned(),
                ProbeState::NotNeeded => "not needed".to_owned(),
                ProbeState::Missing(why) => escape(why.to_string()),
            };
            (probe.program().to_owned(), told)
        });
        let probes = probes.collect();
        let version = pods.layout().map(|layout| layout.memory.version);
        Self {
            source,
            state: boot.map(|boot| State {
                boot: escape(boot),
                tier: source.tier(support).to_owned(),
                probes,
                kills: BTreeMap::new(),
                exceeded: BTreeMap::new(),
                uncounted: false,
            }),
            ledger: Ledger::new(version == Some(Version::V2)),
            begun: false,
            known_under: String::new(),
            known_any: false,
            all: None,
            last: match version {
                Some(_) => Last::Read,
                None => Last::Unread,
            },
            pods,
            asked_at: now,
            asked: true,
            check: false,
            looked: BootNanos(0),
            unsaved: false,
            writing: false,
            saved: BootNanos(0),
            missed: None,
            reported: None,
            leaving: false,
        }
    }

    /// Whether nothing tells of kills.
    pub(super) fn is_blind(&self) -> bool {
        self.source == KillSource::Counters && self.last == Last::Unread
    }

    /// Whether what was remembered is of this boot.
    pub(super) fn is_of_this_boot(&self, state: &State) -> bool {
        let boot = self.state.as_ref().map(|own| &own.boot);
        boot == Some(&state.boot)
    }

    /// What is written while kills have not been counted; `None`: nothing can be written.
    pub(super) fn uncounted(&self) -> Option<State> {
        let state = self.state.clone()?;
        Some(State {
            uncounted: true,
            ..state
        })
    }

    /// The kernel's log reports no more kills: from here on the counters do, which know those since its
    /// last record too.
    pub(super) fn without_log(&mut self, now: BootNanos) -> Option<Question> {
        if self.source != KillSource::Log {
            return None;
        }
        warn!(
            "the kernel's log has ended; OOM kills are reported by the counters of the cgroups from now \
             on, without their victims"
        );
        self.source = KillSource::Counters;
        self.check = true;
        (!self.asked).then(|| self.ask(now))
    }

    fn looked(&mut self, found: Option<&[PodKills]>, now: BootNanos) {
        self.asked = false;
        self.looked = now;
        let last = match found {
            Some(_) => Last::Read,
            None => Last::Unread,
        };
        let before = std::mem::replace(&mut self.last, last);
        if self.is_blind() && before == Last::Read {
            warn!("the cgroups' counters of kills cannot be read");
        }
    }

    /// A record of a kill came. Whether an Event is to be recorded for it.
    pub(super) fn seen(&mut self, owner: Option<&KillOwner>, at: BootNanos) -> Seen {
        let Some(owner) = owner else {
            return Seen::New;
        };
        self.check = true;
        if let Some(reported) = &mut self.reported
            && reported.take(owner, at)
        {
            return Seen::Reported;
        }
        if let Some(missed) = &mut self.missed {
            missed.take(owner, at);
        }
        self.ledger.seen(owner, at <= self.asked_at);
        Seen::New
    }

    /// Records were lost: the counters know of how many kills.
    pub(super) fn lost(&mut self) {
        self.check = true;
    }

    /// What became of kills that were reported.
    pub(super) fn settle(&mut self, outcomes: KillOutcomes, now: BootNanos) {
        self.unsaved |= !outcomes.acknowledged.is_empty();
        self.check |= !outcomes.dropped.is_empty();
        self.ledger.acknowledge(outcomes.acknowledged);
        self.ledger.drop(outcomes.dropped, now);
    }

    /// At a sample: what to ask, if anything.
    pub(super) fn sampled(&mut self, now: BootNanos) -> impl Iterator<Item = Question> {
        let wait = match self.source {
            KillSource::Counters => REGULAR,
            KillSource::Program | KillSource::Log => AGAIN,
        };
        let wanted = match self.source {
            _ if self.check => true,
            KillSource::Counters => !self.all_still(),
            KillSource::Program | KillSource::Log => false,
        };
        let due = wanted && !self.asked && self.looked.plus(wait) <= now;
        let ask = due.then(|| self.ask(now));
        let save = self.save_in_time(now);
        save.into_iter().chain(ask)
    }

    /// Whether the counter of all pods is surely as it was.
    fn all_still(&self) -> bool {
        let Some(layout) = self.pods.layout() else {
            return true;
        };
        if self.last == Last::Unread {
            return false;
        }
        match oom::counters(&layout.memory, self.pods.path(), &mut Vec::new()) {
            Ok(Some(counters)) => {
                let now = counters.with_descendants.map(|tree| tree.kills);
                now.is_some() && now == self.all
            }
            // There are no pods.
            Ok(None) => !self.known_any,
            Err(_) => false,
        }
    }

    fn ask(&mut self, now: BootNanos) -> Question {
        self.asked = true;
        self.asked_at = now;
        self.check = false;
        self.ledger.asked();
        if self.begun {
            Question::Kills
        } else {
            Question::Recall
        }
    }

    /// On the way out: what is missing is reported now. What to ask, unless it is asked already.
    pub(super) fn leave(&mut self, now: BootNanos) -> Option<Question> {
        self.leaving = true;
        (!self.asked).then(|| self.ask(now))
    }

    pub(super) fn is_asked(&self) -> bool {
        self.asked
    }

    /// The counters at start, and what the last start acknowledged.
    pub(super) fn recalled(
        &mut self,
        state: Option<&State>,
        found: Option<&[PodKills]>,
        now: BootNanos,
    ) -> Option<Question> {
        self.looked(found, now);
        let Some(found) = found else {
            self.check = true;
            return None;
        };
        let counters = self.counters(found);
        let of_this_boot = state.filter(|state| self.is_of_this_boot(state));
        // Without the counts of then it is not known which kills are news.
        if let Some(before) = of_this_boot.filter(|before| !before.uncounted) {
            self.ledger.resume(&counters, &before.kills);
            let missing = self.ledger.count(&counters, now);
            self.miss(missing, Period::WhileDown, now);
        } else {
            if state.is_some() && of_this_boot.is_none() {
                info!("what is remembered is of another boot, and is not used");
            }
            self.ledger.begin(&counters);
        }
        self.begun = true;
        self.unsaved = true;
        self.save_in_time(now)
    }

    /// The counters now. Gives what to report, how many processes of pods were killed that nobody
    /// knew of, and what to write down.
    pub(super) fn counted(
        &mut self,
        found: Option<&[PodKills]>,
        now: Now,
    ) -> (Vec<Incident>, u64, Option<Question>) {
        self.looked(found, now.boot);
        let Some(found) = found else {
            self.check = true;
            return (Vec::new(), 0, None);
        };
        let moved = self.known_under != self.pods.path();
        let any_before = self.known_any;
        let counters = self.counters(found);
        if moved && any_before {
            // The pods turned out to be elsewhere: what is counted there is no news. What comes if
            // there was nothing is.
            self.ledger.begin(&counters);
        }
        let mut missing = self.ledger.count(&counters, now.boot);
        let at_once = self.leaving || self.source == KillSource::Counters;
        let settled = self
            .missed
            .take_if(|missed| at_once || missed.until.plus(AGAIN) <= self.asked_at);
        let (mut incidents, mut killed) = (Vec::new(), 0);
        if let Some(missed) = settled {
            let mut rest = ByOwner::new();
            for (owner, kills) in std::mem::take(&mut missing) {
                let sure = missed
                    .by_owner
                    .get(&owner)
                    .map_or(0, |sure| kills.min(*sure));
                incidents.extend(self.report((&owner, sure), missed.when, (found, now.wall)));
                rest.insert(owner, kills - sure);
            }
            rest.retain(|_, kills| *kills > 0);
            missing = rest;
            self.reported = Some(missed);
        }
        if at_once {
            for (owner, kills) in std::mem::take(&mut missing) {
                let incident = self.report((&owner, kills), Period::Now, (found, now.wall));
                killed += incident.as_ref().map_or(0, Incident::new_kills);
                incidents.extend(incident);
            }
        } else if self.missed.is_none() {
            self.miss(missing, Period::Now, now.boot);
        }
        self.check |= self.missed.is_some() || self.ledger.is_paused();
        (incidents, killed, self.save_in_time(now.boot))
    }

    /// These are missing, unless their records are still to come.
    fn miss(&mut self, by_owner: ByOwner, when: Period, now: BootNanos) {
        if by_owner.is_empty() {
            return;
        }
        self.check = true;
        self.missed = Some(Missed {
            until: now,
            by_owner,
            when,
        });
    }

    /// Reports kills by number; `None` for none.
    fn report(
        &mut self,
        (owner, kills): (&KillOwner, u64),
        when: Period,
        (found, at): (&[PodKills], SystemTime),
    ) -> Option<Incident> {
        if kills == 0 {
            return None;
        }
        let pods = self.pods.path();
        let is = |pod: &&PodKills| owner_of(&pod.cgroup, pods).as_ref() == Some(owner);
        let cgroup = found.iter().find(is)?.cgroup.clone();
        let again = self.ledger.report(owner, kills);
        info!(
            cgroup = escape(&cgroup),
            kills, "OOM kills without a record, reported by number"
        );
        Some(Incident {
            pod: PodRef::of(classify(&cgroup, pods)),
            at,
            stamp: None,
            kills: ReportedKills::of(owner.clone(), kills),
            occurrence: Occurrence::UnidentifiedKills(UnidentifiedKills {
                cgroup,
                kills,
                again,
                period: when,
            }),
        })
    }

    /// What was found, by owner. Takes note of it.
    fn counters(&mut self, found: &[PodKills]) -> Counters {
        let pods = self.pods.path();
        let all = found.iter().find(|pod| pod.cgroup == pods);
        self.all = all.map(|pod| pod.kills);
        self.known_any = !found.is_empty();
        pods.clone_into(&mut self.known_under);
        let mut counters = Counters::new();
        for pod in found {
            let Some(owner) = owner_of(&pod.cgroup, pods) else {
                continue;
            };
            let counter = counters.entry(owner).or_insert(Counter {
                id: pod.id,
                kills: 0,
            });
            counter.kills = counter.kills.saturating_add(pod.kills);
        }
        counters
    }

    /// When to write down what was acknowledged since the last time.
    pub(super) fn save_at(&self) -> Option<BootNanos> {
        let wanted = self.begun && self.state.is_some() && self.unsaved && !self.writing;
        wanted.then(|| self.saved.plus(AGAIN))
    }

    /// What to write down, unless it was written a moment ago.
    pub(super) fn save_in_time(&mut self, now: BootNanos) -> Option<Question> {
        let due = self.save_at().is_some_and(|at| at <= now);
        if due { self.save(now) } else { None }
    }

    /// What to write down.
    pub(super) fn save(&mut self, now: BootNanos) -> Option<Question> {
        if !self.begun {
            return None;
        }
        let state = State {
            kills: self.ledger.acknowledged(),
            ..self.state.clone()?
        };
        (self.unsaved, self.writing, self.saved) = (false, true, now);
        Some(Question::Remember(Box::new(state)))
    }

    /// It is written down, or cannot be.
    pub(super) fn written(&mut self) {
        self.writing = false;
    }

    pub(super) fn is_writing(&self) -> bool {
        self.writing
    }
}
