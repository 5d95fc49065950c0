//! Protection from memory pressure: locked memory, and a low OOM score.

use std::fs;

use nix::libc;
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use tracing::info;

/// `OOM_SCORE_ADJ_MIN` (-1000) means never. One above it, other processes are killed first, but an
/// agent that leaks memory can be killed.
const OOM_SCORE_ADJ: &str = "-999";

/// Sets both if permitted, and logs the result. Call it before privileges are dropped. Optional.
pub fn protect() {
    // Needs `CAP_SYS_RESOURCE`.
    let low_oom_score = fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ).is_ok();
    let locked = lock();
    info!(locked, low_oom_score, "memory protection");
}

/// Locks pages when they are first used (`MCL_ONFAULT`).
///
/// Only without a limit on locked memory: under a limit all mapped memory counts, and without
/// `CAP_IPC_LOCK` not even the stack could grow beyond it.
fn lock() -> bool {
    // Needs `CAP_SYS_RESOURCE`, unless the limit is lifted already.
    let lifted = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY);
    let unlimited = lifted.is_ok()
        || getrlimit(Resource::RLIMIT_MEMLOCK).is_ok_and(|(soft, _)| soft == RLIM_INFINITY);
    let on_fault = MlockAllFlags::from_bits_retain(libc::MCL_ONFAULT);
    unlimited && mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE | on_fault).is_ok()
}
