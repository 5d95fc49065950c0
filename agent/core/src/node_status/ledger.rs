//! The ledger: the status of the node, the time since which each condition has its status, and what
//! the API server has of it.
//!
//! ```text
//! facts ──► Ledger::update ──► Computed ──► Computed::at(stored, now) ──► NodeStatus
//!                │         (without times)
//!                └──► Update: the changes
//! ```
//!
//! A status is computed here once for each change of the facts. The status writer, the metrics,
//! `explain`, `status` and a dry run all read what was computed.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::setters::{self, SetterError, Setters, ready};
use super::transition::{EventType, is_of_kubelet};
use super::{Condition, Facts, NodeStatus, Status, StoredNode};
use crate::clock::Now;
use crate::incident::IncidentId;
use crate::units::quantity::Quantity;

type Capacity = BTreeMap<String, Quantity>;

/// The number of times that each condition became True since the start, by type, and the condition
/// as of the last time.
pub type Began = BTreeMap<String, (u64, Condition)>;

/// A computed status. Its conditions have no times before it is compared with a stored Node.
#[derive(Debug, Clone)]
pub struct Computed {
    setters: Setters,
    facts: Facts,
    /// Stored capacity of keys that setters did not compute, on which they may depend.
    others: Capacity,
    status: NodeStatus,
    failed: Vec<(&'static str, SetterError)>,
    began: Arc<Began>,
}

impl Computed {
    fn new(setters: Setters, facts: Facts, stored: &Capacity) -> Self {
        let (status, failed) = setters::compute(setters, &facts, stored);
        Self {
            setters,
            others: others(&status, stored),
            facts,
            status,
            failed,
            began: Arc::default(),
        }
    }

    /// Returns the status at `now` of a Node that is stored like this.
    ///
    /// Another writer may have changed the capacity of keys that are not computed here. Only then,
    /// setters run again.
    pub fn at(&self, stored: &StoredNode, now: Now) -> NodeStatus {
        if others(&self.status, &stored.capacity) == self.others {
            return self.status.stamped(stored, now);
        }
        let again = Self::new(self.setters, self.facts.clone(), &stored.capacity);
        again.status.stamped(stored, now)
    }

    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Returns how often each condition became True, this status included.
    pub fn began(&self) -> &Arc<Began> {
        &self.began
    }
}

fn others(status: &NodeStatus, stored: &Capacity) -> Capacity {
    let stored = stored.iter();
    let others = stored.filter(|(key, _)| !status.capacity.contains_key(*key));
    others.map(|(key, size)| (key.clone(), *size)).collect()
}

/// A condition of the node that has another status than before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConditionChange {
    pub type_: String,
    pub status: Status,
    /// The reason and the message of the condition.
    pub reason: String,
    pub message: String,
    /// Numbers and causes, if it is a problem whose details are known.
    #[serde(default)]
    pub details: Option<String>,
    /// The incident of the problem that ended, if that is known.
    #[serde(default)]
    pub ended: Option<IncidentId>,
}

impl ConditionChange {
    fn new(condition: &Condition) -> Self {
        Self {
            type_: condition.type_.clone(),
            status: condition.status,
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            details: None,
            ended: None,
        }
    }

    fn removed(type_: &str) -> Self {
        Self {
            type_: type_.to_owned(),
            status: Status::Unknown,
            reason: NOT_REPORTED.to_owned(),
            message: format!("the agent no longer writes the condition {type_}"),
            details: None,
            ended: None,
        }
    }

    /// Returns the message of the Event on the Node, and its type; `None` for a kubelet's
    /// conditions, whose Events follow the patch.
    pub fn event(&self, node: &str) -> Option<(EventType, String)> {
        if is_of_kubelet(&self.type_) {
            return None;
        }
        let type_ = match self.status {
            Status::True => EventType::Warning,
            Status::False | Status::Unknown => EventType::Normal,
        };
        let (reason, message) = (&self.reason, &self.message);
        let details = self.details.as_ref();
        let details = details.map_or_else(String::new, |details| format!("; {details}"));
        let message = format!("Node {node} status is now: {reason} ({message}){details}");
        Some((type_, message))
    }

    /// Returns true if it is a problem, and false if it is the end of one; `None` for Unknown.
    pub fn is_problem(&self) -> Option<bool> {
        let is_removed = self.reason == NOT_REPORTED;
        is_problem(&self.type_, self.status).or(is_removed.then_some(false))
    }
}

