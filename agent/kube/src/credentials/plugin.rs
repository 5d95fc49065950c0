//! A program in the kubeconfig that prints credentials: client-go's exec plugins.
//!
//! kube would run it on the thread that builds a client, without a timeout, and up to three times.
//!
//! It runs in a separate process group, which is killed after the program has ended, at the
//! timeout, if it prints too much, and when the agent ends. Processes that it starts in another
//! group or session are not killed.

#![forbid(unsafe_code)]

use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use kube::config::{ExecConfig, ExecInteractiveMode};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use serde_json::error::Category;
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::debug;

use crate::body::{self, Limit};
use crate::convert::parse_time;
use crate::lock;

/// Maximum size of the output: certificates and keys of a few KiB.
const LONGEST: usize = 256 << 10;
/// Interval of checks whether it has ended, in milliseconds.
const POLL_MILLIS: u16 = 10;
/// How long it may take to die. A process that waits for a dead file server does not.
const KILLED_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Issued {
    pub(super) token: Option<String>,
    /// Certificate and key, as PEM.
    pub(super) identity: Option<(String, String)>,
    pub(super) ends: Option<SystemTime>,
}

/// What is wrong with it before it is run.
pub(super) fn problem(exec: &ExecConfig) -> Option<&'static str> {
    if exec.command.as_deref().is_none_or(str::is_empty) {
        return Some("users[].user.exec has no command");
    }
    if exec.interactive_mode == Some(ExecInteractiveMode::Always) {
        return Some("users[].user.exec.interactiveMode is Always, but there is no terminal");
    }
    None
}

/// The running group. Behind a mutex, because the thread that runs the program waits for it, and
/// the end of the agent must not wait for that thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunningPlugin(Arc<Mutex<GroupState>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum GroupState {
    #[default]
    Idle,
    /// The sandbox permits no program.
    Forbidden,
    Group(Pid),
    /// No other group is started.
    Ended,
}

impl RunningPlugin {
    /// No program may be run, because the sandbox does not permit it.
    pub(crate) fn forbidden() -> Self {
        Self(Arc::new(Mutex::new(GroupState::Forbidden)))
    }

    pub(crate) fn is_permitted(&self) -> bool {
        *lock(&self.0) != GroupState::Forbidden
    }

    /// Kills the running group, and prevents new ones.
    pub(crate) fn end(&self) {
        let mut state = lock(&self.0);
        if let GroupState::Group(group) = *state {
            kill(group);
        }
        *state = GroupState::Ended;
    }

    /// Starts `command`, unless the agent is ending.
    fn start(&self, command: &mut Command) -> io::Result<Group<'_>> {
        let mut state = lock(&self.0);
        if *state == GroupState::Ended {
            return Err(io::Error::other("the agent is ending"));
        }
        let child = command.spawn()?;
        let id = i32::try_from(child.id()).map_err(io::Error::other)?;
        *state = GroupState::Group(Pid::from_raw(id));
        Ok(Group {
            child,
            id: Pid::from_raw(id),
            running: self,
        })
    }
}

fn kill(group: Pid) {
    if let Err(err) = killpg(group, Signal::SIGKILL) {
        debug!(
            err = &err as &dyn std::error::Error,
            "no process left to kill"
        );
    }
}

fn wait() -> io::Result<()> {
    match poll(&mut [], PollTimeout::from(POLL_MILLIS)) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(err) => Err(err.into()),
    }
}

pub(super) fn run(
    exec: &ExecConfig,
    limit: Duration,
    running: &RunningPlugin,
) -> Result<Issued, String> {
    let begun = Instant::now();
    let command = exec.command.as_deref().unwrap_or_default();
    let mut group = running
        .start(&mut program(command, exec))
        .map_err(|err| format!("cannot run {command:?}: {err}"))?;
    let printed = group.read(begun, limit);
    let status = group.end();
    let printed = printed.map_err(|err| format!("{command:?}: {err}"))?;
    let Some(printed) = printed else {
        let seconds = limit.as_secs_f64();
        return Err(format!("{command:?} was not done within {seconds}s"));
    };
    let status = status.map_err(|err| format!("{command:?}: {err}"))?;
    if !status.success() {
        return Err(format!("{command:?} failed: {status}"));
    }
    parse(&printed).map_err(|err| format!("{command:?} printed {err}"))
}

const fn defect(category: Category) -> &'static str {
    match category {
        Category::Io => "unreadable",
        Category::Syntax => "invalid JSON",
        Category::Data => "unexpected data",
        Category::Eof => "incomplete JSON",
    }
}

