//! The machine, the agent, what it stores, and the receivers.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use super::super::{
    BootId, Change, History, IncidentId, Owed, Position, Receipt, Revision, Sink, Sinks,
    Undelivered,
};
use super::agent::{Agent, Outcomes, SINKS, present, record};
use super::kernel::Kernel;
use super::receiver::Receiver;
use super::{Outcome, Step};
use crate::kube_event::KillOwner;
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
/// The sink that delivers only settled revisions.
const SETTLED_ONLY: Sink = Sink(1);

/// An entry of the log.
#[derive(Debug, Clone)]
struct Entry {
    position: Position,
    change: Change,
    /// The kills that a revision adds, and the counter that has them; `None` for summaries.
    added: Option<(KillOwner, u64)>,
}

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
    /// Everything up to here survives a power cut.
    durable: Position,
}

pub struct World {
    kernel: Kernel,
    boot: BootId,
    disk: Disk,
    agent: Agent,
    receivers: [Receiver; SINKS],
    /// Every revision that was recorded and not lost in a power cut.
    archive: Vec<(Position, Revision, Sinks)>,
    summaries: BTreeSet<IncidentId>,
    /// The incidents that are only in a summary.
    summarized: BTreeSet<(Sink, IncidentId)>,
}

impl World {
    pub fn new(nested: bool) -> Self {
        let kernel = Kernel::new(nested);
        let boot = BootId(1);
        let mut world = Self {
            agent: Agent::new(&kernel, boot, History::default()),
            kernel,
            boot,
            disk: Disk::default(),
            receivers: Default::default(),
            archive: Vec::new(),
            summaries: BTreeSet::new(),
            summarized: BTreeSet::new(),
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
            Step::Deliver { sink, outcome } => self.deliver(Sink(sink), outcome),
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
            if let Some((owner, kills)) = &entry.added {
                self.kernel.add_recorded(&mut saved.kills, owner, *kills);
            }
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
                position: self.end(),
            });
        }
        let written = Input::State(StateInput::Written);
        assert!(self.agent.feed(written, &self.kernel).revisions.is_empty());
    }

    fn end(&self) -> Position {
        let last = self.disk.log.last();
        last.map_or(Position(0), |entry| entry.position)
    }

    fn record_all(&mut self, outcomes: Outcomes) {
        for incident in outcomes.revisions {
            let occurred = &incident.occurred;
            let mut hasher = DefaultHasher::new();
            format!("{:?}", occurred.pod).hash(&mut hasher);
            let revision = Revision {
                id: incident.id,
                revision: incident.revision,
                settled: incident.settled,
                kills: occurred.kills.total(),
                object: hasher.finish(),
            };
            let added = incident.added_kills().into_iter().next();
            self.record(revision, all(), added);
        }
        // The saved kills are those of the entries so far only when all of them are recorded.
        self.make_room();
    }

    fn record(&mut self, revision: Revision, sinks: Sinks, added: Option<(KillOwner, u64)>) {
        let sinks = if revision.settled {
            sinks
        } else {
            sinks.iter().filter(|sink| *sink != SETTLED_ONLY).collect()
        };
        self.append_revision(revision, sinks, added);
    }

    fn append_revision(
        &mut self,
        revision: Revision,
        sinks: Sinks,
        added: Option<(KillOwner, u64)>,
    ) {
        let position = self.append(Change::Revision(revision, sinks), added);
        self.archive.push((position, revision, sinks));
    }

    fn append(&mut self, change: Change, added: Option<(KillOwner, u64)>) -> Position {
        if self.disk.log.len().is_multiple_of(SEGMENT) {
            let reported = self.agent.history.reported().clone().into_iter().collect();
            self.append_one(Change::Segment(reported), None);
        }
        self.append_one(change, added)
    }

    fn append_one(&mut self, change: Change, added: Option<(KillOwner, u64)>) -> Position {
        let position = self.agent.history.end();
        self.agent.history.apply(position, &change);
        self.disk.log.push(Entry {
            position,
            change,
            added,
        });
        position
    }

    /// Removes the oldest segments while there are too many.
    fn make_room(&mut self) {
        while self.disk.log.len() > SEGMENT * SEGMENTS {
            self.save();
            self.remove_oldest();
        }
    }

    fn remove_oldest(&mut self) {
        let end = self.disk.log[SEGMENT].position;
        for open in self.agent.history.open_before(end) {
            self.append_revision(open.revision, open.sinks, None);
        }
        let mut summaries: BTreeMap<(Sink, u64), u64> = BTreeMap::new();
        for Owed {
            sink,
            position,
            kills,
        } in self.agent.history.remove_before(end)
        {
            let mut log = self.disk.log.iter();
            let entry = log.find(|entry| entry.position == position);
            let Some(Change::Revision(revision, _)) = entry.map(|entry| &entry.change) else {
                panic!("no revision at {position:?}");
            };
            self.summarized.insert((sink, revision.id));
            let at = usize::from(sink.0);
            let sending = self.agent.sending[at].map(|sending| sending.revision);
            if let Some(sent) = sending.filter(|sent| sent.id == revision.id) {
                self.receivers[at].doubt(sent.id, sent.revision, sent.kills);
            }
            *summaries.entry((sink, revision.object)).or_default() += kills;
        }
        for ((sink, object), kills) in summaries {
            let summary = Revision {
                id: self.agent.ids.assign(self.kernel.now),
                revision: 1,
                settled: true,
                kills,
                object,
            };
            self.summaries.insert(summary.id);
            self.append_revision(summary, Sinks::NONE.with(sink), None);
        }
        self.disk.durable = self.end();
        self.disk.log.drain(..SEGMENT);
    }

    fn deliver(&mut self, sink: Sink, outcome: Outcome) {
        let at = usize::from(sink.0);
        if let Some(entry) = self.agent.sending[at].take() {
            return self.acknowledged(sink, entry.revision);
        }
        let Some(entry) = self.agent.history.next(sink, &BTreeSet::new()).copied() else {
            return;
        };
        let Undelivered {
            position, revision, ..
        } = entry;
        let receiver = &mut self.receivers[at];
        if outcome != Outcome::NotReached {
            receiver.receive(position, revision);
        }
        match outcome {
            Outcome::Accepted | Outcome::Refused => self.acknowledged(sink, revision),
            Outcome::NotReached => {}
            Outcome::AnswerLost => receiver.doubt(revision.id, revision.revision, revision.kills),
            Outcome::Slow => self.agent.sending[at] = Some(entry),
        }
    }

    fn acknowledged(&mut self, sink: Sink, revision: Revision) {
        let receipt = Receipt {
            id: revision.id,
            revision: revision.revision,
            kills: revision.kills,
        };
        self.append(Change::Receipt(sink, receipt), None);
        self.make_room();
    }

    /// The agent is killed, and starts again.
    fn crash(&mut self) {
        for (sink, entry) in self.agent.sending.iter_mut().enumerate() {
            if let Some(Undelivered { revision, .. }) = entry.take() {
                self.receivers[sink].doubt(revision.id, revision.revision, revision.kills);
            }
        }
        self.kernel.lose_reader();
        self.kernel.wait(Duration::from_millis(1));
        let mut history = History::default();
        for entry in &self.disk.log {
            history.apply(entry.position, &entry.change);
        }
        self.agent = Agent::new(&self.kernel, self.boot, history);
        self.start();
    }

    fn cut_power(&mut self, entries: usize) {
        let durable = self.disk.durable;
        let cut = self.disk.log.len().saturating_sub(entries);
        let first = self
            .disk
            .log
            .iter()
            .position(|entry| durable < entry.position);
        let cut = first.map_or(self.disk.log.len(), |first| first.max(cut));
        for entry in self.disk.log.drain(cut..) {
            self.archive.retain(|(at, ..)| *at != entry.position);
            if let Change::Receipt(sink, receipt) = entry.change {
                let receiver = &mut self.receivers[usize::from(sink.0)];
                receiver.doubt(receipt.id, receipt.revision, receipt.kills);
            }
        }
        self.receivers.iter_mut().for_each(Receiver::forget_order);
        self.boot = BootId(self.boot.0 + 1);
        self.kernel = Kernel::new(self.kernel.nested);
        self.crash();
    }

    /// The agent starts: it takes the counters as they are, or goes on from what is saved. Then it
    /// saves, so that it can remove entries, and settles what a crash left open.
    fn start(&mut self) {
        let open: Vec<Undelivered> = self.agent.history.open().copied().collect();
        self.see_cgroups();
        self.feed(Input::Starting);
        self.answer();
        self.save();
        for Undelivered { revision, .. } in open {
            let settled = Revision {
                revision: AFTER_CRASH,
                settled: true,
                ..revision
            };
            self.record(settled, all(), None);
        }
        self.make_room();
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
            let sink = Sink(u8::try_from(sink).unwrap());
            loop {
                self.deliver(sink, Outcome::Accepted);
                let idle = self.agent.history.next(sink, &BTreeSet::new()).is_none();
                if idle && self.agent.sending[usize::from(sink.0)].is_none() {
                    break;
                }
            }
        }
    }

    pub fn check(&self) {
        let mut last: BTreeMap<IncidentId, (Revision, Sinks)> = BTreeMap::new();
        for (_, revision, sinks) in &self.archive {
            last.insert(revision.id, (*revision, *sinks));
        }
        let of_boot = |(id, _): &(&IncidentId, &(Revision, Sinks))| {
            id.boot == self.boot && !self.summaries.contains(id)
        };
        let recorded = last.iter().filter(of_boot).map(|(_, (of, _))| of.kills);
        let recorded: u64 = recorded.sum();
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
        for (at, receiver) in self.receivers.iter().enumerate() {
            let sink = Sink(u8::try_from(at).unwrap());
            for (id, (revision, sinks)) in &last {
                let is_for = sinks.contains(sink) || !self.summaries.contains(id);
                let has = receiver.latest.get(id).map(|(number, _)| *number);
                let is_summarized = self.summarized.contains(&(sink, *id));
                assert!(
                    !is_for || has == Some(revision.revision) || is_summarized,
                    "sink {at} has {has:?} of {revision:?}"
                );
            }
            let has = receiver
                .latest
                .iter()
                .filter(|(id, _)| last.contains_key(id));
            let has: u64 = has.map(|(_, (_, kills))| kills).sum();
            let all = last.iter().filter(|(id, _)| !self.summaries.contains(id));
            let all: u64 = all.map(|(_, (revision, _))| revision.kills).sum();
            assert!(
                (all..=all + receiver.doubtful).contains(&has),
                "sink {at} has {has} of {all} kills"
            );
        }
    }
}

fn all() -> Sinks {
    (0..3).map(Sink).collect()
}