/// Returns true if a condition with this status is a problem; `None` for Unknown.
fn is_problem(type_: &str, status: Status) -> Option<bool> {
    match status {
        Status::True => Some(type_ != ready::TYPE),
        Status::False => Some(type_ == ready::TYPE),
        Status::Unknown => None,
    }
}

/// The last change of a condition that the history has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastChange {
    pub status: Status,
    /// The incident with which the problem began that is not over.
    pub problem: Option<IncidentId>,
}

/// Returns the incident with which the problem began that is not over after the change `id`, of
/// which `is_problem` is [`ConditionChange::is_problem`]. The condition can be Unknown in between.
pub fn problem_after(
    before: Option<IncidentId>,
    is_problem: Option<bool>,
    id: Option<IncidentId>,
) -> Option<IncidentId> {
    match is_problem {
        Some(true) => before.or(id),
        Some(false) => None,
        None => before,
    }
}

/// The reason of a change to Unknown if the condition is no longer written.
pub const NOT_REPORTED: &str = "NotReported";

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Update {
    /// The status, reason or message of a condition has changed.
    pub conditions: bool,
    /// Types of the conditions whose status has changed.
    pub transitions: Vec<String>,
    /// Types of the conditions that became True, new ones included.
    pub began: Vec<String>,
    /// Types of the conditions that are not True any more, or were removed.
    pub ended: Vec<String>,
    /// The changes that are incidents: each change of a status, and new conditions that are True.
    pub changes: Vec<ConditionChange>,
}

/// The only place that computes a status.
#[derive(Debug)]
pub struct Ledger {
    computed: Arc<Computed>,
    conditions: Vec<Condition>,
    /// The times since which the conditions have their status: as stored, or by the last update.
    since: StoredNode,
    /// `since` was replaced after the last update.
    found: bool,
    /// The conditions of the Node as of the last answer; `None` before the first.
    on_node: Option<Vec<Condition>>,
}

impl Ledger {
    /// Computes the first status. A condition that is True in it is no transition.
    pub fn new(setters: Setters, facts: &Facts, now: Now) -> Self {
        let computed = Computed::new(setters, facts.clone(), &Capacity::new());
        let mut ledger = Self {
            computed: Arc::new(computed),
            conditions: Vec::new(),
            since: StoredNode::default(),
            found: false,
            on_node: None,
        };
        ledger.settle(now);
        ledger
    }

    /// Computes the status if these facts are not those of the last computation.
    pub fn update(&mut self, facts: &Facts, now: Now) -> Update {
        let changed = self.computed.facts != *facts;
        if changed {
            let (setters, stored) = (self.computed.setters, &self.since.capacity);
            let began = Arc::clone(&self.computed.began);
            let computed = Computed::new(setters, facts.clone(), stored);
            self.computed = Arc::new(Computed { began, ..computed });
        }
        let found = std::mem::take(&mut self.found);
        if changed || found {
            self.settle(now)
        } else {
            Update::default()
        }
    }

    /// Takes over the conditions of the computed status.
    fn settle(&mut self, now: Now) -> Update {
        let conditions = self.status(now).conditions;
        let before = std::mem::replace(&mut self.conditions, conditions);
        self.since.conditions.clone_from(&self.conditions);
        let text = |c: &Condition| (c.status, c.reason.clone(), c.message.clone());
        let mut update = Update {
            conditions: !before.iter().map(text).eq(self.conditions.iter().map(text)),
            transitions: Vec::new(),
            began: true_only_in(&self.conditions, &before),
            ended: true_only_in(&before, &self.conditions),
            changes: Vec::new(),
        };
        for type_ in &update.ended {
            if !self.conditions.iter().any(|one| one.type_ == *type_) {
                update.changes.push(ConditionChange::removed(type_));
            }
        }
        for condition in &self.conditions {
            let before = before.iter().find(|before| before.type_ == condition.type_);
            if before.is_some_and(|before| before.status != condition.status) {
                update.transitions.push(condition.type_.clone());
            }
            if update.transitions.contains(&condition.type_)
                || update.began.contains(&condition.type_)
            {
                update.changes.push(ConditionChange::new(condition));
            }
            if update.began.contains(&condition.type_) {
                let began = Arc::make_mut(&mut Arc::make_mut(&mut self.computed).began);
                let times = began.get(&condition.type_).map_or(0, |(times, _)| *times);
                began.insert(condition.type_.clone(), (times + 1, condition.clone()));
            }
        }
        update
    }

