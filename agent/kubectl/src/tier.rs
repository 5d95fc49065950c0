//! The tiers of agents: the sources from which they read what happens in the kernel. The agents'
//! metrics contain the tier. They are read by way of the API server's proxy to pods.

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use tokio::time::{Instant, timeout, timeout_at};

use crate::agent_pods::{AgentPod, AgentPods};
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::place::Place;
use crate::screen::{note, safe};
use crate::style::Paint;

const METRIC: &str = "nodepulse_tier_info{";
/// Maximum number of agents that are asked at the same time.
const AT_ONCE: usize = 32;
/// Timeout for one agent.
const PATIENCE: Duration = Duration::from_secs(5);
/// Timeout for all agents: nothing is printed before.
const LIMIT: Duration = Duration::from_secs(30);
/// Number of agents in a row that do not answer in time, after which no more are asked.
const UNANSWERED: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    Btf,
    /// Some of the eBPF programs, and files.
    Partial,
    /// The kernel's log, and files.
    Kmsg,
    Files,
}

impl Tier {
    /// Reads the tier from the metrics of the agent in this pod.
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
        let place = Place::metrics(&pod.namespace, &pod.name, port)?;
        let line = timeout(PATIENCE, cluster.served_line(&place, METRIC)).await;
        let line = line.map_err(|_| Failure::TierTimeout {
            pod: safe(&pod.name),
            seconds: PATIENCE.as_secs(),
        })?;
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

    /// The name in the agent's configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Btf => "btf",
            Self::Partial => "partial",
            Self::Kmsg => "kmsg",
            Self::Files => "files",
        }
    }

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

#[derive(Debug)]
pub struct Tiers(HashMap<String, Tier>);

impl Tiers {
    /// Asks the agents that run, some at a time. Unknown tiers are reported on standard error.
    pub async fn of(cluster: &Cluster, pods: &AgentPods) -> Self {
        let ask = |pod: AgentPod| async move {
            let tier = Tier::of_pod(cluster, &pod).await;
            (pod.node, tier)
        };
        let running = pods.each().filter(|pod| pod.is_running());
        let running: Vec<AgentPod> = running.cloned().collect();
        let count = running.len();
        let asked = stream::iter(running).map(ask).buffer_unordered(AT_ONCE);
        let answers = Answers::read(asked).await;
        if let Some(line) = answers.note(count) {
            note(&line);
        }
        Self(answers.tiers)
    }

    pub fn on(&self, node: &str) -> Option<Tier> {
        self.0.get(node).copied()
    }
}

/// Answers of the agents, until all have answered or the limit was reached.
#[derive(Debug, Default)]
struct Answers {
    tiers: HashMap<String, Tier>,
    failed: usize,
    /// Number of agents, the last ones in a row, that did not answer in time.
    unanswered: usize,
    /// The first failure, or the missing permission.
    failure: Option<Failure>,
}

impl Answers {
    async fn read(asked: impl Stream<Item = (String, Result<Tier, Failure>)>) -> Self {
        let mut asked = pin!(asked);
        let mut all = Self::default();
        let end = Instant::now() + LIMIT;
        while all.unanswered < UNANSWERED {
            let Ok(Some((node, tier))) = timeout_at(end, asked.next()).await else {
                break;
            };
            match tier {
                Ok(tier) => {
                    all.unanswered = 0;
                    all.tiers.insert(node, tier);
                }
                // The others would be refused, too.
                Err(failure) if failure.is_forbidden() => {
                    all.failure = Some(failure);
                    break;
                }
                Err(failure) => all.fail(failure),
            }
        }
        all
    }

    fn fail(&mut self, failure: Failure) {
        self.failed = self.failed.saturating_add(1);
        self.unanswered = match failure {
            Failure::TierTimeout { .. } => self.unanswered.saturating_add(1),
            _ => 0,
        };
        self.failure.get_or_insert(failure);
    }

    /// Describes the unknown tiers among `count` agents. `None` if all are known.
    fn note(&self, count: usize) -> Option<String> {
        let unknown = count.saturating_sub(self.tiers.len());
        let what = match (unknown, &self.failure) {
            (0, _) => return None,
            (_, Some(failure)) if failure.is_forbidden() => {
                return Some(format!("note: tiers are unknown: {failure}"));
            }
            (1, _) => "the tier of one agent is unknown".to_owned(),
            _ => format!("the tiers of {unknown} agents are unknown"),
        };
        let gave_up = match unknown.saturating_sub(self.failed) {
            0 => String::new(),
            _ if self.unanswered >= UNANSWERED => {
                format!(" (gave up after {UNANSWERED} agents in a row did not answer)")
            }
            _ => format!(" (gave up after {} s)", LIMIT.as_secs()),
        };
        let why = match (unknown, &self.failure) {
            (_, None) => String::new(),
            (1, Some(failure)) => format!(": {failure}"),
            (_, Some(failure)) => format!("; of one: {failure}"),
        };
        Some(format!("note: {what}{gave_up}{why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tier_is_a_label_of_its_metric() {
        #[rustfmt::skip]
        let rows = [
            (r#"nodepulse_tier_info{node="a",tier="btf"} 1"#, Some(Tier::Btf)),
            (r#"nodepulse_tier_info{tier="files"} 1"#, Some(Tier::Files)),
            (r#"nodepulse_tier_info{tier="partial"} 1"#, Some(Tier::Partial)),
            (r#"nodepulse_tier_info{tier="x"} 1"#, None),
            (r#"nodepulse_tier_info{tier="btf"#, None),
            ("nodepulse_tier_info{} 1", None),
        ];
        for (line, expected) in rows {
            assert_eq!(Tier::of_line(line), expected, "{line}");
        }
    }

    fn no_answer(n: usize) -> (String, Result<Tier, Failure>) {
        let failure = Failure::TierTimeout {
            pod: format!("agent-{n}"),
            seconds: 5,
        };
        (format!("node-{n}"), Err(failure))
    }

    #[tokio::test]
    async fn no_more_agents_are_asked_after_many_in_a_row_did_not_answer() {
        let asked = |n: usize| match n {
            20 => ("node-20".to_owned(), Ok(Tier::Btf)),
            n => no_answer(n),
        };
        let mut count = 0;
        let answers = Answers::read(stream::iter(0..600).map(asked).inspect(|_| count += 1)).await;
        assert_eq!((answers.tiers.len(), count), (1, 53), "20, 1 and 32");
        let note = "note: the tiers of 599 agents are unknown (gave up after 32 agents in a row \
                    did not answer); of one: pod agent-0 does not report its tier: no answer \
                    within 5 s";
        assert_eq!(answers.note(600).as_deref(), Some(note));
        let note = answers.note(53).unwrap();
        assert!(!note.contains("gave up"), "all were asked: {note}");
    }

    #[tokio::test(start_paused = true)]
    async fn agents_that_have_not_answered_after_the_limit_are_unknown() {
        let one = stream::iter([("node-0".to_owned(), Ok(Tier::Kmsg))]);
        let begin = Instant::now();
        let answers = Answers::read(one.chain(stream::pending())).await;
        assert_eq!(begin.elapsed(), LIMIT);
        assert_eq!(answers.tiers.len(), 1);
        let note = "note: the tiers of 2 agents are unknown (gave up after 30 s)";
        assert_eq!(answers.note(3).as_deref(), Some(note));
        assert_eq!(answers.note(1), None);
    }
}
