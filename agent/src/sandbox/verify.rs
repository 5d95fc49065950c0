//! Verifies that forbidden actions fail. None has a side effect if it succeeds.

use std::ffi::CStr;
use std::fs::OpenOptions;

use caps::{CapSet, Capability};
use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::sys::signal::kill;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};
use nix::unistd::{Pid, execve};
use nodepulse_linux::os::confine;

use super::profile::{Plugin, Profile, UnixSockets};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Permitted {
    Plugin,
    UnixStreams,
}

struct ForbiddenAction {
    /// Completes "can …".
    what: &'static str,
    /// What makes it permitted.
    unless: &'static [Permitted],
    is_permitted: fn() -> bool,
}

const FORBIDDEN: [ForbiddenAction; 9] = [
    ForbiddenAction {
        what: "load eBPF programs",
        unless: &[],
        is_permitted: || confine::try_bpf_load().raw_os_error() != Some(Errno::EPERM as i32),
    },
    ForbiddenAction {
        what: "take capabilities back",
        unless: &[],
        is_permitted: || caps::raise(None, CapSet::Effective, Capability::CAP_SYS_ADMIN).is_ok(),
    },
    ForbiddenAction {
        what: "write files",
        unless: &[],
        // This process's name is always writable, and opening it has no effect.
        is_permitted: || {
            let mut options = OpenOptions::new();
            options.write(true).open("/proc/self/comm").is_ok()
        },
    },
    ForbiddenAction {
        what: "open packet sockets",
        unless: &[],
        is_permitted: || {
            let flags = SockFlag::SOCK_CLOEXEC;
            socket(AddressFamily::Packet, SockType::Raw, flags, None).is_ok()
        },
    },
    ForbiddenAction {
        what: "change modes of files",
        unless: &[],
        // No file has this name: the error is `EPERM` only if the call is refused.
        is_permitted: || {
            let mode = Mode::S_IRUSR;
            let err = fchmodat(AT_FDCWD, "", mode, FchmodatFlags::FollowSymlink);
            err != Err(Errno::EPERM)
        },
    },
    ForbiddenAction {
        what: "connect to UNIX sockets",
        unless: &[Permitted::Plugin, Permitted::UnixStreams],
        // Connecting requires a socket.
        is_permitted: || opens_unix(SockType::Stream),
    },
    ForbiddenAction {
        what: "connect to UNIX sockets of messages",
        unless: &[Permitted::Plugin],
        is_permitted: || opens_unix(SockType::Datagram) || opens_unix(SockType::SeqPacket),
    },
    ForbiddenAction {
        what: "run programs",
        unless: &[Permitted::Plugin],
        // No file has this name: `ENOENT` means that programs may be executed.
        is_permitted: || {
            const NOTHING: [&CStr; 0] = [];
            execve(c"", &NOTHING, &NOTHING) == Err(Errno::ENOENT)
        },
    },
    ForbiddenAction {
        what: "signal other processes",
        unless: &[Permitted::Plugin],
        // Signal 0 only checks the permission.
        is_permitted: || kill(Pid::from_raw(1), None).is_ok(),
    },
];

fn opens_unix(kind: SockType) -> bool {
    socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None).is_ok()
}

/// Returns the number of checks, and the actions that are still permitted.
pub(super) fn run(profile: &Profile) -> (usize, Vec<&'static str>) {
    let is_granted = |one: &Permitted| match one {
        Permitted::Plugin => profile.plugin == Plugin::Runs,
        Permitted::UnixStreams => profile.unix_sockets() == UnixSockets::Streams,
    };
    let applies = |action: &&ForbiddenAction| !action.unless.iter().any(is_granted);
    let permitted = |action: &&ForbiddenAction| (action.is_permitted)();
    let count = FORBIDDEN.iter().filter(applies).count();
    let got = FORBIDDEN.iter().filter(applies).filter(permitted);
    (count, got.map(|action| action.what).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_sandbox_permitted_actions_are_reported() {
        let profile = |plugin| Profile {
            plugin,
            directories: Vec::new(),
            history: None,
            certificates: None,
            files: Vec::new(),
            sockets: Vec::new(),
            journal: None,
        };
        let (checks, permitted) = run(&profile(Plugin::None));
        assert_eq!(checks, 9);
        assert!(permitted.contains(&"write files"), "{permitted:?}");
        assert!(permitted.contains(&"run programs"), "{permitted:?}");
        assert!(
            permitted.contains(&"connect to UNIX sockets"),
            "{permitted:?}"
        );
        assert!(
            permitted.contains(&"change modes of files"),
            "{permitted:?}"
        );
        let mut with_runtime = profile(Plugin::None);
        with_runtime.sockets.push("/run/containerd".into());
        let (checks, permitted) = run(&with_runtime);
        assert_eq!(checks, 8);
        assert!(
            !permitted.contains(&"connect to UNIX sockets"),
            "{permitted:?}"
        );
        let (checks, permitted) = run(&profile(Plugin::Runs));
        assert_eq!(checks, 5);
        assert!(!permitted.contains(&"run programs"), "{permitted:?}");
    }
}
