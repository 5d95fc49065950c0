//! `DiskIOPressure`: a disk does not respond in time.
//!
//! The message names the disks and contains no number that changes. During the transition period no
//! disk is slow any more, and the stored message stays.

use super::{Context, SetterError, UNAVAILABLE};
use crate::escape::quote_to;
use crate::node_status::stamp::{ComputedCondition, SameStatus};
use crate::node_status::{Disks, NodeStatus, Status};
use crate::pressure::Pressure;
use crate::reading::Resource;

pub const TYPE: &str = "DiskIOPressure";

/// Maximum number of disks in a list; the others are counted. A JBOD has a hundred.
const MAX_NAMED: usize = 5;

/// Maximum length of a name: the kernel's `DISK_NAME_LEN`.
const NAME_LENGTH: usize = 32;

/// Maximum length of the path of a file about a disk.
const PATH_LENGTH: usize = 64;

pub fn set(context: &Context<'_>, status: &mut NodeStatus) -> Result<(), SetterError> {
    let slow = &context.facts.disks.slow;
    let texts = Texts {
        type_: TYPE,
        problem: (!slow.is_empty()).then(|| ("SlowDisk", format!("slow disk: {}", list(slow)))),
        kept: ("SlowDisk", "a disk was slow within the transition period"),
        no_problem: ("DisksResponsive", "all disks respond in time"),
    };
    set_by(Resource::DiskIo, &texts, context, status);
    Ok(())
}

pub(super) struct Texts {
    pub(super) type_: &'static str,
    /// Reason and message while a disk has the problem.
    pub(super) problem: Option<(&'static str, String)>,
    /// Reason and message of a True that is kept for the transition period, if it has no other.
    pub(super) kept: (&'static str, &'static str),
    /// Reason and message of False.
    pub(super) no_problem: (&'static str, &'static str),
}

pub(super) fn set_by(
    resource: Resource,
    texts: &Texts,
    context: &Context<'_>,
    status: &mut NodeStatus,
) {
    // Without a source a stored True does not stay.
    let unavailable = cannot_be_read(&context.facts.disks);
    let replaces = SameStatus::ReplacesText;
    let unknown = (Status::Unknown, replaces, UNAVAILABLE, &*unavailable);
    let (value, same, reason, message) = match (context.pressure(resource), &texts.problem) {
        _ if context.lost(resource).is_some() => unknown,
        (Pressure::UnderPressure { .. }, Some((reason, message))) => {
            (Status::True, replaces, *reason, &**message)
        }
        (Pressure::UnderPressure { .. }, None) => {
            let (reason, message) = texts.kept;
            (Status::True, SameStatus::KeepsText, reason, message)
        }
        (Pressure::Normal, _) => {
            let (reason, message) = texts.no_problem;
            (Status::False, replaces, reason, message)
        }
        (Pressure::Unknown, _) => unknown,
    };
    let computed = ComputedCondition {
        type_: texts.type_,
        status: value,
        reason,
        message,
    };
    status.push(computed, same);
}

/// Explains why the state of the disks is unknown.
pub(super) fn cannot_be_read(disks: &Disks) -> String {
    let what = "the latency of the disks cannot be read";
    if disks.unwatched.is_empty() {
        return what.to_owned();
    }
    let file = |name: &String| {
        let path = format!("/sys/block/{name}/queue/iostats");
        quote_to(path, PATH_LENGTH)
    };
    let files = first_of(&disks.unwatched, file);
    format!("{what}: I/O statistics are off ({files})")
}

pub(super) fn list(names: &[String]) -> String {
    first_of(names, |name| quote_to(name, NAME_LENGTH))
}

pub(super) fn first_of(names: &[String], shown: impl Fn(&String) -> String) -> String {
    let first: Vec<String> = names.iter().take(MAX_NAMED).map(shown).collect();
    let first = first.join(", ");
    match names.len().saturating_sub(MAX_NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::BootNanos;
    use crate::node_status::Condition;
    use crate::node_status::fixture::{self, facts, stored, wall};

    const UNDER: Pressure = Pressure::UnderPressure {
        last_exceeded: BootNanos(1),
    };

    fn condition(pressure: Pressure, slow: &[&str], before: Option<Condition>) -> Condition {
        let mut facts = facts();
        facts.pressures.insert(Resource::DiskIo, pressure);
        facts.disks = Disks {
            slow: slow.iter().map(|&name| name.to_owned()).collect(),
            stalled: vec!["sdz".to_owned()],
            ..Disks::default()
        };
        fixture::condition(TYPE, &facts, before)
    }

    /// State and slow disks; then status, reason and message.
    type Row<'a> = (Pressure, &'a [&'a str], Status, &'a str, &'a str);

    #[test]
    fn it_names_the_disks() {
        use Status::{False, True, Unknown};
        let hostile = format!("\u{1b}[2J{}", "x".repeat(40));
        let cut = format!("slow disk: \"\\u{{1b}}[2J{}…\"", "x".repeat(23));
        let five = ["a", "b", "c", "d", "e"];
        let six = ["a", "b", "c", "d", "e", "f"];
        #[rustfmt::skip]
        let rows: [Row<'_>; 7] = [
            (UNDER, &["sda"], True, "SlowDisk", "slow disk: sda"),
            (UNDER, &five, True, "SlowDisk", "slow disk: a, b, c, d, e"),
            (UNDER, &six, True, "SlowDisk", "slow disk: a, b, c, d, e and 1 more"),
            (UNDER, &[&hostile], True, "SlowDisk", &cut),
            (UNDER, &[], True, "SlowDisk", "a disk was slow within the transition period"),
            (Pressure::Normal, &[], False, "DisksResponsive", "all disks respond in time"),
            (Pressure::Unknown, &[], Unknown, "SourceUnavailable", "the latency of the disks cannot be read"),
        ];
        for (pressure, slow, status, reason, message) in rows {
            let c = condition(pressure, slow, None);
            let found = (c.status, &*c.reason, &*c.message);
            assert_eq!(found, (status, reason, message), "{slow:?}");
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
            let condition = fixture::condition(TYPE, &facts, None);
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
    fn the_message_follows_the_disks_and_the_transition_time_follows_the_status() {
        let then = wall(1_000_000_000);
        let at_once = wall(1_800_000_000);
        let before = || Some(stored(TYPE, Status::True, "SlowDisk", "slow disk: sdb"));

        //  state, slow disks; then status, message, time of the transition
        #[rustfmt::skip]
        let rows: [(Pressure, &[&str], Status, &str, _, &str); 4] = [
            (UNDER, &["sda"], Status::True, "slow disk: sda", then, "another disk is no transition"),
            (UNDER, &[], Status::True, "slow disk: sdb", then, "kept: names the disk"),
            (Pressure::Normal, &[], Status::False, "all disks respond in time", at_once, "ended"),
            (Pressure::Unknown, &[], Status::Unknown, "the latency of the disks cannot be read", at_once, "a lost source"),
        ];
        for (pressure, slow, status, message, time, why) in rows {
            let c = condition(pressure, slow, before());
            let found = (c.status, &*c.message, c.last_transition_time);
            assert_eq!(found, (status, message, time), "{why}");
        }
    }
}
