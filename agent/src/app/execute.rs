//! Performs what follows from an input of a subject.

use std::collections::VecDeque;

use super::App;
use super::blocking::{self, Question};
use super::probes::Probes;
use crate::clock::{BootNanos, Now, Stamp};
use crate::config::Config;
use crate::node_status::Disks;
use crate::pressure::sample::DiskStates;
use crate::reading::{Resource, Stall, StallKind, StallOf};
use crate::subjects::{
    Decision, DiskInput, DiskWatch, Effect, FactChange, Input, IoTrigger, PidInput, PidWatch,
    PressureInput, Query, StallDecision, StallInput, StallWatch, Subjects, Unwatched,
};

mod decisions;

/// What performing the effects of an input did to the facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FactsAre {
    /// At least one was set.
    Changed,
    /// None was.
    Unchanged,
}

/// The subjects of this configuration. `triggers` are the stalls for which one is set.
pub(super) fn subjects(
    config: &Config,
    probes: &Probes,
    triggers: &[Stall],
    now: BootNanos,
) -> Subjects {
    let trigger = if triggers.contains(&Stall::new(StallOf::Node, StallKind::Io)) {
        IoTrigger::Set
    } else {
        IoTrigger::Missing
    };
    let stalls = Stall::ALL.into_iter().filter(|_| config.psi.enabled);
    let stalls = stalls.map(|stall| (stall, triggers.contains(&stall)));
    Subjects {
        stalls: StallWatch::new(
            config.psi.threshold,
            config.policy.transition_period,
            stalls,
        ),
        pids: PidWatch::default(),
        disks: DiskWatch::new(config.disk_io.clone(), probes.disk_probe(), trigger, now),
    }
}

impl App {
    /// Passes an input to its subject, and performs what follows until nothing is left.
    pub(super) fn feed(&mut self, input: Input, now: Now) {
        self.perform(input, now);
    }

    fn perform(&mut self, input: Input, now: Now) -> FactsAre {
        let input = self.with_probe_states(input);
        let mut effects = VecDeque::from(self.subjects.on(input, now));
        let mut facts = FactsAre::Unchanged;
        while let Some(effect) = effects.pop_front() {
            if matches!(effect, Effect::Fact(_)) {
                facts = FactsAre::Changed;
            }
            if let Some(answer) = self.execute(effect, now) {
                effects.extend(self.subjects.on(answer, now));
            }
        }
        facts
    }

    fn execute(&mut self, effect: Effect, now: Now) -> Option<Input> {
        match effect {
            Effect::Query(Query::Stall(stall)) => {
                let sample = self.pressure_files.sample(stall);
                return Some(Input::Stall(StallInput::Sampled { stall, sample }));
            }
            Effect::Query(Query::Disk(query)) => self.blocking.ask(Question::Disk(query)),
            Effect::Map(update) => return self.probes.write(update),
            Effect::Fact(FactChange::Disks(disks)) => self.facts.disks = disks,
            Effect::Fact(FactChange::Stalls(stalls)) => {
                self.facts.stalls = stalls.into_iter().collect();
            }
            Effect::Pressure(PressureInput::Disks {
                known,
                unwatched,
                stamp,
            }) => self.judge_disks(known.as_ref(), unwatched, stamp, now),
            Effect::Log(decision) => {
                if let Decision::Stall(StallDecision::Changed { change, .. }) = &decision {
                    self.journal.record_stall_change(change, now.wall);
                }
                decisions::log(decision);
            }
        }
        None
    }

    /// What the probe has of a disk is read when the answer is used: it can have changed since.
    fn with_probe_states(&self, mut input: Input) -> Input {
        match &mut input {
            Input::Disk(DiskInput::Sampled(disks)) => {
                for disk in disks {
                    disk.probe = self.probes.disk_health(disk.device);
                }
            }
            Input::Disk(DiskInput::Confirmed { device, probe, .. }) => {
                *probe = self.probes.disk_health(*device);
            }
            Input::Disk(_) | Input::Pid(_) | Input::Stall(_) => {}
        }
        input
    }

    fn judge_disks(
        &mut self,
        known: Option<&Disks>,
        unwatched: Option<Unwatched>,
        stamp: Option<Stamp>,
        now: Now,
    ) {
        let ended = unwatched.map(|of| self.evaluator.unwatch_disks(of.others));
        let mut changes = ended.unwrap_or_default();
        let states = known.map_or(DiskStates::Unavailable, |disks| DiskStates::Known {
            slow: &disks.slow,
            stalled: &disks.stalled,
            failing: &disks.failing,
        });
        changes.extend(self.evaluator.observe_disks(states, now.boot));
        self.changed(&changes, stamp.map(|stamp| (Resource::DiskIo, stamp)), now);
    }

    /// Reads the list of disks for the first time.
    pub(super) fn list_disks(&mut self, now: Now) {
        let found = blocking::list_disks(self.observe.root());
        self.feed(Input::Disk(DiskInput::Listed(found)), now);
    }

    /// A trigger fired.
    pub(super) fn stalled(&mut self, stall: Stall, now: Now) {
        self.feed(Input::Stall(StallInput::Reported(stall)), now);
        self.facts_changed(false, now);
        match stall.kind {
            StallKind::Memory => self.hot.hint(now.boot),
            StallKind::Io => self.ask_storage(),
        }
        // The pods' tasks are among the node's, which has a trigger.
        if stall == Stall::new(StallOf::Node, StallKind::Io) {
            self.feed(Input::Disk(DiskInput::IoStalled), now);
        }
    }

    /// Reads the pressure files that are due by `soon`.
    pub(super) fn read_stalls(&mut self, soon: BootNanos, now: Now) {
        if self.perform(Input::Stall(StallInput::Tick { soon }), now) == FactsAre::Changed {
            self.facts_changed(false, now);
        }
    }

    /// Thresholds or capacity may have changed.
    pub(super) fn configure_pids(&mut self, now: Now) {
        let configured = PidInput::Configured {
            thresholds: self.evaluator.thresholds().copied().collect(),
            capacity: self.observe.pid_capacity(),
        };
        self.feed(Input::Pid(configured), now);
    }

    /// Tasks were counted and judged.
    pub(super) fn pids_sampled(&mut self, now: Now) {
        let sampled = PidInput::Sampled {
            tasks: self.observe.tasks(),
            pressure: self.evaluator.pressure(Resource::Pids),
        };
        self.feed(Input::Pid(sampled), now);
    }
}
