//! The table of configuration keys. Each is written here and nowhere else: the command line, the
//! file, the environment, defaults, examples in errors, reloading, the documentation and the JSON
//! Schema come from it.
// tidy: long: one table, whose rows contain the documentation.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use http::Uri;
use nodepulse_core::node_status::nodepulse_condition::NodepulseCondition;
use nodepulse_core::pressure::threshold::IGNORED_SIGNALS;
use nodepulse_core::reading::Signal;
use nodepulse_core::settings::{Mode, OomNodeEvents, SlowLimit};
use nodepulse_core::units::duration;
use nodepulse_core::units::quantity::Quantity;

use super::WebhookConfig;
use super::checks;
use super::choices::{
    BlackBoxSync, CgroupDriver, Enforced, IncidentKind, JournaldUse, LogFormat, LogLevel, ModeName,
    OomNodeEventsName, ProbeGroup, RuntimeEndpoint, Sandbox, Tier, values,
};
use super::spec::{Form, Json, Key, KeySpec, Names, Preset, Scalar, SignalPreset, Type};

/// Origin of defaults.
const KUBELET: &str = "the kubelet's";

/// Origin of thresholds: nodepulse's conditions would otherwise repeat those of the kubelet.
const EARLIER: &str = "reached before the kubelet's";

/// Origin of thresholds on images: the kubelet starts to delete them with 15 % left, until 20 % are
/// left.
const LATER: &str = "reached only if image garbage collection does not free enough";

const HARD_NODE: &[SignalPreset] = &[
    ("memory.available", "100Mi", KUBELET),
    ("nodefs.available", "10%", KUBELET),
    ("nodefs.inodesFree", "5%", KUBELET),
    ("imagefs.available", "15%", KUBELET),
    ("imagefs.inodesFree", "5%", KUBELET),
    // The kubelet has no default.
    ("pid.available", "5%", "still lets an administrator log in"),
];

const HARD_COMPANION: &[SignalPreset] = &[
    // 5 % of a large machine is more than healthy nodes keep available.
    ("memory.available", "min(5%,2Gi)", EARLIER),
    ("nodefs.available", "12%", EARLIER),
    ("nodefs.inodesFree", "8%", EARLIER),
    ("imagefs.available", "12%", LATER),
    // No earlier threshold is needed.
    ("imagefs.inodesFree", "5%", KUBELET),
    ("pid.available", "10%", EARLIER),
];

/// Headings of flags.
const NODE: &str = "Node and API server";
const REGISTRATION: &str = "Registration (node mode)";
const THRESHOLDS: &str = "Thresholds";
const CAPACITY: &str = "Capacity (node mode)";
const HOST: &str = "Host";
const KERNEL: &str = "Kernel and privileges";
const SERVICE: &str = "Service and logs";

/// Types that YAML may read a text as.
const STRING: &[&str] = &["string"];
const NUMBER: &[&str] = &["string", "number"];

pub(super) const RESOURCES: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];

