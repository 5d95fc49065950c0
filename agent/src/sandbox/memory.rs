//! Protection from memory pressure: locked memory, and a low OOM score.

use std::fs;

use nix::libc;
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nodepulse_linux::os::mapped;
use tracing::info;

/// `OOM_SCORE_ADJ_MIN` (-1000) means never. One above it, other processes are killed first, but an
/// agent that leaks memory can be killed.
const OOM_SCORE_ADJ: &str = "-999";

/// Lifts the limit on locked memory and lowers the OOM score, if permitted, and logs the result.
/// Call it before privileges are dropped.
pub fn protect() {
    // Both need `CAP_SYS_RESOURCE`, unless the limit is lifted already.
    let _refused = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY);
    let low_oom_score = fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ).is_ok();
    info!(low_oom_score, "memory protection");
}

/// Without a limit on locked memory, locks all code, so that the first kill needs no page from a
/// disk on which the whole node waits, and each other page when it is first used (`MCL_ONFAULT`).
/// Under a limit all mapped memory counts, and without `CAP_IPC_LOCK` not even the stack could grow
/// beyond it: then nothing is locked, and the code that only the start needed is released.
pub fn settle() {
    let unlimited =
        getrlimit(Resource::RLIMIT_MEMLOCK).is_ok_and(|(soft, _)| soft == RLIM_INFINITY);
    let on_fault = MlockAllFlags::from_bits_retain(libc::MCL_ONFAULT);
    let all = MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE | on_fault;
    let locked = unlimited && mlockall(all).is_ok() && mapped::lock_code().is_ok();
    let released = if locked {
        0
    } else {
        mapped::release_code().unwrap_or_default()
    };
    info!(locked, released, "memory trimmed after startup");
}
