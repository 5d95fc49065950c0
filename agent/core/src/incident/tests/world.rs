//! The machine, the agent, what it stores, and the receivers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::{
    BootId, Cursor, Entry, IncidentId, IncidentIds, JsonFacts, JsonIncident, Position,
};
use super::agent::{Agent, Outcomes, SINKS, present, record};
use super::kernel::Kernel;
use super::receiver::{Receiver, Sending};
use super::{Outcome, Step};
use crate::kube_event::ReportedKills;
use crate::record::RecordedKill;
use crate::subjects::{
    IncidentInput, Input, KillCounterInput, KillInput, Previous, Saved, StateInput,
};

/// Entries in a segment, and segments in the history.
const SEGMENT: usize = 24;
const SEGMENTS: usize = 4;
/// How long a record can be under way.
const LATEST_RECORD: Duration = Duration::from_secs(2);
/// The revision by which the next start settles an incident that a crash left open.
const AFTER_CRASH: u8 = 5;

/// The kills that are recorded up to a position, by cgroup.
struct Checkpoint {
    boot: BootId,
    saved: Saved,
    position: Position,
}

#[derive(Default)]
struct Disk {
    log: Vec<Entry>,
    checkpoint: Option<Checkpoint>,
    cursors: [Cursor; SINKS],
    /// Everything up to here survives a power cut, and these cursors, without what was removed
    /// during a delivery.
    durable: (Position, [Cursor; SINKS], [Vec<Entry>; SINKS]),
}

pub struct World {
    kernel: Kernel,
    boot: BootId,
    disk: Disk,
    agent: Agent,
    receivers: [Receiver; SINKS],
    /// Every revision that was recorded and not lost in a power cut.
    archive: Vec<Entry>,
    end: Position,
    /// Of summaries. No incident of the subjects has one of these.
    ids: IncidentIds,
}

impl World {
    pub fn new(nested: bool) -> Self {
        let kernel = Kernel::new(nested);
        let boot = BootId(1);
        let mut world = Self {
            agent: Agent::new(&kernel, boot),
            kernel,
            boot,
            disk: Disk::default(),
            receivers: Default::default(),
            archive: Vec::new(),
            end: Position::default(),
            ids: IncidentIds::new(BootId(u128::MAX)),
        };
        world.start();
        world
    }

    pub fn perform(&mut self, step: Step) {
        match step {
            Step::Wait { millis } => self.wait(Duration::from_millis(millis.into())),
            Step::Kill { place, recorded } => self.kernel.kill(place, recorded),
            Step::KillGroup {
                place,
                processes,
                twice,
            } => {
                // The kernel notifies of cgroups before anything can happen in them.
                self.see_cgroups();
                self.kernel.kill_group(place, processes, twice);
            }
            Step::RemovePod { place } => {
                self.kernel.remove_pod(place);
                self.see_cgroups();
            }
            Step::Read { records } => self.read(records.into()),
            Step::Sample => self.feed(Input::KillCounter(KillCounterInput::Sampled)),
            Step::Answer => self.answer(),
            Step::Save => self.save(),
            Step::SeePod { place } => {
                if let Some(pod) = self.kernel.place(place) {
                    self.feed(present(&pod.uid));
                }
            }
            Step::Learn => {
                if let Some(outcomes) = self.agent.learn(&self.kernel) {
                    self.record_all(outcomes);
                }
            }
            Step::Deliver { sink, outcome } => self.deliver(sink.into(), outcome),
            Step::Sigkill => self.crash(),
            Step::PowerCut { entries } => self.cut_power(entries.into()),
        }
    }

    fn wait(&mut self, duration: Duration) {
        self.kernel.wait(duration);
        self.feed(Input::Incident(IncidentInput::Due));
    }

    fn feed(&mut self, input: Input) {
        let outcomes = self.agent.feed(input, &self.kernel);
        self.record_all(outcomes);
    }

    fn see_cgroups(&mut self) {
        let seen = KillInput::CgroupsSeen(self.kernel.containers());
        self.feed(Input::Kill(seen));
    }

    fn read(&mut self, records: usize) {
        if std::mem::take(&mut self.kernel.lost) {
            self.feed(Input::KillCounter(KillCounterInput::RecordsLost));
        }
        let records = records.min(self.kernel.ring.len());
        for kill in self.kernel.ring.drain(..records).collect::<Vec<_>>() {
            self.feed(record(kill, &self.kernel));
        }
        self.feed(Input::Kill(KillInput::BatchRead));
    }

