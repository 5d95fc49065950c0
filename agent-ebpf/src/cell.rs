//! Addition to a counter that other CPUs may change at the same time.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

/// Adds `n` to the counter at `slot`; other CPUs may add at the same time.
///
/// It returns no sum on purpose: an atomic add whose result is used becomes an instruction with
/// `BPF_FETCH`, which kernels before 5.12 refuse:
/// <https://github.com/gregkh/linux/blob/v5.10.223/kernel/bpf/verifier.c#L4171-L4179>, accepted in
/// <https://github.com/gregkh/linux/blob/v6.12.107/kernel/bpf/verifier.c#L7435>
///
/// # Safety
///
/// `slot` must point into a map value that lives as long as the program runs.
#[inline(always)]
pub unsafe fn add(slot: *mut u64, n: u64) {
    // SAFETY: the caller promises a live, aligned map value; any u64 is valid in it.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(slot, n) };
}
