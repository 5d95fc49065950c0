//! `--watch`: the nodes whose rows change. Of a node or a pod, only what a row needs is kept.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use nodepulse_core::backoff::Backoff;
use serde::de::DeserializeOwned;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::{Read, Table, version};
use crate::agent_pods::AgentPods;
use crate::arguments::FleetOptions;
use crate::cluster::{Cluster, Lines, OBJECTS};
use crate::failure::Failure;
use crate::health::NodeHealth;
use crate::objects::{Metadata, Node, Pod, Status, WatchLine};
use crate::place::Place;
use crate::screen::{note, print, safe};
use crate::style::{Paint, Style};
use crate::table::{Cell, Layout};

/// Pause between two watches.
const PAUSE: Duration = Duration::from_secs(1);
/// Pauses between attempts to reach the API server.
const PAUSES: Backoff = Backoff::new(PAUSE, Duration::from_secs(30));
/// Interval of the check which agents have become silent, since no event reports that.
const RECHECK: Duration = Duration::from_secs(30);

/// Prints each node whose row changes, until the output is closed or a failure is not temporary.
pub async fn follow(
    cluster: &Cluster,
    options: &FleetOptions,
    read: Read,
    layout: Layout,
    style: Style,
) -> Result<(), Failure> {
    let mut watched = Watched {
        nodes: BTreeMap::new(),
        pods: AgentPods::default(),
        layout,
        style,
        removed: match options.selector() {
            "" => "deleted",
            _ => "deleted or not selected",
        },
    };
    let mut attempts = Attempts(PAUSES);
    let mut open = watched.replace(cluster, options, read, Output::Quiet)?;
    let mut recheck = interval(RECHECK);
    recheck.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let (nodes, pods) = &mut open;
        let followed = async {
            nodes.open(cluster).await?;
            if let Some(watch) = pods {
                match watch.open(cluster).await {
                    Err(failure) if failure.is_forbidden() => {
                        note(&format!(
                            "note: changes of the agents' pods are not shown: {failure}"
                        ));
                        *pods = None;
                    }
                    opened => opened?,
                }
            }
            attempts.succeeded();
            tokio::select! {
                change = nodes.next(|node: &Node| &node.metadata) => {
                    watched.node(cluster, change?).await
                }
                change = next(pods) => watched.pod(cluster, change?).await,
                _ = recheck.tick() => watched.print_all(cluster),
            }
        };
        match followed.await {
            Err(Failure::Expired { .. }) => {
                sleep(PAUSE).await;
                let read = loop {
                    match Read::all(cluster, options).await {
                        Err(failure) if failure.is_temporary() => attempts.failed(&failure).await,
                        read => break read?,
                    }
                };
                open = watched.replace(cluster, options, read, Output::Printed)?;
            }
            Err(failure) if failure.is_temporary() => attempts.failed(&failure).await,
            followed => followed?,
        }
    }
}

struct Attempts(Backoff);

impl Attempts {
    /// Waits. Only the first of consecutive failures is printed.
    async fn failed(&mut self, failure: &Failure) {
        if self.0 == PAUSES {
            note(&format!("note: {failure}: trying again"));
        }
        sleep(self.0.advance()).await;
    }

    fn succeeded(&mut self) {
        if self.0 != PAUSES {
            note("note: the API server responds again");
        }
        self.0.reset();
    }
}

/// Waits for ever without a watch.
async fn next(watch: &mut Option<Watch>) -> Result<Change<Pod>, Failure> {
    match watch {
        Some(watch) => watch.next(|pod: &Pod| &pod.metadata).await,
        None => std::future::pending().await,
    }
}

struct Watch {
    place: Place,
    labels: String,
    /// Resource version of the last change.
    version: String,
    /// `None` until the watch is opened.
    lines: Option<Lines>,
}

enum Change<T> {
    /// The object exists: it was added or modified.
    Is(T),
    Deleted(T),
    /// Only the resource version has changed.
    None,
    /// The watch has ended, and is to be opened again.
    Ended,
}

impl Watch {
    fn new(place: Place, labels: &str, version: String) -> Self {
        Self {
            place,
            labels: labels.to_owned(),
            version,
            lines: None,
        }
    }

    /// Opens the watch unless it is open.
    async fn open(&mut self, cluster: &Cluster) -> Result<(), Failure> {
        if self.lines.is_none() {
            let query = [("labelSelector", self.labels.as_str())];
            let lines = cluster.watch(&self.place, &query, &self.version).await?;
            self.lines = Some(lines);
        }
        Ok(())
    }

