//! The conditions that companion mode writes beside a kubelet.
//!
//! Each names in its message what it goes by, and no number that moves. True means problem; without
//! a source a condition is Unknown, and neither keeps an old True nor guesses a False.

use super::{Context, SetterError, disk_io as disks};
use crate::node_status::nodepulse_condition::NodepulseCondition;
use crate::node_status::transition::{ComputedCondition, SameStatus};
use crate::node_status::{NodeStatus, Status};
use crate::pressure::kills::{FREQUENT, WITHIN};
use crate::pressure::oom::Grounds;
use crate::pressure::{Cause, Pressure};
use crate::reading::{Resource, Signal, StallKind, StallOf};

/// `reason` of every condition of ours whose source is blind.
pub const UNAVAILABLE: &str = "SourceUnavailable";

type Set = Result<(), SetterError>;

/// What a condition says.
struct Saying {
    status: Status,
    same: SameStatus,
    reason: &'static str,
    message: String,
}

impl Saying {
    fn problem(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(Status::True, reason, message)
    }

    fn fine(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(Status::False, reason, message)
    }

    fn unknown(message: impl Into<String>) -> Self {
        Self::new(Status::Unknown, UNAVAILABLE, message)
    }

    /// True by what was stored when we started: the words of then say more than ours.
    fn held(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            same: SameStatus::KeepsText,
            ..Self::problem(reason, message)
        }
    }

    fn new(status: Status, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            same: SameStatus::ReplacesText,
            reason,
            message: message.into(),
        }
    }
}

/// Appends `MemoryLow`.
pub fn memory(context: &Context<'_>, status: &mut NodeStatus) -> Set {
    let saying = match why(context, Resource::Memory) {
        Some(Cause::OomKill(Grounds::ConfirmedGlobal)) => Saying::problem(
            "GlobalOOMKill",
            "the kernel killed a process because the node was out of memory",
        ),
        Some(Cause::OomKill(Grounds::PodsLimit)) => Saying::problem(
            "PodsOOMKill",
            format!(
                "the kernel killed a process at the memory limit of the pods cgroup {}",
                context.facts.companion.pods_cgroup
            ),
        ),
        cause => unless_lost(Resource::Memory, context).unwrap_or_else(|| match cause {
            Some(cause) => low(context, "LowMemory", cause),
            None => Saying::fine("MemoryAvailable", "no threshold on memory.available is met"),
        }),
    };
    say(NodepulseCondition::MemoryLow, &saying, context, status)
}

/// Appends `PIDsLow`. A pods cgroup without a limit is not one that cannot be seen.
pub fn pids(context: &Context<'_>, status: &mut NodeStatus) -> Set {
    // Unread is no loss there: a pods cgroup without a limit has nothing to read.
    let pods_lost = context.facts.lost.get(&Resource::PodsPids);
    let pods_lost =
        pods_lost.map(|lost| Saying::unknown(cannot_be_read(Resource::PodsPids, lost, context)));
    let node_lost = unless_lost(Resource::Pids, context);
    let node = why(context, Resource::Pids).filter(|_| node_lost.is_none());
    let pods = why(context, Resource::PodsPids).filter(|_| pods_lost.is_none());
    let saying = match (node, pods) {
        (Some(cause @ Cause::Below { .. }), _) | (Some(cause), None) => {
            low(context, "LowPIDs", cause)
        }
        (_, Some(cause)) => low(context, "PodsLowPIDs", cause),
        (None, None) => node_lost.or(pods_lost).unwrap_or_else(|| {
            Saying::fine("PIDsAvailable", "no threshold on pid.available is met")
        }),
    };
    say(NodepulseCondition::PidsLow, &saying, context, status)
}

/// Appends `DiskSpaceLow`.
pub fn disk_space(context: &Context<'_>, status: &mut NodeStatus) -> Set {
    let saying = unless_lost(Resource::Disk, context).unwrap_or_else(|| {
        match why(context, Resource::Disk) {
            Some(
                cause @ Cause::Below {
                    signal: Signal::NodefsInodesFree | Signal::ImagefsInodesFree,
                    ..
                },
            ) => low(context, "LowInodes", cause),
            Some(cause) => low(context, "LowSpace", cause),
            None => Saying::fine("SpaceAvailable", "no threshold on space or inodes is met"),
        }
    });
    say(NodepulseCondition::DiskSpaceLow, &saying, context, status)
}

/// Appends `DiskIOPressure`, which node mode writes too.
pub fn disk_io(context: &Context<'_>, status: &mut NodeStatus) -> Set {
    if !is_on(NodepulseCondition::DiskIoPressure, context) {
        return Ok(());
    }
    disks::set(context, status)
}

