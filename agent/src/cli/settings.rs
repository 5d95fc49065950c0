//! The configuration of every command: flags, environment, files.

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{ArgAction, Args};
use nix::unistd::gethostname;
use tokio::runtime::{Builder, Runtime};

use crate::api::{Client, credentials};
use crate::config::{self, Config, LoadedConfig, Mode, Overrides, choices};
use crate::escape::escape;
use crate::file::{self, FileError};
use crate::host::{HostRoot, machine};
use crate::node_status::capacity;
use crate::os::file_watch::WatchedFiles;

/// Set in a pod with a service account: the address of the API server.
const IN_CLUSTER: &str = "KUBERNETES_SERVICE_HOST";

/// Limit on the total size of the configuration files.
const ALL_FILES: u64 = 4 * file::LIMIT;

/// Limit on the number of drop-in files.
const MAX_DROP_INS: usize = 256;

/// Extension of drop-in files.
const EXTENSION: &str = "yaml";

/// Flags for configuration keys. Each has the name of its key; the file has all keys.
#[derive(Debug, Args)]
pub struct Settings {
    /// Configuration file [default: /etc/nodepulse/config.yaml, if it exists].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Kubelet configuration file; its keys apply unless nodepulse's configuration sets them.
    #[arg(long, value_name = "FILE")]
    kubelet_config: Option<PathBuf>,
    /// Write conditions alongside a kubelet, or manage the whole Node.
    #[arg(long, value_name = "MODE", value_parser = one_of(&choices::MODE))]
    mode: Option<String>,
    /// Kubeconfig for the API server; without it nothing is sent, except in a pod.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<String>,
    /// Name of the Node [default: `NODE_NAME`, else the host name].
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
    /// Addresses of the node: one, or one of each family.
    #[arg(long, value_name = "IP[,IP]")]
    node_ip: Option<String>,
    /// Labels of a new Node.
    #[arg(long, value_name = "KEY=VALUE,…")]
    node_labels: Option<String>,
    /// Taints of a new Node.
    #[arg(long, value_name = "KEY=VALUE:EFFECT,…")]
    register_with_taints: Option<String>,
    /// Hard eviction thresholds: a condition becomes True below them.
    #[arg(long, value_name = "SIGNAL<VALUE,…")]
    eviction_hard: Option<String>,
    /// Soft eviction thresholds, which reserve nothing; each requires a grace period.
    #[arg(long, value_name = "SIGNAL<VALUE,…")]
    eviction_soft: Option<String>,
    /// Grace periods of soft thresholds; they do not delay conditions.
    #[arg(long, value_name = "SIGNAL=DURATION,…")]
    eviction_soft_grace_period: Option<String>,
    /// Amount by which a signal must exceed its threshold again.
    #[arg(long, value_name = "SIGNAL=VALUE,…")]
    eviction_minimum_reclaim: Option<String>,
    /// How long a condition stays True after its threshold is no longer exceeded.
    #[arg(long, value_name = "DURATION")]
    eviction_pressure_transition_period: Option<String>,
    /// Create the Node if it does not exist.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = one_of(&choices::BOOLEAN))]
    register_node: Option<String>,
    /// `spec.providerID` of a new Node.
    #[arg(long, value_name = "ID")]
    provider_id: Option<String>,
    /// Let the controller manager attach and detach volumes.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = one_of(&choices::BOOLEAN))]
    enable_controller_attach_detach: Option<String>,
    /// Interval at which the node status is computed.
    #[arg(long, value_name = "DURATION")]
    node_status_update_frequency: Option<String>,
    /// Maximum number of pods (capacity `pods`).
    #[arg(long, value_name = "NUMBER")]
    max_pods: Option<String>,
    /// Maximum number of pods per core; 0 means no limit.
    #[arg(long, value_name = "NUMBER")]
    pods_per_core: Option<String>,
    /// Resources reserved for the system, subtracted from allocatable.
    #[arg(long, value_name = "NAME=QUANTITY,…")]
    system_reserved: Option<String>,
    /// Resources reserved for Kubernetes, subtracted from allocatable.
    #[arg(long, value_name = "NAME=QUANTITY,…")]
    kube_reserved: Option<String>,
    /// CPUs reserved for the system and Kubernetes.
    #[arg(long, alias = "reserved-cpus", value_name = "CPUS")]
    reserved_system_cpus: Option<String>,
    /// Start although a kubelet appears to manage this node.
    #[arg(long, action = ArgAction::SetTrue)]
    take_over: bool,
    /// Report Ready without a container runtime.
    #[arg(long, action = ArgAction::SetTrue)]
    allow_ready_without_runtime: bool,
    /// Parent of the pods cgroup.
    #[arg(long, value_name = "PATH")]
    cgroup_root: Option<String>,
    /// The kubelet's cgroup driver, which names the pods cgroup [default: detected].
    #[arg(long, value_name = "DRIVER", value_parser = one_of(&choices::CGROUP_DRIVER))]
    cgroup_driver: Option<String>,
    /// With `pods`, thresholds apply to the pods cgroup too.
    #[arg(long, value_name = "NAME,…")]
    enforce_node_allocatable: Option<String>,
    /// The kubelet's root directory, on nodefs.
    #[arg(long, value_name = "DIR")]
    root_directory: Option<String>,
    /// Source of kernel data: eBPF, kernel log or files.
    #[arg(long, value_name = "TIER", value_parser = one_of(&choices::TIER))]
    kernel_tier: Option<String>,
    /// Address of the metrics and health endpoints [default: 127.0.0.1:20260].
    #[arg(long, value_name = "ADDRESS:PORT|off")]
    serve_address: Option<String>,
    /// Drop privileges after start-up.
    #[arg(long, value_name = "SANDBOX", value_parser = one_of(&choices::SANDBOX))]
    sandbox: Option<String>,
    /// Directory of the state file and the control socket.
    #[arg(long, value_name = "DIR")]
    state_directory: Option<String>,
    /// Log level.
    #[arg(long, value_name = "LEVEL", value_parser = one_of(&choices::LOG_LEVEL))]
    log_level: Option<String>,
    /// Log format.
    #[arg(long, value_name = "FORMAT", value_parser = one_of(&choices::LOG_FORMAT))]
    log_format: Option<String>,
}

