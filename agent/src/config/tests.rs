use nodepulse_core::node_status::{AttachDetach, Runtime, Taint};
use nodepulse_core::pressure::SlowDisks;
use nodepulse_core::pressure::threshold::{Strength, ThresholdValue};
use nodepulse_core::reading::Signal;
use nodepulse_core::settings::SlowLimit;

use super::table::SERVER_KEYS;
use super::*;

mod conditions;
mod errors;
mod files;
mod precedence;
mod schema;
mod table;

const HEAD: &str = "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\n";

fn fixed(millis: u64) -> SlowLimit {
    SlowLimit::Fixed(Duration::from_millis(millis))
}

/// Names and values.
type Env<'a> = &'a [(&'a str, &'a str)];

/// Input of a test: flags, environment, the text after the file's head, the host name.
#[derive(Default)]
struct Given<'a> {
    flags: Overrides,
    env: Env<'a>,
    file: Option<&'a str>,
    hostname: &'a str,
}

impl Given<'_> {
    fn load(&self) -> Result<Config, ConfigError> {
        let text = self.file.map(|text| format!("{HEAD}{text}"));
        let loaded = self.load_text(text.as_deref());
        if let (Ok(_), Some(text)) = (&loaded, &text) {
            assert_eq!(schema::faults(text), [""; 0], "{text}");
        }
        loaded
    }

    /// Loads without a file, with the effective configuration.
    fn loaded(&self) -> LoadedConfig {
        assert_eq!(self.file, None, "only without a file");
        let absent = |_: &Path| Err(io::ErrorKind::NotFound.into());
        load(&self.flags, &|_| None, &absent, "worker-1").unwrap()
    }

    fn load_text(&self, text: Option<&str>) -> Result<Config, ConfigError> {
        let env = |name: &str| {
            let found = self.env.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let read = |_: &Path| {
            let found = text.map(str::to_owned);
            found.ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        let hostname = if self.hostname.is_empty() {
            "worker-1"
        } else {
            self.hostname
        };
        Config::load(&self.flags, &env, &read, hostname)
    }
}

fn file(text: &str) -> Config {
    load_file(text).unwrap_or_else(|err| panic!("{text}: {err}"))
}

fn load_file(text: &str) -> Result<Config, ConfigError> {
    let file = Some(text);
    let given = Given {
        file,
        ..Given::default()
    };
    given.load()
}

fn load_env(env: Env<'_>) -> Result<Config, ConfigError> {
    let given = Given {
        env,
        ..Given::default()
    };
    given.load()
}

fn load_flags(flags: Overrides) -> Result<Config, ConfigError> {
    let given = Given {
        flags,
        ..Given::default()
    };
    given.load()
}

fn overrides(set: impl FnOnce(&mut Overrides)) -> Overrides {
    let mut overrides = Overrides::default();
    set(&mut overrides);
    overrides
}

#[expect(clippy::unnecessary_wraps, reason = "as a flag is stored")]
fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// `signal<value` of every threshold, with the grace period of soft ones.
fn thresholds(config: &Config) -> Vec<String> {
    let text = |t: &nodepulse_core::pressure::threshold::Threshold| {
        let value = match t.value {
            ThresholdValue::Quantity(n) => n.to_string(),
            ThresholdValue::Share(share) => format!("{}%", (share * 100.0).round()),
            value @ ThresholdValue::Capped { .. } => value.to_string(),
        };
        let grace = match t.strength {
            Strength::Hard => String::new(),
            Strength::Soft => format!(" for {:?}", t.grace_period),
        };
        format!("{}<{value}{grace}", t.signal.as_str())
    };
    config.policy.thresholds.iter().map(text).collect()
}

#[test]
fn without_settings_the_defaults_apply() {
    let config = Given::default().load().unwrap();

    assert_eq!(config.mode, Mode::Companion);
    assert_eq!(config.node_name, "worker-1");
    assert_eq!(config.kubeconfig, None);
    assert_eq!(config.host_root, Path::new("/"));
    assert_eq!(config.root_directory, Path::new("/var/lib/kubelet"));
    assert_eq!(config.imagefs_directory, None);
    assert_eq!(config.state_directory, Path::new("/run/nodepulse"));
    assert_eq!(
        config.pods_cgroups,
        ["/kubepods.slice", "/kubepods"].map(Path::new)
    );
    assert_eq!(config.policy.transition_period, Duration::from_mins(5));
    assert_eq!(config.policy.slow_disks, SlowDisks::NodepulseConditionOnly);
    assert_eq!(config.status_update_frequency, Duration::from_secs(10));
    assert_eq!(config.status_report_frequency, Duration::from_mins(5));
    assert_eq!(config.lease_duration, Duration::from_secs(40));
    assert!(config.register_node && !config.take_over);
    assert_eq!(config.attach_detach, AttachDetach::Controller);
    assert_eq!(config.kubelet_port, None);
    assert!(config.allocation.volume_limits.is_empty());
    assert_eq!(config.taints, []);
    assert!(config.node_labels.is_empty());
    assert!(config.node_ips.is_empty());
    assert_eq!(config.provider_id, None);
    assert_eq!(config.allocation.max_pods, 110);
    assert_eq!(config.allocation.pods_per_core, 0);
    assert!(config.allocation.reserved.is_empty());
    let disk_io = DiskIo {
        solid_state_slow: SlowLimit::Auto,
        rotational_slow: fixed(100),
        devices: BTreeMap::new(),
        window: Duration::from_secs(1),
        slow_for: Duration::from_secs(15),
        min_stall: 10.0,
        stalled_after: Duration::from_secs(10),
    };
    assert_eq!(config.disk_io, disk_io);
    let stalls = PsiConfig {
        enabled: true,
        thresholds: StallThresholds {
            memory: 15.0,
            io: 40.0,
        },
    };
    assert_eq!(config.psi, stalls);
    assert_eq!(config.oom_node_events, OomNodeEvents::Auto);
    assert_eq!(config.per_pod_metrics, PerPodMetrics::Off);
    assert_eq!(config.kubernetes_version, None);
    assert_eq!(config.tier, Tier::Auto);
    assert_eq!(config.probes.len(), 4);
    assert!(file("kernel: {probes: []}").probes.is_empty());
    assert_eq!(config.event_queue, 1000);
    assert_eq!(config.serve, "127.0.0.1:20260".parse().ok());
    assert_eq!(config.sandbox, Sandbox::Auto);
    assert_eq!(config.log_level, LogLevel::Info);
    assert_eq!(config.log_format, LogFormat::Text);
    assert_eq!(file("").node_name, config.node_name, "an empty file too");
}

/// Every key with a value other than its default.
const FULL: &str = "
mode: node
nodeName: Edge-7
kubeconfig: kubeconfig.yaml
hostRoot: /host
rootDirectory: /data/kubelet
imagefsDirectory: /data/images
stateDirectory: /data/nodepulse
cgroupRoot: /sub
cgroupDriver: systemd
enforceNodeAllocatable: [none]
evictionHard: {memory.available: 1Gi}
evictionSoft: {nodefs.available: 20%}
evictionSoftGracePeriod: {nodefs.available: 1m30s}
evictionMinimumReclaim: {memory.available: 500Mi}
evictionPressureTransitionPeriod: 90s
nodeStatusUpdateFrequency: 20s
nodeStatusReportFrequency: 1m
nodeLeaseDurationSeconds: 20
registerNode: false
enableControllerAttachDetach: false
takeOver: true
allowReadyWithoutRuntime: true
mergeDefaultEvictionSettings: true
port: 10250
volumeLimits: {disk.csi.example.com: 16, none: 0}
registerWithTaints:
- {key: dedicated, value: edge, effect: NoSchedule}
- {key: example.com/x, effect: NoExecute}
nodeLabels: {example.com/rack: r7}
nodeIP: 192.0.2.10, 2001:db8::10
providerID: metal://7
maxPods: 250
podsPerCore: 10
systemReserved: {cpu: 500m, memory: 1Gi}
kubeReserved: {cpu: 0.25, ephemeral-storage: 1Gi, pid: '100'}
reservedSystemCPUs: ''
diskIO:
  solidState: {slow: 30ms}
  rotational: {slow: auto}
  devices: {sda: {slow: 50ms}, sdb: {slow: auto}}
  window: 2s
  slowFor: 1s
  minStall: 2.5%
  stalledAfter: 2s
  raisesDiskPressure: true
psi: {enabled: false, memory: 7.5%, io: 12.5%}
oom: {nodeEvents: false}
runtime: {endpoint: none}
kubernetesVersion: 1.34.2
kernel: {tier: files, probes: [disks, oom]}
events: {queue: 50}
serve: {address: '[::1]:9100', perPodMetrics: true}
sinks:
  webhooks:
  - {url: 'https://a.example/b?c=d', headersFile: /a b, kinds: [OOMKill, Boot]}
  - {url: http://127.0.0.1:9}
sandbox: require
log: {level: debug, format: json}
";

#[test]
fn every_key_of_the_file_is_parsed() {
    let config = file(FULL);

    assert_eq!(config.mode, Mode::Node);
    assert_eq!(config.node_name, "edge-7");
    assert_eq!(config.kubeconfig, Some("kubeconfig.yaml".into()));
    assert_eq!(config.host_root, Path::new("/host"));
    assert_eq!(config.root_directory, Path::new("/data/kubelet"));
    assert_eq!(config.state_directory, Path::new("/data/nodepulse"));
    assert_eq!(config.pods_cgroups, [Path::new("/sub/kubepods.slice")]);
    assert_eq!(
        thresholds(&config),
        [
            "memory.available<1073741824",
            "nodefs.available<10%",
            "nodefs.available<20% for 90s",
            "nodefs.inodesFree<5%",
            "imagefs.available<15%",
            "imagefs.inodesFree<5%",
            "pid.available<5%",
        ]
    );
    let reclaim = config.policy.thresholds[0].min_reclaim;
    assert_eq!(reclaim, Some(ThresholdValue::Quantity(500 << 20)));
    assert_eq!(config.policy.transition_period, Duration::from_secs(90));
    assert_eq!(config.policy.slow_disks, SlowDisks::RaiseDiskPressure);
    let stalls = PsiConfig {
        enabled: false,
        thresholds: StallThresholds {
            memory: 7.5,
            io: 12.5,
        },
    };
    assert_eq!(config.psi, stalls);
    assert_eq!(config.oom_node_events, OomNodeEvents::Off);
    assert_eq!(config.per_pod_metrics, PerPodMetrics::On);
    assert_eq!(config.status_update_frequency, Duration::from_secs(20));
    assert_eq!(config.status_report_frequency, Duration::from_mins(1));
    assert_eq!(config.lease_duration, Duration::from_secs(20));
    assert!(!config.register_node && config.take_over);
    assert_eq!(config.attach_detach, AttachDetach::Node);
    assert_eq!(config.runtime, Runtime::NotNeeded);
    assert_eq!(config.kubelet_port, Some(10250));
    let limits = [
        ("disk.csi.example.com".to_owned(), 16),
        ("none".to_owned(), 0),
    ];
    assert_eq!(config.allocation.volume_limits, limits.into());
    let taint = |key: &str, value: &str, effect: &str| Taint {
        key: key.to_owned(),
        value: value.to_owned(),
        effect: effect.to_owned(),
    };
    assert_eq!(
        config.taints,
        [
            taint("dedicated", "edge", "NoSchedule"),
            taint("example.com/x", "", "NoExecute"),
        ]
    );
    assert_eq!(config.node_labels["example.com/rack"], "r7");
    let ips: [IpAddr; 2] = [
        "192.0.2.10".parse().unwrap(),
        "2001:db8::10".parse().unwrap(),
    ];
    assert_eq!(config.node_ips, ips);
    assert_eq!(config.provider_id.as_deref(), Some("metal://7"));
    let disk_io = DiskIo {
        solid_state_slow: fixed(30),
        rotational_slow: SlowLimit::Auto,
        devices: [
            ("sda".to_owned(), fixed(50)),
            ("sdb".to_owned(), SlowLimit::Auto),
        ]
        .into(),
        window: Duration::from_secs(2),
        slow_for: Duration::from_secs(1),
        min_stall: 2.5,
        stalled_after: Duration::from_secs(2),
    };
    assert_eq!(config.disk_io, disk_io);
    assert_eq!(config.kubernetes_version.as_deref(), Some("v1.34.2"));
    assert_eq!(config.tier, Tier::Files);
    assert_eq!(config.probes, [ProbeGroup::Oom, ProbeGroup::Disks].into());
    assert_eq!(config.event_queue, 50);
    assert_eq!(config.serve, "[::1]:9100".parse().ok());
    assert_eq!(file("serve: {address: 'off'}").serve, None);
    let pod_ip = file("serve: {address: 'fd00::1:20260'}").serve;
    assert_eq!(pod_ip, "[fd00::1]:20260".parse().ok());
    assert_eq!(config.sandbox, Sandbox::Require);
    assert_eq!(config.log_level, LogLevel::Debug);
    assert_eq!(config.log_format, LogFormat::Json);
}

#[test]
fn allocation_is_parsed_from_the_file() {
    let config = file(FULL);

    assert_eq!(config.allocation.max_pods, 250);
    assert_eq!(config.allocation.pods_per_core, 10);
    let reserved = config.allocation.reserved.iter();
    let reserved: Vec<String> = reserved.map(|(key, n)| format!("{key}={n}")).collect();
    assert_eq!(
        reserved,
        ["cpu=750m", "ephemeral-storage=1Gi", "memory=1Gi", "pid=100"]
    );
    let memory = config.allocation.memory_threshold;
    assert_eq!(memory, Some(ThresholdValue::Quantity(1 << 30)));
    let nodefs = config.allocation.nodefs_threshold;
    assert_eq!(nodefs, Some(ThresholdValue::Share(0.1)));
}

#[test]
fn default_thresholds_apply_key_by_key() {
    const NODE: [&str; 8] = [
        "memory.available<104857600",
        "allocatableMemory.available<104857600",
        "nodefs.available<10%",
        "nodefs.inodesFree<5%",
        "imagefs.available<15%",
        "imagefs.inodesFree<5%",
        "pid.available<5%",
        "allocatablePid.available<5%",
    ];
    let with = |changes: &[(usize, &str)]| {
        let mut all = NODE.map(str::to_owned).to_vec();
        for (at, text) in changes {
            all[*at] = (*text).to_owned();
        }
        all.retain(|text| !text.is_empty());
        all
    };
    let gi = [
        (0, "memory.available<1073741824"),
        (1, "allocatableMemory.available<1073741824"),
    ];
    #[rustfmt::skip]
    let rows = [
        ("mode: node", with(&[])),
        ("mode: node\nevictionHard: {memory.available: 1Gi}", with(&gi)),
        ("mode: node\nevictionHard: {memory.available: 1Gi}\nmergeDefaultEvictionSettings: true", with(&gi)),
        ("mode: node\nevictionHard: {memory.available: 1Gi}\nmergeDefaultEvictionSettings: false",
            with(&gi)[..2].to_vec()),
        ("mode: node\nmergeDefaultEvictionSettings: false", with(&[])),
        ("mode: node\nevictionHard: {}\nmergeDefaultEvictionSettings: false", vec![]),
        ("mode: node\nevictionHard: {pid.available: 0%, nodefs.available: 100%}", with(&[(2, ""), (6, ""), (7, "")])),
        ("mode: node\nevictionHard: {containerfs.available: 1%}", with(&[])),
        ("mode: node\nenforceNodeAllocatable: [system-reserved]", with(&[(1, ""), (7, "")])),
        (
            "mode: companion",
            with(&[
                (0, "memory.available<min(5%,2Gi)"),
                (1, "allocatableMemory.available<min(5%,2Gi)"),
                (2, "nodefs.available<12%"),
                (3, "nodefs.inodesFree<8%"),
                (4, "imagefs.available<12%"),
                (6, "pid.available<10%"),
                (7, "allocatablePid.available<10%"),
            ]),
        ),
    ];
    for (text, mut expected) in rows {
        let mut actual = thresholds(&file(text));
        actual.sort();
        expected.sort();
        assert_eq!(actual, expected, "{text}");
    }
}

#[test]
fn maps_and_lists_have_a_flag_form() {
    let config = load_flags(Overrides {
        mode: text("node"),
        merge_default_eviction_settings: text("false"),
        eviction_hard: text("memory.available<1Gi, pid.available<2%"),
        eviction_soft: text("memory.available<2Gi"),
        eviction_soft_grace_period: text("memory.available=30s"),
        eviction_minimum_reclaim: text("pid.available=1%"),
        enforce_node_allocatable: text(""),
        register_with_taints: text("b=1:NoSchedule,a:NoExecute"),
        node_labels: text("role=edge,empty="),
        system_reserved: text("cpu=1"),
        kube_reserved: text("cpu=500m"),
        ..Overrides::default()
    })
    .unwrap();

    assert_eq!(
        thresholds(&config),
        [
            "memory.available<1073741824",
            "memory.available<2147483648 for 30s",
            "pid.available<2%",
        ]
    );
    let pid = config.policy.thresholds[2];
    assert_eq!(pid.signal, Signal::PidAvailable);
    assert_eq!(pid.min_reclaim, Some(ThresholdValue::Share(0.01)));
    let keys: Vec<&str> = config.taints.iter().map(|t| t.key.as_str()).collect();
    assert_eq!(keys, ["b", "a"], "in the given order");
    assert_eq!(config.node_labels["role"], "edge");
    assert_eq!(config.node_labels["empty"], "");
    assert_eq!(config.allocation.reserved["cpu"].to_string(), "1500m");
}

#[test]
fn zero_means_unset_and_an_update_frequency_alone_is_the_report_frequency_too() {
    let rows = [
        ("nodeStatusUpdateFrequency: 20s", 20, 20),
        ("nodeStatusReportFrequency: 1m", 10, 60),
        (
            "nodeStatusUpdateFrequency: 20s\nnodeStatusReportFrequency: 1m",
            20,
            60,
        ),
        ("nodeStatusUpdateFrequency: 0s", 10, 300),
    ];
    for (text, update, report) in rows {
        let config = file(text);
        let actual = (
            config.status_update_frequency,
            config.status_report_frequency,
        );
        let expected = (Duration::from_secs(update), Duration::from_secs(report));
        assert_eq!(actual, expected, "{text}");
    }
    let config = file("evictionPressureTransitionPeriod: 0s\nnodeLeaseDurationSeconds: 0");
    assert_eq!(config.policy.transition_period, Duration::from_mins(5));
    assert_eq!(config.lease_duration, Duration::from_secs(40));
}

fn check_refused(text: &str, loaded: Result<Config, ConfigError>, expected: &[&str]) {
    let line = match loaded {
        Ok(_) => panic!("{text:?} should be refused"),
        Err(err) => err.to_string(),
    };
    assert!(!line.contains('\n'), "{text:?} takes one line: {line:?}");
    for part in expected {
        assert!(line.contains(part), "{text:?}: {line:?} lacks {part:?}");
    }
}
