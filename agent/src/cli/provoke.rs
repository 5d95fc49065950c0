//! `nodepulse provoke`: causes one real incident, bounded in memory, tasks and time.
//!
//! A container or a systemd service has the limit that is reached. Without one, the command runs
//! itself again as a transient service that has it.

#![expect(clippy::print_stdout, reason = "progress is printed as it happens")]

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use nix::fcntl::OFlag;
use nodepulse_core::clock::BootNanos;
use nodepulse_core::escape::escape;
use nodepulse_core::units::Bytes;
use nodepulse_io::clock::Clock;
use nodepulse_linux::host::HostRoot;
use nodepulse_linux::host::cgroup::memory::CgroupMemory;
use nodepulse_linux::host::cgroup::{self, Hierarchy, Layout, ancestors};

use super::{fail, refuse};

/// `ExitStatus` has the number of a signal.
const SIGKILL: i32 = 9;

/// A larger limit is not reached on purpose: the node could run out first.
const MOST_MEMORY: Bytes = Bytes::from_kib(1 << 20);
const MOST_TASKS: u64 = 4096;
/// The time until the agent has read the counter of refused forks.
const READ: Duration = Duration::from_secs(3);

/// Set to one of the two for the transient service, and for the process that is killed.
const INNER: &str = "NODEPULSE_PROVOKE";
const SERVICE: &str = "service";
const CHILD: &str = "child";

/// How long a container runs after the kill, so that its state can be seen.
const ALIVE: Duration = Duration::from_mins(5);

const FILE: &str = "/var/tmp/nodepulse-provoke";
const WRITING: Duration = Duration::from_mins(1);
const WRITERS: u64 = 8;
/// Bytes of a write.
const BLOCK: usize = 1 << 20;
/// Blocks of the file for each writer, which writes them again and again.
const BLOCKS: u64 = 8;
/// Blocks that each writer writes: 512 MiB.
const WRITES: u64 = 512;

#[derive(Debug, Args)]
pub struct Arguments {
    incident: Provoked,
    /// Only for `disk`: a new file on that disk. It is removed at the end.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Provoked {
    /// A child process is killed at the memory limit of this container or service.
    Oom,
    /// Forks are refused at the limit on tasks of this container or service.
    Pids,
    /// A disk is busy with synchronous writes for a minute, or until 4 GiB are written.
    Disk,
}

pub fn run(Arguments { incident, file }: &Arguments) -> ExitCode {
    if file.is_some() && *incident != Provoked::Disk {
        return refuse(&"--file: only `nodepulse provoke disk` writes to a file");
    }
    let file = file.as_deref().unwrap_or(Path::new(FILE));
    let caused = match incident {
        Provoked::Oom if is_inner(CHILD) => allocate(),
        Provoked::Oom => oom(),
        Provoked::Pids => pids(),
        Provoked::Disk => disk(file),
    };
    match caused {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(why)) => refuse(&why),
        Err(Failure::Other(why)) => fail(&why),
    }
}

fn is_inner(which: &str) -> bool {
    std::env::var_os(INNER).is_some_and(|inner| inner == which)
}

enum Failure {
    Usage(String),
    Other(String),
}

fn cannot(what: &str) -> impl FnOnce(io::Error) -> Failure + '_ {
    move |err| Failure::Other(format!("cannot {what}: {err}"))
}

fn memory_limit() -> Option<(String, Bytes)> {
    let read = |memory: &Hierarchy, cgroup: &str| {
        let limit = CgroupMemory::new(memory, cgroup).limit(&mut Vec::new());
        limit.ok()?.filter(|limit| *limit <= MOST_MEMORY)
    };
    limit(|layout| Some(&layout.memory), read)
}

fn oom() -> Result<(), Failure> {
    let Some((cgroup, limit)) = memory_limit() else {
        return as_service("oom", "MemoryMax=64M", "resources.limits.memory: 64Mi");
    };
    let cgroup = name(&cgroup);
    println!("The memory limit of {cgroup} is {limit}. A child process exceeds it now.");
    let program = std::env::current_exe().map_err(cannot("find this program"))?;
    let mut child = Command::new(program);
    child.args(["provoke", "oom"]).env(INNER, CHILD);
    let ended = child.status().map_err(cannot("start a process"))?;
    if ended.signal() != Some(SIGKILL) {
        let why = format!(
            "the child process was not killed, but ended with {ended}; if there is swap, it has moved \
             there: for a service, add -p MemorySwapMax=0"
        );
        return Err(Failure::Other(why));
    }
    println!("The kernel has killed it, and this process, the main one, is alive.");
    report("the OOM kill");
    if is_in_pod() {
        println!(
            "\nThis container continues to run, as the Event reports, for {} s.",
            ALIVE.as_secs()
        );
        wait(ALIVE);
    }
    Ok(())
}

