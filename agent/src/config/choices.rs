//! Keys with a closed set of values: each value as it is written, and its meaning.
//!
//! The command line completes and checks flags with the same tables.

use super::{LogFormat, LogLevel, Mode, ProbeGroup, Sandbox, Tier};

/// `mode`.
pub const MODE: [(&str, Mode); 2] = [("companion", Mode::Companion), ("node", Mode::Node)];

/// `cgroupDriver`, with the kubelet's name of the pods cgroup. Most clusters use systemd.
pub const CGROUP_DRIVER: [(&str, &str); 2] =
    [("systemd", "kubepods.slice"), ("cgroupfs", "kubepods")];

/// `enforceNodeAllocatable`: whether a value includes the pods cgroup.
pub const ENFORCED: [(&str, bool); 6] = [
    ("none", false),
    ("pods", true),
    ("system-reserved", false),
    ("system-reserved-compressible", false),
    ("kube-reserved", false),
    ("kube-reserved-compressible", false),
];

/// `kernel.tier`.
pub const TIER: [(&str, Tier); 4] = [
    ("auto", Tier::Auto),
    ("btf", Tier::Btf),
    ("kmsg", Tier::Kmsg),
    ("files", Tier::Files),
];

/// `kernel.probes`.
pub const PROBES: [(&str, ProbeGroup); 4] = [
    ("oom", ProbeGroup::Oom),
    ("scope", ProbeGroup::Scope),
    ("pids", ProbeGroup::Pids),
    ("disks", ProbeGroup::Disks),
];

/// `sandbox`.
pub const SANDBOX: [(&str, Sandbox); 3] = [
    ("auto", Sandbox::Auto),
    ("off", Sandbox::Off),
    ("require", Sandbox::Require),
];

/// `log.level`.
pub const LOG_LEVEL: [(&str, LogLevel); 5] = [
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
    ("trace", LogLevel::Trace),
];

/// `log.format`.
pub const LOG_FORMAT: [(&str, LogFormat); 2] =
    [("text", LogFormat::Text), ("json", LogFormat::Json)];

/// Keys that are true or false.
pub const BOOLEAN: [(&str, bool); 2] = [("true", true), ("false", false)];
