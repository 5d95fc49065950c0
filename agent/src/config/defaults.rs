//! Every default, and where it comes from.

use super::layers::Preset;

/// Where the file is looked for when nobody names one. There it may be missing.
pub(super) const FILE: &str = "/etc/nodepulse/config.yaml";

/// Beside the file: what is merged over it.
pub(super) const PARTS: &str = "conf.d";

const fn preset(text: &'static str, from: &'static str) -> Preset {
    Preset { text, from }
}

pub(super) const MODE: Preset = preset(
    "companion",
    "does no harm beside a kubelet: it writes nothing that a kubelet writes",
);

pub(super) const HOST_ROOT: Preset = preset("/", "the agent runs on the node itself");

pub(super) const ROOT_DIRECTORY: Preset = preset("/var/lib/kubelet", "the kubelet's --root-dir");

/// In a container: a directory of the node, mounted there.
pub(super) const STATE_DIRECTORY: Preset =
    preset("/run/nodepulse", "gone with the boot that it tells of");

pub(super) const CGROUP_ROOT: Preset = preset("/", "the kubelet's");

pub(super) const ENFORCED: Preset = preset("pods", "the kubelet's");

/// Also for `pid.available`, which a kubelet leaves without one: the share that still lets an
/// administrator log in.
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

/// Our own conditions would otherwise say nothing that a kubelet does not say.
const EARLIER: &str = "earlier than a kubelet's";

pub(super) const HARD_COMPANION: [(&str, Preset); 6] = [
    ("memory.available", preset("5%", EARLIER)),
    ("nodefs.available", preset("15%", EARLIER)),
    ("nodefs.inodesFree", preset("8%", EARLIER)),
    ("imagefs.available", preset("20%", EARLIER)),
    // Nobody has asked for an earlier one.
    ("imagefs.inodesFree", preset("5%", "the kubelet's")),
    ("pid.available", preset("10%", EARLIER)),
];

pub(super) const MERGE_EVICTION: Preset =
    preset("true", "signals that are left out keep their defaults");

pub(super) const TRANSITION_PERIOD: Preset = preset("5m", "the kubelet's");

pub(super) const UPDATE_FREQUENCY: Preset = preset("10s", "the kubelet's");

/// Where the update frequency is not set either.
pub(super) const REPORT_FREQUENCY: Preset = preset("5m", "the kubelet's");

pub(super) const LEASE_SECONDS: Preset = preset("40", "the kubelet's");

pub(super) const TAKE_OVER: Preset =
    preset("false", "two agents on one Node undo each other's work");

pub(super) const REGISTER_NODE: Preset = preset("true", "the kubelet's");

pub(super) const ATTACH_DETACH: Preset = preset("true", "the kubelet's");

pub(super) const MAX_PODS: Preset = preset("110", "the kubelet's");

/// No such limit.
pub(super) const PODS_PER_CORE: Preset = preset("0", "the kubelet's");

/// The disk hook's.
pub(super) const SOLID_STATE_SLOW: Preset =
    preset("20ms", "a solid-state disk that takes so long is not well");

/// The disk hook's.
pub(super) const ROTATIONAL_SLOW: Preset =
    preset("100ms", "several full strokes and turns of a rotating disk");

/// The disk hook's.
pub(super) const DISK_WINDOW: Preset = preset(
    "1s",
    "the slowest healthy disk finishes five requests in it",
);

pub(super) const RAISES_DISK_PRESSURE: Preset =
    preset("false", "DiskPressure stays what a kubelet means by it");

pub(super) const STALLS: Preset = preset("true", "a trigger that does not fire costs nothing");

/// In percent of the time.
pub(super) const STALL_THRESHOLD: Preset = preset("40%", "KEP-5394's");

pub(super) const OOM_NODE_EVENTS: Preset = preset(
    "true",
    "off is for who has another teller, such as node-problem-detector",
);

pub(super) const RUNTIME: Preset = preset("none", "this agent talks to no container runtime");

pub(super) const ALLOW_READY: Preset = preset("false", "containers cannot run without one");

pub(super) const KUBERNETES_VERSION: Preset = preset(
    "v1.33.0",
    "the release whose node-status behaviour we follow and every supported API server knows",
);

pub(super) const TIER: Preset = preset("auto", "the best that this kernel offers");

pub(super) const PROBES: [Preset; 4] = {
    const ALL: &str = "as good as this kernel allows";
    [
        preset("oom", ALL),
        preset("scope", ALL),
        preset("pids", ALL),
        preset("disks", ALL),
    ]
};

pub(super) const EVENT_QUEUE: Preset = preset("1000", "as many as a kubelet lets wait");

pub(super) const PER_POD_METRICS: Preset = preset(
    "false",
    "names of pods are not for everybody who can reach the port",
);

pub(super) const SERVE: Preset = preset(
    "127.0.0.1:20260",
    "the node itself: metrics tell how it is doing to whoever can reach them",
);

pub(super) const SANDBOX: Preset = preset(
    "auto",
    "all that this kernel can, with a warning for the rest",
);

pub(super) const LOG_LEVEL: Preset = preset("info", "a few lines an hour on a calm node");

pub(super) const LOG_FORMAT: Preset = preset("text", "what `kubectl logs` shows to a person");
