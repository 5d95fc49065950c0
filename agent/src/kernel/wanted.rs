//! Which programs to attach, as a plain value; and the hooks for OOM kills.

use super::support::Probe;

/// How OOM kills are observed. The first is the best; one is sufficient.
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
    /// The best first.
    pub const ALL: [Self; 3] = [Self::Task, Self::Fentry, Self::Exit];

    /// The programs of this hook, in attach order: all or none.
    #[must_use]
    pub const fn probes(self) -> &'static [Probe] {
        match self {
            Self::Task => &[Probe::OomVictim],
            Self::Fentry => &[Probe::OomFentry],
            // In this order, so that every stored pid is removed.
            Self::Exit => &[Probe::OomExit, Probe::OomPid],
        }
    }
}

/// The pair that reports the exact scope of a kill. Attached in this order, so that every stored
/// entry is removed.
pub const SCOPE: &[Probe] = &[Probe::ScopeLeave, Probe::ScopeEnter];

/// Which programs to attach. The others are not loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The best hook to try, with the later ones as fallbacks; `None`: no kills.
    pub kills: Option<KillHook>,
    /// The exact scope of kills. Ignored without `kills`.
    pub scope: bool,
    /// The number of pids.
    pub pids: bool,
    /// Disk latency.
    pub disks: bool,
}

impl Wanted {
    /// All programs.
    pub const ALL: Self = Self {
        kills: Some(KillHook::Task),
        scope: true,
        pids: true,
        disks: true,
    };

    /// No programs, as a base for struct updates.
    pub const NOTHING: Self = Self {
        kills: None,
        scope: false,
        pids: false,
        disks: false,
    };
}
