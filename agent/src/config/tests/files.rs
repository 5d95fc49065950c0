//! Several files: the configuration file, drop-in files, a kubelet's; and the printed
//! configuration.

use super::*;

/// Paths below the configuration directory, and their texts.
type Files<'a> = &'a [(&'a str, &'a str)];

/// Loads `config.yaml` with `conf.d/…` and `kubelet.yaml`.
fn load_files(
    flags: Overrides,
    env: Env<'_>,
    files: Files<'_>,
) -> Result<LoadedConfig, ConfigError> {
    let dir = Path::new("/etc/nodepulse");
    let env = |name: &str| {
        let found = env.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let read = |path: &Path| {
        let name = path.strip_prefix(dir).unwrap_or(path);
        let found = files.iter().find(|(key, _)| Path::new(key) == name);
        let found = found.map(|(_, text)| (*text).to_owned());
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    };
    let drop_ins = drop_in_directory(&flags, &env).unwrap();
    let named = files.iter().map(|(name, _)| dir.join(name));
    let overrides = Overrides {
        drop_ins: named
            .filter(|path| path.parent() == Some(&drop_ins))
            .collect(),
        ..flags
    };
    let loaded = load(&overrides, &env, &read, "worker-1");
    let nodepulses = files.iter().filter(|(name, _)| *name != "kubelet.yaml");
    for (name, text) in nodepulses.filter(|_| loaded.is_ok()) {
        assert_eq!(schema::faults(text), [""; 0], "{name}: {text}");
    }
    loaded
}

fn with_head(text: &str) -> String {
    format!("{HEAD}{text}")
}

fn with_kubelet() -> Overrides {
    overrides(|flags| flags.kubelet_config = Some("/etc/nodepulse/kubelet.yaml".into()))
}

#[test]
fn drop_in_files_are_merged_over_the_file_by_name() {
    let file = with_head(
        "mode: node\nmaxPods: 1\nevictionHard: {memory.available: 1Gi, pid.available: 1%}\n\
         enforceNodeAllocatable: [pods]\ndiskIO: {window: 2s, devices: {sda: {slow: 1ms}}}\n\
         log: {level: warn, format: json}\nnodeLabels: {a: '1'}\n",
    );
    let first = with_head(
        "maxPods: 2\nevictionHard: {memory.available: 2Gi}\nnodeLabels: {b: '2'}\n\
         diskIO: {devices: {sdb: {slow: 2ms}}}\n",
    );
    let second = with_head("maxPods: 3\nenforceNodeAllocatable: [none]\nlog: {level: debug}\n");
    let files: Files<'_> = &[
        ("config.yaml", &file),
        ("conf.d/10.yaml", &first),
        ("conf.d/20.yaml", &second),
    ];
    let loaded = load_files(Overrides::default(), &[], files).unwrap();
    let config = loaded.config;

    assert_eq!(config.mode, Mode::Node, "from the file");
    assert_eq!(config.allocation.max_pods, 3, "the last name wins");
    let hard = thresholds(&config);
    assert!(
        hard.contains(&"memory.available<2147483648".to_owned()),
        "{hard:?}"
    );
    assert!(
        hard.contains(&"pid.available<1%".to_owned()),
        "maps are merged: {hard:?}"
    );
    assert!(
        !hard.iter().any(|text| text.starts_with("allocatable")),
        "lists are replaced: {hard:?}"
    );
    assert_eq!(config.node_labels.len(), 2);
    assert_eq!(config.disk_io.devices.len(), 2);
    assert_eq!(config.disk_io.window, Duration::from_secs(2));
    assert_eq!(config.log_level, LogLevel::Debug);
    assert_eq!(config.log_format, LogFormat::Json, "blocks are merged");

    let yaml = loaded.effective.to_yaml();
    assert!(
        yaml.contains("maxPods: 3  # /etc/nodepulse/conf.d/20.yaml"),
        "{yaml}"
    );
    let flags = overrides(|flags| flags.max_pods = text("5"));
    let env: Env<'_> = &[("NODEPULSE_LOG_LEVEL", "error")];
    let above = load_files(flags, env, files).unwrap().config;
    assert_eq!(above.allocation.max_pods, 5);
    assert_eq!(above.log_level, LogLevel::Error);
}

