//! Pods at the API server: the watch, and reads of their containers.

use std::error::Error;
use std::sync::Arc;

use nodepulse_core::pods::{Pod, PodChange};
use nodepulse_core::subjects::PodInput;
use nodepulse_core::subjects::incidents::MAX_READS;
use nodepulse_core::subjects::pods::ReadFailure;
use nodepulse_io::tasks::Tasks;
use nodepulse_kube::{ApiError, Client, Refusal, pod_containers, pod_watch};
use tokio::sync::{Semaphore, mpsc};
use tracing::debug;

use crate::config::Config;

/// Capacity of the queue from the watch to the loop. While it is full, the watch waits.
const CHANGES: usize = 64;

/// Maximum number of reads at the API server at once; the others wait. A connection keeps the
/// memory that its requests took together.
const READS_AT_ONCE: usize = 8;

pub struct PodUpdates {
    client: Option<Client>,
    changes: mpsc::Receiver<PodChange>,
    reads: mpsc::Receiver<Box<PodInput>>,
    /// Used by the reading tasks, at most [`MAX_READS`] at a time.
    send_read: mpsc::Sender<Box<PodInput>>,
    at_once: Arc<Semaphore>,
}

impl PodUpdates {
    /// Starts the watch if there is an API server. Must be called in a runtime.
    pub fn new(config: &Config, client: Option<Client>, tasks: &mut Tasks) -> Self {
        let (send_change, changes) = mpsc::channel(CHANGES);
        let (send_read, reads) = mpsc::channel(MAX_READS);
        if let Some(client) = client.clone() {
            let node = config.node_name.clone();
            tasks.spawn("pod watch", pod_watch::watch(client, node, send_change));
        }
        Self {
            client,
            changes,
            reads,
            send_read,
            at_once: Arc::new(Semaphore::new(READS_AT_ONCE)),
        }
    }

    /// Returns the next update; pending forever without an API server.
    pub async fn next(&mut self) -> PodInput {
        tokio::select! {
            Some(change) = self.changes.recv() => PodInput::Changed(change),
            Some(read) = self.reads.recv() => *read,
            else => std::future::pending().await,
        }
    }

    pub fn try_next(&mut self) -> Option<PodInput> {
        let change = self.changes.try_recv().ok();
        change.map(PodInput::Changed)
    }

    /// Reads the containers of a pod; the answer is one of the next updates.
    pub fn read_containers(&self, pod: Pod) {
        let Some(client) = self.client.clone() else {
            return;
        };
        let (reads, at_once) = (self.send_read.clone(), Arc::clone(&self.at_once));
        tokio::spawn(async move {
            let permit = at_once.acquire().await;
            let found = pod_containers::read(&client, &pod.namespace, &pod.name).await;
            drop(permit);
            let read = Box::new(PodInput::Containers {
                uid: pod.uid,
                read: found.map_err(|err| read_failure(&err)),
            });
            // The loop may have ended meanwhile.
            drop(reads.send(read).await);
        });
    }
}

fn read_failure(err: &ApiError) -> ReadFailure {
    debug!(err = err as &dyn Error, "containers of a pod not read");
    match err.refusal() {
        Some(Refusal::Forbidden) => ReadFailure::Forbidden,
        Some(_) | None => ReadFailure::Other,
    }
}
