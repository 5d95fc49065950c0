//! The live view of one node: `nodepulse-top` in the agent's pod, by `kubectl exec`, as which this
//! process continues, so that the terminal, signals and the exit code are kubectl's.

use std::io::{self, IsTerminal as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::agent_pods::{AgentPod, AgentPods};
use crate::arguments::NodeOptions;
use crate::cluster::Cluster;
use crate::failure::{Failure, one_line};

/// With a terminal, and without one.
const LIVE: &[&str] = &["--stdin", "--tty", "--", "/nodepulse-top"];
const ONCE: &[&str] = &["--", "/nodepulse-top", "--once"];

/// Returns only if kubectl cannot be started.
pub async fn run(cluster: &Cluster, options: &NodeOptions) -> Result<(), Failure> {
    let node = options.name.as_str();
    let (pods, _) = AgentPods::list(cluster, &options.agents, Some(node)).await?;
    let pod = pods.on(node).filter(|pod| pod.is_running());
    let what = || format!("a running agent on node {}", one_line(node));
    let pod = pod.ok_or_else(|| Failure::NotFound { what: what() })?;
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let rest = if is_terminal { LIVE } else { ONCE };
    let mut command = Command::new("kubectl");
    command.args(&cluster.kubectl);
    let err = command.args(arguments(pod, rest)).exec();
    Err(Failure::Kubectl(err))
}

/// The name is part of an argument that cannot be an option, whatever the API server calls the pod.
fn arguments(pod: &AgentPod, rest: &[&str]) -> Vec<String> {
    let namespace = format!("--namespace={}", pod.namespace);
    let pod = format!("pod/{}", pod.name);
    let exec = ["exec", &namespace, &pod, "--container=nodepulse"];
    let all = exec.iter().chain(rest);
    all.map(|&argument| argument.to_owned()).collect()
}
