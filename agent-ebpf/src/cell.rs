//! Addition that other CPUs may do at the same time.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

/// Adds `n` to the counter at `slot`, whatever other CPUs add meanwhile.
///
/// The sum is not returned on purpose: an atomic add whose result is used becomes an instruction
/// that kernels before 5.12 refuse.
///
/// # Safety
///
/// `slot` must point into a map value that lives as long as the program runs.
#[inline(always)]
pub unsafe fn add(slot: *mut u64, n: u64) {
    // SAFETY: the caller promises a live, aligned map value; any u64 may stand in it.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(slot, n) };
}
