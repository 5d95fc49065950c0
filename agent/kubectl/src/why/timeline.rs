//! The history of a pod, by time.

use k8s_openapi::jiff::Timestamp;

use super::Story;
use crate::age;
use crate::health::NodeHealth;
use crate::kills::KillEvent;
use crate::objects::{ContainerStatus, Event, Pod, Terminated};
use crate::screen::safe;
use crate::style::Paint;

pub struct Entry {
    pub at: Option<Timestamp>,
    pub text: String,
    pub paint: Paint,
}

pub struct Timeline {
    entries: Vec<Entry>,
    now: Timestamp,
}

impl Timeline {
    pub fn of(story: &Story) -> Self {
        let mut all = Self {
            entries: Vec::new(),
            now: story.present.now,
        };
        let created = story.pod.as_ref();
        let created = created.and_then(|pod| pod.metadata.creation_timestamp.as_deref());
        let created = age::parse(created);
        if let Some(pod) = &story.pod {
            all.pod(pod, created);
        }
        for events in story.former_events.chunk_by(is_repeated) {
            all.events(events, "former pod of this name: ");
        }
        for events in story.events.chunk_by(is_repeated) {
            all.events(events, "");
        }
        if let Some(Ok(node)) = &story.node {
            all.node(node);
        }
        // Events before the pod was created did not happen to it.
        let is_since = |event: &&Event| age::parse(event.last_time()) >= created;
        for event in story.node_events.iter().filter(is_since) {
            let reason = safe(event.reason.as_deref().unwrap_or("-"));
            let message = safe(event.message.as_deref().unwrap_or_default());
            let at = age::parse(event.last_time());
            all.add(at, format!("node: {reason}: {message}"), Paint::Plain);
        }
        all
    }

    /// Returns the oldest first.
    pub fn entries(mut self) -> Vec<Entry> {
        self.entries.sort_by_key(|entry| entry.at);
        self.entries
    }

    fn add(&mut self, at: Option<Timestamp>, text: String, paint: Paint) {
        self.entries.push(Entry { at, text, paint });
    }

    fn pod(&mut self, pod: &Pod, created: Option<Timestamp>) {
        self.add(created, "the pod was created".to_owned(), Paint::Dim);
        if let Some(message) = pod.status.message.as_deref() {
            let text = format!("the pod's status: {}", safe(message));
            let started = age::parse(pod.status.start_time.as_deref());
            self.add(started, text, Paint::Yellow);
        }
        let init = pod.status.init_container_statuses.iter().flatten();
        let containers = pod.status.container_statuses.iter().flatten();
        for status in init.chain(containers) {
            self.container(status);
        }
    }

    fn container(&mut self, status: &ContainerStatus) {
        let name = safe(&status.name);
        let both = [&status.last_state, &status.state];
        for ended in both
            .into_iter()
            .filter_map(|state| state.terminated.as_ref())
        {
            let started = age::parse(ended.started_at.as_deref());
            self.add(started, format!("container {name} started"), Paint::Dim);
            let text = format!("container {name} ended: {}", how(ended));
            let paint = if ended.exit_code == 0 {
                Paint::Plain
            } else {
                Paint::Red
            };
            self.add(age::parse(ended.finished_at.as_deref()), text, paint);
        }
        if let Some(running) = &status.state.running {
            let restarts = match status.restart_count {
                0 => String::new(),
                1 => " (1 restart)".to_owned(),
                count => format!(" ({count} restarts)"),
            };
            let text = format!("container {name} started, and runs{restarts}");
            self.add(age::parse(running.started_at.as_deref()), text, Paint::Dim);
        }
        if let Some(waiting) = &status.state.waiting {
            let reason = safe(waiting.reason.as_deref().unwrap_or("unknown"));
            let restarts = status.restart_count;
            let text = format!("container {name} waits: {reason} ({restarts} restarts)");
            self.add(Some(self.now), text, Paint::Yellow);
        }
    }

    /// Adds one Event, or consecutive ones about the same: the newest has the message.
    fn events(&mut self, events: &[Event], prefix: &str) {
        let Some(event) = events.last() else { return };
        let reason = safe(event.reason.as_deref().unwrap_or("-"));
        let message = safe(event.message.as_deref().unwrap_or_default());
        let count: u64 = events.iter().map(|event| event.count.unwrap_or(1)).sum();
        let times = if count > 1 {
            let first = events.iter().map(|event| event.first_timestamp.as_deref());
            let first = first.filter_map(age::parse).min();
            format!(", {count} times since {}", age::age(first, self.now))
        } else {
            String::new()
        };
        let paint = match KillEvent::of(event) {
            Some(_) => Paint::Red,
            None => Paint::Yellow,
        };
        let at = age::parse(event.last_time());
        self.add(at, format!("{prefix}{reason}{times}: {message}"), paint);
    }

    fn node(&mut self, node: &NodeHealth) {
        for problem in &node.problems {
            let (title, reason) = (problem.title(), safe(&problem.reason));
            let message = safe(&problem.message);
            let text = format!("node: {title} began ({reason}): {message}");
            self.add(problem.since, text, problem.paint());
        }
    }
}

/// Returns `true` if both are about kills of one container at one limit, with the same consequence.
fn is_repeated(first: &Event, second: &Event) -> bool {
    let both = [first, second].map(|event| {
        let kill = KillEvent::of(event)?.kill;
        Some((
            event.reason.as_deref(),
            kill.container,
            kill.consequence,
            kill.limit,
        ))
    });
    both[0].is_some() && both[0] == both[1]
}

/// Returns a text such as `OOMKilled, exit code 137`.
fn how(ended: &Terminated) -> String {
    let reason = safe(ended.reason.as_deref().unwrap_or("no reason"));
    let signal = ended.signal.filter(|signal| *signal != 0);
    let signal = signal.map(|signal| format!(", signal {signal}"));
    let code = ended.exit_code;
    format!("{reason}, exit code {code}{}", signal.unwrap_or_default())
}
