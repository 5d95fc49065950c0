//! Delivers incidents as Events. Events can wait for minutes, for the rate limit of their object,
//! so that many revisions are taken at a time.
//!
//! ```text
//! History ── fresh revisions ──► take ──► words ──► recorder ──► outcome ──► cursor
//!    │                            │         └► until the API server has the condition ─┘
//!    └────── older ones, from the outbox or the disk
//! ```
//!
//! Conditions are taken before other incidents: kills never delay their Events.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use nodepulse_core::incident::{
    Cursor, Entry, Incident, IncidentId, JsonIncident, Position, Revision,
};
use nodepulse_core::kube_event::{Draft, EventWords, NodeEvents, Settled};
use nodepulse_io::clock::Clock;
use nodepulse_kube::convert;
use nodepulse_kube::recorder::{EventSink, Outcome};
use nodepulse_linux::store::Reader;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use crate::history::outbox::{Outbox, Work};
use crate::history::{Disk, ReadFailed};
use crate::telemetry::series::SinkSeries;

mod source;

use source::Fresh;
pub use source::{Reported, Source};

/// The name in metrics, and of the file with the cursor.
pub const NAME: &str = "kubernetes";

/// The number of fresh revisions that wait to be taken. Further ones are read from the history.
const FRESH: usize = 64;

/// The number of Events about changes of conditions that the API server does not have. It may
/// refuse the status for ever, which must not delay other Events: of more, the oldest are given up.
const CHANGES: usize = 64;

/// The number of revisions whose Events wait for an outcome. A rate limit delays many of one
/// object, which become one Event.
const PENDING: usize = 4096;

/// The number of Events that wait for the API server while further revisions stay in the history.
/// Each takes up to 2 KiB.
const WAITING: u64 = 64;

/// Time for reading from the history, and between attempts. What follows must not wait for long for
/// a disk that hangs.
const READ: Duration = Duration::from_secs(1);
const ATTEMPTS: usize = 5;

/// In place of the position of a summary, which has none.
const SUMMARY: Position = Position(0);

/// A call to the disk.
type Calling<T> = Pin<Box<dyn Future<Output = T> + Send>>;

type Read = Result<Option<(Reader, Vec<Entry>)>, ReadFailed>;

/// The sink for Kubernetes.
pub struct Kubernetes {
    outbox: Arc<Outbox>,
    number: usize,
    disk: Option<Disk>,
    series: SinkSeries,
    /// The last revision about a condition of a former start that is not delivered.
    last_condition: Position,
    fresh: mpsc::Receiver<Fresh>,
    conditions: mpsc::Receiver<Fresh>,
    /// The first of the fresh revisions, if earlier ones are to be read before it.
    next: Option<Fresh>,
    node_events: watch::Receiver<NodeEvents>,
    words: EventWords,
    /// Not yet with the recorder.
    drafts: VecDeque<Draft>,
    /// Those about conditions, which wait for the API server to have the change.
    changes: VecDeque<Draft>,
    handed_over: watch::Sender<Position>,
    /// The revisions whose Events have no outcome yet, in their order, and the number of these
    /// Events. A rate limit can delay thousands.
    pending: VecDeque<(Revision, usize)>,
    /// The summary is with the recorder.
    is_summing_up: bool,
    /// Enough Events wait for the API server. Further revisions stay in the history.
    is_limited: bool,
    reader: Option<Reader>,
    /// The first revision that could not be read.
    unread: Option<Position>,
    /// With the position through which it reads.
    reading: Option<Calling<(Position, Read)>>,
    saving: Option<Calling<()>>,
    is_unsaved: bool,
}

impl Kubernetes {
    pub fn new(
        (outbox, number): (Arc<Outbox>, usize),
        node: &str,
        disk: Option<Disk>,
        series: SinkSeries,
        last_condition: Position,
    ) -> (Source, Self) {
        let (send_fresh, fresh) = mpsc::channel(FRESH);
        let (send_conditions, conditions) = mpsc::channel(FRESH);
        let (send_node_events, node_events) = watch::channel(NodeEvents::Companion);
        let (handed_over, seen) = watch::channel(Position::default());
        let source = Source {
            fresh: send_fresh,
            conditions: send_conditions,
            node_events: send_node_events,
            handed_over: seen,
        };
        let sink = Self {
            outbox,
            number,
            disk,
            series,
            last_condition,
            fresh,
            conditions,
            next: None,
            node_events,
            words: EventWords::new(node, NodeEvents::Companion),
            drafts: VecDeque::new(),
            changes: VecDeque::new(),
            handed_over,
            pending: VecDeque::new(),
            is_summing_up: false,
            is_limited: false,
            reader: None,
            unread: None,
            reading: None,
            saving: None,
            // The cursor of a new sink.
            is_unsaved: true,
        };
        (source, sink)
    }

