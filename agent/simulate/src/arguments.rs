//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Parser};
use nodepulse_core::object_name::is_subdomain;
use nodepulse_core::reading::Resource;
use nodepulse_core::units::duration;
use nodepulse_core::units::quantity::Quantity;

use crate::address;

const EXAMPLES: &str = "\
Examples:
  nodepulse-simulate --nodes 1 --node-name test-node   the smallest kubelet
  nodepulse-simulate --nodes 500                       500 nodes, until Ctrl-C
  nodepulse-simulate --nodes 100 --pods-per-node 20 --churn 5/s --pressure memory:5/min
  nodepulse-simulate --cleanup                         after a crash

Nodes have the label and the taints nodepulse.dev/simulated (NoSchedule and
NoExecute). A pod runs on one if it tolerates these taints and has the label
nodepulse.dev/simulated=true; other pods are not touched. Its annotations
nodepulse.dev/simulated-run-for (a duration) and
nodepulse.dev/simulated-exit-code (0 to 255) decide when and how its containers
exit.

Flow control: all requests share the queue of the kubeconfig's user, and those
of a cluster administrator are exempt. With --impersonate they are those of
system:node:NAME in the group system:nodes, which API Priority and Fairness puts
into the priority level `system`, as those of kubelets; your user needs the verb
`impersonate` on users and groups.

Exit status: 0 all nodes removed, even if requests failed; 1 failure; 2 wrong
usage.";

/// Simulated nodes against a real API server: each registers, reports its status, renews its Lease,
/// and moves its pods through their phases
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES, max_term_width = 80)]
pub struct Arguments {
    /// Number of nodes, at most 16384
    #[arg(long, value_name = "N", required_unless_present = "cleanup",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(address::MAX_NODES)))]
    pub nodes: Option<u32>,
    /// Nodes are named PREFIX-0, PREFIX-1, …
    #[arg(long, default_value = "simulated", value_parser = node_name)]
    pub prefix: String,
    /// Name of the node, for --nodes 1
    #[arg(long, value_name = "NAME", conflicts_with = "prefix", value_parser = node_name)]
    pub node_name: Option<String>,
    /// Kubeconfig file [default: $KUBECONFIG, ~/.kube/config, or the service account of the pod]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// CPUs of each node
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub cpus: u32,
    /// Memory of each node
    #[arg(long, value_name = "QUANTITY", default_value = "256Gi", value_parser = quantity)]
    pub memory: Quantity,
    /// Maximum number of pods of each node
    #[arg(long, value_name = "N", default_value_t = 110)]
    pub max_pods: u32,
    /// Further labels of the nodes, such as pool=a,zone=b
    #[arg(long, value_name = "LABELS", value_delimiter = ',', value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// Time until a pod has started, and that each of its init containers takes
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration_of)]
    pub start_after: Duration,
    /// Time after which the containers of a pod exit, unless its restart policy is Always
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration_of)]
    pub succeed_after: Duration,
    /// Time that a deleted pod takes to stop, at most its grace period
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration_of)]
    pub stop_after: Duration,
    /// Nodes that get under pressure, such as memory:5/min; also disk and pids; repeatable
    #[arg(long, value_name = "RESOURCE:RATE", value_parser = pressure)]
    pub pressure: Vec<(Resource, Duration)>,
    /// Time until a pressure ends
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration_of)]
    pub pressure_for: Duration,
    /// Creates this number of pods on each node
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1000))]
    pub pods_per_node: u32,
    /// Namespace of those pods
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = node_name)]
    pub namespace: String,
    /// Pods of --pods-per-node that are deleted and created again, such as 10/s
    #[arg(long, value_name = "RATE", requires = "pods_per_node", value_parser = rate)]
    pub churn: Option<Duration>,
    /// Events about OOM kills in running pods, such as 5/min
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub kill_rate: Option<Duration>,
    /// Sends the requests of each node as its user, system:node:NAME
    #[arg(long, action = ArgAction::SetTrue)]
    pub impersonate: bool,
    /// Ends after this time
    #[arg(long, value_name = "DURATION", value_parser = duration_of)]
    pub duration: Option<Duration>,
    /// Permits more than 10 nodes, or 100 pods, in a cluster that has real nodes
    #[arg(long, action = ArgAction::SetTrue)]
    pub yes: bool,
    /// Removes all simulated nodes and the pods that were created for them, and ends
    #[arg(long, action = ArgAction::SetTrue, conflicts_with = "nodes")]
    pub cleanup: bool,
}

