//! Every map, with its size and who reads it.

use agent_common::{DiskEntry, DropReason, PidSettings, PidState};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, PerCpuArray, RingBuf};

/// Kills only, so that a flood of anything else cannot drop one. Holds about 130 kills.
#[map]
pub static CRIT: RingBuf = RingBuf::with_byte_size(64 * 1024, 0);

/// State changes and trends: a few records an hour.
#[map]
pub static BULK: RingBuf = RingBuf::with_byte_size(256 * 1024, 0);

/// Attempts to write, one slot a ring. The programs alone use it.
#[map]
pub static SEQUENCE: PerCpuArray<u64> = PerCpuArray::with_max_entries(2, 0);

/// Losses by [`DropReason`]. User space reads it whenever it wakes.
#[map]
pub static DROPPED: PerCpuArray<u64> = PerCpuArray::with_max_entries(DropReason::SLOTS, 0);

/// Written by user space, read at every fork.
#[map]
pub static PID_SETTINGS: Array<PidSettings> = Array::with_max_entries(1, 0);

/// Written by the fork probe on a change, and by user space on the falling edge.
#[map]
pub static PID_STATE: Array<PidState> = Array::with_max_entries(1, 0);

/// The disks to watch. User space fills it; a disk that is not in it is ignored.
#[map]
pub static DISKS: HashMap<u32, DiskEntry> = HashMap::with_max_entries(256, 0);