    /// Returns the changes since the last agent: what differs from the history, and problems of
    /// which it has nothing.
    pub fn changes_since(&self, last: &BTreeMap<String, LastChange>) -> Vec<ConditionChange> {
        let differs = |condition: &&Condition| match last.get(&condition.type_) {
            Some(last) => last.status != condition.status,
            None => is_problem(&condition.type_, condition.status) == Some(true),
        };
        let changed = self.conditions.iter().filter(differs);
        let has = |type_: &String| self.conditions.iter().any(|one| one.type_ == *type_);
        let removed = last
            .iter()
            .filter(|(type_, last)| last.problem.is_some() && !has(type_));
        let removed = removed.map(|(type_, _)| ConditionChange::removed(type_));
        changed.map(ConditionChange::new).chain(removed).collect()
    }

    /// Records the stored Node as it was found: a condition that is as stored has been so since the
    /// stored moment. Must be called before the facts that follow from it are updated.
    pub fn record_stored(&mut self, node: &StoredNode) {
        self.since = node.clone();
        self.found = true;
        self.record_on_node(&node.conditions);
    }

    /// Records the conditions that the API server has by now.
    pub fn record_on_node(&mut self, conditions: &[Condition]) {
        self.on_node = Some(conditions.to_vec());
    }

    /// Returns the conditions of the Node as of the last answer; `None` before the first.
    pub fn on_node(&self) -> Option<&[Condition]> {
        self.on_node.as_deref()
    }

    /// Returns the status that should be at the API server at `now`.
    pub fn status(&self, now: Now) -> NodeStatus {
        self.computed.at(&self.since, now)
    }

    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    pub fn computed(&self) -> Arc<Computed> {
        Arc::clone(&self.computed)
    }

