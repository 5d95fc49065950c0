//! Counts of reclaim because the whole node had too little memory.

/// Counters of `/proc/vmstat` since boot, without reclaim within the limits of cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReclaimCounts {
    /// `allocstall_*` of all zones: the number of times that a task had to reclaim memory itself
    /// before it got some.
    pub direct: u64,
    /// `pgscan_kswapd`: pages that the kernel's thread examined to reclaim them.
    pub kswapd: u64,
}
