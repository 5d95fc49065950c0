//! Checks the programs with few privileges: loaded by a user with two capabilities, then read by
//! the same user with none.
//!
//! That user is a separate process, this program started again. It prints its findings on standard
//! output, one line each; its standard input lists kills that it should have received.

use std::fs;
use std::io::{self, BufRead, BufReader, Lines, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use agent_common::PidSettings;
use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::prctl::{set_keepcaps, set_no_new_privs};
use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};
use nodepulse_core::record::RecordedKill;
use nodepulse_linux::kernel::Wanted;
use nodepulse_linux::os::cgroup_handle::CgroupMount;

use super::ladder;
use crate::loaded::Loaded;
use crate::provoke::Provoke;
use crate::provoke::cgroup::CgroupTree;

/// First argument that makes this program run as that user.
pub const UNPRIVILEGED: &str = "unprivileged";
/// Second argument for a user who may also open cgroups by their id.
const HANDLES: &str = "handles";

const UNPRIVILEGED_ID: u32 = 65534;
const MIB: u64 = 1 << 20;

/// Checks the user's findings: which maps can be read without capabilities differs by kernel.
pub(super) fn few(provoke: &Provoke, handles: bool) -> io::Result<String> {
    // Before 5.11 maps count as locked memory, and raising the limit needs another capability.
    setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY)?;
    let mut user = User::start(handles)?;
    let mut tree = CgroupTree::new("few-capabilities")?;
    tree.add("container")?;
    tree.limit("container", 16 * MIB)?;
    let kill = || {
        provoke
            .eat_in(&tree.dir("container"), 128 * MIB)
            .map(|(pid, _)| pid)
    };

    let loaded = user.read("loaded")?;
    user.send(kill()?)?;
    let path = user.read("path")?;
    let expected = if handles {
        tree.path("container")
    } else {
        // Without permission to open by id, the agent has to walk.
        io::Error::from_raw_os_error(nix::errno::Errno::EPERM as i32).to_string()
    };
    assert_eq!(path, expected);
    let maps = user.read("maps")?;
    assert_eq!(
        maps == "reading ok, writing ok",
        maps_remain_usable()?,
        "{maps}"
    );
    user.send(kill()?)?;
    user.read("seen")?;
    let status = user.process.wait()?;
    assert!(status.success(), "{status}");
    Ok(format!(
        "{loaded}; path: {path}; without any capability: {maps}"
    ))
}

/// Returns whether a process with a map's descriptor may use it, as from 5.19 on. Before, each use
/// needs the capability again, if `kernel.unprivileged_bpf_disabled` has Debian's default; only the
/// rings, which are mapped, continue to work.
///
/// <https://github.com/torvalds/linux/commit/c8644cd0efe719608ddcb341bcf087d4bc0bf6b8>
fn maps_remain_usable() -> io::Result<bool> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let mut numbers = release.split('.').map_while(|n| n.parse::<u32>().ok());
    Ok((numbers.next(), numbers.next()) >= (Some(5), Some(19)))
}

struct User {
    process: Child,
    to: ChildStdin,
    from: Lines<BufReader<ChildStdout>>,
}

impl User {
    fn start(handles: bool) -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg(UNPRIVILEGED).args(handles.then_some(HANDLES));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let none = || io::Error::from(io::ErrorKind::BrokenPipe);
        Ok(Self {
            to: process.stdin.take().ok_or_else(none)?,
            from: BufReader::new(process.stdout.take().ok_or_else(none)?).lines(),
            process,
        })
    }

    /// Reads the next line, which must begin with this word.
    fn read(&mut self, word: &str) -> io::Result<String> {
        let line = self
            .from
            .next()
            .unwrap_or(Err(io::ErrorKind::UnexpectedEof.into()))?;
        let found = line.strip_prefix(word).map(|rest| rest.trim().to_owned());
        found.ok_or_else(|| io::Error::other(format!("instead of {word:?}: {line}")))
    }

    fn send(&mut self, pid: u32) -> io::Result<()> {
        writeln!(self.to, "{pid}")
    }
}

pub fn run_unprivileged(more: Option<&str>) -> io::Result<()> {
    std::panic::set_hook(Box::new(|info| println!("panic: {info}")));
    keep_only(more == Some(HANDLES))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let done = runtime.block_on(sees());
    if let Err(err) = &done {
        println!("error: {err}");
    }
    done
}

fn keep_only(handles: bool) -> io::Result<()> {
    set_keepcaps(true)?;
    setgroups(&[])?;
    setgid(Gid::from_raw(UNPRIVILEGED_ID))?;
    setuid(Uid::from_raw(UNPRIVILEGED_ID))?;
    let mut kept = CapsHashSet::from([Capability::CAP_BPF, Capability::CAP_PERFMON]);
    if handles {
        kept.insert(Capability::CAP_DAC_READ_SEARCH);
    }
    for set in [CapSet::Effective, CapSet::Permitted] {
        // Changing the user has emptied the effective set, and it must stay below the permitted
        // one.
        caps::set(None, set, &kept).map_err(io::Error::other)?;
    }
    Ok(())
}

async fn sees() -> io::Result<()> {
    let loaded = ladder::load(&Wanted::ALL)?;
    let attached = loaded.kernel.support().tier();
    let mut loaded = Loaded::start(loaded);
    println!("loaded tier {attached}");
    let mount = CgroupMount::open(Path::new("/sys/fs/cgroup"))?;
    let kill = next(&mut loaded).await?;
    match mount.path(kill.cgroup) {
        Ok(path) => println!("path {path}"),
        Err(err) => println!("path {err}"),
    }

    caps::clear(None, CapSet::Effective).map_err(io::Error::other)?;
    caps::clear(None, CapSet::Permitted).map_err(io::Error::other)?;
    set_no_new_privs()?;
    println!("maps {}", maps(&mut loaded));
    next(&mut loaded).await?;
    println!("seen");
    Ok(())
}

/// Waits for the kill of the process that the next line of input names.
async fn next(loaded: &mut Loaded) -> io::Result<RecordedKill> {
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    let pid = line.trim().parse().map_err(io::Error::other)?;
    Ok(loaded.kill_of(pid).await)
}

fn maps(loaded: &mut Loaded) -> String {
    let result = |done: Result<(), String>| done.map_or_else(|why| why, |()| "ok".to_owned());
    let counters = loaded.kernel.losses().map(drop).map_err(|e| e.to_string());
    let settings = loaded
        .kernel
        .set_pid_settings(PidSettings::default())
        .map_err(|err| err.to_string());
    format!("reading {}, writing {}", result(counters), result(settings))
}