    /// Runs until the recorder has ended, and what it has delivered is recorded.
    pub async fn run(mut self, started: oneshot::Receiver<Reported>) {
        let Ok(Reported {
            events,
            mut outcomes,
            mut written,
        }) = started.await
        else {
            return;
        };
        let mut changes = self.outbox.changes();
        loop {
            self.is_limited = WAITING <= events.next()
                && self.outbox.keeps_up(self.number)
                && self.has_former_conditions();
            self.take_conditions();
            self.take();
            self.record_changes(&events, *written.borrow_and_update());
            if self.is_limited {
                // They are read from the history later, and take no memory until then.
                self.next = None;
                while self.fresh.try_recv().is_ok() {}
            }
            let behind = self.outbox.behind(self.number);
            let pending = super::count(self.pending.len());
            self.series.set_lag(behind.saturating_add(pending));
            if self.drafts.is_empty() {
                let first = self.changes.front().and_then(|draft| draft.position);
                let taken = self.outbox.taken(self.number);
                let before = first.map(|first| Position(first.0.saturating_sub(1)));
                self.handed_over
                    .send_replace(before.map_or(taken, |before| taken.min(before)));
            }
            self.save();
            tokio::select! {
                biased;
                outcome = outcomes.recv() => match outcome {
                    Some(outcome) => self.settle(outcome),
                    None => break,
                },
                () = events.deliver(&mut self.drafts), if !self.drafts.is_empty() => {}
                (through, read) = ended(&mut self.reading) => self.was_read(through, read),
                () = ended(&mut self.saving) => self.saving = None,
                Ok(()) = written.changed(), if !self.changes.is_empty() => {}
                // The outbox lives as long as this task.
                _changed = changes.changed() => {}
            }
        }
        while self.saving.is_some() {
            ended(&mut self.saving).await;
            self.saving = None;
            self.save();
        }
    }

    /// Returns true if all conditions of former starts were taken. None is to wait for kills.
    fn has_former_conditions(&self) -> bool {
        self.last_condition <= self.outbox.taken(self.number)
    }

    /// Takes fresh revisions about conditions before earlier ones about anything else, but not
    /// before those about conditions of former starts: a problem begins before it ends.
    fn take_conditions(&mut self) {
        while self.has_former_conditions()
            && self.pending.len() < PENDING
            && let Ok((position, incident)) = self.conditions.try_recv()
        {
            // It was read if there was no room for an earlier one.
            if self.outbox.taken(self.number) < position {
                self.take_fresh(position, &incident);
            }
        }
    }

    /// Passes Events about changes that the API server has to the recorder, in their order.
    fn record_changes(&mut self, events: &EventSink, written: Position) {
        let is_written =
            |draft: &mut Draft| draft.is_later || draft.position.is_none_or(|at| at <= written);
        while let Some(draft) = self.changes.pop_front_if(is_written) {
            events.record(draft);
        }
    }

    /// Takes revisions while there is room.
    fn take(&mut self) {
        if !self.is_summing_up
            && let Some(summary) = self.outbox.summary(self.number)
        {
            self.sum_up(&summary);
        }
        while self.has_room() {
            if self.next.is_none() {
                self.next = self.fresh.try_recv().ok();
            }
            let taken = self.outbox.taken(self.number);
            match self.next.take() {
                // It was read.
                Some((position, _)) if position <= taken => {}
                Some((position, incident)) if position == taken.next() => {
                    self.outbox.take(self.number, position);
                    self.take_fresh(position, &incident);
                }
                next => {
                    self.next = next;
                    if !self.take_older() {
                        return;
                    }
                }
            }
        }
    }

    fn has_room(&self) -> bool {
        let can_take = !self.is_limited && self.pending.len() < PENDING;
        can_take && self.drafts.is_empty() && self.reading.is_none()
    }

