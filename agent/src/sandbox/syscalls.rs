//! System call filters. Other calls fail with `EPERM`; clearly hostile ones kill the process.

use std::collections::BTreeMap;
use std::io;

use nix::libc;
use nodepulse_linux::os::confine;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Is,
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch, sock_filter,
};

use super::profile::{Plugin, UnixSockets};

/// Calls that are allowed with any arguments. Landlock restricts files; the family of a socket is
/// checked at its creation.
const ALLOWED: &[i64] = &[
    // Descriptors.
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_lseek,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    // Files. No change of owner or mode, because Landlock does not restrict these, and root owns
    // most files of the node.
    libc::SYS_faccessat,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_readlinkat,
    libc::SYS_renameat2,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_symlinkat,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    // Waiting.
    libc::SYS_clock_nanosleep,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_futex,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_nanosleep,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_restart_syscall,
    libc::SYS_sched_yield,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    // Sockets.
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    // Memory that is not executable.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mlock,
    libc::SYS_mlockall,
    libc::SYS_mremap,
    libc::SYS_munmap,
    // Threads and signals to this process.
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    // Information.
    libc::SYS_capget,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_getcpu,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_sched_getaffinity,
    libc::SYS_sysinfo,
    libc::SYS_times,
    libc::SYS_uname,
];

/// Older variants of the above, specific to this architecture.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[i64] = &[
    libc::SYS_access,
    libc::SYS_dup2,
    libc::SYS_epoll_wait,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_rmdir,
    libc::SYS_stat,
    libc::SYS_symlink,
    libc::SYS_time,
    libc::SYS_unlink,
];
/// `renameat` (`include/uapi/asm-generic/unistd.h`), which the bindings of some C libraries lack.
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[i64] = &[38];

/// Calls that neither the agent nor a credential plugin makes by mistake.
const HOSTILE: &[i64] = &[
    libc::SYS_acct,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_init_module,
    libc::SYS_kexec_load,
    libc::SYS_mount,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_reboot,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

/// Changes of owner, mode and attributes, which Landlock does not restrict; root owns most files of
/// the node. `io_uring` is refused because it can do this and open sockets without a filtered call.
const ATTRIBUTES: &[i64] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_lremovexattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_setxattr,
    // `fchmodat2`, `setxattrat`, `removexattrat` and `file_setattr`: the same numbers on every
    // architecture; the bindings of some C libraries lack them.
    452,
    463,
    466,
    469,
];

/// Older variants of the above, specific to this architecture.
#[cfg(target_arch = "x86_64")]
const ATTRIBUTES_HERE: &[i64] = &[libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown];
#[cfg(not(target_arch = "x86_64"))]
const ATTRIBUTES_HERE: &[i64] = &[];

/// Commands of `bpf` (`include/uapi/linux/bpf.h`): look up, update, delete and iterate map entries,
/// and get information about a descriptor.
const BPF_COMMANDS: [u64; 5] = [1, 2, 3, 4, 15];

/// Commands of `fcntl` (`include/uapi/linux/fcntl.h`): duplicate a descriptor, and read and set its
/// flags. Others send signals, to any process (`F_SETOWN`, `F_SETSIG`), or lock files.
const FCNTLS: [u64; 5] = [
    0,    // F_DUPFD
    1,    // F_GETFD
    2,    // F_SETFD
    3,    // F_GETFL
    1030, // F_DUPFD_CLOEXEC
];

/// From this number on, calls are those of the x32 ABI (`__X32_SYSCALL_BIT` in the kernel's
/// `asm/unistd.h`), which has the architecture of the others. No other has numbers as large.
const X32: u32 = 0x4000_0000;

/// `FIONREAD` and `FIONBIO` (`asm-generic/ioctls.h`), whose type depends on the C library.
const IOCTLS: [u64; 2] = [0x541b, 0x5421];

/// The type in the second argument of `socket`, without the flags (`include/linux/net.h`).
const SOCKET_TYPE: u64 = 0xf;

