//! OOM kills from the histories of the agents, from `nodepulse history` in their pods. They go back
//! further than Events.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use k8s_openapi::jiff::Timestamp;
use nodepulse_core::incident::{API_VERSION, JsonFacts, JsonIncident};
use nodepulse_core::kill_annotation::OomKill;

use crate::age;
use crate::agent_pods::{AgentPod, AgentPods};
use crate::cluster::{Cluster, OBJECTS};
use crate::explain::{self, Request};
use crate::failure::Failure;
use crate::kills::KillEvent;
use crate::screen::{note, safe};

/// A history has at most 4 MiB by default on the disk.
const HISTORY: Request = Request {
    command: "history",
    patience: Duration::from_secs(30),
    output: 16 << 20,
};
/// Maximum number of agents that are read at the same time.
const AT_ONCE: usize = 8;
/// Maximum number of nodes that are named because their history is not complete.
const NAMED: usize = 20;

/// The histories that could be read.
#[derive(Default)]
pub struct Histories {
    pub kills: Vec<KillEvent>,
    /// By node: the time of the oldest incident of any kind; `None` if there is none.
    begin: HashMap<String, Option<Timestamp>>,
}

impl Histories {
    /// Reads the kills for which `is_wanted` is true. Prints which nodes could not be read.
    pub async fn read(
        cluster: &Cluster,
        labels: &str,
        is_wanted: impl Fn(&KillEvent) -> bool,
    ) -> Result<Self, Failure> {
        let (pods, _) = AgentPods::list(cluster, labels, None).await?;
        let read = |pod: &AgentPod| {
            let pod = pod.clone();
            async move {
                let history = if pod.is_running() {
                    explain::output(cluster, &pod, &HISTORY).await
                } else {
                    Err(format!("the pod is {}", pod.summary()))
                };
                (pod, history)
            }
        };
        let mut answers = stream::iter(pods.each().map(read)).buffer_unordered(AT_ONCE);
        let mut all = Self::default();
        let mut notes = Vec::new();
        while let Some((pod, history)) = answers.next().await {
            let added = history.and_then(|text| all.add(&pod.node, &text, &is_wanted));
            let node = safe(&pod.node);
            match added {
                Ok(0) => {}
                Ok(lines) => notes.push(format!(
                    "node {node}: {lines} lines of the history cannot be read, and are left out: \
                     update kubectl-nodepulse if the agent is newer"
                )),
                Err(why) => notes.push(format!(
                    "node {node}: only its Events are used, because its history cannot be read: \
                     {why}; check: kubectl -n {} exec {} -- /nodepulse history",
                    safe(&pod.namespace),
                    safe(&pod.name)
                )),
            }
        }
        if pods.each().next().is_none() {
            let namespace = safe(&cluster.agent_namespace);
            notes.push(format!(
                "only Events are used: there are no pods of the agent in namespace {namespace}; \
                 set --agent-namespace or --agent-selector"
            ));
        }
        notes.sort();
        for line in notes.iter().take(NAMED) {
            note(line);
        }
        if NAMED < notes.len() {
            note(&format!("so it is on {} more nodes", notes.len() - NAMED));
        }
        Ok(all)
    }

    /// Returns the number of histories.
    pub fn count(&self) -> usize {
        self.begin.len()
    }

    /// Returns true if the history of the node has what an Event of its agent is about: it goes
    /// back further than the Event. Events have whole seconds.
    pub fn have(&self, node: &str, last: Option<Timestamp>) -> bool {
        let begin = self.begin.get(node).copied().flatten();
        begin.is_some_and(|begin| last.is_none_or(|last| begin.as_second() <= last.as_second()))
    }