    fn take_fresh(&mut self, position: Position, incident: &Incident) {
        self.words.configure(*self.node_events.borrow());
        let drafts = self.words.word(incident, Some(position));
        let revision = Revision {
            position,
            id: incident.id,
            kills: incident.occurred.kills.total(),
            settled: incident.settled,
        };
        self.add(revision, drafts);
    }

    /// Takes what is no longer fresh, or begins to read it. Returns false if there is nothing to
    /// take at present.
    fn take_older(&mut self) -> bool {
        match self.outbox.revisions(self.number) {
            Work::Wait | Work::Summary(_) => false,
            Work::Entries(entries) => {
                if self.next.is_none() {
                    self.next = self.fresh.try_recv().ok();
                }
                let fresh = self.next.as_ref().map(|(position, _)| *position);
                let is_older = |entry: &&Arc<Entry>| fresh.is_none_or(|at| entry.position < at);
                let taken = self.outbox.taken(self.number);
                for entry in entries.iter().take_while(is_older) {
                    if !self.has_room() {
                        break;
                    }
                    self.take_entry(entry);
                }
                // Those of former starts end before the first of this one.
                if let Some(fresh) =
                    fresh.filter(|_| entries.first().map(|of| of.position) == fresh)
                {
                    self.outbox
                        .take(self.number, Position(fresh.0.saturating_sub(1)));
                }
                taken < self.outbox.taken(self.number)
            }
            Work::Read { after, through } => {
                let (disk, mut reader) = (self.disk.clone(), self.reader.take());
                let read = async move {
                    let Some(disk) = disk else {
                        return (through, Ok(None));
                    };
                    for _ in 0..ATTEMPTS {
                        let read = disk.read(reader.take(), after, true);
                        if let Ok(Ok(read)) = timeout(READ, read).await {
                            return (through, Ok(read));
                        }
                        sleep(READ).await;
                    }
                    (through, Err(ReadFailed))
                };
                self.reading = Some(Box::pin(read));
                false
            }
        }
    }

    fn was_read(&mut self, through: Position, read: Read) {
        self.reading = None;
        match read {
            Ok(Some((reader, entries))) => {
                self.reader = Some(reader);
                for entry in &entries {
                    self.take_entry(entry);
                }
            }
            Ok(None) => self.outbox.take(self.number, through),
            // The next start reads it.
            Err(ReadFailed) => {
                let taken = self.outbox.taken(self.number);
                self.unread.get_or_insert(taken.next());
                self.outbox.take(self.number, through);
            }
        }
    }

    /// Takes a revision in its JSON form. Only the last one of an incident has Events.
    fn take_entry(&mut self, entry: &Entry) {
        let position = entry.position;
        if position <= self.outbox.taken(self.number) {
            return;
        }
        // A former start has delivered it, or it was taken because it is about a condition.
        if self.outbox.has(self.number, position) || self.find(position).is_ok() {
            return self.outbox.take(self.number, position);
        }
        let json = &entry.incident;
        // A newer version may have another form.
        let Ok(id) = json.id.parse() else {
            return self.outbox.take(self.number, position);
        };
        self.words.configure(*self.node_events.borrow());
        let drafts = self.drafts_of(id, json, position);
        self.outbox.take(self.number, position);
        let revision = Revision {
            position,
            id,
            kills: json.kills(),
            settled: json.settled,
        };
        self.add(revision, drafts);
    }

    fn drafts_of(&mut self, id: IncidentId, json: &JsonIncident, position: Position) -> Vec<Draft> {
        let parse = |time: &str| convert::parse_time(Some(&time.into()));
        let Some(at) = parse(&json.time) else {
            return Vec::new();
        };
        if !json.settled {
            return Vec::new();
        }
        if self.outbox.is_expired(json, Clock::kernel().now().wall) {
            self.series.expired.inc();
            return Vec::new();
        }
        let incident = Settled {
            id,
            json,
            at,
            until: json.until.as_deref().and_then(parse).unwrap_or(at),
        };
        self.words.word_settled(&incident, position)
    }

    fn sum_up(&mut self, summary: &JsonIncident) {
        let id = summary.id.parse();
        let drafts = id.map_or_else(|()| Vec::new(), |id| self.drafts_of(id, summary, SUMMARY));
        if drafts.is_empty() {
            return self.outbox.advance(self.number, Cursor::summarized);
        }
        self.is_summing_up = true;
        self.drafts.extend(drafts);
    }

