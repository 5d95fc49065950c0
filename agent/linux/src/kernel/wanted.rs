//! The programs to attach, as a plain value.

use super::probe::KillHook;

/// The programs to attach. The others are not loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The best hook to try, with the later ones as fallbacks; `None` disables reports of kills.
    pub kills: Option<KillHook>,
    /// Enables the exact scope of kills. Ignored without `kills`.
    pub scope: bool,
    pub pids: bool,
    pub disks: bool,
}

impl Wanted {
    pub const ALL: Self = Self {
        kills: Some(KillHook::Task),
        scope: true,
        pids: true,
        disks: true,
    };

    /// A base for struct updates.
    pub const NOTHING: Self = Self {
        kills: None,
        scope: false,
        pids: false,
        disks: false,
    };
}
