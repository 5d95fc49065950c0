//! Who used the memory when a limit was reached: read after the Event about the kill was sent, and
//! added to it.

use serde::{Deserialize, Serialize};

use super::Finding;
use crate::escape::quoted;
use crate::reading::memory_use::{LargestProcesses, MemorySplit};
use crate::reading::pods::{PodMemory, QosClass};

/// Processes that are named. More are read, because victims are left out.
const PROCESSES: usize = 3;

/// What was read after a kill.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KillDetails {
    /// The memory of the cgroup that reached its limit.
    pub split: Option<MemorySplit>,
    /// Whether a killed process still had memory then.
    #[serde(default)]
    pub releasing: bool,
    /// Its largest processes.
    pub processes: LargestProcesses,
    /// For a limit of the node or of all pods: the pods that use most over their request, with names.
    pub pods: Vec<(String, PodMemory)>,
}

impl KillDetails {
    /// Whether nothing could be read, for example because the container has ended.
    pub fn is_empty(&self) -> bool {
        self.split.is_none() && self.processes.largest.is_empty() && self.pods.is_empty()
    }

    /// Leaves out processes that were killed: their sizes are known from before.
    #[must_use]
    pub fn without(mut self, victims: &[Finding]) -> Self {
        let is_victim = |pid| victims.iter().any(|victim| victim.victim == pid);
        let largest = &mut self.processes.largest;
        largest.retain(|process| !is_victim(process.pid));
        largest.truncate(PROCESSES);
        self
    }

    pub(super) fn sentences(&self) -> String {
        let split = self.split.as_ref().map(|it| split(it, self.releasing));
        let facts = [split, self.largest_processes(), self.largest_pods()];
        let facts: Vec<_> = facts.into_iter().flatten().collect();
        facts.join(" ")
    }

    fn largest_processes(&self) -> Option<String> {
        let LargestProcesses {
            largest,
            compared,
            is_partial,
        } = &self.processes;
        let named = largest.iter();
        let named: Vec<_> = named
            .map(|one| {
                let comm = quoted(&one.comm);
                format!("{} ({comm}) with {}", one.pid, one.resident)
            })
            .collect();
        let among = if *is_partial {
            format!(" of the first {compared} of more than {compared}")
        } else {
            String::new()
        };
        (!named.is_empty())
            .then(|| format!("The largest other processes{among}: {}.", named.join(", ")))
    }

    fn largest_pods(&self) -> Option<String> {
        let named = |(name, pod): &(String, PodMemory)| match pod.class {
            QosClass::BestEffort => format!("{name} ({} without a request)", pod.used),
            QosClass::Burstable | QosClass::Guaranteed => {
                format!("{name} ({} with a request of {})", pod.used, pod.request)
            }
        };
        let named: Vec<_> = self.pods.iter().map(named).collect();
        (!named.is_empty()).then(|| {
            let named = named.join(", ");
            format!("The pods that use most memory over their request: {named}.")
        })
    }
}

fn split(split: &MemorySplit, releasing: bool) -> String {
    let mut parts = vec![
        format!("{} anonymous memory (heaps and stacks)", split.anon),
        format!("{} file cache", split.file),
        format!(
            "{} shared memory (such as an emptyDir of medium Memory)",
            split.shmem
        ),
    ];
    let kernel = split.kernel.map(|bytes| format!("{bytes} kernel memory"));
    let sockets = split.sockets.map(|bytes| format!("{bytes} socket buffers"));
    parts.extend([kernel, sockets].into_iter().flatten());
    let when = if releasing {
        "while killed processes still release their memory"
    } else {
        "after the kill"
    };
    format!("In use {when}: {}.", parts.join(", "))
}
