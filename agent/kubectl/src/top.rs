//! The live view of one node: `nodepulse-top` in the agent's pod, by `kubectl exec`, as which this
//! process continues, so that the terminal, signals and the exit code are kubectl's.

use std::io::{self, IsTerminal as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::agent_pods::AgentPods;
use crate::arguments::NodeOptions;
use crate::cluster::Cluster;
use crate::explain::exec;
use crate::failure::{Failure, one_line};

const PROGRAM: &str = "/nodepulse-top";

/// Returns only if kubectl cannot be started.
pub async fn run(cluster: &Cluster, options: &NodeOptions) -> Result<(), Failure> {
    let node = options.name.as_str();
    let (pods, _) = AgentPods::list(cluster, &options.agents, Some(node)).await?;
    let pod = pods.on(node).filter(|pod| pod.is_running());
    let what = || format!("a running agent on node {}", one_line(node));
    let pod = pod.ok_or_else(|| Failure::NotFound { what: what() })?;
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let arguments = if is_terminal {
        exec(pod, &["--stdin", "--tty"], &[PROGRAM])
    } else {
        exec(pod, &[], &[PROGRAM, "--once"])
    };
    let mut command = Command::new("kubectl");
    command.args(&cluster.kubectl);
    let err = command.args(arguments).exec();
    Err(Failure::Kubectl(err))
}