/// Allocates twice the limit.
fn allocate() -> Result<(), Failure> {
    let Some((_, limit)) = memory_limit() else {
        return Err(Failure::Usage(
            "this process has no memory limit".to_owned(),
        ));
    };
    // The kernel prefers it to this container's other processes.
    fs::write("/proc/self/oom_score_adj", "1000").map_err(cannot("set oom_score_adj"))?;
    let blocks = limit.get() / (1 << 19);
    let all: Vec<_> = (0..blocks).map(|_| vec![1_u8; BLOCK]).collect();
    drop(std::hint::black_box(all));
    Ok(())
}

fn pids() -> Result<(), Failure> {
    let read = |pids: &Hierarchy, cgroup: &str| {
        let read = cgroup::pids::read(pids, cgroup, &mut Vec::new());
        read.ok()??.max.filter(|max| *max <= MOST_TASKS)
    };
    let Some((cgroup, limit)) = limit(|layout| layout.pids.as_ref(), read) else {
        let of_node = "podPidsLimit of the kubelet, which a pod may not see";
        return as_service("pids", "TasksMax=32", of_node);
    };
    let cgroup = name(&cgroup);
    println!("The limit of {cgroup} is {limit} tasks. This process reaches it now.");
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap_or_else(PoisonError::into_inner);
    let mut refused = 0;
    for _ in 0..=limit {
        let gate = Arc::clone(&gate);
        let wait = move || drop(gate.lock());
        refused += u64::from(thread::Builder::new().spawn(wait).is_err());
    }
    // The agent reads the counter within a second or two, and it ends with the container.
    wait(READ);
    drop(closed);
    if refused == 0 {
        return Err(Failure::Other("the kernel has refused no task".to_owned()));
    }
    println!("Tasks that the kernel has refused: {refused}.");
    report("the refused forks");
    Ok(())
}

/// Returns the first cgroup of this process, from its own upwards, that has a limit. Under systemd,
/// a cgroup with other processes does not count, such as that of all sessions of a user. The
/// transient service has a limit itself.
fn limit<L>(
    hierarchy: impl Fn(&Layout) -> Option<&Hierarchy>,
    read: impl Fn(&Hierarchy, &str) -> Option<L>,
) -> Option<(String, L)> {
    let layout = Layout::detect(&HostRoot::new("/")).ok()?;
    let hierarchy = hierarchy(&layout)?;
    let all = procfs::process::Process::myself().ok()?.cgroups().ok()?;
    let mut all: Vec<_> = all.into_iter().map(|one| one.pathname).collect();
    // A container sees its cgroup here, whatever the path is on the node.
    all.push("/".to_owned());
    let (is_service, is_child) = (is_inner(SERVICE), is_inner(CHILD));
    let shares = is_under_systemd() && !is_service && !is_child;
    let mut cgroups = all.iter().flat_map(|path| ancestors(path));
    cgroups.find_map(|cgroup| {
        let may_reach = if is_service {
            cgroup != "/" && all.iter().any(|one| one == cgroup)
        } else {
            !shares || is_alone_in(&hierarchy.dir(cgroup))
        };
        let limit = may_reach.then(|| read(hierarchy, cgroup)).flatten()?;
        Some((cgroup.to_owned(), limit))
    })
}

fn is_under_systemd() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// Returns true if this process is the only one in the cgroup itself.
fn is_alone_in(cgroup: &Path) -> bool {
    let processes = fs::read_to_string(cgroup.join("cgroup.procs"));
    processes.is_ok_and(|all| all.trim_end() == std::process::id().to_string())
}

/// Runs this command as a transient service with the limit.
fn as_service(incident: &str, limit: &str, of_pod: &str) -> Result<(), Failure> {
    if !is_under_systemd() || is_inner(SERVICE) {
        let why = format!(
            "this process has no limit that could be reached; in a pod, set {of_pod}; under systemd, \
             run: systemd-run --pipe --wait -p {limit} nodepulse provoke {incident}"
        );
        return Err(Failure::Usage(why));
    }
    let program = std::env::current_exe().map_err(cannot("find this program"))?;
    println!("Running it as a service with {limit}.");
    let nested = format!("--setenv={INNER}={SERVICE}");
    let mut service = Command::new("systemd-run");
    service
        .args(["--pipe", "--wait", "--collect", "--quiet", &nested])
        // As a rule, systemd ends a service of which a process was OOM-killed.
        .args(["-p", limit, "-p", "MemorySwapMax=0"])
        .args(["-p", "OOMPolicy=continue"])
        .arg(program)
        .args(["provoke", incident]);
    Err(cannot("run systemd-run")(service.exec()))
}