impl Settings {
    /// The values of the flags.
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

/// Merges all layers and checks the result. `Err` is a message of one line.
pub(super) fn configuration(overrides: &Overrides) -> Result<LoadedConfig, String> {
    let hostname = gethostname()
        .map_err(|err| format!("cannot read the host name: {err}; set --node-name"))?;
    let hostname = hostname.to_string_lossy();
    let drop_ins = match config::drop_in_directory(overrides, &variable) {
        Some(directory) => drop_ins(&directory).map_err(|err| {
            let directory = escape(directory.as_os_str().as_encoded_bytes());
            format!("cannot list {directory} ({err}); make it readable, or remove it")
        })?,
        None => Vec::new(),
    };
    let overrides = Overrides {
        drop_ins,
        ..overrides.clone()
    };
    let left = Cell::new(ALL_FILES);
    let read = |path: &Path| read(path, &left);
    config::load(&overrides, &variable, &read, &hostname).map_err(|err| err.to_string())
}

/// The configuration and a runtime, for a command that is not the daemon.
pub(super) fn configuration_and_runtime(settings: Settings) -> Result<(Config, Runtime), String> {
    let config = configuration(&settings.overrides())?.config;
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|err| format!("cannot start a runtime: {err}"))?;
    Ok((config, runtime))
}

/// Why the reservations exceed the capacity of this machine.
pub(super) fn excessive_reservations(config: &Config) -> Option<String> {
    // If the machine cannot be read, that is reported later.
    let machine = machine::read(&HostRoot::new(&config.host_root)).ok();
    let machine = machine.filter(|_| config.mode == Mode::Node)?;
    let (key, reserved, capacity) = capacity::overdrawn(&config.allocation, &machine)?;
    Some(format!(
        "systemReserved, kubeReserved and evictionHard reserve {reserved} of {key}, but this machine \
         has {capacity}; example: systemReserved: {{cpu: 100m, memory: 1Gi}}"
    ))
}

/// The configuration files to watch; `None` for standard input.
pub(super) fn files(overrides: &Overrides) -> Option<WatchedFiles> {
    Some(WatchedFiles {
        file: config::file(overrides, &variable),
        drop_ins: config::drop_in_directory(overrides, &variable)?,
        extension: EXTENSION,
    })
}

/// A client of the API server, if one is configured. `deadline` applies to each request. Opens no
/// connection.
pub(super) async fn client(config: &Config, deadline: Duration) -> Result<Option<Client>, String> {
    let source = match &config.kubeconfig {
        Some(path) => credentials::CredentialSource::Kubeconfig(path),
        None if variable(IN_CLUSTER).is_some() => credentials::CredentialSource::InCluster,
        None => return Ok(None),
    };
    let client = Client::from_credentials(source, deadline).await;
    client.map(Some).map_err(|err| err.to_string())
}

/// Reads a file, or standard input for `-`. `left` is the remaining size limit.
fn read(path: &Path, left: &Cell<u64>) -> io::Result<String> {
    let text = if path == Path::new("-") {
        let mut bytes = Vec::new();
        file::up_to(io::stdin(), file::LIMIT, &mut bytes)?;
        String::from_utf8(bytes).map_err(|_| FileError::NotText)?
    } else {
        file::text(path).map_err(|err| match err {
            // Process substitution of a shell.
            FileError::NotRegular("FIFO") => io::Error::other(format!(
                "{err}; to read the output of another command, use standard input: --config -"
            )),
            err => err.into(),
        })?
    };
    let rest = u64::try_from(text.len()).map_or(None, |len| left.get().checked_sub(len));
    left.set(rest.ok_or_else(|| {
        io::Error::other(format!(
            "the configuration files together exceed {ALL_FILES} bytes"
        ))
    })?);
    Ok(text)
}

/// `*.yaml` in a directory that may be missing, sorted by name. Names with a leading dot are
/// skipped, because editors and `ConfigMap`s use them.
fn drop_ins(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(err) => return Err(err),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let hidden = path
            .file_name()
            .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.extension().is_some_and(|end| end == EXTENSION) {
            if found.len() == MAX_DROP_INS {
                return Err(io::Error::other(format!(
                    "it contains more than {MAX_DROP_INS} files"
                )));
            }
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the only access to the environment"
)]
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A parser for a key with a closed set of values, for help, errors and completion.
pub(super) fn one_of<T>(table: &[(&'static str, T)]) -> PossibleValuesParser {
    PossibleValuesParser::new(table.iter().map(|(name, _)| *name))
}
