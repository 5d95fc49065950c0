//! The configuration, as every command takes it: flags, environment, files.

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgAction, Args};
use nix::unistd::gethostname;
use tokio::runtime::{Builder, Runtime};

use crate::api::{Client, credentials};
use crate::config::{self, Config, LoadedConfig, Mode, Overrides};
use crate::escape::escape;
use crate::file::{self, FileError};
use crate::host::{HostRoot, machine};
use crate::node_status::capacity;
use crate::os::file_watch::WatchedFiles;

/// In a pod with a service account this variable names the API server.
const IN_CLUSTER: &str = "KUBERNETES_SERVICE_HOST";

/// Bytes of all files of the configuration together.
const ALL_FILES: u64 = 4 * file::LIMIT;

/// Files that [`config::directory`] may hold.
const PARTS: usize = 256;

/// What the names of files in [`config::directory`] end in.
const PART: &str = "yaml";

/// Each is the configuration key of its name; the file has them all.
#[derive(Debug, Args)]
pub struct Settings {
    /// Configuration file [default: /etc/nodepulse/config.yaml, if it is there].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A kubelet's configuration, for the keys that mean the same here.
    #[arg(long, value_name = "FILE")]
    kubelet_config: Option<PathBuf>,
    /// What to write: `node` is the whole Node, its status and its Lease.
    #[arg(long, value_name = "companion|node")]
    mode: Option<String>,
    /// How to reach the API server; without it and outside a cluster nothing is sent.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<String>,
    /// Name of the Node [default: `NODE_NAME`, else the host name].
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
    /// This node's addresses: one, or one of each family.
    #[arg(long, value_name = "IP[,IP]")]
    node_ip: Option<String>,
    /// Labels of a new Node.
    #[arg(long, value_name = "KEY=VALUE,…")]
    node_labels: Option<String>,
    /// Taints of a new Node.
    #[arg(long, value_name = "KEY=VALUE:EFFECT,…")]
    register_with_taints: Option<String>,
    /// Thresholds that begin a condition.
    #[arg(long, value_name = "SIGNAL<VALUE,…")]
    eviction_hard: Option<String>,
    /// Thresholds that begin a condition and reserve nothing; each needs a grace period.
    #[arg(long, value_name = "SIGNAL<VALUE,…")]
    eviction_soft: Option<String>,
    /// For how long a kubelet would not evict; delays no condition.
    #[arg(long, value_name = "SIGNAL=DURATION,…")]
    eviction_soft_grace_period: Option<String>,
    /// How far above its threshold a signal must come.
    #[arg(long, value_name = "SIGNAL=VALUE,…")]
    eviction_minimum_reclaim: Option<String>,
    /// How long a condition stays after its signal is well again.
    #[arg(long, value_name = "DURATION")]
    eviction_pressure_transition_period: Option<String>,
    /// Whether the Node is created where it is missing.
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    register_node: Option<String>,
    /// `spec.providerID` of a new Node.
    #[arg(long, value_name = "ID")]
    provider_id: Option<String>,
    /// Whether volumes are attached by the controller.
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    enable_controller_attach_detach: Option<String>,
    /// How often the status is computed.
    #[arg(long, value_name = "DURATION")]
    node_status_update_frequency: Option<String>,
    /// Capacity `pods`.
    #[arg(long, value_name = "NUMBER")]
    max_pods: Option<String>,
    /// A second limit on capacity `pods`; 0 is none.
    #[arg(long, value_name = "NUMBER")]
    pods_per_core: Option<String>,
    /// Taken off allocatable.
    #[arg(long, value_name = "NAME=QUANTITY,…")]
    system_reserved: Option<String>,
    /// Taken off allocatable as well.
    #[arg(long, value_name = "NAME=QUANTITY,…")]
    kube_reserved: Option<String>,
    /// CPUs that are not for pods.
    #[arg(long, alias = "reserved-cpus", value_name = "CPUS")]
    reserved_system_cpus: Option<String>,
    /// Start although a kubelet seems to look after this node.
    #[arg(long, action = ArgAction::SetTrue)]
    take_over: bool,
    /// Ready is True although no container runtime is configured.
    #[arg(long, action = ArgAction::SetTrue)]
    allow_ready_without_runtime: bool,
    /// The cgroup under which the pods cgroup is.
    #[arg(long, value_name = "PATH")]
    cgroup_root: Option<String>,
    /// How the pods cgroup is called [default: as it is found].
    #[arg(long, value_name = "cgroupfs|systemd")]
    cgroup_driver: Option<String>,
    /// With `pods`, thresholds hold for the pods cgroup too.
    #[arg(long, value_name = "NAME,…")]
    enforce_node_allocatable: Option<String>,
    /// Its file system is nodefs.
    #[arg(long, value_name = "DIR")]
    root_directory: Option<String>,
    /// Where kernel facts come from.
    #[arg(long, value_name = "auto|btf|kmsg|files")]
    kernel_tier: Option<String>,
    /// Where metrics and health are served [default: 127.0.0.1:20260].
    #[arg(long, value_name = "ADDRESS:PORT|off")]
    serve_address: Option<String>,
    /// Whether rights are given up after the start.
    #[arg(long, value_name = "auto|off|require")]
    sandbox: Option<String>,
    /// What is remembered from one start to the next.
    #[arg(long, value_name = "DIR")]
    state_directory: Option<String>,
    /// How much is logged.
    #[arg(long, value_name = "error|warn|info|debug")]
    log_level: Option<String>,
    /// How a log line looks.
    #[arg(long, value_name = "text|json")]
    log_format: Option<String>,
}

