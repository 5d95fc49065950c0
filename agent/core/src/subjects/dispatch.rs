//! Passes an input to the subjects that it reaches, and does what several of them do together.

use std::time::{Duration, SystemTime};

use super::kill_counters::KillCounterInput::{Counted, LogEnded, Recalled};
use super::saved_state::Times;
use super::{
    BlockingQuery, CertificateInput, DiskInput, DiskWatch, Effect, FrequentKills, IncidentInput,
    Incidents, Input, KillCounterInput, KillCounters, Kills, KnownPods, NodeEventChoice,
    NodeEventInput, PidInput, PidWatch, PodPidInput, PodPids, Query, Rotation, RuntimeInput,
    RuntimeWatch, SavedState, Settings, Setup, SignalInput, Signals, StallInput, StallWatch,
    StateInput, Subjects, Volumes, pass_on,
};
use crate::clock::{ALIGN, BootNanos, Now};
use crate::node_status::nodepulse_condition::NodepulseCondition;
use crate::node_status::setters;
use crate::reading::Resource;
use crate::settings::Mode;

impl Subjects {
    pub fn new(setup: &Setup) -> Self {
        let Setup {
            started,
            boot,
            conditions,
            has_server,
            node,
            signals,
            disks,
            stalls,
            runtime,
            certificate,
        } = setup.clone();
        let transition_period = signals.policy.transition_period;
        let node_events = NodeEventChoice::new(node.mode, node.node_events);
        Self {
            mode: node.mode,
            signals: Signals::new(signals, started),
            pids: PidWatch::default(),
            disks: DiskWatch::new(disks, started),
            runtime: RuntimeWatch::new(runtime, started),
            stalls: StallWatch::new(stalls),
            kills: Kills::new(node.page),
            kill_counters: KillCounters::new(node.counters, started),
            frequent_kills: match node.mode {
                Mode::Companion => Some(FrequentKills::new(node.frequent_oom, transition_period)),
                Mode::Node => None,
            },
            pods: KnownPods::default(),
            incidents: Incidents::new(boot, has_server, &conditions),
            node_events,
            volumes: Volumes::new(transition_period),
            pod_pids: PodPids::new(node.refused_forks, started),
            saved: SavedState::new(node.counters.boot_known),
            certificate: certificate.map(Rotation::new),
        }
    }

