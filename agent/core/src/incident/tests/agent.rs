//! The agent: its subjects, the queries and deliveries that are under way.

use std::collections::VecDeque;
use std::time::SystemTime;

use super::super::{BootId, Entry, Incident, Position};
use super::kernel::{Kernel, PODS};
use super::receiver::Sending;
use crate::clock::Now;
use crate::kube_event::ReportedKills;
use crate::pods::{Pod, PodChange};
use crate::pressure::oom::RemainingMemory;
use crate::reading::memory_use::{LargestProcesses, ProcessSize};
use crate::record::RecordedKill;
use crate::subjects::incidents::{DetailsRead, LinksRead};
use crate::subjects::kill_counters::{Counting, KillCounterSetup};
use crate::subjects::pods::PodInput;
use crate::subjects::{
    BlockingQuery, Effect, IncidentInput, Input, KillCounterInput, KillInput, KillSource, Previous,
    Query, Saved, StateInput, Subjects,
};
use crate::units::{Bytes, Pid};

pub const SINKS: usize = 3;

pub struct Agent {
    subjects: Subjects,
    asked: VecDeque<BlockingQuery>,
    /// Deliveries without an answer, and what was removed from the history meanwhile.
    pub sending: [Option<(Sending, Vec<Entry>)>; SINKS],
}

/// What follows from an input.
#[derive(Default)]
pub struct Outcomes {
    pub revisions: Vec<Incident>,
    pub saved: Option<Saved>,
}

impl Agent {
    pub fn new(kernel: &Kernel, boot: BootId) -> Self {
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
        let mut setup = crate::tests::setup(counters, kernel.now);
        setup.boot = boot;
        let mut agent = Self {
            subjects: Subjects::new(&setup),
            asked: VecDeque::new(),
            sending: Default::default(),
        };
        agent.feed(Input::Incident(IncidentInput::ServerAnswered), kernel);
        agent
    }

    pub fn feed(&mut self, input: Input, kernel: &Kernel) -> Outcomes {
        let now = now(kernel);
        let mut outcomes = Outcomes::default();
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let effects = self.subjects.on(input, now).into_iter().rev();
            for effect in effects {
                match effect {
                    Effect::Input(input) => inputs.push_front(*input),
                    Effect::Query(query) => inputs.extend(answer(query, kernel)),
                    Effect::BlockingQuery(query) => self.asked.push_back(query),
                    Effect::Incident(incident) => {
                        inputs.push_front(acknowledged(incident.added_kills()));
                        outcomes.revisions.insert(0, *incident);
                    }
                    Effect::Save(saved) => outcomes.saved = Some(saved),
                    _ => {}
                }
            }
        }
        outcomes
    }

    /// Answers the oldest query about the counters. `None` if there is none.
    pub fn answer(&mut self, kernel: &Kernel, previous: &Previous) -> Option<Outcomes> {
        let counted = Some(kernel.counted());
        let answer = match self.take(is_about_counters)? {
            BlockingQuery::Recall => Input::State(StateInput::Recalled {
                previous: previous.clone(),
                counted,
            }),
            _ => Input::KillCounter(KillCounterInput::Counted(counted)),
        };
        Some(self.feed(answer, kernel))
    }

    /// Answers the oldest query about an incident. `None` if there is none.
    pub fn learn(&mut self, kernel: &Kernel) -> Option<Outcomes> {
        let answer = match self.take(|query| !is_about_counters(query))? {
            BlockingQuery::KillDetails(_) => IncidentInput::DetailsRead(DetailsRead {
                processes: LargestProcesses {
                    largest: vec![process()],
                    compared: 1,
                    is_partial: false,
                },
                ..DetailsRead::default()
            }),
            BlockingQuery::ContainerLinks(_) => IncidentInput::Links(LinksRead::Unavailable),
            _ => return None,
        };
        Some(self.feed(Input::Incident(answer), kernel))
    }

    fn take(&mut self, wanted: impl Fn(&BlockingQuery) -> bool) -> Option<BlockingQuery> {
        let at = self.asked.iter().position(wanted)?;
        self.asked.remove(at)
    }
}

const fn is_about_counters(query: &BlockingQuery) -> bool {
    matches!(query, BlockingQuery::Recall | BlockingQuery::KillCounters)
}

fn process() -> ProcessSize {
    ProcessSize {
        pid: Pid(1),
        comm: "largest".to_owned(),
        resident: Bytes::from_kib(4),
    }
}

/// What is recorded is not reported again.
fn acknowledged(kills: ReportedKills) -> Input {
    Input::KillCounter(KillCounterInput::Recorded {
        kills,
        // The checkpoint of the world has the position.
        until: Position(0),
    })
}

fn now(kernel: &Kernel) -> Now {
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

pub fn record(kill: RecordedKill, kernel: &Kernel) -> Input {
    Input::Kill(KillInput::Recorded {
        kill: Box::new(kill),
        read: kernel.now,
        pods: PODS.to_owned(),
    })
}

pub fn present(uid: &str) -> Input {
    let pod = Pod::new("shop", &format!("pod-{uid}"), uid, None).unwrap();
    Input::Pod(PodInput::Changed(PodChange::Present(pod)))
}
