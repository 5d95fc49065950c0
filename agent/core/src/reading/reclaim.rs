//! How often memory was reclaimed because the whole node had too little of it.

/// Counters of `/proc/vmstat` since boot, without reclaim within the limits of cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReclaimCounts {
    /// `allocstall_*` of all zones: how often a task had to reclaim memory itself before it got some.
    pub direct: u64,
    /// `pgscan_kswapd`: pages that the kernel's thread examined to reclaim them.
    pub kswapd: u64,
}
