//! EDGE: what this kernel supports, and the handle on what is attached to it.
//!
//! Absent on purpose: policy. Nothing here knows a threshold's meaning, a condition or a node. A
//! probe that cannot be attached is an answer ([`support::Support`]), not an error: the agent runs
//! on files instead and says so.

mod attach;
pub mod btf;
pub mod counters;
pub mod disks;
pub mod loader;
#[cfg(feature = "ebpf-log")]
pub mod log;
pub mod object;
pub mod resolve;
pub mod ring;
pub mod support;
pub mod wanted;

pub use loader::{Kernel, LoadedKernel};
pub use support::{Probe, ProbeState, Support};
pub use wanted::{KillHook, Wanted};
