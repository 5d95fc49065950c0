use NodeFilesystem::{Imagefs, Nodefs, Root};

use super::*;
use crate::tests::boot as at;

#[test]
fn a_file_system_that_was_read_only_at_the_start_did_not_become_so_except_nodefs() {
    #[rustfmt::skip]
    let rows: [(NodeFilesystem, &[bool], &[bool], &str); 6] = [
        (Root, &[true, true], &[false, false], "immutable root"),
        (Root, &[true, false, true], &[false, false, true], "writable once"),
        (Root, &[false, true, true, false], &[false, true, true, false], "an error"),
        (Imagefs, &[true, true], &[false, false], "an immutable image store"),
        (Imagefs, &[false, true], &[false, true], "an error"),
        (Nodefs, &[true, true, false], &[true, true, false], "no pod can run"),
    ];
    for (filesystem, script, expected, why) in rows {
        let mut filesystems = Filesystems::default();
        let mut before = false;
        for (read_only, expected) in script.iter().zip(expected) {
            let changes = filesystems.sampled(&[(filesystem.clone(), *read_only)]);
            let found = filesystems.read_only().contains(&filesystem);
            assert_eq!(found, *expected, "{why}");
            assert_eq!(changes.len(), usize::from(before != found), "{why}");
            before = found;
        }
    }
}

#[test]
fn what_is_unmounted_has_no_fault_any_more() {
    use FilesystemAccess::{ReadOnly, ShutDown, Writable};
    let reading = |filesystem: &NodeFilesystem, access| FilesystemReading {
        filesystem: filesystem.clone(),
        mount: 7,
        place: format!("{} on vdb", filesystem.as_str()),
        access,
        errors: None,
    };
    let [data, logs] = ["/data", "/logs"].map(|point| NodeFilesystem::Mounted(point.into()));
    let read = |filesystems: &mut Filesystems, of: &[(&NodeFilesystem, FilesystemAccess)]| {
        let all = of
            .iter()
            .map(|(filesystem, access)| reading(filesystem, *access));
        let changes = filesystems.read(all.collect(), at(1)).len();
        (changes, filesystems.read_only(), filesystems.failed())
    };
    let mut filesystems = Filesystems::default();
    filesystems.request(at(1));
    let none = (0, vec![], vec![]);
    let all = [(&Root, Writable), (&data, Writable), (&logs, Writable)];
    assert_eq!(read(&mut filesystems, &all), none);
    let failed = vec!["/logs on vdb".to_owned()];
    let faults = [(&Root, Writable), (&data, ReadOnly), (&logs, ShutDown)];
    let (read_only, failed) = (vec![data.clone()], failed);
    assert_eq!(
        read(&mut filesystems, &faults),
        (2, read_only.clone(), failed.clone())
    );
    assert_eq!(
        read(&mut filesystems, &[]),
        (0, read_only, failed),
        "not read"
    );
    assert_eq!(read(&mut filesystems, &all[..1]), (2, vec![], vec![]));
    let again = [(&Root, Writable), (&data, ReadOnly)];
    assert_eq!(
        read(&mut filesystems, &again),
        none,
        "mounted read-only on purpose"
    );
}

#[test]
fn a_mounted_file_system_is_remounted_read_only_on_purpose_unless_there_was_an_error() {
    use FilesystemAccess::{ReadOnly, Writable};
    let backup = NodeFilesystem::Mounted("/backup".into());
    //  second of an I/O error, mount when it is writable, mount when it is read-only, a fault
    let rows = [
        (None, 7, 7, false),
        (Some(99), 7, 7, true),
        (Some(30), 7, 7, false),
        (Some(99), 7, 8, false),
    ];
    for (error, before, after, expected) in rows {
        let mut filesystems = Filesystems::default();
        if let Some(seconds) = error {
            filesystems.request(at(seconds));
        }
        for (mount, access) in [(before, Writable), (after, ReadOnly), (after, ReadOnly)] {
            let reading = FilesystemReading {
                filesystem: backup.clone(),
                mount,
                place: "/backup on vdb".to_owned(),
                access,
                errors: None,
            };
            filesystems.read(vec![reading], at(100));
        }
        let found = !filesystems.read_only().is_empty();
        assert_eq!(found, expected, "{error:?} {after}");
    }
}

