//! The programs that run in the kernel: read, fill, submit. No policy, no formatting.
//!
//! They decide one thing: whether user space must wake, by numbers that user space wrote. Every
//! mandatory hook is a raw tracepoint. It needs no tracefs, no kprobes and no BTF id at load time,
//! and CAP_BPF with CAP_PERFMON is enough:
//! <https://github.com/gregkh/linux/blob/v6.12.107/kernel/bpf/syscall.c#L2715-L2718>

#![no_std]
#![no_main]
// `atomic_xadd`: the BPF target has no `fetch_add`.
#![feature(core_intrinsics)]
#![expect(
    internal_features,
    reason = "core_intrinsics, for the one cell type in `cell.rs`"
)]

mod block_io;
mod cell;
mod emit;
mod maps;
mod offsets;
mod oom;
mod pids;

#[cfg(feature = "testing")]
mod testing;

/// The helpers that read kernel memory are for GPL-compatible programs only:
/// <https://github.com/gregkh/linux/blob/v6.12.107/kernel/trace/bpf_trace.c#L242-L244>
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // Nothing here can panic: the verifier would refuse the endless loop if it were reachable.
    loop {}
}
