//! Performs what follows from an input of a subject.

use std::collections::VecDeque;
use std::error::Error;

use agent_common::PidSettings;
use tracing::{debug, warn};

use super::App;
use crate::clock::Now;
use crate::kernel::Kernel;
use crate::kernel::loader::KernelError;
use crate::pressure::pids::PidLevels;
use crate::reading::Resource;
use crate::record::Side;
use crate::subjects::{Decision, Effect, Input, MapUpdate, PidInput};

impl App {
    /// Passes an input to its subject, and performs what follows until nothing is left.
    pub(super) fn feed(&mut self, input: Input, now: Now) {
        let mut effects = VecDeque::from(self.subjects.on(input, now));
        while let Some(effect) = effects.pop_front() {
            self.execute(effect);
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

    fn execute(&mut self, effect: Effect) {
        match effect {
            Effect::Map(update) => self.probes.write(update),
            Effect::Log(decision) => log(decision),
        }
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
    }
}
