//! The tiers of agents: from what they read what happens in the kernel. It stands in their metrics,
//! which the API server's proxy to pods reads.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use nodepulse::cli::terminal::Paint;
use tokio::time::{Instant, timeout, timeout_at};

use crate::agent_pods::{AgentPod, AgentPods};
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::place::Place;
use crate::screen::{note, safe};

/// The metric.
const METRIC: &str = "nodepulse_tier_info{";
/// Agents that are asked at the same time.
const AT_ONCE: usize = 32;
/// How long to wait for one agent.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait for all agents: nothing is printed before.
const LIMIT: Duration = Duration::from_secs(30);

/// A source of kernel data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// eBPF programs.
    Btf,
    /// Some of the eBPF programs, and files.
    Partial,
    /// The kernel's log, and files.
    Kmsg,
    /// Files only.
    Files,
}

impl Tier {
    /// Asks the agent in this pod.
    pub async fn of_pod(cluster: &Cluster, pod: &AgentPod) -> Result<Self, Failure> {
        let none = |why: &str| Failure::NoTier {
            pod: safe(&pod.name),
            why: why.to_owned(),
        };
        if !pod.is_running() {
            return Err(none(&format!("it is {}", pod.state)));
        }
        let Some(port) = pod.port else {
            return Err(none("it serves no metrics (serve.enabled in the chart)"));
        };
        let place = Place::served(&pod.namespace, &pod.name, port, "/metrics")?;
        let line = timeout(PATIENCE, cluster.served_line(&place, METRIC)).await;
        let line = line.map_err(|_| none(&format!("no answer within {} s", PATIENCE.as_secs())))?;
        let tier = line?.as_deref().and_then(Self::of_line);
        tier.ok_or_else(|| none("its metrics do not contain nodepulse_tier_info"))
    }

    fn of_line(line: &str) -> Option<Self> {
        let (_, value) = line.split_once("tier=\"")?;
        match value.split_once('"')?.0 {
            "btf" => Some(Self::Btf),
            "partial" => Some(Self::Partial),
            "kmsg" => Some(Self::Kmsg),
            "files" => Some(Self::Files),
            _ => None,
        }
    }

    /// As in the agent's configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Btf => "btf",
            Self::Partial => "partial",
            Self::Kmsg => "kmsg",
            Self::Files => "files",
        }
    }

    /// What it means.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Btf => "eBPF programs",
            Self::Partial => "some of the eBPF programs, and files",
            Self::Kmsg => "kernel log and files, no eBPF programs",
            Self::Files => "files only, no eBPF programs",
        }
    }

    /// Without eBPF programs, an agent learns less.
    pub const fn paint(self) -> Paint {
        match self {
            Self::Btf => Paint::Plain,
            Self::Partial | Self::Kmsg | Self::Files => Paint::Yellow,
        }
    }
}

/// The tiers by node.
#[derive(Debug)]
pub struct Tiers(HashMap<String, Tier>);

impl Tiers {
    /// Asks the agents that run, some at a time. What is not known is reported on standard error.
    pub async fn of(cluster: &Cluster, pods: &AgentPods) -> Self {
        let mut tiers = HashMap::new();
        let mut first = None;
        let ask = |pod: AgentPod| async move {
            let tier = Tier::of_pod(cluster, &pod).await;
            (pod.node, tier)
        };
        let running = pods.each().filter(|pod| pod.is_running());
        let running: Vec<AgentPod> = running.cloned().collect();
        let count = running.len();
        let mut answers = stream::iter(running).map(ask).buffer_unordered(AT_ONCE);
        let end = Instant::now() + LIMIT;
        // What has not answered by then is unknown.
        while let Ok(Some((node, tier))) = timeout_at(end, answers.next()).await {
            match tier {
                Ok(tier) => {
                    tiers.insert(node, tier);
                }
                // The others would be refused, too.
                Err(failure) if failure.is_forbidden() => {
                    note(&format!("note: tiers are unknown: {failure}"));
                    return Self(tiers);
                }
                Err(failure) => {
                    first.get_or_insert(failure);
                }
            }
        }
        match (count.saturating_sub(tiers.len()), first) {
            (1, Some(failure)) => note(&format!(
                "note: the tier of one agent is unknown: {failure}"
            )),
            (failed, Some(failure)) => note(&format!(
                "note: the tiers of {failed} agents are unknown; of one: {failure}"
            )),
            (_, None) => {}
        }
        Self(tiers)
    }

    /// The tier of the agent on this node.
    pub fn on(&self, node: &str) -> Option<Tier> {
        self.0.get(node).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tier_is_a_label_of_its_metric() {
        let rows = [
            (
                r#"nodepulse_tier_info{node="a",tier="btf"} 1"#,
                Some(Tier::Btf),
            ),
            (r#"nodepulse_tier_info{tier="files"} 1"#, Some(Tier::Files)),
            (
                r#"nodepulse_tier_info{tier="partial"} 1"#,
                Some(Tier::Partial),
            ),
            (r#"nodepulse_tier_info{tier="x"} 1"#, None),
            (r#"nodepulse_tier_info{tier="btf"#, None),
            ("nodepulse_tier_info{} 1", None),
        ];
        for (line, expected) in rows {
            assert_eq!(Tier::of_line(line), expected, "{line}");
        }
    }
}
