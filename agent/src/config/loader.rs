//! Merges and checks the layers, key by key.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use super::effective::{Effective, Shown};
use super::error::ConfigError;
use super::keys::{Keys, key};
use super::layers::Setting;
use super::raw::RawTaint;
use super::{
    Config, DiskIo, LogFormat, LogLevel, Mode, ProbeGroup, PsiConfig, RuntimePolicy, Sandbox, Tier,
};
use super::{allocation, checks, choices, companion, defaults, eviction, labels};
use crate::node_status::{AttachDetach, Taint};
use crate::pressure::threshold::{Threshold, with_allocatable};
use crate::pressure::{Policy, SlowDisks};

/// Builds the checked configuration.
pub(super) struct Loader<'a>(pub(super) Keys<'a>);

impl Loader<'_> {
    /// Loads every key: the checked configuration, and the effective values.
    pub(super) fn load(self, hostname: &str) -> Result<(Config, Effective), ConfigError> {
        let config = self.config(hostname)?;
        Ok((config, self.0.into_effective()))
    }

    fn config(&self, hostname: &str) -> Result<Config, ConfigError> {
        let keys = &self.0;
        let mode = key!(keys, "mode", mode);
        let mode = keys.value(&mode, &defaults::MODE, checks::choice(&choices::MODE))?;
        let node_name = self.node_name(hostname)?;
        let kubeconfig = keys.optional(&key!(keys, "kubeconfig", kubeconfig), checks::path)?;
        let (host_root, root_directory, state_directory) = self.directories()?;
        let pods_cgroups = self.pods_cgroups()?;
        let thresholds = eviction::thresholds(keys, mode)?;
        let allocation = allocation::allocation(keys, &thresholds)?;
        let policy = self.policy(thresholds, mode)?;
        let (update, report) = self.frequencies()?;
        let register = key!(keys, "registerNode", register_node);
        let take_over = key!(keys, "takeOver", take_over);
        let provider_id = key!(keys, "providerID", provider_id);
        let node_ips = key!(keys, "nodeIP", node_ip);
        let port = key!(keys, "port", port);
        let (conditions, nodepulse_taints) = companion::conditions_and_taints(keys, mode)?;
        let serve = key!(keys, "serve.address", serve_address, serve.address);
        let per_pod = key!("serve.perPodMetrics", serve.per_pod_metrics);
        Ok(Config {
            mode,
            node_name,
            kubeconfig,
            host_root,
            root_directory,
            state_directory,
            pods_cgroups,
            allocation,
            policy,
            status_update_frequency: update,
            status_report_frequency: report,
            lease_duration: self.lease_duration()?,
            take_over: keys.value(&take_over, &defaults::TAKE_OVER, checks::boolean)?,
            register_node: keys.value(&register, &defaults::REGISTER_NODE, checks::boolean)?,
            taints: self.taints()?,
            conditions,
            nodepulse_taints,
            node_labels: self.node_labels()?,
            attach_detach: self.attach_detach()?,
            node_ips: keys
                .optional(&node_ips, checks::node_ips)?
                .unwrap_or_default(),
            provider_id: keys
                .optional(&provider_id, checks::any)?
                .filter(|id| !id.is_empty()),
            kubelet_port: keys.optional(&port, checks::port)?.flatten(),
            disk_io: self.disk_io()?,
            psi: self.psi()?,
            oom_node_events: self.oom_node_events()?,
            kubelet_version: self.kubelet_version()?,
            runtime: self.runtime()?,
            tier: self.tier()?,
            probes: self.probes()?,
            event_queue: keys.value(
                &key!("events.queue", events.queue),
                &defaults::EVENT_QUEUE,
                checks::queue,
            )?,
            serve: keys.value(&serve, &defaults::SERVE, checks::listen)?,
            per_pod_metrics: keys.value(&per_pod, &defaults::PER_POD_METRICS, checks::per_pod)?,
            sandbox: self.sandbox()?,
            log_level: self.log_level()?,
            log_format: self.log_format()?,
        })
    }

    /// `--node-name`, `NODEPULSE_NODE_NAME`, `NODE_NAME`, `nodeName`, host name.
    fn node_name(&self, hostname: &str) -> Result<String, ConfigError> {
        const KEY: &str = "nodeName";
        let layers = &self.0.layers;
        let above_files = layers.setting(KEY, self.0.flags.node_name.as_ref(), |_| None);
        let setting = above_files
            .or_else(|| layers.variable(KEY, "NODE_NAME"))
            .or_else(|| layers.setting(KEY, None, |raw| raw.node_name.as_ref()))
            .unwrap_or_else(|| Setting::of_host(KEY, hostname));
        let name = setting.parsed(|text| {
            let name = text.trim().to_lowercase();
            labels::check_node_name(&name)?;
            Ok(name)
        })?;
        self.0.insert(KEY, Shown::text(&name, &setting.from));
        Ok(name)
    }

    fn directories(&self) -> Result<(PathBuf, PathBuf, PathBuf), ConfigError> {
        let keys = &self.0;
        let host = key!(keys, "hostRoot", host_root);
        let root = key!(keys, "rootDirectory", root_directory);
        let state = key!(keys, "stateDirectory", state_directory);
        Ok((
            keys.value(&host, &defaults::HOST_ROOT, checks::absolute)?,
            keys.value(&root, &defaults::ROOT_DIRECTORY, checks::absolute)?,
            keys.value(&state, &defaults::STATE_DIRECTORY, checks::absolute)?,
        ))
    }

    fn pods_cgroups(&self) -> Result<Vec<PathBuf>, ConfigError> {
        let names = &choices::CGROUP_DRIVER;
        let keys = &self.0;
        let root = key!(keys, "cgroupRoot", cgroup_root);
        let root = keys.value(&root, &defaults::CGROUP_ROOT, checks::absolute)?;
        let driver = key!(keys, "cgroupDriver", cgroup_driver);
        let chosen = keys.optional(&driver, checks::choice(names))?;
        let wanted = names.iter().map(|(_, name)| *name);
        let wanted = wanted.filter(|name| chosen.is_none_or(|chosen| chosen == *name));
        Ok(wanted.map(|name| root.join(name)).collect())
    }

    fn policy(&self, thresholds: Vec<Threshold>, mode: Mode) -> Result<Policy, ConfigError> {
        let keys = &self.0;
        let period = key!(
            keys,
            "evictionPressureTransitionPeriod",
            eviction_pressure_transition_period
        );
        let period = keys.unless_unset(&period, &defaults::TRANSITION_PERIOD, checks::period)?;
        let raises = key!("diskIO.raisesDiskPressure", disk_io.raises_disk_pressure);
        let raises = keys.value(&raises, &defaults::RAISES_DISK_PRESSURE, |text| {
            match (checks::boolean(text)?, mode) {
                (true, Mode::Companion) => Err("requires mode: node, which writes DiskPressure"),
                (raises, Mode::Companion | Mode::Node) => Ok(raises),
            }
            .map_err(str::to_owned)
        })?;
        Ok(Policy {
            thresholds: if self.pods_are_enforced()? {
                with_allocatable(thresholds)
            } else {
                thresholds
            },
            transition_period: period.unwrap_or_default(),
            slow_disks: if raises {
                SlowDisks::RaiseDiskPressure
            } else {
                SlowDisks::NodepulseConditionOnly
            },
        })
    }

    /// Whether `enforceNodeAllocatable` contains `pods`. The other values are accepted without
    /// effect.
    fn pods_are_enforced(&self) -> Result<bool, ConfigError> {
        let settings = self.0.list(
            "enforceNodeAllocatable",
            self.0.flags.enforce_node_allocatable.as_ref(),
            |raw| raw.enforce_node_allocatable.clone(),
            &[defaults::ENFORCED],
        );
        let mut enforced = false;
        for setting in settings {
            enforced |= setting.parsed(checks::choice(&choices::ENFORCED))?;
        }
        Ok(enforced)
    }

    /// Intervals of computing and of sending the status. If only the first is set, it applies to
    /// both, as in the kubelet.
    fn frequencies(&self) -> Result<(Duration, Duration), ConfigError> {
        let keys = &self.0;
        let update = key!(
            keys,
            "nodeStatusUpdateFrequency",
            node_status_update_frequency
        );
        let report = key!(
            keys,
            "nodeStatusReportFrequency",
            node_status_report_frequency
        );
        let given = |key: &super::keys::Key<'_>| {
            let given = keys.layers.setting(key.name, key.flag, key.file);
            let period = given
                .as_ref()
                .map(|s| s.parsed(checks::period))
                .transpose()?;
            Ok(period.flatten().zip(given))
        };
        let (update_alone, other) = (given(&update)?, given(&report)?);
        let update_alone = update_alone.filter(|_| other.is_none());
        let update = keys.unless_unset(&update, &defaults::UPDATE_FREQUENCY, checks::period)?;
        let report = match update_alone {
            Some((period, setting)) => {
                let from = "nodeStatusUpdateFrequency";
                keys.insert(report.name, Shown::text(&setting.text, from));
                Some(period)
            }
            None => keys.unless_unset(&report, &defaults::REPORT_FREQUENCY, checks::period)?,
        };
        Ok((update.unwrap_or_default(), report.unwrap_or_default()))
    }

    fn lease_duration(&self) -> Result<Duration, ConfigError> {
        let keys = &self.0;
        let seconds = key!(
            keys,
            "nodeLeaseDurationSeconds",
            node_lease_duration_seconds
        );
        let seconds = keys.unless_unset(&seconds, &defaults::LEASE_SECONDS, checks::count)?;
        Ok(Duration::from_secs(seconds.unwrap_or_default().into()))
    }

    fn taints(&self) -> Result<Vec<Taint>, ConfigError> {
        const KEY: &str = "registerWithTaints";

        let flag = self.0.flags.register_with_taints.as_ref();
        let settings = self.0.layers.list(KEY, flag, |raw| {
            let taints = raw.register_with_taints.as_ref()?;
            Some(taints.iter().map(RawTaint::text).collect())
        });
        let settings = settings.unwrap_or_default();
        let from = settings.first().map(|setting| setting.from.clone());
        let taints = labels::taints(settings)?;
        let shown = |taint: &Taint| {
            let field = |name: &str, text: &String| {
                let from = from.clone().unwrap_or_default();
                (name.to_owned(), Shown::text(text, from))
            };
            Shown::Map(vec![
                field("key", &taint.key),
                field("value", &taint.value),
                field("effect", &taint.effect),
            ])
        };
        self.0
            .insert(KEY, Shown::List(taints.iter().map(shown).collect()));
        Ok(taints)
    }

    fn node_labels(&self) -> Result<BTreeMap<String, String>, ConfigError> {
        let flag = self.0.flags.node_labels.as_ref();
        let settings = self
            .0
            .map("nodeLabels", '=', flag, |raw| raw.node_labels.as_ref())?;
        labels::node_labels(settings)
    }

    fn attach_detach(&self) -> Result<AttachDetach, ConfigError> {
        let keys = &self.0;
        let by_controller = key!(
            keys,
            "enableControllerAttachDetach",
            enable_controller_attach_detach
        );
        let by_controller =
            keys.value(&by_controller, &defaults::ATTACH_DETACH, checks::boolean)?;
        Ok(if by_controller {
            AttachDetach::Controller
        } else {
            AttachDetach::Node
        })
    }

    fn disk_io(&self) -> Result<DiskIo, ConfigError> {
        const DEVICES: &str = "diskIO.devices";

        let keys = &self.0;
        let solid_state = key!("diskIO.solidState.slow", disk_io.solid_state.slow);
        let rotational = key!("diskIO.rotational.slow", disk_io.rotational.slow);
        let window = key!("diskIO.window", disk_io.window);
        let settings = keys.layers.merged(
            DEVICES,
            |raw| raw.disk_io.as_ref()?.devices.as_ref(),
            |disk| (".slow", disk.slow.as_deref().unwrap_or_default()),
        );
        let mut devices = BTreeMap::new();
        let mut shown = Vec::new();
        for (name, setting) in settings.into_iter().flatten() {
            let slow = setting.parsed(|text| {
                checks::device(&name)?;
                checks::positive(text)
            })?;
            let slow_shown = ("slow".to_owned(), Shown::from(&setting));
            shown.push((name.clone(), Shown::Map(vec![slow_shown])));
            devices.insert(name, slow);
        }
        keys.insert(DEVICES, Shown::Map(shown));
        Ok(DiskIo {
            solid_state_slow: keys.value(
                &solid_state,
                &defaults::SOLID_STATE_SLOW,
                checks::positive,
            )?,
            rotational_slow: keys.value(
                &rotational,
                &defaults::ROTATIONAL_SLOW,
                checks::positive,
            )?,
            devices,
            window: keys.value(&window, &defaults::DISK_WINDOW, checks::positive)?,
        })
    }

    fn psi(&self) -> Result<PsiConfig, ConfigError> {
        let keys = &self.0;
        let enabled = key!("psi.enabled", psi.enabled);
        let threshold = key!("psi.threshold", psi.threshold);
        Ok(PsiConfig {
            enabled: keys.value(&enabled, &defaults::STALLS, checks::boolean)?,
            threshold: keys.value(&threshold, &defaults::STALL_THRESHOLD, checks::percent)?,
        })
    }

    fn oom_node_events(&self) -> Result<bool, ConfigError> {
        let on = key!("oom.nodeEvents", oom.node_events);
        self.0
            .value(&on, &defaults::OOM_NODE_EVENTS, checks::boolean)
    }

    /// Only `none` is valid for the endpoint, because nodepulse does not use a container runtime.
    fn runtime(&self) -> Result<RuntimePolicy, ConfigError> {
        let keys = &self.0;
        let known = [("none", ())];
        let endpoint = key!(keys, "runtime.endpoint", runtime_endpoint, runtime.endpoint);
        keys.value(&endpoint, &defaults::RUNTIME, checks::choice(&known))?;
        let allowed = key!(
            keys,
            "allowReadyWithoutRuntime",
            allow_ready_without_runtime
        );
        let allowed = keys.value(&allowed, &defaults::ALLOW_READY, checks::boolean)?;
        Ok(if allowed {
            RuntimePolicy::NotNeeded
        } else {
            RuntimePolicy::Missing
        })
    }

    fn kubelet_version(&self) -> Result<String, ConfigError> {
        let level = key!(self.0, "kubernetesVersion", kubernetes_version);
        let level = self
            .0
            .value(&level, &defaults::KUBERNETES_VERSION, checks::version)?;
        Ok(format!("{level}+nodepulse.{}", env!("CARGO_PKG_VERSION")))
    }

    fn tier(&self) -> Result<Tier, ConfigError> {
        let tier = key!(self.0, "kernel.tier", kernel_tier, kernel.tier);
        let check = checks::choice(&choices::TIER);
        self.0.value(&tier, &defaults::TIER, check)
    }

    fn probes(&self) -> Result<BTreeSet<ProbeGroup>, ConfigError> {
        let probes = self.0.list(
            "kernel.probes",
            None,
            |raw| raw.kernel.as_ref()?.probes.clone(),
            &defaults::PROBES,
        );
        let probes = probes.into_iter();
        probes
            .map(|probe| probe.parsed(checks::nearest_of(&choices::PROBES)))
            .collect()
    }

    fn sandbox(&self) -> Result<Sandbox, ConfigError> {
        let sandbox = key!(self.0, "sandbox", sandbox);
        let check = checks::choice(&choices::SANDBOX);
        self.0.value(&sandbox, &defaults::SANDBOX, check)
    }

    fn log_level(&self) -> Result<LogLevel, ConfigError> {
        let level = key!(self.0, "log.level", log_level, log.level);
        let check = checks::choice(&choices::LOG_LEVEL);
        self.0.value(&level, &defaults::LOG_LEVEL, check)
    }

    fn log_format(&self) -> Result<LogFormat, ConfigError> {
        let format = key!(self.0, "log.format", log_format, log.format);
        let check = checks::choice(&choices::LOG_FORMAT);
        self.0.value(&format, &defaults::LOG_FORMAT, check)
    }
}
