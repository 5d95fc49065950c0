//! Passes inputs to the subjects and performs the effects.

use std::collections::VecDeque;

use super::App;
use super::blocking::{self, Question};
use super::probes::Probes;
use crate::clock::{BootNanos, Now, Stamp};
use crate::config::Config;
use crate::node_status::Disks;
use crate::pressure::oom::RemainingMemory;
use crate::pressure::sample::DiskStates;
use crate::reading::{Resource, Signal, Stall, StallKind, StallOf};
use crate::subjects::{
    Decision, DiskInput, DiskSetup, Effect, FactChange, Input, IoTrigger, KillCounterInput,
    KillInput, PidInput, PodPidInput, PressureInput, Query, StallDecision, StallInput, StallSetup,
    Unwatched,
};

mod decisions;

/// Whether the effects of an input changed the facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FactState {
    /// At least one fact was set.
    Changed,
    /// No fact was set.
    Unchanged,
}

/// The disks of this configuration. `triggers` are the stalls with a trigger.
pub(super) fn disks(config: &Config, probes: &Probes, triggers: &[Stall]) -> DiskSetup {
    let trigger = if triggers.contains(&Stall::new(StallOf::Node, StallKind::Io)) {
        IoTrigger::Set
    } else {
        IoTrigger::Missing
    };
    DiskSetup {
        settings: config.disk_io.clone(),
        probe: probes.disk_probe(),
        trigger,
    }
}

/// The stalls of this configuration. `triggers` are those with a trigger.
pub(super) fn stalls(config: &Config, triggers: &[Stall]) -> StallSetup {
    let watched = Stall::ALL.into_iter().filter(|_| config.psi.enabled);
    let watched = watched.map(|stall| (stall, triggers.contains(&stall)));
    StallSetup {
        threshold: config.psi.threshold,
        transition_period: config.policy.transition_period,
        watched: watched.collect(),
    }
}

impl App {
    /// Passes an input to its subject, and performs all effects. The effects of an answer precede
    /// the remaining effects of the input that asked.
    pub(super) fn feed(&mut self, input: Input, now: Now) {
        self.perform(input, now);
    }

    fn perform(&mut self, input: Input, now: Now) -> FactState {
        let mut facts = FactState::Unchanged;
        let input = self.with_probe_states(input);
        let mut effects = VecDeque::from(self.subjects.on(input, now));
        while let Some(effect) = effects.pop_front() {
            if matches!(effect, Effect::Fact(_)) {
                facts = FactState::Changed;
            }
            if let Some(answer) = self.execute(effect, now) {
                for effect in self.subjects.on(answer, now).into_iter().rev() {
                    effects.push_front(effect);
                }
            }
        }
        facts
    }

    /// Returns the answer, if it is available at once.
    fn execute(&mut self, effect: Effect, now: Now) -> Option<Input> {
        match effect {
            Effect::Query(query) => return self.query(query, now),
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
            Effect::Input(input) => return Some(*input),
            Effect::Event(draft) => self.record(draft),
            Effect::ForcePressure {
                resource,
                why,
                at,
                stamp,
            } => {
                let changes = self.evaluator.force(resource, why, at);
                self.changed(&changes, Some((resource, stamp)), now);
            }
            Effect::CountKills { kills, at } => self.pods_killed(kills, at, now),
            Effect::SampleSoon => self.hot.hint(now.boot),
            Effect::SaveKills(kills) => self.save_kills(kills, now.boot),
            Effect::Log(decision) => {
                if let Decision::Stall(StallDecision::Changed { change, .. }) = &decision {
                    self.journal.record_stall_change(change, now.wall);
                }
                self.metering.record_decision(&decision);
                decisions::log(decision);
            }
        }
        None
    }

    /// Answers at once unless the query can wait for a disk or a server.
    fn query(&mut self, query: Query, now: Now) -> Option<Input> {
        let question = match query {
            Query::Disk(query) => Question::Disk(query),
            Query::Stall(stall) => {
                let sample = self.pressure_files.sample(stall);
                return Some(Input::Stall(StallInput::Sampled { stall, sample }));
            }
            Query::CgroupPaths(ids) => {
                return Some(Input::Kill(self.cgroups.paths_of(&ids, now.boot)));
            }
            Query::LimitHits(cgroup) => return Some(Input::Kill(self.cgroups.limit_hits(&cgroup))),
            Query::LiveLimitHits => return Some(Input::Kill(self.cgroups.live_limit_hits())),
            Query::RemainingMemory => {
                let left = RemainingMemory {
                    memory: self.observe.memory(),
                    threshold: self.config.policy.threshold(Signal::MemoryAvailable),
                };
                return Some(Input::Kill(KillInput::RemainingMemory(left)));
            }
            Query::PodsKillCounter => {
                let counter = KillCounterInput::PodsCounter(self.cgroups.pods_counter());
                return Some(Input::KillCounter(counter));
            }
            Query::RefusedForks => return Some(Input::PodPid(self.cgroups.refused_forks())),
            Query::PidLimits(cgroup) => {
                return Some(Input::PodPid(self.cgroups.pid_limits(&cgroup)));
            }
            Query::PodTasks => return Some(Input::PodPid(self.cgroups.pod_tasks())),
            Query::Containers(pod) => {
                self.pod_updates.read_containers(pod);
                return None;
            }
            Query::KillCounters => Question::Kills,
            Query::RecallKills => Question::Load,
        };
        self.blocking.ask(question);
        None
    }

    /// Adds the probe's state of each disk, read when the answer is used because it may have
    /// changed since the query.
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
            _ => {}
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
        if self.perform(Input::Stall(StallInput::Tick { soon }), now) == FactState::Changed {
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

    /// Tasks were counted and evaluated.
    pub(super) fn pids_sampled(&mut self, now: Now) {
        let sampled = PidInput::Sampled {
            tasks: self.observe.tasks(),
            pressure: self.evaluator.pressure(Resource::Pids),
        };
        self.feed(Input::Pid(sampled), now);
    }

    /// Memory and pids were sampled.
    pub(super) fn sampled(&mut self, now: Now) {
        self.feed(Input::KillCounter(KillCounterInput::Sampled), now);
        self.feed(Input::PodPid(PodPidInput::Sampled), now);
    }
}