    /// Passes an input to its subject, and returns the effects.
    pub fn on(&mut self, input: Input, now: Now) -> Vec<Effect> {
        let mut effects = match input {
            Input::Starting => self.starting(),
            Input::Started => started(now.boot),
            Input::Tick { soon } => self.tick(soon, now),
            Input::Configured(settings) => self.configured(*settings),
            Input::CgroupsChanged => vec![
                Effect::Query(Query::PodCgroups),
                pass_on(Input::PodPid(PodPidInput::CgroupsChanged)),
            ],
            Input::OomIncident { pod, at } => {
                self.with_frequent_kills(|frequent| frequent.killed(pod, at, now))
            }
            Input::PidsReported { side, ids, stamp } => {
                let stamp = Some(stamp);
                let sample = Input::Signal(SignalInput::Requested { stamp });
                vec![pass_on(sample), pass_on(Input::PidsCounted { side, ids })]
            }
            Input::PidsCounted { side, ids } => {
                let tasks = self.signals.tasks();
                let counted = match side {
                    Some(side) => PidInput::Crossed { side, ids, tasks },
                    None => PidInput::Counted { ids, tasks },
                };
                self.pids.on(counted, now)
            }
            Input::State(input) => self.state(input, now),
            Input::Signal(SignalInput::StorageSampled(sample)) => {
                let of_disks = pass_on(Input::Disk(sample.of_disks()));
                let sampled = SignalInput::StorageSampled(sample);
                let mut effects = self.signals.on(sampled, now);
                effects.push(of_disks);
                effects
            }
            Input::Signal(input) => self.signals.on(input, now),
            Input::Pid(input) => self.pids.on(input, now),
            Input::Disk(mut input) => {
                if let DiskInput::IoWaitRead(read) = &mut input {
                    read.name_pods(|id| self.pods.index().find(id));
                }
                self.disks.on(input, now)
            }
            Input::Runtime(input) => self.runtime.on(input, now),
            Input::Stall(mut input) => {
                if let StallInput::ShortageRead { evidence, .. } = &mut input {
                    evidence.units.name_pods(|id| self.pods.index().find(id));
                }
                self.stalls.on(input, now)
            }
            Input::Kill(input) => self.kills.on(input, now),
            Input::KillCounter(input) => {
                let may_change = matches!(input, Counted(_) | LogEnded | Recalled { .. });
                let mut effects = self.kill_counters.on(input, now);
                if may_change {
                    // Must follow the kills that were counted.
                    effects.push(pass_on(Input::KillSourceChecked));
                }
                effects
            }
            Input::KillSourceChecked => self.update_frequent_kills(now),
            Input::Pod(input) => self.pods.on(input),
            Input::Incident(input) => self.incidents.on(input, &self.pods, now),
            Input::NodeEvents(input) => self.node_events.on(input, now),
            Input::PodPid(input) => self.pod_pids.on(input, now),
            Input::Volume(input) => {
                let pods = self.pods.index();
                self.volumes.on(input, |id| pods.find(id), now)
            }
            Input::LargestOwners(mut input) => {
                input.name_pods(|id| self.pods.index().find(id));
                input.effects()
            }
            Input::Certificate(input) => match &mut self.certificate {
                Some(certificate) => certificate.on(input, now),
                None => Vec::new(),
            },
        };
        for effect in &effects {
            if let Effect::ConditionDetails { of, details } = effect {
                self.incidents.condition_details(*of, details.as_deref());
            }
        }
        let publishes = |effect: &Effect| matches!(effect, Effect::Publish);
        if effects.iter().any(publishes) {
            // The times are saved before they are published, so that a restart cannot lose them.
            if let Some(save) = self.saved.check(&self.times(), now.boot) {
                effects.insert(0, save);
            }
        }
        effects
    }

    /// Returns the next time at which a subject must be called although nothing happened.
    pub fn due(&self) -> BootNanos {
        let others = [
            self.pids.due(),
            self.disks.due(),
            self.runtime.due(),
            self.stalls.due(),
            self.kill_counters.due(),
            self.frequent_kills.as_ref().and_then(FrequentKills::due),
            self.incidents.due(),
            self.certificate.as_ref().and_then(Rotation::due),
        ];
        let others = others.into_iter().flatten();
        others.fold(self.signals.due(), BootNanos::min)
    }

    /// Returns the reads that precede the first evaluation.
    fn starting(&self) -> Vec<Effect> {
        // The runtime knows the place of the images, and then requests the sample of storage.
        let first = if self.runtime.is_used() {
            Input::Runtime(RuntimeInput::Starting)
        } else {
            Input::Signal(SignalInput::StorageRequested)
        };
        vec![
            Effect::NodeEvents(self.node_events.current()),
            // A source of kills that was never read is not a lost one.
            pass_on(Input::KillSourceChecked),
            Effect::Query(Query::AllCgroups),
            pass_on(Input::PodPid(PodPidInput::CgroupsChanged)),
            Effect::BlockingQuery(BlockingQuery::Recall),
            pass_on(first),
        ]
    }

    fn tick(&mut self, soon: BootNanos, now: Now) -> Vec<Effect> {
        let past = |at: Option<BootNanos>| at.is_some_and(|at| at <= now.boot);
        let count_tasks = past(self.pids.due());
        let mut inputs = vec![
            Input::Signal(SignalInput::Tick { soon, count_tasks }),
            Input::Disk(DiskInput::Tick { soon }),
            Input::Runtime(RuntimeInput::Tick { soon }),
            Input::Stall(StallInput::Tick { soon }),
            Input::Incident(IncidentInput::Due),
            Input::Certificate(CertificateInput::Tick),
        ];
        if past(self.kill_counters.due()) {
            inputs.push(Input::KillCounter(KillCounterInput::Due));
        }
        inputs.push(Input::State(StateInput::Check));
        let mut effects = self.update_frequent_kills(now);
        effects.extend(inputs.into_iter().map(pass_on));
        effects
    }

