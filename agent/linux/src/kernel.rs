//! EDGE: the eBPF programs: what this kernel supports, and what is attached.
//!
//! Contains no policy: no meaning of thresholds, no conditions, no node. A probe that cannot be
//! attached is a value ([`support::Support`]), not an error: the agent reads files instead.

mod attach;
pub mod btf;
pub mod counters;
pub mod disk_maps;
mod error;
pub mod loader;
#[cfg(feature = "ebpf-log")]
pub mod log;
pub mod object;
pub mod probe;
pub mod resolve;
pub mod ring;
pub mod support;
pub mod wanted;

pub use error::KernelError;
pub use loader::{Kernel, LoadedKernel};
pub use probe::{KillHook, Probe};
pub use support::{ProbeState, Support};
pub use wanted::Wanted;
