//! All nodes as a table.

use k8s_openapi::jiff::Timestamp;
use nodepulse_core::escape::escape_json;
use serde::Serialize;

use crate::age::{Present, age};
use crate::agent_pods::{AgentPod, AgentPods};
use crate::arguments::{FleetFormat, FleetOptions};
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::health::{NodeHealth, Problem};
use crate::objects::Node;
use crate::place::Place;
use crate::screen::{note, print, safe};
use crate::style::{Paint, Style};
use crate::table::{Cell, Column, Layout};
use crate::tier::Tiers;

mod watch;

const COLUMNS: [Column; 7] = [
    Column::new("NODE", 12),
    Column::new("CONDITION", 12),
    Column::new("REASON", 8),
    Column::new("AGE", 0),
    Column::new(TIER, 0),
    Column::new("VERSION", 8),
    Column::new("HEARTBEAT", 0),
];

/// Bytes of lines that are printed together.
const CHUNK: usize = 64 << 10;

/// The column that only the wide table has.
const TIER: &str = "TIER";

/// A node in the JSON output.
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
struct List<'a, T> {
    items: &'a [T],
}

struct Read {
    nodes: Vec<NodeHealth>,
    /// `None` without permission to list them.
    pods: Option<(AgentPods, String)>,
    /// Resource version of the list of nodes.
    version: String,
}

impl Read {
    /// Reads nodes and pods. Without permission to list pods, the versions are unknown.
    async fn all(cluster: &Cluster, options: &FleetOptions) -> Result<Self, Failure> {
        let place = Place::nodes();
        let query = [("labelSelector", options.selector())];
        let nodes = cluster.list(&place, &query, |node: Node| Some(NodeHealth::of(node)));
        let pods = AgentPods::list(cluster, &options.agents, None);
        let (nodes, pods) = tokio::join!(nodes, pods);
        let (nodes, version) = nodes?;
        let pods = match pods {
            Err(failure) if failure.is_forbidden() => {
                note(&format!("note: versions are unknown: {failure}"));
                None
            }
            pods => Some(pods?),
        };
        Ok(Self {
            nodes,
            pods,
            version,
        })
    }
}

/// Prints the table, and with `--watch` its changes.
pub async fn run(cluster: &Cluster, options: &FleetOptions, style: Style) -> Result<(), Failure> {
    let mut read = Read::all(cluster, options).await?;
    let none = AgentPods::default();
    let pods = read.pods.as_ref().map_or(&none, |(pods, _)| pods);
    let tiers = match options.output {
        Some(FleetFormat::Wide) => Some(Tiers::of(cluster, pods).await),
        Some(FleetFormat::Json) | None => None,
    };
    let table = Table {
        pods,
        tiers: tiers.as_ref(),
        present: cluster.present(),
    };
    if options.output == Some(FleetFormat::Json) {
        let items: Vec<_> = read.nodes.iter().map(|node| item(node, &table)).collect();
        return print_as_json(&items);
    }
    // Nodes with problems come first.
    read.nodes.sort_by_cached_key(|node| {
        let agent = node.agent_problem(pods, table.present);
        let is_well = node.problems.is_empty() && agent.is_none();
        (is_well, node.name.clone())
    });
    let layout = table.print(&read.nodes, style)?;
    hint(&read, cluster);
    if options.watch {
        return watch::follow(cluster, options, read, layout, style).await;
    }
    if read.nodes.is_empty() {
        note("no nodes found");
    }
    Ok(())
}

/// Prints a hint if agents run but no pod of them is found: their namespace or labels differ.
fn hint(read: &Read, cluster: &Cluster) {
    let is_in_pods = |node: &NodeHealth| node.node_mode.is_none() && node.heartbeat.is_some();
    let found = read
        .pods
        .as_ref()
        .map_or(1, |(pods, _)| pods.each().count());
    if found == 0 && read.nodes.iter().any(is_in_pods) {
        note(&format!(
            "note: versions are unknown: no pod of an agent in the namespace {}; if the agents \
             run in other pods, name them by --agent-namespace and --agent-selector",
            safe(&cluster.agent_namespace)
        ));
    }
}

