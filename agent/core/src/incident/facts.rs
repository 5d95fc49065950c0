//! An incident: what happened, to whom, and what was found out about it.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::IncidentId;
use crate::black_box::{AgentGap, BootEnd};
use crate::clock::{BootNanos, Now, Stamp};
use crate::kube_event::{
    ContainerLabel, Finding, KillDetails, Kills, RefusedForks, ReportedKills, UnidentifiedKills,
    VictimOwner, VolumeTrouble,
};
use crate::node_status::ledger::ConditionChange;
use crate::pods::{Pod, PodRef};

/// One thing that happened. A revision is a whole value: it replaces the ones before it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Incident {
    pub id: IncidentId,
    /// From 1 on, at most 4.
    pub revision: u8,
    /// It is the last revision.
    pub settled: bool,
    /// The number of kills that earlier revisions did not have.
    pub added: u64,
    pub object: Object,
    pub occurred: Occurred,
    /// Who used the memory, if that was read after a kill.
    pub details: Option<KillDetails>,
}

/// The object of an incident, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// `None`: the incident was in no pod, or in one that is not known.
    pub pod: Option<Pod>,
    /// The container of the pod in which it happened, if in one.
    pub container: Option<ContainerLabel>,
    /// No more will be known.
    pub is_resolved: bool,
}

/// What happened, before it has an id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Occurred {
    /// `None` if it happened in no pod, or in one that cannot be known.
    pub pod: Option<PodRef>,
    pub at: SystemTime,
    /// The time of the last killed process; otherwise the same.
    pub until: SystemTime,
    /// Set if the kernel recorded the occurrence.
    pub stamp: Option<Stamp>,
    /// The kills that it reports, by the kernel's counters that include them.
    pub kills: ReportedKills,
    pub occurrence: Occurrence,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Occurrence {
    Kills(Kills),
    UnidentifiedKills(UnidentifiedKills),
    RefusedForks(RefusedForks),
    Volume(VolumeTrouble),
    Condition(ConditionChange),
    /// The first start after a boot: how the last one ended.
    Boot(Box<BootEnd>),
    /// No agent ran for a time.
    Gap(AgentGap),
}

