//! The programs that run in the kernel: read, fill, submit. No policy, no formatting.
//!
//! They decide one thing: whether user space has to wake, by numbers that user space wrote.
//! Every mandatory hook is a raw tracepoint, which needs neither tracefs nor kprobes nor a BTF id
//! at load time, and works with CAP_BPF and CAP_PERFMON alone.

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
mod task;
#[cfg(feature = "testing")]
mod testing;

/// The helpers that read kernel memory are for GPL-compatible programs only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // Nothing here can panic: the verifier would refuse the endless loop if it were reachable.
    loop {}
}