#[test]
fn an_error_names_the_faulty_file() {
    #[rustfmt::skip]
    let rows: [(&str, &[&str]); 4] = [
        ("maxPod: 1\n", &["conf.d/10.yaml", "line 3", r#""maxPod""#, "maxPods"]),
        ("maxPods: x\n", &["maxPods in /etc/nodepulse/conf.d/10.yaml", r#""x""#, "maxPods: 110"]),
        ("evictionHard: {memory.available: x}\n",
            &["evictionHard.memory.available in /etc/nodepulse/conf.d/10.yaml", r#""x""#]),
        ("diskIO: {devices: {sda: {slow: x}}}\n",
            &["diskIO.devices.sda.slow in /etc/nodepulse/conf.d/10.yaml", r#""x""#]),
    ];
    for (text, expected) in rows {
        let (file, part) = (with_head("maxPods: 1\n"), with_head(text));
        let files: Files<'_> = &[("config.yaml", &file), ("conf.d/10.yaml", &part)];
        let loaded = load_files(Overrides::default(), &[], files);
        check_refused(text, loaded.map(|loaded| loaded.config), expected);
    }
    let part = "maxPods: 1\n";
    let loaded = load_files(Overrides::default(), &[], &[("conf.d/10.yaml", part)]);
    let expected = [
        "apiVersion in /etc/nodepulse/conf.d/10.yaml",
        "nodepulse.dev/v1alpha1",
    ];
    check_refused(part, loaded.map(|loaded| loaded.config), &expected);
}

/// A file as `kubeadm init` writes it, with some keys of an administrator.
const KUBEADM: &str = "apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  anonymous:
    enabled: false
  webhook:
    cacheTTL: 0s
    enabled: true
  x509:
    clientCAFile: /etc/kubernetes/pki/ca.crt
authorization:
  mode: Webhook
  webhook:
    cacheAuthorizedTTL: 0s
    cacheUnauthorizedTTL: 0s
cgroupDriver: systemd
cgroupRoot: ''
clusterDNS:
- 10.96.0.10
clusterDomain: cluster.local
containerRuntimeEndpoint: ''
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
enableControllerAttachDetach: false
evictionHard:
  memory.available: 200Mi
  nodefs.available: 7%
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
imageMinimumGCAge: 0s
kind: KubeletConfiguration
kubeReserved: {cpu: 2, memory: 1Gi}
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: '0'
maxPods: 250
memorySwap: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
port: 10250
readOnlyPort: 0
registerWithTaints:
- effect: NoSchedule
  key: dedicated
  value: edge
reservedSystemCPUs: 0-1,4
rotateCertificates: true
shutdownGracePeriod: 0s
staticPodPath: /etc/kubernetes/manifests
syncFrequency: 0s
volumeStatsAggPeriod: 0s
";

#[test]
fn shared_keys_of_a_kubelets_file_are_overridden_by_nodepulses_file() {
    let file = with_head("mode: node\nmaxPods: 42\nevictionHard: {memory.available: 1Gi}\n");
    let files: Files<'_> = &[("config.yaml", &file), ("kubelet.yaml", KUBEADM)];
    let loaded = load_files(with_kubelet(), &[], files).unwrap();
    let config = loaded.config;

    assert_eq!(config.pods_cgroups, [Path::new("/kubepods.slice")]);
    assert_eq!(config.attach_detach, AttachDetach::Node);
    assert_eq!(
        config.allocation.max_pods, 42,
        "nodepulse's file overrides it"
    );
    let hard = thresholds(&config);
    for expected in [
        "memory.available<1073741824",
        "nodefs.available<7%",
        "imagefs.available<15%",
    ] {
        assert!(hard.contains(&expected.to_owned()), "{expected}: {hard:?}");
    }
    assert_eq!(
        config.policy.transition_period,
        Duration::from_mins(5),
        "zero is unset"
    );
    assert_eq!(config.status_report_frequency, Duration::from_mins(5));
    assert_eq!(config.taints.len(), 1);
    let cpu = config.allocation.reserved["cpu"].to_string();
    assert_eq!(cpu, "3", "CPUs by number replace the other reservations");
    assert_eq!(config.allocation.reserved["memory"].to_string(), "1Gi");

    let server = ["authentication", "authorization", "port", "readOnlyPort"];
    assert_eq!(loaded.ignored.server, server);
    assert_eq!(config.kubelet_port, None, "nodepulse does not listen there");
    let others = loaded.ignored.kubelet;
    assert!(others.contains(&"clusterDNS".to_owned()), "{others:?}");
    assert!(others.contains(&"staticPodPath".to_owned()), "{others:?}");
    assert!(!others.contains(&"maxPods".to_owned()), "{others:?}");

    let by_variable: Env<'_> = &[("NODEPULSE_KUBELET_CONFIG", "/etc/nodepulse/kubelet.yaml")];
    let loaded = load_files(Overrides::default(), by_variable, files).unwrap();
    assert_eq!(loaded.config, config);
}

#[test]
fn an_invalid_kubelet_file_is_refused() {
    const KUBELET: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    #[rustfmt::skip]
    let rows: [(&str, &[&str]); 6] = [
        ("maxPods: many\n", &["maxPods in /etc/nodepulse/kubelet.yaml", r#""many""#, "maxPods: 110"]),
        ("maxPods: [1]\n", &["kubelet.yaml", "line 3", "maxPods"]),
        ("evictionHard: {memory.available: 101%}\n",
            &["evictionHard.memory.available in /etc/nodepulse/kubelet.yaml", "101%"]),
        ("evictionSoft: {memory.available: 1Gi}\n",
            &["grace period must be specified for the soft eviction threshold memory.available"]),
        ("reservedSystemCPUs: 0-\n", &["reservedSystemCPUs in /etc/nodepulse/kubelet.yaml", r#""0-""#, "0-3,8"]),
        ("maxPods: 1\nmaxPods: 2\n", &["kubelet.yaml", "line 4", "maxPods"]),
    ];
    for (text, expected) in rows {
        let kubelet = format!("{KUBELET}{text}");
        let loaded = load_files(with_kubelet(), &[], &[("kubelet.yaml", &kubelet)]);
        check_refused(text, loaded.map(|loaded| loaded.config), expected);
    }
    let other = with_head("maxPods: 1\n");
    let loaded = load_files(with_kubelet(), &[], &[("kubelet.yaml", &other)]);
    let expected = [
        "apiVersion in ",
        r#""nodepulse.dev/v1alpha1""#,
        "kubelet.config.k8s.io/v1beta1",
    ];
    check_refused("nodepulse's", loaded.map(|loaded| loaded.config), &expected);
    let loaded = load_files(with_kubelet(), &[], &[]);
    check_refused(
        "none",
        loaded.map(|loaded| loaded.config),
        &["kubelet.yaml", "--kubelet-config"],
    );
}

#[test]
fn keys_of_the_kubelets_server_are_accepted_in_nodepulses_file() {
    let all = SERVER_KEYS
        .map(|key| format!("{key}: {{a: [1]}}\n"))
        .concat();
    let file = with_head(&all);
    let loaded = load_files(Overrides::default(), &[], &[("config.yaml", &file)]).unwrap();
    assert_eq!(loaded.ignored.server, SERVER_KEYS);
    assert_eq!(loaded.config, Given::default().load().unwrap());
}

#[test]
fn the_printed_configuration_is_equivalent() {
    let flags = Overrides {
        mode: text("node"),
        node_labels: text("a=1,example.com/b="),
        register_with_taints: text("a=b:NoSchedule,c:NoExecute"),
        eviction_hard: text("memory.available<0%,pid.available<100%"),
        eviction_soft: text("memory.available<2Gi"),
        eviction_soft_grace_period: text("memory.available=30s"),
        node_status_update_frequency: text("20s"),
        provider_id: text("a: b # c\n\u{202e}\"'"),
        kubeconfig: text("- {x"),
        enforce_node_allocatable: text(""),
        max_pods: text("0"),
        serve_address: text("off"),
        reserved_system_cpus: text("0-3,8"),
        ..Overrides::default()
    };
    let full = with_head(FULL);
    let merge =
        with_head("mergeDefaultEvictionSettings: false\nevictionHard: {}\nkernel: {probes: []}\n");
    let rows: [(&str, Overrides, Files<'_>); 5] = [
        ("defaults", Overrides::default(), &[]),
        ("flags", flags, &[]),
        ("file", Overrides::default(), &[("config.yaml", &full)]),
        ("nothing", Overrides::default(), &[("config.yaml", &merge)]),
        (
            "kubelet",
            with_kubelet(),
            &[("config.yaml", &full), ("kubelet.yaml", KUBEADM)],
        ),
    ];
    for (name, flags, files) in rows {
        let printed = load_files(flags, &[("NODEPULSE_LOG_LEVEL", "debug")], files).unwrap();
        let yaml = printed.effective.to_yaml();
        let again = load_files(Overrides::default(), &[], &[("config.yaml", &yaml)]);
        let again = again.unwrap_or_else(|err| panic!("{name}: {err}\n{yaml}"));
        assert_eq!(again.config, printed.config, "{name}:\n{yaml}");
    }
}

#[test]
fn every_key_of_the_table_is_printed() {
    let yaml = Given::default().loaded().effective.to_yaml();
    for spec in KEYS {
        let name = spec.name.rsplit('.').next().unwrap();
        let is_printed = yaml.lines().map(str::trim_start).any(|line| {
            line.starts_with(&format!("{name}:")) || line == format!("# {name} is not set")
        });
        assert!(is_printed, "{}:\n{yaml}", spec.name);
    }
}

#[test]
fn the_example_of_every_key_is_valid() {
    for spec in KEYS {
        // A soft threshold needs a grace period.
        let grace = match spec.name {
            "evictionSoft" => key::eviction_soft_grace_period.spec.example(),
            _ => String::new(),
        };
        let text = format!("{}\n{grace}\n", spec.example());
        let file = with_head(&text);
        let loaded = load_files(Overrides::default(), &[], &[("config.yaml", &file)]);
        assert!(loaded.is_ok(), "{text}: {loaded:?}");
    }
}

#[test]
fn every_key_has_a_flag_form() {
    for spec in KEYS {
        let mut flags = Overrides::default();
        *flags.field(spec).unwrap() = Some("\u{1}".to_owned());
        let refused = load_flags(flags);
        // Any text is a valid path or identifier.
        if ["kubeconfig", "bootstrapKubeconfig", "providerID"].contains(&spec.name) {
            assert!(refused.is_ok(), "{}", spec.name);
        } else {
            check_refused(spec.name, refused, &[&format!("--{}", spec.flag_name())]);
        }
    }
}

#[test]
fn webhooks_have_a_flag_form() {
    let flag = "http://127.0.0.1:9, https://a kinds=Boot+OOMKill headersFile=/a";
    let config = load_flags(overrides(|flags| flags.sinks_webhooks = text(flag))).unwrap();
    let webhook = |url: &str, file: Option<&str>, kinds: &[IncidentKind]| WebhookConfig {
        url: url.parse().unwrap(),
        headers_file: file.map(PathBuf::from),
        kinds: kinds.into(),
    };
    let kinds = [IncidentKind::Boot, IncidentKind::OomKill];
    let webhooks = [
        webhook("http://127.0.0.1:9", None, &[]),
        webhook("https://a", Some("/a"), &kinds),
    ];
    assert_eq!(config.sinks.webhooks, webhooks);
}
