//! Decides if an OOM kill is evidence of node pressure, or concerns one container only.
//!
//! In doubt, only an Event results: it misleads one reader at most, but a condition keeps pods off
//! the node.

use serde::{Deserialize, Serialize};

use crate::pressure::threshold::ThresholdValue;
use crate::reading::Reading;
use crate::reading::oom::{LimitOwner, OomConstraint, OomScope, ScopeSource};

/// Memory is short below this share of the capacity, whatever the threshold is.
const SHORT: ThresholdValue = ThresholdValue::Share(0.05);

/// `oom_control.order` of a kill requested by sysrq.
///
/// <https://github.com/torvalds/linux/blob/v6.12/include/linux/oom.h#L48-L52>
const SYSRQ_ORDER: i32 = -1;

/// The facts of a kill on which the verdict depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kill {
    pub scope: OomScope<LimitOwner>,
    pub source: ScopeSource,
    /// `None`: unknown. A global kill then needs the same evidence of short memory as one whose
    /// scope is inferred.
    pub constraint: Option<OomConstraint>,
    /// The order of the allocation that failed; -1 for sysrq; `None`: unknown.
    pub order: Option<i32>,
}

/// The change of the counters of limit hits (`oom` of `memory.events`) of the victim's memory
/// cgroup and its ancestors. A global kill increases none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LimitCounters {
    Moved,
    /// All were read before and after, and none increased.
    Still,
    /// At least one could not be compared.
    Unknown,
}

/// The memory that was left after the kill.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RemainingMemory {
    /// `memory.available`; `None` if it could not be read.
    pub memory: Option<Reading>,
    /// The highest threshold on `memory.available`, if any.
    pub threshold: Option<ThresholdValue>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum KillVerdict {
    /// `MemoryPressure` at once, for the transition period.
    NodePressure { why: Grounds },
    /// No effect.
    EventOnly { why: Doubt },
}

impl KillVerdict {
    /// Returns the effect and its reason, for a log.
    pub const fn as_strs(self) -> (&'static str, &'static str) {
        match self {
            Self::NodePressure { why } => (
                "node pressure",
                match why {
                    Grounds::ConfirmedGlobal => "the node is out of memory",
                    Grounds::PodsLimit => "all pods together reached their limit",
                },
            ),
            Self::EventOnly { why } => ("event only", why.as_str()),
        }
    }
}

impl Doubt {
    const fn as_str(self) -> &'static str {
        match self {
            Self::LocalLimit(LimitOwner::Container) => "limit of a container",
            Self::LocalLimit(LimitOwner::Pod) => "limit of a pod",
            Self::LocalLimit(LimitOwner::PodsCgroup) => "limit of all pods, not confirmed",
            Self::LocalLimit(LimitOwner::Other) => "limit of another cgroup",
            Self::Cpuset => "memory nodes of a cpuset",
            Self::MemoryPolicy => "memory nodes of a memory policy",
            Self::Sysrq => "requested by SysRq",
            Self::Contradictory => "constraint contradicts the scope",
            Self::LimitCounterMoved => "a cgroup counted a limit hit",
            Self::LimitCountersUnknown => "limit hits unknown",
            Self::LimitCountersStill => "no cgroup counted a limit hit",
            Self::MemoryLeft => "memory is not short",
            Self::MemoryUnread => "memory could not be read",
        }
    }
}

/// The reason for which a kill is node pressure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Grounds {
    ConfirmedGlobal,
    /// All pods together reached the limit of the pods cgroup.
    PodsLimit,
}

/// The reason for which a kill is not, or not certainly, node pressure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Doubt {
    /// The limit that was reached is below the node's.
    LocalLimit(LimitOwner),
    /// Only the memory nodes of one cpuset were full.
    Cpuset,
    /// Only the memory nodes that a memory policy allows were full.
    MemoryPolicy,
    /// A user requested the kill with `SysRq`.
    Sysrq,
    /// The scope is global, but the kernel reports the constraint of a cgroup.
    Contradictory,
    /// The scope is inferred, and a cgroup counted a limit hit.
    LimitCounterMoved,
    /// The scope is inferred, and the cgroups' counters could not be compared.
    LimitCountersUnknown,
    /// The kernel log names a limit, but no cgroup counted a hit.
    LimitCountersStill,
    MemoryLeft,
    /// It is unknown if memory is short.
    MemoryUnread,
}

/// The values that were read to judge a kill. `None`: not read, or not yet.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Evidence {
    /// Limit hits of the victim's cgroup and its ancestors.
    pub counters: Option<LimitCounters>,
    pub left: Option<RemainingMemory>,
}

/// A value that must be read before a kill can be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingEvidence {
    LimitCounters,
    RemainingMemory,
}

/// Returns the verdict on one kill. Evidence is missing only if the verdict depends on it: a kill
/// is reported in less time than reading it takes.
pub fn verdict_on(kill: &Kill, evidence: &Evidence) -> Result<KillVerdict, MissingEvidence> {
    let grounds = match kill.scope {
        OomScope::Memcg(owner) => verdict_on_memcg(kill, owner, evidence),
        OomScope::Global | OomScope::Unknown => verdict_on_global(kill, evidence),
    };
    Ok(match grounds? {
        Ok(why) => KillVerdict::NodePressure { why },
        Err(why) => KillVerdict::EventOnly { why },
    })
}

