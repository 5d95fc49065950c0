//! Containers that the kernel kills as a whole (`memory.oom.group`).

use serde::{Deserialize, Serialize};

use crate::clock::BootNanos;
use crate::kube_event::{Finding, GROUP, KillOwner};

/// The last group kill.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct GroupKills {
    last: Option<(Option<String>, BootNanos)>,
}

impl GroupKills {
    /// The group kills that begin with these records, of which each has several.
    pub fn begun<'a>(&mut self, findings: &'a [Finding]) -> Vec<(&'a KillOwner, BootNanos)> {
        let begun = findings.iter().filter_map(|finding| self.begins(finding));
        begun.collect()
    }

    fn begins<'a>(&mut self, finding: &'a Finding) -> Option<(&'a KillOwner, BootNanos)> {
        if !finding.is_of_group() {
            return None;
        }
        let (cgroup, at) = (&finding.cgroup, finding.stamp.kernel);
        let last = self.last.replace((cgroup.clone(), at));
        let continues = last.is_some_and(|(of, before)| of == *cgroup && at.since(before) < GROUP);
        (!continues).then_some((&finding.counter, at))
    }
}
