//! Configuration: strict text in, checked value out.
//!
//! A key means what the kubelet's key of that name means. Flag, environment (`NODEPULSE_MAX_PODS`
//! for `maxPods`), files, a kubelet's file, default: the first that speaks wins. What is refused is refused in one line
//! that names the key, the value and a correct example.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::node_status::nodepulse_condition::NodepulseCondition;
use crate::node_status::{Allocation, AttachDetach, Taint};
use crate::pressure::Policy;

mod allocation;
mod checks;
mod companion;
mod defaults;
mod duration;
mod effective;
mod error;
mod eviction;
mod keys;
mod kubelet;
mod labels;
mod layers;
mod live;
mod loader;
mod raw;

pub use effective::Effective;
pub use error::ConfigError;
pub use layers::Overrides;
pub use live::ConfigChanges;

use error::one_line;
use keys::Keys;
use layers::{FileLayer, Layers};
use loader::Loader;
use raw::RawConfig;

/// The domain of everything that is ours: API group, taints, labels.
pub const DOMAIN: &str = domain!();

/// `apiVersion` of the file: [`DOMAIN`] and the version of the format.
pub const API_VERSION: &str = concat!(domain!(), "/v1alpha1");

/// `kind` of the file.
pub const KIND: &str = "NodepulseConfiguration";

/// What the agent writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Beside a kubelet: own conditions and Events only.
    Companion,
    /// Without one: the Node, its status and its Lease.
    Node,
}

/// Where kernel facts come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// The best that this kernel offers.
    Auto,
    /// eBPF, or refuse to start.
    Btf,
    /// Kills from the kernel's log, everything else from files.
    Kmsg,
    /// Files only.
    Files,
}

/// `kernel.probes`: what programs may be attached for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeGroup {
    /// `oom`: kills.
    Oom,
    /// `scope`: the kernel's own word on what a kill was about.
    Scope,
    /// `pids`: the number of pids.
    Pids,
    /// `disks`: latency of disks.
    Disks,
}

/// Whether rights are given up once the agent runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sandbox {
    /// As far as this kernel lets us; what does not hold is a warning.
    Auto,
    /// Not at all.
    Off,
    /// All of them, or refuse to start.
    Require,
}

/// What Ready says while there is no container runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimePolicy {
    /// False: containers cannot run here.
    Missing,
    /// True: `allowReadyWithoutRuntime` says that this is meant.
    NotNeeded,
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the usual levels")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// `diskIO`: when a disk counts as slow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskIo {
    /// A request that takes so long is slow on a solid-state disk. Virtio disks count as such.
    pub solid_state_slow: Duration,
    /// The same for a rotating disk.
    pub rotational_slow: Duration,
    /// The same for single disks, by their name in `/sys/block`.
    pub devices: BTreeMap<String, Duration>,
    /// Over which time the share of slow requests is taken.
    pub window: Duration,
}

/// `psi`: when tasks wait too much.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PsiConfig {
    /// Whether pressure stall information is used at all.
    pub enabled: bool,
    /// Percent of the time.
    pub threshold: f32,
}

