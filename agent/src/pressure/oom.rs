//! Whether an OOM kill says something about the node, or only about one container.
//!
//! When in doubt: the Event, not the condition. An Event misleads one reader; a condition keeps pods
//! off the node.

use crate::pressure::threshold::ThresholdValue;
use crate::reading::Reading;
use crate::reading::oom::{LimitOwner, OomConstraint, OomScope, ScopeSource};

/// Below this share of the capacity memory counts as short, whatever the threshold is.
const SHORT: ThresholdValue = ThresholdValue::Share(0.05);

/// `oom_control.order` of a kill that a person asked for by sysrq.
///
/// <https://github.com/torvalds/linux/blob/v6.12/include/linux/oom.h#L48-L52>
const SYSRQ_ORDER: i32 = -1;

/// As much of one kill as its judgement needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kill {
    /// Whose memory ran out.
    pub scope: OomScope<LimitOwner>,
    /// How that is known.
    pub source: ScopeSource,
    /// `None`: not told. Then a global kill needs the same proof by free memory as an inferred one.
    pub constraint: Option<OomConstraint>,
    /// Order of the allocation that failed; -1 for sysrq. `None`: not told.
    pub order: Option<i32>,
}

/// Whether a counter of limit hits moved in any memory cgroup of the victim or above it: `oom` of
/// `memory.events`. A global kill moves none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitCounters {
    /// At least one did.
    Moved,
    /// All were read before and after, and none did.
    Still,
    /// At least one could not be compared.
    Unknown,
}

/// How much memory was left after the kill.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RemainingMemory {
    /// `memory.available`; `None` where it could not be read.
    pub memory: Option<Reading>,
    /// The highest threshold on `memory.available`, if any.
    pub threshold: Option<ThresholdValue>,
}

/// What a kill does beside its Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillVerdict {
    /// `MemoryPressure` at once, held for the transition period.
    NodePressure {
        /// On what grounds.
        why: Grounds,
    },
    /// Nothing.
    EventOnly {
        /// What speaks against node pressure.
        why: Doubt,
    },
}

/// Why a kill is the node's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grounds {
    /// The machine is out of memory.
    ConfirmedGlobal,
    /// All pods together reached their limit.
    PodsLimit,
}

/// Why a kill is not, or not surely, the node's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// A limit that is not the node's was reached.
    LocalLimit(LimitOwner),
    /// Only the nodes of one cpuset were full.
    Cpuset,
    /// Only what one memory policy allows was full.
    MemoryPolicy,
    /// Somebody asked for it.
    Sysrq,
    /// The kernel says that a cgroup bounded it, so its scope cannot be global.
    Contradictory,
    /// The scope is inferred, and some cgroup counted a limit hit.
    LimitCounterMoved,
    /// The scope is inferred, and the cgroups' counters could not be compared.
    LimitCountersUnknown,
    /// The kernel's log tells of a limit, and no cgroup counted a hit.
    LimitCountersStill,
    /// Memory is not short.
    MemoryLeft,
    /// Nobody knows whether memory is short.
    MemoryUnread,
}

/// Judges one kill. What has to be read for it, the counters of the victim's cgroup and its ancestors
/// and the memory that is left, is asked for where it has a say, and only there: a kill is told in
/// less time than that takes.
#[must_use]
pub fn judge(
    kill: &Kill,
    counters: impl FnOnce() -> LimitCounters,
    left: impl FnOnce() -> RemainingMemory,
) -> KillVerdict {
    let verdict = match kill.scope {
        OomScope::Memcg(owner) => judge_memcg(kill, owner, counters, left),
        OomScope::Global | OomScope::Unknown => judge_global(kill, counters, left),
    };
    match verdict {
        Ok(why) => KillVerdict::NodePressure { why },
        Err(why) => KillVerdict::EventOnly { why },
    }
}

fn judge_memcg(
    kill: &Kill,
    owner: LimitOwner,
    counters: impl FnOnce() -> LimitCounters,
    left: impl FnOnce() -> RemainingMemory,
) -> Result<Grounds, Doubt> {
    if kill.order == Some(SYSRQ_ORDER) {
        return Err(Doubt::Sysrq);
    }
    // A victim that sat at its own limit when the machine ran out: the inference is wrong, and the
    // counters say so.
    if kill.source != ScopeSource::Exact && counters() == LimitCounters::Still {
        if kill.source == ScopeSource::Logged {
            return Err(Doubt::LimitCountersStill);
        }
        return memory_is_short(left())
            .map(|()| Grounds::ConfirmedGlobal)
            .map_err(|_| Doubt::LocalLimit(owner));
    }
    match owner {
        LimitOwner::PodsCgroup => Ok(Grounds::PodsLimit),
        LimitOwner::Container | LimitOwner::Pod | LimitOwner::Other => {
            Err(Doubt::LocalLimit(owner))
        }
    }
}

