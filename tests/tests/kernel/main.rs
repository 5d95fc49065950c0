//! Tests on this machine's kernel: eBPF programs, cgroups, file systems and kills.
//!
//! Tests that need privileges to run are always compiled; run them with the feature `kernel`, as
//! root, one at a time: `cargo xtask test kernel`.

mod crowded_container;
mod daemon;
mod hostile;
mod hostile_machine;
mod hung;
mod imagefs;
mod kernel;
mod kill_combinations;
mod kmsg;
mod newcomer;
mod pids;
mod pod_kills;
mod replay_kernel;
