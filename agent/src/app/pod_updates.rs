//! Pods at the API server: the watch, and reads of their containers.

use std::error::Error;

use tokio::sync::mpsc;
use tracing::debug;

use super::App;
use crate::api::{ApiError, Client, Refusal, pod_containers, pod_watch};
use crate::clock::Now;
use crate::config::{Config, Mode};
use crate::kube_event::NodeEvents;
use crate::pods::{Containers, Pod, PodChange};
use crate::reporting::ApiAccess;
use crate::subjects::Input;
use crate::subjects::incidents::{ContainersRead, IncidentInput, MAX_READS};
use crate::tasks::Tasks;

/// Capacity of the queue from the watch to the loop. While it is full, the watch waits.
const CHANGES: usize = 64;

/// Whether and as which component the agent records Events on the Node.
pub(super) fn node_events(config: &Config) -> NodeEvents {
    match config.mode {
        _ if !config.oom_node_events => NodeEvents::Off,
        Mode::Node => NodeEvents::Kubelet,
        Mode::Companion => NodeEvents::Companion,
    }
}

/// Receives updates of pods, and asks for more.
pub(super) struct PodUpdates {
    client: Option<Client>,
    changes: mpsc::Receiver<PodChange>,
    reads: mpsc::Receiver<IncidentInput>,
    /// For the reading tasks, at most [`MAX_READS`] at a time.
    send_read: mpsc::Sender<IncidentInput>,
}

impl PodUpdates {
    /// Starts the watch if there is an API server. Must be called in a runtime.
    pub(super) fn new(config: &Config, access: Option<&ApiAccess>, tasks: &mut Tasks) -> Self {
        let (send_change, changes) = mpsc::channel(CHANGES);
        let (send_read, reads) = mpsc::channel(MAX_READS);
        if let Some(access) = access {
            let (client, node) = (access.client.clone(), config.node_name.clone());
            let jitter = access.jitter.clone();
            let watch = pod_watch::watch(client, node, jitter, send_change);
            tasks.spawn("pod watch", watch);
        }
        Self {
            client: access.map(|access| access.client.clone()),
            changes,
            reads,
            send_read,
        }
    }

    /// The next update; pending forever without an API server.
    pub(super) async fn next(&mut self) -> IncidentInput {
        tokio::select! {
            Some(change) = self.changes.recv() => IncidentInput::PodChanged(change),
            Some(read) = self.reads.recv() => read,
            else => std::future::pending().await,
        }
    }

    /// Reads the containers of a pod; the answer is one of the next updates.
    pub(super) fn read_containers(&self, pod: Pod) {
        let Some(client) = self.client.clone() else {
            return;
        };
        let reads = self.send_read.clone();
        tokio::spawn(async move {
            let found = pod_containers::read(&client, &pod.namespace, &pod.name).await;
            let read = IncidentInput::Containers {
                uid: pod.uid,
                read: containers_read(found),
            };
            // The loop may have ended meanwhile.
            drop(reads.send(read).await);
        });
    }
}

fn containers_read(found: Result<Containers, ApiError>) -> ContainersRead {
    match found {
        Ok(containers) => ContainersRead::Found(containers),
        Err(err) => {
            debug!(err = &err as &dyn Error, "containers of a pod not read");
            match err.refusal() {
                Some(Refusal::Forbidden) => ContainersRead::Forbidden,
                Some(_) | None => ContainersRead::Failed,
            }
        }
    }
}

impl App {
    /// Handles an update, and all that are already queued.
    pub(super) fn pods_updated(&mut self, first: IncidentInput, now: Now) {
        let mut next = Some(first);
        while let Some(update) = next {
            self.feed(Input::Incident(update), now);
            let change = self.pod_updates.changes.try_recv().ok();
            next = change.map(IncidentInput::PodChanged);
        }
        self.feed(Input::Incident(IncidentInput::Due), now);
    }

    /// Incidents become Events from now on, if there is an API server.
    pub(super) fn reporting_started(&mut self, now: Now) {
        if self.reporting.is_some() {
            self.feed(Input::Incident(IncidentInput::ReportingStarted), now);
        }
    }
}
