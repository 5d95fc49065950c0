//! From the layers to the checked value, key by key.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::error::ConfigError;
use super::layers::{Layers, Overrides, Setting};
use super::raw::{RawConfig, RawDisk, RawDiskIo, RawTaint};
use super::{Config, DiskIo, LogFormat, LogLevel, Mode, ProbeFor, Psi, Runtime, Sandbox, Tier};
use super::{checks, defaults, eviction, labels};
use crate::node_status::{Allocation, Taint};
use crate::pressure::threshold::{Strength, Threshold, ThresholdValue, with_allocatable};
use crate::pressure::{Policy, SlowDisks};
use crate::reading::Signal;
use crate::units::quantity::Quantity;

/// The checked value of a key whose fields are called alike everywhere, if any layer has it.
macro_rules! get {
    ($self:ident, $key:expr, $field:ident, $check:expr) => {
        $self.checked(
            $key,
            $self.flags.$field.as_ref(),
            $self.raw.$field.as_ref(),
            $check,
        )?
    };
}

/// All layers of one load.
pub(super) struct Loader<'a> {
    pub(super) layers: Layers<'a>,
    pub(super) flags: &'a Overrides,
    pub(super) raw: &'a RawConfig,
}

impl Loader<'_> {
    /// Every key, checked.
    pub(super) fn config(&self, hostname: &str) -> Result<Config, ConfigError> {
        let raw = self.raw;
        let modes = [("companion", Mode::Companion), ("node", Mode::Node)];
        let mode = get!(self, "mode", mode, checks::choice(&modes));
        let mode = mode.unwrap_or(defaults::MODE);
        let thresholds = eviction::thresholds(&self.layers, self.flags, raw, mode)?;
        let (update, report) = self.frequencies()?;
        let disk_io = raw.disk_io.clone().unwrap_or_default();
        let log = raw.log.clone().unwrap_or_default();
        Ok(Config {
            mode,
            node_name: self.node_name(hostname)?,
            kubeconfig: get!(self, "kubeconfig", kubeconfig, checks::path),
            host_root: get!(self, "hostRoot", host_root, checks::absolute)
                .unwrap_or_else(|| defaults::HOST_ROOT.into()),
            root_directory: get!(self, "rootDirectory", root_directory, checks::absolute)
                .unwrap_or_else(|| defaults::ROOT_DIRECTORY.into()),
            state_directory: get!(self, "stateDirectory", state_directory, checks::absolute)
                .unwrap_or_else(|| defaults::STATE_DIRECTORY.into()),
            pods_cgroup: self.pods_cgroup()?,
            allocation: self.allocation(&thresholds)?,
            policy: self.policy(thresholds, &disk_io)?,
            status_update_frequency: update,
            status_report_frequency: report,
            lease_duration: self.lease_duration()?,
            // Two agents on one Node undo each other's work.
            take_over: get!(self, "takeOver", take_over, checks::boolean).unwrap_or(false),
            register_node: get!(self, "registerNode", register_node, checks::boolean)
                .unwrap_or(true), // The kubelet's `registerNode`.
            taints: self.taints()?,
            node_labels: self.node_labels()?,
            node_ips: get!(self, "nodeIP", node_ip, checks::node_ips).unwrap_or_default(),
            provider_id: get!(self, "providerID", provider_id, checks::any)
                .filter(|id| !id.is_empty()),
            disk_io: self.disk_io(&disk_io)?,
            psi: self.psi()?,
            kubelet_version: self.kubelet_version()?,
            runtime: self.runtime()?,
            tier: self.tier()?,
            probes: self.probes()?,
            serve: self.serve()?,
            sandbox: self.sandbox()?,
            log_level: self.log_level(log.level.as_ref())?,
            log_format: self.log_format(log.format.as_ref())?,
        })
    }

    /// One key's value, if any layer has it.
    fn checked<T>(
        &self,
        key: &str,
        flag: Option<&String>,
        file: Option<&String>,
        check: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ConfigError> {
        let setting = self.layers.setting(key, flag, file);
        setting.map(|setting| setting.parsed(check)).transpose()
    }

    /// `--node-name`, `NODEPULSE_NODE_NAME`, `NODE_NAME`, `nodeName`, host name.
    fn node_name(&self, hostname: &str) -> Result<String, ConfigError> {
        const KEY: &str = "nodeName";
        let above_file = self
            .layers
            .setting(KEY, self.flags.node_name.as_ref(), None);
        let setting = above_file
            .or_else(|| self.layers.variable(KEY, "NODE_NAME"))
            .or_else(|| self.layers.setting(KEY, None, self.raw.node_name.as_ref()))
            .unwrap_or_else(|| Setting::of_host(KEY, hostname));
        setting.parsed(|text| {
            let name = text.trim().to_lowercase();
            labels::check_node_name(&name)?;
            Ok(name)
        })
    }

    fn pods_cgroup(&self) -> Result<PathBuf, ConfigError> {
        // The kubelet's names. Its default driver, where no container runtime says otherwise, is
        // cgroupfs.
        let names = [("cgroupfs", "kubepods"), ("systemd", "kubepods.slice")];
        let check = checks::choice(&names);
        let name = get!(self, "cgroupDriver", cgroup_driver, check).unwrap_or("kubepods");
        let root = get!(self, "cgroupRoot", cgroup_root, checks::absolute);
        let root = root.unwrap_or_else(|| defaults::CGROUP_ROOT.into());
        Ok(root.join(name))
    }

    fn policy(
        &self,
        thresholds: Vec<Threshold>,
        disk_io: &RawDiskIo,
    ) -> Result<Policy, ConfigError> {
        let period = get!(
            self,
            "evictionPressureTransitionPeriod",
            eviction_pressure_transition_period,
            checks::period
        );
        let file = disk_io.raises_disk_pressure.as_ref();
        let raises = self.checked("diskIO.raisesDiskPressure", None, file, checks::boolean)?;
        Ok(Policy {
            thresholds: if self.pods_are_enforced()? {
                with_allocatable(thresholds)
            } else {
                thresholds
            },
            transition_period: period.flatten().unwrap_or(defaults::TRANSITION_PERIOD),
            // Off: DiskPressure stays what a kubelet means by it, unless somebody asks.
            slow_disks: if raises.unwrap_or(false) {
                SlowDisks::RaiseDiskPressure
            } else {
                SlowDisks::OwnConditionOnly
            },
        })
    }

    /// Whether `enforceNodeAllocatable` names `pods`. The other names are for cgroups that we never
    /// write, and are accepted.
    fn pods_are_enforced(&self) -> Result<bool, ConfigError> {
        let known = [
            ("none", false),
            ("pods", true),
            ("system-reserved", false),
            ("system-reserved-compressible", false),
            ("kube-reserved", false),
            ("kube-reserved-compressible", false),
        ];
        let (flag, file) = (
            &self.flags.enforce_node_allocatable,
            &self.raw.enforce_node_allocatable,
        );
        let settings = self
            .layers
            .list("enforceNodeAllocatable", flag.as_ref(), file.clone());
        let Some(settings) = settings else {
            return Ok(true); // The kubelet's default: `[pods]`.
        };
        let mut enforced = false;
        for setting in settings {
            enforced |= setting.parsed(checks::choice(&known))?;
        }
        Ok(enforced)
    }

    /// How often the status is computed, and sent. One that is set explicitly alone is both: a quirk
    /// of the kubelet that people rely on.
    fn frequencies(&self) -> Result<(Duration, Duration), ConfigError> {
        let update = get!(
            self,
            "nodeStatusUpdateFrequency",
            node_status_update_frequency,
            checks::period
        );
        let report = get!(
            self,
            "nodeStatusReportFrequency",
            node_status_report_frequency,
            checks::period
        );
        let (update, report) = (update.flatten(), report.flatten());
        Ok((
            update.unwrap_or(defaults::UPDATE_FREQUENCY),
            report.or(update).unwrap_or(defaults::REPORT_FREQUENCY),
        ))
    }

    fn lease_duration(&self) -> Result<Duration, ConfigError> {
        let seconds = get!(
            self,
            "nodeLeaseDurationSeconds",
            node_lease_duration_seconds,
            checks::count
        );
        let seconds = seconds.flatten().unwrap_or(defaults::LEASE_SECONDS);
        Ok(Duration::from_secs(seconds.into()))
    }

    fn taints(&self) -> Result<Vec<Taint>, ConfigError> {
        let text = |taint: &RawTaint| match &taint.value {
            Some(value) => format!("{}={value}:{}", taint.key, taint.effect),
            None => format!("{}:{}", taint.key, taint.effect),
        };
        let file = self.raw.register_with_taints.as_ref();
        let file = file.map(|taints| taints.iter().map(text).collect());
        let flag = self.flags.register_with_taints.as_ref();
        let settings = self.layers.list("registerWithTaints", flag, file);
        labels::taints(settings.unwrap_or_default())
    }

    fn node_labels(&self) -> Result<BTreeMap<String, String>, ConfigError> {
        let (flag, file) = (
            self.flags.node_labels.as_ref(),
            self.raw.node_labels.as_ref(),
        );
        let settings = self.layers.map("nodeLabels", '=', flag, file)?;
        labels::node_labels(settings.unwrap_or_default())
    }

    fn allocation(&self, thresholds: &[Threshold]) -> Result<Allocation, ConfigError> {
        let max_pods = get!(self, "maxPods", max_pods, checks::count);
        let per_core = get!(self, "podsPerCore", pods_per_core, checks::count);
        let mut reserved = BTreeMap::new();
        let (flags, raw) = (self.flags, self.raw);
        let system = (flags.system_reserved.as_ref(), raw.system_reserved.as_ref());
        let kube = (flags.kube_reserved.as_ref(), raw.kube_reserved.as_ref());
        for (key, (flag, file)) in [("systemReserved", system), ("kubeReserved", kube)] {
            let settings = self.layers.map(key, '=', flag, file)?;
            add_reservations(&mut reserved, settings.unwrap_or_default())?;
        }
        Ok(Allocation {
            max_pods: max_pods.flatten().unwrap_or(defaults::MAX_PODS),
            pods_per_core: per_core.flatten().unwrap_or(0), // The kubelet's: no such limit.
            reserved,
            memory_threshold: hard_value(thresholds, Signal::MemoryAvailable),
            nodefs_threshold: hard_value(thresholds, Signal::NodefsAvailable),
        })
    }

    fn disk_io(&self, raw: &RawDiskIo) -> Result<DiskIo, ConfigError> {
        let slow =
            |key: &str, file: Option<&String>| self.checked(key, None, file, checks::positive);
        let file = |disk: &'_ Option<RawDisk>| disk.as_ref().and_then(|disk| disk.slow.clone());
        let mut devices = BTreeMap::new();
        for (name, disk) in raw.devices.iter().flatten() {
            let key = format!("diskIO.devices.{name}.slow");
            let text = disk.slow.as_deref().unwrap_or_default();
            let setting = self.layers.in_file(&key, text);
            let slow = setting.parsed(|text| {
                checks::device(name)?;
                checks::positive(text)
            })?;
            devices.insert(name.clone(), slow);
        }
        let solid_state = slow("diskIO.solidState.slow", file(&raw.solid_state).as_ref())?;
        let rotational = slow("diskIO.rotational.slow", file(&raw.rotational).as_ref())?;
        let window = slow("diskIO.window", raw.window.as_ref())?;
        Ok(DiskIo {
            solid_state_slow: solid_state.unwrap_or(defaults::SOLID_STATE_SLOW),
            rotational_slow: rotational.unwrap_or(defaults::ROTATIONAL_SLOW),
            devices,
            window: window.unwrap_or(defaults::DISK_WINDOW),
        })
    }

    fn psi(&self) -> Result<Psi, ConfigError> {
        let raw = self.raw.psi.clone().unwrap_or_default();
        let enabled = self.checked("psi.enabled", None, raw.enabled.as_ref(), checks::boolean)?;
        let file = raw.threshold.as_ref();
        let threshold = self.checked("psi.threshold", None, file, checks::percent)?;
        Ok(Psi {
            enabled: enabled.unwrap_or(true), // A trigger that does not fire costs nothing.
            threshold: threshold.unwrap_or(defaults::STALL_THRESHOLD),
        })
    }

    /// Only `none` is a true answer for the endpoint: this agent talks to no container runtime.
    fn runtime(&self) -> Result<Runtime, ConfigError> {
        let raw = self.raw.runtime.clone().unwrap_or_default();
        let known = [("none", ())];
        let check = checks::choice(&known);
        let flag = self.flags.runtime_endpoint.as_ref();
        self.checked("runtime.endpoint", flag, raw.endpoint.as_ref(), check)?;
        let key = "allowReadyWithoutRuntime";
        let allowed = get!(self, key, allow_ready_without_runtime, checks::boolean);
        Ok(match allowed {
            Some(true) => Runtime::NotNeeded,
            Some(false) | None => Runtime::Missing,
        })
    }

    fn kubelet_version(&self) -> Result<String, ConfigError> {
        let level = get!(
            self,
            "kubernetesVersion",
            kubernetes_version,
            checks::version
        );
        let level = level.unwrap_or_else(|| defaults::KUBERNETES_VERSION.to_owned());
        Ok(format!("{level}+nodepulse.{}", env!("CARGO_PKG_VERSION")))
    }

    fn tier(&self) -> Result<Tier, ConfigError> {
        let raw = self.raw.kernel.clone().unwrap_or_default();
        let known = [
            ("auto", Tier::Auto),
            ("btf", Tier::Btf),
            ("kmsg", Tier::Kmsg),
            ("files", Tier::Files),
        ];
        let check = checks::choice(&known);
        let flag = self.flags.kernel_tier.as_ref();
        let tier = self.checked("kernel.tier", flag, raw.tier.as_ref(), check)?;
        Ok(tier.unwrap_or(Tier::Auto)) // The best of this kernel, with a warning for what is missing.
    }

    fn probes(&self) -> Result<BTreeSet<ProbeFor>, ConfigError> {
        let known = [
            ("oom", ProbeFor::Oom),
            ("scope", ProbeFor::Scope),
            ("pids", ProbeFor::Pids),
            ("disks", ProbeFor::Disks),
        ];
        let file = self.raw.kernel.clone().unwrap_or_default().probes;
        let settings = self.layers.list("kernel.probes", None, file);
        let Some(settings) = settings else {
            return Ok(known.map(|(_, probe)| probe).into()); // As good as this kernel allows.
        };
        let probes = settings.into_iter();
        probes
            .map(|one| one.parsed(checks::nearest_of(&known)))
            .collect()
    }

    fn serve(&self) -> Result<Option<SocketAddr>, ConfigError> {
        let raw = self.raw.serve.clone().unwrap_or_default();
        let flag = self.flags.serve_address.as_ref();
        let address = self.checked("serve.address", flag, raw.address.as_ref(), checks::listen)?;
        Ok(address.unwrap_or(Some(defaults::SERVE)))
    }

    fn sandbox(&self) -> Result<Sandbox, ConfigError> {
        let known = [
            ("auto", Sandbox::Auto),
            ("off", Sandbox::Off),
            ("require", Sandbox::Require),
        ];
        let sandbox = get!(self, "sandbox", sandbox, checks::choice(&known));
        Ok(sandbox.unwrap_or(Sandbox::Auto)) // All that this kernel can, with a warning for the rest.
    }

    fn log_level(&self, file: Option<&String>) -> Result<LogLevel, ConfigError> {
        let known = [
            ("error", LogLevel::Error),
            ("warn", LogLevel::Warn),
            ("info", LogLevel::Info),
            ("debug", LogLevel::Debug),
            ("trace", LogLevel::Trace),
        ];
        let check = checks::choice(&known);
        let flag = self.flags.log_level.as_ref();
        let level = self.checked("log.level", flag, file, check)?;
        Ok(level.unwrap_or(LogLevel::Info)) // A few lines an hour on a calm node.
    }

    fn log_format(&self, file: Option<&String>) -> Result<LogFormat, ConfigError> {
        let known = [("text", LogFormat::Text), ("json", LogFormat::Json)];
        let check = checks::choice(&known);
        let flag = self.flags.log_format.as_ref();
        let format = self.checked("log.format", flag, file, check)?;
        Ok(format.unwrap_or(LogFormat::Text)) // What `kubectl logs` shows to a person.
    }
}

/// Adds the reservations of one map to the sum.
fn add_reservations(
    sum: &mut BTreeMap<String, Quantity>,
    settings: Vec<(String, Setting)>,
) -> Result<(), ConfigError> {
    const KNOWN: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];

    for (resource, setting) in settings {
        if !KNOWN.contains(&resource.as_str()) {
            let why = format!("is for {resource:?}, which is none of {}", KNOWN.join(", "));
            return Err(setting.refused(why));
        }
        let quantity = setting.parsed(checks::reservation)?;
        let entry = sum.entry(resource).or_default();
        *entry = entry.saturating_add(quantity);
    }
    Ok(())
}

/// The hard threshold of a signal. There is at most one.
fn hard_value(thresholds: &[Threshold], signal: Signal) -> Option<ThresholdValue> {
    thresholds
        .iter()
        .find(|t| t.signal == signal && t.strength == Strength::Hard)
        .map(|t| t.value)
}