#[test]
fn after_an_error_they_are_read_at_once_and_a_second_later() {
    let at = |millis: u64| BootNanos(millis * 1_000_000);
    let mut filesystems = Filesystems::default();
    assert_eq!(filesystems.due(), None);
    assert!(filesystems.request(at(500)));
    assert!(
        !filesystems.request(at(900)),
        "the second read is scheduled"
    );
    assert_eq!(filesystems.due(), Some(at(1500)));
    assert!(!filesystems.take_due(at(1499)));
    assert!(filesystems.take_due(at(1500)));
    assert_eq!(filesystems.due(), None);
}

/// A read of nodefs.
#[derive(Clone, Copy)]
struct Read {
    mount: u64,
    access: FilesystemAccess,
    errors: Option<FilesystemErrors>,
}

/// Returns a read of a file system that continues after errors: their number, and the second of the
/// last one.
const fn counted(count: u64, last: u64) -> Read {
    Read {
        mount: 7,
        access: FilesystemAccess::Writable,
        errors: Some(FilesystemErrors {
            count,
            last,
            stopped: false,
        }),
    }
}

const fn stopped(count: u64, last: u64) -> Read {
    Read {
        errors: Some(FilesystemErrors {
            count,
            last,
            stopped: true,
        }),
        ..counted(count, last)
    }
}

/// The read of a file system that counts no errors, or whose count cannot be read.
const UNCOUNTED: Read = Read {
    errors: None,
    ..counted(0, 0)
};

const fn with(access: FilesystemAccess, read: Read) -> Read {
    Read { access, ..read }
}

const fn again(read: Read) -> Read {
    Read { mount: 8, ..read }
}

/// Second, read, true if the file system fails from then on.
type Step = (u64, Read, bool);

fn play(name: &str, steps: &[Step]) {
    let mut filesystems = Filesystems::default();
    let mut before = false;
    for (seconds, read, expected) in steps.iter().copied() {
        let reading = FilesystemReading {
            filesystem: Nodefs,
            mount: read.mount,
            place: "/kubelet on dm-0".to_owned(),
            access: read.access,
            errors: read.errors,
        };
        let changes = filesystems.read(vec![reading], at(seconds));
        let failed = filesystems.failed();
        assert_eq!(!failed.is_empty(), expected, "{name}, at {seconds} s");
        let is_of_errors = |change: &&DiskDecision| matches!(change, DiskDecision::FilesystemErrors { failed, .. } if *failed == expected);
        let logged = changes.iter().filter(is_of_errors).count();
        assert_eq!(logged, usize::from(before != expected), "{name}, {seconds}");
        let due = expected.then(|| at(seconds + 10));
        assert_eq!(filesystems.due(), due, "{name}, at {seconds} s");
        before = expected;
    }
}

