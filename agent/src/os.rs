//! EDGE: notifications of the kernel that need no eBPF program, and system calls without a safe wrapper.
//!
//! The kernel's log, announcements of devices, changes of cgroups and PSI triggers each become the
//! same [`crate::record`]s that the programs send.

pub mod cgroup_handle;
pub mod cgroup_watch;
pub mod confine;
pub mod file_watch;
pub mod kmsg;
pub mod ntp;
pub mod psi;
pub mod uevent;
