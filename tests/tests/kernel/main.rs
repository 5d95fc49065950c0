//! Tests on this machine's kernel: eBPF programs, cgroups, file systems and kills.
//!
//! They change the machine that they run on, and need root. `cargo test` leaves them out
//! (`test = false`); `cargo xtask test kernel` runs them one at a time.

mod crowded_container;
mod daemon;
mod history;
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
mod sinks;

use nodepulse_tests::provoke::Provoke;

/// The program that provokes events of the kernel.
fn provoke() -> Provoke {
    Provoke::new(env!("CARGO_BIN_EXE_provoke"))
}
