//! Configuration: strict text in, checked value out.
//!
//! A key has the meaning of the kubelet's key of that name. The first of these that sets it wins:
//! flag, environment (`NODEPULSE_MAX_PODS` for `maxPods`), files, a kubelet's file, default. An
//! error is one line with the key, the value and a valid example.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use nodepulse_core::node_status::nodepulse_condition::NodepulseCondition;
use nodepulse_core::node_status::{Allocation, AttachDetach, Runtime, Taint};
use nodepulse_core::pressure::Policy;
use nodepulse_core::pressure::frequent_kills::FrequentOom;
use nodepulse_core::pressure::stall::StallThresholds;
use nodepulse_core::settings::{DiskIo, Mode, OomNodeEvents};
pub use nodepulse_core::units::duration::parse as parse_duration;

mod allocation;
mod checks;
mod choices;
mod companion;
mod effective;
mod error;
mod eviction;
mod keys;
mod labels;
mod layers;
mod live;
mod loader;
mod nearest;
mod raw;
mod spec;
mod table;

#[cfg(feature = "testing")]
pub use choices::Effect;
pub use choices::{
    BlackBoxSync, IncidentKind, JournaldUse, LogFormat, LogLevel, ProbeGroup, RuntimeEndpoint,
    Sandbox, Tier,
};
pub use effective::Effective;
pub use error::ConfigError;
pub use live::ConfigChanges;
pub(crate) use nearest::similar;
pub use spec::{Flag, Form, Json, KeySpec, Preset, Scalar};
#[cfg(feature = "testing")]
pub use spec::{KubeletKey, Reload};
#[cfg(feature = "testing")]
pub use table::SERVER_KEYS;
pub(crate) use table::key;
pub use table::{KEYS, Overrides};

use error::one_line;
use keys::Keys;
use layers::{FileLayer, Layers};
use loader::Loader;
use raw::{Format, RawConfig};

pub const API_VERSION: &str = concat!(nodepulse_core::domain!(), "/v1alpha1");

/// Default path of the configuration file, which may not exist.
const FILE: &str = "/etc/nodepulse/config.yaml";

const DROP_INS: &str = "conf.d";

pub const KIND: &str = "NodepulseConfiguration";

/// The client certificate that node mode requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateConfig {
    /// `bootstrapKubeconfig`: the credentials that may request the first one.
    pub bootstrap: PathBuf,
    /// `kubeconfig`, which is written if it is missing.
    pub kubeconfig: PathBuf,
    pub directory: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PsiConfig {
    pub enabled: bool,
    pub thresholds: StallThresholds,
}

/// The receivers of incidents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkConfig {
    pub otlp: Option<Uri>,
    pub otlp_headers: Option<PathBuf>,
    pub webhooks: Vec<WebhookConfig>,
    /// Certificates in PEM; `None`: those of the host.
    pub authorities: Option<PathBuf>,
}

/// The names of webhooks in metrics and log lines, by their places in the list.
pub const WEBHOOK_NAMES: [&str; 4] = ["webhook", "webhook-2", "webhook-3", "webhook-4"];

impl SinkConfig {
    /// Returns the names of the sinks in metrics and log lines.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        let webhooks = WEBHOOK_NAMES.into_iter().take(self.webhooks.len());
        self.otlp.iter().map(|_| "otlp").chain(webhooks)
    }
}

/// An entry of `sinks.webhooks`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookConfig {
    pub url: Uri,
    pub headers_file: Option<PathBuf>,
    /// Empty: all.
    pub kinds: Vec<IncidentKind>,
}

