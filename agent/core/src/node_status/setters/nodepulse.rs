//! The conditions that companion mode writes next to a kubelet.
//!
//! The message names what the condition depends on, and contains no number that changes. True means
//! that there is a problem. Without a source a condition is Unknown: it is never a stale True or a
//! guessed False.

use std::time::Duration;

use super::{
    Context, SetterError, UNAVAILABLE, cannot_be_read, disk_failing, disk_io as disks, signal_name,
};
use crate::node_status::nodepulse_condition::NodepulseCondition;
use crate::node_status::stamp::{ComputedCondition, SameStatus};
use crate::node_status::{NodeStatus, Status};
use crate::pressure::frequent_kills::FrequentOom;
use crate::pressure::oom::Grounds;
use crate::pressure::{Cause, Pressure};
use crate::reading::{Resource, Signal, StallKind, StallOf};

type Set = Result<(), SetterError>;

struct Outcome {
    status: Status,
    same: SameStatus,
    reason: &'static str,
    message: String,
}

impl Outcome {
    fn problem(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(Status::True, reason, message)
    }

    fn no_problem(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(Status::False, reason, message)
    }

    fn unknown(message: impl Into<String>) -> Self {
        Self::new(Status::Unknown, UNAVAILABLE, message)
    }

    /// Keeps a condition that was stored as True, with the stored text, which is more specific.
    fn kept(reason: &'static str, message: impl Into<String>) -> Self {
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

pub fn memory(context: &Context<'_>, status: &mut NodeStatus) -> Set {
    let outcome = match cause_of(context, Resource::Memory) {
        Some(Cause::OomKill(Grounds::ConfirmedGlobal)) => Outcome::problem(
            "GlobalOOMKill",
            "the kernel killed a process because the node was out of memory",
        ),
        Some(Cause::OomKill(Grounds::PodsLimit)) => Outcome::problem(
            "PodsOOMKill",
            format!(
                "the kernel killed a process at the memory limit of the pods cgroup {}",
                context.facts.companion.pods_cgroup
            ),
        ),
        cause => if_lost(Resource::Memory, context).unwrap_or_else(|| match cause {
            Some(cause) => low(context, "LowMemory", cause),
            None => Outcome::no_problem(
                "MemoryAvailable",
                "memory.available is above all thresholds",
            ),
        }),
    };
    append(NodepulseCondition::MemoryLow, &outcome, context, status)
}

/// A pods cgroup without a limit is not a missing source.
pub fn pids(context: &Context<'_>, status: &mut NodeStatus) -> Set {
    // Unknown is no loss here: without a limit there is nothing to read.
    let pods_lost = context.facts.lost.get(&Resource::PodsPids);
    let pods_lost =
        pods_lost.map(|lost| Outcome::unknown(cannot_be_read(Resource::PodsPids, lost, context)));
    let node_lost = if_lost(Resource::Pids, context);
    let node = cause_of(context, Resource::Pids).filter(|_| node_lost.is_none());
    let pods = cause_of(context, Resource::PodsPids).filter(|_| pods_lost.is_none());
    let outcome = match (node, pods) {
        (Some(cause @ Cause::Below { .. }), _) | (Some(cause), None) => {
            low(context, "LowPIDs", cause)
        }
        (_, Some(cause)) => low(context, "PodsLowPIDs", cause),
        (None, None) => node_lost.or(pods_lost).unwrap_or_else(|| {
            Outcome::no_problem("PIDsAvailable", "pid.available is above all thresholds")
        }),
    };
    append(NodepulseCondition::PidsLow, &outcome, context, status)
}

pub fn disk_space(context: &Context<'_>, status: &mut NodeStatus) -> Set {
    let outcome = if_lost(Resource::Disk, context).unwrap_or_else(|| {
        match cause_of(context, Resource::Disk) {
            Some(
                cause @ Cause::Below {
                    signal: Signal::NodefsInodesFree | Signal::ImagefsInodesFree,
                    ..
                },
            ) => low(context, "LowInodes", cause),
            Some(cause) => low(context, "LowSpace", cause),
            None => Outcome::no_problem(
                "SpaceAvailable",
                "space and inodes are above all thresholds",
            ),
        }
    });
    append(NodepulseCondition::DiskSpaceLow, &outcome, context, status)
}

/// Node mode writes this condition, too.
pub fn disk_io(context: &Context<'_>, status: &mut NodeStatus) -> Set {
    if !is_on(NodepulseCondition::DiskIoPressure, context) {
        return Ok(());
    }
    disks::set(context, status)
}

/// Node mode writes this condition, too.
pub fn disk_failing(context: &Context<'_>, status: &mut NodeStatus) -> Set {
    if !is_on(NodepulseCondition::DiskFailing, context) {
        return Ok(());
    }
    disk_failing::set(context, status)
}

pub fn kills(context: &Context<'_>, status: &mut NodeStatus) -> Set {
    let FrequentOom {
        incidents,
        pods,
        window,
    } = context.facts.companion.frequent_oom;
    let within = period(window);
    let outcome = match context.facts.companion.kills {
        Pressure::UnderPressure { .. } => Outcome::problem(
            "FrequentOOMKills",
            format!(
                "OOM incidents in pods: at least {incidents}, in at least {pods} pods, within {within}"
            ),
        ),
        Pressure::Normal => Outcome::no_problem(
            "FewOOMKills",
            format!(
                "OOM incidents in pods: fewer than {incidents}, or in fewer than {pods} pods, within {within}"
            ),
        ),
        Pressure::Unknown => Outcome::unknown("no source of OOM kills is available"),
    };
    append(
        NodepulseCondition::FrequentOomKills,
        &outcome,
        context,
        status,
    )
}

/// Returns `10 minutes` or `90 seconds`, for example.
fn period(period: Duration) -> String {
    match period.as_secs() {
        60 => "1 minute".to_owned(),
        seconds if seconds > 0 && seconds % 60 == 0 => format!("{} minutes", seconds / 60),
        _ => format!("{} seconds", period.as_secs_f64()),
    }
}

pub fn memory_stall(context: &Context<'_>, status: &mut NodeStatus) -> Set {
    stall(NodepulseCondition::MemoryStallPressure, context, status)
}

pub fn disk_stall(context: &Context<'_>, status: &mut NodeStatus) -> Set {
    stall(NodepulseCondition::DiskStallPressure, context, status)
}

pub fn pods_memory_stall(context: &Context<'_>, status: &mut NodeStatus) -> Set {
    stall(NodepulseCondition::PodsMemoryStallPressure, context, status)
}

pub fn pods_disk_stall(context: &Context<'_>, status: &mut NodeStatus) -> Set {
    stall(NodepulseCondition::PodsDiskStallPressure, context, status)
}

fn stall(
    condition_type: NodepulseCondition,
    context: &Context<'_>,
    status: &mut NodeStatus,
) -> Set {
    let Some(stall) = condition_type.stall() else {
        return Ok(());
    };
    let facts = &context.facts.companion;
    let (group, tasks) = match stall.of {
        StallOf::Node => ("the node".to_owned(), "tasks on the node".to_owned()),
        StallOf::Pods => {
            let group = format!("the pods cgroup {}", facts.pods_cgroup);
            let tasks = format!("tasks in {group}");
            (group, tasks)
        }
    };
    let kind = match stall.kind {
        StallKind::Memory => "memory",
        StallKind::Io => "I/O",
    };
    let percent = facts.stall_thresholds.of(stall.kind);
    let known = context.facts.stalls.get(&stall);
    let outcome = match known.copied().unwrap_or_default() {
        Pressure::UnderPressure { .. } => Outcome::problem(
            "Stalled",
            format!(
                "{tasks} stalled on {kind} for at least {percent}% of the time (PSI some) within the \
                 transition period"
            ),
        ),
        Pressure::Normal => Outcome::no_problem(
            "NotStalled",
            format!("{tasks} stall on {kind} for less than {percent}% of the time (PSI some)"),
        ),
        Pressure::Unknown => {
            Outcome::unknown(format!("{kind} stall (PSI) of {group} cannot be read"))
        }
    };
    append(condition_type, &outcome, context, status)
}

/// Returns the cause of the pressure on a resource; `None` without pressure.
fn cause_of(context: &Context<'_>, resource: Resource) -> Option<Cause> {
    match context.pressure(resource) {
        Pressure::UnderPressure { .. } => {
            let cause = context.facts.companion.causes.get(&resource);
            Some(cause.copied().unwrap_or(Cause::Stored))
        }
        Pressure::Normal | Pressure::Unknown => None,
    }
}

fn if_lost(resource: Resource, context: &Context<'_>) -> Option<Outcome> {
    let lost = context.lost(resource)?;
    Some(Outcome::unknown(cannot_be_read(resource, lost, context)))
}

/// Returns True: less than a threshold is available, or was within the transition period.
fn low(context: &Context<'_>, reason: &'static str, cause: Cause) -> Outcome {
    match cause {
        Cause::Below { signal, threshold } => {
            let signal = signal_name(signal, &context.facts.companion.pods_cgroup);
            let message =
                format!("{signal} has been below {threshold} within the transition period");
            Outcome::problem(reason, message)
        }
        Cause::Stored | Cause::OomKill(_) | Cause::Disks => Outcome::kept(
            reason,
            "a threshold has been met within the transition period",
        ),
    }
}

fn is_on(condition_type: NodepulseCondition, context: &Context<'_>) -> bool {
    context.facts.companion.writes(condition_type)
}

#[expect(clippy::unnecessary_wraps, reason = "the shape of a setter")]
fn append(
    condition_type: NodepulseCondition,
    outcome: &Outcome,
    context: &Context<'_>,
    status: &mut NodeStatus,
) -> Set {
    if is_on(condition_type, context) {
        let computed = ComputedCondition {
            type_: condition_type.type_(),
            status: outcome.status,
            reason: outcome.reason,
            message: &outcome.message,
        };
        status.push(computed, outcome.same);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::BootNanos;
    use crate::node_status::fixture::compute;
    use crate::node_status::fixture::{facts, now, stored, wall};
    use crate::node_status::setters::COMPANION;
    use crate::node_status::{Condition, Facts, StoredNode};
    use crate::pressure::threshold::ThresholdValue;
    use crate::reading::{AbsentSource, Stall};

    const UNDER: Pressure = Pressure::UnderPressure {
        last_exceeded: BootNanos(1),
    };

    fn conditions_of(facts: &Facts, before: Vec<Condition>) -> Vec<Condition> {
        let stored = StoredNode {
            conditions: before,
            ..StoredNode::default()
        };
        let (status, failed) = compute(COMPANION, facts, &stored, now());
        assert_eq!(failed, []);
        status.conditions
    }

    fn one(condition_type: NodepulseCondition, facts: &Facts) -> Condition {
        let mut all = conditions_of(facts, Vec::new()).into_iter();
        all.find(|c| c.type_ == condition_type.type_()).unwrap()
    }

    /// Returns facts without pressure, except for resources with these causes, and for lost
    /// sources.
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
    fn without_problems_every_condition_is_false_in_the_declared_order() {
        let all = conditions_of(&with(&[], &[]), Vec::new());
        let types: Vec<_> = all.iter().map(|c| c.type_.as_str()).collect();
        assert_eq!(
            types,
            NodepulseCondition::ALL.map(NodepulseCondition::type_)
        );
        let declared: Vec<_> = COMPANION.iter().map(|(name, _)| *name).collect();
        assert_eq!(types, declared);
        assert!(all.iter().all(|c| c.status == Status::False), "{all:#?}");
    }

    /// Condition, causes, lost sources; then status and reason.
    type Row<'a> = (
        NodepulseCondition,
        &'a [(Resource, Cause)],
        &'a [Resource],
        Status,
        &'a str,
    );

    #[test]
    fn reasons_follow_the_cause() {
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
        for (condition_type, causes, lost, status, reason) in rows {
            let condition = one(condition_type, &with(causes, lost));
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
    fn a_stored_message_is_kept_until_its_source_is_lost() {
        let before_restart = |type_| stored(type_, Status::True, "LowInodes", "stored message");
        let before = vec![
            before_restart("DiskSpaceLow"),
            before_restart("DiskIOPressure"),
            before_restart("DiskFailing"),
        ];
        let kept = [
            (Resource::Disk, Cause::Stored),
            (Resource::DiskIo, Cause::Stored),
            (Resource::DiskFailing, Cause::Stored),
        ];
        let texts = |facts: &Facts| -> Vec<_> {
            let all = conditions_of(facts, before.clone()).into_iter();
            let disks = all.filter(|c| c.type_.starts_with("Disk") && !c.type_.contains("Stall"));
            disks
                .map(|c| (c.status, c.message, c.last_transition_time))
                .collect()
        };
        let then = "stored message".to_owned();
        let expected = (Status::True, then, wall(1_000_000_000));
        let three = [expected.clone(), expected.clone(), expected];
        assert_eq!(texts(&with(&kept, &[])), three);
        for (status, _, _) in texts(&with(&kept, &kept.map(|(resource, _)| resource))) {
            assert_eq!(status, Status::Unknown);
        }
    }

    #[test]
    fn a_disabled_condition_is_omitted_and_one_without_a_source_is_unknown() {
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
        let all = conditions_of(&facts, Vec::new());
        let unknown: Vec<_> = all
            .iter()
            .filter(|c| c.status != Status::False)
            .map(|c| (c.type_.as_str(), c.status, c.reason.as_str()))
            .collect();
        let unavailable = |type_| (type_, Status::Unknown, UNAVAILABLE);
        let expected = [
            unavailable("FrequentOOMKills"),
            unavailable("PodsDiskStallPressure"),
        ];
        assert_eq!((all.len(), unknown), (8, expected.to_vec()));
    }

    #[test]
    fn a_condition_whose_source_cannot_exist_is_omitted() {
        let mut facts = with(&[], &[]);
        let pods_io = NodepulseCondition::PodsDiskStallPressure;
        let stall = pods_io.stall().unwrap();
        facts.stalls.remove(&stall);
        let absent = (stall, AbsentSource::CgroupV1);
        facts.companion.absent = [absent].into();
        let all = conditions_of(&facts, Vec::new());
        assert!(all.iter().all(|c| c.type_ != pods_io.type_()), "{all:#?}");
        assert_eq!(all.len(), NodepulseCondition::ALL.len() - 1);
        let expected = [(pods_io, AbsentSource::CgroupV1)].into();
        assert_eq!(facts.companion.omitted(), expected);
        facts.companion.checks.remove(&pods_io);
        assert_eq!(facts.companion.omitted(), [].into(), "it is off");
    }
}
