//! Saves when each condition was last exceeded, so that a restart does not change when it ends.
//!
//! While a condition is exceeded, the saved time is in the future, so that not every sample requires a
//! write. After a crash, a condition may therefore stay True longer by up to that lead, but never end
//! early. An orderly exit saves exact times.

use std::collections::BTreeMap;
use std::time::Duration;

use super::App;
use super::companion::CompanionConditions;
use crate::clock::{BootNanos, Now};
use crate::config::{Config, Mode};
use crate::escape::escape;
use crate::host::HostRoot;
use crate::kernel::{ProbeState, Support};
use crate::node_status::nodepulse_condition::NodepulseCondition;
use crate::node_status::{Condition, Status, StoredNode, setters};
use crate::pressure::Exceeded;
use crate::pressure::kills::WITHIN;
use crate::pressure::sample::LONGEST;
use crate::queries::blocking::Question;
use crate::reading::Resource;
use crate::state::State;
use crate::subjects::kill_counters::PreviousAgent;
use crate::subjects::{Input, KillCounterInput, KillSource, StallInput};
use crate::units::CgroupId;

/// The lead of a saved time while a condition is exceeded. Also the minimum interval between writes
/// that only correct a time that is too late.
const LEAD: Duration = Duration::from_secs(30);

/// A saved time must be in the future until after the next sample.
const MIN_LEAD: Duration = LONGEST.saturating_add(Duration::from_secs(2));

/// When each condition of this mode was last exceeded, by type.
type Times = BTreeMap<&'static str, Exceeded>;

/// The time in the file; `None`: the condition is not exceeded.
type SavedTime = Option<BootNanos>;

/// The time that is saved while a condition is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Precision {
    /// [`LEAD`] from now.
    WithLead,
    Exact,
}

/// The saved times of the conditions, and the rest of the state file.
#[derive(Debug)]
pub(super) struct ExceededTimes {
    /// As last written. A type that is missing is unknown: its condition is read from the Node once.
    saved: BTreeMap<String, SavedTime>,
    /// The fixed part of the file. `None`: this boot cannot be distinguished from others.
    base: Option<State>,
    /// Everything else in the file. `None`: the file cannot be written, or not yet.
    rest: Option<State>,
    /// The file of the previous agent was read, or cannot be read.
    loaded: bool,
    /// Every type is known, from the file or from the Node.
    adopted: bool,
    precision: Precision,
    written_at: BootNanos,
    /// Writes in progress.
    writing: usize,
}

impl Default for ExceededTimes {
    fn default() -> Self {
        Self {
            saved: BTreeMap::new(),
            base: None,
            rest: None,
            loaded: false,
            adopted: false,
            precision: Precision::WithLead,
            written_at: BootNanos(0),
            writing: 0,
        }
    }
}

/// The fixed part of the state file: the boot, and for its readers the tier and the probes. `None`:
/// this boot cannot be distinguished from others.
pub(super) fn base(config: &Config, source: KillSource, support: &Support) -> Option<State> {
    let root = HostRoot::new(&config.host_root);
    let boot = root.read_string("proc/sys/kernel/random/boot_id").ok()?;
    let probes = support.probes.iter().map(|(probe, state)| {
        let state = match state {
            ProbeState::Attached => "attached".to_owned(),
            ProbeState::NotNeeded => "not needed".to_owned(),
            ProbeState::Missing(why) => escape(why.to_string()),
        };
        (probe.program().to_owned(), state)
    });
    Some(State {
        boot: escape(boot),
        tier: source.tier(support.tier()).to_owned(),
        probes: probes.collect(),
        ..State::default()
    })
}

impl ExceededTimes {
    /// `base` is the fixed part of the file.
    pub(super) fn new(base: Option<State>) -> Self {
        Self {
            base,
            ..Self::default()
        }
    }

    fn is_of_this_boot(&self, state: &State) -> bool {
        self.base.as_ref().map(|base| &base.boot) == Some(&state.boot)
    }

