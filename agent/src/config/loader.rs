//! Merges and checks the layers, key by key.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum as _;
use nodepulse_core::node_status::{AttachDetach, Runtime, Taint};
use nodepulse_core::pressure::frequent_kills::FrequentOom;
use nodepulse_core::pressure::stall::StallThresholds;
use nodepulse_core::pressure::threshold::{Threshold, with_allocatable};
use nodepulse_core::pressure::{Policy, SlowDisks};
use nodepulse_core::settings::{Mode, SlowLimit};

use super::choices::{CgroupDriver, Enforced};
use super::effective::{Effective, Shown};
use super::error::ConfigError;
use super::keys::Keys;
use super::layers::Setting;
use super::spec::{Key, KeySpec};
use super::table::key;
use super::{CertificateConfig, Config, DiskIo, PerPodMetrics, PsiConfig, SinkConfig};
use super::{allocation, checks, companion, eviction, labels};

pub(super) struct Loader<'a>(pub(super) Keys<'a>);

impl Loader<'_> {
    /// Loads every key. Returns the checked configuration, and the effective values.
    pub(super) fn load(self, hostname: &str) -> Result<(Config, Effective), ConfigError> {
        let config = self.config(hostname)?;
        Ok((config, self.0.into_effective()))
    }

    fn config(&self, hostname: &str) -> Result<Config, ConfigError> {
        let keys = &self.0;
        let mode = keys.value(&key::mode)?;
        let node_name = self.node_name(hostname)?;
        let kubeconfig = keys.optional(&key::kubeconfig)?;
        let host_root = keys.value(&key::host_root)?;
        let root_directory = keys.value(&key::root_directory)?;
        let imagefs_directory = keys.optional(&key::imagefs_directory)?;
        let state_directory = keys.value(&key::state_directory)?;
        let history_directory = keys.checked(&key::history_directory, |directory| {
            if directory.as_ref() == Some(&state_directory) {
                return Err(format!("is the {}", key::state_directory));
            }
            Ok(directory)
        })?;
        let pods_cgroups = self.pods_cgroups()?;
        let thresholds = eviction::thresholds(keys, mode)?;
        let allocation = allocation::allocation(keys, &thresholds)?;
        let policy = self.policy(thresholds, mode)?;
        let (update, report) = self.frequencies()?;
        let (conditions, nodepulse_taints) = companion::conditions_and_taints(keys, mode)?;
        Ok(Config {
            mode,
            node_name,
            certificate: self.certificate(mode, kubeconfig.as_ref())?,
            kubeconfig,
            host_root,
            root_directory,
            imagefs_directory,
            state_directory,
            history_directory,
            journald: keys.value(&key::sinks_journald)?,
            sinks: self.sinks()?,
            black_box_sync: keys.value(&key::black_box_sync)?,
            pods_cgroups,
            allocation,
            policy,
            status_update_frequency: update,
            status_report_frequency: report,
            lease_duration: self.lease_duration()?,
            take_over: keys.value(&key::take_over)?,
            register_node: keys.value(&key::register_node)?,
            taints: self.taints()?,
            conditions,
            nodepulse_taints,
            node_labels: labels::node_labels(keys.map(&key::node_labels)?)?,
            attach_detach: if keys.value(&key::enable_controller_attach_detach)? {
                AttachDetach::Controller
            } else {
                AttachDetach::Node
            },
            node_ips: keys.optional(&key::node_ip)?.unwrap_or_default(),
            provider_id: keys
                .optional(&key::provider_id)?
                .filter(|id| !id.is_empty()),
            kubelet_port: keys.optional(&key::port)?.flatten(),
            disk_io: self.disk_io()?,
            psi: PsiConfig {
                enabled: keys.value(&key::psi_enabled)?,
                thresholds: StallThresholds {
                    memory: keys.value(&key::psi_memory)?,
                    io: keys.value(&key::psi_io)?,
                },
            },
            oom_node_events: keys.value(&key::oom_node_events)?,
            oom_name_pods: keys.value(&key::oom_name_pods)?,
            frequent_oom: self.frequent_oom()?,
            kubernetes_version: keys.optional(&key::kubernetes_version)?,
            runtime: if keys.value(&key::allow_ready_without_runtime)? {
                Runtime::NotNeeded
            } else {
                Runtime::Required
            },
            runtime_endpoint: keys.value(&key::runtime_endpoint)?,
            max_images: keys.value(&key::node_status_max_images)?,
            tier: keys.value(&key::kernel_tier)?,
            probes: keys.list(&key::kernel_probes)?.into_iter().collect(),
            event_queue: keys.value(&key::events_queue)?,
            serve: keys.value(&key::serve_address)?,
            per_pod_metrics: if keys.value(&key::serve_per_pod_metrics)? {
                PerPodMetrics::On
            } else {
                PerPodMetrics::Off
            },
            sandbox: keys.value(&key::sandbox)?,
            log_level: keys.value(&key::log_level)?,
            log_format: keys.value(&key::log_format)?,
        })
    }

    fn sinks(&self) -> Result<SinkConfig, ConfigError> {
        let keys = &self.0;
        Ok(SinkConfig {
            otlp: keys.optional(&key::sinks_otlp_endpoint)?,
            otlp_headers: keys.optional(&key::sinks_otlp_headers_file)?,
            webhooks: keys.list(&key::sinks_webhooks)?,
            authorities: keys.optional(&key::sinks_ca_file)?,
        })
    }

    /// Returns `None` in companion mode, which has the credentials of its service account.
    fn certificate(
        &self,
        mode: Mode,
        kubeconfig: Option<&PathBuf>,
    ) -> Result<Option<CertificateConfig>, ConfigError> {
        const BOOTSTRAP: &KeySpec = &key::bootstrap_kubeconfig.spec;

        let directory = self.0.value(&key::cert_dir)?;
        let bootstrap = self.0.optional(&key::bootstrap_kubeconfig)?;
        let Some(bootstrap) = bootstrap.filter(|_| mode == Mode::Node) else {
            return Ok(None);
        };
        let kubeconfig = match (kubeconfig, self.0.layers.setting(BOOTSTRAP)) {
            (Some(kubeconfig), _) => kubeconfig.clone(),
            (None, Some(setting)) => setting.parsed(|_| {
                Err(format!(
                    "requires {kubeconfig}, the file that is written for the requested certificate; \
                     example: {kubeconfig}: /var/lib/nodepulse/kubeconfig",
                    kubeconfig = key::kubeconfig.spec.name
                ))
            })?,
            (None, None) => return Ok(None),
        };
        Ok(Some(CertificateConfig {
            bootstrap,
            kubeconfig,
            directory,
        }))
    }

    /// Returns the host name if no layer sets the key.
    fn node_name(&self, hostname: &str) -> Result<String, ConfigError> {
        const SPEC: &KeySpec = &key::node_name.spec;
        let setting = self.0.layers.setting(SPEC);
        let setting = setting.unwrap_or_else(|| Setting::of_host(SPEC.name, hostname));
        let name = setting.parsed(|text| {
            let name = text.trim().to_lowercase();
            labels::check_node_name(&name)?;
            Ok(name)
        })?;
        self.0.insert(SPEC, Shown::text(&name, &setting.from));
        Ok(name)
    }

    /// Returns the pods cgroup of the driver, or of each driver if none is set.
    fn pods_cgroups(&self) -> Result<Vec<PathBuf>, ConfigError> {
        let root = self.0.value(&key::cgroup_root)?;
        let chosen = self.0.optional(&key::cgroup_driver)?;
        let drivers = CgroupDriver::value_variants().iter();
        let wanted = drivers.filter(|driver| chosen.is_none_or(|chosen| chosen == **driver));
        Ok(wanted
            .map(|driver| root.join(driver.pods_cgroup()))
            .collect())
    }

    fn policy(&self, thresholds: Vec<Threshold>, mode: Mode) -> Result<Policy, ConfigError> {
        let keys = &self.0;
        let period = keys.unless_unset(&key::eviction_pressure_transition_period)?;
        let raises = keys.checked(&key::disk_io_raises_disk_pressure, |raises| {
            match (raises, mode) {
                (true, Mode::Companion) => Err("requires mode: node, which writes DiskPressure"),
                (raises, Mode::Companion | Mode::Node) => Ok(raises),
            }
            .map_err(str::to_owned)
        })?;
        // The other values are accepted without effect.
        let enforced = keys.list(&key::enforce_node_allocatable)?;
        Ok(Policy {
            thresholds: if enforced.contains(&Enforced::Pods) {
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

    /// Intervals of computing and of sending the status. As in the kubelet, one alone is both.
    fn frequencies(&self) -> Result<(Duration, Duration), ConfigError> {
        const UPDATE: &Key<Option<Duration>> = &key::node_status_update_frequency;
        const REPORT: &Key<Option<Duration>> = &key::node_status_report_frequency;

        let keys = &self.0;
        let (given, report) = (keys.given(UPDATE)?, keys.given(REPORT)?);
        let update = keys.unless_unset(UPDATE)?;
        let report = match (given, report) {
            (Some((period, setting)), None) => {
                let shown = Shown::text(&setting.text, UPDATE.spec.name);
                keys.insert(&REPORT.spec, shown);
                Some(period)
            }
            _ => keys.unless_unset(REPORT)?,
        };
        Ok((update.unwrap_or_default(), report.unwrap_or_default()))
    }

    fn lease_duration(&self) -> Result<Duration, ConfigError> {
        let seconds = self.0.unless_unset(&key::node_lease_duration_seconds)?;
        Ok(Duration::from_secs(seconds.unwrap_or_default().into()))
    }

    fn taints(&self) -> Result<Vec<Taint>, ConfigError> {
        const SPEC: &KeySpec = &key::register_with_taints.spec;

        let settings = self.0.layers.list(SPEC);
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
            .insert(SPEC, Shown::List(taints.iter().map(shown).collect()));
        Ok(taints)
    }

    fn disk_io(&self) -> Result<DiskIo, ConfigError> {
        const DEVICES: &Key<SlowLimit> = &key::disk_io_devices;

        let keys = &self.0;
        let mut devices = BTreeMap::new();
        let mut shown = Vec::new();
        for (name, setting) in keys.layers.map(&DEVICES.spec)?.into_iter().flatten() {
            let slow = setting.parsed(|text| {
                checks::device(&name)?;
                (DEVICES.parse)(text)
            })?;
            let slow_shown = ("slow".to_owned(), Shown::from(&setting));
            shown.push((name.clone(), Shown::Map(vec![slow_shown])));
            devices.insert(name, slow);
        }
        keys.insert(&DEVICES.spec, Shown::Map(shown));
        Ok(DiskIo {
            solid_state_slow: keys.value(&key::disk_io_solid_state_slow)?,
            rotational_slow: keys.value(&key::disk_io_rotational_slow)?,
            devices,
            window: keys.value(&key::disk_io_window)?,
            slow_for: keys.value(&key::disk_io_slow_for)?,
            min_stall: keys.value(&key::disk_io_min_stall)?,
            stalled_after: keys.value(&key::disk_io_stalled_after)?,
        })
    }

    fn frequent_oom(&self) -> Result<FrequentOom, ConfigError> {
        const EXAMPLE_PODS: usize = 3;

        let keys = &self.0;
        let incidents = keys.value(&key::oom_frequent_incidents)?;
        let pods = keys.checked(&key::oom_frequent_pods, |pods| {
            if pods <= incidents {
                return Ok(pods);
            }
            let all = key::oom_frequent_incidents.spec.name;
            Err(format!("is more than {all}, which is {incidents}"))
        });
        let pods = pods.map_err(|mut err| {
            if let ConfigError::Value { example, .. } = &mut err {
                // The default may be what is rejected.
                let pods = incidents.min(EXAMPLE_PODS);
                *example = format!("oom: {{frequent: {{pods: {pods}}}}}");
            }
            err
        })?;
        Ok(FrequentOom {
            incidents,
            pods,
            window: keys.value(&key::oom_frequent_window)?,
        })
    }
}