#[test]
fn a_file_system_fails_if_it_counts_more_errors() {
    use FilesystemAccess::{ReadOnly, ShutDown, Writable};
    #[rustfmt::skip]
    let rows: [(&str, &[Step]); 7] = [
        (
            "an error after which it continues",
            &[
                (1, counted(0, 0), false),
                (10, counted(1, 9), true),
                (69, counted(1, 9), true),
                (70, counted(1, 9), false),
                (80, counted(3, 79), true),
            ],
        ),
        (
            "errors again and again",
            &[
                (1, counted(4, 1), false),
                (10, counted(5, 9), true),
                (60, counted(6, 59), true),
                (119, counted(6, 59), true),
                (120, counted(6, 59), false),
            ],
        ),
        (
            "it stopped, until it is mounted again",
            &[
                (1, stopped(2, 1), false),
                (10, stopped(3, 9), true),
                (5000, stopped(3, 9), true),
                (5010, again(stopped(3, 9)), false),
                (5020, again(stopped(3, 9)), false),
            ],
        ),
        ("repaired", &[(1, stopped(0, 0), false), (10, stopped(3, 9), true), (20, stopped(0, 0), false)]),
        (
            "read-only with the error, as before Linux 6.12",
            &[
                (1, counted(0, 0), false),
                (10, with(ReadOnly, counted(1, 9)), true),
                (5000, with(ReadOnly, counted(1, 9)), true),
                (5010, with(Writable, counted(1, 9)), false),
            ],
        ),
        (
            "shut down, also when the agent starts, and XFS",
            &[
                (1, with(ShutDown, UNCOUNTED), true),
                (5000, with(ShutDown, UNCOUNTED), true),
                (5010, again(UNCOUNTED), false),
            ],
        ),
        (
            "the count cannot be read meanwhile",
            &[
                (1, counted(1, 1), false),
                (10, UNCOUNTED, false),
                (20, counted(2, 19), true),
                (30, UNCOUNTED, true),
                (80, UNCOUNTED, false),
            ],
        ),
    ];
    for (name, steps) in rows {
        play(name, steps);
    }
}

#[test]
fn a_file_system_does_not_fail_by_old_errors_or_without_a_count() {
    use FilesystemAccess::ReadOnly;
    #[rustfmt::skip]
    let rows: [(&str, &[Step]); 8] = [
        ("errors of a former boot", &[(1, counted(9, 1), false), (10, counted(9, 1), false)]),
        ("errors of a former boot of one that stops", &[(1, stopped(9, 1), false), (10, stopped(9, 1), false)]),
        ("no count at all, as of XFS and Btrfs", &[(1, UNCOUNTED, false), (10, UNCOUNTED, false)]),
        ("readable later", &[(1, UNCOUNTED, false), (10, counted(5, 4), false)]),
        ("a rise without a newer time", &[(1, counted(1, 5), false), (10, counted(2, 5), false)]),
        ("a newer time without a rise", &[(1, counted(1, 5), false), (10, counted(1, 6), false)]),
        ("a fall, and the count before it again",
            &[(1, counted(5, 5), false), (10, counted(0, 0), false), (20, counted(0, 0), false)]),
        ("another file system with more errors", &[(1, counted(1, 1), false), (10, again(counted(5, 9)), false)]),
    ];
    for (name, steps) in rows {
        play(name, steps);
    }
    play(
        "read-only for maintenance",
        &[
            (1, counted(3, 1), false),
            (10, with(ReadOnly, counted(3, 1)), false),
        ],
    );
}

#[test]
fn a_sample_does_not_end_a_shut_down_file_system_but_a_read_of_the_mounts_does() {
    let mut filesystems = Filesystems::default();
    let reading = |access| FilesystemReading {
        filesystem: Nodefs,
        mount: 7,
        place: "/kubelet on dm-0".to_owned(),
        access,
        errors: None,
    };
    filesystems.read(vec![reading(FilesystemAccess::ShutDown)], at(1));
    let name = ["nodefs (/kubelet on dm-0)"];
    assert_eq!(filesystems.failed(), name);
    assert!(filesystems.sampled(&[(Nodefs, false)]).is_empty());
    assert_eq!(filesystems.failed(), name);
    assert!(filesystems.take_due(at(11)), "it is read again");
    assert_eq!(filesystems.due(), None, "once");
    filesystems.read(Vec::new(), at(16));
    assert_eq!(filesystems.due(), Some(at(26)), "after a timeout, too");
    filesystems.read(vec![reading(FilesystemAccess::Writable)], at(26));
    assert_eq!((filesystems.failed().len(), filesystems.due()), (0, None));
}

#[test]
fn a_sample_with_another_number_of_errors_leads_to_a_read() {
    let mut filesystems = Filesystems::default();
    let samples = [(0, false), (3, true), (3, false), (4, true), (0, true)];
    for (errors, expected) in samples {
        assert_eq!(filesystems.has_counted(errors), expected, "{errors}");
    }
}
