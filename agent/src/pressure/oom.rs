//! Whether an OOM kill is evidence of node pressure, or concerns one container only.
//!
//! If there is doubt, only an Event results: it misleads one reader at most, but a condition keeps
//! pods off the node.

use crate::pressure::threshold::ThresholdValue;
use crate::reading::Reading;
use crate::reading::oom::{LimitOwner, OomConstraint, OomScope, ScopeSource};

/// Below this share of the capacity memory is short, whatever the threshold is.
const SHORT: ThresholdValue = ThresholdValue::Share(0.05);

/// `oom_control.order` of a kill requested by sysrq.
///
/// <https://github.com/torvalds/linux/blob/v6.12/include/linux/oom.h#L48-L52>
const SYSRQ_ORDER: i32 = -1;

/// The part of a kill on which the verdict depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kill {
    /// Whose memory ran out.
    pub scope: OomScope<LimitOwner>,
    /// How the scope is known.
    pub source: ScopeSource,
    /// `None`: unknown. A global kill then needs the same evidence of short memory as an inferred one.
    pub constraint: Option<OomConstraint>,
    /// Order of the allocation that failed; -1 for sysrq; `None`: unknown.
    pub order: Option<i32>,
}

/// Whether the counter of limit hits (`oom` of `memory.events`) increased in the victim's memory
/// cgroup or an ancestor. A global kill increases none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitCounters {
    /// At least one increased.
    Moved,
    /// All were read before and after, and none increased.
    Still,
    /// At least one could not be compared.
    Unknown,
}

/// How much memory was left after the kill.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RemainingMemory {
    /// `memory.available`; `None` if it could not be read.
    pub memory: Option<Reading>,
    /// The highest threshold on `memory.available`, if any.
    pub threshold: Option<ThresholdValue>,
}

/// What a kill causes in addition to its Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillVerdict {
    /// `MemoryPressure` at once, for the transition period.
    NodePressure {
        /// The evidence.
        why: Grounds,
    },
    /// Nothing.
    EventOnly {
        /// Why the kill is not node pressure.
        why: Doubt,
    },
}

/// Why a kill is node pressure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grounds {
    /// The machine is out of memory.
    ConfirmedGlobal,
    /// All pods together reached their limit.
    PodsLimit,
}

/// Why a kill is not, or not certainly, node pressure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// A limit below the node's was reached.
    LocalLimit(LimitOwner),
    /// Only the memory nodes of one cpuset were full.
    Cpuset,
    /// Only the memory nodes that a memory policy allows were full.
    MemoryPolicy,
    /// A person requested it.
    Sysrq,
    /// The scope is global, but the kernel reports the constraint of a cgroup.
    Contradictory,
    /// The scope is inferred, and a cgroup counted a limit hit.
    LimitCounterMoved,
    /// The scope is inferred, and the cgroups' counters could not be compared.
    LimitCountersUnknown,
    /// The kernel log reports a limit, but no cgroup counted a hit.
    LimitCountersStill,
    /// Memory is not short.
    MemoryLeft,
    /// It is unknown whether memory is short.
    MemoryUnread,
}

/// The verdict on one kill. The counters of the victim's cgroups and the memory that is left are
/// read only if the verdict depends on them, because reading them takes longer than reporting a
/// kill.
#[must_use]
pub fn judge(
    kill: &Kill,
    counters: impl FnOnce() -> LimitCounters,
    left: impl FnOnce() -> RemainingMemory,
) -> KillVerdict {
    let verdict = match kill.scope {
        OomScope::Memcg(owner) => verdict_on_memcg(kill, owner, counters, left),
        OomScope::Global | OomScope::Unknown => verdict_on_global(kill, counters, left),
    };
    match verdict {
        Ok(why) => KillVerdict::NodePressure { why },
        Err(why) => KillVerdict::EventOnly { why },
    }
}

fn verdict_on_memcg(
    kill: &Kill,
    owner: LimitOwner,
    counters: impl FnOnce() -> LimitCounters,
    left: impl FnOnce() -> RemainingMemory,
) -> Result<Grounds, Doubt> {
    if kill.order == Some(SYSRQ_ORDER) {
        return Err(Doubt::Sysrq);
    }
    // The victim was at a limit of its own cgroup when the machine ran out of memory: the inference
    // is wrong, as the counters show.
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

fn verdict_on_global(
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
        Some(OomConstraint::None) if is_conclusive(kill) => return Ok(Grounds::ConfirmedGlobal),
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

/// Whether the kernel reported enough to distinguish a kill for lack of memory from all others.
fn is_conclusive(kill: &Kill) -> bool {
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
    fn only_a_confirmed_global_kill_and_one_at_the_pods_limit_are_node_pressure() {
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
            ("exact, constraint unknown, memory short", kill(OomScope::Global, Exact), evidence(Moved, short), global),
            ("exact, constraint unknown, memory left",
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
            ("logged, constraint unknown",
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