impl Settings {
    /// What the command line says.
    #[must_use]
    pub fn overrides(self) -> Overrides {
        let switch = |on: bool| on.then(|| "true".to_owned());
        Overrides {
            config: self.config,
            kubelet_config: self.kubelet_config,
            mode: self.mode,
            kubeconfig: self.kubeconfig,
            node_name: self.node_name,
            node_ip: self.node_ip,
            node_labels: self.node_labels,
            register_with_taints: self.register_with_taints,
            eviction_hard: self.eviction_hard,
            eviction_pressure_transition_period: self.eviction_pressure_transition_period,
            eviction_soft: self.eviction_soft,
            eviction_soft_grace_period: self.eviction_soft_grace_period,
            eviction_minimum_reclaim: self.eviction_minimum_reclaim,
            register_node: self.register_node,
            provider_id: self.provider_id,
            enable_controller_attach_detach: self.enable_controller_attach_detach,
            node_status_update_frequency: self.node_status_update_frequency,
            max_pods: self.max_pods,
            pods_per_core: self.pods_per_core,
            system_reserved: self.system_reserved,
            kube_reserved: self.kube_reserved,
            reserved_system_cpus: self.reserved_system_cpus,
            cgroup_driver: self.cgroup_driver,
            enforce_node_allocatable: self.enforce_node_allocatable,
            allow_ready_without_runtime: switch(self.allow_ready_without_runtime),
            take_over: switch(self.take_over),
            cgroup_root: self.cgroup_root,
            root_directory: self.root_directory,
            kernel_tier: self.kernel_tier,
            serve_address: self.serve_address,
            sandbox: self.sandbox,
            state_directory: self.state_directory,
            log_level: self.log_level,
            log_format: self.log_format,
            ..Overrides::default()
        }
    }
}