/// Installs the filters. The kernel applies the strictest result of all filters. The list of
/// allowed calls is last, because it does not include this call.
pub(super) fn restrict(plugin: Plugin, sockets: UnixSockets) -> io::Result<()> {
    for filter in filters(plugin, sockets)? {
        let mut program: Vec<confine::Instruction> = filter
            .iter()
            .map(|instruction| confine::Instruction {
                code: instruction.code,
                jt: instruction.jt,
                jf: instruction.jf,
                k: instruction.k,
            })
            .collect();
        confine::install_filter(&mut program)?;
    }
    Ok(())
}

fn filters(plugin: Plugin, sockets: UnixSockets) -> io::Result<Vec<BpfProgram>> {
    let arch = TargetArch::try_from(std::env::consts::ARCH);
    let arch = arch.map_err(io::Error::other)?;
    // `EPERM` and `ENOSYS` have the same numbers on all architectures.
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let unknown = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let compile = |rules: Rules, otherwise, matched| -> Result<BpfProgram, BackendError> {
        SeccompFilter::new(rules, otherwise, matched, arch)?.try_into()
    };
    let allow = SeccompAction::Allow;
    let hostile = any_arguments(HOSTILE);
    let mut filters = vec![
        Ok(without_x32()),
        compile(hostile, allow.clone(), SeccompAction::KillProcess),
    ];
    match plugin {
        Plugin::None => {
            // Its flags are in memory, which a filter cannot read. With ENOSYS the C library falls
            // back to `clone`.
            let clone3 = any_arguments(&[libc::SYS_clone3]);
            filters.push(compile(clone3, allow.clone(), unknown));
            let allowed = allowed_calls(sockets).map_err(io::Error::other)?;
            filters.push(compile(allowed, refuse, allow));
        }
        Plugin::Runs => {
            let mut refused = loading_programs().map_err(io::Error::other)?;
            refused.extend(any_arguments(ATTRIBUTES));
            refused.extend(any_arguments(ATTRIBUTES_HERE));
            filters.push(compile(refused, allow, refuse));
        }
    }
    let compiled: Result<_, _> = filters.into_iter().collect();
    compiled.map_err(io::Error::other)
}

/// Refuses calls of x32, which no filter by number matches, with `ENOSYS` as kernels without it.
fn without_x32() -> BpfProgram {
    // `include/uapi/linux/bpf_common.h`, `include/uapi/linux/seccomp.h`
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const RETURN_ERROR: u32 = 0x0005_0000;
    const RETURN_ALLOW: u32 = 0x7fff_0000;
    let instruction = |code, jf, k| sock_filter { code, jt: 0, jf, k };
    vec![
        instruction(LOAD_NUMBER, 0, 0),
        instruction(JUMP_IF_AT_LEAST, 1, X32),
        instruction(RETURN, 0, RETURN_ERROR | libc::ENOSYS.unsigned_abs()),
        instruction(RETURN, 0, RETURN_ALLOW),
    ]
}