/// Appends `FrequentOOMKills`.
pub fn kills(context: &Context<'_>, status: &mut NodeStatus) -> Set {
    let minutes = WITHIN.as_secs() / 60;
    let saying = match context.facts.companion.kills {
        Pressure::UnderPressure { .. } => Saying::problem(
            "FrequentOOMKills",
            format!(
                "at least {FREQUENT} processes of pods were killed for want of memory within \
                 {minutes} minutes"
            ),
        ),
        Pressure::Normal => Saying::fine(
            "FewOOMKills",
            format!(
                "fewer than {FREQUENT} processes of pods were killed for want of memory within \
                 {minutes} minutes"
            ),
        ),
        Pressure::Unknown => Saying::unknown("nothing tells of kills"),
    };
    say(
        NodepulseCondition::FrequentOomKills,
        &saying,
        context,
        status,
    )
}

/// Appends `MemoryStallPressure`.
pub fn memory_stall(context: &Context<'_>, status: &mut NodeStatus) -> Set {
    stall(NodepulseCondition::MemoryStallPressure, context, status)
}

/// Appends `DiskStallPressure`.
pub fn disk_stall(context: &Context<'_>, status: &mut NodeStatus) -> Set {
    stall(NodepulseCondition::DiskStallPressure, context, status)
}

/// Appends `PodsMemoryStallPressure`.
pub fn pods_memory_stall(context: &Context<'_>, status: &mut NodeStatus) -> Set {
    stall(NodepulseCondition::PodsMemoryStallPressure, context, status)
}

/// Appends `PodsDiskStallPressure`.
pub fn pods_disk_stall(context: &Context<'_>, status: &mut NodeStatus) -> Set {
    stall(NodepulseCondition::PodsDiskStallPressure, context, status)
}

fn stall(own: NodepulseCondition, context: &Context<'_>, status: &mut NodeStatus) -> Set {
    let Some(stall) = own.stall() else {
        return Ok(());
    };
    let facts = &context.facts.companion;
    let tasks = match stall.of {
        StallOf::Node => "tasks of the node".to_owned(),
        StallOf::Pods => format!("tasks below the pods cgroup {}", facts.pods_cgroup),
    };
    let what = match stall.kind {
        StallKind::Memory => "memory",
        StallKind::Io => "a disk",
    };
    let percent = facts.stall_threshold;
    let known = context.facts.stalls.get(&stall);
    let saying = match known.copied().unwrap_or_default() {
        Pressure::UnderPressure { .. } => Saying::problem(
            "Stalled",
            format!(
                "{tasks} have waited for {what} at least {percent}% of a minute within the \
                 transition period"
            ),
        ),
        Pressure::Normal => Saying::fine(
            "NotStalled",
            format!("{tasks} have not waited for {what} {percent}% of the time"),
        ),
        Pressure::Unknown => Saying::unknown(format!(
            "how long {tasks} wait for {what} cannot be read (pressure stall information)"
        )),
    };
    say(own, &saying, context, status)
}

/// Why a resource is under pressure; `None` where it is not.
fn why(context: &Context<'_>, resource: Resource) -> Option<Cause> {
    match context.pressure(resource) {
        Pressure::UnderPressure { .. } => {
            let cause = context.facts.companion.causes.get(&resource);
            Some(cause.copied().unwrap_or(Cause::Stored))
        }
        Pressure::Normal | Pressure::Unknown => None,
    }
}

/// That it cannot be known, where a source is lost; `None` where it can.
fn unless_lost(resource: Resource, context: &Context<'_>) -> Option<Saying> {
    let lost = context.lost(resource)?;
    Some(Saying::unknown(cannot_be_read(resource, lost, context)))
}

/// Which sources of a resource cannot be read: `lost`, or what it is judged by where none was ever
/// looked at.
pub(super) fn cannot_be_read(resource: Resource, lost: &[Signal], context: &Context<'_>) -> String {
    let all = match resource {
        Resource::Memory => Signal::MemoryAvailable,
        Resource::Disk => Signal::NodefsAvailable,
        Resource::Pids => Signal::PidAvailable,
        Resource::PodsPids => Signal::AllocatablePidAvailable,
        Resource::DiskIo => return disks::cannot_be_read(&context.facts.disks),
    };
    // Slow disks may raise `DiskPressure` too.
    if lost.is_empty() && context.facts.lost.contains_key(&resource) {
        return disks::cannot_be_read(&context.facts.disks);
    }
    let lost = if lost.is_empty() { &[all] } else { lost };
    let names = lost
        .iter()
        .map(|signal| name(*signal, &context.facts.companion.pods_cgroup));
    format!("{} cannot be read", names.collect::<Vec<_>>().join(" and "))
}

