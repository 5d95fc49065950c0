//! Defines the memory of the pods, and what their processes allocate for it.

use std::fs;

use super::Qos;

pub const MIB: u64 = 1 << 20;
pub const CONTAINER: u64 = 24 * MIB;
pub const POD: u64 = 48 * MIB;
/// Rest of the limit of all pods, or of the node: more than any neighbour uses, since the kernel
/// kills the largest process of those with the same `oom_score_adj`.
pub const LEFT: u64 = 96 * MIB;
/// More than any limit, and less than this machine has.
pub const MORE: u64 = 512 * MIB;
/// Allocation of the process of the container that is not killed.
pub const HELPER: u64 = 2 * MIB;
/// Allocation of the process of the other container of the pod.
pub const PROXY: u64 = 10 * MIB;

/// Number of further processes of a container that is killed as a group: with the others, more than
/// a message names.
pub const GROUP: usize = 14;

/// A pod that uses memory while another is killed.
#[derive(Debug, Clone)]
pub struct Neighbour {
    pub name: &'static str,
    pub qos: Qos,
    /// `oom_score_adj` of its processes, from which the agent derives its request. Not used for a
    /// Guaranteed pod.
    pub score: i64,
    pub request: u64,
    pub allocates: u64,
}

/// Returns the five neighbours that exceed their requests most, in this order, and then those that
/// a message must not name.
pub fn neighbours() -> Vec<Neighbour> {
    let memory = memory();
    // A multiple of a thousandth of the node: about as much as a neighbour uses.
    let thousandths = (20 * MIB * 1000).div_ceil(memory).max(2);
    let of_node = |thousandths: u64| memory * thousandths / 1000;
    let best_effort = |name, mib| Neighbour {
        name,
        qos: Qos::BestEffort,
        score: 1000,
        request: 0,
        allocates: mib * MIB,
    };
    let burstable = |name, thousandths: u64, allocates| Neighbour {
        name,
        qos: Qos::Burstable,
        score: 1000 - thousandths.cast_signed(),
        request: of_node(thousandths),
        allocates,
    };
    let over = |mib| of_node(thousandths) + mib * MIB;
    vec![
        best_effort("cache", 36),
        burstable("web", thousandths, over(30)),
        best_effort("batch", 24),
        burstable("db", thousandths, over(18)),
        best_effort("cron", 12),
        best_effort("sixth", 6),
        burstable("under", 2 * thousandths, of_node(thousandths)),
        Neighbour {
            name: "guaranteed",
            qos: Qos::Guaranteed,
            score: 0,
            request: 0,
            allocates: 40 * MIB,
        },
    ]
}

/// Returns the node's memory by the agent's source.
fn memory() -> u64 {
    meminfo("MemTotal:")
}

pub fn available() -> u64 {
    meminfo("MemAvailable:")
}

fn meminfo(key: &str) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").expect("meminfo");
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kib: u64 = kib.and_then(|kib| kib.parse().ok()).expect("a size");
    kib << 10
}