/// Allows [`FCNTLS`], and `F_SETFL` without `O_ASYNC`, which makes a descriptor send signals.
fn fcntls() -> Result<Vec<SeccompRule>, BackendError> {
    let mut rules = any_of(1, &FCNTLS)?;
    rules.push(all([
        when(1, Is::Eq, number(libc::F_SETFL)),
        when(2, Is::MaskedEq(number(libc::O_ASYNC)), 0),
    ])?);
    Ok(rules)
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn any_arguments(calls: &[i64]) -> Rules {
    calls.iter().map(|call| (*call, Vec::new())).collect()
}

/// Rules for `bpf` with commands other than [`BPF_COMMANDS`].
fn loading_programs() -> Result<Rules, BackendError> {
    let none_of: Result<_, _> = BPF_COMMANDS
        .iter()
        .map(|command| when(0, Is::Ne, *command))
        .collect();
    Ok([(libc::SYS_bpf, vec![SeccompRule::new(none_of?)?])].into())
}

fn allowed_calls(sockets: UnixSockets) -> Result<Rules, BackendError> {
    let this_process = u64::from(std::process::id());
    let executable = number(libc::PROT_EXEC);
    let not_executable = || one(2, Is::MaskedEq(executable), 0);
    let thread = number(libc::CLONE_THREAD);
    let netlink = |protocol| {
        all([
            when(0, Is::Eq, number(libc::AF_NETLINK)),
            when(2, Is::Eq, number(protocol)),
        ])
    };
    let family = |family| one(0, Is::Eq, number(family));
    let path_only = number(libc::O_PATH | libc::O_CLOEXEC);
    let mut families = vec![
        family(libc::AF_INET)?,
        family(libc::AF_INET6)?,
        netlink(libc::NETLINK_ROUTE)?,
        netlink(libc::NETLINK_KOBJECT_UEVENT)?,
    ];
    match sockets {
        // No UNIX sockets or pairs: root can connect to the container runtime and the service
        // manager without any capability. The agent has opened all that it needs.
        UnixSockets::None => {}
        UnixSockets::Streams => families.push(all([
            when(0, Is::Eq, number(libc::AF_UNIX)),
            when(1, Is::MaskedEq(SOCKET_TYPE), number(libc::SOCK_STREAM)),
        ])?),
    }

    let mut rules = any_arguments(ALLOWED);
    rules.extend(any_arguments(ALLOWED_HERE));
    let by_argument = [
        (libc::SYS_bpf, any_of(0, &BPF_COMMANDS)?),
        // A thread, never a process.
        (libc::SYS_clone, vec![one(0, Is::MaskedEq(thread), thread)?]),
        (libc::SYS_clone3, Vec::new()),
        (libc::SYS_fcntl, fcntls()?),
        (libc::SYS_ioctl, any_of(1, &IOCTLS)?),
        (libc::SYS_mmap, vec![not_executable()?]),
        (libc::SYS_mprotect, vec![not_executable()?]),
        // Opens a cgroup by id.
        (
            libc::SYS_open_by_handle_at,
            vec![one(2, Is::Eq, path_only)?],
        ),
        // Sets a thread's name.
        (
            libc::SYS_prctl,
            vec![one(0, Is::Eq, number(libc::PR_SET_NAME))?],
        ),
        // Reads limits, but does not set them.
        (libc::SYS_prlimit64, vec![null(2)?]),
        (libc::SYS_socket, families),
        // Abort after a panic.
        (libc::SYS_tgkill, vec![one(0, Is::Eq, this_process)?]),
        (libc::SYS_tkill, vec![one(0, Is::Eq, this_process)?]),
    ];
    rules.extend(by_argument);
    Ok(rules)
}

/// A condition on a 32-bit argument.
fn when(argument: u8, is: Is, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, Len::Dword, is, value)
}

fn null(argument: u8) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(
        argument,
        Len::Qword,
        Is::Eq,
        0,
    )?])
}

fn one(argument: u8, is: Is, value: u64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![when(argument, is, value)?])
}

fn all<const N: usize>(
    conditions: [Result<SeccompCondition, BackendError>; N],
) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions.into_iter().collect::<Result<_, _>>()?)
}