fn judge_global(
    kill: &Kill,
    counters: impl FnOnce() -> LimitCounters,
    left: impl FnOnce() -> RemainingMemory,
) -> Result<Grounds, Doubt> {
    if kill.order == Some(SYSRQ_ORDER) {
        return Err(Doubt::Sysrq);
    }
    match kill.constraint {
        Some(OomConstraint::Cpuset) => return Err(Doubt::Cpuset),
        Some(OomConstraint::MemoryPolicy) => return Err(Doubt::MemoryPolicy),
        Some(OomConstraint::Memcg) => return Err(Doubt::Contradictory),
        Some(OomConstraint::None) if is_told(kill) => return Ok(Grounds::ConfirmedGlobal),
        Some(OomConstraint::None) | None => {}
    }
    if kill.source != ScopeSource::Exact {
        match counters() {
            LimitCounters::Still => {}
            LimitCounters::Moved => return Err(Doubt::LimitCounterMoved),
            LimitCounters::Unknown => return Err(Doubt::LimitCountersUnknown),
        }
    }
    memory_is_short(left()).map(|()| Grounds::ConfirmedGlobal)
}

/// Whether the kernel said enough to tell a kill for want of memory from all others.
fn is_told(kill: &Kill) -> bool {
    match kill.source {
        ScopeSource::Exact => true,
        ScopeSource::Logged => kill.order.is_some(),
        ScopeSource::Inferred => false,
    }
}

