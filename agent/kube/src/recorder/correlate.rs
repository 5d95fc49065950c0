//! Decides which Events are written, folded or delayed. Pure: `now` is a parameter.
// tidy: long: the three decisions share the state of each Event

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::iter;
use std::time::{Duration, SystemTime};

use nodepulse_core::clock::BootNanos;
use nodepulse_core::incident::Position;
use nodepulse_core::kube_event::{Draft, EventId, Involved, SOME_VICTIMS_UNKNOWN, VICTIMS_UNKNOWN};
use nodepulse_core::node_status::transition::EventType;

use super::lru::Lru;

/// Number of distinct messages of one kind within [`SIMILAR_WINDOW`] before they become one Event.
const DISTINCT_MESSAGES: usize = 10;
/// Maximum time after the last similar Event in which a new one counts as similar, as in a kubelet.
const SIMILAR_WINDOW: Duration = Duration::from_mins(10);
/// Number of writes about one object and type that may follow at once, as in a kubelet.
const BURST: u32 = 25;
/// Interval after which one more write is allowed.
const REFILL: Duration = Duration::from_mins(5);
/// Maximum number of objects; a kubelet has 4096, with more memory.
const SUBJECTS: usize = 512;
/// Maximum number of written Events whose count can be raised. The Events whose count is raised
/// most often, of one message or combined, are forgotten last.
const KNOWN: usize = 512;
pub(super) const COMBINED: &str = "(combined from similar events): ";

/// One or more observations that will be written as one Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingEvent {
    pub newest: Draft,
    pub times: u32,
    /// Number of incidents in the observations.
    of: u32,
    /// The revisions of incidents that are reported to the sink when this is written.
    pub positions: Vec<Position>,
    /// Time of the oldest observation.
    pub first: SystemTime,
    /// When the server could first not process it.
    pub failing_since: Option<BootNanos>,
    /// The messages differ, or are combined with earlier ones.
    mixed: bool,
    /// The beginning of the message: the pod, if the Event is on the Node instead of it.
    pub prefix: String,
}

impl PendingEvent {
    pub fn once(input: Draft) -> Self {
        Self {
            first: input.at,
            failing_since: None,
            of: input.of,
            times: input.times,
            positions: input.position.into_iter().collect(),
            newest: input,
            mixed: false,
            prefix: String::new(),
        }
    }

    /// Converts an observation about a pod into one about the Node; `None` if it was about the
    /// Node, or only adds details.
    pub fn of_node(mut self) -> Option<Self> {
        let Involved::Pod {
            namespace, name, ..
        } = &self.newest.object
        else {
            return None;
        };
        self.prefix = format!("Pod {namespace}/{name}: ");
        self.newest.message.insert_str(0, &self.prefix);
        self.newest.object = Involved::Node;
        self.failing_since = None;
        (self.of > 0).then(|| self.separate())
    }

    /// Returns true for a later version that reports no more kills.
    pub const fn is_details(&self) -> bool {
        self.newest.is_later && self.of == 0
    }

    /// Replaces the message by that of a later version.
    pub fn update(&mut self, later: Self) {
        let message = later.newest.message;
        self.newest.message = format!("{}{message}", self.prefix);
        self.newest.annotations.add_all(later.newest.annotations);
        self.newest.at = later.newest.at;
        self.newest.is_last = later.newest.is_last;
        self.of = self.of.saturating_add(later.of);
        self.positions.extend(later.positions);
    }

    /// Makes a separate Event of the incidents that a later version adds.
    #[must_use]
    pub fn separate(mut self) -> Self {
        if std::mem::take(&mut self.newest.is_later) {
            self.newest.id = None;
            self.times = 1;
        }
        self
    }

    /// Returns true if the two can be one Event.
    fn is_similar(&self, other: &Self) -> bool {
        let [one, other] = [self, other].map(|pending| &pending.newest);
        !one.is_later
            && (&one.object, &one.container) == (&other.object, &other.container)
            && (one.type_, &one.reason) == (other.type_, &other.reason)
    }

    fn add_older(&mut self, mut older: Self) {
        if std::mem::take(&mut self.newest.is_later) {
            self.newest.id = None;
        }
        self.times = self.times.saturating_add(older.times);
        self.of = self.of.saturating_add(older.of);
        self.first = self.first.min(older.first);
        self.mixed |= older.mixed || self.newest.message != older.newest.message;
        older.positions.append(&mut self.positions);
        self.positions = older.positions;
    }
}

