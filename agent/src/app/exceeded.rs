//! When each condition was last exceeded, as it is kept from one start to the next: a restart changes
//! nothing about when a condition ends.
//!
//! While one is exceeded the file is some time ahead, so that it need not be written at every look. An
//! agent that is killed in between may hold a condition that much longer than is due, and never shorter.
//! On an orderly exit the file is exact.

use std::collections::BTreeMap;
use std::time::Duration;

use super::App;
use super::blocking::Question;
use super::parts::tier;
use crate::clock::{BootNanos, Now};
use crate::config::{Config, Mode};
use crate::escape::escape;
use crate::host::HostRoot;
use crate::kernel::{ProbeState, Support};
use crate::node_status::nodepulse_condition::NodepulseCondition;
use crate::node_status::setters;
use crate::pressure::Exceeded;
use crate::pressure::deadline::LONGEST;
use crate::pressure::kills::WITHIN;
use crate::reading::Resource;
use crate::state::State;
use crate::subjects::kill_counters::PreviousAgent;
use crate::subjects::{Input, KillCounterInput, KillSource, StallInput};
use crate::units::CgroupId;

/// What is written while a condition is exceeded is so far ahead; what is too far ahead is put right no
/// more often than this.
const AHEAD: Duration = Duration::from_secs(30);

/// What is written must last until somebody looks again, and a little longer.
const LASTS: Duration = LONGEST.saturating_add(Duration::from_secs(2));

/// Of each condition of this mode, by type.
type Times = BTreeMap<&'static str, Exceeded>;

/// The moment that stands in the file; `None`: it is not exceeded.
type Line = Option<BootNanos>;

/// How what is exceeded now is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Precision {
    Ahead,
    Exact,
}

/// What the state file holds of conditions, and what else it holds.
#[derive(Debug)]
pub(super) struct Keeper {
    /// As last written. A type that is missing is not known: for it the Node is asked once.
    lines: BTreeMap<String, Line>,
    /// What the file has of this boot in any case. `None`: this boot cannot be distinguished from
    /// others.
    base: Option<State>,
    /// Everything else in the file. `None`: nothing can be written, or not yet.
    rest: Option<State>,
    /// The file of the last start was read, or cannot be.
    recalled: bool,
    /// Every type is known, by ourselves or from the Node.
    adopted: bool,
    precision: Precision,
    written_at: BootNanos,
    /// Writes that have not been answered.
    writing: usize,
}

impl Default for Keeper {
    fn default() -> Self {
        Self {
            lines: BTreeMap::new(),
            base: None,
            rest: None,
            recalled: false,
            adopted: false,
            precision: Precision::Ahead,
            written_at: BootNanos(0),
            writing: 0,
        }
    }
}

/// What the state file has in any case: the boot, and for its readers the tier and the probes. `None`:
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
        tier: tier(source, support).to_owned(),
        probes: probes.collect(),
        ..State::default()
    })
}

impl Keeper {
    /// `base` is what the file has in any case.
    pub(super) fn new(base: Option<State>) -> Self {
        Self {
            base,
            ..Self::default()
        }
    }

    fn is_of_this_boot(&self, state: &State) -> bool {
        self.base.as_ref().map(|base| &base.boot) == Some(&state.boot)
    }

    /// What the file says about kills.
    pub(super) fn previous_kills(&self, state: Option<&State>) -> PreviousAgent {
        match state {
            None => PreviousAgent::Unknown,
            Some(state) if !self.is_of_this_boot(state) => PreviousAgent::OtherBoot,
            Some(state) if state.uncounted => PreviousAgent::Uncounted,
            Some(state) => PreviousAgent::Acknowledged(state.kills.clone()),
        }
    }

    /// What the file has while kills have not been counted.
    fn uncounted(&self) -> Option<State> {
        Some(State {
            uncounted: true,
            ..self.base.clone()?
        })
    }

    /// What the last start of this boot wrote.
    fn resume(&mut self, state: &State) {
        self.lines.clone_from(&state.exceeded);
        self.rest = Some(state.clone());
    }

    /// Whether it is known by ourselves when a condition was last exceeded: what the Node says of it is
    /// somebody else's then.
    pub(super) fn knows(&self, type_: &str) -> bool {
        self.adopted || self.lines.contains_key(type_)
    }

    /// It is being written, or will be.
    pub(super) fn is_writing(&self) -> bool {
        self.writing > 0
    }

    pub(super) fn written(&mut self) {
        self.writing = self.writing.saturating_sub(1);
    }