    fn configured(&mut self, settings: Settings) -> Vec<Effect> {
        let Settings {
            policy,
            disk_io,
            node_events,
            frequent_oom,
            stalls: watched,
        } = settings;
        let transition_period = policy.transition_period;
        self.volumes.configure(transition_period);
        if let Some(frequent) = &mut self.frequent_kills {
            frequent.configure(frequent_oom, transition_period);
        }
        let inputs = [
            Input::NodeEvents(NodeEventInput::Configured(node_events)),
            Input::Stall(StallInput::Configured {
                transition_period,
                watched,
            }),
            Input::Disk(DiskInput::Configured(disk_io)),
            Input::Signal(SignalInput::Configured(policy)),
        ];
        inputs.map(pass_on).into()
    }

    fn state(&mut self, input: StateInput, now: Now) -> Vec<Effect> {
        match input {
            StateInput::Recalled { previous, counted } => {
                let mut effects = Vec::new();
                for (type_, at) in self.saved.recall(&previous) {
                    effects.extend(self.restore(&type_, at, now));
                }
                let facts = self.signals.publish();
                effects.extend(facts);
                let previous = previous.for_counters();
                let recalled = KillCounterInput::Recalled { previous, counted };
                effects.push(pass_on(Input::KillCounter(recalled)));
                effects
            }
            StateInput::TrueOnNode(conditions) => {
                let mut effects = Vec::new();
                let conditions = conditions.into_iter();
                let possible = conditions.filter(|(type_, reported)| {
                    !is_of_former_boot(*reported, now) || self.outlives_boot(type_)
                });
                let possible = possible.map(|(type_, _)| type_).collect();
                for type_ in self.saved.adopt(possible) {
                    effects.extend(self.seed(&type_, now));
                }
                let facts = self.signals.publish();
                effects.extend(facts);
                effects.extend(self.saved.check(&self.times(), now.boot));
                effects
            }
            StateInput::Acknowledged(kills) => {
                let save = self.saved.save_kills(kills, &self.times(), now.boot);
                save.into_iter().collect()
            }
            StateInput::Check => {
                let save = self.saved.check(&self.times(), now.boot);
                save.into_iter().collect()
            }
            StateInput::Written => {
                self.saved.written();
                self.kill_counters.on(KillCounterInput::Saved, now)
            }
            StateInput::Stopped => {
                self.saved.be_exact();
                let mut effects = self.kill_counters.on(KillCounterInput::Stopped, now);
                // A save of the counters includes the times.
                if !self.kill_counters.is_saving() {
                    effects.extend(self.saved.rewrite(&self.times(), now.boot));
                }
                effects
            }
        }
    }

    /// Restores a condition that was last exceeded at `at`, which may be in the future.
    fn restore(&mut self, type_: &str, at: BootNanos, now: Now) -> Vec<Effect> {
        let condition = self.nodepulse_condition(type_);
        if condition == Some(NodepulseCondition::FrequentOomKills) {
            return self.with_frequent_kills(|frequent| frequent.restore(at, now));
        }
        let at = at.min(now.boot);
        if let Some(resource) = self.resource(type_) {
            self.signals.restore(resource, at, now.boot);
        }
        let stall = condition.and_then(NodepulseCondition::stall);
        let restored = stall.map(|stall| StallInput::Restored { stall, at });
        restored.map_or_else(Vec::new, |input| self.stalls.on(input, now))
    }