/// Observations that wait for the API server.
#[derive(Debug, Default)]
pub struct Backlog {
    waiting: VecDeque<PendingEvent>,
    /// The server could not process them.
    failed: VecDeque<PendingEvent>,
}

impl Backlog {
    /// Adds the newest observation: to an earlier version of it if that waits, or to a similar one
    /// if more than `separate` wait, as these become one Event.
    pub fn push(&mut self, mut pending: PendingEvent, separate: usize) {
        if pending.newest.is_later {
            let id = pending.newest.id;
            let mut waiting = self.waiting.iter_mut().chain(&mut self.failed).rev();
            if let Some(earlier) = waiting.find(|waiting| waiting.newest.id == id) {
                return earlier.update(pending);
            }
        } else if !pending.newest.is_transition
            && let Some(similar) = (self.waiting.iter_mut())
                .filter(|waiting| waiting.is_similar(&pending))
                .nth(separate)
        {
            std::mem::swap(similar, &mut pending);
            return similar.add_older(pending);
        }
        self.waiting.push_back(pending);
    }

    pub fn push_failed(&mut self, pending: PendingEvent) {
        self.failed.push_back(pending);
    }

    /// Removes the one that was tried first.
    pub fn pop_failed(&mut self) -> Option<PendingEvent> {
        self.failed.pop_front()
    }

    pub fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn take_version(&mut self, id: EventId) -> Option<PendingEvent> {
        self.take(|of| of.newest.is_later && of.newest.id == Some(id))
    }

    pub fn len(&self) -> usize {
        self.waiting.len() + self.failed.len()
    }

    /// Returns the number of observations without details, and without those that the server could
    /// not process.
    pub fn waiting(&self) -> usize {
        let waiting = self.waiting.iter();
        waiting.filter(|waiting| !waiting.is_details()).count()
    }

    /// Returns true if this Event waits.
    pub fn has(&self, id: EventId) -> bool {
        let mut all = self.waiting.iter().chain(&self.failed);
        all.any(|waiting| waiting.newest.id == Some(id))
    }

    /// Removes the oldest observation about a change of the Node's status, or else the oldest one.
    /// Those that only add details to an Event are the last.
    pub fn pop(&mut self) -> Option<PendingEvent> {
        let transition = self.take(|waiting| waiting.newest.is_transition);
        let write = transition.or_else(|| self.take(|waiting| !waiting.is_details()));
        write.or_else(|| self.waiting.pop_front())
    }

    fn take(&mut self, wanted: impl FnMut(&PendingEvent) -> bool) -> Option<PendingEvent> {
        let at = self.waiting.iter().position(wanted)?;
        self.waiting.remove(at)
    }
}

/// The key of an Event on the server. The combined Event has no message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EventKey {
    /// `involvedObject` of the Event.
    pub object: Involved,
    type_: EventType,
    reason: String,
    message: Option<Fingerprint>,
}

/// A hash of a text or key that is compared and not read again. The values themselves would take
/// more than a megabyte after a storm of kills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Fingerprint(u64);