/// Parses the output. Errors contain nothing of it, because it may be part of a secret.
pub(super) fn parse(printed: &[u8]) -> Result<Issued, String> {
    let printed = body::parse(printed, Limit::OBJECT)
        .map_err(|err| format!("no ExecCredential: {}", defect(err.classify())))?;
    issued(&printed).ok_or_else(|| "neither token nor certificate".to_owned())
}

/// The program and all processes that it has started in its group.
struct Group<'a> {
    child: Child,
    id: Pid,
    running: &'a RunningPlugin,
}

impl Group<'_> {
    /// Its output until it has ended, because its children may keep the output open longer. `None`
    /// if it has not ended within `limit`.
    fn read(&mut self, begun: Instant, limit: Duration) -> io::Result<Option<Vec<u8>>> {
        let mut out = self.child.stdout.take();
        let mut all = Vec::new();
        loop {
            // In this order: when it has ended, all of its output can be read.
            let ended = self.has_ended()?;
            while let Some(open) = &mut out
                && is_readable(open, 0)?
            {
                let mut part = [0; 4096];
                let read = open.read(&mut part)?;
                all.extend(part.iter().take(read));
                if read == 0 {
                    out = None;
                }
                if all.len() > LONGEST {
                    return Err(io::Error::other("it prints too much"));
                }
            }
            if ended {
                return Ok(Some(all));
            }
            if limit <= begun.elapsed() {
                return Ok(None);
            }
            match &out {
                Some(open) => {
                    is_readable(open, POLL_MILLIS)?;
                }
                None => wait()?,
            }
        }
    }

    /// Whether the program has ended. Its id is not reused until [`Group::end`].
    fn has_ended(&self) -> io::Result<bool> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        Ok(waitid(Id::Pid(self.id), flags)? != WaitStatus::StillAlive)
    }

    /// Kills the rest of the group. Returns the status of the program, which is that of the kill
    /// unless it had ended before.
    fn end(&mut self) -> io::Result<ExitStatus> {
        kill(self.id);
        let killed = Instant::now();
        while !self.has_ended()? {
            if KILLED_WITHIN <= killed.elapsed() {
                return Err(io::Error::other("it cannot be killed"));
            }
            wait()?;
        }
        // From here on the id may be reused.
        let mut state = lock(&self.running.0);
        if *state == GroupState::Group(self.id) {
            *state = GroupState::Idle;
        }
        self.child.wait()
    }
}

/// Whether there is data, or the end, within this many milliseconds.
fn is_readable(out: &ChildStdout, wait: u16) -> io::Result<bool> {
    let mut waiting = [PollFd::new(out.as_fd(), PollFlags::POLLIN)];
    match poll(&mut waiting, PollTimeout::from(wait)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(err) => Err(err.into()),
    }
}

fn program(command: &str, exec: &ExecConfig) -> Command {
    let cluster = exec.cluster.as_ref().filter(|_| exec.provide_cluster_info);
    let mut spec = json!({ "interactive": false });
    if let (Some(cluster), Some(spec)) = (cluster, spec.as_object_mut()) {
        spec.insert("cluster".to_owned(), json!(cluster));
    }
    let request = json!({ "kind": "ExecCredential", "apiVersion": exec.api_version, "spec": spec });
    let variables = exec.env.iter().flatten().filter_map(|variable| {
        let name = variable.get("name")?;
        Some((name, variable.get("value")?))
    });
    let mut program = Command::new(command);
    program
        .args(exec.args.iter().flatten())
        .envs(variables)
        .env("KUBERNETES_EXEC_INFO", request.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0);
    program
}

