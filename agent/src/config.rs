//! Configuration: strict text in, checked value out.
//!
//! A key means what the kubelet's key of that name means. Flag, environment (`NODEPULSE_MAX_PODS`
//! for `maxPods`), file, default: the first that speaks wins. What is refused is refused in one line
//! that names the key, the value and a correct example.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::node_status::{Allocation, Taint};
use crate::pressure::Policy;

mod checks;
mod defaults;
mod duration;
mod error;
mod eviction;
mod labels;
mod layers;
mod loader;
mod raw;

pub use error::ConfigError;
pub use layers::Overrides;

use layers::Layers;
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
pub enum ProbeFor {
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
pub enum Runtime {
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
#[derive(Debug, Clone, PartialEq, Eq)]
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
pub struct Psi {
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
    /// The cgroup of all pods, below the cgroup mount: `/kubepods`, `/kubepods.slice`.
    pub pods_cgroup: PathBuf,
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
    /// `registerWithTaints`, in order.
    pub taints: Vec<Taint>,
    /// `nodeLabels`.
    pub node_labels: BTreeMap<String, String>,
    /// `nodeIP`: none, one, or one of each family.
    pub node_ips: Vec<IpAddr>,
    /// `providerID`.
    pub provider_id: Option<String>,
    /// `maxPods`, `podsPerCore`, the reservations, and the hard thresholds that reserve.
    pub allocation: Allocation,
    /// `diskIO`.
    pub disk_io: DiskIo,
    /// `psi`.
    pub psi: Psi,
    /// `v<kubernetesVersion>+nodepulse.<our version>`.
    pub kubelet_version: String,
    /// `allowReadyWithoutRuntime`.
    pub runtime: Runtime,
    /// `kernel.tier`.
    pub tier: Tier,
    /// `kernel.probes`.
    pub probes: BTreeSet<ProbeFor>,
    /// `serve.address`; `None` where nothing is to be served.
    pub serve: Option<SocketAddr>,
    /// `sandbox`.
    pub sandbox: Sandbox,
    /// `log.level`.
    pub log_level: LogLevel,
    /// `log.format`.
    pub log_format: LogFormat,
}

impl Config {
    /// Puts the layers together and checks the result.
    ///
    /// `env` reads the environment, `read_file` a file, and `hostname` is the kernel's host name,
    /// which names the node where nothing else does.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong. Callers stop before any request, with exit code 2.
    pub fn load(
        overrides: &Overrides,
        env: &dyn Fn(&str) -> Option<String>,
        read_file: &dyn Fn(&Path) -> io::Result<String>,
        hostname: &str,
    ) -> Result<Self, ConfigError> {
        let (path, raw) = read(overrides, env, read_file)?;
        let layers = Layers { env, path: &path };
        Loader {
            layers,
            flags: overrides,
            raw: &raw,
        }
        .config(hostname)
    }
}

/// The file that was named, or the default one if it exists.
fn read(
    overrides: &Overrides,
    env: &dyn Fn(&str) -> Option<String>,
    read_file: &dyn Fn(&Path) -> io::Result<String>,
) -> Result<(PathBuf, RawConfig), ConfigError> {
    let variable = || env("NODEPULSE_CONFIG").filter(|path| !path.is_empty());
    let named = overrides
        .config
        .clone()
        .or_else(|| variable().map(PathBuf::from));
    let path = named.clone().unwrap_or_else(|| defaults::FILE.into());
    let raw = match read_file(&path) {
        Ok(text) => RawConfig::parse(&text, &path)?,
        Err(err) if err.kind() == io::ErrorKind::NotFound && named.is_none() => {
            RawConfig::default()
        }
        Err(source) => return Err(ConfigError::Read { path, source }),
    };
    Ok((path, raw))
}

#[cfg(test)]
mod tests;