    /// Applies a condition that is True on the Node, but whose time is unknown.
    fn seed(&mut self, type_: &str, now: Now) -> Vec<Effect> {
        let condition = self.nodepulse_condition(type_);
        if condition == Some(NodepulseCondition::FrequentOomKills) {
            return self.with_frequent_kills(|frequent| frequent.seed(now));
        }
        if let Some(resource) = self.resource(type_) {
            self.signals.seed(resource, now.boot);
        }
        let stall = condition.and_then(NodepulseCondition::stall);
        stall.map_or_else(Vec::new, |stall| {
            self.stalls.on(StallInput::Stored(stall), now)
        })
    }

    /// Returns true if a condition can last until after the next boot: only if a disk stores its
    /// cause. A condition that a kubelet has too ends as a kubelet ends it.
    fn outlives_boot(&self, type_: &str) -> bool {
        match (self.mode, self.resource(type_)) {
            (_, Some(Resource::Disk)) | (Mode::Node, Some(Resource::Memory | Resource::Pids)) => {
                true
            }
            (Mode::Companion, Some(Resource::Memory | Resource::Pids))
            | (_, Some(Resource::DiskIo | Resource::DiskFailing | Resource::PodsPids) | None) => {
                false
            }
        }
    }

    /// Returns companion mode's condition of this type.
    fn nodepulse_condition(&self, type_: &str) -> Option<NodepulseCondition> {
        match self.mode {
            Mode::Companion => NodepulseCondition::parse(type_),
            Mode::Node => None,
        }
    }

    /// Returns the resource of this mode's condition of this type.
    fn resource(&self, type_: &str) -> Option<Resource> {
        match self.mode {
            Mode::Node => setters::resource(type_),
            Mode::Companion => {
                NodepulseCondition::parse(type_).and_then(NodepulseCondition::resource)
            }
        }
    }

    /// Updates `FrequentOOMKills`: it ends after the transition period, and is Unknown once no
    /// source of kills is available.
    fn update_frequent_kills(&mut self, now: Now) -> Vec<Effect> {
        let is_unavailable = self.kill_counters.is_unavailable();
        self.with_frequent_kills(|frequent| frequent.update(is_unavailable, now))
    }

    fn with_frequent_kills(
        &mut self,
        change: impl FnOnce(&mut FrequentKills) -> Vec<Effect>,
    ) -> Vec<Effect> {
        self.frequent_kills.as_mut().map_or_else(Vec::new, change)
    }

    /// Returns the time at which each condition of this mode was last exceeded.
    fn times(&self) -> Times {
        let of = |resource| self.signals.exceeded(resource);
        let latest = |condition: NodepulseCondition| {
            let by_resource = condition.resource().map(of);
            let by_stall = condition.stall().map(|stall| self.stalls.exceeded(stall));
            let pods = (condition == NodepulseCondition::PidsLow).then(|| of(Resource::PodsPids));
            let kills = (condition == NodepulseCondition::FrequentOomKills)
                .then(|| self.frequent_kills.as_ref().map(FrequentKills::exceeded));
            let all = [by_resource, by_stall, pods, kills.flatten()];
            let latest = all.into_iter().flatten().max();
            (condition.type_(), latest.unwrap_or_default())
        };
        let of_kubelet = |resource| Some((setters::condition_type(resource)?, of(resource)));
        match self.mode {
            Mode::Node => Resource::ALL.into_iter().filter_map(of_kubelet).collect(),
            Mode::Companion => NodepulseCondition::ALL.into_iter().map(latest).collect(),
        }
    }
}

/// Returns true if a condition was last reported before this boot. The server stores whole seconds.
fn is_of_former_boot(reported: SystemTime, now: Now) -> bool {
    let booted = now.wall_at(BootNanos(0));
    reported != SystemTime::UNIX_EPOCH && reported + Duration::from_secs(1) < booted
}

fn started(now: BootNanos) -> Vec<Effect> {
    let soon = now.plus(ALIGN);
    let inputs = [
        Input::Disk(DiskInput::Started),
        Input::Stall(StallInput::Tick { soon }),
        Input::Signal(SignalInput::Requested { stamp: None }),
    ];
    inputs.map(pass_on).into()
}

#[cfg(test)]
mod tests;
