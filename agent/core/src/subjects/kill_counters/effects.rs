//! What follows from a comparison of the counters.

use super::super::{Decision, Effect, IncidentInput, Input, pass_on};
use crate::escape::escape;
use crate::incident::{Occurred, Occurrence};
use crate::kube_event::KillPlace;

/// Passes incidents on, to be reported by Events.
pub(super) fn report(incidents: Vec<Occurred>) -> Effect {
    pass_on(Input::Incident(IncidentInput::Happened(incidents)))
}

/// Logs those that are reported by number.
pub(super) fn log_reported(incidents: &[Occurred]) -> Vec<Effect> {
    let log = |incident: &Occurred| match &incident.occurrence {
        Occurrence::UnidentifiedKills(counted) => {
            Some(Effect::Log(Decision::KillsReportedByNumber {
                cgroup: match &counted.place {
                    KillPlace::Cgroup(cgroup) => escape(cgroup),
                    KillPlace::NoPod => "outside the pods".to_owned(),
                    KillPlace::Unknown => "unknown".to_owned(),
                },
                kills: counted.kills,
            }))
        }
        Occurrence::Kills(_) | Occurrence::RefusedForks(_) | Occurrence::Volume(_) => None,
    };
    incidents.iter().filter_map(log).collect()
}
