//! Tries what must fail. Nothing here leaves a trace where it succeeds.

use std::ffi::CStr;
use std::fs::OpenOptions;

use caps::{CapSet, Capability};
use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::sys::signal::kill;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};
use nix::unistd::{Pid, execve};

use super::profile::{Plugin, Profile};
use crate::os::confine;

struct Trial {
    /// Behind "can".
    what: &'static str,
    /// Whether it must fail where a plugin is allowed, too.
    beside_a_plugin: bool,
    gets_through: fn() -> bool,
}

const TRIALS: [Trial; 8] = [
    Trial {
        what: "load eBPF programs",
        beside_a_plugin: true,
        gets_through: || confine::try_bpf_load().raw_os_error() != Some(Errno::EPERM as i32),
    },
    Trial {
        what: "take capabilities back",
        beside_a_plugin: true,
        gets_through: || caps::raise(None, CapSet::Effective, Capability::CAP_SYS_ADMIN).is_ok(),
    },
    Trial {
        what: "write files",
        beside_a_plugin: true,
        // Our own name: it exists everywhere, is ours to write, and opening it changes nothing.
        gets_through: || {
            let mut options = OpenOptions::new();
            options.write(true).open("/proc/self/comm").is_ok()
        },
    },
    Trial {
        what: "open packet sockets",
        beside_a_plugin: true,
        gets_through: || {
            let flags = SockFlag::SOCK_CLOEXEC;
            socket(AddressFamily::Packet, SockType::Raw, flags, None).is_ok()
        },
    },
    Trial {
        what: "change modes of files",
        beside_a_plugin: true,
        // No file has this name: whoever may change modes gets that as the answer.
        gets_through: || {
            let mode = Mode::S_IRUSR;
            let err = fchmodat(AT_FDCWD, "", mode, FchmodatFlags::FollowSymlink);
            err != Err(Errno::EPERM)
        },
    },
    Trial {
        what: "connect to UNIX sockets",
        beside_a_plugin: false,
        // Without a socket there is no connection, whatever its name.
        gets_through: || {
            let flags = SockFlag::SOCK_CLOEXEC;
            [SockType::Stream, SockType::Datagram, SockType::SeqPacket]
                .iter()
                .any(|kind| socket(AddressFamily::Unix, *kind, flags, None).is_ok())
        },
    },
    Trial {
        what: "run programs",
        beside_a_plugin: false,
        // No file has this name: who may run programs is told so.
        gets_through: || {
            const NOTHING: [&CStr; 0] = [];
            execve(c"", &NOTHING, &NOTHING) == Err(Errno::ENOENT)
        },
    },
    Trial {
        what: "signal other processes",
        beside_a_plugin: false,
        // Signal 0 only asks whether it could be sent.
        gets_through: || kill(Pid::from_raw(1), None).is_ok(),
    },
];

/// How many were tried, and which got through.
pub(super) fn run(profile: &Profile) -> (usize, Vec<&'static str>) {
    let tried = |trial: &&Trial| trial.beside_a_plugin || profile.plugin == Plugin::None;
    let through = |trial: &&Trial| (trial.gets_through)();
    let count = TRIALS.iter().filter(tried).count();
    let got = TRIALS.iter().filter(tried).filter(through);
    (count, got.map(|trial| trial.what).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_sandbox_it_is_told_what_gets_through() {
        let profile = |plugin| Profile {
            plugin,
            directories: Vec::new(),
            files: Vec::new(),
        };
        let (tried, through) = run(&profile(Plugin::None));
        assert_eq!(tried, 8);
        assert!(through.contains(&"write files"), "{through:?}");
        assert!(through.contains(&"run programs"), "{through:?}");
        assert!(through.contains(&"connect to UNIX sockets"), "{through:?}");
        assert!(through.contains(&"change modes of files"), "{through:?}");
        let (tried, through) = run(&profile(Plugin::Runs));
        assert_eq!(tried, 5);
        assert!(!through.contains(&"run programs"), "{through:?}");
    }
}
