//! The real program, as an operator starts it.
//!
//! Runs without privileges: give `--kernel-tier files` if probes are not the subject.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::SOON;

/// What of the environment a program gets: nothing that names a node or a cluster.
const ENVIRONMENT: [&str; 2] = ["PATH", "HOME"];

/// What its log has before the address of its pages.
const SERVING: &str = "serving address=";

/// The arguments of a daemon that keeps the Node `worker-1`, wants no container runtime to be
/// ready, and finds its address by the default route; then `further`.
pub fn node_mode(further: &[&str]) -> Vec<String> {
    node_mode_of("worker-1", "0.0.0.0", further)
}

/// The same for a Node of this name with this address.
pub fn node_mode_of(name: &str, ip: &str, further: &[&str]) -> Vec<String> {
    let always = [
        ["run", "--allow-ready-without-runtime"],
        ["--mode", "node"],
        ["--node-name", name],
        ["--node-ip", ip],
    ];
    let all = always.as_flattened().iter().chain(further);
    all.map(|&arg| arg.to_owned()).collect()
}

/// A process; killed with this value.
#[derive(Debug)]
pub struct Process {
    child: Child,
    lines: Lines,
    reading: JoinHandle<()>,
    /// Its state directory, unless another is given.
    state: tempfile::TempDir,
}

/// The result of a command that ends by itself.
#[derive(Debug)]
pub struct Output {
    /// Exit code; `None` after a signal.
    pub code: Option<i32>,
    /// What it printed.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// How a process ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code; `None` after a signal that it did not handle.
    pub code: Option<i32>,
    /// What it wrote to stderr, line by line.
    pub stderr: Vec<String>,
}

/// What a command wrote until its end.
#[derive(Debug)]
pub struct Finished {
    /// Exit code; `None` after a signal.
    pub code: Option<i32>,
    /// What it wrote to stdout.
    pub stdout: String,
    /// What it wrote to stderr, line by line.
    pub stderr: Vec<String>,
}

/// Runs `nodepulse` to its end, with `input` on stdin, and nothing of this environment.
pub async fn finished<Arg: AsRef<OsStr>>(
    args: impl IntoIterator<Item = Arg>,
    input: &str,
) -> Finished {
    run(&program(), args, input).await
}

/// Runs a program like [`finished`].
pub async fn run<Arg: AsRef<OsStr>>(
    program: &Path,
    args: impl IntoIterator<Item = Arg>,
    input: &str,
) -> Finished {
    let mut child = Command::new(program)
        .args(args)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("start nodepulse");
    let mut stdin = child.stdin.take().expect("stdin is a pipe");
    // A process that reads nothing may have ended already.
    drop(stdin.write_all(input.as_bytes()).await);
    drop(stdin);
    let output = timeout(SOON, child.wait_with_output()).await;
    let output = output.expect("it ends").expect("wait for the child");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Finished {
        code: output.status.code(),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr).lines().map(str::to_owned).collect(),
    }
}

/// Stderr so far. Shared between the reader and a test that waits for a line.
#[derive(Debug, Clone)]
struct Lines {
    read: Arc<Mutex<Vec<String>>>,
    changed: Arc<watch::Sender<()>>,
}

impl Process {
    /// Starts `nodepulse` with these arguments. A kubelet of this machine does not matter to it.
    #[must_use]
    pub fn start<Arg: AsRef<OsStr>>(args: impl IntoIterator<Item = Arg>) -> Self {
        Self::start_program(&program(), args)
    }

    /// The same with a program that lies elsewhere.
    #[must_use]
    pub fn start_program<Arg: AsRef<OsStr>>(
        program: &Path,
        args: impl IntoIterator<Item = Arg>,
    ) -> Self {
        let mut command = Command::new(program);
        command.args(args);
        Self::spawn(command, true)
    }

    /// The same, but it checks for a kubelet.
    #[must_use]
    pub fn start_alongside_kubelet<Arg: AsRef<OsStr>>(args: impl IntoIterator<Item = Arg>) -> Self {
        let mut command = Command::new(program());
        command.args(args);
        Self::spawn(command, false)
    }

    /// The same with only these capabilities, as `setpriv` names them, for any user.
    #[must_use]
    pub fn start_with_only(capabilities: &[&str], args: &[&str]) -> Self {
        let set: String = capabilities
            .iter()
            .map(|name| format!(",+{name}"))
            .collect();
        let mut command = Command::new("setpriv");
        command
            .arg(format!("--bounding-set=-all{set}"))
            .arg(format!("--inh-caps=-all{set}"))
            .arg(program())
            .args(args);
        Self::spawn(command, true)
    }

    /// The same with these variables in its environment.
    #[must_use]
    pub fn start_in(environment: &[(&str, &str)], args: &[&str]) -> Self {
        let mut command = Command::new(program());
        command.args(args);
        let state = tempfile::tempdir().expect("a temporary directory");
        prepare(&mut command, true, state.path());
        command.envs(environment.iter().copied());
        Self::spawn_prepared(command, state)
    }

    /// Runs a command to its end, with the state directory of this process, if it has one.
    pub async fn output(daemon: Option<&Self>, args: &[&str]) -> Output {
        let temporary = tempfile::tempdir().expect("a temporary directory");
        let state = daemon.map_or(temporary.path(), Self::state);
        let mut command = Command::new(program());
        command.args(args);
        prepare(&mut command, true, state);
        command.kill_on_drop(true);
        let ended = timeout(crate::SOON, command.output()).await;
        let ended = ended.expect("it ends by itself").expect("start nodepulse");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Output {
            code: ended.status.code(),
            stdout: text(ended.stdout),
            stderr: text(ended.stderr),
        }
    }

