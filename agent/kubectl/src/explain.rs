//! Commands in the agent's pod by `kubectl exec`: kubectl is available, since this is its plugin,
//! and it supports the protocols of all versions. `nodepulse explain` explains the conditions.

use std::io::{self, Read as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nodepulse_core::explanation::Explanation;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::agent_pods::AgentPod;
use crate::cluster::Cluster;
use crate::failure::one_line;

const EXPLANATION: Request = Request {
    command: &["explain"],
    patience: Duration::from_secs(15),
    output: 1 << 20,
};

/// A command of the agent that prints JSON.
pub struct Request {
    pub command: &'static [&'static str],
    /// Timeout for the output.
    pub patience: Duration,
    /// Maximum size of the output in bytes. A larger one is an error.
    pub output: u64,
}

/// Reads the explanation. The error is part of a sentence.
pub async fn read(cluster: &Cluster, pod: &AgentPod) -> Result<Explanation, String> {
    let output = output(cluster, pod, &EXPLANATION).await?;
    serde_json::from_str(&output)
        .map_err(|err| one_line(&format!("the agent's answer cannot be read: {err}")))
}

/// Runs a command in the agent's pod. The error is part of a sentence.
pub async fn output(
    cluster: &Cluster,
    pod: &AgentPod,
    request: &Request,
) -> Result<String, String> {
    let mut command = Command::new("kubectl");
    command
        .args(&cluster.kubectl)
        .args(arguments(pod, request.command))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().map_err(|err| match err.kind() {
        io::ErrorKind::NotFound => "kubectl is not in PATH".to_owned(),
        _ => format!("cannot run kubectl: {err}"),
    })?;
    let pid = i32::try_from(child.id()).ok().map(Pid::from_raw);
    let (patience, limit) = (request.patience, request.output);
    let finished = spawn_blocking(move || finish(child, limit));
    let Ok(finished) = timeout(patience, finished).await else {
        if let Some(pid) = pid {
            // It may have ended in this moment.
            let _ended = kill(pid, Signal::SIGKILL);
        }
        return Err(format!("no answer within {} s", patience.as_secs()));
    };
    let finished = finished.map_err(|err| one_line(&err.to_string()))?;
    finished.map_err(|why| one_line(&why))
}

fn arguments(pod: &AgentPod, command: &[&str]) -> Vec<String> {
    let program = [&["/nodepulse"], command, &["--output=json"]].concat();
    exec(pod, &[], &program)
}

/// Returns the arguments of kubectl that run `program` in the agent's pod, with further `flags`.
/// The name is part of an argument that cannot be an option, whatever the API server calls the pod.
pub fn exec(pod: &AgentPod, flags: &[&str], program: &[&str]) -> Vec<String> {
    let namespace = format!("--namespace={}", pod.namespace);
    let pod = format!("pod/{}", pod.name);
    let of_kubectl = ["exec", &namespace, &pod, "--container=nodepulse"];
    let all = [&of_kubectl, flags, &["--"], program].concat();
    all.into_iter().map(str::to_owned).collect()
}

fn finish(mut child: Child, limit: u64) -> Result<String, String> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let errors = std::thread::spawn(move || text(stderr, limit));
    let output = text(stdout, limit);
    let errors = errors.join().unwrap_or_default();
    let status = child.wait().map_err(|err| err.to_string())?;
    if u64::try_from(output.len()).is_ok_and(|size| limit < size) {
        return Err(format!("the answer exceeds {} MiB", limit >> 20));
    }
    if !status.success() {
        // kubectl's last line has the exit code alone.
        let is_reason =
            |line: &&str| !line.trim().is_empty() && !line.starts_with("command terminated with");
        let last = errors.lines().rfind(is_reason);
        return Err(last.map_or_else(|| status.to_string(), str::to_owned));
    }
    Ok(output)
}

/// Reads one byte more than the limit at most. The rest is dropped, and its writer ends.
fn text(stream: Option<impl io::Read>, limit: u64) -> String {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // What was read before an error is printed.
        drop(stream.take(limit.saturating_add(1)).read_to_end(&mut bytes));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_name_of_a_pod_is_no_option_of_kubectl() {
        let pod = json!({
            "metadata": { "name": "-x", "namespace": "--as=admin" },
            "spec": { "nodeName": "worker-1", "containers": [{ "name": "nodepulse" }] },
        });
        let pod = AgentPod::of(serde_json::from_value(pod).unwrap()).unwrap();
        let arguments = arguments(&pod, &["explain"]);
        let expected = [
            "exec",
            "--namespace=--as=admin",
            "pod/-x",
            "--container=nodepulse",
        ];
        assert_eq!(arguments[..4], expected);
        assert_eq!(
            arguments[4..],
            ["--", "/nodepulse", "explain", "--output=json"]
        );
    }

    #[test]
    fn an_output_over_the_limit_is_an_error_and_its_writer_ends() {
        let mut endless = Command::new("yes");
        let child = endless.stdout(Stdio::piped()).stderr(Stdio::piped());
        let finished = finish(child.spawn().unwrap(), 1 << 20);
        assert_eq!(finished, Err("the answer exceeds 1 MiB".to_owned()));
    }
}
