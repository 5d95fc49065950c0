//! All nodes as a table.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use crate::age::{self, age};
use crate::agent_pods::{AgentPod, AgentPods};
use crate::arguments::FleetOptions;
use crate::cluster::{Cluster, Lines};
use crate::failure::Failure;
use crate::health::{NodeHealth, Problem};
use crate::objects::{Node, Status, WatchLine};
use crate::place::Place;
use crate::screen::{Paint, Screen, note, print, safe};
use crate::table::{Cell, Column, Layout};

const COLUMNS: [Column; 6] = [
    Column {
        title: "NODE",
        least: 12,
    },
    Column {
        title: "CONDITION",
        least: 12,
    },
    Column {
        title: "REASON",
        least: 8,
    },
    Column {
        title: "AGE",
        least: 0,
    },
    Column {
        title: "VERSION",
        least: 8,
    },
    Column {
        title: "HEARTBEAT",
        least: 0,
    },
];

/// Lines that are printed together.
const CHUNK: usize = 64 << 10;

/// Between two watches.
const PAUSE: Duration = Duration::from_secs(1);

/// One node, for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Item<'a> {
    node: &'a str,
    agent: Agent<'a>,
    heartbeat: Option<Timestamp>,
    not_well: &'a [Problem],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Agent<'a> {
    problem: Option<String>,
    version: Option<&'a str>,
    namespace: Option<&'a str>,
    pod: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct List<'a> {
    items: Vec<Item<'a>>,
}

/// Prints the table, and with `--watch` its changes.
pub async fn run(
    cluster: &Cluster,
    options: &FleetOptions,
    screen: &Screen,
) -> Result<(), Failure> {
    let selector = options.selector.as_deref().unwrap_or_default();
    let (mut nodes, pods, version) = read(cluster, options, selector).await?;
    let now = age::now();
    if options.output.is_some() {
        return print_json(&nodes, &pods, now);
    }
    // Those with problems first.
    nodes.sort_by_cached_key(|node| {
        let is_well =
            node.problems.is_empty() && node.agent_problem(pods.on(&node.name), now).is_none();
        (is_well, node.name.clone())
    });
    let layout = print_table(&nodes, &pods, now, screen)?;
    if !options.watch {
        if nodes.is_empty() {
            note("no nodes found");
        }
        return Ok(());
    }
    let mut watched = Watched {
        nodes: nodes
            .into_iter()
            .map(|node| (node.name.clone(), node))
            .collect(),
        pods,
        layout,
        version,
    };
    watched.follow(cluster, options, screen).await
}

/// Nodes and pods. Without permission to list pods, the versions are unknown.
async fn read(
    cluster: &Cluster,
    options: &FleetOptions,
    selector: &str,
) -> Result<(Vec<NodeHealth>, AgentPods, String), Failure> {
    let place = Place::nodes();
    let query = [("labelSelector", selector)];
    let nodes = cluster.list(&place, &query, |node: Node| Some(NodeHealth::of(node)));
    let pods = AgentPods::list(cluster, &options.agents, None);
    let (nodes, pods) = tokio::join!(nodes, pods);
    let (nodes, version) = nodes?;
    let pods = match pods {
        Err(failure) if failure.is_forbidden() => {
            note(&format!("note: versions are unknown: {failure}"));
            AgentPods::default()
        }
        pods => pods?,
    };
    Ok((nodes, pods, version))
}

fn print_table(
    nodes: &[NodeHealth],
    pods: &AgentPods,
    now: Timestamp,
    screen: &Screen,
) -> Result<Layout, Failure> {
    let rows: Vec<Vec<Cell>> = nodes
        .iter()
        .flat_map(|node| rows(node, pods.on(&node.name), now))
        .collect();
    let layout = Layout::of(&COLUMNS, rows.iter().map(Vec::as_slice), screen);
    let mut text = String::new();
    if !rows.is_empty() {
        text.push_str(&layout.titles(&COLUMNS, screen));
    }
    for row in &rows {
        text.push_str(&layout.line(row, screen));
        if text.len() > CHUNK {
            print(&text)?;
            text.clear();
        }
    }
    print(&text)?;
    Ok(layout)
}

/// One row for each condition that is not well, and one if there is none.
fn rows(node: &NodeHealth, pod: Option<&AgentPod>, now: Timestamp) -> Vec<Vec<Cell>> {
    let version = pod.map(|pod| pod.version.clone());
    let version = version.or_else(|| node.node_mode.as_deref().map(safe));
    let version = version.unwrap_or_else(|| "-".to_owned());
    let row = |condition: Cell, reason: &str, since: Option<Timestamp>| {
        vec![
            Cell::plain(safe(&node.name)),
            condition,
            Cell::plain(if reason.is_empty() {
                "-".to_owned()
            } else {
                safe(reason)
            }),
            Cell::plain(age(since, now)),
            Cell::plain(version.clone()),
            Cell::plain(age(node.heartbeat, now)),
        ]
    };
    let problems = node.problems.iter();
    let problems = problems.map(|problem| {
        let condition = Cell::new(problem.title(), problem.paint());
        row(condition, &problem.reason, problem.since)
    });
    let mut rows: Vec<_> = problems.collect();
    if let Some(problem) = node.agent_problem(pod, now) {
        rows.push(row(Cell::new(problem, Paint::Yellow), "", None));
    }
    if rows.is_empty() {
        rows.push(row(Cell::new("-", Paint::Dim), "", None));
    }
    rows
}

fn print_json(nodes: &[NodeHealth], pods: &AgentPods, now: Timestamp) -> Result<(), Failure> {
    let list = List {
        items: nodes.iter().map(|node| item(node, pods, now)).collect(),
    };
    print_as_json(&list)
}

