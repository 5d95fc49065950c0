//! What runs here and what does not, as a plain value.

use std::fmt;
use std::path::PathBuf;

use super::wanted::{KillHook, SCOPE};

/// A program of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// OOM kills, by the task.
    OomVictim,
    /// OOM kills, by the entry of the function that marks the task.
    OomFentry,
    /// OOM kills, by the pid.
    OomPid,
    /// The exit of what was marked by its pid.
    OomExit,
    /// What was short of memory: where the kernel begins to look for a victim.
    ScopeEnter,
    /// Where it ends.
    ScopeLeave,
    /// The number of pids.
    PidFork,
    /// Latency of disks.
    DiskComplete,
}

/// What a program is attached to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// A raw tracepoint of this name.
    Tracepoint(&'static str),
    /// The same, with arguments whose types the verifier knows.
    Typed(&'static str),
    /// The entry of this function of the kernel.
    Entry(&'static str),
    /// Its return.
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
    /// Every probe, in the order of the line.
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

    /// Name of the program, as `bpftool prog` shows it. At most 15 bytes: the kernel cuts there.
    #[must_use]
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

    /// What it is attached to.
    #[must_use]
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
            Self::TurnedOff => f.write_str("turned off by kernel.tier or kernel.probes"),
            Self::NotBuilt => f.write_str("this binary was built without eBPF"),
        }
    }
}

/// Whether a probe runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeState {
    /// Loaded and attached.
    Attached,
    /// Not even tried: a better one runs.
    NotNeeded,
    /// Not attached.
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

    /// The best of every kind runs: somebody else speaks for the kernel.
    #[must_use]
    pub fn all() -> Self {
        let state = |probe| match probe {
            Probe::OomFentry | Probe::OomPid | Probe::OomExit => ProbeState::NotNeeded,
            _ => ProbeState::Attached,
        };
        Self {
            probes: Probe::ALL.map(|probe| (probe, state(probe))).to_vec(),
        }
    }

    /// Whether `probe` runs.
    #[must_use]
    pub fn attached(&self, probe: Probe) -> bool {
        self.probes.contains(&(probe, ProbeState::Attached))
    }

    /// What `probe` came to.
    #[must_use]
    pub fn state(&self, probe: Probe) -> &ProbeState {
        let entry = self.probes.iter().find(|(p, _)| *p == probe);
        entry.map_or(&ProbeState::NotNeeded, |(_, state)| state)
    }

    /// How kills are learnt of; `None` where no program tells.
    #[must_use]
    pub fn kills(&self) -> Option<KillHook> {
        let runs = |rung: &KillHook| rung.probes().iter().all(|probe| self.attached(*probe));
        KillHook::ALL.into_iter().find(runs)
    }

    /// Whether kills carry the kernel's own word on what was short of memory.
    #[must_use]
    pub fn exact_scope(&self) -> bool {
        SCOPE.iter().all(|probe| self.attached(*probe))
    }

    /// `btf` where kills, pids and disks are all told by programs, `partial` where some are, else
    /// `files`. The exact scope of a kill is an extra and does not count.
    #[must_use]
    pub fn tier(&self) -> &'static str {
        let told = [
            self.kills().is_some(),
            self.attached(Probe::PidFork),
            self.attached(Probe::DiskComplete),
        ];
        match told.iter().filter(|told| **told).count() {
            0 => "files",
            n if n == told.len() => "btf",
            _ => "partial",
        }
    }

    /// What no program tells and files have to, with the reasons: of kills those of every rung,
    /// each once.
    #[must_use]
    pub fn unavailable(&self) -> Vec<(Probe, &Missing)> {
        let mut lacking: Vec<(Probe, &Missing)> = Vec::new();
        let mut kills = Vec::new();
        for (probe, state) in &self.probes {
            let ProbeState::Missing(why) = state else {
                continue;
            };
            match probe {
                Probe::ScopeEnter | Probe::ScopeLeave => {}
                Probe::PidFork | Probe::DiskComplete => lacking.push((*probe, why)),
                _ if self.kills().is_some() || kills.contains(&why) => {}
                _ => {
                    kills.push(why);
                    lacking.push((*probe, why));
                }
            }
        }
        lacking
    }

    /// Writes down what `probes` came to.
    pub(super) fn set(&mut self, probes: &[Probe], state: &ProbeState) {
        for (probe, slot) in &mut self.probes {
            if probes.contains(probe) {
                *slot = state.clone();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHY: Missing = Missing::NotBuilt;

    fn support(attached: &[Probe]) -> Support {
        let mut support = Support::none(&WHY);
        support.set(attached, &ProbeState::Attached);
        support
    }

    #[test]
    fn the_tier_counts_kills_pids_and_disks_and_not_the_pair() {
        const PIDS: Probe = Probe::PidFork;
        const DISKS: Probe = Probe::DiskComplete;
        use Probe::{OomExit, OomFentry, OomPid, OomVictim, ScopeEnter, ScopeLeave};
        let rows: [(&[Probe], Option<KillHook>, &str); 8] = [
            (&[], None, "files"),
            (&[ScopeEnter, ScopeLeave], None, "files"),
            (&[PIDS, DISKS], None, "partial"),
            (&[OomVictim], Some(KillHook::Task), "partial"),
            (&[OomVictim, PIDS, DISKS], Some(KillHook::Task), "btf"),
            (&[OomFentry, PIDS, DISKS], Some(KillHook::Fentry), "btf"),
            (&[OomExit, OomPid, PIDS, DISKS], Some(KillHook::Exit), "btf"),
            (&[OomExit, PIDS, DISKS], None, "partial"),
        ];
        for (attached, rung, tier) in rows {
            let support = support(attached);
            assert_eq!(
                (support.kills(), support.tier()),
                (rung, tier),
                "{attached:?}"
            );
        }
        let all = Support::all();
        assert_eq!((all.kills(), all.tier()), (Some(KillHook::Task), "btf"));
        assert!(all.exact_scope());
    }

    #[test]
    fn what_is_lacking_is_said_once_and_only_where_nothing_else_does_the_work() {
        use Probe::{DiskComplete, OomFentry, OomVictim, PidFork};
        let kills = &[(PidFork, &WHY), (DiskComplete, &WHY)];
        assert_eq!(
            support(&[OomFentry]).unavailable(),
            kills,
            "a lower rung runs"
        );

        let nothing = support(&[]);
        let expected = [(OomVictim, &WHY), (PidFork, &WHY), (DiskComplete, &WHY)];
        assert_eq!(
            nothing.unavailable(),
            expected,
            "four programs for one reason"
        );

        let mut reasons = support(&[PidFork, DiskComplete]);
        reasons.set(&[OomVictim], &ProbeState::Missing(Missing::Prototype));
        let expected = [(OomVictim, &Missing::Prototype), (OomFentry, &WHY)];
        assert_eq!(reasons.unavailable(), expected, "two reasons");
        assert_eq!(Support::all().unavailable(), []);
    }

    #[test]
    fn the_kernel_does_not_cut_a_name() {
        for probe in Probe::ALL {
            assert!(probe.program().len() <= 15, "{probe:?}");
        }
    }
}
