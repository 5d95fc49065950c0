//! Which Events are written, which are folded together, and which wait: pure, `now` is an argument.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, SystemTime};

use super::lru::Lru;
use crate::clock::BootNanos;
use crate::kube_event::{Draft, Involved, ReportedKills};
use crate::node_status::transition::EventType;

/// Distinct messages of one kind within [`SIMILAR_WINDOW`] before they are written as one Event.
const DISTINCT_MESSAGES: usize = 10;
/// How long after the last similar Event a new one counts as similar, as in a kubelet.
const SIMILAR_WINDOW: Duration = Duration::from_mins(10);
/// Writes about one object and type that may come at once, as in a kubelet.
const BURST: u32 = 25;
/// How often one more is allowed.
const REFILL: Duration = Duration::from_mins(5);
/// Objects that are remembered; a kubelet remembers 4096, in more memory than we may use.
const SUBJECTS: usize = 512;
/// Written Events that are remembered, to count them up.
const KNOWN: usize = 1024;
/// What stands before the newest of many messages.
const COMBINED: &str = "(combined from similar events): ";

/// One or more observations that will be written as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingEvent {
    /// The newest observation.
    pub newest: Draft,
    /// How many there are.
    pub times: u32,
    /// How many things they tell of.
    of: u32,
    /// The kills that they report.
    pub kills: ReportedKills,
    /// When the oldest was.
    pub first: SystemTime,
    /// Whether their messages differ.
    mixed: bool,
}

impl PendingEvent {
    /// One observation.
    pub fn once(mut input: Draft) -> Self {
        Self {
            first: input.at,
            of: input.of,
            times: input.times,
            kills: std::mem::take(&mut input.kills),
            newest: input,
            mixed: false,
        }
    }

    /// The same of our Node, where it was of one of our pods.
    pub fn of_node(mut self) -> Option<Self> {
        let Involved::Pod {
            namespace, name, ..
        } = &self.newest.object
        else {
            return None;
        };
        self.newest.message = format!("Pod {namespace}/{name}: {}", self.newest.message);
        self.newest.object = Involved::Node;
        Some(self)
    }

    /// Takes in an older, similar one.
    fn add_older(&mut self, older: Self) {
        self.times = self.times.saturating_add(older.times);
        self.of = self.of.saturating_add(older.of);
        self.first = self.first.min(older.first);
        self.mixed |= older.mixed || self.newest.message != older.newest.message;
        self.kills.add_all(older.kills);
    }

    /// Alike in observations that may be folded together.
    fn kind(&self) -> (&Involved, EventType, &str) {
        let newest = &self.newest;
        (&newest.object, newest.type_, &newest.reason)
    }
}

/// What became of an observation for which there was no room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Overflow {
    /// There was room.
    None,
    /// The oldest that was similar to another was folded into that one.
    Folded,
    /// The oldest of all was thrown away.
    Lost(Box<PendingEvent>),
}

/// Observations that wait for the API server.
#[derive(Debug)]
pub struct Backlog {
    waiting: VecDeque<PendingEvent>,
    room: usize,
}

impl Backlog {
    /// For `room` of them.
    pub fn new(room: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            room,
        }
    }

    /// Adds the newest. Where there is no room, two of one kind become one, whoever's they are: so
    /// one object with many takes nothing away from the others.
    pub fn push(&mut self, noted: PendingEvent) -> Overflow {
        self.waiting.push_back(noted);
        if self.waiting.len() <= self.room {
            return Overflow::None;
        }
        let pair = self.oldest_pair();
        let older = match pair {
            Some((older, _)) => self.waiting.remove(older),
            None => self.waiting.pop_front(),
        };
        let Some(older) = older else {
            return Overflow::None;
        };
        // What stood behind the older one has moved up.
        let newer = pair.and_then(|(_, newer)| self.waiting.get_mut(newer - 1));
        match newer {
            Some(newer) => {
                newer.add_older(older);
                Overflow::Folded
            }
            None => Overflow::Lost(Box::new(older)),
        }
    }

    /// The oldest that has a similar one behind it, and the next of those.
    fn oldest_pair(&self) -> Option<(usize, usize)> {
        let mut next = HashMap::new();
        let mut oldest = None;
        for (index, noted) in self.waiting.iter().enumerate().rev() {
            if let Some(newer) = next.insert(noted.kind(), index) {
                oldest = Some((index, newer));
            }
        }
        oldest
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes the oldest.
    pub fn pop(&mut self) -> Option<PendingEvent> {
        self.waiting.pop_front()
    }
}

