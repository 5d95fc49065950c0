//! Provides every workload with a directory on a disk of the node, pods, and the API server.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::{Pace, Prepared};
use crate::api_server::{ApiServer, Grant, Identity};
use crate::node::COMPANION;
use crate::pod::Pod;
use crate::provoke::cgroup::CgroupTree;
use crate::provoke::{Load, Provoke};
use crate::view::NODES;

pub const NODE: &str = "worker-1";

/// Names and UIDs of the pods; each has one container.
pub const PODS: [(&str, &str); 3] = [
    ("writer", "0c9f1b7e-1f4b-4a62-9b0e-0f7c0f5d8a11"),
    ("database", "0c9f1b7e-1f4b-4a62-9b0e-0f7c0f5d8a12"),
    ("other", "0c9f1b7e-1f4b-4a62-9b0e-0f7c0f5d8a13"),
];

/// Name of the pod with a volume, which only some workloads have.
pub const POD_WITH_VOLUME: &str = "database";

/// Returns the directory of the pod with a volume, relative to the kubelet's.
pub fn pod_directory() -> String {
    let mut pods = PODS.into_iter();
    let (_, uid) = pods
        .find(|(name, _)| *name == POD_WITH_VOLUME)
        .unwrap_or(PODS[0]);
    format!("pods/{uid}")
}

/// The place in which a workload runs. Everything is removed on drop.
pub struct Site {
    directory: tempfile::TempDir,
    tree: CgroupTree,
    pub provoke: Provoke,
    pub pace: Pace,
}

impl Site {
    /// Creates a directory below `parent`, which is on a disk.
    pub fn new(parent: &Path, provoke: Provoke, pace: Pace) -> io::Result<Self> {
        let directory = tempfile::tempdir_in(parent)?;
        let name = format!("nodepulse-alarms-{}", std::process::id());
        let mut tree = CgroupTree::new(&name)?;
        for pod in PODS {
            tree.add(container(pod))?;
        }
        tree.share(["io", "pids"])?;
        Ok(Self {
            directory,
            tree,
            provoke,
            pace,
        })
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns a path in the directory, as an argument for a child.
    pub fn path(&self, name: &str) -> String {
        self.directory().join(name).display().to_string()
    }

    /// Returns the cgroup of a pod's container.
    pub fn container(&self, pod: &str) -> PathBuf {
        let pods = PODS.into_iter();
        let mut found = pods.filter(|(name, _)| *name == pod);
        self.tree.dir(container(found.next().unwrap_or(PODS[0])))
    }

    pub fn limit(&self, pod: &str, bytes: u64) -> io::Result<()> {
        self.tree.limit(self.container(pod), bytes)
    }

    /// Sets `memory.high` of a pod's container, which cgroup v1 does not support.
    pub fn slow_down_above(&self, pod: &str, bytes: u64) -> io::Result<()> {
        self.tree.slow_down_above(self.container(pod), bytes)
    }

    pub fn load(&self, pod: &str, load: &[&str]) -> io::Result<Load> {
        self.provoke.load(&self.container(pod), load)
    }

    /// Returns the parent of the pods cgroup, in the form of the agent's configuration.
    pub fn cgroup_root(&self) -> String {
        self.tree.path("")
    }
}

/// Returns a container's cgroup, relative to the root.
fn container((_, uid): (&str, &str)) -> String {
    format!("kubepods/besteffort/pod{uid}/{}", id(uid))
}

/// Returns a container ID of a runtime's length.
fn id(uid: &str) -> String {
    uid.replace('-', "").repeat(2)
}

/// Starts an API server with the Node and its pods, and writes the companion's kubeconfig to
/// `directory`.
pub(crate) async fn cluster(directory: &Path) -> (ApiServer, PathBuf) {
    let api = ApiServer::start().await;
    for (verb, resource) in [
        ("get", "nodes"),
        ("patch", "nodes/status"),
        ("create", "events"),
        ("patch", "events"),
        ("watch", "pods"),
        ("get", "pods"),
        ("list", "pods"),
    ] {
        api.grant(Grant {
            user: COMPANION.to_owned(),
            verb: verb.to_owned(),
            resource: resource.to_owned(),
        });
    }
    api.put_object(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE },
    }));
    for (name, uid) in PODS {
        Pod::new("shop", name, uid)
            .container("app", &id(uid))
            .put(&api);
    }
    let identity = Identity::user(COMPANION);
    let kubeconfig = api.kubeconfig(&directory.join("kubeconfig"), &identity);
    (api, kubeconfig)
}

/// Writes the agent's configuration.
pub(super) fn configuration(site: &Site, prepared: &Prepared) -> io::Result<PathBuf> {
    let path = site.directory().join("config.yaml");
    let nodefs = prepared.nodefs.as_deref().unwrap_or(site.directory());
    let condition = prepared.condition.map(|type_| format!(", {type_}: true"));
    let condition = condition.unwrap_or_default();
    let slow = prepared
        .slow
        .map(|limit| format!(", solidState: {{slow: {limit}}}, rotational: {{slow: {limit}}}"));
    let slow = slow.unwrap_or_default();
    // The free space of this machine's disk is not tested: a build may have left little.
    let mut thresholds = "nodefs.available: 1Mi, imagefs.available: 1Mi".to_owned();
    for (signal, value) in &prepared.thresholds {
        write!(thresholds, ", {signal}: \"{value}\"").map_err(io::Error::other)?;
    }
    let further = &prepared.settings;
    let text = format!(
        "apiVersion: nodepulse.dev/v1alpha1\n\
         kind: NodepulseConfiguration\n\
         cgroupRoot: {}\n\
         cgroupDriver: cgroupfs\n\
         rootDirectory: {}\n\
         conditions: {{FrequentOOMKills: true{condition}}}\n\
         diskIO: {{slowFor: {}s{slow}}}\n\
         serve: {{address: \"127.0.0.1:0\"}}\n\
         evictionHard: {{{thresholds}}}\n\
         {further}",
        site.cgroup_root(),
        nodefs.display(),
        site.pace.slow_for.as_secs(),
    );
    fs::write(&path, text)?;
    Ok(path)
}

pub(crate) fn status_path() -> String {
    format!("{NODES}/{NODE}/status")
}