/// Groups kills by their causes, in order.
pub fn by_cause(findings: Vec<Finding>, now: Now) -> Vec<Occurred> {
    let mut groups: Vec<Vec<Finding>> = Vec::new();
    for finding in findings {
        let cause = finding.cause.number;
        let has_cause = |group: &&mut Vec<Finding>| {
            let first = group.first();
            first.is_some_and(|first| first.cause.number == cause)
        };
        match groups.iter_mut().find(has_cause) {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    let occurred = |group: Vec<Finding>| {
        let first = group.first()?;
        let last = group.iter().map(|one| one.stamp.kernel).max()?;
        Some(Occurred {
            pod: match &first.owner {
                VictimOwner::Pod(pod) => Some(pod.clone()),
                VictimOwner::UnknownPod | VictimOwner::NoPod => None,
            },
            at: now.wall_at(first.stamp.kernel),
            until: now.wall_at(last),
            stamp: Some(first.stamp),
            kills: reported(&group),
            occurrence: Occurrence::Kills(group.into()),
        })
    };
    groups.into_iter().filter_map(occurred).collect()
}

fn reported(group: &[Finding]) -> ReportedKills {
    let mut kills = ReportedKills::default();
    for finding in group {
        kills.add(finding.counter.clone(), 1);
    }
    kills
}

impl Incident {
    /// Returns the kills that earlier revisions did not have, as the kernel counts them: usually
    /// the first victim of a group twice.
    pub fn added_kills(&self) -> ReportedKills {
        let kills = &self.occurred.kills;
        let mut added = kills.beyond(kills.total().saturating_sub(self.added));
        if self.revision == 1 && self.occurred.has_first_of_group() {
            added.repeat_first();
        }
        added
    }
}

impl Occurred {
    fn has_first_of_group(&self) -> bool {
        match &self.occurrence {
            Occurrence::Kills(kills) => kills.findings.iter().any(Finding::is_first_of_group),
            _ => false,
        }
    }

    /// `cause`: the kernel's record because of which the condition changed.
    pub fn condition(change: ConditionChange, cause: Option<Stamp>, now: Now) -> Self {
        let at = cause.map_or(now.wall, |stamp| now.wall_at(stamp.kernel));
        Self {
            stamp: cause,
            ..Self::of_node(Occurrence::Condition(change), at)
        }
    }

    /// `booted`: when the next boot began.
    pub fn boot(end: BootEnd, last_record: SystemTime, booted: SystemTime) -> Self {
        Self {
            until: booted.max(last_record),
            ..Self::of_node(Occurrence::Boot(Box::new(end)), last_record)
        }
    }

    pub fn gap(gap: AgentGap, length: Duration, now: Now) -> Self {
        let begin = now.wall.checked_sub(length).unwrap_or(now.wall);
        Self {
            until: now.wall,
            ..Self::of_node(Occurrence::Gap(gap), begin)
        }
    }

    fn of_node(occurrence: Occurrence, at: SystemTime) -> Self {
        Self {
            pod: None,
            at,
            until: at,
            stamp: None,
            kills: ReportedKills::default(),
            occurrence,
        }
    }

    /// Returns the time of the first fact, for the id. A start that repeats the decision about the
    /// last boot gives it the same id.
    pub fn first_fact(&self, now: BootNanos) -> BootNanos {
        match (&self.occurrence, self.stamp) {
            (Occurrence::Boot(_), _) => BootNanos(0),
            (_, stamp) => stamp.map_or(now, |stamp| stamp.kernel),
        }
    }

    /// Returns the cause of the kills, if their records came.
    pub fn cause(&self) -> Option<u64> {
        Some(self.first_kill()?.cause.number)
    }

    pub fn first_kill(&self) -> Option<&Finding> {
        match &self.occurrence {
            Occurrence::Kills(kills) => kills.first(),
            Occurrence::UnidentifiedKills(_)
            | Occurrence::RefusedForks(_)
            | Occurrence::Volume(_)
            | Occurrence::Condition(_)
            | Occurrence::Boot(_)
            | Occurrence::Gap(_) => None,
        }
    }

    /// Returns the kernel's time of the last killed process.
    pub fn last_kill(&self) -> Option<BootNanos> {
        match &self.occurrence {
            Occurrence::Kills(kills) => kills.findings.iter().map(|one| one.stamp.kernel).max(),
            Occurrence::UnidentifiedKills(_)
            | Occurrence::RefusedForks(_)
            | Occurrence::Volume(_)
            | Occurrence::Condition(_)
            | Occurrence::Boot(_)
            | Occurrence::Gap(_) => None,
        }
    }

    /// Returns the number of killed processes.
    pub fn killed(&self) -> u64 {
        match &self.occurrence {
            Occurrence::Kills(kills) => kills.count(),
            Occurrence::UnidentifiedKills(counted) => counted.kills,
            Occurrence::RefusedForks(_)
            | Occurrence::Volume(_)
            | Occurrence::Condition(_)
            | Occurrence::Boot(_)
            | Occurrence::Gap(_) => 0,
        }
    }

    /// Adds further processes that were killed for the same cause.
    pub fn add(&mut self, later: Self) {
        if let (Occurrence::Kills(kills), Occurrence::Kills(further)) =
            (&mut self.occurrence, &later.occurrence)
        {
            kills.add(further);
            self.kills.add_all(later.kills);
            self.until = self.until.max(later.until);
        }
    }

    /// Names the container of the process that requested memory, if only its id is known.
    pub fn name_trigger(&mut self, name: impl FnOnce(&str) -> ContainerLabel) {
        if let Occurrence::Kills(kills) = &mut self.occurrence
            && let Some(first) = kills.findings.first_mut()
            && let Some(ContainerLabel::Id(id)) = &first.trigger_container
        {
            first.trigger_container = Some(name(id));
        }
    }
}