/// What an Event on the server is known by. Without a message: the combined one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    object: Involved,
    type_: EventType,
    reason: String,
    message: Option<String>,
}

/// An Event that the server has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedEvent {
    /// `metadata.name`.
    pub name: String,
    /// `count`.
    pub count: u32,
}

/// One Event to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// What it is known by afterwards.
    pub key: Key,
    /// What it says.
    pub noted: PendingEvent,
    /// The message, as it is to be written.
    pub message: String,
    /// What it adds to the count: of a message that stays how often it came, of one that gives way to
    /// the next how many things it tells of.
    pub count: u32,
    /// The Event that counts up, where there is one.
    pub known: Option<CreatedEvent>,
}

/// What is remembered about one object and type.
#[derive(Debug)]
struct Subject {
    /// How many writes may come at once.
    tokens: u32,
    /// When `tokens` last rose, or was full.
    refilled: BootNanos,
    reasons: BTreeMap<String, Recent>,
}

/// What is remembered about one reason of a subject.
#[derive(Debug)]
struct Recent {
    last: BootNanos,
    messages: Vec<String>,
    /// What the limit holds back. Goes into the next write.
    held: Option<PendingEvent>,
}

/// Remembers what was written, and decides how the next is.
#[derive(Debug)]
pub struct Correlator {
    subjects: Lru<(Involved, EventType), Subject>,
    known: Lru<Key, CreatedEvent>,
    /// Observations that were held back for an object when it was forgotten.
    lost: u32,
    /// The kills that those report.
    lost_kills: ReportedKills,
}

impl Correlator {
    /// Knowing nothing.
    pub fn new() -> Self {
        Self {
            subjects: Lru::new(SUBJECTS),
            known: Lru::new(KNOWN),
            lost: 0,
            lost_kills: ReportedKills::default(),
        }
    }

    /// What to write for `noted`; `None` when the limit holds it back for now.
    pub fn admit(&mut self, mut noted: PendingEvent, now: BootNanos) -> Option<Write> {
        let of = (noted.newest.object.whole(), noted.newest.type_);
        if let Some(mut forgotten) = self.subjects.make_room(&of) {
            while let Some(held) = forgotten.take_held() {
                self.lost = self.lost.saturating_add(held.times);
                self.lost_kills.add_all(held.kills);
            }
        }
        let subject = self.subjects.get_or_insert(of, || Subject::new(now));
        let reason = noted.newest.reason.clone();
        let recent = subject
            .reasons
            .entry(reason.clone())
            .or_insert_with(|| Recent::new(now));
        let combined = recent.sees(&noted.newest.message, now);
        if let Some(held) = recent.held.take() {
            noted.add_older(held);
        }
        if subject.take_token(now) {
            return Some(self.write(noted, combined));
        }
        if let Some(recent) = subject.reasons.get_mut(&reason) {
            recent.held = Some(noted);
        }
        None
    }

    /// When something that is held back may be written.
    pub fn next_due(&self) -> Option<BootNanos> {
        let waiting = self
            .subjects
            .values()
            .filter(|subject| subject.is_holding());
        waiting.map(Subject::next_token).min()
    }

    /// Something that was held back and may be written now.
    pub fn release(&mut self, now: BootNanos) -> Option<Write> {
        let noted = self.subjects.values_mut().find_map(|subject| {
            // In this order: a token is for something that is held.
            if subject.is_holding() && subject.take_token(now) {
                subject.take_held()
            } else {
                None
            }
        })?;
        Some(self.write(noted, false))
    }

