//! The histories of the agents, from `nodepulse history` in their pods. They go back further than
//! Events, and their incidents are read as the Events that they were.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use k8s_openapi::jiff::Timestamp;
use nodepulse_core::incident::{API_VERSION, JsonFacts, JsonIncident};
use nodepulse_core::kill_annotation::{MEMORY_USERS, OOM_KILL};
use serde_json::json;

use crate::age;
use crate::agent_pods::{AgentPod, AgentPods};
use crate::cluster::{Cluster, OBJECTS};
use crate::explain::{self, Request};
use crate::failure::{Failure, one_line};
use crate::objects::{Event, InvolvedObject, Metadata, Source};
use crate::screen::{note, safe};

/// A history has at most 4 MiB by default on the disk.
const HISTORY: Request = Request {
    command: &["history"],
    patience: Duration::from_secs(30),
    output: 16 << 20,
};
const LAST_BOOT: Request = Request {
    command: &["history", "--boot=-1"],
    patience: Duration::from_secs(5),
    output: 1 << 20,
};
/// Maximum number of agents that are read at the same time.
const AT_ONCE: usize = 8;
/// Maximum number of nodes that are named because their history is not complete.
const NAMED: usize = 20;

/// Reads how the last boot of the agent's node ended. The error is part of a sentence.
pub async fn last_boot(cluster: &Cluster, pod: &AgentPod) -> Result<JsonIncident, String> {
    let output = explain::output(cluster, pod, &LAST_BOOT).await?;
    serde_json::from_str(&output).map_err(|err| one_line(&err.to_string()))
}

/// The histories that could be read.
#[derive(Default)]
pub struct Histories {
    /// By node: the time of the oldest incident of any kind; `None` if there is none.
    begin: HashMap<String, Option<Timestamp>>,
}

impl Histories {
    /// Returns the results of `row` for each incident. Prints which nodes could not be read.
    pub async fn read<R>(
        cluster: &Cluster,
        labels: &str,
        row: impl Fn(Event) -> Option<R>,
    ) -> Result<(Vec<R>, Self), Failure> {
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
        let (mut rows, mut all) = (Vec::new(), Self::default());
        let mut notes = Vec::new();
        while let Some((pod, history)) = answers.next().await {
            let added = history.and_then(|text| all.add(&pod.node, &text, &row, &mut rows));
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
        Ok((rows, all))
    }

    /// Returns the number of histories.
    pub fn count(&self) -> usize {
        self.begin.len()
    }

    /// Returns true if a history has what an Event of its agent is about: it goes back further than
    /// the Event, which has whole seconds.
    pub fn have(&self, event: &Event) -> bool {
        let node = event.source.host.as_deref().unwrap_or_default();
        let begin = self.begin.get(node).copied().flatten();
        let last = age::parse(event.last_time());
        begin.is_some_and(|begin| last.is_none_or(|last| begin.as_second() <= last.as_second()))
    }

    /// Adds the history of a node. Returns the number of lines that cannot be read.
    fn add<R>(
        &mut self,
        node: &str,
        text: &str,
        row: impl Fn(Event) -> Option<R>,
        rows: &mut Vec<R>,
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
        let events = by_id.into_values().map(|one| event(node, one));
        let added: Vec<R> = events.filter_map(row).collect();
        if OBJECTS < rows.len().saturating_add(added.len()) {
            return Err(format!("there are more than {OBJECTS} kills; set --since"));
        }
        rows.extend(added);
        self.begin.insert(node.to_owned(), begin);
        Ok(unreadable)
    }
}

/// Returns an incident in the form of its Event.
fn event(node: &str, incident: JsonIncident) -> Event {
    let (count, annotations) = match &incident.facts {
        Some(JsonFacts::OomKill(facts)) => {
            let users = json!(facts.memory_users).to_string();
            let all = [
                (OOM_KILL, json!(facts.kill).to_string()),
                (MEMORY_USERS, users),
            ];
            let all = all.map(|(name, value)| (name.to_owned(), value));
            (1, Some(all.into()))
        }
        Some(JsonFacts::UnidentifiedOomKills(facts)) => (facts.kills, None),
        _ => (1, None),
    };
    let container = incident.object.container;
    let of_node = InvolvedObject {
        kind: "Node".to_owned(),
        name: node.to_owned(),
        ..InvolvedObject::default()
    };
    let of_pod = incident.object.pod.and_then(|pod| {
        Some(InvolvedObject {
            kind: "Pod".to_owned(),
            name: pod.name?,
            namespace: Some(pod.namespace?),
            uid: Some(pod.uid),
            field_path: container.map(|name| format!("spec.containers{{{name}}}")),
        })
    });
    Event {
        metadata: Metadata {
            annotations,
            ..Metadata::default()
        },
        involved_object: of_pod.unwrap_or(of_node),
        reason: Some(incident.reason),
        message: Some(incident.message),
        source: Source {
            host: Some(node.to_owned()),
        },
        last_timestamp: incident.until.or_else(|| Some(incident.time.clone())),
        first_timestamp: Some(incident.time),
        count: Some(count),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kills::KillEvent;

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
        let mut kills = Vec::new();
        let added = all.add("worker-1", &text, |event| KillEvent::of(&event), &mut kills);
        assert_eq!(added, Ok(2));
        kills.sort_by_key(|kill| (kill.last, kill.count));
        let got = kills.iter().map(|kill| {
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

        assert_eq!(all.add("empty", "", Some, &mut Vec::new()), Ok(0));
        //  node, the last time of an Event, is it in the history
        let rows = [
            ("worker-1", "2026-11-20T09:59:59Z", false),
            ("worker-1", "2026-11-20T10:00:00Z", true),
            ("worker-1", late, true),
            ("empty", late, false),
            ("", late, false),
        ];
        for (node, last, expected) in rows {
            let event = json!({ "source": { "host": node }, "lastTimestamp": last });
            let event = serde_json::from_value(event).unwrap();
            assert_eq!(all.have(&event), expected, "{node} {last}");
        }
    }
}
