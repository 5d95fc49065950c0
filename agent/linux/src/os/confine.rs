//! The two system calls of the sandbox that have no suitable safe wrapper.

use std::io;

use nix::libc;

/// One instruction of a classic BPF program, in the kernel's layout.
pub type Instruction = libc::sock_filter;

/// Installs a system call filter for the calling thread and the threads that it starts. It cannot
/// be removed. Refused calls are written to the audit log, if enabled. Fails with `EACCES` if
/// `no_new_privs` is not set, and with `EINVAL` on a kernel without `CONFIG_SECCOMP_FILTER`.
pub fn install_filter(program: &mut [Instruction]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog {
        len,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: `program` describes `len` instructions that are borrowed for the call; the kernel
    // copies them and does not write to them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_LOG,
            &raw const program,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Tries to load an eBPF program without instructions, which always fails.
///
/// Returns `EPERM` if this process may not load programs, otherwise another error.
pub fn try_bpf_load() -> io::Error {
    /// `BPF_PROG_LOAD` (`include/uapi/linux/bpf.h`).
    const PROG_LOAD: libc::c_int = 5;
    /// `BPF_PROG_TYPE_RAW_TRACEPOINT`, which always requires privileges.
    const RAW_TRACEPOINT: u32 = 17;

    let mut attributes = [0_u32; 12];
    attributes[0] = RAW_TRACEPOINT;
    // SAFETY: `attributes` has the given size, which covers every pointer of this command, and all
    // of these are null.
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
