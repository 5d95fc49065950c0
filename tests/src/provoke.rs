//! Provokes real kernel events that the agent must report: kills, forks, slow disks.
//!
//! All changes are undone on drop. Children running the `provoke` binary do the work, so that the
//! calling process is not the one that is killed.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

pub mod cgroup;
pub mod disk;
pub mod ioctl;
pub mod swap;

/// The children's program. Cargo builds it into the directory of this package's other binaries.
#[derive(Debug, Clone)]
pub struct Provoke {
    program: PathBuf,
}

/// Ends the processes on drop.
#[derive(Debug)]
pub struct Crowd {
    leader: Child,
}

impl Provoke {
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
        }
    }

    /// Finds the program in the directory of the running one.
    pub fn next_to_this_program() -> io::Result<Self> {
        Ok(Self::new(
            std::env::current_exe()?.with_file_name("provoke"),
        ))
    }

    /// Fills memory inside `cgroup` until the kernel kills it. Returns the victim's pid and how it
    /// ended.
    pub fn eat_in(&self, cgroup: &Path, bytes: u64) -> io::Result<(u32, ExitStatus)> {
        killed(self.command().arg("eat").arg(cgroup).arg(bytes.to_string()))
    }

    /// Fills memory as a process that sets `name`, of which the kernel keeps 15 bytes.
    pub fn eat_as(&self, name: &OsStr, cgroup: &Path, bytes: u64) -> io::Result<(u32, ExitStatus)> {
        let mut command = self.command();
        command.arg("eat").arg(cgroup).arg(bytes.to_string());
        killed(command.arg(name))
    }

    /// Runs the program with these words to its end. `namespace` in front of a command makes a new
    /// pid namespace for it, `parent CGROUP` a parent inside that cgroup, which outlives it, and
    /// `users`, which must be the first, a user namespace in which root is user 1000.
    pub fn run(&self, words: &[&OsStr]) -> io::Result<()> {
        killed(self.command().args(words)).map(drop)
    }

    /// Forks without end inside `cgroup`, which must bound it, and which has to be emptied.
    pub fn bomb_in(&self, cgroup: &Path) -> io::Result<Child> {
        let mut command = self.command();
        command.arg("bomb").arg(cgroup).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    }

    /// Forks `count` processes, which stay until the result is dropped. Returns once all exist.
    pub fn crowd(&self, count: u32) -> io::Result<Crowd> {
        started(self.command().arg("crowd").arg(count.to_string()))
    }

    /// Forks `count` processes inside `cgroup`.
    pub fn crowd_in(&self, cgroup: &Path, count: u32) -> io::Result<Crowd> {
        let mut command = self.command();
        started(command.arg("crowd").arg(cgroup).arg(count.to_string()))
    }

    /// Starts `count` threads and waits for their end, `rounds` times.
    pub fn storm(&self, count: u32, rounds: u32) -> io::Result<()> {
        let mut storm = self.command();
        let status = storm
            .arg("storm")
            .args([count.to_string(), rounds.to_string()])
            .status()?;
        let failed = || Err(io::Error::other(format!("the storm ended with {status}")));
        if status.success() { Ok(()) } else { failed() }
    }

    /// Tries `count` forks inside `cgroup`, each a process that runs until all were tried. Returns
    /// how many the kernel refused.
    pub fn fork_in(&self, cgroup: &Path, count: u32) -> io::Result<u64> {
        let mut command = self.command();
        let printed = command.arg("fork").arg(cgroup).arg(count.to_string());
        let printed = String::from_utf8_lossy(&printed.output()?.stdout).into_owned();
        printed.trim().parse().map_err(io::Error::other)
    }

    /// Starts a process inside `cgroup` that does nothing, until the result is dropped.
    pub fn wait_in(&self, cgroup: &Path) -> io::Result<Crowd> {
        started(self.command().arg("wait").arg(cgroup))
    }

    /// Starts processes inside `cgroup` that do nothing, until the result is dropped. They are
    /// forks of a shell, which need less memory and time than programs.
    pub fn sleepers_in(cgroup: &Path, count: u32) -> io::Result<Crowd> {
        const FORKS: &str = "exec 3<&0; echo $$ > \"$1\"; n=0
            while [ $n -lt $2 ]; do { read -r _ <&3; } & n=$((n+1)); done
            printf .; read -r _ <&3; wait";
        let mut shell = Command::new("sh");
        shell.args(["-c", FORKS, "sh"]);
        shell
            .arg(cgroup.join("cgroup.procs"))
            .arg(count.to_string());
        started(&mut shell)
    }

    /// Starts a process inside `cgroup` with `bytes` of allocated memory, until the result is
    /// dropped.
    pub fn allocate_in(&self, cgroup: &Path, bytes: u64) -> io::Result<Crowd> {
        started(
            self.command()
                .arg("allocate")
                .arg(cgroup)
                .arg(bytes.to_string()),
        )
    }

    /// Starts a process with this `oom_score_adj` and `bytes` of allocated memory.
    pub fn allocate_with_score(&self, cgroup: &Path, score: i64, bytes: u64) -> io::Result<Crowd> {
        let mut command = self.command();
        command.args(["score", &score.to_string(), "allocate"]);
        started(command.arg(cgroup).arg(bytes.to_string()))
    }

    /// Starts the program with these words: see [`Provoke::run`]. `main CGROUP` is a parent inside
    /// that cgroup that lives until the result is dropped, and `score NUMBER` sets `oom_score_adj`.
    pub fn start(&self, words: &[&str]) -> io::Result<Running> {
        let mut command = self.command();
        command.args(words).stdin(Stdio::piped());
        let child = command.stdout(Stdio::null()).spawn()?;
        Ok(Running { child })
    }

    /// Starts a process inside `cgroup` that reads `file` repeatedly, until the result is dropped.
    pub fn thrash_in(&self, cgroup: &Path, file: &Path) -> io::Result<Crowd> {
        started(self.command().arg("thrash").arg(cgroup).arg(file))
    }

    /// Starts a load of [`crate::alarms::loads`] inside `cgroup`.
    pub fn load(&self, cgroup: &Path, load: &[&str]) -> io::Result<Load> {
        let mut command = self.command();
        command.arg("load").arg(cgroup).args(load);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        Ok(Load {
            child: command.stderr(Stdio::piped()).spawn()?,
        })
    }

    fn command(&self) -> Command {
        Command::new(&self.program)
    }
}