fn any_of(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, BackendError> {
    let rules = values.iter().map(|value| one(argument, Is::Eq, *value));
    rules.collect()
}

/// A flag or constant as the kernel reads it.
fn number(value: i32) -> u64 {
    value.unsigned_abs().into()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::{AsRawFd as _, OwnedFd};
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
    use std::os::unix::process::ExitStatusExt as _;
    use std::path::PathBuf;
    use std::process::{Command, Stdio};
    use std::thread;

    use nix::errno::Errno;
    use nix::fcntl::AT_FDCWD;
    use nix::sys::prctl::set_no_new_privs;
    use nix::sys::signal::{Signal, kill};
    use nix::sys::socket::{
        AddressFamily, SockFlag, SockProtocol, SockType, UnixAddr, connect, socket,
    };
    use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};
    use nix::unistd::{Pid, chroot};

    use super::*;

    /// The filters end with the separate thread that runs `test`.
    fn filtered<T: Send + 'static>(plugin: Plugin, test: fn() -> T) -> T {
        filtered_with(plugin, UnixSockets::None, (), move |()| test())
    }

    fn filtered_with<Given: Send + 'static, T: Send + 'static>(
        plugin: Plugin,
        sockets: UnixSockets,
        given: Given,
        test: impl FnOnce(&Given) -> T + Send + 'static,
    ) -> T {
        let confined = thread::spawn(move || {
            set_no_new_privs().unwrap();
            restrict(plugin, sockets).unwrap();
            (test(&given), given)
        });
        // Dropping it may need calls that the thread may not make.
        let (got, _given) = confined.join().unwrap();
        got
    }

    fn opens(
        family: AddressFamily,
        kind: SockType,
        protocol: Option<SockProtocol>,
    ) -> Result<(), Errno> {
        socket(family, kind, SockFlag::SOCK_CLOEXEC, protocol).map(drop)
    }

    /// Returns the kernel's decision: `allowed`, `killed`, or the name of an error.
    fn outcome(filters: &[BpfProgram], number: i64, arguments: &[u64]) -> &'static str {
        let arch: u32 = match std::env::consts::ARCH {
            "x86_64" => 0xc000_003e,
            _ => 0xc000_00b7,
        };
        let mut data = i32::try_from(number).unwrap().to_le_bytes().to_vec();
        data.extend(arch.to_le_bytes());
        data.extend([0; 8]);
        data.extend(arguments.iter().flat_map(|argument| argument.to_le_bytes()));
        data.resize(64, 0);
        let results = filters.iter().map(|filter| interpret(filter, &data));
        // The strictest has the least number, if it is signed.
        match results.min_by_key(|result| result.cast_signed()) {
            Some(0x7fff_0000) => "allowed",
            Some(0x8000_0000) => "killed",
            Some(0x0005_0001) => "EPERM",
            Some(0x0005_0026) => "ENOSYS",
            other => panic!("{other:x?}"),
        }
    }

    fn interpret(filter: &[sock_filter], data: &[u8]) -> u32 {
        let (mut at, mut value) = (0, 0_u32);
        loop {
            let one = &filter[at];
            at += 1;
            let k = usize::try_from(one.k).unwrap();
            let is_met = match one.code {
                0x20 => {
                    value = u32::from_le_bytes(data[k..k + 4].try_into().unwrap());
                    continue;
                }
                0x54 => {
                    value &= one.k;
                    continue;
                }
                0x05 => {
                    at += k;
                    continue;
                }
                0x06 => return one.k,
                0x15 => value == one.k,
                0x25 => value > one.k,
                0x35 => value >= one.k,
                other => panic!("instruction {other:#x}"),
            };
            at += usize::from(if is_met { one.jt } else { one.jf });
        }
    }

    #[test]
    fn no_descriptor_sends_signals_and_the_x32_abi_evades_no_filter() {
        let strict = filters(Plugin::None, UnixSockets::None).unwrap();
        let plugin = filters(Plugin::Runs, UnixSockets::None).unwrap();
        let flags = |flags: i32| vec![3, number(libc::F_SETFL), number(flags)];
        let fcntl = |command: u64| vec![3, command, 1];
        let x32 = |call: i64| call | i64::from(X32);
        //  the call, its arguments, without a plugin, with one
        #[rustfmt::skip]
        let rows = [
            (libc::SYS_read, vec![], "allowed", "allowed", "read"),
            (libc::SYS_fcntl, fcntl(1), "allowed", "allowed", "F_GETFD"),
            (libc::SYS_fcntl, fcntl(1030), "allowed", "allowed", "F_DUPFD_CLOEXEC"),
            (libc::SYS_fcntl, flags(libc::O_NONBLOCK), "allowed", "allowed", "F_SETFL"),
            (libc::SYS_fcntl, flags(libc::O_ASYNC), "EPERM", "allowed", "O_ASYNC"),
            (libc::SYS_fcntl, fcntl(8), "EPERM", "allowed", "F_SETOWN"),
            (libc::SYS_fcntl, fcntl(10), "EPERM", "allowed", "F_SETSIG"),
            (libc::SYS_fcntl, fcntl(15), "EPERM", "allowed", "F_SETOWN_EX"),
            (libc::SYS_ptrace, vec![], "killed", "killed", "ptrace"),
            (x32(libc::SYS_ptrace), vec![], "EPERM", "ENOSYS", "ptrace of x32"),
            (x32(521), vec![], "EPERM", "ENOSYS", "ptrace with its number of x32"),
            (x32(libc::SYS_fchmod), vec![], "EPERM", "ENOSYS", "fchmod of x32"),
        ];
        for (call, arguments, alone, with_plugin, name) in rows {
            let got = [&strict, &plugin].map(|filters| outcome(filters, call, &arguments));
            assert_eq!(got, [alone, with_plugin], "{name}");
        }
    }

    #[test]
    fn only_the_calls_of_the_agent_are_allowed() {
        filtered(Plugin::None, || {
            let stream = |family| opens(family, SockType::Stream, None);
            let netlink = |protocol| opens(AddressFamily::Netlink, SockType::Raw, Some(protocol));
            #[rustfmt::skip]
            let rows = [
                ("unix", stream(AddressFamily::Unix), Err(Errno::EPERM)),
                ("unix, datagrams", opens(AddressFamily::Unix, SockType::Datagram, None), Err(Errno::EPERM)),
                ("a pair", UnixStream::pair().map(drop).map_err(|err| errno(&err)), Err(Errno::EPERM)),
                ("inet", stream(AddressFamily::Inet), Ok(())),
                ("inet6", stream(AddressFamily::Inet6), Ok(())),
                ("vsock", stream(AddressFamily::Vsock), Err(Errno::EPERM)),
                ("route", netlink(SockProtocol::NetlinkRoute), Ok(())),
                ("audit", netlink(SockProtocol::NetlinkAudit), Err(Errno::EPERM)),
                ("signal 0 to this process", kill(Pid::this(), None), Err(Errno::EPERM)),
                ("the same root again", chroot("/"), Err(Errno::EPERM)),
            ];
            for (name, got, expected) in rows {
                assert_eq!(got, expected, "{name}");
            }
            assert!(fs::read("/proc/self/stat").is_ok());
            assert_eq!(thread::spawn(|| 7).join().unwrap(), 7, "threads");
            let err = Command::new("/bin/true").status().unwrap_err();
            assert_eq!(err.raw_os_error(), Some(Errno::EPERM as i32), "processes");
            assert_eq!(mode_of_nothing(), Err(Errno::EPERM), "modes");
        });
    }

    fn errno(err: &io::Error) -> Errno {
        Errno::from_raw(err.raw_os_error().unwrap())
    }

    /// Sets the mode of a file that cannot exist: `ENOENT` if this is allowed.
    fn mode_of_nothing() -> nix::Result<()> {
        fchmodat(AT_FDCWD, "", Mode::S_IRWXU, FchmodatFlags::FollowSymlink)
    }

    /// Sockets opened before the filter: the listener and a connection cannot connect elsewhere, a
    /// datagram socket can connect to other datagram sockets.
    #[test]
    fn open_sockets_cannot_connect_to_stream_sockets() {
        filtered_with(
            Plugin::None,
            UnixSockets::None,
            Sockets::open(),
            |sockets| {
                let reached = |socket: &OwnedFd, to: &PathBuf| {
                    connect(socket.as_raw_fd(), &UnixAddr::new(to).unwrap())
                };
                let Sockets {
                    runtime,
                    listener,
                    connected,
                    datagrams,
                    journal,
                    ..
                } = &sockets;
                for (name, socket) in [("listener", listener), ("connected", connected)] {
                    for at in [runtime, journal] {
                        assert!(reached(socket, at).is_err(), "{name} to {}", at.display());
                    }
                }
                assert_eq!(reached(datagrams, runtime), Err(Errno::EPROTOTYPE));
                // docs/security.md names this one.
                assert_eq!(reached(datagrams, journal), Ok(()), "before Landlock 9");
            },
        );
    }

    #[test]
    fn with_a_runtime_only_unix_streams_are_allowed_in_addition() {
        filtered_with(
            Plugin::None,
            UnixSockets::Streams,
            Sockets::open(),
            |sockets| {
                let unix = |kind| opens(AddressFamily::Unix, kind, None);
                let rows = [
                    ("streams", unix(SockType::Stream), Ok(())),
                    ("datagrams", unix(SockType::Datagram), Err(Errno::EPERM)),
                    ("packets", unix(SockType::SeqPacket), Err(Errno::EPERM)),
                    (
                        "raw packets",
                        opens(AddressFamily::Packet, SockType::Raw, None),
                        Err(Errno::EPERM),
                    ),
                ];
                for (name, got, expected) in rows {
                    assert_eq!(got, expected, "{name}");
                }
                let connected = UnixStream::connect(&sockets.runtime);
                assert!(connected.is_ok(), "{connected:?}");
            },
        );
    }

    /// The agent's sockets when the filters are installed, and two of the node: a container
    /// runtime's and a journal's.
    struct Sockets {
        runtime: PathBuf,
        journal: PathBuf,
        listener: OwnedFd,
        connected: OwnedFd,
        datagrams: OwnedFd,
        _others: (UnixListener, UnixDatagram, UnixStream, RemovedOnDrop),
    }

    struct RemovedOnDrop(PathBuf);

    impl Drop for RemovedOnDrop {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    impl Sockets {
        fn open() -> Self {
            let dir = std::env::temp_dir().join(format!("nodepulse-unix-{}", std::process::id()));
            fs::create_dir_all(&dir).unwrap();
            let (runtime, journal) = (dir.join("runtime"), dir.join("journal"));
            let listener = UnixListener::bind(dir.join("control")).unwrap();
            let (connected, peer) = UnixStream::pair().unwrap();
            let datagrams = UnixDatagram::unbound().unwrap();
            let others = (
                UnixListener::bind(&runtime).unwrap(),
                UnixDatagram::bind(&journal).unwrap(),
                peer,
                RemovedOnDrop(dir),
            );
            Self {
                runtime,
                journal,
                listener: listener.into(),
                connected: connected.into(),
                datagrams: datagrams.into(),
                _others: others,
            }
        }
    }

    #[test]
    fn a_plugin_may_run_programs_but_is_killed_by_hostile_calls() {
        filtered(Plugin::Runs, || {
            let run = |program: &str, args: &[&str]| {
                let mut command = Command::new(program);
                command.args(args).stderr(Stdio::null());
                command.status().unwrap()
            };
            assert!(run("/bin/true", &[]).success());
            assert_eq!(mode_of_nothing(), Err(Errno::EPERM), "modes");
            for refused in ["chmod 600 /dev/null", "chown 0 /dev/null"] {
                let args: Vec<&str> = refused.split(' ').collect();
                assert_eq!(run(args[0], &args[1..]).code(), Some(1), "{refused}");
            }
            // A plugin may connect to a service of the node.
            assert_eq!(opens(AddressFamily::Unix, SockType::Stream, None), Ok(()));
            let killed = run("unshare", &["--user", "true"]);
            assert_eq!(killed.signal(), Some(Signal::SIGSYS as i32), "{killed}");
        });
    }
}
