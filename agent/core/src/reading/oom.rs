//! The scopes and consequences of OOM kills: one set of types for records, verdicts, metrics and
//! Events.

use serde::{Deserialize, Serialize};

/// The memory that ran out. `L` describes the cgroup that was at its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OomScope<L> {
    /// Judged as [`OomScope::Global`] with an inferred scope.
    Unknown,
    /// The machine's memory. Includes kills for a cpuset, a memory policy or `SysRq`, unless a
    /// constraint or an order distinguishes them.
    Global,
    /// The memory of one cgroup, which was at its limit.
    Memcg(L),
}

impl<L> OomScope<L> {
    /// Keeps the scope and converts the description of the cgroup.
    pub fn map<M>(self, f: impl FnOnce(L) -> M) -> OomScope<M> {
        match self {
            Self::Unknown => OomScope::Unknown,
            Self::Global => OomScope::Global,
            Self::Memcg(limiting) => OomScope::Memcg(f(limiting)),
        }
    }

    pub const fn as_ref(&self) -> OomScope<&L> {
        match self {
            Self::Unknown => OomScope::Unknown,
            Self::Global => OomScope::Global,
            Self::Memcg(limiting) => OomScope::Memcg(limiting),
        }
    }

    pub fn memcg(self) -> Option<L> {
        match self {
            Self::Unknown | Self::Global => None,
            Self::Memcg(limiting) => Some(limiting),
        }
    }
}

/// The effect of a kill on the container of the victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Consequence {
    /// The main process died, and with it the container.
    MainProcess,
    /// Another process died, and the container continues to run.
    ChildProcess,
    /// The kernel killed all processes of the container together: `memory.oom.group`.
    WholeContainer,
}

impl Consequence {
    /// The name in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MainProcess => "main_process",
            Self::ChildProcess => "child_process",
            Self::WholeContainer => "whole_container",
        }
    }
}

/// The kind of a limiting cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LimitOwner {
    Container,
    Pod,
    /// All pods: the node's allocatable memory ran out.
    PodsCgroup,
    /// Anything else, such as a system service.
    Other,
}

/// The source from which the scope is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScopeSource {
    /// The usage and the limits of the victim's ancestors at the moment of the kill: to be
    /// confirmed.
    Inferred,
    Exact,
    /// The kernel's log. Without the line that has the order, it does not distinguish a kill by
    /// `SysRq` from a global one.
    Logged,
}

/// `oom_control.constraint`: the bound of the allocation that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OomConstraint {
    /// Only the machine's size.
    None,
    Cpuset,
    MemoryPolicy,
    Memcg,
}
