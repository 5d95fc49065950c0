//! The agent: its subjects and the history, the queries and deliveries that are under way.

use std::collections::VecDeque;
use std::time::SystemTime;

use super::super::{BootId, History, IncidentIds, Undelivered};
use super::kernel::{Kernel, PODS};
use crate::clock::Now;
use crate::kube_event::Incident;
use crate::pressure::oom::RemainingMemory;
use crate::subjects::kill_counters::{Counting, KillCounterSetup};
use crate::subjects::{
    BlockingQuery, Effect, IncidentInput, Input, KillCounterInput, KillInput, KillSource, Previous,
    Query, Saved, StateInput, Subjects,
};

pub const SINKS: usize = 3;

pub struct Agent {
    subjects: Subjects,
    pub history: History,
    pub ids: IncidentIds,
    asked: VecDeque<BlockingQuery>,
    /// Deliveries without an answer.
    pub sending: [Option<Undelivered>; SINKS],
}

/// What follows from an input.
#[derive(Default)]
pub struct Outcomes {
    pub decided: Vec<Incident>,
    pub saved: Option<Saved>,
}

impl Agent {
    pub fn new(kernel: &Kernel, boot: BootId, history: History) -> Self {
        let counting = if kernel.nested {
            Counting::Nested
        } else {
            Counting::Flat
        };
        let counters = KillCounterSetup {
            source: KillSource::Program,
            counting: Some(counting),
            boot_known: true,
        };
        Self {
            subjects: Subjects::new(&crate::tests::setup(counters, kernel.now)),
            history,
            ids: IncidentIds::new(boot),
            asked: VecDeque::new(),
            sending: [None; SINKS],
        }
    }

    pub fn feed(&mut self, input: Input, kernel: &Kernel) -> Outcomes {
        let now = now(kernel);
        let mut outcomes = Outcomes::default();
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            if let Input::Incident(IncidentInput::Happened(incidents)) = &input {
                outcomes.decided.extend(incidents.iter().cloned());
            }
            let effects = self.subjects.on(input, now).into_iter().rev();
            for effect in effects {
                match effect {
                    Effect::Input(input) => inputs.push_front(*input),
                    Effect::Query(query) => inputs.extend(answer(query, kernel)),
                    Effect::BlockingQuery(query) => self.asked.push_back(query),
                    Effect::Save(saved) => outcomes.saved = Some(saved),
                    _ => {}
                }
            }
        }
        outcomes
    }

    /// Answers the oldest query about the counters. `None` if there is none.
    pub fn answer(&mut self, kernel: &Kernel, previous: &Previous) -> Option<Outcomes> {
        loop {
            let counted = Some(kernel.counted());
            let answer = match self.asked.pop_front()? {
                BlockingQuery::Recall => Input::State(StateInput::Recalled {
                    previous: previous.clone(),
                    counted,
                }),
                BlockingQuery::KillCounters => {
                    Input::KillCounter(KillCounterInput::Counted(counted))
                }
                _ => continue,
            };
            return Some(self.feed(answer, kernel));
        }
    }
}

pub fn now(kernel: &Kernel) -> Now {
    Now {
        boot: kernel.now,
        wall: SystemTime::UNIX_EPOCH,
    }
}

/// Returns the answer to a query on which the examination of a kill depends.
fn answer(query: Query, kernel: &Kernel) -> Option<Input> {
    let answer = match query {
        Query::CgroupPaths(ids) => {
            KillInput::CgroupPaths(ids.into_iter().map(|id| kernel.path(id)).collect())
        }
        Query::LimitHits(_) => KillInput::LimitHits(None),
        Query::RemainingMemory => KillInput::RemainingMemory(RemainingMemory {
            memory: None,
            threshold: None,
        }),
        _ => return None,
    };
    Some(Input::Kill(answer))
}

pub fn recorded(kill: crate::record::RecordedKill, kernel: &Kernel) -> Input {
    Input::Kill(KillInput::Recorded {
        kill: Box::new(kill),
        read: kernel.now,
        pods: PODS.to_owned(),
    })
}