/// The checked configuration. It holds no nonsense.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `mode`.
    pub mode: Mode,
    /// `nodeName`, lower case: also the value of the host name label.
    pub node_name: String,
    /// `kubeconfig`; `None` means in-cluster credentials or none.
    pub kubeconfig: Option<PathBuf>,
    /// `hostRoot`: the directory that stands for `/` on the node.
    pub host_root: PathBuf,
    /// `rootDirectory`, on the node: its file system is nodefs.
    pub root_directory: PathBuf,
    /// `stateDirectory`: what is remembered from one start to the next, in this boot.
    pub state_directory: PathBuf,
    /// How the cgroup of all pods may be called, below the cgroup mount. One where `cgroupDriver`
    /// says it, else what it is called with either: the first that exists is it.
    pub pods_cgroups: Vec<PathBuf>,
    /// Thresholds, transition period, and what slow disks raise.
    pub policy: Policy,
    /// `nodeStatusUpdateFrequency`: how often an unchanged status is computed.
    pub status_update_frequency: Duration,
    /// `nodeStatusReportFrequency`: how often an unchanged status is sent.
    pub status_report_frequency: Duration,
    /// `nodeLeaseDurationSeconds`; renewed at a quarter of it.
    pub lease_duration: Duration,
    /// `takeOver`: start although a kubelet seems to look after this node.
    pub take_over: bool,
    /// `registerNode`.
    pub register_node: bool,
    /// `enableControllerAttachDetach`: who attaches volumes to this node.
    pub attach_detach: AttachDetach,
    /// `registerWithTaints`, in order.
    pub taints: Vec<Taint>,
    /// `conditions`: those of our own that companion mode writes.
    pub conditions: BTreeSet<NodepulseCondition>,
    /// `taints`: what conditions of our own taint the Node with while they are True.
    pub nodepulse_taints: BTreeMap<NodepulseCondition, Taint>,
    /// `nodeLabels`.
    pub node_labels: BTreeMap<String, String>,
    /// `nodeIP`: none, one, or one of each family.
    pub node_ips: Vec<IpAddr>,
    /// `providerID`.
    pub provider_id: Option<String>,
    /// `port`, as `daemonEndpoints` says it; `None` leaves it out. Nothing of ours listens there.
    pub kubelet_port: Option<u16>,
    /// `maxPods`, `podsPerCore`, `volumeLimits`, the reservations, and the hard thresholds that
    /// reserve.
    pub allocation: Allocation,
    /// `diskIO`.
    pub disk_io: DiskIo,
    /// `psi`.
    pub psi: PsiConfig,
    /// `oom.nodeEvents`: whether kills for want of the node's memory, and those outside pods, are
    /// Events on the Node.
    pub oom_node_events: bool,
    /// `v<kubernetesVersion>+nodepulse.<our version>`.
    pub kubelet_version: String,
    /// `allowReadyWithoutRuntime`.
    pub runtime: RuntimePolicy,
    /// `kernel.tier`.
    pub tier: Tier,
    /// `kernel.probes`.
    pub probes: BTreeSet<ProbeGroup>,
    /// `events.queue`: how many Events may wait for the API server.
    pub event_queue: usize,
    /// `serve.address`; `None` where nothing is to be served.
    pub serve: Option<SocketAddr>,
    /// `serve.perPodMetrics`: whether metrics name pods.
    pub per_pod_metrics: PerPodMetrics,
    /// `sandbox`.
    pub sandbox: Sandbox,
    /// `log.level`.
    pub log_level: LogLevel,
    /// `log.format`.
    pub log_format: LogFormat,
}

/// Whether metrics have series that name pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PerPodMetrics {
    /// They do.
    On,
    /// They do not.
    Off,
}

/// What one load gives.
#[derive(Debug)]
pub struct LoadedConfig {
    /// The checked value.
    pub config: Config,
    /// The same as it was written, key by key.
    pub effective: Effective,
    /// What was accepted and says nothing here.
    pub ignored: IgnoredKeys,
}

/// Keys that were accepted and say nothing here, escaped. Each kind is to be told once.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct IgnoredKeys {
    /// Of the kubelet's server on port 10250, which does not exist here.
    pub server: Vec<String>,
    /// Others of a `KubeletConfiguration`.
    pub kubelet: Vec<String>,
}

impl Config {
    /// [`load`] for those who want the checked value alone.
    ///
    /// # Errors
    ///
    /// As for [`load`].
    pub fn load(
        overrides: &Overrides,
        env: &dyn Fn(&str) -> Option<String>,
        read_file: &dyn Fn(&Path) -> io::Result<String>,
        hostname: &str,
    ) -> Result<Self, ConfigError> {
        load(overrides, env, read_file, hostname).map(|loaded| loaded.config)
    }
}

