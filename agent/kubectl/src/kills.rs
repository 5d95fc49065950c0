//! OOM kills by pod, from the annotations of their Events and from the histories of the agents.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use nodepulse_core::kill_annotation::{MEMORY_USERS, MemoryUser, OOM_KILL, OomKill};
use nodepulse_core::units::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::age::{self, age};
use crate::arguments::KillsOptions;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::fleet::print_as_json;
use crate::history::Histories;
use crate::objects::Event;
use crate::place::Place;
use crate::screen::{note, print, safe};
use crate::style::{Paint, Style};
use crate::table::{Cell, Column, render};

/// Reasons of Events about kills: in pods, and on the Node in both modes.
const REASONS: [&str; 3] = ["OOMKilled", "OOMKilling", "SystemOOM"];

const COLUMNS: [Column; 8] = [
    Column::new("NAMESPACE", 8),
    Column::new("POD", 10),
    Column::new("CONTAINER", 8),
    Column::new("KILLED", 0),
    Column::new("LIMIT", 0),
    Column::new("COUNT", 0),
    Column::new("LARGEST", 12),
    Column::new("AGE", 0),
];

#[derive(Debug)]
pub struct KillEvent {
    /// Empty for an Event on a Node.
    pub namespace: String,
    /// The pod, or `node/NAME`.
    pub object: String,
    pub count: u64,
    pub first: Option<Timestamp>,
    pub last: Option<Timestamp>,
    /// Read from the annotations. Old agents write none, so only the container is known.
    pub kill: OomKill,
    pub users: Vec<MemoryUser>,
}

impl KillEvent {
    /// Returns `None` if the Event is not about kills.
    pub fn of(event: &Event) -> Option<Self> {
        let reason = event.reason.as_deref()?;
        if !REASONS.contains(&reason) {
            return None;
        }
        let involved = &event.involved_object;
        let mut kill: OomKill = annotation(event, OOM_KILL).unwrap_or_default();
        if kill.container.is_none() {
            kill.container = involved.field_path.as_deref().and_then(container_of);
        }
        let is_node = involved.kind == "Node";
        Some(Self {
            namespace: if is_node {
                String::new()
            } else {
                involved.namespace.clone().unwrap_or_default()
            },
            object: if is_node {
                format!("node/{}", involved.name)
            } else {
                involved.name.clone()
            },
            count: event.count.unwrap_or(1),
            first: age::parse(event.first_timestamp.as_deref()),
            last: age::parse(event.last_time()),
            kill,
            users: annotation(event, MEMORY_USERS).unwrap_or_default(),
        })
    }
}

fn annotation<T: DeserializeOwned>(event: &Event, name: &str) -> Option<T> {
    let text = event.metadata.annotations.as_ref()?.get(name)?;
    serde_json::from_str(text).ok()
}

/// Returns `web` for `spec.containers{web}`.
fn container_of(path: &str) -> Option<String> {
    let (_, rest) = path.split_once('{')?;
    Some(rest.strip_suffix('}')?.to_owned())
}

/// The kills of one container at one limit.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    namespace: Option<String>,
    pod: Option<String>,
    node: Option<String>,
    container: Option<String>,
    consequence: Option<String>,
    limit: Option<String>,
    limit_bytes: Option<u64>,
    count: u64,
    /// Memory users of the newest kill with details.
    memory_users: Vec<MemoryUser>,
    victim: Option<MemoryUser>,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
}

pub async fn run(cluster: &Cluster, options: &KillsOptions, style: Style) -> Result<(), Failure> {
    let namespace = (!options.all_namespaces).then_some(cluster.namespace.as_str());
    let place = Place::events(namespace)?;
    let since = options.since.map(|since| since.as_secs());
    let is_recent = |at: Option<Timestamp>| {
        let age = at.map(|at| age::seconds(at, cluster.now()));
        since.is_none_or(|since| age.is_some_and(|age| age <= since))
    };
    let (mut events, mut histories) = (Vec::new(), Histories::default());
    if options.history {
        let row = |event: Event| {
            let kill = KillEvent::of(&event).filter(|kill| is_recent(kill.last))?;
            // Events about a Node are in the namespace default.
            let is_there = |name: &str| {
                name == kill.namespace || kill.namespace.is_empty() && name == "default"
            };
            namespace.is_none_or(is_there).then_some(kill)
        };
        (events, histories) = Histories::read(cluster, &options.agents, row).await?;
    }
    for reason in REASONS {
        let selector = format!("reason={reason},source=nodepulse");
        let query = [("fieldSelector", selector.as_str())];
        let row = |event: Event| {
            let kill = KillEvent::of(&event).filter(|kill| is_recent(kill.last))?;
            (!histories.have(&event)).then_some(kill)
        };
        events.extend(cluster.list(&place, &query, row).await?.0);
    }
    let items = items(events);
    if options.output.is_some() {
        return print_as_json(&items);
    }
    if items.is_empty() {
        let place = place.whereabouts();
        let hint = if options.history {
            format!(
                ", in the histories of {} nodes and in Events",
                histories.count()
            )
        } else {
            ": an API server keeps Events for an hour by default; older kills: --history".to_owned()
        };
        note(&format!("no OOM kills {place}{hint}"));
        return Ok(());
    }
    let row = |item: &Item| row(item, cluster.now(), is_recent(item.first));
    let rows: Vec<_> = items.iter().map(row).collect();
    if options.all_namespaces {
        return print(&render(&COLUMNS, &rows, style));
    }
    let rows: Vec<_> = rows
        .iter()
        .map(|row| row.iter().skip(1).cloned().collect())
        .collect();
    print(&render(COLUMNS.get(1..).unwrap_or_default(), &rows, style))
}

