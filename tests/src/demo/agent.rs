//! Runs the agent as a process, and reads its log.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::sync::watch;

/// After SIGTERM the agent waits two seconds for queued Events.
const GRACE: Duration = Duration::from_secs(5);

/// Stops the agent with SIGTERM on drop.
pub struct Agent {
    child: Child,
    /// The reader thread fills it and the steps read it: lines outlive the step that waits.
    lines: Arc<Mutex<Vec<Value>>>,
    grown: watch::Receiver<usize>,
    ended: Receiver<()>,
}

impl Agent {
    pub fn start(binary: &Path, config: &Path, kubeconfig: &Path) -> Result<Self> {
        let mut child = Command::new(binary)
            .args(["run", "--config"])
            .arg(config)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg("--state-directory")
            .arg(config.with_file_name("state"))
            .arg("--history-directory")
            .arg(config.with_file_name("history"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run the agent at {}", binary.display()))?;
        let stderr = child
            .stderr
            .take()
            .context("the agent has no standard error")?;
        let lines: Arc<Mutex<Vec<Value>>> = Arc::default();
        let (changed, grown) = watch::channel(0);
        let (running, ended) = std::sync::mpsc::channel();
        let shared = Arc::clone(&lines);
        std::thread::spawn(move || {
            let _running: Sender<()> = running;
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let line = serde_json::from_str(&line).unwrap_or(Value::String(line));
                let mut lines = shared.lock().unwrap_or_else(PoisonError::into_inner);
                lines.push(line);
                changed.send_replace(lines.len());
            }
        });
        Ok(Self {
            child,
            lines,
            grown,
            ended,
        })
    }

    /// Returns the first log line for which `pick` returns a value, including earlier ones.
    pub async fn line<T>(&self, limit: Duration, pick: impl Fn(&Value) -> Option<T>) -> Option<T> {
        let mut grown = self.grown.clone();
        let search = async {
            loop {
                let found = self.lines().iter().find_map(&pick);
                if found.is_some() || grown.changed().await.is_err() {
                    return found;
                }
            }
        };
        tokio::time::timeout(limit, search).await.ok().flatten()
    }

    /// Returns programs with what they are attached to, or with the reason why they are not.
    pub fn probes(&self) -> Vec<(String, String)> {
        let probe = |line: &Value| {
            let fields = line.get("fields")?;
            let text = |key| Some(fields.get(key)?.as_str()?.to_owned());
            let state = text("hook").map(|hook| format!("attached to {hook}"));
            Some((text("probe")?, state.or_else(|| text("why"))?))
        };
        self.lines().iter().filter_map(probe).collect()
    }

    /// Returns the whole log, for error messages.
    pub fn log(&self) -> String {
        self.lines()
            .iter()
            .map(|line| format!("  {line}\n"))
            .collect()
    }

    fn lines(&self) -> Vec<Value> {
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(i32::MAX));
        // The reader thread ends when the agent does, and drops its end of the channel.
        let asked = kill(pid, Signal::SIGTERM);
        if asked.is_ok() && self.ended.recv_timeout(GRACE) == Err(RecvTimeoutError::Timeout) {
            eprintln!("the agent did not stop within {GRACE:?}; killed");
        }
        if let Err(err) = self.child.kill().and_then(|()| self.child.wait()) {
            eprintln!("stopping the agent: {err}");
        }
    }
}
