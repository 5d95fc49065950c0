//! The programs of the object, where each is attached, and which of them belong together.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// Reports OOM kills from the task.
    OomVictim,
    /// Reports OOM kills from the entry of the function that marks the task.
    OomFentry,
    /// Reports OOM kills from the pid.
    OomPid,
    /// Observes the exit of a task that was marked by its pid.
    OomExit,
    /// Observes the scope of a kill: entry of the victim selection.
    ScopeEnter,
    /// Observes the scope of a kill: return of the victim selection.
    ScopeLeave,
    PidFork,
    DiskComplete,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// A raw tracepoint of this name.
    Tracepoint(&'static str),
    /// A BTF tracepoint, whose argument types the verifier knows.
    Typed(&'static str),
    /// The entry of this kernel function.
    Entry(&'static str),
    /// The return of this kernel function.
    Return(&'static str),
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tracepoint(name) | Self::Typed(name) => f.write_str(name),
            Self::Entry(function) => write!(f, "entry of {function}"),
            Self::Return(function) => write!(f, "return of {function}"),
        }
    }
}

impl Probe {
    pub const ALL: [Self; 8] = [
        Self::OomVictim,
        Self::OomFentry,
        Self::OomPid,
        Self::OomExit,
        Self::ScopeEnter,
        Self::ScopeLeave,
        Self::PidFork,
        Self::DiskComplete,
    ];

    /// Returns the program's name as in `bpftool prog`: the kernel truncates it after 15 bytes.
    pub const fn program(self) -> &'static str {
        match self {
            Self::OomVictim => "oom_victim",
            Self::OomFentry => "oom_fentry",
            Self::OomPid => "oom_pid",
            Self::OomExit => "oom_exit",
            Self::ScopeEnter => "scope_enter",
            Self::ScopeLeave => "scope_leave",
            Self::PidFork => "pid_fork",
            Self::DiskComplete => "disk_complete",
        }
    }

    pub const fn hook(self) -> Hook {
        match self {
            Self::OomVictim | Self::OomPid => Hook::Tracepoint("mark_victim"),
            Self::OomFentry => Hook::Entry("mark_oom_victim"),
            Self::OomExit => Hook::Tracepoint("sched_process_exit"),
            Self::ScopeEnter => Hook::Entry("out_of_memory"),
            Self::ScopeLeave => Hook::Return("out_of_memory"),
            Self::PidFork => Hook::Tracepoint("sched_process_fork"),
            Self::DiskComplete => Hook::Typed("block_rq_complete"),
        }
    }
}

/// A way to observe OOM kills. The first is the best; one is sufficient.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KillHook {
    /// `mark_victim` passes the task.
    Task,
    /// Entry of `mark_oom_victim`, a static kernel function.
    Fentry,
    /// `mark_victim` passes a pid, and the task is read when it exits. Costs a lookup at each exit.
    Exit,
}

impl KillHook {
    /// All hooks, the best first.
    pub const ALL: [Self; 3] = [Self::Task, Self::Fentry, Self::Exit];

    /// Returns the programs of this hook in attach order. All or none are attached.
    pub const fn probes(self) -> &'static [Probe] {
        match self {
            Self::Task => &[Probe::OomVictim],
            Self::Fentry => &[Probe::OomFentry],
            // This order ensures that every stored pid is removed.
            Self::Exit => &[Probe::OomExit, Probe::OomPid],
        }
    }
}

/// The pair of programs that reports the exact scope of a kill. They are attached in this order, so
/// that every stored entry is removed.
pub const SCOPE: &[Probe] = &[Probe::ScopeLeave, Probe::ScopeEnter];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_names_are_not_truncated() {
        for probe in Probe::ALL {
            assert!(probe.program().len() <= 15, "{probe:?}");
        }
    }
}
