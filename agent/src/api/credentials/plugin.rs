//! A program that the kubeconfig names, which prints credentials: client-go's exec plugins.
//!
//! kube would run it on whatever thread builds a client, without a limit, and up to three times.

#![forbid(unsafe_code)]

use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime};

use kube::config::{ExecConfig, ExecInteractiveMode};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::api::convert::parse_time;

/// The longest answer: certificates and keys of a few KiB.
const LONGEST: usize = 256 << 10;
/// How often to look whether it has ended, once it has closed its output.
const LOOK: u16 = 10;

/// What it printed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Issued {
    pub(super) token: Option<String>,
    /// Certificate and key, as PEM.
    pub(super) identity: Option<(String, String)>,
    pub(super) ends: Option<SystemTime>,
}

/// What is wrong with it before it is ever run.
pub(super) fn refused(exec: &ExecConfig) -> Option<&'static str> {
    if exec.command.as_deref().is_none_or(str::is_empty) {
        return Some("users[].user.exec names no command");
    }
    if exec.interactive_mode == Some(ExecInteractiveMode::Always) {
        return Some("users[].user.exec.interactiveMode is Always, and nobody is there to answer");
    }
    None
}

/// Runs it; kills it after `limit`.
pub(super) fn run(exec: &ExecConfig, limit: Duration) -> Result<Issued, String> {
    let end = Instant::now() + limit;
    let command = exec.command.as_deref().unwrap_or_default();
    let mut child = spawn(command, exec).map_err(|err| format!("cannot run {command:?}: {err}"))?;
    let printed = child.stdout.take().map(|out| read(out, end));
    let status = wait(&mut child, end).map_err(|err| format!("{command:?}: {err}"))?;
    let Some(status) = status else {
        return Err(format!("{command:?} was not done within {limit:?}"));
    };
    let printed = printed.unwrap_or_else(|| Ok(Vec::new()));
    let printed = printed.map_err(|err| format!("{command:?}: {err}"))?;
    if !status.success() {
        return Err(format!("{command:?} failed: {status}"));
    }
    let printed: Value = serde_json::from_slice(&printed)
        // Not what stands there, which may be half a secret.
        .map_err(|err| {
            format!(
                "{command:?} printed no ExecCredential: {:?}",
                err.classify()
            )
        })?;
    issued(&printed).ok_or_else(|| format!("{command:?} printed neither token nor certificate"))
}

fn spawn(command: &str, exec: &ExecConfig) -> io::Result<Child> {
    let cluster = exec.cluster.as_ref().filter(|_| exec.provide_cluster_info);
    let mut spec = json!({ "interactive": false });
    if let (Some(cluster), Some(spec)) = (cluster, spec.as_object_mut()) {
        spec.insert("cluster".to_owned(), json!(cluster));
    }
    let asked = json!({ "kind": "ExecCredential", "apiVersion": exec.api_version, "spec": spec });
    let variables = exec.env.iter().flatten().filter_map(|variable| {
        let name = variable.get("name")?;
        Some((name, variable.get("value")?))
    });
    Command::new(command)
        .args(exec.args.iter().flatten())
        .envs(variables)
        .env("KUBERNETES_EXEC_INFO", asked.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
}

/// All that it prints, until it closes its output.
fn read(mut out: ChildStdout, end: Instant) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut part = [0; 4096];
    loop {
        let mut waiting = [PollFd::new(out.as_fd(), PollFlags::POLLIN)];
        if poll(&mut waiting, left(end))? == 0 {
            return Ok(all); // Too late. Whoever waits for its end says so.
        }
        let read = out.read(&mut part)?;
        all.extend(part.iter().take(read));
        if read == 0 {
            return Ok(all);
        }
        if all.len() > LONGEST {
            return Err(io::Error::other("it prints too much"));
        }
    }
}

/// Its status; `None` where it had to be killed.
fn wait(child: &mut Child, end: Instant) -> io::Result<Option<std::process::ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if end <= Instant::now() {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        poll(&mut [], PollTimeout::from(LOOK))?;
    }
}

fn left(end: Instant) -> PollTimeout {
    let left = end.saturating_duration_since(Instant::now());
    PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
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
    use super::*;

    fn shell(script: &str) -> ExecConfig {
        let exec = json!({
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "/bin/sh",
            "args": ["-c", script],
            "env": [{ "name": "SAID", "value": "secret" }],
        });
        serde_json::from_value(exec).unwrap()
    }

    #[test]
    fn what_it_prints_is_taken_and_what_it_does_wrong_is_told() {
        let limit = Duration::from_secs(10);
        let good =
            r#"echo '{"status":{"token":"'$SAID'","expirationTimestamp":"2026-01-01T00:00:00Z"}}'"#;
        let issued = run(&shell(good), limit).unwrap();
        assert_eq!(issued.token.as_deref(), Some("secret"));
        let ends = SystemTime::UNIX_EPOCH + Duration::from_hours(490_896);
        assert_eq!(issued.ends, Some(ends));
        let asked = r#"printf '{"status":{"token":"%s"}}' "$(echo $KUBERNETES_EXEC_INFO | tr -cd a-z/0-9)""#;
        let token = run(&shell(asked), limit).unwrap().token.unwrap();
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
            let err = run(&shell(script), limit).unwrap_err();
            assert!(err.contains(expected), "{script}: {err}");
            assert!(!err.contains("half-a-secret"), "{err}");
        }
        let missing: ExecConfig = serde_json::from_value(json!({ "command": "/no/such" })).unwrap();
        let err = run(&missing, limit).unwrap_err();
        assert!(err.contains("cannot run \"/no/such\""), "{err}");
    }

    #[test]
    fn one_that_hangs_is_killed() {
        for script in ["sleep 60", "exec >&-; sleep 60"] {
            let before = Instant::now();
            let err = run(&shell(script), Duration::from_millis(100)).unwrap_err();
            assert!(err.contains("not done within 100ms"), "{script}: {err}");
            assert!(before.elapsed() < Duration::from_secs(30), "{script}");
        }
    }
}