    /// Waits for a change. `metadata` returns that of an object. This method is cancel safe.
    async fn next<T: DeserializeOwned>(
        &mut self,
        metadata: fn(&T) -> &Metadata,
    ) -> Result<Change<T>, Failure> {
        let line = match &mut self.lines {
            Some(lines) => lines.next().await,
            None => None,
        };
        let Some(line) = line else {
            self.lines = None;
            return Ok(Change::Ended);
        };
        let expired = Failure::Expired {
            resource: self.place.resource,
        };
        let Ok(event) = serde_json::from_slice::<WatchLine<T>>(&line) else {
            return Err(expired);
        };
        if !matches!(
            event.type_.as_str(),
            "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK"
        ) {
            let status = serde_json::from_slice::<WatchLine<Status>>(&line);
            let code = status.ok().and_then(|line| line.object.code);
            note(&format!(
                "note: the watch of {} ended ({}): reading all nodes again",
                self.place.resource,
                code.unwrap_or_default()
            ));
            return Err(expired);
        }
        if let Some(version) = &metadata(&event.object).resource_version {
            self.version.clone_from(version);
        }
        Ok(match event.type_.as_str() {
            "DELETED" => Change::Deleted(event.object),
            "BOOKMARK" => Change::None,
            _ => Change::Is(event.object),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    Printed,
    /// The rows are on the screen already.
    Quiet,
}

/// A node, and its rows as they were printed last, except for times.
struct Shown {
    health: NodeHealth,
    printed: Option<Printed>,
}

#[derive(Debug, PartialEq, Eq)]
struct Printed {
    /// Title, reason and time.
    problems: Vec<(String, String, Option<Timestamp>)>,
    agent: Option<String>,
    version: String,
}

struct Watched {
    nodes: BTreeMap<String, Shown>,
    pods: AgentPods,
    layout: Layout,
    style: Style,
    /// Text about a Node of which no more is reported.
    removed: &'static str,
}

impl Watched {
    /// Replaces nodes and pods by those of new lists. Returns the watches that continue them.
    fn replace(
        &mut self,
        cluster: &Cluster,
        options: &FleetOptions,
        read: Read,
        output: Output,
    ) -> Result<(Watch, Option<Watch>), Failure> {
        let nodes = Watch::new(Place::nodes(), options.selector(), read.version);
        let pods = match read.pods {
            None => None,
            Some((pods, version)) => {
                self.pods = pods;
                let place = AgentPods::place(cluster)?;
                Some(Watch::new(place, &options.agents, version))
            }
        };
        let present: HashSet<String> = read.nodes.iter().map(|node| node.name.clone()).collect();
        let names = self.nodes.keys().filter(|name| !present.contains(*name));
        for name in names.cloned().collect::<Vec<_>>() {
            self.deleted(cluster, &name)?;
        }
        for health in read.nodes {
            let name = health.name.clone();
            self.put(health);
            self.show(cluster, &name, output)?;
        }
        Ok((nodes, pods))
    }

    async fn node(&mut self, cluster: &Cluster, change: Change<Node>) -> Result<(), Failure> {
        match change {
            Change::Is(node) => {
                let name = node.metadata.name.clone();
                if self.nodes.len() >= OBJECTS && !self.nodes.contains_key(&name) {
                    return Ok(());
                }
                self.put(NodeHealth::of(node));
                self.show(cluster, &name, Output::Printed)
            }
            Change::Deleted(node) => self.deleted(cluster, &node.metadata.name),
            Change::None => Ok(()),
            Change::Ended => {
                sleep(PAUSE).await;
                Ok(())
            }
        }
    }

    async fn pod(&mut self, cluster: &Cluster, change: Change<Pod>) -> Result<(), Failure> {
        let node = match change {
            Change::Is(pod) => self.pods.put(pod),
            Change::Deleted(pod) => self.pods.remove(&pod),
            Change::None => None,
            Change::Ended => {
                sleep(PAUSE).await;
                None
            }
        };
        node.map_or(Ok(()), |node| self.show(cluster, &node, Output::Printed))
    }

    fn put(&mut self, health: NodeHealth) {
        let printed = self.nodes.remove(&health.name);
        let printed = printed.and_then(|shown| shown.printed);
        self.nodes
            .insert(health.name.clone(), Shown { health, printed });
    }

    fn print_all(&mut self, cluster: &Cluster) -> Result<(), Failure> {
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        let mut names = names.iter();
        names.try_for_each(|name| self.show(cluster, name, Output::Printed))
    }

    fn show(&mut self, cluster: &Cluster, name: &str, output: Output) -> Result<(), Failure> {
        // A pod can run on a node that is not selected.
        let Some(shown) = self.nodes.get_mut(name) else {
            return Ok(());
        };
        let present = cluster.present();
        let problems = shown.health.problems.iter();
        let problems = problems.map(|one| (one.title(), one.reason.clone(), one.since));
        let printed = Printed {
            problems: problems.collect(),
            agent: shown.health.agent_problem(&self.pods, present),
            version: version(&shown.health, self.pods.on(name)),
        };
        if shown.printed.as_ref() == Some(&printed) {
            return Ok(());
        }
        shown.printed = Some(printed);
        if output == Output::Quiet {
            return Ok(());
        }
        let table = Table {
            pods: &self.pods,
            tiers: None,
            present,
        };
        let rows = table.rows(&shown.health);
        let lines = rows.iter().map(|row| self.line(row, present.now));
        print(&lines.collect::<String>())
    }

    /// A line about a change, which ends with the time at which it is printed.
    fn line(&self, row: &[Cell], now: Timestamp) -> String {
        let line = self.layout.line(row, self.style);
        format!("{}   {now:.0}\n", line.trim_end())
    }

    fn deleted(&mut self, cluster: &Cluster, name: &str) -> Result<(), Failure> {
        if self.nodes.remove(name).is_none() {
            return Ok(());
        }
        let row = [
            Cell::plain(safe(name)),
            Cell::new(self.removed, Paint::Yellow),
        ];
        print(&self.line(&row, cluster.now()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_pauses_between_attempts_grow_until_the_server_responds() {
        let failure = Failure::Expired { resource: "nodes" };
        let mut attempts = Attempts(PAUSES);
        let mut pause = async |succeeded: bool| {
            if succeeded {
                attempts.succeeded();
            }
            let begin = Instant::now();
            attempts.failed(&failure).await;
            begin.elapsed().as_secs()
        };
        for expected in [1, 2, 4, 8, 16, 30, 30] {
            assert_eq!(pause(false).await, expected);
        }
        assert_eq!(pause(true).await, 1);
    }
}