    /// Adds the history of a node. Returns the number of lines that cannot be read.
    fn add(
        &mut self,
        node: &str,
        text: &str,
        is_wanted: impl Fn(&KillEvent) -> bool,
    ) -> Result<u64, String> {
        let mut by_id: HashMap<String, JsonIncident> = HashMap::new();
        let mut unreadable = 0_u64;
        for line in text.lines() {
            let incident = serde_json::from_str(line).ok();
            let incident = incident.filter(|one: &JsonIncident| one.api_version == API_VERSION);
            let Some(incident) = incident else {
                unreadable = unreadable.saturating_add(1);
                continue;
            };
            let earlier = by_id.get(&incident.id);
            if earlier.is_none_or(|earlier| earlier.revision <= incident.revision) {
                by_id.insert(incident.id.clone(), incident);
            }
        }
        let times = by_id.values();
        let begin = times.filter_map(|one| age::parse(Some(&one.time))).min();
        let kills = by_id.into_values().filter_map(|one| kill(node, one));
        let kills: Vec<_> = kills.filter(is_wanted).collect();
        if OBJECTS < self.kills.len().saturating_add(kills.len()) {
            return Err(format!("there are more than {OBJECTS} kills; set --since"));
        }
        self.kills.extend(kills);
        self.begin.insert(node.to_owned(), begin);
        Ok(unreadable)
    }
}

/// Returns the kill as its Event would have it; `None` for other incidents.
fn kill(node: &str, incident: JsonIncident) -> Option<KillEvent> {
    let (mut kill, users, count) = match incident.facts? {
        JsonFacts::OomKill(facts) => (facts.kill, facts.memory_users, 1),
        JsonFacts::UnidentifiedOomKills(facts) => (OomKill::default(), Vec::new(), facts.kills),
        _ => return None,
    };
    kill.container = kill.container.or(incident.object.container);
    let pod = incident.object.pod;
    let pod = pod.and_then(|pod| Some((pod.namespace?, pod.name?)));
    let (namespace, object) = pod.unwrap_or_else(|| (String::new(), format!("node/{node}")));
    let first = age::parse(Some(&incident.time));
    Some(KillEvent {
        namespace,
        object,
        count,
        first,
        last: age::parse(incident.until.as_deref()).or(first),
        kill,
        users,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn incident(id: u32, revision: u8, time: &str, processes: u64) -> Value {
        json!({
            "apiVersion": API_VERSION, "id": format!("boot-{id}"), "revision": revision,
            "settled": false, "time": time, "reason": "OOMKilled", "message": "m",
            "object": {
                "pod": { "namespace": "shop", "name": "web-0", "uid": "u" }, "container": "app",
            },
            "kind": "OOMKill",
            "facts": {
                "processes": processes, "victim": "java", "victims": [],
                "nodePressure": false, "verdict": "v",
            },
        })
    }

    #[test]
    fn the_last_revision_counts_and_older_events_are_kept() {
        let (early, late) = ("2026-11-20T10:00:00.900000Z", "2026-11-21T10:00:00.000000Z");
        let mut counted = incident(3, 1, late, 0);
        counted["kind"] = json!("UnidentifiedOOMKills");
        counted["facts"] = json!({ "kills": 3, "whileDown": true });
        counted["object"] = json!({ "pod": { "uid": "u" } });
        let mut newer = incident(4, 1, late, 1);
        newer["apiVersion"] = json!("nodepulse.dev/incident/v9");
        let lines = [
            incident(1, 2, early, 2),
            incident(1, 1, early, 1),
            incident(2, 1, late, 1),
            counted,
            newer,
            json!("cut"),
        ];
        let text = lines.map(|line| line.to_string()).join("\n");
        let mut all = Histories::default();
        assert_eq!(all.add("worker-1", &text, |_| true), Ok(2));
        all.kills.sort_by_key(|kill| (kill.last, kill.count));
        let got = all.kills.iter().map(|kill| {
            let container = kill.kill.container.as_deref();
            let counts = (kill.count, kill.kill.processes);
            (
                kill.namespace.as_str(),
                kill.object.as_str(),
                container,
                counts,
            )
        });
        let expected = [
            ("shop", "web-0", Some("app"), (1, 2)),
            ("shop", "web-0", Some("app"), (1, 1)),
            ("", "node/worker-1", None, (3, 0)),
        ];
        assert_eq!(got.collect::<Vec<_>>(), expected);

        assert_eq!(all.add("empty", "", |_| true), Ok(0));
        //  node, the last time of an Event, is it in the history
        let rows = [
            ("worker-1", "2026-11-20T09:59:59Z", false),
            ("worker-1", "2026-11-20T10:00:00Z", true),
            ("worker-1", late, true),
            ("empty", late, false),
            ("", late, false),
        ];
        for (node, last, expected) in rows {
            assert_eq!(
                all.have(node, age::parse(Some(last))),
                expected,
                "{node} {last}"
            );
        }
    }
}