/// The checked configuration. It cannot represent invalid values.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub mode: Mode,
    /// `nodeName`, in lower case; also the value of the host name label.
    pub node_name: String,
    /// `None` stands for in-cluster credentials, or for no API server.
    pub kubeconfig: Option<PathBuf>,
    /// `None` if no client certificate is requested.
    pub certificate: Option<CertificateConfig>,
    pub host_root: PathBuf,
    pub root_directory: PathBuf,
    /// `imagefsDirectory` on the node; its file system is imagefs. `None` if it is searched for.
    pub imagefs_directory: Option<PathBuf>,
    pub state_directory: PathBuf,
    pub journald: JournaldUse,
    pub sinks: SinkConfig,
    pub black_box_sync: BlackBoxSync,
    /// `None`: no history of incidents is kept on a disk.
    pub history_directory: Option<PathBuf>,
    /// Possible paths of the pods cgroup below the cgroup mount: one if `cgroupDriver` is set.
    pub pods_cgroups: Vec<PathBuf>,
    pub policy: Policy,
    pub status_update_frequency: Duration,
    pub status_report_frequency: Duration,
    /// `nodeLeaseDurationSeconds`. The Lease is renewed after a quarter of it.
    pub lease_duration: Duration,
    pub take_over: bool,
    pub register_node: bool,
    pub attach_detach: AttachDetach,
    pub taints: Vec<Taint>,
    pub conditions: BTreeSet<NodepulseCondition>,
    pub nodepulse_taints: BTreeMap<NodepulseCondition, Taint>,
    pub node_labels: BTreeMap<String, String>,
    /// `nodeIP`: none, one, or one of each family.
    pub node_ips: Vec<IpAddr>,
    pub provider_id: Option<String>,
    /// `port` for `daemonEndpoints`; `None` omits it. nodepulse does not listen there.
    pub kubelet_port: Option<u16>,
    pub allocation: Allocation,
    pub disk_io: DiskIo,
    pub psi: PsiConfig,
    /// `oom.nodeEvents`: Events on the Node for OOM kills of the node, and those outside pods.
    pub oom_node_events: OomNodeEvents,
    pub oom_name_pods: bool,
    pub frequent_oom: FrequentOom,
    /// `kubernetesVersion`, with a leading `v`.
    pub kubernetes_version: Option<String>,
    /// `allowReadyWithoutRuntime`.
    pub runtime: Runtime,
    /// `runtime.endpoint`. Only node mode uses it.
    pub runtime_endpoint: RuntimeEndpoint,
    /// `nodeStatusMaxImages`; `None` for no limit.
    pub max_images: Option<usize>,
    pub tier: Tier,
    pub probes: BTreeSet<ProbeGroup>,
    pub event_queue: usize,
    /// `serve.address`; `None` disables serving.
    pub serve: Option<SocketAddr>,
    pub per_pod_metrics: PerPodMetrics,
    pub sandbox: Sandbox,
    pub log_level: LogLevel,
    pub log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PerPodMetrics {
    On,
    Off,
}

#[derive(Debug)]
pub struct LoadedConfig {
    pub config: Config,
    /// The effective value and source of each key.
    pub effective: Effective,
    pub ignored: IgnoredKeys,
}

/// Accepted keys without effect, escaped.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct IgnoredKeys {
    /// Keys of the kubelet's server on port 10250, which nodepulse does not have.
    pub server: Vec<String>,
    /// Other keys of a `KubeletConfiguration`.
    pub kubelet: Vec<String>,
}

impl Config {
    /// The runtime's sockets, in the order in which they are tried; empty if no runtime is used.
    pub fn runtime_sockets(&self) -> Vec<PathBuf> {
        // In companion mode, the kubelet uses the runtime.
        let sockets = self.runtime_endpoint.sockets().into_iter();
        let sockets = sockets.filter(|_| self.mode == Mode::Node);
        let relative = sockets.map(|socket| socket.strip_prefix("/").map(Path::to_owned));
        relative
            .flatten()
            .map(|path| self.host_root.join(path))
            .collect()
    }

    pub fn system_bus(&self) -> PathBuf {
        self.host_root.join("run/dbus/system_bus_socket")
    }

    /// Like [`load`], but returns only the checked configuration.
    pub fn load(
        overrides: &Overrides,
        env: &dyn Fn(&str) -> Option<String>,
        read_file: &dyn Fn(&Path) -> io::Result<String>,
        hostname: &str,
    ) -> Result<Self, ConfigError> {
        load(overrides, env, read_file, hostname).map(|loaded| loaded.config)
    }
}