    /// The new content of the file. A condition that is neither exceeded nor known has no line.
    fn lines(&self, times: &Times, now: BootNanos) -> BTreeMap<String, Line> {
        let known = |(type_, exceeded): &(&&str, &Exceeded)| {
            self.knows(type_) || **exceeded != Exceeded::Never
        };
        let line = |(type_, exceeded): (&&str, &Exceeded)| {
            let at = match (*exceeded, self.precision) {
                (Exceeded::Never, _) => None,
                (Exceeded::At(at), Precision::Exact) => Some(at),
                (Exceeded::At(at), Precision::Ahead) => Some(self.prolonged(type_, at, now)),
                (Exceeded::Now, Precision::Exact) => Some(now),
                (Exceeded::Now, Precision::Ahead) => Some(now.plus(AHEAD)),
            };
            ((*type_).to_owned(), at)
        };
        times.iter().filter(known).map(line).collect()
    }

    /// The line of a condition that was last exceeded at `at`. Exact, unless the file was written a
    /// short time ago: each kill of a storm prolongs the condition, and must not be a write.
    fn prolonged(&self, type_: &str, at: BootNanos, now: BootNanos) -> BootNanos {
        match self.lines.get(type_).copied().flatten() {
            Some(line) if !self.at_leisure(now) && at <= line => line,
            Some(_) if !self.at_leisure(now) => at.plus(AHEAD),
            Some(_) | None => at,
        }
    }

    /// Whether the last write was long enough ago for one that is not urgent.
    fn at_leisure(&self, now: BootNanos) -> bool {
        self.written_at.plus(AHEAD) <= now
    }

    /// Whether the file is to be written: at once where a condition would end too early by it, else
    /// at leisure.
    fn is_due(&self, times: &Times, now: BootNanos) -> bool {
        let at_leisure = self.at_leisure(now);
        times.iter().any(|(type_, exceeded)| {
            let Some(line) = self.lines.get(*type_).copied() else {
                return *exceeded != Exceeded::Never || self.adopted;
            };
            match *exceeded {
                Exceeded::Now => line < Some(now.plus(LASTS)),
                Exceeded::At(at) => line < Some(at) || (at_leisure && line != Some(at)),
                Exceeded::Never => at_leisure && line.is_some(),
            }
        })
    }

    /// The whole content of the file, with the rest as it is known now.
    fn write(&mut self, rest: State, times: &Times, now: BootNanos) -> Question {
        let lines = self.lines(times, now);
        let state = State {
            exceeded: lines.clone(),
            ..rest
        };
        self.lines = lines;
        self.rest = Some(state.clone());
        self.written_at = now;
        self.writing = self.writing.saturating_add(1);
        Question::Remember(Box::new(state))
    }

    /// What to write, if that is due.
    fn keep(&mut self, times: &Times, now: BootNanos) -> Option<Question> {
        if !self.is_due(times, now) {
            return None;
        }
        let rest = self.rest.clone()?;
        Some(self.write(rest, times, now))
    }
}

impl App {
    /// The state file was read. What it says of this boot holds as if there had been no restart. If
    /// there is nothing of this boot, the file is begun anew, also where kills cannot be counted.
    ///
    /// Only once: later the file is our own.
    pub(super) fn recall_exceeded(&mut self, state: Option<&State>, now: Now) {
        if std::mem::replace(&mut self.exceeded.recalled, true) {
            return;
        }
        let Some(state) = state.filter(|state| self.exceeded.is_of_this_boot(state)) else {
            self.exceeded.rest = self.exceeded.uncounted();
            return;
        };
        self.exceeded.resume(state);
        for (type_, at) in &state.exceeded {
            if let Some(at) = *at {
                self.hold_until_due(type_, at, now);
            }
        }
        self.take_pressures();
    }

