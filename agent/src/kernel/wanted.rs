//! What may be attached, as a plain value; and the ladder of ways to learn of a kill.

use super::support::Probe;

/// A way to learn of a kill. The first is the best; one is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KillHook {
    /// `mark_victim` hands out the task.
    Task,
    /// Entry of `mark_oom_victim`, a static function of the kernel.
    Fentry,
    /// `mark_victim` hands out a pid, and the task is looked at when it exits. Costs a look-up at
    /// each exit on the node.
    Exit,
}

impl KillHook {
    /// From the best to the last.
    pub const ALL: [Self; 3] = [Self::Task, Self::Fentry, Self::Exit];

    /// Its programs: all of them or none. In the order in which they are attached.
    #[must_use]
    pub const fn probes(self) -> &'static [Probe] {
        match self {
            Self::Task => &[Probe::OomVictim],
            Self::Fentry => &[Probe::OomFentry],
            // So that no pid is stored that nobody takes out.
            Self::Exit => &[Probe::OomExit, Probe::OomPid],
        }
    }
}

/// The pair that tells the exact scope of a kill. Attached in this order, so that no entry is stored
/// that nobody removes.
pub const SCOPE: &[Probe] = &[Probe::ScopeLeave, Probe::ScopeEnter];

/// What may be attached. What is not wanted is not even loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The best rung that may be tried, with those below it; `None`: no kills.
    pub kills: Option<KillHook>,
    /// The exact scope of kills. Nothing without `kills`.
    pub scope: bool,
    /// The number of pids.
    pub pids: bool,
    /// Latency of disks.
    pub disks: bool,
}

impl Wanted {
    /// All there is.
    pub const ALL: Self = Self {
        kills: Some(KillHook::Task),
        scope: true,
        pids: true,
        disks: true,
    };

    /// Nothing: a start for those who want one thing.
    pub const NOTHING: Self = Self {
        kills: None,
        scope: false,
        pids: false,
        disks: false,
    };
}