/// Puts the layers together and checks the result.
///
/// `env` reads the environment, `read_file` a file, and `hostname` is the kernel's host name,
/// which names the node where nothing else does. Files of [`directory`] are read as far as
/// `overrides` names them.
///
/// # Errors
///
/// The first thing that is wrong. Callers stop before any request, with exit code 2.
pub fn load(
    overrides: &Overrides,
    env: &dyn Fn(&str) -> Option<String>,
    read_file: &dyn Fn(&Path) -> io::Result<String>,
    hostname: &str,
) -> Result<LoadedConfig, ConfigError> {
    let mut ignored = IgnoredKeys::default();
    let (path, need) = main_file(overrides, env);
    let mut files = Vec::new();
    let parts = overrides.parts.iter().rev();
    for (path, need) in parts
        .map(|path| (path.clone(), Need::Named))
        .chain([(path, need)])
    {
        let Some(text) = read(&path, need, "--config", read_file)? else {
            continue;
        };
        let raw = RawConfig::parse(&text, &path)?;
        ignored.server.extend(raw.server_keys());
        files.push(FileLayer { path, raw });
    }
    if let Some(path) = kubelet_config(overrides, env)
        && let Some(text) = read(&path, Need::Named, "--kubelet-config", read_file)?
    {
        let kubelet = kubelet::parse(&text, &path)?;
        ignored.server.extend(kubelet.server);
        ignored.kubelet = kubelet.others.iter().map(|key| one_line(key)).collect();
        let raw = kubelet.raw;
        files.push(FileLayer { path, raw });
    }
    ignored.server.sort();
    ignored.server.dedup();
    let files = files.as_slice();
    let keys = Keys::new(Layers { env, files }, overrides);
    let (config, effective) = Loader(keys).load(hostname)?;
    Ok(LoadedConfig {
        config,
        effective,
        ignored,
    })
}

/// What holds in `mode` where nobody says anything: no flag, no variable, no file. The node's name is
/// then the host's, and stands there as unset.
///
/// # Errors
///
/// Where there is no such mode.
pub fn defaults(mode: Option<String>) -> Result<Effective, ConfigError> {
    let overrides = Overrides {
        mode,
        ..Overrides::default()
    };
    let absent = |_: &Path| Err(io::ErrorKind::NotFound.into());
    let loaded = load(&overrides, &|_| None, &absent, "localhost")?;
    Ok(loaded.effective.without("nodeName"))
}

/// Where more files may be, `*.yaml`, which are merged over the file in the order of their names:
/// beside it. `None` for standard input (`-`).
#[must_use]
pub fn directory(overrides: &Overrides, env: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let path = file(overrides, env);
    (path != Path::new("-")).then(|| path.with_file_name(defaults::PARTS))
}

/// Where the configuration file is, if it is there.
#[must_use]
pub fn file(overrides: &Overrides, env: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    main_file(overrides, env).0
}

/// Whether a file must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    Named,
    MayBeMissing,
}

/// The file that was named, or the default one, which may be missing.
fn main_file(overrides: &Overrides, env: &dyn Fn(&str) -> Option<String>) -> (PathBuf, Need) {
    match named(overrides.config.as_ref(), "NODEPULSE_CONFIG", env) {
        Some(path) => (path, Need::Named),
        None => (defaults::FILE.into(), Need::MayBeMissing),
    }
}

fn kubelet_config(overrides: &Overrides, env: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let flag = overrides.kubelet_config.as_ref();
    named(flag, "NODEPULSE_KUBELET_CONFIG", env)
}

fn named(
    flag: Option<&PathBuf>,
    variable: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Option<PathBuf> {
    let variable = || env(variable).filter(|path| !path.is_empty());
    flag.cloned().or_else(|| variable().map(PathBuf::from))
}

fn read(
    path: &Path,
    need: Need,
    flag: &'static str,
    read_file: &dyn Fn(&Path) -> io::Result<String>,
) -> Result<Option<String>, ConfigError> {
    match read_file(path) {
        Ok(text) => Ok(Some(text)),
        Err(err) if err.kind() == io::ErrorKind::NotFound && need == Need::MayBeMissing => Ok(None),
        Err(source) => Err(ConfigError::Read {
            path: path.to_owned(),
            flag,
            source,
        }),
    }
}

#[cfg(test)]
mod tests;
