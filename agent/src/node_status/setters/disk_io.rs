//! `DiskIOPressure`: whether the disks respond in time.
//!
//! The message names the disks and contains no number that changes. During the transition period no
//! disk is slow any more, and the stored message stays.

use super::{Context, SetterError, UNAVAILABLE};
use crate::node_status::stamp::{ComputedCondition, SameStatus};
use crate::node_status::{Disks, NodeStatus, Status};
use crate::pressure::Pressure;
use crate::reading::Resource;

/// `type`.
pub const TYPE: &str = "DiskIOPressure";

/// Maximum number of disks in a list; the others are counted. A JBOD has a hundred.
const MAX_NAMED: usize = 5;

/// Maximum length of a name: the kernel's `DISK_NAME_LEN`.
const NAME_LENGTH: usize = 32;

/// Appends the condition.
pub fn set(context: &Context<'_>, status: &mut NodeStatus) -> Result<(), SetterError> {
    let disks = &context.facts.disks;
    let named = message(disks);
    // Without a source a stored True does not stay.
    let unavailable = cannot_be_read(disks);
    let unknown = (
        Status::Unknown,
        SameStatus::ReplacesText,
        UNAVAILABLE,
        &*unavailable,
    );
    let pressure = context.pressure(Resource::DiskIo);
    let (value, same, reason, message) = match pressure {
        _ if context.lost(Resource::DiskIo).is_some() => unknown,
        Pressure::UnderPressure { .. } if !disks.stalled.is_empty() => (
            Status::True,
            SameStatus::ReplacesText,
            "StalledDisk",
            &*named,
        ),
        Pressure::UnderPressure { .. } if !disks.failing.is_empty() => (
            Status::True,
            SameStatus::ReplacesText,
            "DiskErrors",
            &*named,
        ),
        Pressure::UnderPressure { .. } if !disks.slow.is_empty() => {
            (Status::True, SameStatus::ReplacesText, "SlowDisk", &*named)
        }
        Pressure::UnderPressure { .. } => (
            Status::True,
            SameStatus::KeepsText,
            "SlowDisk",
            "a disk was slow within the transition period",
        ),
        Pressure::Normal => (
            Status::False,
            SameStatus::ReplacesText,
            "DisksResponsive",
            "all disks respond in time",
        ),
        Pressure::Unknown => unknown,
    };
    let computed = ComputedCondition {
        type_: TYPE,
        status: value,
        reason,
        message,
    };
    status.push(computed, same);
    Ok(())
}

/// Why the state of the disks is unknown.
pub(super) fn cannot_be_read(disks: &Disks) -> String {
    let what = "the latency of the disks cannot be read";
    if disks.unwatched.is_empty() {
        return what.to_owned();
    }
    let file = |name: &String| format!("/sys/block/{}/queue/iostats", escaped(name));
    let files: Vec<String> = disks.unwatched.iter().take(MAX_NAMED).map(file).collect();
    let more = match disks.unwatched.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let files = files.join(", ");
    format!("{what}: I/O statistics are off ({files}{more})")
}

fn message(disks: &Disks) -> String {
    [
        ("stalled disk", &disks.stalled),
        ("disk errors", &disks.failing),
        ("slow disk", &disks.slow),
    ]
    .into_iter()
    .filter(|(_, names)| !names.is_empty())
    .map(|(what, names)| format!("{what}: {}", list(names)))
    .collect::<Vec<_>>()
    .join("; ")
}