    fn add(&mut self, revision: Revision, drafts: Vec<Draft>) {
        let id = revision.id;
        let (Ok(at) | Err(at)) = self.find(revision.position);
        self.pending.insert(at, (revision, drafts.len()));
        for draft in drafts {
            let drafts = if draft.is_transition {
                &mut self.changes
            } else {
                &mut self.drafts
            };
            drafts.push_back(draft);
        }
        self.finish(id);
        if CHANGES < self.changes.len()
            && let Some(position) = self.changes.pop_front().and_then(|draft| draft.position)
        {
            self.settle(Outcome {
                position,
                is_accepted: false,
            });
        }
    }

    /// Counts the revisions of an incident as delivered, in their order: the last one has no Event
    /// if it adds nothing, but after a restart, it alone has Events.
    fn finish(&mut self, id: IncidentId) {
        let of_id = |(revision, _): &(Revision, usize)| revision.id == id;
        while let Some(first) = self.pending.iter().position(of_id)
            && let Some((_, 0)) = self.pending.get(first)
            && let Some((revision, _)) = self.pending.remove(first)
        {
            self.delivered(&revision);
            if revision.settled {
                return;
            }
        }
    }

    fn find(&self, position: Position) -> Result<usize, usize> {
        self.pending
            .binary_search_by_key(&position, |(revision, _)| revision.position)
    }

    fn settle(&mut self, outcome: Outcome) {
        let counter = if outcome.is_accepted {
            &self.series.delivered
        } else {
            &self.series.refused
        };
        if outcome.position == SUMMARY {
            counter.inc();
            self.is_summing_up = false;
            self.is_unsaved = true;
            return self.outbox.advance(self.number, Cursor::summarized);
        }
        let found = self.find(outcome.position).ok();
        let Some((revision, events)) = found.and_then(|at| self.pending.get_mut(at)) else {
            return;
        };
        *events = events.saturating_sub(1);
        if *events == 0 {
            counter.inc();
            let id = revision.id;
            self.finish(id);
        }
    }

    fn delivered(&mut self, revision: &Revision) {
        let pending = self.pending.front();
        let pending = pending.map(|(revision, _)| revision.position);
        let next = self.outbox.taken(self.number).next();
        let undone = [pending, self.unread].into_iter().flatten();
        let first = undone.fold(next, Position::min);
        self.outbox.advance(self.number, |cursor| {
            cursor.delivered_before(revision, first);
        });
        self.is_unsaved = true;
    }

    /// Begins to record what was delivered. A restart delivers again what is not recorded, which
    /// changes nothing: the names of the Events are made of the ids of the incidents.
    fn save(&mut self) {
        if self.saving.is_none() && std::mem::take(&mut self.is_unsaved) {
            let number = self.number;
            self.saving = self
                .disk
                .clone()
                .map(|disk| -> Calling<()> { Box::pin(async move { disk.save(number).await }) });
        }
    }
}

