//! Records that the probes could not write: one slot per reason in a per-CPU array.

/// Why a probe could not report something. The number is the slot in the `DROPPED` map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum DropReason {
    /// There was no room for a kill, in the CRIT ring or in the map of marked threads.
    CritFull = 0,
    /// The BULK ring had no room for a state change.
    BulkFull = 1,
    /// A kernel pointer could not be followed.
    Unreadable = 2,
    /// A request carried no start time: I/O statistics are off for its disk.
    NoStartTime = 3,
}

impl DropReason {
    /// Every reason, in the order of the slots.
    pub const ALL: [Self; 4] = [
        Self::CritFull,
        Self::BulkFull,
        Self::Unreadable,
        Self::NoStartTime,
    ];

    /// Slots in the map.
    pub const SLOTS: u32 = 4;

    /// The slot of this reason.
    pub const fn slot(self) -> u32 {
        match self {
            Self::CritFull => 0,
            Self::BulkFull => 1,
            Self::Unreadable => 2,
            Self::NoStartTime => 3,
        }
    }

    /// For log fields and metric labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CritFull => "crit_full",
            Self::BulkFull => "bulk_full",
            Self::Unreadable => "unreadable",
            Self::NoStartTime => "no_start_time",
        }
    }
}