fn issued(printed: &Value) -> Option<Issued> {
    let text = |name: &str| {
        let text = printed.pointer("/status")?.get(name)?.as_str()?;
        (!text.is_empty()).then(|| text.to_owned())
    };
    let issued = Issued {
        token: text("token"),
        identity: text("clientCertificateData").zip(text("clientKeyData")),
        ends: parse_time(printed.pointer("/status/expirationTimestamp")),
    };
    (issued.token.is_some() || issued.identity.is_some()).then_some(issued)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use nodepulse_linux::host::scratch::Scratch;

    use super::*;

    fn shell(script: &str) -> ExecConfig {
        let exec = json!({
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "/bin/sh",
            "args": ["-c", script],
            "env": [{ "name": "VALUE", "value": "secret" }],
        });
        serde_json::from_value(exec).unwrap()
    }

    #[test]
    fn valid_output_is_used_and_every_error_is_reported() {
        let limit = Duration::from_secs(10);
        let good = r#"echo '{"status":{"token":"'$VALUE'","expirationTimestamp":"2026-01-01T00:00:00Z"}}'"#;
        let issued = run(&shell(good), limit, &RunningPlugin::default()).unwrap();
        assert_eq!(issued.token.as_deref(), Some("secret"));
        let ends = SystemTime::UNIX_EPOCH + Duration::from_hours(490_896);
        assert_eq!(issued.ends, Some(ends));
        let request = r#"printf '{"status":{"token":"%s"}}' "$(echo $KUBERNETES_EXEC_INFO | tr -cd a-z/0-9)""#;
        let token = run(&shell(request), limit, &RunningPlugin::default())
            .unwrap()
            .token
            .unwrap();
        assert!(
            token.contains("client.authentication.k8s.io/v1".replace('.', "").as_str()),
            "{token}"
        );

        let rows = [
            ("exit 3", "failed: exit status: 3"),
            ("echo half-a-secret", "printed no ExecCredential"),
            ("echo '{}'", "neither token nor certificate"),
            ("yes", "prints too much"),
        ];
        for (script, expected) in rows {
            let err = run(&shell(script), limit, &RunningPlugin::default()).unwrap_err();
            assert!(err.contains(expected), "{script}: {err}");
            assert!(!err.contains("half-a-secret"), "{err}");
        }
        let missing: ExecConfig = serde_json::from_value(json!({ "command": "/no/such" })).unwrap();
        let err = run(&missing, limit, &RunningPlugin::default()).unwrap_err();
        assert!(err.contains("cannot run \"/no/such\""), "{err}");
    }

    /// A script that starts another process, which outlives it with its output open, and then runs
    /// `more`. Also returns the file with the id of that process, and its directory.
    fn forking(more: &str) -> (ExecConfig, PathBuf, Scratch) {
        let dir = Scratch::new();
        let file = dir.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; {more}", file.display());
        (shell(&script), file, dir)
    }

    /// Waits until the process with the id in `file` has ended.
    fn is_killed(file: &std::path::Path) {
        let number = std::fs::read_to_string(file).unwrap();
        let stat = format!("/proc/{}/stat", number.trim());
        let before = Instant::now();
        // Ended, or dead and not waited for by its new parent.
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(
                before.elapsed() < Duration::from_secs(30),
                "{number} still runs"
            );
            poll(&mut [], PollTimeout::from(POLL_MILLIS)).unwrap();
        }
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children() {
        for more in ["sleep infinity", "exec >&-; sleep infinity"] {
            let (exec, file, _dir) = forking(more);
            let err =
                run(&exec, Duration::from_millis(500), &RunningPlugin::default()).unwrap_err();
            assert!(err.contains("not done within 0.5s"), "{more}: {err}");
            is_killed(&file);
        }
    }

    #[test]
    fn a_program_that_has_ended_is_not_waited_for_if_its_children_keep_its_output_open() {
        let (exec, file, _dir) = forking(r#"echo '{"status":{"token":"t"}}'"#);
        let issued = run(&exec, Duration::from_mins(1), &RunningPlugin::default()).unwrap();
        assert_eq!(issued.token.as_deref(), Some("t"));
        is_killed(&file);
    }

    #[test]
    fn a_program_that_prints_too_much_is_killed_at_once() {
        let (exec, file, _dir) = forking("trap '' PIPE; while :; do echo xxxxxxxxxxxxxxxx; done");
        let err = run(&exec, Duration::from_mins(1), &RunningPlugin::default()).unwrap_err();
        assert!(err.contains("prints too much"), "{err}");
        is_killed(&file);
    }

    #[test]
    fn a_program_is_killed_when_the_agent_ends_and_none_is_started_afterwards() {
        let (exec, file, _dir) = forking("sleep 60");
        let running = RunningPlugin::default();
        let thread = std::thread::spawn({
            let (exec, running) = (exec.clone(), running.clone());
            move || run(&exec, Duration::from_mins(1), &running)
        });
        let before = Instant::now();
        while !std::fs::read_to_string(&file).is_ok_and(|number| number.ends_with('\n')) {
            assert!(before.elapsed() < Duration::from_secs(30), "not started");
            poll(&mut [], PollTimeout::from(POLL_MILLIS)).unwrap();
        }
        running.end();
        is_killed(&file);
        let err = thread.join().unwrap().unwrap_err();
        assert!(err.contains("failed: signal: 9"), "{err}");
        let err = run(&exec, Duration::from_mins(1), &running).unwrap_err();
        assert!(err.contains("the agent is ending"), "{err}");
    }
}
