//! The explanation of an agent, from `nodepulse explain` in its pod by `kubectl exec`: kubectl is
//! available, since this is its plugin, and it supports the protocols of all versions.

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

/// Timeout for the output.
const PATIENCE: Duration = Duration::from_secs(15);
/// Maximum size of the output in bytes.
const OUTPUT: u64 = 1 << 20;

/// Reads the explanation. The error is part of a sentence.
pub async fn read(cluster: &Cluster, pod: &AgentPod) -> Result<Explanation, String> {
    let mut command = Command::new("kubectl");
    command
        .args(&cluster.kubectl)
        .args(arguments(pod))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().map_err(|err| match err.kind() {
        io::ErrorKind::NotFound => "kubectl is not in PATH".to_owned(),
        _ => format!("cannot run kubectl: {err}"),
    })?;
    let pid = i32::try_from(child.id()).ok().map(Pid::from_raw);
    let Ok(finished) = timeout(PATIENCE, spawn_blocking(move || finish(child))).await else {
        if let Some(pid) = pid {
            // It may have ended in this moment.
            let _ended = kill(pid, Signal::SIGKILL);
        }
        return Err(format!("no answer within {} s", PATIENCE.as_secs()));
    };
    let finished = finished.map_err(|err| one_line(&err.to_string()))?;
    let output = finished.map_err(|why| one_line(&why))?;
    serde_json::from_str(&output)
        .map_err(|err| one_line(&format!("the agent's answer cannot be read: {err}")))
}

/// The name is part of an argument that cannot be an option, whatever the API server calls the pod.
fn arguments(pod: &AgentPod) -> Vec<String> {
    let namespace = format!("--namespace={}", pod.namespace);
    let pod = format!("pod/{}", pod.name);
    let of_kubectl = ["exec", &namespace, &pod, "--container=nodepulse"];
    let of_agent = ["--", "/nodepulse", "explain", "--output=json"];
    let all = of_kubectl.into_iter().chain(of_agent);
    all.map(str::to_owned).collect()
}

fn finish(mut child: Child) -> Result<String, String> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let errors = std::thread::spawn(move || text(stderr));
    let output = text(stdout);
    let errors = errors.join().unwrap_or_default();
    let status = child.wait().map_err(|err| err.to_string())?;
    if !status.success() {
        let last = errors.lines().rfind(|line| !line.trim().is_empty());
        return Err(last.map_or_else(|| status.to_string(), str::to_owned));
    }
    Ok(output)
}

/// Reads at most [`OUTPUT`] bytes of a stream. The rest is dropped, and its writer ends.
fn text(stream: Option<impl io::Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // What was read before an error is printed.
        drop(stream.take(OUTPUT).read_to_end(&mut bytes));
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
        let arguments = arguments(&pod);
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
}
