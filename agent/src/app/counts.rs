//! Kills that only the cgroups' counters tell of: while the agent was down, and always where neither
//! a program nor the kernel's log does. Who was killed is not known, and not made up.
//!
//! Nothing here wakes the agent: it is asked at the samples of memory, which happen anyway.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use tracing::{info, warn};

use super::blocking::{PodKills, Question};
use super::outside::KillSource;
use super::pod_events::{About, Counted, Notice, What, When};
use crate::clock::{BootNanos, Now};
use crate::config::Config;
use crate::host::cgroup::pods::PodsPath;
use crate::host::cgroup::{ancestors, oom};
use crate::host::{HostRoot, escape};
use crate::kernel::{ProbeState, Support};
use crate::pods::place;
use crate::state::State;
use crate::units::CgroupId;

/// Counters are looked at so often at most: a walk of all pods.
const AGAIN: Duration = Duration::from_secs(2);

/// Of [`Counts::early`]. More of them are told twice: now, and as missed.
const MOST_EARLY: usize = 4096;

/// Where counters are all there is they are looked at no more often than memory on a calm node.
const REGULAR: Duration = Duration::from_secs(9);

pub(super) struct Counts {
    source: KillSource,
    /// What is written down beside the counts; `None`: the boot cannot be told from another.
    state: Option<State>,
    pods: PodsPath,
    /// As of the last look.
    known: Option<HashMap<CgroupId, u64>>,
    /// The cgroup of all pods then.
    known_under: String,
    /// That of all pods, where it counts what is below it.
    all: Option<u64>,
    last: Last,
    /// A question is on its way.
    asked: bool,
    /// There is something to write down.
    news: bool,
    /// It is being written.
    writing: bool,
    looked: BootNanos,
    /// What happened while nobody looked, until it is sure that nobody told it.
    missed: Option<Missed>,
    /// Kills that were told before it is known what was missed: their cgroups, and when.
    early: Option<Vec<(Option<String>, BootNanos)>>,
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
    by_cgroup: BTreeMap<String, u64>,
}

impl Counts {
    pub(super) fn new(
        config: &Config,
        pods: PodsPath,
        source: KillSource,
        support: &Support,
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
        Self {
            source,
            state: boot.map(|boot| State {
                boot: escape(boot),
                tier: source.tier(support).to_owned(),
                probes,
                kills: BTreeMap::new(),
            }),
            known: None,
            known_under: String::new(),
            all: None,
            last: match pods.layout() {
                Some(_) => Last::Read,
                None => Last::Unread,
            },
            pods,
            asked: true,
            news: false,
            writing: false,
            looked: BootNanos(0),
            missed: None,
            early: Some(Vec::new()),
        }
    }

    /// Whether nothing tells of kills.
    pub(super) fn is_blind(&self) -> bool {
        self.source == KillSource::Counters && self.last == Last::Unread
    }

    /// The kernel's log tells of no more kills: from here on the counters do. What to ask first: what
    /// they count by now was told.
    pub(super) fn without_log(&mut self) -> Option<Question> {
        if self.source != KillSource::Log {
            return None;
        }
        warn!(
            "the kernel's log has ended; kills are told by the cgroups' counters, but those since its \
             last record by nobody"
        );
        self.source = KillSource::Counters;
        self.known = None;
        (!self.asked).then(|| self.ask())
    }

    fn looked(&mut self, found: Option<&[PodKills]>) {
        let last = match found {
            Some(_) => Last::Read,
            None => Last::Unread,
        };
        let before = std::mem::replace(&mut self.last, last);
        if self.is_blind() && before == Last::Read {
            warn!("the cgroups' counters of kills cannot be read");
        }
    }

    /// Somebody told of a kill in this cgroup.
    pub(super) fn told(&mut self, cgroup: Option<&str>, at: BootNanos) {
        self.news = true;
        if let Some(early) = &mut self.early {
            if early.len() < MOST_EARLY {
                early.push((cgroup.map(str::to_owned), at));
            }
            return;
        }
        self.not_missed(cgroup, at);
    }

    /// A kill that was told is none that was missed. It is counted once: in the nearest cgroup that
    /// has any.
    fn not_missed(&mut self, cgroup: Option<&str>, at: BootNanos) {
        let Some(missed) = self.missed.as_mut().filter(|missed| at <= missed.until) else {
            return;
        };
        for path in cgroup.into_iter().flat_map(ancestors) {
            if let Some(count) = missed.by_cgroup.get_mut(path).filter(|count| **count > 0) {
                *count -= 1;
                return;
            }
        }
    }