    /// Returns the parts that could not be computed, with the reasons.
    pub fn failed(&self) -> &[(&'static str, SetterError)] {
        &self.computed.failed
    }
}

fn true_only_in(some: &[Condition], others: &[Condition]) -> Vec<String> {
    let is_true = |c: &&Condition| c.status == Status::True;
    let not_in_others = |c: &&Condition| {
        let mut others = others.iter().filter(is_true);
        !others.any(|other| other.type_ == c.type_)
    };
    let only = some.iter().filter(is_true).filter(not_in_others);
    only.map(|c| c.type_.clone()).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::BootNanos;
    use crate::node_status::fixture::{facts, now, stored, wall};
    use crate::node_status::setters::SETTERS;
    use crate::pressure::Pressure;
    use crate::reading::Resource;

    const UNDER: Pressure = Pressure::UnderPressure {
        last_exceeded: BootNanos(1),
    };

    fn later(seconds: u64) -> Now {
        let now = now();
        Now {
            boot: now.boot.plus(Duration::from_secs(seconds)),
            wall: now.wall + Duration::from_secs(seconds),
        }
    }

    fn short_of_memory() -> Facts {
        let mut facts = facts();
        facts.pressures.insert(Resource::Memory, UNDER);
        facts
    }

    fn ledger() -> Ledger {
        Ledger::new(SETTERS, &facts(), now())
    }

    #[test]
    fn facts_that_stay_are_not_computed_again_and_every_change_is_reported_once() {
        let mut ledger = ledger();
        let computed = ledger.computed();
        assert_eq!(ledger.update(&facts(), later(10)), Update::default());
        assert!(Arc::ptr_eq(&computed, &ledger.computed()));

        let memory = || vec!["MemoryPressure".to_owned()];
        let change = |status, reason: &str, message: &str| ConditionChange {
            type_: "MemoryPressure".to_owned(),
            status,
            reason: reason.to_owned(),
            message: message.to_owned(),
            details: None,
            ended: None,
        };
        let insufficient = "kubelet has insufficient memory available";
        let began = Update {
            conditions: true,
            transitions: memory(),
            began: memory(),
            ended: Vec::new(),
            changes: vec![change(
                Status::True,
                "KubeletHasInsufficientMemory",
                insufficient,
            )],
        };
        assert_eq!(ledger.update(&short_of_memory(), later(20)), began);

        let mut longer = short_of_memory();
        let last_exceeded = BootNanos(2);
        let pressure = Pressure::UnderPressure { last_exceeded };
        longer.pressures.insert(Resource::Memory, pressure);
        assert_eq!(ledger.update(&longer, later(30)), Update::default());
        let sufficient = "kubelet has sufficient memory available";
        let ended = Update {
            began: Vec::new(),
            ended: memory(),
            changes: vec![change(
                Status::False,
                "KubeletHasSufficientMemory",
                sufficient,
            )],
            ..began
        };
        assert_eq!(ledger.update(&facts(), later(40)), ended);
    }

    #[test]
    fn a_change_has_an_event_unless_it_is_of_a_kubelets_condition() {
        let normal = |text: &str| Some(format!("Normal Node w status is now: {text}"));
        #[rustfmt::skip]
        let rows = [
            ("DiskIOPressure", Status::True, None, Some("Warning Node w status is now: r (m)".to_owned())),
            ("DiskIOPressure", Status::True, Some("d"), Some("Warning Node w status is now: r (m); d".to_owned())),
            ("DiskIOPressure", Status::False, None, normal("r (m)")),
            ("MemoryLow", Status::Unknown, None, normal("r (m)")),
            ("DiskPressure", Status::Unknown, None, None),
            ("DiskPressure", Status::True, None, None),
            ("MemoryPressure", Status::False, None, None),
            ("Ready", Status::Unknown, None, None),
        ];
        for (type_, status, details, expected) in rows {
            let change = ConditionChange {
                details: details.map(str::to_owned),
                ..ConditionChange::new(&stored(type_, status, "r", "m"))
            };
            let event = change.event("w");
            let event = event.map(|(type_, message)| format!("{} {message}", type_.as_str()));
            assert_eq!(event, expected, "{type_} {status:?}");
        }
    }

    #[test]
    fn the_changes_since_the_last_agent_are_what_the_history_does_not_have() {
        use Status::{False, True, Unknown};

        let ledger = |facts| Ledger::new(SETTERS, &facts, now());
        let memory = "MemoryPressure";
        let rows = [
            (facts(), None, None, "nothing is known and nothing is wrong"),
            (short_of_memory(), None, Some(True), "a problem that is new"),
            (short_of_memory(), Some((memory, True)), None, "it is known"),
            (
                short_of_memory(),
                Some((memory, False)),
                Some(True),
                "it began meanwhile",
            ),
            (
                facts(),
                Some((memory, True)),
                Some(False),
                "it ended meanwhile",
            ),
            (facts(), Some((memory, False)), None, "it had ended"),
            (
                facts(),
                Some(("Ready", False)),
                Some(True),
                "the node became ready",
            ),
            (
                facts(),
                Some(("Removed", True)),
                Some(Unknown),
                "it is no longer written",
            ),
            (
                facts(),
                Some(("Removed", False)),
                None,
                "and was no problem",
            ),
        ];
        let incident = IncidentId {
            boot: crate::incident::BootId(1),
            number: 1,
        };
        for (facts, recorded, expected, why) in rows {
            let last = |(type_, status): (&str, Status)| {
                let problem = (is_problem(type_, status) == Some(true)).then_some(incident);
                (type_.to_owned(), LastChange { status, problem })
            };
            let recorded: BTreeMap<_, _> = recorded.map(last).into_iter().collect();
            let changes = ledger(facts).changes_since(&recorded);
            let type_ = recorded.keys().next().map_or(memory, String::as_str);
            let expected = expected.map(|status| (type_, status));
            let found = changes
                .iter()
                .map(|change| (change.type_.as_str(), change.status));
            assert_eq!(found.collect::<Vec<_>>(), Vec::from_iter(expected), "{why}");
        }
    }

    #[test]
    fn a_condition_is_so_since_the_stored_moment_if_it_is_so_by_the_facts_that_follow() {
        let before = stored("MemoryPressure", Status::True, "Theirs", "theirs");
        let node = StoredNode {
            conditions: vec![before.clone()],
            ..StoredNode::default()
        };
        let since = |ledger: &Ledger| {
            let mut found = ledger.conditions().iter();
            let found = found.find(|c| c.type_ == "MemoryPressure");
            found.unwrap().last_transition_time
        };
        let mut ledger = ledger();
        ledger.record_stored(&node);
        ledger.update(&short_of_memory(), later(20));
        assert_eq!(since(&ledger), before.last_transition_time, "kept");
        assert_eq!(ledger.on_node().unwrap(), [before]);

        let mut ledger = self::ledger();
        ledger.record_stored(&node);
        ledger.update(&facts(), later(20));
        assert_eq!(since(&ledger), wall(1_800_000_020), "it is not so");
    }

    #[test]
    fn capacity_of_another_writer_is_handed_out_also_if_it_came_after_the_computation() {
        let gpus = Quantity::from_count(2);
        let node = StoredNode {
            capacity: [("example.com/gpu".to_owned(), gpus)].into(),
            ..StoredNode::default()
        };
        let handed_out = |status: NodeStatus| status.allocatable.get("example.com/gpu").copied();
        let computed = ledger().computed();
        assert_eq!(handed_out(computed.at(&node, now())), Some(gpus));
        assert_eq!(handed_out(computed.at(&StoredNode::default(), now())), None);
    }
}
