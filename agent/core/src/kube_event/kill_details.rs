//! The users of memory when a limit was reached: read after the Event about the kill was sent, and
//! added to it.

use serde::{Deserialize, Serialize};

use super::Finding;
use crate::escape::quoted;
use crate::pods::LargestMemory;
use crate::reading::memory_use::{LargestProcesses, MemorySplit};
use crate::units::Bytes;

/// The number of processes that are named. More are read, because victims are left out.
const PROCESSES: usize = 3;

/// The number of pods and units that are named. More are read.
const OWNERS: usize = 5;

/// Memory that remains in a cgroup in which all processes were killed is reported if it exceeds
/// what they had, divided by this number.
const REMAINS: u64 = 10;

/// Facts that were read after a kill.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KillDetails {
    /// The memory of the cgroup that reached its limit.
    pub split: Option<MemorySplit>,
    /// A killed process still had memory at that time.
    #[serde(default)]
    pub releasing: bool,
    pub processes: LargestProcesses,
    /// The pods that use most over their request if the limit is that of all pods; also the units
    /// outside of pods if it is the node's.
    pub memory: LargestMemory,
}

impl KillDetails {
    /// Returns true if nothing could be read, for example because the container has ended.
    pub fn is_empty(&self) -> bool {
        self.split.is_none() && self.processes.largest.is_empty() && self.memory.is_empty()
    }

    /// Leaves out processes that were killed, whose sizes are known from before, and those that use
    /// less than 1 % of the limit, unless some processes were not compared. The memory of victims
    /// outside of pods is added to the use of their unit. The memory of a cgroup in which all were
    /// killed is left out, too, unless some of it remains, such as the files of a tmpfs.
    #[must_use]
    pub fn without(mut self, victims: &[Finding]) -> Self {
        let first = victims.first();
        let all_died = first.is_some_and(|first| {
            first.group.is_some() && first.group.as_deref() == first.limiting()
        });
        let had: Bytes = victims.iter().filter_map(Finding::resident_sum).sum();
        let remains = |split: &MemorySplit| had.get() / REMAINS < split.total().get();
        let is_informative = |split: &MemorySplit| !all_died || (!self.releasing && remains(split));
        self.split = self.split.filter(is_informative);
        let is_victim = |pid| victims.iter().any(|victim| victim.victim == pid);
        let limiting = first.and_then(|first| first.scope.as_ref().memcg());
        let usage = limiting.and_then(|limiting| limiting.usage);
        let least = usage.map_or(0, |(_, limit)| limit.get() / 100);
        let least = if self.processes.is_partial { 0 } else { least };
        let largest = &mut self.processes.largest;
        largest.retain(|process| !is_victim(process.pid) && least <= process.resident.get());
        largest.truncate(PROCESSES);
        if self.memory.outside_pods.is_some() {
            for victim in victims {
                if let (Some(unit), Some(had)) = (&victim.unit, victim.resident_sum()) {
                    self.memory.add_killed(unit.clone(), had, !self.releasing);
                }
            }
        }
        self.memory.truncate(OWNERS);
        self
    }

    pub(super) fn sentences(&self, is_in_pod: bool) -> String {
        let split = self.split.as_ref();
        let split = split.map(|it| split_text(it, self.releasing, is_in_pod));
        let facts = [split, self.largest_processes(), self.largest_owners()];
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

    fn largest_owners(&self) -> Option<String> {
        let memory = &self.memory;
        (!memory.is_empty()).then(|| match memory.outside_pods {
            None => format!("The pods that use most memory over their request: {memory}."),
            Some(_) => format!("Most memory was used by {memory}."),
        })
    }

    /// Returns advice about the owner that used most of the node's memory; `None` if it is in pods,
    /// or not known.
    pub(super) fn advice_on_node(&self, victims: &[Finding]) -> Option<String> {
        let largest = self.memory.first()?;
        let in_pods = victims.iter().filter(|victim| victim.unit.is_none());
        let in_pods = in_pods.filter_map(Finding::resident_sum);
        let in_pods = in_pods.map(Bytes::get).fold(0, u64::saturating_add);
        (in_pods < largest.used.get()).then(|| largest.owner.memory_advice())?
    }
}

fn split_text(split: &MemorySplit, releasing: bool, is_in_pod: bool) -> String {
    let files = if is_in_pod {
        "an emptyDir of medium Memory"
    } else {
        "files in a tmpfs"
    };
    let mut parts = vec![
        format!("{} anonymous memory (heaps and stacks)", split.anon),
        format!("{} file cache", split.file),
        format!("{} shared memory (such as {files})", split.shmem),
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