    /// What the previous agent recorded about kills.
    pub(super) fn previous_kills(&self, state: Option<&State>) -> PreviousAgent {
        match state {
            None => PreviousAgent::Unknown,
            Some(state) if !self.is_of_this_boot(state) => PreviousAgent::OtherBoot,
            Some(state) if state.uncounted => PreviousAgent::Uncounted,
            Some(state) => PreviousAgent::Acknowledged(state.kills.clone()),
        }
    }

    /// The content of the file until kills are counted.
    fn uncounted(&self) -> Option<State> {
        Some(State {
            uncounted: true,
            ..self.base.clone()?
        })
    }

    /// Continues from the file that the previous agent of this boot wrote.
    fn resume(&mut self, state: &State) {
        self.saved.clone_from(&state.exceeded);
        self.rest = Some(state.clone());
    }

    /// The conditions that are True on the Node, and of which the state file has no time. Each stays
    /// True for a whole transition period after the first sample below the threshold.
    pub(super) fn adopted_from<'a>(&self, stored: &'a StoredNode) -> Vec<&'a Condition> {
        let is_adopted = |condition: &&Condition| {
            condition.status == Status::True && !self.knows(&condition.type_)
        };
        stored.conditions.iter().filter(is_adopted).collect()
    }

    /// Whether it is known when a condition was last exceeded. If so, its status on the Node is not
    /// used.
    fn knows(&self, type_: &str) -> bool {
        self.adopted || self.saved.contains_key(type_)
    }

    /// Whether writes are in progress.
    pub(super) fn is_writing(&self) -> bool {
        self.writing > 0
    }

    pub(super) fn written(&mut self) {
        self.writing = self.writing.saturating_sub(1);
    }

    /// The new times of the file. A condition that is neither exceeded nor known is left out.
    fn times_to_save(&self, times: &Times, now: BootNanos) -> BTreeMap<String, SavedTime> {
        let known = |(type_, exceeded): &(&&str, &Exceeded)| {
            self.knows(type_) || **exceeded != Exceeded::Never
        };
        let entry = |(type_, exceeded): (&&str, &Exceeded)| {
            let at = match (*exceeded, self.precision) {
                (Exceeded::Never, _) => None,
                (Exceeded::At(at), Precision::Exact) => Some(at),
                (Exceeded::At(at), Precision::WithLead) => Some(self.extended(type_, at, now)),
                (Exceeded::Now, Precision::Exact) => Some(now),
                (Exceeded::Now, Precision::WithLead) => Some(now.plus(LEAD)),
            };
            ((*type_).to_owned(), at)
        };
        times.iter().filter(known).map(entry).collect()
    }

    /// The time to save for a condition that was last exceeded at `at`: exact, unless the file was
    /// written recently. Each kill of a storm extends the condition, and must not cause a write.
    fn extended(&self, type_: &str, at: BootNanos, now: BootNanos) -> BootNanos {
        match self.saved.get(type_).copied().flatten() {
            Some(saved) if !self.may_correct(now) && at <= saved => saved,
            Some(_) if !self.may_correct(now) => at.plus(LEAD),
            Some(_) | None => at,
        }
    }

    /// Whether the last write was long enough ago for a correction, which is not urgent.
    fn may_correct(&self, now: BootNanos) -> bool {
        self.written_at.plus(LEAD) <= now
    }

    /// Whether to write the file: at once if a saved time is too early, and later if one is too late.
    fn is_due(&self, times: &Times, now: BootNanos) -> bool {
        let may_correct = self.may_correct(now);
        times.iter().any(|(type_, exceeded)| {
            let Some(saved) = self.saved.get(*type_).copied() else {
                return *exceeded != Exceeded::Never || self.adopted;
            };
            match *exceeded {
                Exceeded::Now => saved < Some(now.plus(MIN_LEAD)),
                Exceeded::At(at) => saved < Some(at) || (may_correct && saved != Some(at)),
                Exceeded::Never => may_correct && saved.is_some(),
            }
        })
    }

    /// The request that writes the whole file, with `rest` as its other content.
    fn write(&mut self, rest: State, times: &Times, now: BootNanos) -> Question {
        let saved = self.times_to_save(times, now);
        let state = State {
            exceeded: saved.clone(),
            ..rest
        };
        self.saved = saved;
        self.rest = Some(state.clone());
        self.written_at = now;
        self.writing = self.writing.saturating_add(1);
        Question::Save(Box::new(state))
    }

    /// The request that writes the file, if a write is due.
    fn save(&mut self, times: &Times, now: BootNanos) -> Option<Question> {
        if !self.is_due(times, now) {
            return None;
        }
        let rest = self.rest.clone()?;
        Some(self.write(rest, times, now))
    }
}