impl Arguments {
    /// Returns the reason for which these flags cannot be used together.
    pub fn conflict(&self) -> Option<String> {
        let nodes = self.nodes.unwrap_or_default();
        (self.node_name.is_some() && nodes != 1).then(|| {
            format!("--node-name is the name of one node, but --nodes is {nodes}; use --prefix")
        })
    }
}

/// Returns the time between two of what happens at a rate.
fn rate(text: &str) -> Result<Duration, String> {
    let invalid = || format!("{text:?} is not a rate; examples are 5/s, 10/min and 30/h");
    let (count, unit) = text.split_once('/').ok_or_else(invalid)?;
    let count: u32 = count.parse().map_err(|_| invalid())?;
    let unit = match unit {
        "s" => Duration::from_secs(1),
        "min" | "m" => Duration::from_mins(1),
        "h" => Duration::from_hours(1),
        _ => return Err(invalid()),
    };
    unit.checked_div(count)
        .filter(|interval| *interval >= Duration::from_millis(1))
        .ok_or_else(invalid)
}

fn pressure(text: &str) -> Result<(Resource, Duration), String> {
    let (resource, per) = text.split_once(':').unwrap_or((text, ""));
    let resource = match resource {
        "memory" => Resource::Memory,
        "disk" => Resource::Disk,
        "pids" => Resource::Pids,
        _ => {
            return Err(format!(
                "{text:?} does not begin with memory:, disk: or pids:; an example is memory:5/min"
            ));
        }
    };
    Ok((resource, rate(per)?))
}

fn duration_of(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|why| format!("{text:?} {why}; examples are 500ms and 10s"))
}

fn quantity(text: &str) -> Result<Quantity, String> {
    let invalid = |_| format!("{text:?} is not a quantity; an example is 64Gi");
    text.parse().map_err(invalid)
}

fn label(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=');
    let (key, value) = pair.ok_or_else(|| format!("{text:?} is not KEY=VALUE"))?;
    Ok((key.to_owned(), value.to_owned()))
}

/// With a number, a name has at most 63 characters.
fn node_name(text: &str) -> Result<String, String> {
    if is_subdomain(text) && text.len() <= 57 {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{text:?} is not a name: lower-case letters, digits, '-' and '.', at most 57"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_pressures_are_read_or_refused_with_an_example() {
        let rows = [
            ("5/min", Some(12_000)),
            ("4/s", Some(250)),
            ("2/h", Some(1_800_000)),
            ("0/s", None),
            ("1001/s", None),
            ("5", None),
            ("5/day", None),
            ("-1/s", None),
            ("", None),
        ];
        for (text, millis) in rows {
            let read = rate(text).ok().map(|interval| interval.as_millis());
            assert_eq!(read, millis, "{text}");
            let load = pressure(&format!("pids:{text}")).ok();
            assert_eq!(
                load.map(|(resource, interval)| (resource, interval.as_millis())),
                millis.map(|millis| (Resource::Pids, millis))
            );
        }
        for text in ["cpu:1/s", "memory", "", ":1/s"] {
            assert!(pressure(text).unwrap_err().contains('/'), "{text}");
        }
    }

    #[test]
    fn a_name_is_of_one_node() {
        let parse = |flags: &str| Arguments::try_parse_from(flags.split(' '));
        let one = parse("s --nodes 1 --node-name a").unwrap();
        assert_eq!(one.conflict(), None);
        let two = parse("s --nodes 2 --node-name a").unwrap();
        assert!(two.conflict().unwrap().contains("--nodes is 2"));
        for refused in [
            "s",
            "s --nodes 0",
            "s --nodes 1 --node-name A",
            "s --nodes 20000",
        ] {
            assert!(parse(refused).is_err(), "{refused}");
        }
    }
}
