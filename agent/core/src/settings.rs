//! Settings of the subjects.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The set of objects that the agent writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Runs alongside a kubelet: writes nodepulse's conditions and Events.
    Companion,
    /// Runs without a kubelet: writes the Node, its status and its Lease.
    Node,
}

/// The setting for Events on the Node about OOM kills of the node and those outside pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OomNodeEvents {
    /// On, unless node-problem-detector records them.
    Auto,
    On,
    Off,
}

/// The latency from which a request to a disk is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlowLimit {
    /// The larger of the fixed limit of its kind and a multiple of the disk's usual latency.
    Auto,
    Fixed(Duration),
}

/// `diskIO`: the limits from which a disk is slow or stalled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskIo {
    /// Latency of a slow request on a solid-state or virtio disk.
    pub solid_state_slow: SlowLimit,
    pub rotational_slow: SlowLimit,
    /// Latency of a slow request by disk name in `/sys/block`.
    pub devices: BTreeMap<String, SlowLimit>,
    /// Time window for the share of slow requests.
    pub window: Duration,
    /// The time for which a disk must be slow, within twice that time.
    pub slow_for: Duration,
    /// The share of the time for which other tasks must wait, in percent.
    pub min_stall: f32,
    /// The time for which a disk with requests in flight must complete none to be stalled.
    pub stalled_after: Duration,
}