    fn spawn(mut command: Command, take_over: bool) -> Self {
        let state = tempfile::tempdir().expect("a temporary directory");
        prepare(&mut command, take_over, state.path());
        Self::spawn_prepared(command, state)
    }

    fn spawn_prepared(mut command: Command, state: tempfile::TempDir) -> Self {
        command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().expect("start nodepulse");
        let lines = Lines {
            read: Arc::default(),
            changed: Arc::new(watch::Sender::new(())),
        };
        let stderr = child.stderr.take().expect("stderr is a pipe");
        let reading = tokio::spawn(read(stderr, lines.clone()));
        Self {
            child,
            lines,
            reading,
            state,
        }
    }

    /// Its process id; 0 once it was waited for.
    pub fn id(&self) -> u32 {
        self.child.id().unwrap_or(0)
    }

    /// Its state directory.
    pub fn state(&self) -> &Path {
        self.state.path()
    }

    /// Asks it to read its configuration again.
    pub fn hang_up(&self) {
        self.signal(Signal::SIGHUP);
    }

    /// Lines of stderr so far that contain `words`.
    pub fn lines_with(&self, words: &str) -> Vec<String> {
        let mut lines = self.lines.so_far();
        lines.retain(|line| line.contains(words));
        lines
    }

    /// Asks it to end.
    pub fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Ends it without asking.
    pub fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }

    /// Stops it until [`Process::resume`].
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// It runs again.
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.id().expect("it has not been waited for");
        let id = i32::try_from(id).expect("a process id");
        kill(Pid::from_raw(id), signal).expect("signal the child");
    }

    /// Waits for a line of stderr that contains `words`.
    pub async fn wait_for_line(&self, words: &str, deadline: Duration) -> String {
        self.wait_for_line_again(words, 1, deadline).await
    }

    /// Waits for so many such lines; returns the last.
    pub async fn wait_for_line_again(
        &self,
        words: &str,
        times: usize,
        deadline: Duration,
    ) -> String {
        let mut changed = self.lines.changed.subscribe();
        let search = async {
            loop {
                changed.mark_unchanged();
                let lines = self.lines.so_far();
                let mut found = lines.iter().filter(|line| line.contains(words));
                if let Some(line) = found.nth(times - 1) {
                    return line.clone();
                }
                if changed.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        let found = timeout(deadline, search).await;
        found.unwrap_or_else(|_| {
            panic!(
                "waited {deadline:?} for {words:?} in:\n{}",
                self.lines.so_far().join("\n")
            )
        })
    }

    /// Waits until it serves; then, where.
    pub async fn address(&self) -> String {
        self.address_again(1).await
    }

    /// The same once it has begun to serve this many times.
    pub async fn address_again(&self, times: usize) -> String {
        let line = self.wait_for_line_again(SERVING, times, SOON).await;
        let (_, address) = line.split_once(SERVING).expect("it is in the line");
        let end = address.find(' ').unwrap_or(address.len());
        address[..end].to_owned()
    }

    /// Waits until it has ended.
    pub async fn ends(mut self, deadline: Duration) -> Ended {
        let ended = async {
            let status = self.child.wait().await.expect("wait for the child");
            (&mut self.reading)
                .await
                .expect("the reader does not panic");
            status
        };
        let Ok(status) = timeout(deadline, ended).await else {
            panic!(
                "nodepulse still runs after {deadline:?}; its log:\n{}",
                self.lines.so_far().join("\n")
            );
        };
        Ended {
            code: status.code(),
            stderr: self.lines.so_far(),
        }
    }
}

/// Nothing of this machine matters to it but what the test names.
fn prepare(command: &mut Command, take_over: bool, state: &Path) {
    // Agents that have a state directory in common have a history in common.
    let mut args = command.as_std().get_args();
    let given = args.find(|arg| *arg == "--state-directory");
    let given = given.and_then(|_| args.next()).map(PathBuf::from);
    let history = given.unwrap_or_else(|| state.to_owned()).join("history");
    command
        .env_clear()
        .envs(std::env::vars().filter(|(name, _)| ENVIRONMENT.contains(&name.as_str())))
        .env("NODEPULSE_TAKE_OVER", take_over.to_string())
        // Several run at a time. A flag turns it on.
        .env("NODEPULSE_SERVE_ADDRESS", "off")
        .env("NODEPULSE_STATE_DIRECTORY", state)
        .env("NODEPULSE_HISTORY_DIRECTORY", history)
        .stdin(Stdio::null());
}

impl Lines {
    fn so_far(&self) -> Vec<String> {
        self.read
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

async fn read(from: impl AsyncRead + Unpin, lines: Lines) {
    let mut from = BufReader::new(from).lines();
    // A line that is not UTF-8 ends the reading; a test that misses it prints what was read.
    while let Ok(Some(line)) = from.next_line().await {
        lines
            .read
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(line);
        lines.changed.send_replace(());
    }
}

/// `nodepulse`, in the parent directory of this test's program.
pub fn program() -> PathBuf {
    program_of("nodepulse")
}

/// A program of the workspace, which has the name of its package.
pub fn program_of(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    // A test is in target/<profile>/deps; PID 1 of a virtual machine is in the same directory.
    let mut places = test.ancestors().skip(1).take(2);
    let program = places
        .find_map(|dir| Some(dir.join(name)).filter(|program| program.is_file()))
        .unwrap_or_else(|| name.into());
    assert!(
        program.is_file(),
        "{} is not there: run `cargo build -p {name}` first",
        program.display()
    );
    program
}
