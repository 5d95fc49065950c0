//! `DiskFailing`: a disk of the node does not respond or returns errors, or a file system cannot be
//! written.
//!
//! The message names the disks and file systems, and contains no number that changes. The details
//! of the transition are in its Event.

use super::disk_io::{Texts, first_of, list, set_by};
use super::{Context, SetterError};
use crate::node_status::{Disks, NodeStatus};
use crate::reading::{NodeFilesystem, Resource};

pub const TYPE: &str = "DiskFailing";

pub fn set(context: &Context<'_>, status: &mut NodeStatus) -> Result<(), SetterError> {
    let texts = Texts {
        type_: TYPE,
        problem: problem(&context.facts.disks),
        kept: (
            "DiskErrors",
            "a disk or a file system failed within the transition period",
        ),
        no_problem: ("DisksHealthy", "all disks respond without errors"),
    };
    set_by(Resource::DiskFailing, &texts, context, status);
    Ok(())
}

/// Returns reason and message. The reason is the first that applies.
fn problem(disks: &Disks) -> Option<(&'static str, String)> {
    let names = disks.read_only.iter().map(NodeFilesystem::as_str);
    let read_only: Vec<String> = names.map(str::to_owned).collect();
    // They are escaped: as names, they would be quoted and cut.
    let failed = first_of(&disks.failed_filesystems, String::clone);
    let all = [
        ("StalledDisk", "stalled disk", list(&disks.stalled)),
        ("DiskErrors", "disk errors", list(&disks.failing)),
        ("FilesystemShutdown", "file system errors", failed),
        (
            "ReadOnlyFilesystem",
            "read-only file system",
            list(&read_only),
        ),
    ];
    let problems = all.into_iter().filter(|(_, _, names)| !names.is_empty());
    let mut reason = None;
    let mut texts = Vec::new();
    for (of, what, names) in problems {
        reason.get_or_insert(of);
        texts.push(format!("{what}: {names}"));
    }
    Some((reason?, texts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::BootNanos;
    use crate::node_status::fixture::{self, facts, stored};
    use crate::node_status::{Condition, Status};
    use crate::pressure::Pressure;

    const UNDER: Pressure = Pressure::UnderPressure {
        last_exceeded: BootNanos(1),
    };

    fn condition(pressure: Pressure, disks: Disks, before: Option<Condition>) -> Condition {
        let mut facts = facts();
        facts.pressures.insert(Resource::DiskFailing, pressure);
        facts.disks = disks;
        fixture::condition(TYPE, &facts, before)
    }

    fn disks(stalled: &[&str], failing: &[&str], read_only: &[NodeFilesystem]) -> Disks {
        let names = |of: &[&str]| of.iter().map(|&name| name.to_owned()).collect();
        Disks {
            slow: vec!["sdz".to_owned()],
            stalled: names(stalled),
            failing: names(failing),
            read_only: read_only.to_vec(),
            ..Disks::default()
        }
    }

    #[test]
    fn it_names_disks_and_file_systems_and_its_reason_is_the_worst() {
        use NodeFilesystem::{Nodefs, Root};
        #[rustfmt::skip]
        let rows = [
            (disks(&["sdb"], &["sda"], &[Nodefs]), "StalledDisk",
                "stalled disk: sdb; disk errors: sda; read-only file system: nodefs"),
            (disks(&[], &["sda", "sdb"], &[]), "DiskErrors", "disk errors: sda, sdb"),
            (disks(&[], &[], &[Nodefs, Root]), "ReadOnlyFilesystem", "read-only file system: nodefs, root"),
            (Disks { failed_filesystems: vec!["nodefs (/data on dm-3)".to_owned()], ..disks(&[], &[], &[Nodefs]) },
                "FilesystemShutdown",
                "file system errors: nodefs (/data on dm-3); read-only file system: nodefs"),
        ];
        for (disks, reason, message) in rows {
            let c = condition(UNDER, disks, None);
            let found = (c.status, &*c.reason, &*c.message);
            assert_eq!(found, (Status::True, reason, message));
        }
    }

    #[test]
    fn a_kept_true_names_what_failed_and_a_slow_disk_is_no_failure() {
        let before = || {
            Some(stored(
                TYPE,
                Status::True,
                "StalledDisk",
                "stalled disk: sdb",
            ))
        };
        let text = |c: Condition| (c.status, c.reason, c.message);
        let kept = condition(UNDER, disks(&[], &[], &[]), before());
        let expected = before().map(text);
        assert_eq!(Some(text(kept)), expected);
        let healthy = condition(Pressure::Normal, disks(&[], &[], &[]), before());
        let expected = ("DisksHealthy", "all disks respond without errors");
        assert_eq!((&*healthy.reason, &*healthy.message), expected);
        let unknown = condition(Pressure::Unknown, disks(&["sdb"], &[], &[]), before());
        assert_eq!(
            (unknown.status, &*unknown.reason),
            (Status::Unknown, "SourceUnavailable")
        );
    }
}
