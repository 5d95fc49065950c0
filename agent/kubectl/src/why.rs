//! The story of one pod in chronological order, and what to do.

mod advice;
mod timeline;

use crate::age::{Present, age};
use crate::arguments::WhyOptions;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::health::NodeHealth;
use crate::history::Histories;
use crate::kills::KillEvent;
use crate::node::{node_events, sort};
use crate::objects::{Event, Node, Pod};
use crate::place::Place;
use crate::screen::{print, safe, wrapped};
use crate::style::{Paint, Style};
use timeline::Timeline;

pub async fn run(cluster: &Cluster, options: &WhyOptions, style: Style) -> Result<(), Failure> {
    let story = Story::read(cluster, &cluster.namespace, options).await?;
    print(&story.text(style))
}

struct Story {
    namespace: String,
    name: String,
    /// `None` if it does not exist any more.
    pod: Option<Pod>,
    /// nodepulse's Events about the pod, the oldest first.
    events: Vec<Event>,
    /// nodepulse's Events about former pods with this name.
    former_events: Vec<Event>,
    /// `None` if the pod has no node yet.
    node: Option<Result<NodeHealth, Failure>>,
    node_events: Vec<Event>,
    present: Present,
}

impl Story {
    async fn read(
        cluster: &Cluster,
        namespace: &str,
        options: &WhyOptions,
    ) -> Result<Self, Failure> {
        let name = options.pod.as_str();
        let place = Place::pod(namespace, name)?;
        let selector =
            format!("involvedObject.kind=Pod,involvedObject.name={name},source=nodepulse");
        let query = [("fieldSelector", selector.as_str())];
        let events = Place::events(Some(namespace))?;
        let events = cluster.list(&events, &query, Some);
        let (pod, events) = tokio::join!(cluster.get::<Pod>(&place), events);
        let mut events = events?.0;
        if options.history {
            let row = |event: Event| {
                let kill = KillEvent::of(&event)?;
                (kill.namespace == namespace && kill.object == name).then_some(event)
            };
            let (kills, histories) = Histories::read(cluster, &options.agents, row).await?;
            events.retain(|event| KillEvent::of(event).is_none() || !histories.have(event));
            events.extend(kills);
        }
        sort(&mut events);
        let pod = match pod {
            Err(failure) if failure.is_not_found() && !events.is_empty() => None,
            pod => Some(pod?),
        };
        let is_former = |event: &Event| pod.as_ref().is_some_and(|pod| is_of_other(event, pod));
        let (former_events, events): (Vec<_>, Vec<_>) = events.into_iter().partition(is_former);
        let node = pod.as_ref().and_then(|pod| pod.spec.node_name.clone());
        // The Events of a deleted pod name its node.
        let node = node.or_else(|| events.last()?.source.host.clone());
        let place = node.map(|name| Place::node(&name).map(|place| (name, place)));
        let (node, node_events) = match place {
            None => (None, Vec::new()),
            // An Event can contain any text.
            Some(Err(failure)) => (Some(Err(failure)), Vec::new()),
            Some(Ok((name, place))) => {
                let (node, events) =
                    tokio::join!(cluster.get::<Node>(&place), node_events(cluster, &name));
                // Without permission, the rest of the story is printed.
                (Some(node.map(NodeHealth::of)), events.unwrap_or_default())
            }
        };
        Ok(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            pod,
            events,
            former_events,
            node,
            node_events,
            present: cluster.present(),
        })
    }

    fn text(&self, style: Style) -> String {
        let now = self.present.now;
        let mut text = String::new();
        let head = wrapped(style, &self.head(), "", 0);
        text.push_str(&style.paint(Paint::Bold, head.trim_end()));
        text.push_str("\n\n");
        for entry in Timeline::of(self).entries() {
            let at = format!("{:>7}  ", age(entry.at, now));
            let lines = wrapped(style, &entry.text, &at, at.len());
            text.push_str(&style.paint(entry.paint, lines.trim_end()));
            text.push('\n');
        }
        text.push('\n');
        text.push_str(&style.paint(Paint::Bold, "What to do"));
        text.push('\n');
        for advice in advice::of(self) {
            text.push_str(&wrapped(style, &advice, "  - ", 4));
        }
        text
    }

    fn head(&self) -> String {
        let name = format!("Pod {}/{}", safe(&self.namespace), safe(&self.name));
        let node = match &self.node {
            Some(Ok(node)) => format!(" on node {}", safe(&node.name)),
            Some(Err(failure)) => format!(" (its node is unknown: {failure})"),
            None => " (without a node)".to_owned(),
        };
        let state = match &self.pod {
            None => ": deleted".to_owned(),
            Some(pod) if pod.metadata.deletion_timestamp.is_some() => ": Terminating".to_owned(),
            Some(pod) => {
                let phase = pod.status.phase.as_deref().unwrap_or("-");
                let reason = pod.status.reason.as_deref();
                let reason = reason.map(|reason| format!(" ({})", safe(reason)));
                format!(": {}{}", safe(phase), reason.unwrap_or_default())
            }
        };
        format!("{name}{node}{state}")
    }
}

/// Returns `true` if an Event is about another pod of the same name, such as a predecessor in a
/// `StatefulSet`. That of a static pod can have a UID that only the kubelet knows.
fn is_of_other(event: &Event, pod: &Pod) -> bool {
    const STATIC_POD: &str = "kubernetes.io/config.mirror";

    let annotations = pod.metadata.annotations.as_ref();
    let static_pod = annotations.and_then(|all| all.get(STATIC_POD));
    let uid = event.involved_object.uid.as_ref();
    uid.is_some_and(|uid| {
        let is_known = pod.metadata.uid.is_some() && !uid.is_empty();
        is_known && pod.metadata.uid.as_ref() != Some(uid) && static_pod != Some(uid)
    })
}