    /// A condition of this mode was last exceeded then. The file is ahead of an agent that was killed.
    fn hold_until_due(&mut self, type_: &str, at: BootNanos, now: Now) {
        let own = NodepulseCondition::parse(type_).filter(|_| self.own.is_some());
        if own == Some(NodepulseCondition::FrequentOomKills) {
            // It is over until the oldest of the kills is out of the window.
            let until = at.min(now.boot.plus(WITHIN));
            self.with_kills(now, |kills| kills.restore(until, now.boot));
            return;
        }
        let at = at.min(now.boot);
        let resource = match self.config.mode {
            Mode::Node => setters::resource(type_),
            Mode::Companion => own.and_then(NodepulseCondition::resource),
        };
        if let Some(resource) = resource {
            self.evaluator.restore(resource, at, now.boot);
        }
        if let Some(stall) = own.and_then(NodepulseCondition::stall) {
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
                let one = |own: NodepulseCondition| {
                    let by_resource = own.resource().map(of);
                    let by_stall = own
                        .stall()
                        .map(|stall| self.subjects.stalls.exceeded(stall));
                    let pods = (own == NodepulseCondition::PidsLow).then(|| of(Resource::PodsPids));
                    let kills = (own == NodepulseCondition::FrequentOomKills)
                        .then(|| self.own.as_ref().map(super::own::Own::exceeded))
                        .flatten();
                    let all = [by_resource, by_stall, pods, kills].into_iter().flatten();
                    (own.type_(), all.max().unwrap_or_default())
                };
                NodepulseCondition::ALL.into_iter().map(one).collect()
            }
        }
    }

    /// Writes down when conditions were last exceeded, where the file no longer says so.
    pub(super) fn keep_exceeded(&mut self, now: Now) {
        let times = self.exceeded();
        if let Some(question) = self.exceeded.keep(&times, now.boot) {
            self.blocking.ask(question);
        }
    }

    /// What the Node says of conditions was taken over where nothing better was known. From here on it
    /// is known by ourselves.
    pub(super) fn adopted(&mut self, now: Now) {
        self.exceeded.adopted = true;
        self.keep_exceeded(now);
    }

    /// Writes how many kills of each cgroup are acknowledged, into the one file with everything else.
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

    /// On the way out the file is exact, whether the counters of kills are to be saved or not.
    pub(super) fn keep_exactly(&mut self, now: Now) {
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

    /// Whether it is written, and what then stands in the file.
    fn keep(keeper: &mut Keeper, exceeded: Exceeded, seconds: u64) -> (bool, Option<Line>) {
        let asked = keeper.keep(&times(exceeded), at(seconds));
        (asked.is_some(), keeper.lines.get(TYPE).copied())
    }

    fn keeper() -> Keeper {
        Keeper {
            rest: Some(State::default()),
            ..Keeper::default()
        }
    }

    #[test]
    fn the_file_is_never_behind_and_written_a_few_times_a_minute_at_most() {
        use Exceeded::{At, Never, Now};
        let mut keeper = keeper();
        let known = |seconds| Some(Some(at(seconds)));
        //  at s, exceeded, written, then in the file
        let script = [
            (0, Never, false, None, "nothing to say"),
            (100, Now, true, known(130), "at once, and ahead"),
            (105, Now, false, known(130), "covered"),
            (117, Now, false, known(130), "until the next look too"),
            (119, Now, true, known(149), "no longer"),
            (
                124,
                At(at(119)),
                false,
                known(149),
                "too far ahead is no hurry",
            ),
            (126, Now, false, known(149), "flapping costs nothing"),
            (149, At(at(126)), true, known(126), "and now it is exact"),
            (200, At(at(126)), false, known(126), "nothing new"),
            (426, Never, true, Some(None), "it has ended"),
            (430, At(at(430)), true, known(430), "a kill"),
        ];
        for (seconds, exceeded, written, line, why) in script {
            let found = keep(&mut keeper, exceeded, seconds);
            assert_eq!(found, (written, line), "at {seconds} s: {why}");
        }
        keeper.precision = Precision::Exact;
        let exact = keeper.lines(&times(Now), at(500));
        assert_eq!(exact[TYPE], Some(at(500)));
    }

    #[test]
    fn a_storm_of_kills_is_a_few_writes() {
        let mut keeper = keeper();
        let mut writes = Vec::new();
        for seconds in 100..200 {
            let (written, line) = keep(&mut keeper, Exceeded::At(at(seconds)), seconds);
            assert!(line >= Some(Some(at(seconds))), "never behind");
            if written {
                writes.push(seconds);
            }
        }
        assert_eq!(writes, [100, 101, 132, 133, 164, 165, 196, 197]);
        assert_eq!(
            keep(&mut keeper, Exceeded::At(at(199)), 227),
            (true, Some(Some(at(199)))),
            "exact again when it is over"
        );
    }

    #[test]
    fn what_nobody_knows_is_not_written_until_the_node_was_asked() {
        let mut keeper = keeper();
        assert!(!keeper.knows(TYPE));
        assert_eq!(keep(&mut keeper, Exceeded::Never, 1), (false, None));
        keeper.adopted = true;
        assert_eq!(keep(&mut keeper, Exceeded::Never, 2), (true, Some(None)));

        let mut next = self::keeper();
        next.resume(&State {
            exceeded: keeper.lines.clone(),
            ..State::default()
        });
        assert!(next.knows(TYPE), "never is known too");
        assert!(!next.knows("PIDsLow"), "of another mode");
    }

    #[test]
    fn without_the_rest_of_the_file_nothing_is_written_over_it() {
        let mut keeper = Keeper::default();
        assert!(keeper.keep(&times(Exceeded::Now), at(1)).is_none());
        assert!(!keeper.is_writing());
    }
}
