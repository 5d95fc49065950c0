//! What ran out of memory when the kernel killed a process: one set of types for records, verdicts,
//! metrics and Events.

use serde::{Deserialize, Serialize};

/// Whose memory ran out. `L` is what is known about the cgroup that was at its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OomScope<L> {
    /// Unknown. Judged as [`OomScope::Global`] with an inferred scope.
    Unknown,
    /// The machine's. Also kills for a cpuset, a memory policy or `SysRq`, unless a constraint or an
    /// order distinguishes them.
    Global,
    /// That of one cgroup: it was at its limit.
    Memcg(L),
}

impl<L> OomScope<L> {
    /// The same scope with something else known about the cgroup.
    pub fn map<M>(self, f: impl FnOnce(L) -> M) -> OomScope<M> {
        match self {
            Self::Unknown => OomScope::Unknown,
            Self::Global => OomScope::Global,
            Self::Memcg(limiting) => OomScope::Memcg(f(limiting)),
        }
    }

    /// The same scope by reference.
    pub const fn as_ref(&self) -> OomScope<&L> {
        match self {
            Self::Unknown => OomScope::Unknown,
            Self::Global => OomScope::Global,
            Self::Memcg(limiting) => OomScope::Memcg(limiting),
        }
    }

    /// What is known about the cgroup that was at its limit.
    pub fn memcg(self) -> Option<L> {
        match self {
            Self::Unknown | Self::Global => None,
            Self::Memcg(limiting) => Some(limiting),
        }
    }
}

/// What a kill means for the container of the victim.
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
    /// As in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MainProcess => "main_process",
            Self::ChildProcess => "child_process",
            Self::WholeContainer => "whole_container",
        }
    }
}

/// What a limiting cgroup is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LimitOwner {
    /// One container.
    Container,
    /// One pod.
    Pod,
    /// All pods: the node's allocatable memory ran out.
    PodsCgroup,
    /// Anything else, such as a system service.
    Other,
}

/// How the scope is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScopeSource {
    /// From the usage and the limits of the victim's ancestors at the moment of the kill: to be
    /// confirmed.
    Inferred,
    /// From the kernel's own `oom_control`.
    Exact,
    /// From the kernel's log. Without the line that has the order it does not distinguish a kill by
    /// `SysRq` from a global one.
    Logged,
}

/// `oom_control.constraint`: what bounded the allocation that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OomConstraint {
    /// Nothing but the machine's size.
    None,
    /// The nodes of a cpuset.
    Cpuset,
    /// A memory policy.
    MemoryPolicy,
    /// A memory cgroup.
    Memcg,
}
