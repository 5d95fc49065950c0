//! EDGE: kernel notifications without eBPF, and system calls that lack a safe wrapper.
//!
//! The kernel log, uevents, cgroup notifications and PSI triggers become the same
//! [`nodepulse_core::record`]s that the programs send.

pub mod cgroup_handle;
pub mod cgroup_watch;
pub mod confine;
pub mod file_watch;
pub mod kmsg;
pub mod mapped;
pub mod ntp;
pub mod psi;
pub mod uevent;
pub mod watchers;