fn item<'a>(node: &'a NodeHealth, pods: &'a AgentPods, now: Timestamp) -> Item<'a> {
    let pod = pods.on(&node.name);
    let version = pod.map(|pod| pod.version.as_str());
    Item {
        node: &node.name,
        agent: Agent {
            problem: node.agent_problem(pod, now),
            version: version.or(node.node_mode.as_deref()),
            namespace: pod.map(|pod| pod.namespace.as_str()),
            pod: pod.map(|pod| pod.name.as_str()),
        },
        heartbeat: node.heartbeat,
        not_well: &node.problems,
    }
}

/// Prints a value for programs. Characters that control a terminal are escaped.
pub fn print_as_json(value: &impl Serialize) -> Result<(), Failure> {
    let mut text =
        serde_json::to_string_pretty(value).map_err(|err| Failure::Output(err.into()))?;
    text.push('\n');
    print(&escaped_json(&text))
}

/// JSON itself permits U+007F to U+009F and marks that turn the reading direction. They occur only in
/// strings.
fn escaped_json(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        let is_layout = c == '\n' || c.is_ascii_graphic() || c == ' ';
        if is_layout || (c.is_alphanumeric() && !c.is_ascii()) {
            escaped.push(c);
        } else {
            let mut units = [0_u16; 2];
            for unit in c.encode_utf16(&mut units) {
                // Writing to a string cannot fail.
                let _written = write!(escaped, "\\u{unit:04x}");
            }
        }
    }
    escaped
}

/// The nodes as they were printed last.
struct Watched {
    nodes: BTreeMap<String, NodeHealth>,
    pods: AgentPods,
    layout: Layout,
    version: String,
}

impl Watched {
    /// Prints each node whose conditions change. Ends only with a failure, or if the output is closed.
    async fn follow(
        &mut self,
        cluster: &Cluster,
        options: &FleetOptions,
        screen: &Screen,
    ) -> Result<(), Failure> {
        let selector = options.selector.as_deref().unwrap_or_default();
        let place = Place::nodes();
        let query = [("labelSelector", selector)];
        loop {
            match cluster.watch(&place, &query, &self.version).await {
                Ok(mut lines) => {
                    let ended = self.apply_all(&mut lines, screen).await?;
                    tokio::time::sleep(PAUSE).await;
                    if ended == Ended::Normally {
                        continue;
                    }
                }
                Err(Failure::Expired { .. }) => {}
                Err(failure) => return Err(failure),
            }
            let (nodes, pods, version) = read(cluster, options, selector).await?;
            self.pods = pods;
            self.version = version;
            self.replace(nodes, screen)?;
        }
    }

    async fn apply_all(&mut self, lines: &mut Lines, screen: &Screen) -> Result<Ended, Failure> {
        while let Some(line) = lines.next().await {
            let Ok(event) = serde_json::from_slice::<WatchLine<Node>>(&line) else {
                return Ok(Ended::Expired);
            };
            let version = event.object.metadata.resource_version.clone();
            match event.type_.as_str() {
                "ADDED" | "MODIFIED" => self.changed(NodeHealth::of(event.object), screen)?,
                "DELETED" => self.deleted(&event.object.metadata.name, screen)?,
                "BOOKMARK" => {}
                _ => {
                    let status = serde_json::from_slice::<WatchLine<Status>>(&line);
                    let code = status.ok().and_then(|line| line.object.code);
                    note(&format!(
                        "note: the watch ended ({}): reading all nodes again",
                        code.unwrap_or_default()
                    ));
                    return Ok(Ended::Expired);
                }
            }
            self.version = version.unwrap_or_else(|| std::mem::take(&mut self.version));
        }
        Ok(Ended::Normally)
    }

    /// The nodes of a new list.
    fn replace(&mut self, nodes: Vec<NodeHealth>, screen: &Screen) -> Result<(), Failure> {
        let present: HashSet<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        let names = self.nodes.keys().cloned();
        let gone = names.filter(|name| !present.contains(name.as_str()));
        for name in gone.collect::<Vec<_>>() {
            self.deleted(&name, screen)?;
        }
        for node in nodes {
            self.changed(node, screen)?;
        }
        Ok(())
    }

    fn changed(&mut self, node: NodeHealth, screen: &Screen) -> Result<(), Failure> {
        let old = self.nodes.get(&node.name);
        let is_same = old.is_some_and(|old| {
            old.problems == node.problems && old.is_reported == node.is_reported
        });
        if !is_same {
            let rows = rows(&node, self.pods.on(&node.name), age::now());
            let lines = rows.iter().map(|row| self.layout.line(row, screen));
            print(&lines.collect::<String>())?;
        }
        self.nodes.insert(node.name.clone(), node);
        Ok(())
    }

    fn deleted(&mut self, name: &str, screen: &Screen) -> Result<(), Failure> {
        self.nodes.remove(name);
        let row = [Cell::plain(safe(name)), Cell::new("deleted", Paint::Yellow)];
        print(&self.layout.line(&row, screen))
    }
}

/// How a watch ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// After its time.
    Normally,
    /// The list must be read again.
    Expired,
}

#[cfg(test)]
mod tests {
    use super::escaped_json;

    #[test]
    fn json_contains_no_character_that_controls_a_terminal() {
        let hostile = ["a\u{9b}2J\u{202e}b\u{1b}\n\u{e9}\u{1f600}"];
        let escaped = escaped_json(&serde_json::to_string(&hostile).unwrap());
        let expected = r#"["a\u009b2J\u202eb\u001b\né\ud83d\ude00"]"#;
        assert_eq!(escaped, expected);
        let read: Vec<String> = serde_json::from_str(&escaped).unwrap();
        assert_eq!(read, hostile);
    }
}
