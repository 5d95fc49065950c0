//! Performs what follows from an input of a subject.

use std::collections::VecDeque;
use std::error::Error;

use agent_common::PidSettings;
use tracing::{debug, info, warn};

use super::App;
use super::blocking::Question;
use crate::clock::Now;
use crate::escape::escape;
use crate::kernel::Kernel;
use crate::kernel::loader::KernelError;
use crate::kube_event::Finding;
use crate::pressure::oom::RemainingMemory;
use crate::pressure::pids::PidLevels;
use crate::reading::{Resource, Signal};
use crate::record::Side;
use crate::subjects::{
    Decision, Effect, Input, KillCounterInput, KillInput, MapUpdate, PidInput, PodPidInput, Query,
};

impl App {
    /// Passes an input to its subject, and performs what follows until nothing is left. What follows
    /// from an answer precedes what was to follow the question.
    pub(super) fn feed(&mut self, input: Input, now: Now) {
        let mut effects = VecDeque::from(self.subjects.on(input, now));
        while let Some(effect) = effects.pop_front() {
            if let Some(input) = self.execute(effect, now) {
                for effect in self.subjects.on(input, now).into_iter().rev() {
                    effects.push_front(effect);
                }
            }
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

    /// Memory and pids were sampled.
    pub(super) fn sampled(&mut self, now: Now) {
        self.feed(Input::KillCounter(KillCounterInput::Sampled), now);
        self.feed(Input::PodPid(PodPidInput::Sampled), now);
    }

    /// Returns the input that follows at once, if any.
    fn execute(&mut self, effect: Effect, now: Now) -> Option<Input> {
        match effect {
            Effect::Map(update) => self.probes.write(update),
            Effect::Query(query) => return self.query(query, now),
            Effect::Input(input) => return Some(*input),
            Effect::Event(draft) => self.record_all(vec![draft]),
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
                self.metering.decided(&decision);
                log(decision);
            }
        }
        None
    }

    /// Answers at once if that cannot wait for a disk.
    fn query(&mut self, query: Query, now: Now) -> Option<Input> {
        let question = match query {
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
            Query::RecallKills => Question::Recall,
        };
        self.blocking.ask(question);
        None
    }
}

/// Writes to a map of the programs.
pub(super) fn write(kernel: &mut Kernel, update: MapUpdate) {
    let (what, written) = match update {
        MapUpdate::PidLevels(levels) => ("pid levels", kernel.set_pid_settings(settings(levels))),
        MapUpdate::EndPidState => ("pid state", kernel.end_pid_state()),
    };
    log_failed(what, written);
}

fn log_failed(map: &str, written: Result<(), KernelError>) {
    if let Err(err) = written {
        warn!(
            map,
            err = &err as &dyn Error,
            "map of the probes not written"
        );
    }
}

fn settings(levels: Option<PidLevels>) -> PidSettings {
    levels.map_or_else(PidSettings::default, |levels| PidSettings {
        high: levels.high,
        low: levels.low,
        trend_step: levels.trend_step,
        pad: 0,
    })
}

fn log(decision: Decision) {
    match decision {
        Decision::PidLevelCrossed { side, ids, tasks } => {
            let over = side == Side::Over;
            debug!(ids, tasks, over, "pid level crossed");
        }
        Decision::KillFound(finding) => log_kill(&finding),
        // They have metrics.
        Decision::PodKilled { .. } | Decision::PodRemoved { .. } => {}
        Decision::ContainersForbidden => {
            warn!("Events name containers by their ids; allow this identity to get pods");
        }
        Decision::ForksRefused {
            cgroup,
            forks,
            limit,
        } => info!(cgroup, forks, limit, "forks refused at the limit on tasks"),
        Decision::LargestPods(pods) => {
            let text = |(pod, tasks): &(String, u64)| format!("{pod}={tasks}");
            let pods: Vec<String> = pods.iter().map(text).collect();
            info!(pods = escape(pods.join(" ")), "pods with most tasks");
        }
        Decision::KillsReportedByNumber { cgroup, kills } => {
            info!(
                cgroup,
                kills, "OOM kills without a record, reported by number"
            );
        }
        Decision::KillLogEnded => warn!(
            "the kernel's log has ended; OOM kills are reported by the counters of the cgroups from \
             now on, without their victims"
        ),
        Decision::KillCountersFailed => {
            warn!("the cgroups' counters of OOM kills cannot be read");
        }
        Decision::StateOfOtherBoot => {
            info!("the state file is of another boot, and is not used");
        }
    }
}

fn log_kill(finding: &Finding) {
    let (effect, reason) = finding.verdict.as_strs();
    info!(
        victim = finding.victim.0,
        comm = finding.comm,
        cgroup = finding.cgroup.as_deref(),
        limiting = finding.limiting(),
        effect,
        reason,
        "process OOM-killed"
    );
}