    /// Anything that is held back, limit or not: there will be no later.
    pub fn release_last(&mut self) -> Option<Write> {
        let noted = self.subjects.values_mut().find_map(Subject::take_held)?;
        Some(self.write(noted, false))
    }

    /// How many observations were lost since the last call, because too many objects had some.
    /// And the kills that they report.
    pub fn take_lost(&mut self) -> (u32, ReportedKills) {
        let kills = std::mem::take(&mut self.lost_kills);
        (std::mem::take(&mut self.lost), kills)
    }

    /// Takes note of what the server now has.
    pub fn written(&mut self, key: Key, known: CreatedEvent) {
        self.known.insert(key, known);
    }

    fn write(&mut self, noted: PendingEvent, combined: bool) -> Write {
        let input = &noted.newest;
        let combined = combined || noted.mixed;
        let key = Key {
            object: input.object.clone(),
            type_: input.type_,
            reason: input.reason.clone(),
            message: (!combined).then(|| input.message.clone()),
        };
        let message = if combined {
            format!("{COMBINED}{}", input.message)
        } else {
            input.message.clone()
        };
        let known = self.known.get(&key).cloned();
        Write {
            key,
            count: if combined { noted.of } else { noted.times },
            noted,
            message,
            known,
        }
    }
}

impl Subject {
    fn new(now: BootNanos) -> Self {
        Self {
            tokens: BURST,
            refilled: now,
            reasons: BTreeMap::new(),
        }
    }

    fn refill(&mut self, now: BootNanos) {
        let earned = now.since(self.refilled).as_nanos() / REFILL.as_nanos();
        let earned = u32::try_from(earned).unwrap_or(BURST).min(BURST);
        self.tokens = self.tokens.saturating_add(earned).min(BURST);
        if self.tokens == BURST {
            self.refilled = now;
        } else {
            self.refilled = self.refilled.plus(REFILL * earned);
        }
    }

    fn has_token(&mut self, now: BootNanos) -> bool {
        self.refill(now);
        self.tokens > 0
    }

    fn take_token(&mut self, now: BootNanos) -> bool {
        let some = self.has_token(now);
        self.tokens = self.tokens.saturating_sub(1);
        some
    }

    fn next_token(&self) -> BootNanos {
        if self.tokens > 0 {
            self.refilled
        } else {
            self.refilled.plus(REFILL)
        }
    }

    fn is_holding(&self) -> bool {
        self.reasons.values().any(|recent| recent.held.is_some())
    }

    fn take_held(&mut self) -> Option<PendingEvent> {
        self.reasons
            .values_mut()
            .find_map(|recent| recent.held.take())
    }
}

impl Recent {
    fn new(now: BootNanos) -> Self {
        Self {
            last: now,
            messages: Vec::new(),
            held: None,
        }
    }

    /// Whether `message` is one too many, and to be combined with those before it.
    fn sees(&mut self, message: &str, now: BootNanos) -> bool {
        if SIMILAR_WINDOW < now.since(self.last) {
            self.messages.clear();
        }
        self.last = now;
        if self.messages.iter().any(|seen| seen == message) {
            return false;
        }
        if self.messages.len() + 1 < DISTINCT_MESSAGES {
            self.messages.push(message.to_owned());
            return false;
        }
        true
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::kube_event::KillOwner;

    pub fn input(reason: &str, message: &str) -> Draft {
        Draft {
            object: Involved::Node,
            type_: EventType::Warning,
            reason: reason.to_owned(),
            message: message.to_owned(),
            of: 1,
            times: 1,
            kills: ReportedKills::default(),
            at: SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000),
            stamp: None,
        }
    }

    fn noted(message: &str) -> PendingEvent {
        PendingEvent::once(input("OOMKilling", message))
    }

    fn after(seconds: u64) -> BootNanos {
        BootNanos(0).plus(Duration::from_secs(seconds))
    }