    fn answer(&mut self) {
        // No record is under way for as long as the agent waits for a second reading.
        let is_late = |kill: &RecordedKill| LATEST_RECORD <= self.kernel.now.since(kill.at);
        if self.kernel.ring.front().is_some_and(is_late) {
            self.read(usize::MAX);
        }
        let previous = match &self.disk.checkpoint {
            Some(checkpoint) if checkpoint.boot == self.boot => {
                Previous::SameBoot(self.recorded_since(checkpoint))
            }
            Some(_) => Previous::OtherBoot,
            None => Previous::Unknown,
        };
        if let Some(outcomes) = self.agent.answer(&self.kernel, &previous) {
            self.record_all(outcomes);
        }
    }

    /// The kills of a checkpoint, and those of the entries after it.
    fn recorded_since(&self, checkpoint: &Checkpoint) -> Saved {
        let mut saved = checkpoint.saved.clone();
        let later = self.disk.log.iter();
        let later = later.filter(|entry| checkpoint.position < entry.position);
        for entry in later {
            saved.kills.later.add_all(entry.added.clone());
        }
        saved
    }

    fn save(&mut self) {
        let now = KillCounterInput::Stopped;
        let outcomes = self.agent.feed(Input::KillCounter(now), &self.kernel);
        if let Some(saved) = outcomes.saved {
            self.disk.checkpoint = Some(Checkpoint {
                boot: self.boot,
                saved,
                position: self.end,
            });
        }
        let written = Input::State(StateInput::Written);
        assert!(self.agent.feed(written, &self.kernel).revisions.is_empty());
    }

    fn record_all(&mut self, outcomes: Outcomes) {
        for incident in outcomes.revisions {
            let added = incident.added_kills();
            let json = JsonIncident::new(&incident, |at| format!("{at:?}"));
            self.record(json, added);
        }
        // The saved kills are those of the entries so far only when all of them are recorded.
        self.make_room();
    }

    fn record(&mut self, incident: JsonIncident, added: ReportedKills) {
        self.end = self.end.next();
        let entry = Entry {
            position: self.end,
            added,
            incident,
        };
        self.archive.push(entry.clone());
        self.disk.log.push(entry);
    }

    /// Removes the oldest segments while there are too many.
    fn make_room(&mut self) {
        while self.disk.log.len() > SEGMENT * SEGMENTS {
            self.save();
            self.remove_oldest();
        }
    }

    fn remove_oldest(&mut self) {
        for entry in self.disk.log.drain(..SEGMENT) {
            for (at, cursor) in self.disk.cursors.iter_mut().enumerate() {
                match &mut self.agent.sending[at] {
                    Some((_, removed)) => removed.push(entry.clone()),
                    None => {
                        cursor.removed(&entry, Position(0), || self.ids.assign(self.kernel.now));
                    }
                }
            }
        }
        let sending = self.agent.sending.each_ref();
        let removed = sending.map(|sending| sending.as_ref().map(|(_, removed)| removed.clone()));
        let removed = removed.map(Option::unwrap_or_default);
        self.disk.durable = (self.end, self.disk.cursors.clone(), removed);
    }

    fn next(&mut self, sink: usize) -> Option<Sending> {
        let cursor = &mut self.disk.cursors[sink];
        if let Some(summary) = cursor.summary() {
            return Some(Sending::Summary(Box::new(summary)));
        }
        let log = self.disk.log.iter();
        let next = log.filter(|entry| cursor.position() < entry.position);
        let mut next = next.filter(|entry| entry.is_wanted());
        next.next()
            .cloned()
            .map(|entry| Sending::Entry(Box::new(entry)))
    }

    fn deliver(&mut self, sink: usize, outcome: Outcome) {
        if let Some((sent, _)) = &self.agent.sending[sink] {
            let sent = sent.clone();
            return self.acknowledged(sink, &sent);
        }
        let Some(next) = self.next(sink) else {
            return;
        };
        let receiver = &mut self.receivers[sink];
        if outcome != Outcome::NotReached {
            receiver.receive(&next);
        }
        match outcome {
            Outcome::Accepted | Outcome::Refused => self.acknowledged(sink, &next),
            Outcome::NotReached => {}
            Outcome::AnswerLost => receiver.doubt(&next),
            Outcome::Slow => self.agent.sending[sink] = Some((next, Vec::new())),
        }
    }

