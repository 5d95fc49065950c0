//! Staying when memory is short: the pages that are in use stay, and others are killed first.

use std::fs;

use nix::libc;
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use tracing::info;

/// The kernel's `OOM_SCORE_ADJ_MIN` is -1000 and means never. One above: whatever else there is goes
/// first, but an agent that eats memory by itself does not take the node along.
const LAST_TO_GO: &str = "-999";

/// Claims both where that is allowed, and says what came of it. Call it before rights are given up;
/// nothing else in the agent depends on it.
pub fn protect() {
    // `CAP_SYS_RESOURCE`.
    let last_to_go = fs::write("/proc/self/oom_score_adj", LAST_TO_GO).is_ok();
    let locked = lock();
    info!(locked, last_to_go, "memory");
}

/// Locks what is touched, now and from now on (`MCL_ONFAULT`): nothing is read in for it.
///
/// Only without a limit on locked memory. Under one everything that is mapped counts, touched or
/// not, and once `CAP_IPC_LOCK` is gone not even the stack of a locked process can grow beyond it.
fn lock() -> bool {
    // `CAP_SYS_RESOURCE`, unless whoever started us has lifted it.
    let lifted = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY);
    let unlimited = lifted.is_ok()
        || getrlimit(Resource::RLIMIT_MEMLOCK).is_ok_and(|(soft, _)| soft == RLIM_INFINITY);
    let on_fault = MlockAllFlags::from_bits_retain(libc::MCL_ONFAULT);
    unlimited && mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE | on_fault).is_ok()
}