    /// Admits and pretends that the server took it. Gives (message, count on the server).
    fn write(
        correlator: &mut Correlator,
        noted: PendingEvent,
        now: BootNanos,
    ) -> Option<(String, u32)> {
        let write = correlator.admit(noted, now)?;
        Some(accept(correlator, write))
    }

    fn accept(correlator: &mut Correlator, write: Write) -> (String, u32) {
        let count = write.count + write.known.map_or(0, |known| known.count);
        let known = CreatedEvent {
            name: "n".to_owned(),
            count,
        };
        correlator.written(write.key, known);
        (write.message, count)
    }

    #[test]
    fn a_repeated_message_counts_up_and_another_is_an_event_of_its_own() {
        let mut correlator = Correlator::new();
        let rows = [("a", 1), ("a", 2), ("b", 1), ("a", 3)];
        for (message, count) in rows {
            let got = write(&mut correlator, noted(message), after(0));
            assert_eq!(got, Some((message.to_owned(), count)));
        }
    }

    #[test]
    fn from_the_tenth_distinct_message_on_they_are_one_event() {
        let mut correlator = Correlator::new();
        for n in 1..10 {
            let got = write(&mut correlator, noted(&n.to_string()), after(0));
            assert_eq!(got, Some((n.to_string(), 1)));
        }
        for (n, count) in [(10, 1), (11, 2), (12, 3)] {
            let got = write(&mut correlator, noted(&n.to_string()), after(600));
            let message = format!("(combined from similar events): {n}");
            assert_eq!(got, Some((message, count)), "still within the window");
        }
        let got = write(&mut correlator, noted("13"), after(1201));
        assert_eq!(got, Some(("13".to_owned(), 1)), "the window is over");
    }

    #[test]
    fn a_group_counts_whole_where_its_message_gives_way_to_another() {
        let mut correlator = Correlator::new();
        let group = |message| {
            PendingEvent::once(Draft {
                of: 3,
                ..input("OOMKilling", message)
            })
        };
        assert_eq!(
            write(&mut correlator, group("a"), after(0)),
            Some(("a".to_owned(), 1))
        );
        for n in 1..9 {
            write(&mut correlator, noted(&n.to_string()), after(0)).unwrap();
        }
        let combined = |text: &str, count| Some((format!("{COMBINED}{text}"), count));
        assert_eq!(
            write(&mut correlator, group("b"), after(0)),
            combined("b", 3)
        );
        assert_eq!(
            write(&mut correlator, noted("c"), after(0)),
            combined("c", 4)
        );
        for _ in 11..BURST {
            write(&mut correlator, noted("c"), after(0)).unwrap();
        }
        assert_eq!(
            write(&mut correlator, group("d"), after(0)),
            None,
            "held back"
        );
        assert_eq!(
            write(&mut correlator, noted("e"), after(300)),
            combined("e", 22)
        );
    }

    #[test]
    fn sixty_in_a_burst_are_all_accounted_for() {
        let mut correlator = Correlator::new();
        let written = (0..60)
            .filter_map(|_| write(&mut correlator, noted("same"), after(0)))
            .count();
        assert_eq!(written, 25);
        assert_eq!(correlator.next_due(), Some(after(300)));
        assert_eq!(correlator.release(after(299)), None);
        let released = correlator.release(after(300)).unwrap();
        assert_eq!(accept(&mut correlator, released), ("same".to_owned(), 60));
        assert_eq!(correlator.next_due(), None);
    }

    #[test]
    fn what_was_held_back_goes_with_the_next_write_of_its_reason() {
        let mut correlator = Correlator::new();
        for _ in 0..27 {
            write(&mut correlator, noted("same"), after(0));
        }
        let other = PendingEvent::once(input("PIDLimitReached", "other"));
        assert_eq!(
            write(&mut correlator, other, after(1)),
            None,
            "one bucket for both"
        );
        let got = write(&mut correlator, noted("same"), after(300));
        assert_eq!(got, Some(("same".to_owned(), 28)));
        let last = correlator.release_last().unwrap();
        assert_eq!(accept(&mut correlator, last), ("other".to_owned(), 1));
        assert_eq!(correlator.release_last(), None);
    }