async fn ended<T>(calling: &mut Option<Calling<T>>) -> T {
    match calling {
        Some(calling) => calling.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use nodepulse_core::clock::{BootNanos, Now};
    use nodepulse_core::incident::{BootId, Object, Occurred, Occurrence};
    use nodepulse_core::kube_event::{RefusedForks, ReportedKills};
    use nodepulse_core::node_status::Status;
    use nodepulse_core::node_status::ledger::ConditionChange;
    use nodepulse_core::pods::{Pod, PodId, PodRef};
    use nodepulse_kube::recorder::{Recorder, Reporter};
    use nodepulse_kube::scripted::{Reply, Scripted};
    use serde_json::json;

    use super::*;
    use crate::history::outbox::SinkState;
    use crate::metrics::Metrics;

    const BOOT: BootId = BootId(1);

    fn incident(number: u64, revision: u8, settled: bool) -> Incident {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        Incident {
            id: IncidentId { boot: BOOT, number },
            revision,
            settled,
            added: 0,
            object: Object {
                pod: Pod::new("shop", "web-0", "aa", None),
                container: None,
                is_resolved: true,
            },
            occurred: Occurred {
                pod: Some(PodRef {
                    pod: PodId::Uid("aa".to_owned()),
                    container: None,
                }),
                at,
                until: at,
                stamp: None,
                kills: ReportedKills::default(),
                occurrence: Occurrence::RefusedForks(RefusedForks {
                    cgroup: format!("/kubepods/podaa/{number}"),
                    forks: number,
                    limit: None,
                    tasks: None,
                }),
            },
            details: None,
        }
    }

    fn condition(number: u64, revision: u8, details: Option<&str>) -> Incident {
        let change = ConditionChange {
            type_: "PIDsLow".to_owned(),
            status: Status::True,
            reason: "LowPIDs".to_owned(),
            message: "few".to_owned(),
            details: details.map(str::to_owned),
            ended: None,
        };
        let mut incident = incident(number, revision, details.is_some());
        incident.object.pod = None;
        incident.occurred.pod = None;
        incident.occurred.occurrence = Occurrence::Condition(change);
        incident
    }

    struct Started {
        outbox: Arc<Outbox>,
        source: Source,
        newest: Position,
        written: watch::Sender<Position>,
        task: tokio::task::JoinHandle<()>,
        events: EventSink,
    }

    /// Starts the sink where `cursor` is, without a history.
    fn start(server: &Scripted, cursor: Cursor, newest: Position) -> Started {
        start_with(server, (cursor, newest), (8, false, Position(0)))
    }

    fn start_with(
        server: &Scripted,
        (cursor, newest): (Cursor, Position),
        (queue, has_history, last_condition): (usize, bool, Position),
    ) -> Started {
        let series = SinkSeries::new(&Metrics::new("0", "files", "worker-1").process, NAME);
        let state = SinkState {
            taken: Some(cursor.position()),
            cursor,
            series: series.clone(),
        };
        let outbox = Arc::new(Outbox::new(newest, [state], BOOT, has_history));
        let (source, sink) = Kubernetes::new(
            (Arc::clone(&outbox), 0),
            "worker-1",
            None,
            series,
            last_condition,
        );
        let clock = Clock::runtime(Now {
            boot: BootNanos(0),
            wall: SystemTime::UNIX_EPOCH,
        });
        let reporter = Reporter {
            node: "worker-1".to_owned(),
            uid: watch::channel(String::new()).1,
            queue,
        };
        let (written, seen) = watch::channel(Position(0));
        let (send_outcomes, outcomes) = mpsc::unbounded_channel();
        let deliveries = mpsc::channel(8).0;
        let (events, recorder) =
            Recorder::new(server.client(), clock, reporter, deliveries, send_outcomes);
        tokio::spawn(recorder.run());
        let (start, started) = oneshot::channel();
        let with = Reported {
            events: events.clone(),
            outcomes,
            written: seen,
        };
        start.send(with).ok().unwrap();
        Started {
            outbox,
            source,
            newest,
            written,
            task: tokio::spawn(sink.run(started)),
            events,
        }
    }

    impl Started {
        /// Records a revision; if it is not fresh, as the history has it.
        fn record(&mut self, incident: &Incident, is_fresh: bool) {
            self.newest = self.newest.next();
            if is_fresh {
                self.source.record(self.newest, incident);
            }
            self.outbox.push(Entry {
                position: self.newest,
                added: ReportedKills::default(),
                incident: JsonIncident::new(incident, convert::micro_time),
            });
        }

        async fn end(self) -> Cursor {
            self.events.leave();
            self.task.await.unwrap();
            self.outbox.cursor(0).unwrap()
        }
    }

    fn accepted() -> Reply {
        Reply::json(201, json!({}))
    }

    async fn pass() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn each_incident_has_one_event_whether_it_is_fresh_or_from_the_history() {
        let server = Scripted::new((0..9).map(|_| accepted()));
        let mut started = start(&server, Cursor::new(Position(0)), Position(0));
        started.record(&incident(1, 1, true), true);
        // The first revision was not taken while it was fresh.
        started.record(&incident(2, 1, false), false);
        started.record(&incident(2, 2, true), false);
        // The settled one was not.
        started.record(&incident(3, 1, false), true);
        pass().await;
        started.record(&incident(3, 2, true), false);
        started.record(&incident(4, 1, true), true);
        pass().await;
        let numbers: Vec<_> = (0..server.lines().len())
            .map(|request| server.body(request)["message"].as_str().unwrap().to_owned())
            .collect();
        let expected = [1, 2, 3, 4].map(|forks| {
            let s = if forks == 1 { "" } else { "s" };
            format!("{forks} fork{s} refused: the limit is not known")
        });
        assert_eq!(numbers, expected);
        let newest = started.newest;
        assert_eq!(*started.source.handed_over.borrow(), newest);
        let cursor = started.end().await;
        assert_eq!(cursor.position(), newest);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_without_an_outcome_is_delivered_by_the_next_start() {
        let replies = [accepted(), Reply::json(409, json!({})), accepted()];
        let server = Scripted::new([accepted()].into_iter().chain([Reply::Silent]));
        let mut first = start(&server, Cursor::new(Position(0)), Position(0));
        first.record(&incident(1, 1, true), true);
        first.record(&incident(2, 1, false), true);
        // It adds nothing to the Event.
        first.record(&incident(2, 2, true), true);
        pass().await;
        assert_eq!(server.lines().len(), 2);
        // It is killed. The API server has stored the second Event.
        let cursor = first.outbox.cursor(0).unwrap();
        assert!(!cursor.has_summary());
        assert_eq!(cursor.position(), Position(1));
        let name = server.body(1)["metadata"]["name"].clone();
        drop(first);

        let server = Scripted::new(replies);
        let mut second = start(&server, cursor, Position(1));
        second.record(&incident(2, 1, false), false);
        second.record(&incident(2, 2, true), false);
        second.record(&incident(3, 1, true), true);
        pass().await;
        let again = server.body(0)["metadata"]["name"].clone();
        assert_eq!(again, name);
        let cursor = second.end().await;
        assert_eq!(cursor.position(), Position(4));
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_about_a_condition_waits_for_the_api_server_to_have_it_and_for_no_kill() {
        let replies = [accepted(), Reply::Silent].into_iter();
        let server = Scripted::new(replies.chain((0..99).map(|_| accepted())));
        let mut started = start(&server, Cursor::new(Position(0)), Position(0));
        started.record(&condition(1, 1, Some("most tasks: a")), true);
        pass().await;
        assert_eq!(server.lines().len(), 0);
        assert!(*started.source.handed_over.borrow() < started.newest);
        started.written.send_replace(started.newest);
        pass().await;
        assert_eq!(server.lines().len(), 1);
        assert_eq!(*started.source.handed_over.borrow(), started.newest);

        // One is not answered, so that the queue of the recorder becomes full.
        for number in 1..=u64::try_from(FRESH).unwrap() {
            started.record(&incident(number, 1, true), true);
        }
        started.record(&condition(100, 1, None), true);
        let began = started.newest;
        started.record(&condition(100, 2, Some("most tasks: b")), true);
        pass().await;
        started.written.send_replace(began);
        tokio::time::sleep(Duration::from_mins(2)).await;
        let bodies =
            (0..server.lines().len()).map(|request| server.body(request)["message"].clone());
        let about = bodies
            .enumerate()
            .filter(|(_, message)| message.to_string().contains("LowPIDs"));
        // The request that was not answered is tried again before it.
        let text = ["a", "b"].map(|users| {
            format!("Node worker-1 status is now: LowPIDs (few); most tasks: {users}")
        });
        let expected = [(0, json!(text[0])), (3, json!(text[1]))];
        assert_eq!(about.collect::<Vec<_>>(), expected);
        let cursor = started.end().await;
        assert_eq!(cursor.position(), began.next());
    }

    #[tokio::test(start_paused = true)]
    async fn in_an_outage_only_what_the_history_lacks_is_taken_and_everything_has_its_event_later()
    {
        const KILLS: u64 = 110;
        // An event waits in an outage, in the channel, and while it is written.
        const TAKEN: u64 = WAITING + 5;
        for (is_recorded, taken) in [(true, TAKEN), (false, KILLS)] {
            let silence = (0..3).map(|_| Reply::Cut);
            let server = Scripted::new(silence.chain((0..KILLS).map(|_| accepted())));
            let start_of = (Cursor::new(Position(0)), Position(0));
            let mut started = start_with(&server, start_of, (1000, true, Position(0)));
            for number in 1..=KILLS {
                let mut incident = incident(number, 1, true);
                incident.object.pod = Pod::new("shop", &format!("web-{number}"), "aa", None);
                started.record(&incident, true);
                if is_recorded {
                    started.outbox.recorded(started.newest);
                }
                tokio::task::yield_now().await;
            }
            pass().await;
            assert_eq!(started.source.fresh.capacity(), FRESH);
            let reached = started.outbox.taken(0).0;
            assert!(reached.abs_diff(taken) <= 5, "{reached} of {taken}");
            tokio::time::sleep(Duration::from_mins(2)).await;
            let names = (0..server.lines().len())
                .map(|request| server.body(request)["involvedObject"]["name"].to_string());
            let names: std::collections::BTreeSet<_> = names.collect();
            assert_eq!(names.len(), 110);
            let newest = started.newest;
            assert_eq!(started.end().await.position(), newest);
        }
    }

    #[tokio::test]
    async fn a_condition_that_is_delivered_before_earlier_incidents_were_read_skips_none() {
        let series = SinkSeries::new(&Metrics::new("0", "files", "worker-1").process, NAME);
        let cursor = Cursor::new(Position(0));
        let taken = Some(cursor.position());
        let state = SinkState {
            cursor,
            series: series.clone(),
            taken,
        };
        let outbox = Arc::new(Outbox::new(Position(0), [state], BOOT, false));
        let (_source, mut sink) = Kubernetes::new(
            (Arc::clone(&outbox), 0),
            "worker-1",
            None,
            series,
            Position(0),
        );
        for position in [5, 6] {
            sink.take_fresh(Position(position), &condition(position, 1, Some("a")));
        }
        sink.settle(Outcome {
            position: Position(5),
            is_accepted: true,
        });
        let cursor = outbox.cursor(0).unwrap();
        assert_eq!(cursor.position(), Position(0));
        assert!(cursor.has(Position(5)) && !cursor.has(Position(4)));
        // The status is never written.
        for position in (7..).take(CHANGES) {
            sink.take_fresh(Position(position), &condition(position, 1, Some("a")));
        }
        assert_eq!(sink.changes.len(), CHANGES);
        assert!(sink.has_room() && outbox.cursor(0).unwrap().has(Position(6)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_only_memory_has_of_a_former_start_is_delivered_and_then_what_is_fresh() {
        let server = Scripted::new((0..9).map(|_| accepted()));
        let [former, begin] = [4, 5].map(Position::before_start);
        let mut started = start(&server, Cursor::new(former), begin);
        started.outbox.lacks(vec![Entry {
            position: former.next(),
            added: ReportedKills::default(),
            incident: JsonIncident::new(&incident(1, 1, true), convert::micro_time),
        }]);
        pass().await;
        assert_eq!(server.lines().len(), 1);
        started.record(&incident(2, 1, true), true);
        started.record(&condition(3, 1, Some("a")), true);
        started.written.send_replace(started.newest);
        pass().await;
        assert_eq!(server.lines().len(), 3);
        let newest = started.newest;
        assert_eq!(started.end().await.position(), newest);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_about_a_condition_waits_for_those_of_a_former_start_and_for_no_kill() {
        let [former, begin] = [4, 5].map(Position::before_start);
        // The last revision about a condition of the former start, and the place of the Event. The
        // recorder has a dozen at a time, and the first request is sent again.
        for (last, expected) in [(former, 2), (Position(former.0 + 30), 18)] {
            let replies = [Reply::Silent].into_iter();
            let server = Scripted::new(replies.chain((0..60).map(|_| accepted())));
            let start_of = (Cursor::new(former), begin);
            let mut started = start_with(&server, start_of, (8, false, last));
            let kills = (1..=50).zip(former.0 + 1..).map(|(number, position)| {
                let mut incident = incident(number, 1, true);
                incident.object.pod = Pod::new("shop", &format!("web-{number}"), "aa", None);
                Entry {
                    position: Position(position),
                    added: ReportedKills::default(),
                    incident: JsonIncident::new(&incident, convert::micro_time),
                }
            });
            started.outbox.lacks(kills.collect());
            pass().await;
            started.record(&condition(51, 1, Some("a")), true);
            started.written.send_replace(started.newest);
            tokio::time::sleep(Duration::from_mins(2)).await;
            let mut bodies = (0..server.lines().len()).map(|request| server.body(request));
            let about = bodies.position(|body| body.to_string().contains("LowPIDs"));
            assert_eq!((about, server.lines().len()), (Some(expected), 52));
            let newest = started.newest;
            assert_eq!(started.end().await.position(), newest);
        }
    }
}
