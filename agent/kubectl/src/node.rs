//! One node in full.

use k8s_openapi::jiff::Timestamp;
use nodepulse_core::explanation::{Explanation, Line, Tone};
use nodepulse_core::incident::JsonIncident;

use crate::age::{self, Present, age};
use crate::agent_pods::{AgentPod, AgentPods};
use crate::arguments::NodeOptions;
use crate::cluster::Cluster;
use crate::explain;
use crate::failure::Failure;
use crate::health::{AgentState, NodeHealth, Problem};
use crate::history::last_boot;
use crate::objects::{Event, Lease, Node, NodeCondition};
use crate::place::Place;
use crate::screen::{print, safe, wrapped};
use crate::style::{Paint, Style};
use crate::tier::Tier;

/// Number of Events that are shown, the newest.
const EVENTS: usize = 20;

pub async fn run(cluster: &Cluster, options: &NodeOptions, style: Style) -> Result<(), Failure> {
    let name = options.name.as_str();
    let node: Node = cluster.get(&Place::node(name)?).await?;
    let lease = Place::lease(name)?;
    let (pods, events, lease) = tokio::join!(
        AgentPods::list(cluster, &options.agents, Some(name)),
        node_events(cluster, name),
        cluster.get::<Lease>(&lease),
    );
    let present = cluster.present();
    let mut page = Page {
        style,
        present,
        text: String::new(),
    };
    let kernel = safe(&node.status.node_info.kernel_version);
    let kubelet = safe(&node.status.node_info.kubelet_version);
    let conditions = node.status.conditions.clone().unwrap_or_default();
    let health = NodeHealth::of(node);
    page.field("Node", &safe(name));
    page.field("Kubelet", &kubelet);
    page.field("Kernel", &kernel);
    page.field("Lease", &renewed(lease, present.now));
    let pod = page.agent(&health, pods.as_ref().map(|(pods, _)| pods.on(name)));
    if let Some(pod) = pod {
        let tier = Tier::of_pod(cluster, pod).await;
        let tier = tier.map(|tier| format!("{} ({})", tier.as_str(), tier.meaning()));
        page.field(
            "Tier",
            &tier.unwrap_or_else(|failure| format!("unknown: {failure}")),
        );
    }
    page.conditions(&conditions, &health);
    page.events(events);
    print(&page.text)?;
    page.text.clear();
    if let Some(pod) = pod.filter(|pod| pod.is_running()) {
        page.explanation(explain::read(cluster, pod).await);
        print(&page.text)?;
        page.text.clear();
        page.last_boot(last_boot(cluster, pod).await);
        print(&page.text)?;
    }
    Ok(())
}

/// nodepulse's Events on a Node, the oldest first.
pub async fn node_events(cluster: &Cluster, node: &str) -> Result<Vec<Event>, Failure> {
    let selector = format!("involvedObject.kind=Node,involvedObject.name={node},source=nodepulse");
    let query = [("fieldSelector", selector.as_str())];
    let place = Place::events(Some("default"))?;
    let (mut events, _) = cluster.list(&place, &query, Some).await?;
    sort(&mut events);
    Ok(events)
}

/// Sorts the oldest first.
pub fn sort(events: &mut [Event]) {
    events.sort_by_cached_key(|event| age::parse(event.last_time()));
}

fn renewed(lease: Result<Lease, Failure>, now: Timestamp) -> String {
    match lease {
        Ok(lease) => {
            let renewed = age::parse(lease.spec.renew_time.as_deref());
            let holder = lease.spec.holder_identity.unwrap_or_default();
            if renewed.is_none() {
                return "never renewed".to_owned();
            }
            format!("renewed {} ago by {}", age(renewed, now), safe(&holder))
        }
        Err(Failure::NotFound { .. }) => "none".to_owned(),
        Err(failure) => format!("unknown: {failure}"),
    }
}

struct Page {
    style: Style,
    present: Present,
    text: String,
}

impl Page {
    fn field(&mut self, title: &str, value: &str) {
        let first = format!("{title}:{:1$}", "", 10_usize.saturating_sub(title.len()));
        let value = if value.is_empty() { "-" } else { value };
        self.text
            .push_str(&wrapped(self.style, value, &first, first.len()));
    }

    fn title(&mut self, title: &str) {
        self.text.push('\n');
        self.text.push_str(&self.style.paint(Paint::Bold, title));
        self.text.push('\n');
    }

    fn item(&mut self, text: &str) {
        self.text.push_str(&wrapped(self.style, text, "    ", 4));
    }