fn verdict_on_memcg(
    kill: &Kill,
    owner: LimitOwner,
    evidence: &Evidence,
) -> Result<Result<Grounds, Doubt>, MissingEvidence> {
    if kill.order == Some(SYSRQ_ORDER) {
        return Ok(Err(Doubt::Sysrq));
    }
    // The victim's cgroup happened to be at its limit when the machine ran out of memory: as the
    // counters show, the inference is wrong.
    if kill.source != ScopeSource::Exact && evidence.counters()? == LimitCounters::Still {
        if kill.source == ScopeSource::Logged {
            return Ok(Err(Doubt::LimitCountersStill));
        }
        return Ok(memory_is_short(evidence.left()?)
            .map(|()| Grounds::ConfirmedGlobal)
            .map_err(|_| Doubt::LocalLimit(owner)));
    }
    Ok(match owner {
        LimitOwner::PodsCgroup => Ok(Grounds::PodsLimit),
        LimitOwner::Container | LimitOwner::Pod | LimitOwner::Other => {
            Err(Doubt::LocalLimit(owner))
        }
    })
}

fn verdict_on_global(
    kill: &Kill,
    evidence: &Evidence,
) -> Result<Result<Grounds, Doubt>, MissingEvidence> {
    if kill.order == Some(SYSRQ_ORDER) {
        return Ok(Err(Doubt::Sysrq));
    }
    match kill.constraint {
        Some(OomConstraint::Cpuset) => return Ok(Err(Doubt::Cpuset)),
        Some(OomConstraint::MemoryPolicy) => return Ok(Err(Doubt::MemoryPolicy)),
        Some(OomConstraint::Memcg) => return Ok(Err(Doubt::Contradictory)),
        Some(OomConstraint::None) if names_the_cause(kill) => {
            return Ok(Ok(Grounds::ConfirmedGlobal));
        }
        Some(OomConstraint::None) | None => {}
    }
    if kill.source != ScopeSource::Exact {
        match evidence.counters()? {
            LimitCounters::Still => {}
            LimitCounters::Moved => return Ok(Err(Doubt::LimitCounterMoved)),
            LimitCounters::Unknown => return Ok(Err(Doubt::LimitCountersUnknown)),
        }
    }
    Ok(memory_is_short(evidence.left()?).map(|()| Grounds::ConfirmedGlobal))
}

impl Evidence {
    fn counters(&self) -> Result<LimitCounters, MissingEvidence> {
        self.counters.ok_or(MissingEvidence::LimitCounters)
    }

    fn left(&self) -> Result<RemainingMemory, MissingEvidence> {
        self.left.ok_or(MissingEvidence::RemainingMemory)
    }
}

/// Returns true if the kernel reported enough to distinguish a kill for lack of memory from all
/// others.
fn names_the_cause(kill: &Kill) -> bool {
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
            ("inferred, counters still, memory left", inferred, evidence(Still, plenty), event(Doubt::MemoryLeft)),
            ("inferred, a counter moved", inferred, evidence(Moved, short), event(Doubt::LimitCounterMoved)),
            ("inferred, counters unknown", inferred, evidence(Unknown, short), event(Doubt::LimitCountersUnknown)),
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
            let all = Evidence {
                counters: Some(counters),
                left: Some(left),
            };
            assert_eq!(verdict_on(&kill, &all), Ok(expected), "{name}");
        }
    }

    #[test]
    fn only_evidence_that_decides_is_requested() {
        use LimitOwner::{Container, PodsCgroup};
        use MissingEvidence::{LimitCounters as Counters, RemainingMemory as Memory};
        use ScopeSource::{Exact, Inferred, Logged};
        let global = |source| kill(OomScope::Global, source);
        let at = |owner, source| kill(OomScope::Memcg(owner), source);
        let unconstrained = Kill {
            constraint: Some(OomConstraint::None),
            ..global(Exact)
        };
        let still = Some(LimitCounters::Still);
        let moved = Some(LimitCounters::Moved);
        // Kill, counters, missing evidence.
        let rows = [
            (unconstrained, None, None),
            (global(Exact), None, Some(Memory)),
            (global(Inferred), None, Some(Counters)),
            (global(Inferred), still, Some(Memory)),
            (global(Inferred), moved, None),
            (at(Container, Exact), None, None),
            (at(Container, Inferred), None, Some(Counters)),
            (at(Container, Inferred), still, Some(Memory)),
            (at(PodsCgroup, Inferred), moved, None),
            (at(PodsCgroup, Logged), still, None),
        ];
        for (kill, counters, missing) in rows {
            let left = None;
            let result = verdict_on(&kill, &Evidence { counters, left });
            assert_eq!(result.err(), missing, "{kill:?} {counters:?}");
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
