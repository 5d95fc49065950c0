//! OOM incidents in pods, for `FrequentOOMKills`: one for each decision of the kernel, however many
//! processes die.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::super::Input;
use crate::clock::BootNanos;
use crate::kube_event::{Finding, GROUP, Incident, Occurrence, Period};
use crate::pods::PodId;

/// Causes that are remembered; more than groups are ever killed at the same time.
const REMEMBERED: usize = 8;

/// The causes of the last kills, each with the time of its last one. The records of a large group
/// that is killed together may arrive in several batches.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct RecentCauses {
    /// The oldest first.
    last: VecDeque<(Finding, BootNanos)>,
}

impl RecentCauses {
    /// The incidents in pods that are not the rest of one that was counted. A kill of which the pod
    /// is not certain counts for none: a tenant may have chosen the names.
    pub(super) fn new_in_pods(&mut self, incidents: &[Incident]) -> Vec<Input> {
        let one = |incident| {
            let (pod, kills) = in_pod(incident)?;
            let Occurrence::Kills(kills) = kills else {
                return None;
            };
            let first = kills.first()?;
            let is_new = self.is_new(first, &kills.findings);
            let at = first.stamp.kernel;
            is_new.then_some(Input::OomIncident { pod, at })
        };
        incidents.iter().filter_map(one).collect()
    }

    fn is_new(&mut self, first: &Finding, group: &[Finding]) -> bool {
        let ended = group.iter().map(|finding| finding.stamp.kernel).max();
        let ended = ended.unwrap_or(first.stamp.kernel);
        let same = |(finding, at): &(Finding, BootNanos)| {
            finding.has_the_cause_of(first) && first.stamp.kernel.since(*at) < GROUP
        };
        let known = self.last.iter().position(same);
        let known = known.and_then(|index| self.last.remove(index));
        let is_new = known.is_none();
        let finding = known.map_or_else(|| first.clone(), |(finding, _)| finding);
        self.last.push_back((finding, ended));
        if self.last.len() > REMEMBERED {
            self.last.pop_front();
        }
        is_new
    }
}

/// The incidents in pods that were only counted. How many decisions of the kernel they were is not
/// known, so each reading is one for each pod. Those of before a restart have no time.
pub(super) fn counted_in_pods(incidents: &[Incident], now: BootNanos) -> Vec<Input> {
    let one = |incident| {
        let (pod, occurrence) = in_pod(incident)?;
        let Occurrence::UnidentifiedKills(counted) = occurrence else {
            return None;
        };
        let is_new = counted.period == Period::Now && incident.new_kills() > 0;
        is_new.then_some(Input::OomIncident { pod, at: now })
    };
    incidents.iter().filter_map(one).collect()
}

fn in_pod(incident: &Incident) -> Option<(PodId, &Occurrence)> {
    let pod = incident.pod.as_ref()?.pod.clone();
    Some((pod, &incident.occurrence))
}