    fn agent<'p>(
        &mut self,
        health: &NodeHealth,
        pod: Result<Option<&'p AgentPod>, &Failure>,
    ) -> Option<&'p AgentPod> {
        let state = match health.agent(self.present) {
            AgentState::Reports => String::new(),
            AgentState::Silent => match health.heartbeat {
                Some(_) => format!(
                    "; it has not reported for {}",
                    age(health.heartbeat, self.present.now)
                ),
                None => "; it has never reported".to_owned(),
            },
            AgentState::Absent => "; the Node has no conditions of nodepulse".to_owned(),
        };
        let (text, pod) = match pod {
            Ok(Some(pod)) => {
                let (namespace, name) = (safe(&pod.namespace), safe(&pod.name));
                let (version, summary) = (&pod.version, pod.summary());
                let text = format!("pod {namespace}/{name}, version {version}, {summary}{state}");
                (text, Some(pod))
            }
            Ok(None) => match &health.node_mode {
                Some(version) => (format!("node mode, version {}{state}", safe(version)), None),
                None => (
                    format!("no pod in the agents' namespace on this node{state}"),
                    None,
                ),
            },
            Err(failure) => (format!("unknown: {failure}{state}"), None),
        };
        self.field("Agent", &text);
        pod
    }

    fn conditions(&mut self, conditions: &[NodeCondition], health: &NodeHealth) {
        self.title("Conditions");
        let shown = |one: &&NodeCondition| {
            health.is_of_nodepulse(&one.type_)
                || health
                    .problems
                    .iter()
                    .any(|problem| problem.type_ == one.type_)
        };
        for condition in conditions.iter().filter(shown) {
            let mut problems = health.problems.iter();
            let problem = problems.rfind(|one| one.type_ == condition.type_);
            let since = age(
                age::parse(condition.last_transition_time.as_deref()),
                self.present.now,
            );
            let reason = safe(condition.reason.as_deref().unwrap_or("-"));
            let (type_, status) = (safe(&condition.type_), safe(&condition.status));
            let line = format!("  {type_}={status} ({reason}) for {since}");
            let paint = problem.map_or(Paint::Plain, Problem::paint);
            self.text.push_str(&self.style.paint(paint, &line));
            self.text.push('\n');
            let message = condition.message.as_deref();
            if let Some(message) = message.filter(|message| !message.is_empty()) {
                self.item(&safe(message));
            }
        }
        if !health.is_reported {
            self.item("nodepulse has written no condition");
        }
    }

    fn events(&mut self, events: Result<Vec<Event>, Failure>) {
        self.title("Events of nodepulse");
        let events = match events {
            Ok(events) => events,
            Err(failure) => return self.item(&format!("unknown: {failure}")),
        };
        if events.is_empty() {
            self.item("none in the time for which the API server keeps Events");
        }
        let skipped = events.len().saturating_sub(EVENTS);
        for event in events.iter().skip(skipped) {
            let at = age(age::parse(event.last_time()), self.present.now);
            let reason = safe(event.reason.as_deref().unwrap_or("-"));
            let times = match event.count {
                Some(count) if count > 1 => format!(", {count} times"),
                _ => String::new(),
            };
            let line = format!("  {reason} {at} ago{times}\n");
            self.text.push_str(&line);
            self.item(&safe(event.message.as_deref().unwrap_or_default()));
        }
    }

    fn last_boot(&mut self, last_boot: Result<JsonIncident, String>) {
        self.title("Last boot");
        match last_boot {
            Ok(end) => {
                let ended = age(age::parse(Some(&end.time)), self.present.now);
                self.item(&format!(
                    "{} {ended} ago: {}",
                    safe(&end.reason),
                    safe(&end.message)
                ));
            }
            Err(why) => self.item(&format!("not known: {}", safe(&why))),
        }
    }

    fn explanation(&mut self, explanation: Result<Explanation, String>) {
        self.title("Explanation of the agent");
        let explanation = match explanation {
            Ok(explanation) => explanation,
            Err(why) => return self.item(&format!("not available: {why}")),
        };
        for line in explanation.lines() {
            let line = match line {
                Line::Condition {
                    type_,
                    status,
                    tone,
                    rest,
                } => {
                    let paint = match tone {
                        Tone::Healthy => Paint::Green,
                        Tone::Unknown => Paint::Yellow,
                        Tone::Problem => Paint::Red,
                    };
                    let type_ = self.style.paint(Paint::Bold, &type_);
                    let status = self.style.paint(paint, &status);
                    format!("  {type_} is {status} {rest}")
                }
                Line::Text { indent, text } => {
                    let first = " ".repeat(indent + 2);
                    wrapped(self.style, &text, &first, indent + 4)
                }
                Line::Gap => String::new(),
            };
            self.text.push_str(line.trim_end());
            self.text.push('\n');
        }
    }
}
