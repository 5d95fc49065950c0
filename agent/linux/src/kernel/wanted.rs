//! Which programs to attach, as a plain value.

use super::probe::KillHook;

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
