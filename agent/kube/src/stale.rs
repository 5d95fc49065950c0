//! Removes the conditions and taints of agents that no longer exist: after the pod of an agent was
//! removed permanently, for example by a node selector, no process clears them.
//!
//! The existence of an agent is visible on the Node, because it renews the heartbeat of its
//! conditions. This heartbeat is compared with the kubelet's, which the same clock dates: if
//! neither is renewed, the node itself is off, and its agent returns with it.

#![forbid(unsafe_code)]

use std::time::{Duration, SystemTime};

use nodepulse_core::node_status::Taint;
use nodepulse_io::clock::Clock;
use serde_json::{Value, json};

use super::companion::{Removed, conditions, deletion, in_status, is_of_type, stored};
use super::convert::{object, parse_time, text};
use super::node_list::NodeList;
use super::taints::{StoredTaints, is_nodepulse, patch};
use super::{ApiError, Client, Endpoint, Refusal};

/// Time between the first reading of a Node and the removal. After an outage of the API server an
/// agent renews its conditions within half of that time; the kubelet may be first.
const SETTLE: Duration = Duration::from_mins(1);

/// Maximum number of attempts for one Node. Only a faulty client writes to it more often.
const MAX_ATTEMPTS: u32 = 8;

/// The criterion by which an agent counts as removed.
#[derive(Debug, Clone)]
pub struct StaleRule {
    /// The time for which the agent renewed no condition.
    pub after: Duration,
    /// Configured taints, in addition to the default ones.
    pub taints: Vec<Taint>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentState {
    /// The Node has neither a condition nor a taint of nodepulse.
    NothingLeft,
    /// The conditions were renewed recently, or the Node is in node mode.
    Running,
    /// There is no condition with a heartbeat, so its age is not known.
    UnknownAge,
    /// The kubelet was not alive for so much longer than the agent: the node may be off.
    KubeletSilent,
    /// The conditions are stale, although the kubelet is alive.
    Removed,
}

#[derive(Debug)]
pub enum StaleOutcome {
    Cleaned(Removed),
    Left(AgentState),
    Failed(ApiError),
}

impl StaleRule {
    pub fn judge(&self, node: &Value, now: SystemTime) -> AgentState {
        let renewed = stored(node).map(|(_, entry)| heartbeat(entry)).max();
        let tainted = StoredTaints::of(node).is_some_and(|stored| stored.any(&self.taints));
        let renewed = match renewed {
            None if !tainted => return AgentState::NothingLeft,
            _ if is_in_node_mode(node) => return AgentState::Running,
            Some(Some(renewed)) => renewed,
            Some(None) | None => return AgentState::UnknownAge,
        };
        // A time in the future is not old.
        let older_than = |at: SystemTime| at.duration_since(renewed).unwrap_or_default();
        let ready = conditions(node).find(|entry| is_of_type(entry, "Ready"));
        let known = ready.filter(|ready| text(ready, "/status") != "Unknown");
        let alive = known.and_then(heartbeat);
        if older_than(now) < self.after {
            AgentState::Running
        } else if alive.is_none_or(|alive| older_than(alive) < self.after) {
            AgentState::KubeletSilent
        } else {
            AgentState::Removed
        }
    }
}

fn heartbeat(condition: &Value) -> Option<SystemTime> {
    parse_time(condition.get("lastHeartbeatTime"))
}

/// Returns true if an agent in node mode manages this Node, by its version.
pub fn is_in_node_mode(node: &Value) -> bool {
    let version = text(node, "/status/nodeInfo/kubeletVersion");
    let build = version.split_once('+').map(|(_, build)| build);
    build.is_some_and(|build| build.starts_with("nodepulse."))
}

/// Cleans all Nodes whose agents do not exist any more, and reports each Node. Reads page by page;
/// Nodes that are stale are read again a minute later, before anything is removed. Fails if the
/// Nodes cannot be listed.
pub async fn clean(
    client: &Client,
    rule: &StaleRule,
    clock: Clock,
    mut report: impl FnMut(&str, StaleOutcome),
) -> Result<(), ApiError> {
    let mut stale: Vec<String> = Vec::new();
    let mut list = NodeList::new(client, None);
    let listed = loop {
        match list.next().await {
            Ok(Some(page)) => {
                for (name, node) in page {
                    match rule.judge(&node, clock.now().wall) {
                        AgentState::Removed => stale.push(name),
                        other => report(&name, StaleOutcome::Left(other)),
                    }
                }
            }
            Ok(None) => break Ok(()),
            Err(err) => break Err(err),
        }
    };
    // A list that expired is read from its beginning.
    stale.sort();
    stale.dedup();
    if !stale.is_empty() {
        tokio::time::sleep(SETTLE).await;
    }
    for name in stale {
        report(&name, clean_node(client, &name, rule, clock).await);
    }
    listed
}

async fn clean_node(client: &Client, name: &str, rule: &StaleRule, clock: Clock) -> StaleOutcome {
    let mut removed = Removed::default();
    for attempt in 1..=MAX_ATTEMPTS {
        let node = match client.get(&Endpoint::node(name)).await {
            Ok(node) => node,
            Err(err) if err.refusal() == Some(Refusal::NotFound) => {
                return StaleOutcome::Left(AgentState::NothingLeft);
            }
            Err(err) => return StaleOutcome::Failed(err),
        };
        match rule.judge(&node, clock.now().wall) {
            AgentState::Removed => {}
            other => return StaleOutcome::Left(other),
        }
        match remove(client, name, node, rule, &mut removed).await {
            Ok(()) => break,
            // Something was written since: perhaps by an agent that is back.
            Err(err) if err.refusal() == Some(Refusal::Conflict) && attempt < MAX_ATTEMPTS => {}
            Err(err) => return StaleOutcome::Failed(err),
        }
    }
    StaleOutcome::Cleaned(removed)
}

/// Removes taints, then conditions: until these are gone, they show that the rest is stale. Fails
/// with 409 if the Node has changed.
async fn remove(
    client: &Client,
    name: &str,
    mut node: Value,
    rule: &StaleRule,
    removed: &mut Removed,
) -> Result<(), ApiError> {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    let taints = taints.cloned().unwrap_or_default();
    let mut kept = taints.clone();
    kept.retain(|taint| !is_nodepulse(taint, &rule.taints));
    let count = taints.len().saturating_sub(kept.len());
    if count > 0 {
        let version = text(&node, "/metadata/resourceVersion");
        let body = patch(&version, kept);
        node = client.patch(&Endpoint::node(name), &body).await?;
        removed.taints = removed.taints.saturating_add(count);
    }
    let deletions: Vec<Value> = stored(&node).map(|(of, _)| deletion(of)).collect();
    let count = deletions.len();
    let mut body = in_status(deletions);
    let version = json!(text(&node, "/metadata/resourceVersion"));
    object(&mut body, "metadata").insert("resourceVersion".to_owned(), version);
    let body = body.to_string().into_bytes();
    client.patch(&Endpoint::node_status(name), &body).await?;
    removed.conditions = removed.conditions.saturating_add(count);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::convert::time;

    fn at(minutes: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(minutes * 60)
    }

    fn condition(type_: &str, status: &str, minutes: Option<u64>) -> Value {
        let renewed = minutes.map(|minutes| time(at(minutes)));
        json!({ "type": type_, "status": status, "lastHeartbeatTime": renewed })
    }

    #[test]
    fn an_agent_is_removed_if_the_kubelet_outlives_it_by_both_clocks() {
        use AgentState::{KubeletSilent, NothingLeft, Removed, Running, UnknownAge};
        const NOW: u64 = 1_000;
        let low = |minutes| condition("MemoryLow", "False", Some(minutes));
        let pids = |minutes| condition("PIDsLow", "False", Some(minutes));
        let ready = |minutes| condition("Ready", "True", Some(minutes));
        let taint = || json!([{ "key": "nodepulse.dev/memory-low", "effect": "NoSchedule" }]);
        let (untainted, version) = (json!(null), "v1.36.0");
        #[rustfmt::skip]
        let rows = [
            ("nothing", vec![ready(NOW)], untainted.clone(), version, NothingLeft),
            ("stale", vec![low(900), ready(NOW)], untainted.clone(), version, Removed),
            ("just stale", vec![low(970), ready(NOW)], untainted.clone(), version, Removed),
            ("not yet", vec![low(971), ready(NOW)], untainted.clone(), version, Running),
            ("one renewed", vec![low(900), pids(999), ready(NOW)], untainted.clone(), version, Running),
            ("node off", vec![low(900), ready(900)], untainted.clone(), version, KubeletSilent),
            ("off soon after", vec![low(900), ready(929)], untainted.clone(), version, KubeletSilent),
            ("kubelet not ready", vec![low(900), condition("Ready", "False", Some(NOW))], untainted.clone(), version, Removed),
            ("unreachable", vec![low(900), condition("Ready", "Unknown", Some(999))], untainted.clone(), version, KubeletSilent),
            ("no kubelet", vec![low(900)], untainted.clone(), version, KubeletSilent),
            ("clock of the node ahead", vec![low(1_400), ready(1_500)], untainted.clone(), version, Running),
            ("clock of the node stepped", vec![low(999), ready(1_500)], untainted.clone(), version, Running),
            ("node mode", vec![low(900), ready(NOW)], untainted.clone(), "v1.33.0+nodepulse.0.1.0", Running),
            ("no time", vec![condition("MemoryLow", "True", None), ready(NOW)], untainted.clone(), version, UnknownAge),
            ("a taint alone", vec![ready(NOW)], taint(), version, UnknownAge),
            ("with a taint", vec![low(900), ready(NOW)], taint(), version, Removed),
            ("a configured taint", vec![ready(NOW)], json!([{ "key": "example.com/low", "effect": "NoExecute" }]), version, UnknownAge),
            ("another distribution", vec![low(900), ready(NOW)], untainted.clone(), "v1.36.0+k3s1", Removed),
            ("off just then", vec![low(900), ready(930)], untainted.clone(), version, Removed),
        ];
        let configured = Taint {
            key: "example.com/low".to_owned(),
            value: String::new(),
            effect: "NoExecute".to_owned(),
        };
        let rule = StaleRule {
            after: Duration::from_mins(30),
            taints: vec![configured],
        };
        for (name, conditions, taints, version, expected) in rows {
            let node = json!({
                "metadata": { "resourceVersion": "1" },
                "spec": { "taints": taints },
                "status": { "conditions": conditions, "nodeInfo": { "kubeletVersion": version } },
            });
            assert_eq!(rule.judge(&node, at(NOW)), expected, "{name}");
        }
    }
}
