//! What runs here and what does not, as a plain value.

use std::fmt;
use std::path::PathBuf;

/// A program of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// OOM kills.
    OomVictim,
    /// The number of pids.
    PidFork,
    /// Latency of disks.
    DiskComplete,
}

impl Probe {
    /// Every probe, in the order in which they are loaded.
    pub const ALL: [Self; 3] = [Self::OomVictim, Self::PidFork, Self::DiskComplete];

    /// Name of the program, as `bpftool prog` shows it. At most 15 bytes: the kernel cuts there.
    #[must_use]
    pub const fn program(self) -> &'static str {
        match self {
            Self::OomVictim => "oom_victim",
            Self::PidFork => "pid_fork",
            Self::DiskComplete => "disk_complete",
        }
    }

    /// The tracepoint that it is attached to.
    #[must_use]
    pub const fn tracepoint(self) -> &'static str {
        match self {
            Self::OomVictim => "mark_victim",
            Self::PidFork => "sched_process_fork",
            Self::DiskComplete => "block_rq_complete",
        }
    }
}

/// Why a probe is not attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// This kernel shows no usable types.
    Btf {
        /// Where it was looked for.
        path: PathBuf,
        /// What went wrong.
        why: String,
    },
    /// A member that the probe reads does not exist in this kernel.
    Member {
        /// The member.
        path: &'static str,
    },
    /// `mark_victim` does not hand out the task on this kernel.
    Prototype,
    /// The kernel refused to load or attach it.
    Refused {
        /// Its words; the end of the verifier's log where there is one.
        why: String,
    },
    /// The configuration says to run without.
    TurnedOff,
    /// This binary was built with the feature `without-ebpf`.
    NotBuilt,
}

impl Missing {
    /// One word for it, the same on every kernel: for metric labels.
    #[must_use]
    pub const fn token(&self) -> &'static str {
        match self {
            Self::Btf { .. } => "no_btf",
            Self::Member { .. } => "no_member",
            Self::Prototype => "no_task",
            Self::Refused { .. } => "refused",
            Self::TurnedOff => "turned_off",
            Self::NotBuilt => "not_built",
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Btf { path, why } => write!(
                f,
                "no kernel types at {}: {why} (needs CONFIG_DEBUG_INFO_BTF and a readable /sys)",
                path.display()
            ),
            Self::Member { path } => write!(f, "this kernel has no {path}"),
            Self::Prototype => f.write_str("mark_victim does not carry the task on this kernel"),
            Self::Refused { why } => f.write_str(why),
            Self::TurnedOff => f.write_str("turned off by kernel.tier"),
            Self::NotBuilt => f.write_str("this binary was built without eBPF"),
        }
    }
}

/// Whether a probe runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeState {
    /// Loaded and attached.
    Attached,
    /// Not.
    Missing(Missing),
}

/// What every probe came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Support {
    /// One entry a probe, in the order of [`Probe::ALL`].
    pub probes: Vec<(Probe, ProbeState)>,
}

impl Support {
    /// No probe runs, all for the same reason.
    #[must_use]
    pub fn none(why: &Missing) -> Self {
        let all = Probe::ALL.into_iter();
        Self {
            probes: all
                .map(|probe| (probe, ProbeState::Missing(why.clone())))
                .collect(),
        }
    }

    /// Every probe runs: somebody else speaks for the kernel.
    #[must_use]
    pub fn all() -> Self {
        Self {
            probes: Probe::ALL
                .map(|probe| (probe, ProbeState::Attached))
                .to_vec(),
        }
    }

    /// Whether `probe` runs.
    #[must_use]
    pub fn attached(&self, probe: Probe) -> bool {
        self.probes.contains(&(probe, ProbeState::Attached))
    }

    /// `btf` with every probe, `partial` with some, `files` with none.
    #[must_use]
    pub fn tier(&self) -> &'static str {
        match self
            .probes
            .iter()
            .filter(|(_, s)| *s == ProbeState::Attached)
            .count()
        {
            0 => "files",
            n if n == self.probes.len() => "btf",
            _ => "partial",
        }
    }
}