/// Removes the file, however the writers end.
struct Removed<'a>(&'a Path);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        let _removed = fs::remove_file(self.0);
    }
}

fn disk(file: &Path) -> Result<(), Failure> {
    let shown = escape(file.display().to_string());
    let fault = |err: io::Error| format!("--file {shown}: {err}; name a new file on the disk");
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.custom_flags(OFlag::O_DSYNC.bits());
    let opened = options
        .open(file)
        .map_err(|err| Failure::Usage(fault(err)))?;
    let _removed = Removed(file);
    println!("Writing to {shown}, for a minute at most.");
    let until = moment().plus(WRITING);
    let write = |writer| write(&opened, writer, until);
    let times = thread::scope(|scope| {
        let writers = (0..WRITERS).map(|writer| scope.spawn(move || write(writer)));
        let writers: Vec<_> = writers.collect();
        let ended = writers
            .into_iter()
            .map(|writer| writer.join().unwrap_or_else(|_| Ok(Vec::new())));
        ended.collect::<io::Result<Vec<_>>>()
    });
    let mut times = times.map_err(|err| Failure::Other(fault(err)))?.concat();
    times.sort_unstable();
    let at = |part: usize| {
        times
            .get(times.len() * part / 100)
            .map_or(0, Duration::as_millis)
    };
    println!(
        "{} writes of 1 MiB; half of them took less than {} ms, and one in a hundred more than {} ms.",
        times.len(),
        at(50),
        at(99)
    );
    report("DiskIOPressure if that is slow for the disk (diskIO in the configuration)");
    Ok(())
}

/// Writes blocks, each of which is on the disk when its call returns. Returns their times.
fn write(file: &fs::File, writer: u64, until: BootNanos) -> io::Result<Vec<Duration>> {
    let block = vec![1_u8; BLOCK];
    let mut times = Vec::new();
    for number in 0..WRITES {
        let begin = moment();
        if until <= begin {
            break;
        }
        let at = writer * BLOCKS + number % BLOCKS;
        file.write_all_at(&block, at << 20)?;
        times.push(moment().since(begin));
    }
    Ok(times)
}

fn wait(time: Duration) {
    let (_sender, nothing) = mpsc::channel::<()>();
    // Always a timeout: the sender exists.
    let _timeout = nothing.recv_timeout(time);
}

fn moment() -> BootNanos {
    Clock::kernel().now().boot
}

/// Returns the name of a cgroup. A container that sees its cgroup alone sees it as the root.
fn name(cgroup: &str) -> String {
    if cgroup == "/" {
        "this container".to_owned()
    } else {
        escape(cgroup)
    }
}

fn is_in_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty())
}

/// Prints where the incident is visible.
fn report(incident: &str) {
    println!("{}", pointer(incident, is_in_pod()));
}

fn pointer(incident: &str, is_in_pod: bool) -> String {
    let of_cluster = if is_in_pod {
        "\n    kubectl describe pod POD       # this pod\n    kubectl nodepulse NODE         # its node"
    } else {
        ""
    };
    format!(
        "The agent of this machine reports {incident}:\n\n    \
         nodepulse history              # on the machine{of_cluster}"
    )
}

#[cfg(test)]
mod tests {
    use nodepulse_linux::host::scratch::Scratch;

    use super::*;

    #[test]
    fn kubectl_is_named_in_a_pod_only() {
        assert_eq!(
            pointer("it", false),
            "The agent of this machine reports it:\n\n    nodepulse history              # on the machine"
        );
        assert_eq!(pointer("it", true).matches("\n    kubectl ").count(), 2);
    }

    #[test]
    fn a_process_is_alone_in_a_cgroup_only_if_there_is_no_other() {
        let dir = Scratch::new();
        let id = std::process::id();
        let rows = [
            (format!("{id}\n"), true),
            (format!("{id}\n{}\n", id + 1), false),
            (String::new(), false),
        ];
        for (processes, expected) in rows {
            fs::write(dir.path().join("cgroup.procs"), &processes).unwrap();
            assert_eq!(is_alone_in(dir.path()), expected, "{processes:?}");
        }
        assert!(!is_alone_in(&dir.path().join("absent")));
    }
}