struct Table<'a> {
    pods: &'a AgentPods,
    /// `None` if the table has no such column.
    tiers: Option<&'a Tiers>,
    present: Present,
}

impl Table<'_> {
    fn print(&self, nodes: &[NodeHealth], style: Style) -> Result<Layout, Failure> {
        let columns = COLUMNS.iter();
        let columns = columns.filter(|column| self.tiers.is_some() || column.title != TIER);
        let columns: Vec<Column> = columns.copied().collect();
        let rows: Vec<Vec<Cell>> = nodes.iter().flat_map(|node| self.rows(node)).collect();
        let layout = Layout::of(&columns, rows.iter().map(Vec::as_slice), style);
        let mut text = String::new();
        if !rows.is_empty() {
            text.push_str(&layout.titles(&columns, style));
        }
        for row in &rows {
            text.push_str(&layout.line(row, style));
            if text.len() > CHUNK {
                print(&text)?;
                text.clear();
            }
        }
        print(&text)?;
        Ok(layout)
    }

    /// Returns one row for each condition that is not well, or a single one if there is none.
    fn rows(&self, node: &NodeHealth) -> Vec<Vec<Cell>> {
        let pod = self.pods.on(&node.name);
        let version = version(node, pod);
        let row = |condition: Cell, reason: &str, since: Option<Timestamp>| {
            let reason = if reason.is_empty() { "-" } else { reason };
            let mut cells = vec![
                Cell::plain(safe(&node.name)),
                condition,
                Cell::plain(safe(reason)),
                Cell::plain(age(since, self.present.now)),
            ];
            cells.extend(self.tiers.map(|tiers| tier(tiers, &node.name)));
            cells.push(Cell::plain(version.clone()));
            cells.push(Cell::plain(age(node.heartbeat, self.present.now)));
            cells
        };
        let problems = node.problems.iter();
        let problems = problems.map(|problem| {
            let condition = Cell::new(problem.title(), problem.paint());
            row(condition, &problem.reason, problem.since)
        });
        let mut rows: Vec<_> = problems.collect();
        if let Some(problem) = node.agent_problem(self.pods, self.present) {
            rows.push(row(Cell::new(problem, Paint::Yellow), "", None));
        }
        if rows.is_empty() {
            rows.push(row(Cell::new("ok", Paint::Green), "", None));
        }
        rows
    }
}

/// Returns the version of the agent, or `-` if it is unknown.
fn version(node: &NodeHealth, pod: Option<&AgentPod>) -> String {
    let version = pod.map(|pod| pod.version.clone());
    let version = version.or_else(|| node.node_mode.as_deref().map(safe));
    version.unwrap_or_else(|| "-".to_owned())
}

fn tier(tiers: &Tiers, node: &str) -> Cell {
    match tiers.on(node) {
        Some(tier) => Cell::new(tier.as_str(), tier.paint()),
        None => Cell::plain("-"),
    }
}

fn item<'a>(node: &'a NodeHealth, table: &Table<'a>) -> Item<'a> {
    let pod = table.pods.on(&node.name);
    let version = pod.map(|pod| pod.version.as_str());
    Item {
        node: &node.name,
        agent: Agent {
            problem: node.agent_problem(table.pods, table.present),
            version: version.or(node.node_mode.as_deref()),
            namespace: pod.map(|pod| pod.namespace.as_str()),
            pod: pod.map(|pod| pod.name.as_str()),
        },
        heartbeat: node.heartbeat,
        not_well: &node.problems,
    }
}

/// Prints a list. Characters that control a terminal, or that are not visible, are escaped.
pub fn print_as_json(items: &[impl Serialize]) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(&List { items });
    let text = text.map_err(|err| Failure::Output(err.into()))?;
    let mut text = escape_json(text.as_bytes()).unwrap_or(text);
    text.push('\n');
    print(&text)
}