impl Fingerprint {
    fn new(value: &(impl Hash + ?Sized)) -> Self {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        Self(hasher.finish())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreatedEvent {
    /// The end of `metadata.name`. Its beginning follows from the object. A thousand names would be
    /// as many small allocations.
    pub number: u64,
    pub count: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventWrite {
    pub key: EventKey,
    pub pending: PendingEvent,
    pub message: String,
    /// The increase of the count: for an unchanged message the number of observations, for a
    /// message that is replaced by the next the number of incidents, for a later version none.
    pub count: u32,
    /// The Event whose count is raised.
    pub known: Option<CreatedEvent>,
}

impl EventWrite {
    /// Returns true if the next similar Event replaces the message.
    pub const fn is_combined(&self) -> bool {
        self.key.message.is_none()
    }

    /// Returns true for a later version of an Event.
    pub const fn is_update(&self) -> bool {
        self.pending.newest.is_later
    }
}

/// The state of one object and type.
#[derive(Debug)]
struct ObjectState {
    /// Number of writes that may follow at once.
    tokens: u32,
    /// Time at which `tokens` was last raised, or full.
    refilled: BootNanos,
    /// There are a few: a tree would take ten times the memory, for each object that had an Event.
    reasons: Vec<Recent>,
    /// The observations that the rate limit delays: one for each of the reasons, in the order in
    /// which they are written.
    delayed: VecDeque<PendingEvent>,
}

/// The state of one reason of an object.
#[derive(Debug)]
struct Recent {
    reason: String,
    last: BootNanos,
    messages: Vec<Fingerprint>,
}

/// Remembers written Events, and decides how to write the next.
#[derive(Debug)]
pub struct Correlator {
    subjects: Lru<(Involved, EventType), ObjectState>,
    /// The state of the changes of the Node's status, of both types, so that the end of a condition
    /// does not overtake its beginning.
    transitions: ObjectState,
    known: Lru<Fingerprint, CreatedEvent>,
    /// Delayed observations of objects that were forgotten, because there are too many. No limit
    /// delays them any more.
    released: VecDeque<PendingEvent>,
}

impl Correlator {
    pub fn new() -> Self {
        Self {
            subjects: Lru::new(SUBJECTS),
            transitions: ObjectState::new(BootNanos(0)),
            known: Lru::new(KNOWN),
            released: VecDeque::new(),
        }
    }

    /// Returns the write for `pending`, or for an older observation of the same object that is
    /// delayed; `None` if the rate limit delays all of them.
    pub fn admit(&mut self, mut pending: PendingEvent, now: BootNanos) -> Option<EventWrite> {
        let newest = &pending.newest;
        let of = (newest.object.whole(), newest.type_);
        let subject = if newest.is_transition {
            &mut self.transitions
        } else {
            if let Some(forgotten) = self.subjects.make_room(&of) {
                self.released.extend(forgotten.delayed);
            }
            self.subjects.get_or_insert(of, || ObjectState::new(now))
        };
        pending.mixed |= subject.exceeds(newest, now);
        subject.delay(pending);
        let first = subject.release(now)?;
        Some(self.write(first))
    }

    /// Returns the write of a later version of a written Event, which no limit delays because the
    /// Event was incomplete; `None` if the Event is not known any more.
    pub fn update(
        &mut self,
        key: &EventKey,
        prefix: &str,
        later: &PendingEvent,
    ) -> Option<EventWrite> {
        let message = format!("{prefix}{}", later.newest.message);
        let known = *self.known.get(&Fingerprint::new(key))?;
        let mut pending = later.clone();
        pending.newest.object = key.object.clone();
        Some(EventWrite {
            key: key.clone(),
            count: 0,
            pending,
            message,
            known: Some(known),
        })
    }

    /// Updates an observation that the rate limit delays. Returns the later version if there is
    /// none.
    pub fn update_delayed(&mut self, id: EventId, later: PendingEvent) -> Option<PendingEvent> {
        let subjects = self.subjects.values_mut();
        let delayed = subjects.flat_map(|subject| &mut subject.delayed);
        let mut delayed = delayed.chain(&mut self.released);
        let Some(earlier) = delayed.find(|delayed| delayed.newest.id == Some(id)) else {
            return Some(later);
        };
        earlier.update(later);
        None
    }

    /// Returns true if the rate limit delays this Event.
    pub fn delays(&self, id: EventId) -> bool {
        let delayed = self.subjects.values().flat_map(|subject| &subject.delayed);
        let mut delayed = delayed.chain(&self.released);
        delayed.any(|delayed| delayed.newest.id == Some(id))
    }

    /// Returns the time at which a delayed observation may be written.
    pub fn next_due(&self) -> Option<BootNanos> {
        let all = iter::once(&self.transitions).chain(self.subjects.values());
        let waiting = all.filter(|subject| !subject.delayed.is_empty());
        let released = (!self.released.is_empty()).then_some(BootNanos(0));
        released.or_else(|| waiting.map(ObjectState::next_token).min())
    }

    pub fn release(&mut self, now: BootNanos) -> Option<EventWrite> {
        let released = self.released.pop_front();
        let delayed = || self.all().find_map(|subject| subject.release(now));
        let pending = released.or_else(delayed)?;
        Some(self.write(pending))
    }

    /// Releases any delayed observation, regardless of the limit, because there is no later write.
    pub fn release_last(&mut self) -> Option<EventWrite> {
        let released = self.released.pop_front();
        let delayed = || self.all().find_map(|subject| subject.delayed.pop_front());
        let pending = released.or_else(delayed)?;
        Some(self.write(pending))
    }

    /// Returns the number of similar observations that will be separate Events, if each has another
    /// message.
    pub fn separate(&mut self, newest: &Draft, now: BootNanos) -> usize {
        let of = (newest.object.whole(), newest.type_);
        let known = self.subjects.get(&of).into_iter();
        let recent = known
            .flat_map(|subject| &subject.reasons)
            .find(|recent| recent.reason == newest.reason)
            .filter(|recent| now.since(recent.last) <= SIMILAR_WINDOW);
        let written = recent.map_or(0, |recent| recent.messages.len());
        (DISTINCT_MESSAGES - 1).saturating_sub(written)
    }

    pub fn written(&mut self, key: &EventKey, known: CreatedEvent) {
        self.known.insert(Fingerprint::new(key), known);
    }

    /// Returns the states of all objects, that of the Node's status first.
    fn all(&mut self) -> impl Iterator<Item = &mut ObjectState> {
        iter::once(&mut self.transitions).chain(self.subjects.values_mut())
    }

    fn write(&mut self, pending: PendingEvent) -> EventWrite {
        let input = &pending.newest;
        let combined = pending.mixed;
        let key = EventKey {
            object: input.object.clone(),
            type_: input.type_,
            reason: input.reason.clone(),
            message: (!combined).then(|| Fingerprint::new(&input.message)),
        };
        let known = self.known.get(&Fingerprint::new(&key)).copied();
        let message = if combined {
            let message = input.message.replace(VICTIMS_UNKNOWN, SOME_VICTIMS_UNKNOWN);
            format!("{COMBINED}{message}")
        } else {
            input.message.clone()
        };
        EventWrite {
            key,
            count: if combined { pending.of } else { pending.times },
            pending,
            message,
            known,
        }
    }
}

impl ObjectState {
    fn new(now: BootNanos) -> Self {
        Self {
            tokens: BURST,
            refilled: now,
            reasons: Vec::new(),
            delayed: VecDeque::new(),
        }
    }

    /// Returns true if the message of `newest` exceeds the limit for its reason, and is combined
    /// with those before it.
    fn exceeds(&mut self, newest: &Draft, now: BootNanos) -> bool {
        let mut known = self.reasons.iter_mut();
        let recent = if let Some(recent) = known.find(|known| known.reason == newest.reason) {
            recent
        } else {
            self.reasons.reserve_exact(1);
            self.reasons.push_mut(Recent::new(&newest.reason, now))
        };
        recent.exceeds(&newest.message, now)
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

    /// Adds an observation to a similar one that is delayed, or after the others.
    fn delay(&mut self, mut pending: PendingEvent) {
        let newest = &pending.newest;
        let similar = self.delayed.iter().position(|delayed| {
            delayed.newest.type_ == newest.type_ && delayed.newest.reason == newest.reason
        });
        if newest.is_transition {
            // The last change of a condition is written last.
            if let Some(older) = similar.and_then(|at| self.delayed.remove(at)) {
                pending.add_older(older);
            }
            return self.delayed.push_back(pending);
        }
        if let Some(similar) = similar.and_then(|at| self.delayed.get_mut(at)) {
            std::mem::swap(similar, &mut pending);
            similar.add_older(pending);
        } else {
            // Most objects have no more than one.
            self.delayed.reserve_exact(1);
            self.delayed.push_back(pending);
        }
    }

    /// Releases the first delayed observation if the limit permits it.
    fn release(&mut self, now: BootNanos) -> Option<PendingEvent> {
        // A token is taken only for a delayed observation, so the order matters.
        if self.delayed.is_empty() || !self.take_token(now) {
            return None;
        }
        let first = self.delayed.pop_front();
        if self.delayed.is_empty() {
            // Releases the memory.
            self.delayed = VecDeque::new();
        }
        first
    }
}

impl Recent {
    fn new(reason: &str, now: BootNanos) -> Self {
        Self {
            reason: reason.to_owned(),
            last: now,
            messages: Vec::new(),
        }
    }

    fn exceeds(&mut self, message: &str, now: BootNanos) -> bool {
        if SIMILAR_WINDOW < now.since(self.last) {
            self.messages.clear();
        }
        self.last = now;
        let message = Fingerprint::new(message);
        if self.messages.contains(&message) {
            return false;
        }
        if self.messages.len() + 1 < DISTINCT_MESSAGES {
            self.messages.reserve_exact(1);
            self.messages.push(message);
            return false;
        }
        true
    }
}

#[cfg(test)]
pub(super) mod tests {
    use nodepulse_core::kube_event::Annotations;

    use super::*;

    pub fn input(reason: &str, message: &str) -> Draft {
        Draft {
            object: Involved::Node,
            type_: EventType::Warning,
            is_transition: false,
            reason: reason.to_owned(),
            message: message.to_owned(),
            annotations: Annotations::new(),
            of: 1,
            times: 1,
            id: None,
            container: None,
            is_later: false,
            is_last: false,
            position: None,
            at: SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000),
            stamp: None,
        }
    }

    pub fn pod(name: &str, uid: &str, field_path: Option<&str>) -> Involved {
        Involved::Pod {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            field_path: field_path.map(Into::into),
        }
    }

    fn pending(message: &str) -> PendingEvent {
        PendingEvent::once(input("OOMKilling", message))
    }

    fn after(seconds: u64) -> BootNanos {
        BootNanos(0).plus(Duration::from_secs(seconds))
    }

    /// Admits an observation and simulates its write. Returns (message, count on the server).
    fn write(
        correlator: &mut Correlator,
        pending: PendingEvent,
        now: BootNanos,
    ) -> Option<(String, u32)> {
        let write = correlator.admit(pending, now)?;
        Some(accept(correlator, write))
    }

    fn accept(correlator: &mut Correlator, write: EventWrite) -> (String, u32) {
        let count = write.count + write.known.map_or(0, |known| known.count);
        let known = CreatedEvent { number: 7, count };
        correlator.written(&write.key, known);
        (write.message, count)
    }

    #[test]
    fn a_repeated_message_counts_up_and_another_is_a_separate_event() {
        let mut correlator = Correlator::new();
        let rows = [("a", 1), ("a", 2), ("b", 1), ("a", 3)];
        for (message, count) in rows {
            let got = write(&mut correlator, pending(message), after(0));
            assert_eq!(got, Some((message.to_owned(), count)));
        }
    }

    #[test]
    fn distinct_messages_are_combined_from_the_tenth_on() {
        let mut correlator = Correlator::new();
        for n in 1..10 {
            let got = write(&mut correlator, pending(&n.to_string()), after(0));
            assert_eq!(got, Some((n.to_string(), 1)));
        }
        for (n, count) in [(10, 1), (11, 2), (12, 3)] {
            let got = write(&mut correlator, pending(&n.to_string()), after(600));
            let message = format!("(combined from similar events): {n}");
            assert_eq!(got, Some((message, count)), "still within the window");
        }
        let got = write(&mut correlator, pending("13"), after(1201));
        assert_eq!(got, Some(("13".to_owned(), 1)), "the window is over");
    }

    #[test]
    fn a_group_is_counted_completely_if_another_message_replaces_it() {
        let mut correlator = Correlator::new();
        let group = |message| {
            PendingEvent::once(Draft {
                of: 3,
                ..input("OOMKilling", message)
            })
        };
        let mut got = |event, seconds| write(&mut correlator, event, after(seconds));
        assert_eq!(got(group("a"), 0), Some(("a".to_owned(), 1)));
        for n in 1..9 {
            got(pending(&n.to_string()), 0).unwrap();
        }
        let combined = |text: &str, count| Some((format!("{COMBINED}{text}"), count));
        assert_eq!(got(group("b"), 0), combined("b", 3));
        assert_eq!(got(pending("c"), 0), combined("c", 4));
        for _ in 11..BURST {
            got(pending("c"), 0).unwrap();
        }
        assert_eq!(got(group("d"), 0), None, "delayed");
        assert_eq!(got(pending("e"), 300), combined("e", 22));
        let unknown = pending("OOM kills: the victims are unknown; the count");
        let some = "OOM kills: some victims are unknown; the count";
        assert_eq!(got(unknown, 600), combined(some, 23));
    }

    #[test]
    fn all_sixty_of_a_burst_are_accounted_for() {
        let mut correlator = Correlator::new();
        let written = (0..60)
            .filter_map(|_| write(&mut correlator, pending("same"), after(0)))
            .count();
        assert_eq!(written, 25);
        assert_eq!(correlator.next_due(), Some(after(300)));
        assert_eq!(correlator.release(after(299)), None);
        let released = correlator.release(after(300)).unwrap();
        assert_eq!(accept(&mut correlator, released), ("same".to_owned(), 60));
        assert_eq!(correlator.next_due(), None);
    }

    #[test]
    fn delayed_observations_are_part_of_the_next_write_of_their_reason() {
        let mut correlator = Correlator::new();
        for _ in 0..27 {
            write(&mut correlator, pending("same"), after(0));
        }
        let other = PendingEvent::once(input("PIDLimitReached", "other"));
        assert_eq!(
            write(&mut correlator, other, after(1)),
            None,
            "one bucket for both"
        );
        let got = write(&mut correlator, pending("same"), after(300));
        assert_eq!(got, Some(("same".to_owned(), 28)));
        let last = correlator.release_last().unwrap();
        assert_eq!(accept(&mut correlator, last), ("other".to_owned(), 1));
        assert_eq!(correlator.release_last(), None);
    }

    fn transition(reason: &str, type_: EventType) -> PendingEvent {
        PendingEvent::once(Draft {
            is_transition: true,
            type_,
            ..input(reason, reason)
        })
    }

    #[test]
    fn kills_do_not_delay_events_about_conditions() {
        let mut correlator = Correlator::new();
        for _ in 0..30 {
            write(&mut correlator, pending("same"), after(0));
        }
        for (reason, type_) in [
            ("LowPIDs", EventType::Warning),
            ("EnoughPIDs", EventType::Normal),
        ] {
            let got = write(&mut correlator, transition(reason, type_), after(1));
            assert_eq!(got, Some((reason.to_owned(), 1)));
        }

        let mut backlog = Backlog::default();
        for event in [
            pending("a"),
            transition("LowPIDs", EventType::Warning),
            transition("EnoughPIDs", EventType::Normal),
        ] {
            backlog.push(event, DISTINCT_MESSAGES);
        }
        let order = iter::from_fn(|| backlog.pop());
        let order: Vec<_> = order.map(|pending| pending.newest.message).collect();
        assert_eq!(order, ["LowPIDs", "EnoughPIDs", "a"]);
    }

    #[test]
    fn the_beginning_of_a_condition_is_written_before_its_end() {
        let mut correlator = Correlator::new();
        let mut admit = |reason, type_, seconds| {
            let got = write(&mut correlator, transition(reason, type_), after(seconds));
            got.map(|(message, _)| message)
        };
        let (begins, ends) = (EventType::Warning, EventType::Normal);
        for _ in 0..BURST {
            admit("Flaps", begins, 0).unwrap();
        }
        assert_eq!(admit("Stalled", begins, 1), None, "the limit is reached");
        assert_eq!(admit("NotStalled", ends, 2), None);
        let other = admit("EnoughMemory", ends, 300);
        assert_eq!(other.as_deref(), Some("Stalled"));
        let mut release = |seconds| {
            let write = correlator.release(after(seconds))?;
            Some(accept(&mut correlator, write).0)
        };
        let rest = [600, 600, 900, 1200].map(&mut release);
        let expected = [Some("NotStalled"), None, Some("EnoughMemory"), None];
        assert_eq!(rest.each_ref().map(Option::as_deref), expected);
    }

    #[test]
    fn objects_do_not_share_a_limit_and_containers_of_one_pod_do() {
        let mut correlator = Correlator::new();
        let mut writes = |object| {
            let mut pending = pending("same");
            pending.newest.object = object;
            write(&mut correlator, pending, after(0)).is_some()
        };
        for n in 0..26 {
            let container = format!("spec.containers{{c{}}}", n % 2);
            for object in [Involved::Node, pod("p", "u", Some(&container))] {
                assert_eq!(writes(object), n < 25, "{n}");
            }
        }
    }

    #[test]
    fn delayed_observations_of_a_forgotten_object_are_written() {
        let mut correlator = Correlator::new();
        for _ in 0..28 {
            write(&mut correlator, pending("same"), after(0));
        }
        for n in 0..SUBJECTS {
            assert_eq!(correlator.next_due(), Some(after(300)), "{n}");
            let mut of_pod = pending("same");
            of_pod.newest.object = pod("p", &n.to_string(), None);
            write(&mut correlator, of_pod, after(0));
        }
        assert_eq!(correlator.next_due(), Some(after(0)));
        let released = correlator.release(after(0)).unwrap();
        assert_eq!(accept(&mut correlator, released), ("same".to_owned(), 3));
        assert_eq!(correlator.next_due(), None);
    }
}
