//! The state of the probes, as a plain value.

use std::fmt;
use std::path::PathBuf;

use super::probe::{KillHook, Probe, SCOPE};

/// The reason why a probe is not attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    Btf {
        path: PathBuf,
        why: String,
    },
    Member {
        path: &'static str,
    },
    Prototype,
    Refused {
        /// The error, with the end of the verifier log if there is one.
        why: String,
    },
    TurnedOff,
    NotBuilt,
}

impl Missing {
    /// Returns a token for metric labels.
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
            Self::Prototype => f.write_str("mark_victim does not pass the task on this kernel"),
            Self::Refused { why } => f.write_str(why),
            Self::TurnedOff => f.write_str("turned off by kernel.tier or kernel.probes"),
            Self::NotBuilt => f.write_str("this binary was built without eBPF"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeState {
    Attached,
    /// Not tried, because a better probe runs.
    NotNeeded,
    Missing(Missing),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Support {
    /// One entry per probe, in the order of [`Probe::ALL`].
    pub probes: Vec<(Probe, ProbeState)>,
}

impl Support {
    /// Returns the support without any probe, for one reason.
    pub fn none(why: &Missing) -> Self {
        let all = Probe::ALL.into_iter();
        Self {
            probes: all
                .map(|probe| (probe, ProbeState::Missing(why.clone())))
                .collect(),
        }
    }

    /// Returns the support with the best probe of every kind, for a simulated kernel.
    pub fn all() -> Self {
        let state = |probe| match probe {
            Probe::OomFentry | Probe::OomPid | Probe::OomExit => ProbeState::NotNeeded,
            _ => ProbeState::Attached,
        };
        Self {
            probes: Probe::ALL.map(|probe| (probe, state(probe))).to_vec(),
        }
    }

    pub fn attached(&self, probe: Probe) -> bool {
        self.probes.contains(&(probe, ProbeState::Attached))
    }

    pub fn state(&self, probe: Probe) -> &ProbeState {
        let entry = self.probes.iter().find(|(p, _)| *p == probe);
        entry.map_or(&ProbeState::NotNeeded, |(_, state)| state)
    }

    /// Returns the hook that reports OOM kills; `None` if no program does.
    pub fn kills(&self) -> Option<KillHook> {
        let runs = |hook: &KillHook| hook.probes().iter().all(|probe| self.attached(*probe));
        KillHook::ALL.into_iter().find(runs)
    }

    pub fn exact_scope(&self) -> bool {
        SCOPE.iter().all(|probe| self.attached(*probe))
    }

    /// Returns `btf` if programs report kills, pids and disks, `partial` if they report some of
    /// these, and `files` otherwise. The exact scope of a kill is optional and does not count.
    pub fn tier(&self) -> &'static str {
        let reported = [
            self.kills().is_some(),
            self.attached(Probe::PidFork),
            self.attached(Probe::DiskComplete),
        ];
        match reported.iter().filter(|reported| **reported).count() {
            0 => "files",
            n if n == reported.len() => "btf",
            _ => "partial",
        }
    }

    /// Returns the probes that are replaced by files, with the reasons. For kills, returns each
    /// distinct reason of all hooks, and nothing if one of them works.
    pub fn unavailable(&self) -> Vec<(Probe, &Missing)> {
        let mut unavailable: Vec<(Probe, &Missing)> = Vec::new();
        let mut kills = Vec::new();
        for (probe, state) in &self.probes {
            let ProbeState::Missing(why) = state else {
                continue;
            };
            match probe {
                Probe::ScopeEnter | Probe::ScopeLeave => {}
                Probe::PidFork | Probe::DiskComplete => unavailable.push((*probe, why)),
                _ if self.kills().is_some() || kills.contains(&why) => {}
                _ => {
                    kills.push(why);
                    unavailable.push((*probe, why));
                }
            }
        }
        unavailable
    }

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
    fn the_tier_depends_on_kills_pids_and_disks_but_not_on_scope() {
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
        for (attached, hook, tier) in rows {
            let support = support(attached);
            assert_eq!(
                (support.kills(), support.tier()),
                (hook, tier),
                "{attached:?}"
            );
        }
        let all = Support::all();
        assert_eq!((all.kills(), all.tier()), (Some(KillHook::Task), "btf"));
        assert!(all.exact_scope());
    }

    #[test]
    fn an_unavailable_probe_is_reported_once_unless_another_replaces_it() {
        use Probe::{DiskComplete, OomFentry, OomVictim, PidFork};
        let kills = &[(PidFork, &WHY), (DiskComplete, &WHY)];
        assert_eq!(
            support(&[OomFentry]).unavailable(),
            kills,
            "a later hook runs"
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
}