impl App {
    /// Restores the times of this boot from the state file, as if there had been no restart. If there
    /// is no file of this boot, a new one is started, also if kills cannot be counted.
    ///
    /// Only the first call has an effect: later the file is written by this agent.
    pub(super) fn load_exceeded(&mut self, state: Option<&State>, now: Now) {
        if std::mem::replace(&mut self.exceeded.loaded, true) {
            return;
        }
        let Some(state) = state.filter(|state| self.exceeded.is_of_this_boot(state)) else {
            self.exceeded.rest = self.exceeded.uncounted();
            return;
        };
        self.exceeded.resume(state);
        for (type_, at) in &state.exceeded {
            if let Some(at) = *at {
                self.restore_exceeded(type_, at, now);
            }
        }
        self.update_pressures();
    }

    /// Restores a condition that was last exceeded at `at`, which may be in the future: see [`LEAD`].
    fn restore_exceeded(&mut self, type_: &str, at: BootNanos, now: Now) {
        let condition = NodepulseCondition::parse(type_).filter(|_| self.companion.is_some());
        if condition == Some(NodepulseCondition::FrequentOomKills) {
            // It is exceeded until the oldest of the kills is out of the window.
            let until = at.min(now.boot.plus(WITHIN));
            self.with_kills(now, |kills| kills.restore(until, now.boot));
            return;
        }
        let at = at.min(now.boot);
        let resource = match self.config.mode {
            Mode::Node => setters::resource(type_),
            Mode::Companion => condition.and_then(NodepulseCondition::resource),
        };
        if let Some(resource) = resource {
            self.evaluator.restore(resource, at, now.boot);
        }
        if let Some(stall) = condition.and_then(NodepulseCondition::stall) {
            self.feed(Input::Stall(StallInput::Restored { stall, at }), now);
        }
    }

    /// When each condition of this mode was last exceeded.
    fn exceeded(&self) -> Times {
        let of = |resource| self.evaluator.exceeded(resource);
        match self.config.mode {
            Mode::Node => {
                let all = Resource::ALL.into_iter();
                all.filter_map(|resource| Some((setters::condition_type(resource)?, of(resource))))
                    .collect()
            }
            Mode::Companion => {
                let latest = |condition: NodepulseCondition| {
                    let by_resource = condition.resource().map(of);
                    let by_stall = condition
                        .stall()
                        .map(|stall| self.subjects.stalls.exceeded(stall));
                    let pods =
                        (condition == NodepulseCondition::PidsLow).then(|| of(Resource::PodsPids));
                    let kills = (condition == NodepulseCondition::FrequentOomKills)
                        .then(|| self.companion.as_ref().map(CompanionConditions::exceeded))
                        .flatten();
                    let all = [by_resource, by_stall, pods, kills].into_iter().flatten();
                    (condition.type_(), all.max().unwrap_or_default())
                };
                NodepulseCondition::ALL.into_iter().map(latest).collect()
            }
        }
    }

    /// Saves when conditions were last exceeded, if the file has to change.
    pub(super) fn save_exceeded(&mut self, now: Now) {
        let times = self.exceeded();
        if let Some(question) = self.exceeded.save(&times, now.boot) {
            self.blocking.ask(question);
        }
    }

    /// The conditions of the Node were adopted if nothing better was known. From now on, every time is
    /// known.
    pub(super) fn adopted(&mut self, now: Now) {
        self.exceeded.adopted = true;
        self.save_exceeded(now);
    }

    /// Saves how many kills of each cgroup are acknowledged.
    pub(super) fn save_kills(&mut self, kills: BTreeMap<CgroupId, u64>, now: BootNanos) {
        if let Some(base) = self.exceeded.base.clone() {
            self.write_state(State { kills, ..base }, now);
        }
    }

