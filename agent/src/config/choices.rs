//! Closed sets of values, named as in the file.

use std::path::PathBuf;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use nodepulse_core::settings::{Mode, OomNodeEvents};

/// The values of `mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ModeName {
    /// Alongside a kubelet: writes nodepulse's conditions and Events.
    Companion,
    /// Without a kubelet: writes the Node, its status and its Lease.
    Node,
}

impl From<ModeName> for Mode {
    fn from(name: ModeName) -> Self {
        match name {
            ModeName::Companion => Self::Companion,
            ModeName::Node => Self::Node,
        }
    }
}

/// The values of `oom.nodeEvents`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum OomNodeEventsName {
    Auto,
    #[value(name = "true")]
    On,
    #[value(name = "false")]
    Off,
}

impl From<OomNodeEventsName> for OomNodeEvents {
    fn from(name: OomNodeEventsName) -> Self {
        match name {
            OomNodeEventsName::Auto => Self::Auto,
            OomNodeEventsName::On => Self::On,
            OomNodeEventsName::Off => Self::Off,
        }
    }
}

/// Source of kernel data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Tier {
    /// The best that this kernel offers.
    Auto,
    /// eBPF, required.
    Btf,
    /// OOM kills from the kernel log, everything else from files.
    Kmsg,
    /// Files only.
    Files,
}

/// Groups of eBPF programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum ProbeGroup {
    /// OOM kills.
    Oom,
    /// The exact scope of OOM kills.
    Scope,
    /// The number of pids.
    Pids,
    /// Disk latency.
    Disks,
}

/// Whether systemd's journal receives incidents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum JournaldUse {
    /// Outside of containers, if there is a journal.
    Auto,
    /// Always, with a warning if there is no journal.
    On,
    /// Never.
    Off,
}

/// Kinds of incidents, by their names in the JSON form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum IncidentKind {
    /// OOM kills.
    #[value(name = "OOMKill")]
    OomKill,
    /// OOM kills of which only the number is known.
    #[value(name = "UnidentifiedOOMKills")]
    UnidentifiedOomKills,
    /// Forks that failed at a limit on tasks.
    RefusedForks,
    /// Volumes whose disk is slow, does not respond or returns errors.
    Volume,
    /// Conditions that have another status.
    Condition,
    /// Ends of boots.
    Boot,
    /// Times in which no agent ran.
    Gap,
}

/// When the black box is synchronised with the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BlackBoxSync {
    /// Once a minute, and every ten seconds while a threshold is near.
    Auto,
    /// Never; the kernel writes it back later.
    Off,
}

/// Whether privileges are dropped after start-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sandbox {
    /// As far as the kernel supports it, with a warning otherwise.
    Auto,
    /// Never.
    Off,
    /// Completely, required.
    Require,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuntimeEndpoint {
    /// The first usual socket that answers.
    Auto,
    /// There is no container runtime.
    None,
    /// This socket of the node.
    Socket(PathBuf),
}

/// The usual sockets of containerd and CRI-O, in the order in which they are tried.
const RUNTIME_SOCKETS: [&str; 2] = ["/run/containerd/containerd.sock", "/run/crio/crio.sock"];

impl RuntimeEndpoint {
    /// The sockets to try, on the node. Empty without a runtime.
    pub fn sockets(&self) -> Vec<PathBuf> {
        match self {
            Self::Auto => RUNTIME_SOCKETS.map(PathBuf::from).into(),
            Self::None => Vec::new(),
            Self::Socket(path) => vec![path.clone()],
        }
    }
}

/// Minimum level of log messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Format of log messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Plain text.
    Text,
    /// One JSON object per line.
    Json,
}

/// The kubelet's cgroup driver. Most clusters use systemd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CgroupDriver {
    /// The pods cgroup is `kubepods.slice`.
    Systemd,
    /// The pods cgroup is `kubepods`.
    Cgroupfs,
}

impl CgroupDriver {
    /// The kubelet's name of the pods cgroup.
    pub(super) const fn pods_cgroup(self) -> &'static str {
        match self {
            Self::Systemd => "kubepods.slice",
            Self::Cgroupfs => "kubepods",
        }
    }
}

/// What a kubelet limits as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Enforced {
    /// Nothing.
    None,
    /// The pods cgroup: the thresholds of memory and pids apply to it.
    Pods,
    /// Accepted without effect.
    SystemReserved,
    /// Accepted without effect.
    SystemReservedCompressible,
    /// Accepted without effect.
    KubeReserved,
    /// Accepted without effect.
    KubeReservedCompressible,
}

/// What a taint does to pods that do not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum Effect {
    /// New pods are not scheduled on the Node.
    NoSchedule,
    /// New pods are scheduled on other Nodes if possible.
    PreferNoSchedule,
    /// Pods are evicted as well.
    NoExecute,
}

#[cfg(feature = "testing")]
impl Effect {
    pub fn values() -> Vec<PossibleValue> {
        values::<Self>()
    }
}

pub(super) fn values<T: ValueEnum>() -> Vec<PossibleValue> {
    let all = T::value_variants().iter();
    all.filter_map(ValueEnum::to_possible_value).collect()
}

pub(super) fn names<T: ValueEnum>() -> Vec<String> {
    let all = values::<T>().into_iter();
    all.map(|value| value.get_name().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn the_kinds_of_incidents_are_those_of_the_schema() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/incident.schema.json");
        let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let forms = schema["anyOf"][0]["oneOf"].as_array().unwrap().iter();
        let kind = |form: &Value| {
            form["properties"]["kind"]["const"]
                .as_str()
                .map(str::to_owned)
        };
        let mut kinds: BTreeSet<String> = forms.filter_map(kind).collect();
        // It replaces what a receiver did not get, so that it goes to each.
        assert!(kinds.remove("Summary"), "{kinds:?}");
        assert_eq!(kinds, names::<IncidentKind>().into_iter().collect());
    }
}
