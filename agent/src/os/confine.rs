//! The two system calls of the sandbox that no safe wrapper makes as we want them.

use std::io;

use nix::libc;

/// One instruction of a classic BPF program, in the kernel's layout.
pub type Instruction = libc::sock_filter;

/// Puts a system call filter on the calling thread and on every thread that it starts. It cannot be
/// taken away. What it refuses is written to the kernel's audit log, where that is kept.
///
/// # Errors
///
/// The kernel's: `EACCES` where `no_new_privs` is not set, `EINVAL` for a program that it does not
/// take or without filters (`CONFIG_SECCOMP_FILTER`).
pub fn install_filter(program: &mut [Instruction]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog {
        len,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: `program` describes `len` instructions that are borrowed for the call; the kernel
    // copies them and writes nothing.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_LOG,
            &raw const program,
        )
    };
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Asks the kernel to load an eBPF program of no instructions, which it never does: who may not load
/// is told so, and who may is told that there is nothing to load.
///
/// `EPERM` to whoever may not load programs, another error to whoever may.
#[must_use]
pub fn try_bpf_load() -> io::Error {
    /// `BPF_PROG_LOAD` of `include/uapi/linux/bpf.h`.
    const PROG_LOAD: libc::c_int = 5;
    /// `BPF_PROG_TYPE_RAW_TRACEPOINT`: one that is never free to all.
    const RAW_TRACEPOINT: u32 = 17;

    let mut attributes = [0_u32; 12];
    attributes[0] = RAW_TRACEPOINT;
    // SAFETY: `attributes` is as long as the size says, the smallest that names every pointer of
    // this command, and all of these are null.
    unsafe {
        libc::syscall(
            libc::SYS_bpf,
            PROG_LOAD,
            attributes.as_mut_ptr(),
            size_of_val(&attributes),
        );
    }
    io::Error::last_os_error()
}