const BOOLEAN: Type<bool> = Type {
    scalar: Scalar {
        name: "boolean",
        json: Json::Boolean,
    },
    parse: checks::boolean,
};
const COUNT: Type<Option<u32>> = Type {
    scalar: integer("whole number", 0, checks::MAX_COUNT),
    parse: checks::count,
};
const PORT: Type<Option<u16>> = Type {
    scalar: integer("port", 0, 65_535),
    parse: checks::port,
};
const QUEUE: Type<usize> = Type {
    scalar: integer("whole number from 1 to 10000", 1, checks::MAX_QUEUE),
    parse: checks::queue,
};
const FREQUENCY: Type<usize> = Type {
    scalar: integer("whole number from 1 to 1000", 1, checks::MAX_FREQUENCY),
    parse: checks::frequency,
};
const TEXT: Type<String> = Type::text(NUMBER, "text", "", checks::any);
const PATH: Type<PathBuf> = Type::text(STRING, "path", "", checks::path);
const DIRECTORY: Type<PathBuf> = Type::text(STRING, "path", "^/", checks::absolute);
const URL: Type<Uri> = Type::text(STRING, "URL", "^https?://", checks::url);
const DURATION: Type<Duration> = go_duration(true, duration::parse);
const WINDOW: Type<Duration> = go_duration(false, checks::window);
const FREQUENT_WINDOW: Type<Duration> = go_duration(false, checks::frequent_window);
const SLOW_FOR: Type<Duration> = go_duration(false, checks::slow_for);
const STALLED_AFTER: Type<Duration> = go_duration(false, checks::stalled_after);
const SLOW_LIMIT: Type<SlowLimit> = Type::text(
    STRING,
    "duration or `auto`",
    r"^(auto|\+?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$",
    checks::slow_limit,
);
const PERIOD: Type<Option<Duration>> = go_duration(true, checks::period);
const INTERVAL: Type<Option<Duration>> = go_duration(true, checks::interval);
const PERCENT: Type<f32> = Type::text(
    STRING,
    "percentage",
    r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)\s*%$",
    checks::percent,
);
const THRESHOLD: Type<String> = Type::text(
    NUMBER,
    "quantity, percentage or `min(PERCENTAGE,QUANTITY)`",
    concat!(
        r"^(\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+|%)?",
        r"|min\( *([0-9]+(\.[0-9]*)?|\.[0-9]+)% *",
        r", *([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)? *\))$",
    ),
    checks::any,
);
const RECLAIM: Type<String> = Type::text(
    NUMBER,
    "quantity or percentage",
    r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+|%)?$",
    checks::any,
);
const QUANTITY: Type<Quantity> = Type::text(
    NUMBER,
    "quantity",
    r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$",
    checks::reservation,
);

const fn integer(name: &'static str, min: u32, max: u32) -> Scalar {
    let json = Json::Integer { min, max };
    Scalar { name, json }
}

const fn go_duration<T>(zero: bool, parse: fn(&str) -> Result<T, String>) -> Type<T> {
    let json = Json::Duration { zero };
    let name = "duration";
    Type {
        scalar: Scalar { name, json },
        parse,
    }
}

const fn one_of<T: ValueEnum>() -> Type<T> {
    named::<T, T>()
}

/// A closed set of values, by the names of `N`.
const fn named<N: ValueEnum + Into<T>, T>() -> Type<T> {
    let name = "";
    let json = Json::Values(values::<N>);
    Type {
        scalar: Scalar { name, json },
        parse: checks::one_of::<N, T>,
    }
}

const LABELS: Names = any("label");
const CSI_DRIVERS: Names = any("CSI driver");
const SIGNALS: Names = Names {
    of: "signal",
    known: || {
        let known = Signal::ALL.into_iter().filter(|one| !one.is_derived());
        known.map(Signal::as_str).chain(IGNORED_SIGNALS).collect()
    },
};
const CONDITIONS: Names = Names {
    of: "condition type",
    known: || {
        NodepulseCondition::ALL
            .map(NodepulseCondition::type_)
            .into()
    },
};
const RESERVED: Names = Names {
    of: "resource",
    known: || RESOURCES.into(),
};

const fn any(of: &'static str) -> Names {
    let known = Vec::new;
    Names { of, known }
}

/// Generates a static for each row, [`KEYS`], and [`Overrides`].
macro_rules! keys {
    ($($field:ident: $type:ty = $key:expr;)*) => {
        /// The keys, each named like its field of [`Overrides`].
        #[expect(non_upper_case_globals, reason = "one name for the key and its field")]
        pub(crate) mod key {
            use super::*;

            $(pub(crate) static $field: Key<$type> = $key;)*
        }

        /// Every key, in the order of help and documentation.
        pub static KEYS: &[&KeySpec] = &[$(&key::$field.spec,)*];

        /// Values of the flags; `None` if not set. Lists and maps are in the flag form:
        /// `memory.available<1Gi,pid.available<5%` for thresholds, `key=value,…` for other maps,
        /// `key=value:effect,…` for taints, and `type=effect,…` for taints of conditions.
        #[derive(Debug, Clone, Default)]
        pub struct Overrides {
            /// `--config`: the file, which must exist.
            pub config: Option<PathBuf>,
            /// Files of `drop_in_directory`, sorted by name. Each overrides those before
            /// it and the file.
            pub drop_ins: Vec<PathBuf>,
            /// `--kubelet-config`: a `KubeletConfiguration`, overridden by the other files.
            pub kubelet_config: Option<PathBuf>,
            $(pub $field: Option<String>,)*
        }

        impl Overrides {
            /// The field of a key in [`KEYS`].
            pub fn field(&mut self, key: &KeySpec) -> Option<&mut Option<String>> {
                let mut fields = [$((key::$field.spec.name, &mut self.$field),)*].into_iter();
                fields.find(|(name, _)| *name == key.name).map(|(_, field)| field)
            }

            /// The value of a flag.
            pub(super) fn get(&self, key: &KeySpec) -> Option<&String> {
                let mut fields = [$((key::$field.spec.name, &self.$field),)*].into_iter();
                fields.find(|(name, _)| *name == key.name)?.1.as_ref()
            }
        }
    };
}

