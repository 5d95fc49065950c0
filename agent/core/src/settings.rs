//! Settings of the subjects.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What the agent writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Alongside a kubelet: writes nodepulse's conditions and Events.
    Companion,
    /// Without a kubelet: writes the Node, its status and its Lease.
    Node,
}

/// Whether OOM kills of the node, and those outside pods, are Events on the Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OomNodeEvents {
    /// Unless node-problem-detector records them.
    Auto,
    /// They are.
    On,
    /// They are not.
    Off,
}

/// From when on a request to a disk is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlowLimit {
    /// The larger of the fixed limit of its kind and a multiple of the disk's own latency.
    Auto,
    /// This latency.
    Fixed(Duration),
}

/// `diskIO`: when a disk is slow or stalled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskIo {
    /// Latency of a slow request on a solid-state or virtio disk.
    pub solid_state_slow: SlowLimit,
    /// Latency of a slow request on a rotational disk.
    pub rotational_slow: SlowLimit,
    /// Latency of a slow request by disk name in `/sys/block`.
    pub devices: BTreeMap<String, SlowLimit>,
    /// Time window for the share of slow requests.
    pub window: Duration,
    /// For how long a disk must be slow, within twice that time.
    pub slow_for: Duration,
    /// For which share of the time other tasks must wait, in percent.
    pub min_stall: f32,
    /// For how long a disk with requests in flight must complete none to be stalled.
    pub stalled_after: Duration,
}