/// Adds up the Events of one container at one limit. The newest come first.
fn items(mut events: Vec<KillEvent>) -> Vec<Item> {
    events.sort_by_key(|event| event.last);
    let mut by_place = BTreeMap::new();
    for event in events {
        let OomKill {
            container,
            consequence,
            limit,
            limit_bytes,
            victim,
            victim_bytes,
            ..
        } = event.kill;
        let key = (
            event.namespace.clone(),
            event.object.clone(),
            container.clone(),
            consequence.clone(),
            limit.clone(),
        );
        let node = event.object.strip_prefix("node/").map(str::to_owned);
        let item = by_place.entry(key).or_insert_with(|| Item {
            namespace: node.is_none().then_some(event.namespace),
            pod: node.is_none().then_some(event.object),
            node,
            container,
            consequence,
            limit,
            limit_bytes: None,
            count: 0,
            memory_users: Vec::new(),
            victim: None,
            first: event.first,
            last: None,
        });
        item.first = item.first.min(event.first);
        item.count = item.count.saturating_add(event.count);
        item.last = event.last;
        item.limit_bytes = limit_bytes.or(item.limit_bytes);
        if !event.users.is_empty() {
            item.memory_users = event.users;
        }
        if let Some(bytes) = victim_bytes {
            item.victim = Some(MemoryUser {
                name: victim,
                bytes,
            });
        }
    }
    let mut items: Vec<_> = by_place.into_values().collect();
    items.sort_by_key(|item| std::cmp::Reverse(item.last));
    items
}

/// Without `all`, the count is a maximum: an unknown number of the kills is not to be counted.
fn row(item: &Item, now: Timestamp, all: bool) -> Vec<Cell> {
    let or_dash = |text: &Option<String>| safe(text.as_deref().unwrap_or("-"));
    let object = match &item.node {
        Some(node) => safe(&format!("node/{node}")),
        None => or_dash(&item.pod),
    };
    let (consequence, paint) = match item.consequence.as_deref() {
        Some("main_process") => ("main process", Paint::Red),
        Some("whole_container") => ("container", Paint::Red),
        Some("child_process") => ("child process", Paint::Yellow),
        _ => ("unknown", Paint::Dim),
    };
    vec![
        Cell::plain(or_dash(&item.namespace)),
        Cell::plain(object),
        Cell::plain(or_dash(&item.container)),
        Cell::new(consequence, paint),
        Cell::plain(limit(item.limit.as_deref(), item.limit_bytes)),
        Cell::plain(format!("{}{}", if all { "" } else { "<=" }, item.count)),
        Cell::plain(largest(&item.memory_users, item.victim.as_ref())),
        Cell::plain(age(item.last, now)),
    ]
}

/// Returns a text such as `container 64.0Mi`.
pub fn limit(limit: Option<&str>, bytes: Option<u64>) -> String {
    let limit = match limit {
        Some("pods") => "all pods",
        Some(limit) => limit,
        None => "-",
    };
    let bytes = bytes.map(|bytes| format!(" {}", Bytes::from_bytes(bytes)));
    safe(&format!("{limit}{}", bytes.unwrap_or_default()))
}

/// Returns a text such as `32.0Mi java`, the largest of the victim and those that remained.
pub fn largest(users: &[MemoryUser], victim: Option<&MemoryUser>) -> String {
    let all = users.iter().chain(victim);
    let largest = all.max_by_key(|user| user.bytes);
    largest.map_or_else(
        || "-".to_owned(),
        |user| format!("{} {}", Bytes::from_bytes(user.bytes), safe(&user.name)),
    )
}