    fn acknowledged(&mut self, sink: usize, sent: &Sending) {
        let cursor = &mut self.disk.cursors[sink];
        match sent {
            Sending::Entry(entry) => cursor.delivered(entry),
            Sending::Summary(_) => cursor.summarized(),
        }
        for entry in self.agent.sending[sink]
            .take()
            .into_iter()
            .flat_map(|(_, removed)| removed)
        {
            cursor.removed(&entry, Position(0), || self.ids.assign(self.kernel.now));
        }
    }

    /// The agent is killed, and starts again.
    fn crash(&mut self) {
        let incidents = self.archive.iter().map(|entry| &entry.incident);
        let of_boot = incidents.filter(|incident| self.is_of_boot(incident));
        let recorded = of_boot.flat_map(victims).collect();
        for (at, sending) in self.agent.sending.iter_mut().enumerate() {
            if let Some((sent, removed)) = sending.take() {
                self.receivers[at].doubt(&sent);
                self.receivers[at].miss(&removed);
            }
        }
        self.kernel.lose_reader(&recorded);
        self.kernel.wait(Duration::from_millis(1));
        self.agent = Agent::new(&self.kernel, self.boot);
        self.start();
    }

    fn cut_power(&mut self, entries: usize) {
        let (durable, cursors, removed) = self.disk.durable.clone();
        let log = &mut self.disk.log;
        let first = log.iter().position(|entry| durable < entry.position);
        let cut = log
            .len()
            .saturating_sub(entries)
            .max(first.unwrap_or(log.len()));
        for entry in log.drain(cut..) {
            let lost = entry.position;
            self.archive.retain(|entry| entry.position != lost);
        }
        self.disk.cursors = cursors;
        for (receiver, removed) in self.receivers.iter_mut().zip(&removed) {
            receiver.miss(removed);
            receiver.everything_may_come_again();
        }
        self.boot = BootId(self.boot.0 + 1);
        self.kernel = Kernel::new(self.kernel.nested);
        self.crash();
    }

    /// The agent starts: it takes the counters as they are, or goes on from what is saved. Then it
    /// saves, so that it can remove entries, and settles what a crash left open.
    fn start(&mut self) {
        let mut last = BTreeMap::new();
        for Entry { incident, .. } in &self.disk.log {
            last.insert(incident.id.clone(), incident.clone());
        }
        last.retain(|_, incident| !incident.settled);
        self.see_cgroups();
        self.feed(Input::Starting);
        self.answer();
        self.save();
        for (_, incident) in last {
            let settled = JsonIncident {
                revision: AFTER_CRASH,
                settled: true,
                ..incident
            };
            self.record(settled, ReportedKills::default());
        }
        self.make_room();
    }

    fn is_of_boot(&self, incident: &JsonIncident) -> bool {
        let id: IncidentId = incident.id.parse().unwrap();
        id.boot == self.boot
    }

    /// Everything that is under way ends.
    pub fn come_to_rest(&mut self) {
        for _ in 0..6 {
            self.read(usize::MAX);
            self.wait(Duration::from_secs(3));
            self.feed(Input::KillCounter(KillCounterInput::Sampled));
            self.answer();
        }
        self.wait(Duration::from_secs(4));
        for sink in 0..SINKS {
            while self.next(sink).is_some() || self.agent.sending[sink].is_some() {
                self.deliver(sink, Outcome::Accepted);
            }
        }
    }

    pub fn check(&self) {
        let mut last: BTreeMap<&str, &JsonIncident> = BTreeMap::new();
        for Entry { incident, .. } in &self.archive {
            last.insert(&incident.id, incident);
        }
        let of_boot = last.values().filter(|incident| self.is_of_boot(incident));
        let recorded: u64 = of_boot.map(|incident| incident.kills()).sum();
        let Kernel {
            killed,
            ambiguous,
            excess,
            ..
        } = self.kernel;
        let expected = killed.saturating_sub(ambiguous)..=killed + excess;
        assert!(
            expected.contains(&recorded),
            "{recorded} kills are recorded, and not {expected:?}"
        );
        let all: u64 = last.values().map(|incident| incident.kills()).sum();
        for (at, receiver) in self.receivers.iter().enumerate() {
            let has = receiver.kills(|id| last.contains_key(id));
            let expected = all.saturating_sub(receiver.missing)..=all + receiver.doubtful;
            assert!(
                expected.contains(&has),
                "sink {at} has {has} kills, and not {expected:?}"
            );
        }
    }
}

fn victims(incident: &JsonIncident) -> BTreeSet<u32> {
    match &incident.facts {
        Some(JsonFacts::OomKill(facts)) => facts.victims.iter().map(|victim| victim.pid).collect(),
        _ => BTreeSet::new(),
    }
}