/// All layers, put together and checked. `Err` is the one line that says what is wrong.
pub(super) fn configuration(overrides: &Overrides) -> Result<LoadedConfig, String> {
    let hostname = gethostname().map_err(|err| format!("no host name: {err}; set --node-name"))?;
    let hostname = hostname.to_string_lossy();
    let parts = match config::directory(overrides, &variable) {
        Some(directory) => parts(&directory).map_err(|err| {
            let directory = escape(directory.as_os_str().as_encoded_bytes());
            format!("cannot list {directory} ({err}); make it readable, or remove it")
        })?,
        None => Vec::new(),
    };
    let overrides = Overrides {
        parts,
        ..overrides.clone()
    };
    let left = Cell::new(ALL_FILES);
    let read = |path: &Path| read(path, &left);
    config::load(&overrides, &variable, &read, &hostname).map_err(|err| err.to_string())
}

/// What a command needs that does something and ends; `Err` as [`configuration`] has it.
pub(super) fn for_once(settings: Settings) -> Result<(Config, Runtime), String> {
    let config = configuration(&settings.overrides())?.config;
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|err| format!("no runtime: {err}"))?;
    Ok((config, runtime))
}

/// Why this machine cannot hand out what the configuration leaves of it.
pub(super) fn overdrawn(config: &Config) -> Option<String> {
    // A machine that cannot be read is told of later, with what is missing.
    let machine = machine::read(&HostRoot::new(&config.host_root)).ok();
    let machine = machine.filter(|_| config.mode == Mode::Node)?;
    let (key, reserved, there) = capacity::overdrawn(&config.allocation, &machine)?;
    Some(format!(
        "systemReserved, kubeReserved and evictionHard: {reserved} of {key}, and this machine has \
         {there}; example: systemReserved: {{cpu: 100m, memory: 1Gi}}"
    ))
}

/// The files of [`configuration`], which may change; `None` for standard input.
pub(super) fn files(overrides: &Overrides) -> Option<WatchedFiles> {
    Some(WatchedFiles {
        file: config::file(overrides, &variable),
        drop_ins: config::directory(overrides, &variable)?,
        extension: PART,
    })
}

/// The API server, where there is one; each request gets `deadline`. Opens no connection.
pub(super) async fn client(config: &Config, deadline: Duration) -> Result<Option<Client>, String> {
    let source = match &config.kubeconfig {
        Some(path) => credentials::Source::Kubeconfig(path),
        None if variable(IN_CLUSTER).is_some() => credentials::Source::InCluster,
        None => return Ok(None),
    };
    let client = Client::from_credentials(source, deadline).await;
    client.map(Some).map_err(|err| err.to_string())
}

/// `-` is standard input. `left`: how many bytes there may be from here on.
fn read(path: &Path, left: &Cell<u64>) -> io::Result<String> {
    let text = if path == Path::new("-") {
        let mut bytes = Vec::new();
        file::up_to(io::stdin(), file::LIMIT, &mut bytes)?;
        String::from_utf8(bytes).map_err(|_| FileError::NotText)?
    } else {
        file::text(path).map_err(|err| match err {
            // As a shell hands over what another command prints.
            FileError::NotRegular("FIFO") => io::Error::other(format!(
                "{err}; what another command prints is read from standard input: --config -"
            )),
            err => err.into(),
        })?
    };
    let rest = u64::try_from(text.len()).map_or(None, |len| left.get().checked_sub(len));
    left.set(rest.ok_or_else(|| {
        io::Error::other(format!(
            "with the files before it, it is more than {ALL_FILES} bytes, the limit for all together"
        ))
    })?);
    Ok(text)
}

/// `*.yaml` in a directory that may be missing, by name. Names that begin with a dot are not for us:
/// editors and `ConfigMap`s put theirs there.
fn parts(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(err) => return Err(err),
    };
    let mut parts = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let hidden = path
            .file_name()
            .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.extension().is_some_and(|end| end == PART) {
            if parts.len() == PARTS {
                return Err(io::Error::other(format!(
                    "it holds more than {PARTS} files"
                )));
            }
            parts.push(path);
        }
    }
    parts.sort();
    Ok(parts)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the environment is handed on as a whole here"
)]
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
