//! The incidents of conditions: the problem that each one ends, and the details of a problem, which
//! may be read while the condition is published.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::details::DetailsWait;
use super::{Incidents, Occurrence};
use crate::incident::IncidentId;
use crate::node_status::ledger::{ConditionChange, LastChange, problem_after};
use crate::node_status::transition::ground;
use crate::reading::Ground;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Conditions {
    /// The incidents with which the present problems began, by type of the condition.
    problems: BTreeMap<String, IncidentId>,
    /// The details of the last problem; `None` while they are read.
    details: Vec<(Ground, Option<String>)>,
}

impl Conditions {
    pub(super) fn new(recorded: &BTreeMap<String, LastChange>) -> Self {
        let problems = recorded.iter();
        let problems = problems.filter_map(|(type_, last)| Some((type_.clone(), last.problem?)));
        Self {
            problems: problems.collect(),
            details: Vec::new(),
        }
    }

    /// Adds what is known to a change, which is the incident `id`.
    pub(super) fn changed(&mut self, change: &mut ConditionChange, id: IncidentId) {
        let is_problem = change.is_problem();
        let before = self.problems.remove(&change.type_);
        match problem_after(before, is_problem, Some(id)) {
            Some(problem) => {
                self.problems.insert(change.type_.clone(), problem);
            }
            None => change.ended = before,
        }
        if is_problem == Some(true) {
            let known = self.of(change).and_then(|(_, known)| known.clone());
            change.details = known.filter(|text| !text.is_empty());
        }
    }

    pub(super) fn wait_for_details(&self, change: &ConditionChange) -> DetailsWait {
        match self.of(change) {
            Some((_, None)) if change.is_problem() == Some(true) => DetailsWait::Reading,
            Some(_) | None => DetailsWait::Ended,
        }
    }

    /// Returns the details of what the condition depends on.
    fn of(&self, change: &ConditionChange) -> Option<&(Ground, Option<String>)> {
        let of = ground(&change.type_)?;
        self.details.iter().find(|(ground, _)| *ground == of)
    }

    fn set(&mut self, of: Ground, details: Option<&str>) {
        self.details.retain(|(ground, _)| *ground != of);
        self.details.push((of, details.map(str::to_owned)));
    }
}

impl Incidents {
    /// Records details, or that they are being read (`None`). The incident that waits for them is
    /// settled when the next input comes, which is due at once.
    pub fn condition_details(&mut self, of: Ground, details: Option<&str>) {
        self.conditions.set(of, details);
        for open in &mut self.open {
            if let Occurrence::Condition(change) = &mut open.incident.occurred.occurrence
                && open.details == DetailsWait::Reading
                && let Some((_, Some(details))) = self.conditions.of(change)
            {
                open.details = DetailsWait::Ended;
                change.details = Some(details.clone()).filter(|text| !text.is_empty());
            }
        }
    }
}