    #[test]
    fn objects_do_not_share_a_limit() {
        let mut correlator = Correlator::new();
        for n in 0..26 {
            let got = write(&mut correlator, noted("same"), after(0));
            assert_eq!(got.is_some(), n < 25);
        }
        let mut pod = noted("same");
        pod.newest.object = Involved::Pod {
            namespace: "n".to_owned(),
            name: "p".to_owned(),
            uid: "u".to_owned(),
            field_path: None,
        };
        assert_eq!(
            write(&mut correlator, pod, after(0)),
            Some(("same".to_owned(), 1))
        );
    }

    #[test]
    fn containers_of_one_pod_share_its_limit() {
        let mut correlator = Correlator::new();
        for n in 0..26 {
            let mut noted = noted("same");
            noted.newest.object = Involved::Pod {
                namespace: "n".to_owned(),
                name: "p".to_owned(),
                uid: "u".to_owned(),
                field_path: Some(format!("spec.containers{{c{}}}", n % 2).into()),
            };
            let got = write(&mut correlator, noted, after(0));
            assert_eq!(got.is_some(), n < 25, "{n}");
        }
    }

    #[test]
    fn a_full_backlog_folds_similar_ones_before_it_loses_any() {
        let mut backlog = Backlog::new(2);
        let other = PendingEvent::once(input("Rebooted", "x"));
        assert_eq!(backlog.push(noted("a")), Overflow::None);
        assert_eq!(backlog.push(other.clone()), Overflow::None);
        assert_eq!(backlog.push(noted("b")), Overflow::Folded);
        assert_eq!(backlog.push(noted("b")), Overflow::Folded);
        let starting = PendingEvent::once(input("Starting", "y"));
        assert_eq!(
            backlog.push(starting.clone()),
            Overflow::Lost(Box::new(other))
        );
        let folded = backlog.pop().unwrap();
        assert_eq!((folded.times, folded.newest.message.as_str()), (3, "b"));
        assert!(folded.mixed);
        assert_eq!(backlog.pop(), Some(starting));
        assert_eq!(backlog.pop(), None);
    }

    #[test]
    fn an_object_with_many_makes_room_for_one_with_few() {
        let mut backlog = Backlog::new(3);
        for message in ["a", "b", "c"] {
            assert_eq!(backlog.push(noted(message)), Overflow::None);
        }
        let quiet = PendingEvent::once(input("Rebooted", "x"));
        assert_eq!(backlog.push(quiet.clone()), Overflow::Folded);
        let folded = backlog.pop().unwrap();
        assert_eq!((folded.times, folded.newest.message.as_str()), (2, "b"));
        let single = backlog.pop().unwrap();
        assert_eq!((single.times, single.newest.message.as_str()), (1, "c"));
        assert_eq!(backlog.pop(), Some(quiet));
    }

    #[test]
    fn what_is_forgotten_while_held_back_is_counted() {
        let mut correlator = Correlator::new();
        for _ in 0..28 {
            let mut kill = noted("same");
            kill.kills = ReportedKills::of(KillOwner::Pods, 1);
            write(&mut correlator, kill, after(0));
        }
        for n in 0..SUBJECTS {
            assert_eq!(correlator.take_lost().0, 0, "{n}");
            let mut pod = noted("same");
            pod.newest.object = Involved::Pod {
                namespace: "n".to_owned(),
                name: "p".to_owned(),
                uid: n.to_string(),
                field_path: None,
            };
            write(&mut correlator, pod, after(0));
        }
        let kills = ReportedKills::of(KillOwner::Pods, 3);
        assert_eq!(correlator.take_lost(), (3, kills));
        assert_eq!(correlator.next_due(), None);
    }
}