    fn write_state(&mut self, rest: State, now: BootNanos) {
        let times = self.exceeded();
        let question = self.exceeded.write(rest, &times, now);
        self.blocking.ask(question);
    }

    /// Saves exact times at exit, whether the counters of kills have to be saved or not.
    pub(super) fn save_exact_times(&mut self, now: Now) {
        self.exceeded.precision = Precision::Exact;
        self.feed(Input::KillCounter(KillCounterInput::Stopped), now);
        if !self.subjects.kill_counters.is_saving()
            && let Some(rest) = self.exceeded.rest.clone()
        {
            self.write_state(rest, now.boot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: &str = "PIDPressure";

    fn at(seconds: u64) -> BootNanos {
        BootNanos(seconds * 1_000_000_000)
    }

    fn times(exceeded: Exceeded) -> Times {
        BTreeMap::from([(TYPE, exceeded)])
    }

    /// Whether the file is written, and the time that it then contains.
    fn save(
        file: &mut ExceededTimes,
        exceeded: Exceeded,
        seconds: u64,
    ) -> (bool, Option<SavedTime>) {
        let request = file.save(&times(exceeded), at(seconds));
        (request.is_some(), file.saved.get(TYPE).copied())
    }

    fn writable() -> ExceededTimes {
        ExceededTimes {
            rest: Some(State::default()),
            ..ExceededTimes::default()
        }
    }

    #[test]
    fn saved_times_are_never_too_early_and_cause_few_writes() {
        use Exceeded::{At, Never, Now};
        let mut file = writable();
        let known = |seconds| Some(Some(at(seconds)));
        //  at s, exceeded, whether it is written, time in the file
        let script = [
            (0, Never, false, None, "nothing to save"),
            (100, Now, true, known(130), "at once, with the lead"),
            (105, Now, false, known(130), "covered"),
            (117, Now, false, known(130), "until the next sample too"),
            (119, Now, true, known(149), "the lead is used up"),
            (
                124,
                At(at(119)),
                false,
                known(149),
                "a correction is not urgent",
            ),
            (126, Now, false, known(149), "flapping costs nothing"),
            (149, At(at(126)), true, known(126), "corrected"),
            (200, At(at(126)), false, known(126), "unchanged"),
            (426, Never, true, Some(None), "it has ended"),
            (430, At(at(430)), true, known(430), "a kill"),
        ];
        for (seconds, exceeded, written, line, why) in script {
            let found = save(&mut file, exceeded, seconds);
            assert_eq!(found, (written, line), "at {seconds} s: {why}");
        }
        file.precision = Precision::Exact;
        let exact = file.times_to_save(&times(Now), at(500));
        assert_eq!(exact[TYPE], Some(at(500)));
    }

    #[test]
    fn a_storm_of_kills_causes_few_writes() {
        let mut file = writable();
        let mut writes = Vec::new();
        for seconds in 100..200 {
            let (written, line) = save(&mut file, Exceeded::At(at(seconds)), seconds);
            assert!(line >= Some(Some(at(seconds))), "never too early");
            if written {
                writes.push(seconds);
            }
        }
        assert_eq!(writes, [100, 101, 132, 133, 164, 165, 196, 197]);
        assert_eq!(
            save(&mut file, Exceeded::At(at(199)), 227),
            (true, Some(Some(at(199)))),
            "exact after the storm"
        );
    }

    #[test]
    fn an_unknown_time_is_not_saved_before_the_node_was_read() {
        let mut file = writable();
        assert!(!file.knows(TYPE));
        assert_eq!(save(&mut file, Exceeded::Never, 1), (false, None));
        file.adopted = true;
        assert_eq!(save(&mut file, Exceeded::Never, 2), (true, Some(None)));

        let mut next = writable();
        next.resume(&State {
            exceeded: file.saved.clone(),
            ..State::default()
        });
        assert!(next.knows(TYPE), "`Never` is known too");
        assert!(!next.knows("PIDsLow"), "a condition of another mode");
    }

    #[test]
    fn the_file_is_not_overwritten_before_the_rest_of_it_is_known() {
        let mut file = ExceededTimes::default();
        assert!(file.save(&times(Exceeded::Now), at(1)).is_none());
        assert!(!file.is_writing());
    }
}