    /// At a sample: what to ask, if anything. On version 2 one file tells whether there is news.
    pub(super) fn sampled(&mut self, now: BootNanos) -> Option<Question> {
        let wait = match self.source {
            KillSource::Counters => REGULAR,
            KillSource::Program | KillSource::Log if self.news => AGAIN,
            KillSource::Program | KillSource::Log => return None,
        };
        let due = !self.asked && self.looked.plus(wait) <= now;
        let still = || self.source == KillSource::Counters && self.all_still();
        if !due || still() {
            return None;
        }
        Some(self.ask())
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
            Ok(None) => self.known.as_ref().is_none_or(HashMap::is_empty),
            Err(_) => false,
        }
    }

    fn ask(&mut self) -> Question {
        self.asked = true;
        Question::Kills
    }

    /// On the way out: what to ask, if there is something to write down.
    pub(super) fn last(&mut self) -> Question {
        self.news = true;
        self.ask()
    }

    /// The counters at start, and those of the last start.
    pub(super) fn recalled(
        &mut self,
        state: Option<&State>,
        found: Option<Vec<PodKills>>,
        now: BootNanos,
    ) -> Option<Question> {
        self.asked = false;
        self.looked = now;
        let early = self.early.take().unwrap_or_default();
        self.looked(found.as_deref());
        let found = found?;
        let of_this_boot = state.filter(|state| {
            let boot = self.state.as_ref().map(|own| &own.boot);
            boot == Some(&state.boot)
        });
        if let Some(before) = of_this_boot {
            let known = |id| before.kills.get(&id).copied().unwrap_or(0);
            self.missed = Some(Missed {
                until: now,
                by_cgroup: self.risen(&found, known),
            });
        } else if state.is_some() {
            info!("what is remembered is of another boot, and is not used");
        }
        for (cgroup, at) in early {
            self.not_missed(cgroup.as_deref(), at);
        }
        self.news = true;
        self.remember(&found)
    }

    /// The counters now. Gives what to tell, how many processes of pods were killed, and what to
    /// write down.
    pub(super) fn counted(
        &mut self,
        found: Option<Vec<PodKills>>,
        now: Now,
    ) -> (Vec<Notice>, u64, Option<Question>) {
        self.asked = false;
        self.looked = now.boot;
        self.looked(found.as_deref());
        let Some(found) = found else {
            return (Vec::new(), 0, None);
        };
        let (mut notices, mut killed) = (Vec::new(), 0);
        if self.known_under != self.pods.path() {
            // The pods turned out to be elsewhere: what is counted there is no news. What comes where
            // nothing was is.
            self.known = self.known.take().filter(HashMap::is_empty);
        }
        // Where they could not be read at start, nobody knows which of them are news.
        if let Some(known) = &self.known
            && self.source == KillSource::Counters
        {
            let risen = self.risen(&found, |id| known.get(&id).copied().unwrap_or(0));
            self.news |= !risen.is_empty();
            killed = risen.values().sum();
            let told = risen.into_iter();
            notices.extend(told.map(|risen| self.notice(risen, When::Now, now.wall)));
        }
        (notices, killed, self.remember(&found))
    }

    /// What happened while the agent was down, once whatever the rings held of it has been told.
    pub(super) fn settled(&mut self, now: Now) -> Vec<Notice> {
        let ripe = |missed: &mut Missed| missed.until.plus(AGAIN) <= now.boot;
        let missed = self.missed.take_if(ripe);
        let missed = missed.into_iter().flat_map(|missed| missed.by_cgroup);
        missed
            .filter(|(_, n)| *n > 0)
            .map(|missed| self.notice(missed, When::WhileDown, now.wall))
            .collect()
    }

    fn notice(&self, (cgroup, kills): (String, u64), when: When, at: SystemTime) -> Notice {
        info!(
            cgroup = escape(&cgroup),
            kills, "processes killed, victims not known"
        );
        Notice {
            about: About::of(place(&cgroup, self.pods.path())),
            at,
            stamp: None,
            what: What::Counted(Counted {
                cgroup,
                kills,
                when,
            }),
        }
    }

    /// By how much each count has risen. That of all pods without those of the pods that are there.
    fn risen(&self, found: &[PodKills], known: impl Fn(CgroupId) -> u64) -> BTreeMap<String, u64> {
        let by = |pod: &PodKills| pod.kills.saturating_sub(known(pod.id));
        let mut risen: BTreeMap<_, _> = found
            .iter()
            .map(|pod| (pod.cgroup.clone(), by(pod)))
            .collect();
        if let Some((pods, all)) = risen.remove_entry(self.pods.path()) {
            let told = risen.values().sum();
            // On version 1 a cgroup counts only its own, and the pods cgroup has no process.
            risen.insert(pods, all.saturating_sub(told));
        }
        risen.retain(|_, n| *n > 0);
        risen
    }

    fn remember(&mut self, found: &[PodKills]) -> Option<Question> {
        let all = found.iter().find(|pod| pod.cgroup == self.pods.path());
        self.all = all.map(|pod| pod.kills);
        let kills = || found.iter().map(|pod| (pod.id, pod.kills));
        self.known = Some(kills().collect());
        self.pods.path().clone_into(&mut self.known_under);
        let state = State {
            kills: kills().collect(),
            ..self.state.clone()?
        };
        self.writing |= self.news;
        std::mem::take(&mut self.news).then(|| Question::Remember(Box::new(state)))
    }

    /// It is written down, or cannot be.
    pub(super) fn written(&mut self) {
        self.writing = false;
    }

    pub(super) fn is_writing(&self) -> bool {
        self.writing
    }
}