keys! {
    mode: Mode = named::<ModeName, _>()
        .key("mode", "Write conditions alongside a kubelet, or manage the whole Node")
        .default("companion", "safe alongside a kubelet: writes nothing that a kubelet writes")
        .flag("MODE").heading(NODE).common();
    kubeconfig: PathBuf = PATH
        .key("kubeconfig", "Kubeconfig for the API server; without it nothing is sent, except in a pod")
        .details("A pod uses its service account if this is not set.")
        .example("/etc/nodepulse/kubeconfig").flag("FILE").heading(NODE).common();
    bootstrap_kubeconfig: PathBuf = PATH
        .key("bootstrapKubeconfig",
             "Node mode: kubeconfig with which the node's first client certificate is requested")
        .details("If the file `kubeconfig` is missing or invalid, it is written, with the server of this \
                  file and the certificate in `certDir`. The certificate is requested if there is none that \
                  is valid, and replaced at a random point between 70% and 90% of its life. See \
                  [security.md](security.md#client-certificate-in-node-mode).")
        .example("/etc/nodepulse/bootstrap-kubeconfig").flag("FILE").heading(REGISTRATION);
    cert_dir: PathBuf = DIRECTORY
        .key("certDir", "Node mode: directory of the requested client certificate and its key")
        .details("The files have the names and the form of a kubelet's: `kubelet-client-current.pem` is a \
                  link to the newest. It is created if it is missing. Used only with `bootstrapKubeconfig`.")
        .default("/var/lib/nodepulse/pki", "kept across reboots, and no directory of a kubelet")
        .flag("DIR").heading(REGISTRATION);
    node_name: String = TEXT
        .key("nodeName", "Name of the Node")
        .details("It is converted to lower case, and must be a DNS-1123 subdomain of at most 63 characters.")
        .preset(Preset::Derived("`NODE_NAME`, else the host name"))
        .example("worker-1").other_variable("NODE_NAME").flag("NAME").heading(NODE).common();
    node_ip: Vec<std::net::IpAddr> = Type::text(STRING, "one or two addresses", "", checks::node_ips)
        .key("nodeIP", "Addresses of the node: one, or one of each family")
        .details("`0.0.0.0` or `::` alone selects the family.")
        .preset(Preset::Derived("from the host name, else the default route"))
        .example("192.0.2.10,2001:db8::10").live().flag("IP[,IP]").heading(REGISTRATION);
    node_labels: String = Type::text(&["string", "number", "boolean"], "text", "", checks::any)
        .map(LABELS, "nodeLabels", "Labels of a new Node")
        .details("Under `kubernetes.io` and `k8s.io` only those that a node may set on itself.")
        .example("{example.com/rack: r7}").flag("KEY=VALUE,…").heading(REGISTRATION);
    register_with_taints: String = Key::new(
            Form::Taints, checks::any, "registerWithTaints", "Taints of a new Node"
        )
        .example("[{key: dedicated, value: edge, effect: NoSchedule}]").kubelet()
        .flag("KEY=VALUE:EFFECT,…").heading(REGISTRATION);
    conditions: bool = BOOLEAN
        .map(CONDITIONS, "conditions", "Companion mode: which of nodepulse's conditions are written")
        .details("A condition that is turned off is removed from the Node.")
        .preset(Preset::Derived(
            "all `true`, but `FrequentOOMKills`, `DiskStallPressure`, `PodsMemoryStallPressure` and \
             `PodsDiskStallPressure`",
        ))
        .example("{MemoryStallPressure: false, FrequentOOMKills: true}").live();
    taints: String = Key::new(
            Form::ConditionTaints, checks::any, "taints",
            "Companion mode: taints of the Node while a condition is True"
        )
        .details("`NoExecute` is refused except for `MemoryLow` and `DiskFailing`: evicted pods would take their load to the next \
                  node.")
        .example("{MemoryLow: NoExecute, DiskIOPressure: {effect: NoSchedule, key: example.com/slow}}");
    eviction_hard: String = THRESHOLD
        .map(SIGNALS, "evictionHard", "Hard eviction thresholds: a condition becomes True below them")
        .details("`0%` and `100%` turn a threshold off. `min(5%,2Gi)` is the smaller of both, which a \
                  kubelet's file cannot express.")
        .separator('<')
        .preset(Preset::Signals { node: HARD_NODE, companion: HARD_COMPANION })
        .example("{memory.available: 100Mi, nodefs.available: 10%}").live().kubelet()
        .flag("SIGNAL<VALUE,…").heading(THRESHOLDS);
    eviction_soft: String = THRESHOLD
        .map(SIGNALS, "evictionSoft",
             "Soft eviction thresholds, which reserve nothing; each requires a grace period")
        .separator('<').example("{memory.available: 10%}").live().kubelet().flag("SIGNAL<VALUE,…").heading(THRESHOLDS);
    eviction_soft_grace_period: Duration = DURATION
        .map(SIGNALS, "evictionSoftGracePeriod",
             "Grace periods of soft thresholds; they do not delay conditions")
        .details("The key is accepted so that a file can be shared with a kubelet, where it delays evictions.")
        .example("{memory.available: 1m30s}").live().kubelet().flag("SIGNAL=DURATION,…").heading(THRESHOLDS);
    eviction_minimum_reclaim: String = RECLAIM
        .map(SIGNALS, "evictionMinimumReclaim",
             "Amount by which a signal must exceed its threshold again")
        .details("Until then, the condition does not become False.")
        .example("{nodefs.available: 500Mi}").live().kubelet().flag("SIGNAL=VALUE,…").heading(THRESHOLDS);
    merge_default_eviction_settings: bool = BOOLEAN
        .key("mergeDefaultEvictionSettings", "Keep the default of each signal that `evictionHard` omits")
        .default("true", "omitted signals keep their defaults").live().kubelet();
    eviction_pressure_transition_period: Option<Duration> = PERIOD
        .key("evictionPressureTransitionPeriod",
             "How long a condition stays True after its threshold is no longer exceeded")
        .details("A restart of the agent does not prolong it.")
        .default("5m", KUBELET).live().kubelet().flag("DURATION").heading(THRESHOLDS);
    register_node: bool = BOOLEAN
        .key("registerNode", "Create the Node if it does not exist")
        .default("true", KUBELET).kubelet().flag("BOOL").heading(REGISTRATION);
    provider_id: String = TEXT
        .key("providerID", "`spec.providerID` of a new Node")
        .example("metal://rack-7/host-3").kubelet().flag("ID").heading(REGISTRATION);
    enable_controller_attach_detach: bool = BOOLEAN
        .key("enableControllerAttachDetach", "Let the controller manager attach and detach volumes")
        .details("`false` omits the annotation that it reads.")
        .default("true", KUBELET).kubelet().flag("BOOL").heading(REGISTRATION);
    node_status_update_frequency: Option<Duration> = INTERVAL
        .key("nodeStatusUpdateFrequency", "Interval at which the node status is computed")
        .details("A changed status is then sent; a condition that becomes True is sent at once.")
        .default("10s", KUBELET).kubelet().flag("DURATION").heading(REGISTRATION);
    node_status_report_frequency: Option<Duration> = INTERVAL
        .key("nodeStatusReportFrequency", "Interval at which an unchanged status is sent")
        .details("After a change, once after half of it to one and a half times, at random. \
                  If only `nodeStatusUpdateFrequency` is set, its value applies to both.")
        .default("5m", KUBELET).kubelet();
    node_lease_duration_seconds: Option<u32> = COUNT
        .key("nodeLeaseDurationSeconds", "Duration of the Lease, which is renewed after a quarter of it")
        .details("A quarter of it is also the timeout of each request.")
        .default("40", KUBELET).kubelet();
    max_pods: Option<u32> = COUNT
        .key("maxPods", "Maximum number of pods (capacity `pods`)")
        .default("110", KUBELET).live().kubelet().flag("NUMBER").heading(CAPACITY);
    pods_per_core: Option<u32> = COUNT
        .key("podsPerCore", "Maximum number of pods per core; 0 means no limit")
        .default("0", KUBELET).example("10").live().kubelet().flag("NUMBER").heading(CAPACITY);
    port: Option<u16> = PORT
        .key("port", "Port in the Node's `daemonEndpoints`; nodepulse does not listen on it")
        .example("10250").live();
    volume_limits: Option<u32> = COUNT
        .map(CSI_DRIVERS, "volumeLimits", "Number of attachable volumes by CSI driver")
        .details("Sets `attachable-volumes-csi-…` of capacity and allocatable; current schedulers read \
                  the `CSINode` instead.")
        .example("{disk.csi.example.com: 16}").live();
    kubernetes_version: String = Type::text(STRING, "version", r"^v?[0-9]+\.[0-9]+\.[0-9]+$", checks::version)
        .key("kubernetesVersion", "First part of `kubeletVersion`")
        .details("A kubelet may not be newer than the API server.")
        .preset(Preset::Derived("v1.36.0, or the release of an older API server"))
        .example("v1.35.0").live();
    system_reserved: Quantity = QUANTITY
        .map(RESERVED, "systemReserved", "Resources reserved for the system, subtracted from allocatable")
        .details("`pid` is accepted without effect. Node mode does not start if more processors or \
                  memory (including `evictionHard`) are reserved than exist.")
        .example("{cpu: 500m, memory: 1Gi}").live().kubelet().flag("NAME=QUANTITY,…").heading(CAPACITY);
    kube_reserved: Quantity = QUANTITY
        .map(RESERVED, "kubeReserved", "Resources reserved for Kubernetes, subtracted from allocatable")
        .details("They are added to `systemReserved`.")
        .example("{cpu: 500m, memory: 1Gi}").live().kubelet().flag("NAME=QUANTITY,…").heading(CAPACITY);
    reserved_system_cpus: Option<u64> = Type::text(NUMBER, "list of CPUs", r"^[0-9, -]*$", checks::cpus)
        .key("reservedSystemCPUs", "CPUs reserved for the system and Kubernetes")
        .details("Their number replaces the reservations of `cpu`.")
        .example("0-3,8").alias("reserved-cpus").live().kubelet().flag("CPUS").heading(CAPACITY);
    take_over: bool = BOOLEAN
        .key("takeOver", "Start although a kubelet appears to manage this node")
        .details("Only node mode checks that.")
        .default("false", "two agents on one Node overwrite each other").switch().heading(NODE);
    allow_ready_without_runtime: bool = BOOLEAN
        .key("allowReadyWithoutRuntime", "Report Ready without a container runtime")
        .details("A new Node gets a taint.")
        .default("false", "containers cannot run without a runtime").live().switch().heading(NODE);
    runtime_endpoint: RuntimeEndpoint =
        Type::text(STRING, "`auto`, `none`, or `unix://` and a path", "^(auto|none|unix:///.+)$",
                   checks::runtime_endpoint)
        .key("runtime.endpoint", "Socket of the container runtime (CRI v1); only node mode uses it")
        .details("`auto` tries `/run/containerd/containerd.sock` and `/run/crio/crio.sock` in this order. \
                  Without a runtime (`none`), `Ready` is False.")
        .default("auto", "the usual sockets of containerd and CRI-O")
        .example("unix:///run/containerd/containerd.sock").flag("ENDPOINT").heading(NODE);
    node_status_max_images: Option<usize> =
        Type::text(NUMBER, "whole number or -1", "^(-1|[0-9]+)$", checks::max_images)
        .key("nodeStatusMaxImages", "Maximum number of images in the node status")
        .details("The largest are reported. -1 means 10,000, more than a Node has room for.")
        .default("50", KUBELET).kubelet();
    cgroup_root: PathBuf = DIRECTORY
        .key("cgroupRoot", "Parent of the pods cgroup")
        .default("/", KUBELET).kubelet_empty_is_unset().flag("PATH").heading(HOST);
    cgroup_driver: CgroupDriver = one_of()
        .key("cgroupDriver", "The kubelet's cgroup driver, which names the pods cgroup")
        .details("Its name is `kubepods.slice` or `kubepods`. If unset, the one that contains processes is used until \
                  a restart. Until then it is searched for at each memory sample: the one that exists is \
                  used; if both exist, the one that contains processes, otherwise `kubepods.slice`, with \
                  one warning.")
        .preset(Preset::Derived("detected"))
        .example("systemd").kubelet_empty_is_unset().flag("DRIVER").heading(HOST);
    enforce_node_allocatable: Enforced = one_of()
        .list("enforceNodeAllocatable", "With `pods`, thresholds apply to the pods cgroup too")
        .details("These are the thresholds of memory and pids; no cgroup is written.")
        .preset(Preset::List { texts: &["pods"], from: KUBELET })
        .example("[pods]").live().kubelet().flag("NAME,…").heading(THRESHOLDS);
    host_root: PathBuf = DIRECTORY
        .key("hostRoot", "Directory at which the node's `/` is mounted")
        .default("/", "the agent runs on the node itself").example("/host");
    root_directory: PathBuf = DIRECTORY
        .key("rootDirectory", "The kubelet's root directory, on nodefs")
        .default("/var/lib/kubelet", "the kubelet's --root-dir").flag("DIR").heading(HOST);
    imagefs_directory: PathBuf = DIRECTORY
        .key("imagefsDirectory", "Directory of the container images; its file system is imagefs")
        .details("If it is on nodefs or does not exist, only the thresholds of nodefs apply.")
        .preset(Preset::Derived(
            "the one that the container runtime reports, in node mode; otherwise the first of \
             `/var/lib/containerd` and `/var/lib/containers/storage` that is not on nodefs"
        ))
        .example("/var/lib/rancher/k3s/agent/containerd");
    kernel_tier: Tier = one_of()
        .key("kernel.tier", "Source of kernel data: eBPF, kernel log or files")
        .details("`btf` refuses to start without eBPF programs.")
        .default("auto", "the best tier that the kernel supports").flag("TIER").heading(KERNEL).common();
    kernel_probes: ProbeGroup = Type { parse: checks::nearest_of, ..one_of() }
        .list("kernel.probes", "Groups of eBPF programs that may be attached")
        .preset(Preset::List {
            texts: &["oom", "scope", "pids", "disks"],
            from: "all that the kernel supports",
        })
        .example("[oom, pids, disks]");
    disk_io_solid_state_slow: SlowLimit = SLOW_LIMIT
        .key("diskIO.solidState.slow", "Duration from which a request to a solid-state disk is slow")
        .details("`auto` is the larger of 20 ms (100 ms for a rotational disk) and four times the 99.9th \
                  percentile of the disk's own latency over the last day, but at most 200 ms (1 s). It is \
                  computed once an hour; with fewer than 5,000 requests in the day, the 20 ms (100 ms) apply.")
        .default("auto", "20ms is above the latency of a healthy solid-state disk").example("20ms").live();
    disk_io_rotational_slow: SlowLimit = SLOW_LIMIT
        .key("diskIO.rotational.slow", "Duration from which a request to a rotational disk is slow")
        .details("As `diskIO.solidState.slow`.")
        .default("100ms", "several full seeks and rotations of a rotational disk").live();
    disk_io_devices: SlowLimit = Key::new(
            Form::Disks, checks::slow_limit, "diskIO.devices",
            "Duration from which a request is slow, or `auto`, by the name of a disk in `/sys/block`"
        )
        .example("{sda: {slow: 50ms}}").live();
    disk_io_slow_for: Duration = SLOW_FOR
        .key("diskIO.slowFor", "How long a disk must be slow, within twice that time, before `DiskIOPressure` \
                                becomes True")
        .details("From 1s to 10m.")
        .default("15s", "longer than a bulk write of a healthy disk delays other requests").live();
    disk_io_min_stall: f32 = PERCENT
        .key("diskIO.minStall", "Share of the time for which tasks other than the main user of the disk must \
                                 wait for I/O")
        .details("The largest PSI `some` avg10 of the other pods and system slices; on cgroup v1 that of the \
                  node. Without PSI it has no effect.")
        .default("10%", "tasks that wait less are hardly slower").live();
    disk_io_stalled_after: Duration = STALLED_AFTER
        .key("diskIO.stalledAfter", "How long a disk with requests in flight must complete none before \
                                     `DiskFailing` becomes True")
        .details("From 2s to 10m.")
        .default("10s", "longer than error recovery and full caches of healthy disks").live();
    disk_io_window: Duration = WINDOW
        .key("diskIO.window", "Interval over which the share of slow requests is calculated")
        .details("From 1s to 1m.")
        .default("1s", "the slowest healthy disk completes five requests in it").live();
    disk_io_raises_disk_pressure: bool = BOOLEAN
        .key("diskIO.raisesDiskPressure",
             "Slow disks also set `DiskPressure`, and with it the control plane's taint")
        .default("false", "DiskPressure keeps the kubelet's meaning").live();
    psi_enabled: bool = BOOLEAN
        .key("psi.enabled", "Use pressure stall information")
        .default("true", "a trigger that does not fire costs nothing");
    psi_memory: f32 = PERCENT
        .key("psi.memory", "Share of the time for which tasks wait for memory during a stall")
        .details("It must be reached over 10 s and over a minute (PSI `some`).")
        .default("15%", "reclaim on a node with enough memory stays below it");
    psi_io: f32 = PERCENT
        .key("psi.io", "Share of the time for which tasks wait for I/O during a stall")
        .details("As `psi.memory`.")
        .default("40%", "KEP-5394's");
    oom_node_events: OomNodeEvents = Type::text(
            &["string", "boolean"], "`auto`, `true` or `false`", "^(auto|true|false)$",
            checks::one_of::<OomNodeEventsName, _>
        )
        .key("oom.nodeEvents", "Record OOM kills outside pods, and of the whole node, as Events on the Node")
        .details("`auto` turns them off in companion mode while node-problem-detector records them.")
        .default("auto", "each kill is recorded once").example("false").live();
    oom_name_pods: bool = BOOLEAN
        .key("oom.namePods",
             "Name the pods that used most memory in the Event of a kill at the limit of the node \
              or of all pods")
        .details("The Event is on the Pod that was killed, so its owner reads the names of other \
                  tenants' pods. If this is off, it has their sizes only.")
        .default("true", "the names are what a reader needs");
    oom_frequent_incidents: usize = FREQUENCY
        .key("oom.frequent.incidents", "Number of OOM incidents that makes `FrequentOOMKills` True")
        .details("One decision of the kernel is one incident, however many processes die.")
        .default("5", "more than one pod that restarts after each kill").live();
    oom_frequent_pods: usize = FREQUENCY
        .key("oom.frequent.pods", "Number of different pods in which these incidents must be")
        .details("At most `oom.frequent.incidents`.")
        .default("3", "the kills of one workload concern its owner, not the node").live();
    oom_frequent_window: Duration = FREQUENT_WINDOW
        .key("oom.frequent.window", "Time within which these incidents must be")
        .details("From 1s to 24h.")
        .default("10m", "two restarts of a pod in `CrashLoopBackOff`").live();
    events_queue: usize = QUEUE
        .key("events.queue", "Number of Events that may wait while the API server is unavailable")
        .details("Each takes up to 2 KiB. With a history whose disk keeps up, about 64 are about incidents: further ones wait there.")
        .default("1000", KUBELET);
    serve_address: Option<std::net::SocketAddr> =
        Type::text(STRING, "address and port, or `off`", "^(off|.+:[0-9]+)$", checks::listen)
        .key("serve.address", "Address of the metrics and health endpoints")
        .details("`off` also turns off port 10248.")
        .default("127.0.0.1:20260",
                 "the node itself: metrics are visible to every client of the port")
        .live().flag("ADDRESS:PORT|off").heading(SERVICE).common();
    serve_per_pod_metrics: bool = BOOLEAN
        .key("serve.perPodMetrics", "Serve metrics with names of pods: `nodepulse_pod_oom_kills_total`")
        .details("Every client that can reach the port can read them.")
        .default("false", "names of pods are visible to every client of the port").live();
    sandbox: Sandbox = one_of()
        .key("sandbox", "Drop privileges after start-up")
        .default("auto", "all that the kernel supports, with a warning otherwise").flag("SANDBOX").heading(KERNEL);
    state_directory: PathBuf = DIRECTORY
        .key("stateDirectory", "Directory of the state file and the control socket")
        .details("The file `state` (text, one entry a line) is for the next start in the same boot: for \
                  how many kills of each pod the Event was acknowledged (`cgroup`; `uncounted` if kills \
                  could not be counted) and when each condition's threshold was last exceeded \
                  (`exceeded`, nanoseconds since boot, or `never`). Without it, a condition that is True \
                  on the Node is kept for one transition period. The file `incidents` (256 KiB) has the \
                  last incidents until they are in `historyDirectory`, if this directory is on tmpfs.")
        .default("/run/nodepulse", "removed at reboot, as the state applies to one boot")
        .flag("DIR").heading(SERVICE);
    history_directory: Option<PathBuf> =
        Type::text(STRING, "path, or `off`", "^(off|/.*)$", checks::directory_or_off)
        .key("historyDirectory", "Directory in which incidents are recorded, for `nodepulse history`")
        .details("At most 4 MiB; the oldest are removed. The black box is here as well, with 64 KiB.")
        .default("/var/lib/nodepulse/history", "kept across reboots")
        .flag("DIR|off").heading(SERVICE);
    sinks_journald: JournaldUse = one_of()
        .key("sinks.journald", "Record incidents in systemd's journal")
        .details("`journalctl --unit UNIT` then has those of a unit.")
        .default("auto", "outside of containers, if there is a journal").flag("USE").heading(SERVICE);
    sinks_otlp_endpoint: Uri = URL
        .key("sinks.otlp.endpoint", "OpenTelemetry collector to which incidents are sent, as logs over OTLP/HTTP")
        .details("`/v1/logs` is added to a URL without a path.")
        .example("http://127.0.0.1:4318").flag("URL").heading(SERVICE);
    sinks_otlp_headers_file: PathBuf = DIRECTORY
        .key("sinks.otlp.headersFile", "File with headers for the collector, one `Name: value` in each line")
        .details("It must be readable for its owner only.")
        .example("/etc/nodepulse/otlp-headers");
    sinks_webhooks: WebhookConfig = Key::new(
            Form::Webhooks(one_of::<IncidentKind>().scalar), checks::webhook, "sinks.webhooks",
            "Webhooks to which incidents are sent, as CloudEvents in JSON, at most four"
        )
        .details("`headersFile` is like that of the collector. Without `kinds`, all are sent. In flags and \
                  variables: `URL kinds=KIND+KIND headersFile=FILE`, of which only the URL is required. A \
                  webhook is known by its place in the list: add new ones at the end.")
        .example("[{url: \"https://alerts.example.com/nodepulse\", kinds: [OOMKill, Condition]}]")
        .flag("URL,…").heading(SERVICE);
    sinks_ca_file: PathBuf = DIRECTORY
        .key("sinks.caFile", "Certificates, in PEM, of the authorities that sign those of the receivers")
        .details("Without it, those of the host or the container image.")
        .example("/etc/nodepulse/receivers.pem");
    black_box_sync: BlackBoxSync = one_of()
        .key("blackBox.sync", "When the black box in `historyDirectory` is synchronised with the disk")
        .details("It shows how the last boot ended: `nodepulse history --boot=-1`.")
        .default("auto", "it survives a power cut").heading(SERVICE);
    log_level: LogLevel = one_of()
        .key("log.level", "Log level")
        .default("info", "a few lines per hour on an idle node").live().flag("LEVEL").heading(SERVICE).common();
    log_format: LogFormat = one_of()
        .key("log.format", "Log format")
        .default("text", "readable with `kubectl logs`").example("json").live().flag("FORMAT").heading(SERVICE);
}

/// Keys of earlier releases, and what to do instead.
pub(super) const REMOVED: [(&str, &str); 1] = [(
    "oom.earlyWarning",
    "delete it, and alert on container_memory_working_set_bytes to be warned before a kill",
)];

/// Keys of the kubelet's server on port 10250, which nodepulse does not have. They are accepted
/// without effect, so that a file can be shared.
pub const SERVER_KEYS: [&str; 18] = [
    "address",
    "authentication",
    "authorization",
    "enableContentionProfiling",
    "enableDebugFlagsHandler",
    "enableDebuggingHandlers",
    "enableProfilingHandler",
    "enableServer",
    "enableSystemLogHandler",
    "enableSystemLogQuery",
    "readOnlyPort",
    "serverTLSBootstrap",
    "streamingConnectionIdleTimeout",
    "tlsCertFile",
    "tlsCipherSuites",
    "tlsCurvePreferences",
    "tlsMinVersion",
    "tlsPrivateKeyFile",
];