/// Less than a threshold is, or was lately, available.
fn low(context: &Context<'_>, reason: &'static str, cause: Cause) -> Saying {
    match cause {
        Cause::Below { signal, threshold } => {
            let signal = name(signal, &context.facts.companion.pods_cgroup);
            let message =
                format!("{signal} has been below {threshold} within the transition period");
            Saying::problem(reason, message)
        }
        Cause::Stored | Cause::OomKill(_) | Cause::Disks => Saying::held(
            reason,
            "a threshold has been met within the transition period",
        ),
    }
}

/// As users name it; what is derived is the pods cgroup's.
fn name(signal: Signal, pods_cgroup: &str) -> String {
    match signal {
        Signal::AllocatableMemoryAvailable => {
            format!("memory.available of the pods cgroup {pods_cgroup}")
        }
        Signal::AllocatablePidAvailable => {
            format!("pid.available of the pods cgroup {pods_cgroup}")
        }
        Signal::MemoryAvailable
        | Signal::NodefsAvailable
        | Signal::NodefsInodesFree
        | Signal::ImagefsAvailable
        | Signal::ImagefsInodesFree
        | Signal::PidAvailable => signal.as_str().to_owned(),
    }
}

fn is_on(own: NodepulseCondition, context: &Context<'_>) -> bool {
    context.facts.companion.checks.contains(&own)
}

