//! The agent's pods: their state, and which version they run.

use std::collections::HashMap;

use crate::cluster::{Cluster, OBJECTS};
use crate::failure::Failure;
use crate::objects::{ContainerStatus, Pod};
use crate::place::Place;
use crate::screen::safe;

const CONTAINER: &str = "nodepulse";
const PORT: &str = "metrics";
/// Displayed characters of an image's digest.
const DIGEST: usize = 12;

#[derive(Debug, Clone)]
pub struct AgentPod {
    pub namespace: String,
    pub name: String,
    pub node: String,
    /// The tag of its image, or the beginning of the digest.
    pub version: String,
    /// `Running`, or the reason why it does not run, such as `CrashLoopBackOff`.
    pub state: String,
    pub is_ready: bool,
    pub restarts: u64,
    /// Port of the metrics; `None` if they are not served.
    pub port: Option<u16>,
}

impl AgentPod {
    pub fn is_running(&self) -> bool {
        self.state == "Running"
    }

    /// Returns a text such as `Running, not ready, 3 restarts`.
    pub fn summary(&self) -> String {
        let ready = if self.is_running() && !self.is_ready {
            ", not ready"
        } else {
            ""
        };
        let restarts = match self.restarts {
            0 => String::new(),
            1 => ", 1 restart".to_owned(),
            restarts => format!(", {restarts} restarts"),
        };
        format!("{}{ready}{restarts}", self.state)
    }

    /// Returns `None` if the pod has no node or no container.
    pub fn of(pod: Pod) -> Option<Self> {
        let containers = pod.spec.containers.unwrap_or_default();
        let agent = containers.iter().find(|one| one.name == CONTAINER);
        let agent = agent.or_else(|| containers.first())?;
        let mut ports = agent.ports.iter().flatten();
        let port = ports.find(|port| port.name.as_deref() == Some(PORT));
        let statuses = pod.status.container_statuses.unwrap_or_default();
        let status = statuses.iter().find(|status| status.name == agent.name);
        let phase = pod.status.phase.unwrap_or_default();
        Some(Self {
            node: pod.spec.node_name?,
            version: version(&agent.image),
            state: safe(&status.map_or(phase.clone(), |status| state(status, &phase))),
            is_ready: status.is_some_and(|status| status.ready),
            restarts: status.map_or(0, |status| status.restart_count),
            port: port.map(|port| port.container_port),
            namespace: pod.metadata.namespace.unwrap_or_default(),
            name: pod.metadata.name,
        })
    }
}

/// Maximum number of pods per node: the running one, and those that it replaced.
const REPLACED: usize = 4;

#[derive(Debug, Default)]
pub struct AgentPods {
    /// By node, several each: a pod that was replaced can still exist.
    by_node: HashMap<String, Vec<AgentPod>>,
    /// `false` if the pods could not be listed.
    pub are_known: bool,
}

impl AgentPods {
    /// Returns the pods with these labels in the agents' namespace, on one node or on all, and the
    /// resource version of the list. In other namespaces, any tenant's pod could have the labels.
    pub async fn list(
        cluster: &Cluster,
        labels: &str,
        node: Option<&str>,
    ) -> Result<(Self, String), Failure> {
        let field = node.map(|node| format!("spec.nodeName={node}"));
        let query = [
            ("labelSelector", labels),
            ("fieldSelector", field.as_deref().unwrap_or_default()),
        ];
        let place = Self::place(cluster)?;
        let (list, version) = cluster.list(&place, &query, AgentPod::of).await?;
        let mut pods = Self {
            by_node: HashMap::with_capacity(list.len()),
            are_known: true,
        };
        for pod in list {
            pods.insert(pod);
        }
        Ok((pods, version))
    }

    pub fn place(cluster: &Cluster) -> Result<Place, Failure> {
        Place::pods(Some(&cluster.agent_namespace))
    }

    /// Adds or replaces a pod. Returns its node, or `None` if it has none yet.
    pub fn put(&mut self, pod: Pod) -> Option<String> {
        let pod = AgentPod::of(pod)?;
        let node = pod.node.clone();
        self.insert(pod);
        Some(node)
    }

    /// Removes a pod. Returns its node.
    pub fn remove(&mut self, pod: &Pod) -> Option<String> {
        let node = pod.spec.node_name.clone()?;
        let pods = self.by_node.get_mut(&node)?;
        pods.retain(|one| one.name != pod.metadata.name);
        if pods.is_empty() {
            self.by_node.remove(&node);
        }
        Some(node)
    }

    /// Returns the pod on this node: the running one, if there are several.
    pub fn on(&self, node: &str) -> Option<&AgentPod> {
        let pods = self.by_node.get(node)?;
        pods.iter().find(|pod| pod.is_running()).or(pods.first())
    }

    /// Returns one pod per node.
    pub fn each(&self) -> impl Iterator<Item = &AgentPod> {
        self.by_node.keys().filter_map(|node| self.on(node))
    }

    fn insert(&mut self, pod: AgentPod) {
        if self.by_node.len() >= OBJECTS && !self.by_node.contains_key(&pod.node) {
            return;
        }
        let pods = self.by_node.entry(pod.node.clone()).or_default();
        pods.retain(|one| one.name != pod.name);
        if pods.len() >= REPLACED {
            pods.remove(0);
        }
        pods.push(pod);
    }
}

fn state(status: &ContainerStatus, phase: &str) -> String {
    let waiting = status.state.waiting.as_ref();
    let waiting = waiting.map(|waiting| waiting.reason.clone());
    let ended = status.state.terminated.as_ref();
    let ended = ended.map(|ended| ended.reason.clone());
    let state = waiting.or(ended).flatten();
    state.unwrap_or_else(|| phase.to_owned())
}

/// Returns `0.1.0` for `registry.example:5000/nodepulse:0.1.0@sha256:…`.
fn version(image: &str) -> String {
    let (name, digest) = image
        .split_once('@')
        .map_or((image, None), |(name, digest)| (name, Some(digest)));
    let last = name.rsplit('/').next().unwrap_or(name);
    let version = match (last.split_once(':'), digest) {
        (Some((_, tag)), _) => tag.to_owned(),
        (None, Some(digest)) => {
            let digest = digest.rsplit(':').next().unwrap_or(digest);
            digest.chars().take(DIGEST).collect()
        }
        (None, None) => "latest".to_owned(),
    };
    safe(&version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_image() {
        let rows = [
            ("registry.example:5000/nodepulse:0.1.0", "0.1.0"),
            ("nodepulse:0.1.0@sha256:abc", "0.1.0"),
            (
                "r.example:5000/nodepulse@sha256:0123456789abcdef",
                "0123456789ab",
            ),
            ("r.example:5000/nodepulse", "latest"),
        ];
        for (image, expected) in rows {
            assert_eq!(version(image), expected, "{image}");
        }
    }
}