fn memory_is_short(left: RemainingMemory) -> Result<(), Doubt> {
    let memory = left.memory.ok_or(Doubt::MemoryUnread)?;
    let short = [Some(SHORT), left.threshold]
        .into_iter()
        .flatten()
        .any(|level| i128::from(memory.available) < i128::from(level.amount(memory.capacity)));
    if short {
        Ok(())
    } else {
        Err(Doubt::MemoryLeft)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Signal;

    const CAPACITY: u64 = 1_000_000;

    fn kill(scope: OomScope<LimitOwner>, source: ScopeSource) -> Kill {
        Kill {
            scope,
            source,
            constraint: None,
            order: Some(0),
        }
    }

    fn left(available: i64) -> RemainingMemory {
        RemainingMemory {
            memory: Some(Reading {
                signal: Signal::MemoryAvailable,
                available,
                capacity: CAPACITY,
            }),
            threshold: None,
        }
    }

    fn evidence(counters: LimitCounters, available: i64) -> (LimitCounters, RemainingMemory) {
        (counters, left(available))
    }

    #[test]
    fn only_a_surely_global_kill_and_one_at_the_pods_limit_are_node_pressure() {
        use LimitCounters::{Moved, Still, Unknown};
        use LimitOwner::{Container, Other, Pod, PodsCgroup};
        use ScopeSource::{Exact, Inferred, Logged};
        let global = KillVerdict::NodePressure {
            why: Grounds::ConfirmedGlobal,
        };
        let pods = KillVerdict::NodePressure {
            why: Grounds::PodsLimit,
        };
        let event = |why| KillVerdict::EventOnly { why };
        let plenty = 900_000;
        let short = 10_000;
        let constrained = |constraint, source| Kill {
            constraint: Some(constraint),
            ..kill(OomScope::Global, source)
        };
        let sysrq = |scope| Kill {
            order: Some(-1),
            ..kill(scope, Exact)
        };
        let inferred = kill(OomScope::Global, Inferred);
        let orderless = Kill {
            order: None,
            ..constrained(OomConstraint::None, Logged)
        };
        let asked_for = Kill {
            order: Some(-1),
            ..constrained(OomConstraint::None, Logged)
        };
        let at = |owner, source| kill(OomScope::Memcg(owner), source);
        let limit = |owner| event(Doubt::LocalLimit(owner));
        #[rustfmt::skip]
        let rows = [
            ("exact, unconstrained: memory does not matter",
                constrained(OomConstraint::None, Exact), evidence(Unknown, plenty), global),
            ("exact, constraint not told, memory short", kill(OomScope::Global, Exact), evidence(Moved, short), global),
            ("exact, constraint not told, memory left",
                kill(OomScope::Global, Exact), evidence(Still, plenty), event(Doubt::MemoryLeft)),
            ("exact, in a cpuset",
                constrained(OomConstraint::Cpuset, Exact), evidence(Still, short), event(Doubt::Cpuset)),
            ("exact, under a memory policy",
                constrained(OomConstraint::MemoryPolicy, Exact), evidence(Still, short), event(Doubt::MemoryPolicy)),
            ("global, yet bounded by a cgroup",
                constrained(OomConstraint::Memcg, Exact), evidence(Still, short), event(Doubt::Contradictory)),
            ("sysrq", sysrq(OomScope::Global), evidence(Still, short), event(Doubt::Sysrq)),
            ("sysrq, at the pods cgroup", sysrq(OomScope::Memcg(PodsCgroup)), evidence(Still, short), event(Doubt::Sysrq)),
            ("inferred, counters still, memory short", inferred, evidence(Still, short), global),
            ("inferred, counters still, memory left",
                inferred, evidence(Still, plenty), event(Doubt::MemoryLeft)),
            ("inferred, a counter moved", inferred, evidence(Moved, short), event(Doubt::LimitCounterMoved)),
            ("inferred, counters unknown",
                inferred, evidence(Unknown, short), event(Doubt::LimitCountersUnknown)),
            ("inferred, constraint known to be none, memory left",
                constrained(OomConstraint::None, Inferred), evidence(Still, plenty), event(Doubt::MemoryLeft)),
            ("inferred, memory unread",
                inferred, (Still, RemainingMemory { memory: None, ..left(0) }), event(Doubt::MemoryUnread)),
            ("at the pods limit, exact", at(PodsCgroup, Exact), evidence(Unknown, plenty), pods),
            ("at the pods limit, inferred", at(PodsCgroup, Inferred), evidence(Moved, plenty), pods),
            ("at the pods limit, inferred, counters unknown",
                at(PodsCgroup, Inferred), evidence(Unknown, plenty), pods),
            ("at the pods limit, inferred, but it counted no hit",
                at(PodsCgroup, Inferred), evidence(Still, plenty), limit(PodsCgroup)),
            ("logged, global", constrained(OomConstraint::None, Logged), evidence(Still, plenty), global),
            ("logged, by sysrq", asked_for, evidence(Still, short), event(Doubt::Sysrq)),
            ("logged, may be by sysrq", orderless, evidence(Still, plenty), event(Doubt::MemoryLeft)),
            ("logged, may be by sysrq, memory short", orderless, evidence(Still, short), global),
            ("logged, in a cpuset",
                constrained(OomConstraint::Cpuset, Logged), evidence(Still, short), event(Doubt::Cpuset)),
            ("logged, under a memory policy",
                constrained(OomConstraint::MemoryPolicy, Logged), evidence(Still, short), event(Doubt::MemoryPolicy)),
            ("logged, not told what ran out",
                kill(OomScope::Global, Logged), evidence(Moved, short), event(Doubt::LimitCounterMoved)),
            ("logged, at the pods limit", at(PodsCgroup, Logged), evidence(Moved, plenty), pods),
            ("logged, at the pods limit, counters unknown", at(PodsCgroup, Logged), evidence(Unknown, plenty), pods),
            ("logged, at the pods limit, not counted",
                at(PodsCgroup, Logged), evidence(Still, short), event(Doubt::LimitCountersStill)),
            ("at a container's limit", at(Container, Exact), evidence(Still, short), limit(Container)),
            ("at a pod's limit", at(Pod, Inferred), evidence(Moved, short), limit(Pod)),
            ("at a service's limit", at(Other, Inferred), evidence(Unknown, short), limit(Other)),
            ("seemingly at a container's limit, which counted no hit, and memory is short",
                at(Container, Inferred), evidence(Still, short), global),
            ("the same with memory left", at(Container, Inferred), evidence(Still, plenty), limit(Container)),
        ];
        for (name, kill, (counters, left), expected) in rows {
            assert_eq!(judge(&kill, || counters, || left), expected, "{name}");
        }
    }

    #[test]
    fn memory_is_short_below_five_percent_or_below_the_threshold() {
        let threshold = |n| Some(ThresholdValue::Quantity(n));
        let rows = [
            ("at 5 %", 50_000, None, false),
            ("just below", 49_999, None, true),
            ("at a higher threshold", 200_000, threshold(200_000), false),
            ("just below it", 199_999, threshold(200_000), true),
            ("below 5 %, above a lower one", 49_999, threshold(10), true),
            ("negative", -1, None, true),
        ];
        for (name, available, threshold, short) in rows {
            let left = RemainingMemory {
                threshold,
                ..left(available)
            };
            let expected = if short {
                Ok(())
            } else {
                Err(Doubt::MemoryLeft)
            };
            assert_eq!(memory_is_short(left), expected, "{name}");
        }
    }
}
