//! OOM incidents in pods, for `FrequentOOMKills`: one for each decision of the kernel, however many
//! processes die.

use super::super::Input;
use crate::clock::BootNanos;
use crate::incident::{Occurred, Occurrence};
use crate::kube_event::{Finding, Period, VictimOwner};

/// Returns the incidents in pods that begin with these kills. A kill of which the pod is not
/// certain counts for none: a tenant may have chosen the names.
pub(super) fn new_in_pods(findings: &[Finding]) -> Vec<Input> {
    let one = |finding: &Finding| {
        let VictimOwner::Pod(pod) = &finding.owner else {
            return None;
        };
        let (pod, at) = (pod.pod.clone(), finding.stamp.kernel);
        finding
            .cause
            .is_first
            .then_some(Input::OomIncident { pod, at })
    };
    findings.iter().filter_map(one).collect()
}

/// The incidents in pods that were only counted. How many decisions of the kernel they were is not
/// known, so each reading is one for each pod. Those of before a restart have no time.
pub(super) fn counted_in_pods(incidents: &[Occurred], now: BootNanos) -> Vec<Input> {
    let one = |incident: &Occurred| {
        let Occurrence::UnidentifiedKills(counted) = &incident.occurrence else {
            return None;
        };
        let pod = incident.pod.as_ref()?.pod.clone();
        let is_new = counted.period == Period::Now && incident.killed() > 0;
        is_new.then_some(Input::OomIncident { pod, at: now })
    };
    incidents.iter().filter_map(one).collect()
}
