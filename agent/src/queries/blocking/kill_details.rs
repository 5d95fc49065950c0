//! The users of the memory before an OOM kill.

use std::thread;
use std::time::Duration;

use nodepulse_core::pods::LargestMemory;
use nodepulse_core::subjects::incidents::{DetailsOf, DetailsRead};
use nodepulse_core::units::Pid;
use nodepulse_linux::host::HostRoot;
use nodepulse_linux::host::cgroup::memory_use::has_memory;
use nodepulse_linux::host::cgroup::pods::PodsPath;
use nodepulse_linux::host::cgroup::{Hierarchy, memory_use};
use tracing::debug;

use super::largest_owners;
use crate::queries::cgroups::page_size;

/// Maximum number of processes of a cgroup. A message names fewer, without the victims.
const PROCESSES: usize = 8;
/// Maximum number of pods that use more than they request, and of units outside of pods.
const OWNERS: usize = 5;
/// Interval between two checks whether the victims have released their memory.
const STEP: Duration = Duration::from_millis(2);
/// Maximum number of these checks. A process with many gigabytes takes longer to release them.
const CHECKS: usize = 12;

/// Leaves out what cannot be read: a container often ends meanwhile.
pub(super) fn read(root: &HostRoot, pods: &PodsPath, of: &DetailsOf) -> DetailsRead {
    let Some(layout) = pods.layout() else {
        return DetailsRead::default();
    };
    match of {
        DetailsOf::Cgroup {
            path,
            victims,
            group,
        } => of_cgroup(root, &layout.memory, path, victims, group.as_deref()),
        DetailsOf::Pods => DetailsRead {
            memory: of_pods(root, &layout.memory, pods.path()),
            ..DetailsRead::default()
        },
        DetailsOf::Node { victims } => DetailsRead {
            releasing: !wait_for_release(root, victims),
            memory: largest_owners::memory(root, pods, OWNERS),
            ..DetailsRead::default()
        },
    }
}

fn of_cgroup(
    root: &HostRoot,
    memory: &Hierarchy,
    cgroup: &str,
    victims: &[Pid],
    group: Option<&str>,
) -> DetailsRead {
    // First, because the other processes of a container end with its main process.
    let processes =
        memory_use::largest_processes(root, memory, (cgroup, group), page_size(), PROCESSES);
    let released = wait_for_release(root, victims);
    let split = memory_use::split(memory, cgroup, &mut Vec::new());
    let split = ok_or_log!(debug, split, "memory of a cgroup not read").flatten();
    let is_outdated = |split| memory_use::is_outdated(split, memory, cgroup);
    let releasing = !released || split.as_ref().is_some_and(is_outdated);
    DetailsRead {
        split,
        releasing,
        processes,
        memory: LargestMemory::default(),
    }
}

/// Waits until the victims have released their memory, which the readings contain until then.
/// Returns `true` if they have released it.
fn wait_for_release(root: &HostRoot, victims: &[Pid]) -> bool {
    let released = || !victims.iter().any(|&victim| has_memory(root, victim));
    (0..CHECKS).any(|check| {
        if 0 < check {
            pause();
        }
        released()
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "on the thread of a lane, not on that of the runtime"
)]
fn pause() {
    thread::sleep(STEP);
}

fn of_pods(root: &HostRoot, memory: &Hierarchy, pods: &str) -> LargestMemory {
    let owners = largest_owners::over_request(root, memory, pods, OWNERS);
    let owners = ok_or_log!(debug, owners, "memory of pods not read");
    LargestMemory {
        owners: owners.unwrap_or_default(),
        outside_pods: None,
    }
}