/// Kills the load on drop.
#[derive(Debug)]
pub struct Load {
    child: Child,
}

impl Load {
    /// Waits until it has ended. Returns its output.
    pub fn ends(mut self) -> io::Result<String> {
        let read = |pipe: Option<&mut dyn io::Read>| {
            let mut text = String::new();
            pipe.map(|pipe| pipe.read_to_string(&mut text));
            text
        };
        let printed = read(self.child.stdout.as_mut().map(|pipe| pipe as _));
        let errors = read(self.child.stderr.as_mut().map(|pipe| pipe as _));
        let status = self.child.wait()?;
        let failed = || io::Error::other(format!("the load ended with {status}: {errors}"));
        status.success().then_some(printed).ok_or_else(failed)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // It may have ended already; `wait` below returns its status.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A program that runs until its input ends, which it does on drop, or until it is killed.
#[derive(Debug)]
pub struct Running {
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

/// Runs the command to its end. Returns its pid and exit status.
fn killed(command: &mut Command) -> io::Result<(u32, ExitStatus)> {
    let mut child = command.stdout(Stdio::null()).spawn()?;
    Ok((child.id(), child.wait()?))
}

/// Starts the command, and waits until it reports that it is ready.
fn started(command: &mut Command) -> io::Result<Crowd> {
    let mut leader = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut ready = [0_u8; 1];
    let ready = leader
        .stdout
        .take()
        .map(|mut out| io::Read::read_exact(&mut out, &mut ready));
    let crowd = Crowd { leader };
    match ready {
        Some(Ok(())) => Ok(crowd),
        Some(Err(err)) => Err(err),
        None => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

impl Crowd {
    /// Returns the pid of the process that was started.
    pub fn id(&self) -> u32 {
        self.leader.id()
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // The end of its input makes the leader exit, and the leader ends all others.
        drop(self.leader.stdin.take());
        if let Err(err) = self.leader.wait() {
            eprintln!("waiting for the crowd to go: {err}");
        }
    }
}

/// Returns the present number of tasks: field 4 of `/proc/loadavg`, after the slash.
pub fn tasks() -> io::Result<u32> {
    let text = fs::read_to_string("/proc/loadavg")?;
    let total = text
        .split(' ')
        .nth(3)
        .and_then(|field| field.split_once('/'));
    total
        .and_then(|(_, total)| total.parse().ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, text))
}
