//! Invalid input by key.

/// Text after the file's head, and texts that the error must contain.
pub(super) const BAD: &[(&str, &[&str])] = &[
    // Keys.
    (
        "maxPod: 1",
        &["line 3", r#"unknown key "maxPod""#, "maxPods"],
    ),
    ("evictionhard: {}", &[r#""evictionhard""#, "evictionHard"]),
    ("log: {levle: info}", &[r#""levle""#, "level"]),
    (
        "diskIO: {devices: {sda: {fast: 1ms}}}",
        &[r#""fast""#, "slow"],
    ),
    ("kernel: {tiers: auto}", &[r#""tiers""#, "tier"]),
    ("runtime: {endpiont: none}", &[r#""endpiont""#, "endpoint"]),
    (
        "registerWithTaints: [{name: a}]",
        &[r#""name""#, "nearest known key"],
    ),
    ("maxPods: 1\nmaxPods: 2", &["line 4", "maxPods"]),
    ("maxPods: 1\n!foo maxPods: 2", &["maxPods"]),
    ("log.level: debug", &[r#""log.level""#]),
    ("log: {level: warn}\nlog.level: debug", &[r#""log.level""#]),
    ("diskIO: {solidState.slow: 5ms}", &[r#""solidState.slow""#]),
    (
        "diskIO.solidState: {slow: 5ms}",
        &[r#""diskIO.solidState""#],
    ),
    // Kinds of value.
    ("maxPods: [1]", &["line 3", "maxPods: [1]", "maxPods: 110"]),
    (
        "evictionHard: 5",
        &["evictionHard: 5", "memory.available: 100Mi"],
    ),
    ("log: info", &["log: info"]),
    ("mode: 'node", &["line"]),
    // Closed sets of values.
    (
        "mode: standalone",
        &[
            "mode in ",
            r#""standalone""#,
            "companion, node",
            "mode: companion",
        ],
    ),
    (
        "cgroupDriver: runc",
        &["cgroupDriver", r#""runc""#, "systemd, cgroupfs"],
    ),
    (
        "kernel: {tier: dmesg}",
        &["kernel.tier", r#""dmesg""#, "auto, btf, kmsg, files"],
    ),
    (
        "kernel: {probes: [oom, disk]}",
        &[
            "kernel.probes[1]",
            r#""disk""#,
            "the nearest is disks",
            "probes: [oom, pids, disks]",
        ],
    ),
    (
        "serve: {address: localhost:20260}",
        &[
            "serve.address",
            r#""localhost:20260""#,
            "nor off",
            "address: 127.0.0.1:20260",
        ],
    ),
    ("serve: {address: 127.0.0.1}", &["serve.address", "a port"]),
    (
        "serve: {address: '127.0.0.1:65536'}",
        &["serve.address", r#""127.0.0.1:65536""#],
    ),
    ("serve: {address: ''}", &["serve.address", r#""""#]),
    ("serve: {adress: 'off'}", &[r#""adress""#, "address"]),
    (
        "log: {level: loud}",
        &["log.level", r#""loud""#, "level: info"],
    ),
    (
        "log: {format: xml}",
        &["log.format", r#""xml""#, "format: json"],
    ),
    (
        "runtime: {endpoint: /run/containerd/containerd.sock}",
        &["runtime.endpoint", "or unix://", "unix:///run/"],
    ),
    (
        "takeOver: perhaps",
        &["takeOver", r#""perhaps""#, "takeOver: false"],
    ),
    (
        "registerNode: perhaps",
        &["registerNode", r#""perhaps""#, "registerNode: true"],
    ),
    (
        "mergeDefaultEvictionSettings: 1",
        &["mergeDefaultEvictionSettings", r#""1""#],
    ),
    (
        "diskIO: {raisesDiskPressure: maybe}",
        &["diskIO.raisesDiskPressure", r#""maybe""#],
    ),
    (
        "enforceNodeAllocatable: [pods, qos]",
        &["enforceNodeAllocatable[1]", r#""qos""#, "[pods]"],
    ),
    // Names.
    (
        "nodeName: under_score",
        &[
            "nodeName",
            r#""under_score""#,
            "DNS-1123",
            "nodeName: worker-1",
        ],
    ),
    (
        "nodeName: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        &["nodeName", "longer than 63"],
    ),
    ("nodeName: ''", &["nodeName", r#""""#, "is empty"]),
    // Paths.
    (
        "hostRoot: host",
        &["hostRoot", r#""host""#, "absolute", "hostRoot: /host"],
    ),
    ("rootDirectory: var/lib", &["rootDirectory", r#""var/lib""#]),
    ("stateDirectory: run", &["stateDirectory", r#""run""#]),
    ("cgroupRoot: /a/../b", &["cgroupRoot", r#""/a/../b""#, ".."]),
    ("kubeconfig: ''", &["kubeconfig", r#""""#, "is empty"]),
    // Thresholds.
    (
        "evictionHard: {memory.free: 1Gi}",
        &[
            "evictionHard.memory.free",
            "unsupported eviction signal",
            "memory.available: 100Mi",
        ],
    ),
    (
        "evictionHard: {allocatableMemory.available: 1Gi}",
        &["unsupported eviction signal"],
    ),
    (
        "evictionHard: {memory.available: '0'}",
        &[r#""0""#, "greater than zero"],
    ),
    (
        "evictionHard: {memory.available: -1Mi}",
        &[r#""-1Mi""#, "negative"],
    ),
    (
        "evictionHard: {memory.available: 101%}",
        &[r#""101%""#, "between 0% and 100%"],
    ),
    (
        "evictionHard: {memory.available: 100MB}",
        &[r#""100MB""#, "suffix"],
    ),
    (
        "evictionHard: {memory.available: lots}",
        &[r#""lots""#, "number"],
    ),
    (
        "evictionSoft: {memory.available: 1Gi}",
        &[
            "grace period must be specified for the soft eviction threshold memory.available",
            "1m30s",
        ],
    ),
    (
        "evictionHard: {nodefs.available: -5%}",
        &["evictionHard.nodefs.available", r#""-5%""#],
    ),
    (
        "evictionHard: {nodefs.available: ''}",
        &["evictionHard.nodefs.available", r#""""#],
    ),
    (
        "evictionHard: {swap.available: 1Gi}",
        &["evictionHard.swap.available", "unsupported eviction signal"],
    ),
    (
        "evictionSoft: {memory.available: 101%}\nevictionSoftGracePeriod: {memory.available: 1m}",
        &["evictionSoft.memory.available", r#""101%""#, "100%"],
    ),
    (
        "evictionMinimumReclaim: {memory.available: -1Gi}",
        &["evictionMinimumReclaim.memory.available", r#""-1Gi""#],
    ),
    (
        "evictionSoft: {memory.avail: 1Gi}",
        &["unsupported eviction signal"],
    ),
    (
        "evictionSoftGracePeriod: {memory.available: soon}",
        &["evictionSoftGracePeriod", r#""soon""#, "1m30s"],
    ),
    (
        "evictionSoftGracePeriod: {memory.available: -1s}",
        &["must not be negative"],
    ),
    (
        "evictionSoftGracePeriod: {memory.free: 1s}",
        &["unsupported eviction signal"],
    ),
    (
        "evictionMinimumReclaim: {memory.available: 0%}",
        &["evictionMinimumReclaim", r#""0%""#, "500Mi"],
    ),
    (
        "evictionMinimumReclaim: {memory.free: 1Gi}",
        &["unsupported eviction signal"],
    ),
    (
        "sandbox: 'on'",
        &["sandbox", r#""on""#, "auto, off, require", "sandbox: auto"],
    ),
    // Durations and counts.
    (
        "evictionPressureTransitionPeriod: 300",
        &["evictionPressureTransitionPeriod", r#""300""#, "5m"],
    ),
    (
        "nodeStatusUpdateFrequency: -10s",
        &["nodeStatusUpdateFrequency", r#""-10s""#, "negative", "10s"],
    ),
    (
        "nodeStatusReportFrequency: 999ms",
        &["nodeStatusReportFrequency", "at least 1s"],
    ),
    (
        "nodeLeaseDurationSeconds: -1",
        &["nodeLeaseDurationSeconds", r#""-1""#, "40"],
    ),
    (
        "nodeLeaseDurationSeconds: 40s",
        &["nodeLeaseDurationSeconds", r#""40s""#],
    ),
    ("maxPods: many", &["maxPods", r#""many""#, "maxPods: 110"]),
    ("maxPods: 2147483648", &["maxPods", "2147483647"]),
    ("maxPods: -1", &["maxPods", r#""-1""#, "from 0"]),
    ("podsPerCore: -1", &["podsPerCore", r#""-1""#]),
    (
        "diskIO: {solidState: {slow: 0ms}}",
        &["diskIO.solidState.slow", "greater than zero", "20ms"],
    ),
    (
        "diskIO: {rotational: {slow: 100}}",
        &["diskIO.rotational.slow", r#""100""#],
    ),
    (
        "psi: {memory: 0%}",
        &["psi.memory", r#""0%""#, "above 0%", "memory: 15%"],
    ),
    (
        "psi: {io: 40}",
        &["psi.io", r#""40""#, "percentage", "io: 40%"],
    ),
    ("psi: {io: 101%}", &["psi.io", "up to 100%"]),
    ("psi: {memory: nan%}", &["psi.memory", "percentage"]),
    (
        "oom: {frequent: {incidents: 0}}",
        &["from 1 to 1000", "incidents: 5"],
    ),
    (
        "oom: {frequent: {incidents: 2}}",
        &["oom.frequent.pods", "which is 2", "pods: 2"],
    ),
    (
        "psi: {enabled: perhaps}",
        &["psi.enabled", r#""perhaps""#, "neither true nor false"],
    ),
    ("psi: {memry: 15%}", &[r#""memry""#, "memory"]),
    (
        "diskIO: {window: 0s}",
        &["diskIO.window", "from 1s to 1m", "window: 1s"],
    ),
    (
        "diskIO: {devices: {sda: {}}}",
        &["diskIO.devices.sda.slow", "sda: {slow: 50ms}"],
    ),
    (
        "diskIO: {devices: {/dev/sda: {slow: 1ms}}}",
        &["/dev/sda", "/sys/block"],
    ),
    // Reservations.
    (
        "systemReserved: {gpu: 1}",
        &[
            "systemReserved.gpu",
            "cpu, memory, ephemeral-storage, pid",
            "cpu: 500m",
        ],
    ),
    (
        "systemReserved: {memory: -1Gi}",
        &["systemReserved.memory", r#""-1Gi""#, "negative"],
    ),
    (
        "kubeReserved: {cpu: -1}",
        &["kubeReserved.cpu", r#""-1""#, "negative"],
    ),
    (
        "kubeReserved: {memory: 1 Gi}",
        &["kubeReserved.memory", r#""1 Gi""#, "suffix"],
    ),
    (
        "nodeLabels: {\"a\\nb\": c}",
        &["nodeLabels.a\\nb", "qualified name"],
    ),
    (
        "kubeReserved: {hugepages-2Mi: 1Gi}",
        &["kubeReserved.hugepages-2Mi", "cpu, memory"],
    ),
    (
        "reservedSystemCPUs: 3-1",
        &["reservedSystemCPUs", r#""3-1""#, "0-3,8"],
    ),
    (
        "reservedSystemCPUs: two",
        &["reservedSystemCPUs", r#""two""#, "0-3,8"],
    ),
    (
        "reservedSystemCPUs: 0,,1",
        &["reservedSystemCPUs", r#""0,,1""#],
    ),
    (
        "reservedSystemCPUs: 0-65536",
        &["reservedSystemCPUs", "below 65536"],
    ),
    // Registration.
    (
        "enableControllerAttachDetach: perhaps",
        &[
            "enableControllerAttachDetach",
            r#""perhaps""#,
            "enableControllerAttachDetach: true",
        ],
    ),
    ("port: 65536", &["port", r#""65536""#, "port: 10250"]),
    (
        "volumeLimits: {disk.csi.example.com: many}",
        &[
            "volumeLimits.disk.csi.example.com",
            r#""many""#,
            "volumeLimits: {disk.csi.example.com: 16}",
        ],
    ),
    (
        "volumeLimits: {aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: 1}",
        &["volumeLimits.aaaa", "not a CSI driver name"],
    ),
    (
        "allowReadyWithoutRuntime: perhaps",
        &["allowReadyWithoutRuntime", r#""perhaps""#, "true nor false"],
    ),
    (
        "registerWithTaints: [{key: a b, effect: NoSchedule}]",
        &["registerWithTaints[0]", "a b:NoSchedule", "qualified name"],
    ),
    (
        "registerWithTaints: [{key: a, value: b c, effect: NoSchedule}]",
        &["registerWithTaints[0]", "a=b c:NoSchedule", "label value"],
    ),
    (
        "nodeLabels: {node-restriction.kubernetes.io/x: a}",
        &["nodeLabels.node-restriction.kubernetes.io/x", "namespace"],
    ),
    ("nodeIP: ''", &["nodeIP", r#""""#, "192.0.2.10"]),
    (
        "nodeLabels: {kubernetes.io/role: a}",
        &[
            "nodeLabels.kubernetes.io/role",
            r#""a""#,
            "namespace",
            "example.com/rack: r7",
        ],
    ),
    ("nodeLabels: {a b: c}", &["nodeLabels", "qualified name"]),
    (
        "nodeLabels: {a: b c}",
        &["nodeLabels.a", r#""b c""#, "label value"],
    ),
    (
        "registerWithTaints: [{key: a, effect: Never}]",
        &["registerWithTaints[0]", "a:Never", "NoSchedule"],
    ),
    (
        "registerWithTaints: [{key: a}]",
        &["registerWithTaints[0]", "effect"],
    ),
    (
        "registerWithTaints: [{effect: NoExecute}]",
        &["registerWithTaints[0]", "qualified name"],
    ),
    (
        "registerWithTaints: [{key: a, effect: NoExecute}, {key: a, value: b, effect: NoExecute}]",
        &["registerWithTaints[1]", "repeats"],
    ),
    (
        "nodeIP: localhost",
        &["nodeIP", r#""localhost""#, "192.0.2.10"],
    ),
    ("nodeIP: 192.0.2.1,192.0.2.2", &["one family"]),
    ("nodeIP: '0.0.0.0,::1'", &["unspecified"]),
    ("nodeIP: '1.1.1.1,::1,2.2.2.2'", &["more than two"]),
    (
        "kubernetesVersion: '1.33'",
        &["kubernetesVersion", r#""1.33""#, "v1.35.0"],
    ),
    ("kubernetesVersion: v1.33.0+x", &["three numbers"]),
    (
        "oom: {nodeEvents: maybe}",
        &["oom.nodeEvents", "not one of auto, true, false"],
    ),
    ("oom: {nodeEvent: true}", &[r#""nodeEvent""#, "nodeEvents"]),
    (
        "diskIO: {raisesDiskPressure: true}",
        &["diskIO.raisesDiskPressure", r#""true""#, "mode: node"],
    ),
    // nodepulse's conditions and their taints.
    (
        "conditions: {MemoryLo: false}",
        &[
            "conditions.MemoryLo",
            "the nearest is MemoryLow",
            "conditions: {MemoryStallPressure: false, FrequentOOMKills: true}",
        ],
    ),
    (
        "conditions: {MemoryPressure: true}",
        &["conditions.MemoryPressure", "not one of MemoryLow, PIDsLow"],
    ),
    (
        "conditions: {MemoryLow: often}",
        &[
            "conditions.MemoryLow",
            r#""often""#,
            "neither true nor false",
        ],
    ),
    (
        "mode: node\nconditions: {DiskIOPressure: false}",
        &["conditions.DiskIOPressure", "mode: companion"],
    ),
    (
        "mode: node\ntaints: {DiskIOPressure: NoSchedule}",
        &["taints.DiskIOPressure", "mode: companion"],
    ),
    (
        "taints: {PIDLow: NoSchedule}",
        &[
            "taints.PIDLow",
            "the nearest is PIDsLow",
            "taints: {MemoryLow: ",
        ],
    ),
    (
        "taints: {MemoryLow: Never}",
        &[
            "taints.MemoryLow",
            r#""Never""#,
            "effect other than NoSchedule",
        ],
    ),
    (
        "taints: {MemoryLow: {effect: NoExecute, keys: a}}",
        &[r#""keys""#, "the nearest known key is key"],
    ),
    (
        "taints: {MemoryLow: {effect: NoExecute, key: a b}}",
        &["taints.MemoryLow", "qualified name"],
    ),
    (
        "taints: {MemoryLow: {key: node.kubernetes.io/memory-pressure}}",
        &["taints.MemoryLow", "Kubernetes namespace"],
    ),
    (
        "taints: {MemoryLow: {key: a.b/c}, PIDsLow: 'a.b/c:NoSchedule'}",
        &["taints.PIDsLow", "repeats the key and the effect"],
    ),
    (
        "conditions: {MemoryLow: false}\ntaints: {MemoryLow: NoSchedule}",
        &["taints.MemoryLow", "is off"],
    ),
    (
        "events: {queue: 0}",
        &["events.queue", r#""0""#, "from 1 to 10000"],
    ),
    ("events: {queue: 10001}", &["from 1 to 10000"]),
];