fn list(names: &[String]) -> String {
    let first = names
        .iter()
        .take(MAX_NAMED)
        .map(|name| escaped(name))
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().saturating_sub(MAX_NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// A user who can create a device may choose its name.
fn escaped(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for c in name.chars().take(NAME_LENGTH) {
        if c.is_ascii_graphic() {
            text.push(c);
        } else {
            text.extend(c.escape_default());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::BootNanos;
    use crate::node_status::fixture::compute;
    use crate::node_status::fixture::{facts, now, stored, wall};
    use crate::node_status::setters::SETTERS;
    use crate::node_status::{Condition, StoredNode};

    const UNDER: Pressure = Pressure::UnderPressure {
        last_exceeded: BootNanos(1),
    };

    fn condition(
        pressure: Pressure,
        stalled: &[&str],
        slow: &[&str],
        before: Option<Condition>,
    ) -> Condition {
        let names = |of: &[&str]| of.iter().map(|&name| name.to_owned()).collect();
        let mut facts = facts();
        facts.pressures.insert(Resource::DiskIo, pressure);
        facts.disks = Disks {
            slow: names(slow),
            stalled: names(stalled),
            ..Disks::default()
        };
        let stored = StoredNode {
            conditions: before.into_iter().collect(),
            ..StoredNode::default()
        };
        let (status, _) = compute(SETTERS, &facts, &stored, now());
        status
            .conditions
            .into_iter()
            .find(|c| c.type_ == TYPE)
            .unwrap()
    }

    /// State, stalled and slow disks; then status, reason and message.
    type Row<'a> = (
        Pressure,
        &'a [&'a str],
        &'a [&'a str],
        Status,
        &'a str,
        &'a str,
    );

    #[test]
    fn it_names_the_disks() {
        use Status::{False, True, Unknown};
        let hostile = format!("\u{1b}[2J{}", "x".repeat(40));
        let cut = format!("slow disk: \\u{{1b}}[2J{}", "x".repeat(28));
        let rows: [Row<'_>; 9] = [
            (UNDER, &[], &["sda"], True, "SlowDisk", "slow disk: sda"),
            (
                UNDER,
                &["sdb"],
                &[],
                True,
                "StalledDisk",
                "stalled disk: sdb",
            ),
            (
                UNDER,
                &["sdb"],
                &["sda", "sdc"],
                True,
                "StalledDisk",
                "stalled disk: sdb; slow disk: sda, sdc",
            ),
            (
                UNDER,
                &[],
                &["a", "b", "c", "d", "e"],
                True,
                "SlowDisk",
                "slow disk: a, b, c, d, e",
            ),
            (
                UNDER,
                &[],
                &["a", "b", "c", "d", "e", "f"],
                True,
                "SlowDisk",
                "slow disk: a, b, c, d, e and 1 more",
            ),
            (UNDER, &[], &[&hostile], True, "SlowDisk", &cut),
            (
                UNDER,
                &[],
                &[],
                True,
                "SlowDisk",
                "a disk was slow within the transition period",
            ),
            (
                Pressure::Normal,
                &[],
                &[],
                False,
                "DisksResponsive",
                "all disks respond in time",
            ),
            (
                Pressure::Unknown,
                &[],
                &[],
                Unknown,
                "SourceUnavailable",
                "the latency of the disks cannot be read",
            ),
        ];
        for (pressure, stalled, slow, status, reason, message) in rows {
            let c = condition(pressure, stalled, slow, None);
            assert_eq!(
                (c.status, &*c.reason, &*c.message),
                (status, reason, message),
                "{stalled:?} {slow:?}"
            );
        }
    }

    #[test]
    fn without_statistics_it_names_the_files() {
        let names = |n: usize| (0..n).map(|n| format!("sd{n}")).collect();
        let of = |unwatched| {
            let mut facts = facts();
            facts.lost.insert(Resource::DiskIo, Vec::new());
            facts.pressures.insert(Resource::DiskIo, UNDER);
            facts.disks.unwatched = unwatched;
            let (status, _) = compute(SETTERS, &facts, &StoredNode::default(), now());
            let of_disks = status.conditions.into_iter().find(|c| c.type_ == TYPE);
            let condition = of_disks.unwrap();
            assert_eq!(condition.status, Status::Unknown);
            condition.message
        };
        let one = "the latency of the disks cannot be read: I/O statistics are off \
                   (/sys/block/sd0/queue/iostats)";
        assert_eq!(of(names(1)), one);
        let many = of(names(7));
        assert!(
            many.ends_with("/sys/block/sd4/queue/iostats and 2 more)"),
            "{many}"
        );
    }

    #[test]
    fn errors_rank_above_slowness_and_below_a_stall() {
        let one = |name: &str| vec![name.to_owned()];
        for (stalled, reason, message) in [
            (Vec::new(), "DiskErrors", "disk errors: sdb; slow disk: sda"),
            (
                one("sdc"),
                "StalledDisk",
                "stalled disk: sdc; disk errors: sdb; slow disk: sda",
            ),
        ] {
            let mut facts = facts();
            facts.pressures.insert(Resource::DiskIo, UNDER);
            facts.disks = Disks {
                slow: one("sda"),
                stalled,
                failing: one("sdb"),
                ..Disks::default()
            };
            let (status, _) = compute(SETTERS, &facts, &StoredNode::default(), now());
            let of_disks = status.conditions.into_iter().find(|c| c.type_ == TYPE);
            let condition = of_disks.unwrap();
            assert_eq!((&*condition.reason, &*condition.message), (reason, message));
        }
    }

    #[test]
    fn the_message_follows_the_disks_and_the_transition_time_follows_the_status() {
        let then = wall(1_000_000_000);
        let at_once = wall(1_800_000_000);
        let before = || {
            Some(stored(
                TYPE,
                Status::True,
                "StalledDisk",
                "stalled disk: sdb",
            ))
        };

        let c = condition(UNDER, &[], &["sda"], before());
        assert_eq!(
            (&*c.reason, &*c.message, c.last_transition_time),
            ("SlowDisk", "slow disk: sda", then),
            "another disk is no transition"
        );
        let c = condition(UNDER, &[], &[], before());
        assert_eq!(
            (&*c.reason, &*c.message, c.last_transition_time),
            ("StalledDisk", "stalled disk: sdb", then),
            "kept: names the disk"
        );
        let c = condition(Pressure::Normal, &[], &[], before());
        assert_eq!(
            (&*c.reason, c.last_transition_time),
            ("DisksResponsive", at_once),
            "ended"
        );
        let c = condition(Pressure::Unknown, &[], &[], before());
        assert_eq!(
            (c.status, &*c.reason, c.last_transition_time),
            (Status::Unknown, "SourceUnavailable", at_once),
            "a lost source does not keep a stored True"
        );
    }
}
