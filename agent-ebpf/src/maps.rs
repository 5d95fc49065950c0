//! Every map, with its size and its readers.

use agent_common::{DiskEntry, DropReason, PidSettings, PidState};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf};

use crate::oom::choice::Choice;

/// Kills only, so that a flood of other records cannot drop one. Has room for about 250 kills,
/// while user space waits for memory or the CPU.
#[map]
pub static CRIT: RingBuf = RingBuf::with_byte_size(128 * 1024, 0);

/// State changes and trends: a few records an hour.
#[map]
pub static BULK: RingBuf = RingBuf::with_byte_size(64 * 1024, 0);

/// Attempts to write, one slot per ring. Only the programs use it.
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

/// The watched disks, each in a slot. User space fills it.
#[map]
pub static DISKS: Array<DiskEntry> = Array::with_max_entries(256, 0);

/// From the number of a disk to its slot. User space fills it; a disk that is not in it is ignored.
#[map]
pub static SLOTS: HashMap<u32, u32> = HashMap::with_max_entries(256, 0);

/// Time and result of the last lookup of each queue's disk, by `request_queue.id`. Only the
/// programs use it.
#[map]
pub static QUEUES: Array<u64> = Array::with_max_entries(4096, 0);

/// Address of the `oom_control` of each running `out_of_memory`, by `bpf_get_current_pid_tgid`: by
/// task and not by CPU, because that function can sleep. Only the programs use it. Allocated in
/// full at load, because no memory can be allocated when it is written
/// (<https://github.com/gregkh/linux/blob/v6.12.107/kernel/bpf/hashtab.c#L132-L135>); one slot if
/// the pair is not attached.
#[map]
pub static SCOPES: HashMap<u64, u64> = HashMap::with_max_entries(1024, 0);

/// Threads that were marked and have not exited yet. Only the programs use it; one slot unless
/// kills are reported at the exit.
#[map]
pub static VICTIMS: LruHashMap<u32, Choice> = LruHashMap::with_max_entries(1024, 0);