#[expect(clippy::unnecessary_wraps, reason = "the shape of a setter")]
fn say(
    own: NodepulseCondition,
    saying: &Saying,
    context: &Context<'_>,
    status: &mut NodeStatus,
) -> Set {
    if is_on(own, context) {
        let verdict = ComputedCondition {
            type_: own.type_(),
            status: saying.status,
            reason: saying.reason,
            message: &saying.message,
        };
        status.push(verdict, saying.same);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::BootNanos;
    use crate::node_status::sample::compute;
    use crate::node_status::sample::{facts, now, stored, wall};
    use crate::node_status::setters::COMPANION;
    use crate::node_status::{Condition, Facts, StoredNode};
    use crate::pressure::threshold::ThresholdValue;
    use crate::reading::Stall;

    const UNDER: Pressure = Pressure::UnderPressure {
        last_exceeded: BootNanos(1),
    };

    fn said(facts: &Facts, before: Vec<Condition>) -> Vec<Condition> {
        let stored = StoredNode {
            conditions: before,
            ..StoredNode::default()
        };
        let (status, failed) = compute(COMPANION, facts, &stored, now());
        assert_eq!(failed, []);
        status.conditions
    }

    fn one(own: NodepulseCondition, facts: &Facts) -> Condition {
        let mut all = said(facts, Vec::new()).into_iter();
        all.find(|c| c.type_ == own.type_()).unwrap()
    }

    /// Calm, but for resources that are under pressure for these causes, and those with a lost source.
    fn with(causes: &[(Resource, Cause)], lost: &[Resource]) -> Facts {
        let mut facts = facts();
        facts.stalls = Stall::ALL.map(|stall| (stall, Pressure::Normal)).into();
        for (resource, cause) in causes {
            facts.pressures.insert(*resource, UNDER);
            facts.companion.causes.insert(*resource, *cause);
        }
        let signals = |resource| {
            let all = Signal::ALL.into_iter();
            all.filter(|s| s.resource() == resource).take(1).collect()
        };
        facts.lost = lost.iter().map(|r| (*r, signals(*r))).collect();
        facts
    }

    fn below(signal: Signal) -> Cause {
        Cause::Below {
            signal,
            threshold: ThresholdValue::Quantity(100 << 20),
        }
    }

    #[test]
    fn a_calm_node_says_nine_times_that_all_is_well_in_the_declared_order() {
        let said = said(&with(&[], &[]), Vec::new());
        let types: Vec<_> = said.iter().map(|c| c.type_.as_str()).collect();
        assert_eq!(
            types,
            NodepulseCondition::ALL.map(NodepulseCondition::type_)
        );
        let declared: Vec<_> = COMPANION.iter().map(|(name, _)| *name).collect();
        assert_eq!(types, declared);
        assert!(said.iter().all(|c| c.status == Status::False), "{said:#?}");
    }

    /// Whose, why it is under pressure, what is lost, and what comes of it.
    type Row<'a> = (
        NodepulseCondition,
        &'a [(Resource, Cause)],
        &'a [Resource],
        Status,
        &'a str,
    );

    #[test]
    fn reasons_follow_what_was_short() {
        use NodepulseCondition::{DiskSpaceLow, MemoryLow, PidsLow};
        use Resource::{Disk, Memory, Pids, PodsPids};
        let pids = below(Signal::PidAvailable);
        let pods_pids = below(Signal::AllocatablePidAvailable);
        let global = Cause::OomKill(Grounds::ConfirmedGlobal);
        #[rustfmt::skip]
        let rows: [Row<'_>; 14] = [
            (MemoryLow, &[(Memory, below(Signal::MemoryAvailable))], &[], Status::True, "LowMemory"),
            (MemoryLow, &[(Memory, below(Signal::MemoryAvailable))], &[Memory], Status::Unknown, UNAVAILABLE),
            (MemoryLow, &[(Memory, Cause::Stored)], &[Memory], Status::Unknown, UNAVAILABLE),
            (MemoryLow, &[(Memory, global)], &[Memory], Status::True, "GlobalOOMKill"),
            (PidsLow, &[(Pids, pids), (PodsPids, pods_pids)], &[], Status::True, "LowPIDs"),
            (PidsLow, &[(Pids, Cause::Stored), (PodsPids, pods_pids)], &[], Status::True, "PodsLowPIDs"),
            (PidsLow, &[(Pids, pids), (PodsPids, pods_pids)], &[Pids], Status::True, "PodsLowPIDs"),
            (PidsLow, &[], &[], Status::False, "PIDsAvailable"),
            (PidsLow, &[], &[PodsPids], Status::Unknown, UNAVAILABLE),
            (PidsLow, &[(Pids, pids)], &[Pids], Status::Unknown, UNAVAILABLE),
            (DiskSpaceLow, &[(Disk, below(Signal::NodefsAvailable))], &[], Status::True, "LowSpace"),
            (DiskSpaceLow, &[(Disk, below(Signal::ImagefsAvailable))], &[], Status::True, "LowSpace"),
            (DiskSpaceLow, &[(Disk, below(Signal::ImagefsInodesFree))], &[], Status::True, "LowInodes"),
            (DiskSpaceLow, &[(Disk, below(Signal::NodefsInodesFree))], &[Disk], Status::Unknown, UNAVAILABLE),
        ];
        for (own, causes, lost, status, reason) in rows {
            let condition = one(own, &with(causes, lost));
            let found = (condition.status, condition.reason.as_str());
            assert_eq!(found, (status, reason), "{causes:?} {lost:?}");
        }
        let disk = with(&[(Disk, below(Signal::NodefsInodesFree))], &[]);
        let expected = "nodefs.inodesFree has been below 100Mi within the transition period";
        assert_eq!(one(DiskSpaceLow, &disk).message, expected);
        let mut lost = with(&[], &[]);
        let both = vec![Signal::NodefsAvailable, Signal::NodefsInodesFree];
        lost.lost.insert(Disk, both);
        let expected = "nodefs.available and nodefs.inodesFree cannot be read";
        assert_eq!(one(DiskSpaceLow, &lost).message, expected);
    }

    #[test]
    fn words_of_before_a_restart_stay_and_blindness_ends_them() {
        let was = |type_| stored(type_, Status::True, "LowInodes", "as it was said then");
        let before = vec![was("DiskSpaceLow"), was("DiskIOPressure")];
        let held = [
            (Resource::Disk, Cause::Stored),
            (Resource::DiskIo, Cause::Stored),
        ];
        let words = |facts: &Facts| -> Vec<_> {
            let said = said(facts, before.clone()).into_iter();
            let ours = said.filter(|c| c.type_.starts_with("Disk") && !c.type_.contains("Stall"));
            ours.map(|c| (c.status, c.message, c.last_transition_time))
                .collect()
        };
        let then = "as it was said then".to_owned();
        let expected = (Status::True, then, wall(1_000_000_000));
        assert_eq!(words(&with(&held, &[])), [expected.clone(), expected]);
        for (status, _, _) in words(&with(&held, &[Resource::Disk, Resource::DiskIo])) {
            assert_eq!(status, Status::Unknown);
        }
    }

    #[test]
    fn what_is_turned_off_or_not_told_is_not_said_to_be_well() {
        let mut facts = with(&[], &[]);
        facts
            .companion
            .checks
            .remove(&NodepulseCondition::DiskIoPressure);
        facts
            .companion
            .checks
            .remove(&NodepulseCondition::MemoryLow);
        facts.companion.kills = Pressure::Unknown;
        facts.stalls.remove(&Stall::ALL[3]);
        let said = said(&facts, Vec::new());
        let unknown: Vec<_> = said
            .iter()
            .filter(|c| c.status != Status::False)
            .map(|c| (c.type_.as_str(), c.status, c.reason.as_str()))
            .collect();
        let blind = |type_| (type_, Status::Unknown, UNAVAILABLE);
        let expected = [blind("FrequentOOMKills"), blind("PodsDiskStallPressure")];
        assert_eq!((said.len(), unknown), (7, expected.to_vec()));
    }
}