/// Merges the layers and checks the result.
///
/// `env` reads the environment, `read_file` a file, and `hostname` is the default node name. Of the
/// files in `drop_in_directory`, those in `overrides` are read. Fails with the first fault.
/// Callers exit with code 2 before any request.
pub fn load(
    overrides: &Overrides,
    env: &dyn Fn(&str) -> Option<String>,
    read_file: &dyn Fn(&Path) -> io::Result<String>,
    hostname: &str,
) -> Result<LoadedConfig, ConfigError> {
    for (key, instead) in table::REMOVED {
        let origin = spec::variable(key);
        if env(&origin).is_some_and(|text| !text.is_empty()) {
            return Err(ConfigError::RemovedKey { origin, instead });
        }
    }
    let mut ignored = IgnoredKeys::default();
    let mut files = Vec::new();
    for (path, is_required, format) in sources(overrides, env) {
        let Some(text) = read(&path, is_required, format, read_file)? else {
            continue;
        };
        let mut raw = RawConfig::parse(&text, &path, format)?;
        ignored.server.append(&mut raw.server);
        ignored
            .kubelet
            .extend(raw.others.iter().map(|key| one_line(key)));
        files.push(FileLayer { path, raw });
    }
    ignored.server.sort();
    ignored.server.dedup();
    ignored.kubelet.sort();
    let keys = Keys::new(Layers {
        flags: overrides,
        env,
        files: &files,
    });
    let (config, effective) = Loader(keys).load(hostname)?;
    Ok(LoadedConfig {
        config,
        effective,
        ignored,
    })
}

/// The default configuration in `mode`. `nodeName`, which defaults to the host name, is not set.
pub fn defaults(mode: Option<String>) -> Result<Effective, ConfigError> {
    let overrides = Overrides {
        mode,
        ..Overrides::default()
    };
    let absent = |_: &Path| Err(io::ErrorKind::NotFound.into());
    let loaded = load(&overrides, &|_| None, &absent, "localhost")?;
    Ok(loaded.effective.without(key::node_name.spec.name))
}

/// The directory of drop-in files (`*.yaml`), next to the configuration file. They are merged over
/// it in the order of their names. `None` for standard input (`-`).
pub fn drop_in_directory(
    overrides: &Overrides,
    env: &dyn Fn(&str) -> Option<String>,
) -> Option<PathBuf> {
    let (path, _) = file(overrides, env);
    (path != Path::new("-")).then(|| path.with_file_name(DROP_INS))
}

/// The files, highest precedence first.
fn sources(
    overrides: &Overrides,
    env: &dyn Fn(&str) -> Option<String>,
) -> impl Iterator<Item = (PathBuf, bool, Format)> {
    let drop_ins = overrides.drop_ins.iter().rev();
    let drop_ins = drop_ins.map(|path| (path.clone(), true));
    let files = drop_ins.chain([file(overrides, env)]);
    let kubelet = named(
        overrides.kubelet_config.as_ref(),
        "NODEPULSE_KUBELET_CONFIG",
        env,
    );
    let kubelet = kubelet.map(|path| (path, true, Format::Kubelet));
    files
        .map(|(path, is_required)| (path, is_required, Format::Nodepulse))
        .chain(kubelet)
}

/// The configured file, which must exist, or the default one.
pub fn file(overrides: &Overrides, env: &dyn Fn(&str) -> Option<String>) -> (PathBuf, bool) {
    match named(overrides.config.as_ref(), "NODEPULSE_CONFIG", env) {
        Some(path) => (path, true),
        None => (FILE.into(), false),
    }
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
    is_required: bool,
    format: Format,
    read_file: &dyn Fn(&Path) -> io::Result<String>,
) -> Result<Option<String>, ConfigError> {
    match read_file(path) {
        Ok(text) => Ok(Some(text)),
        Err(err) if err.kind() == io::ErrorKind::NotFound && !is_required => Ok(None),
        Err(source) => Err(ConfigError::Read {
            path: path.to_owned(),
            flag: match format {
                Format::Nodepulse => "--config",
                Format::Kubelet => "--kubelet-config",
            },
            source,
        }),
    }
}

#[cfg(test)]
mod tests;
