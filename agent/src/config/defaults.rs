//! Every default with its origin.

use super::layers::Preset;

/// Default path of the configuration file, which may not exist.
pub(super) const FILE: &str = "/etc/nodepulse/config.yaml";

/// Directory of drop-in files, next to the configuration file.
pub(super) const DROP_INS: &str = "conf.d";

const fn preset(text: &'static str, from: &'static str) -> Preset {
    Preset { text, from }
}

pub(super) const MODE: Preset = preset(
    "companion",
    "safe alongside a kubelet: writes nothing that a kubelet writes",
);

pub(super) const HOST_ROOT: Preset = preset("/", "the agent runs on the node itself");

pub(super) const ROOT_DIRECTORY: Preset = preset("/var/lib/kubelet", "the kubelet's --root-dir");

/// In a container, a mounted directory of the node.
pub(super) const STATE_DIRECTORY: Preset = preset(
    "/run/nodepulse",
    "removed at reboot, as the state applies to one boot",
);

pub(super) const CGROUP_ROOT: Preset = preset("/", "the kubelet's");

pub(super) const ENFORCED: Preset = preset("pods", "the kubelet's");

/// The kubelet has no default for `pid.available`; this share still lets an administrator log in.
pub(super) const HARD_NODE: [(&str, Preset); 6] = [
    ("memory.available", preset("100Mi", "the kubelet's")),
    ("nodefs.available", preset("10%", "the kubelet's")),
    ("nodefs.inodesFree", preset("5%", "the kubelet's")),
    ("imagefs.available", preset("15%", "the kubelet's")),
    ("imagefs.inodesFree", preset("5%", "the kubelet's")),
    (
        "pid.available",
        preset("5%", "still lets an administrator log in"),
    ),
];

/// nodepulse's conditions would otherwise repeat those of the kubelet.
const EARLIER: &str = "reached before the kubelet's";

pub(super) const HARD_COMPANION: [(&str, Preset); 6] = [
    ("memory.available", preset("5%", EARLIER)),
    ("nodefs.available", preset("15%", EARLIER)),
    ("nodefs.inodesFree", preset("8%", EARLIER)),
    ("imagefs.available", preset("20%", EARLIER)),
    // No earlier threshold is needed.
    ("imagefs.inodesFree", preset("5%", "the kubelet's")),
    ("pid.available", preset("10%", EARLIER)),
];

pub(super) const MERGE_EVICTION: Preset = preset("true", "omitted signals keep their defaults");

pub(super) const TRANSITION_PERIOD: Preset = preset("5m", "the kubelet's");

pub(super) const UPDATE_FREQUENCY: Preset = preset("10s", "the kubelet's");

/// If the update frequency is not set either.
pub(super) const REPORT_FREQUENCY: Preset = preset("5m", "the kubelet's");

pub(super) const LEASE_SECONDS: Preset = preset("40", "the kubelet's");

pub(super) const TAKE_OVER: Preset = preset("false", "two agents on one Node overwrite each other");

pub(super) const REGISTER_NODE: Preset = preset("true", "the kubelet's");

pub(super) const ATTACH_DETACH: Preset = preset("true", "the kubelet's");

pub(super) const MAX_PODS: Preset = preset("110", "the kubelet's");

/// No limit per core.
pub(super) const PODS_PER_CORE: Preset = preset("0", "the kubelet's");

/// The disk hook's.
pub(super) const SOLID_STATE_SLOW: Preset =
    preset("20ms", "above the latency of a healthy solid-state disk");

/// The disk hook's.
pub(super) const ROTATIONAL_SLOW: Preset = preset(
    "100ms",
    "several full seeks and rotations of a rotational disk",
);

/// The disk hook's.
pub(super) const DISK_WINDOW: Preset = preset(
    "1s",
    "the slowest healthy disk completes five requests in it",
);

pub(super) const RAISES_DISK_PRESSURE: Preset =
    preset("false", "DiskPressure keeps the kubelet's meaning");

pub(super) const STALLS: Preset = preset("true", "a trigger that does not fire costs nothing");

/// In percent of time.
pub(super) const STALL_THRESHOLD: Preset = preset("40%", "KEP-5394's");

pub(super) const OOM_NODE_EVENTS: Preset = preset(
    "true",
    "set to false if another agent reports OOM kills, such as node-problem-detector",
);

pub(super) const RUNTIME: Preset = preset("none", "nodepulse does not use a container runtime");

pub(super) const ALLOW_READY: Preset = preset("false", "containers cannot run without a runtime");

pub(super) const KUBERNETES_VERSION: Preset = preset(
    "v1.33.0",
    "the release whose node status behaviour nodepulse implements",
);

pub(super) const TIER: Preset = preset("auto", "the best tier that the kernel supports");

pub(super) const PROBES: [Preset; 4] = {
    const ALL: &str = "all that the kernel supports";
    [
        preset("oom", ALL),
        preset("scope", ALL),
        preset("pids", ALL),
        preset("disks", ALL),
    ]
};

pub(super) const EVENT_QUEUE: Preset = preset("1000", "the kubelet's");

pub(super) const PER_POD_METRICS: Preset = preset(
    "false",
    "names of pods are visible to every client of the port",
);

pub(super) const SERVE: Preset = preset(
    "127.0.0.1:20260",
    "the node itself: metrics are visible to every client of the port",
);

pub(super) const SANDBOX: Preset = preset(
    "auto",
    "all that the kernel supports, with a warning otherwise",
);

pub(super) const LOG_LEVEL: Preset = preset("info", "a few lines per hour on an idle node");

pub(super) const LOG_FORMAT: Preset = preset("text", "readable with `kubectl logs`");
