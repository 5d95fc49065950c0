//! Tests with file systems that became read-only or count errors.

use super::*;
use crate::reading::{FilesystemAccess, FilesystemErrors, FilesystemReading};

#[test]
fn a_file_system_that_becomes_read_only_is_published_until_it_is_writable() {
    use NodeFilesystem::{Nodefs, Root};
    let mut run = with_probe();
    let first = run.on(1, storage(&[(Nodefs, false), (Root, true)]));
    assert_eq!(facts(&first), None, "an immutable root");
    let read_only = storage(&[(Nodefs, true)]);
    let found = facts(&run.on(2, read_only)).map(|disks| disks.read_only);
    assert_eq!(found, Some(vec![Nodefs]));
    let writable = facts(&run.on(3, storage(&[(Nodefs, false)])));
    assert_eq!(writable.map(|disks| disks.read_only), Some(Vec::new()));
}

#[test]
fn a_file_system_that_counts_an_error_is_read_at_once_and_published() {
    use NodeFilesystem::Nodefs;
    let reading = |count| {
        DiskInput::FilesystemsRead(vec![FilesystemReading {
            filesystem: Nodefs,
            mount: 1,
            place: "/data on dm-3".to_owned(),
            access: FilesystemAccess::Writable,
            errors: Some(FilesystemErrors {
                count,
                last: count,
                stopped: true,
            }),
        }])
    };
    let sampled = |errors| DiskInput::StorageSampled {
        read_only: vec![(Nodefs, false)],
        errors,
    };
    let mut run = with_probe();
    assert_eq!(facts(&run.on(1, reading(7))), None, "of a former boot");
    for (seconds, errors, expected) in [(2, 7, true), (12, 7, false), (22, 8, true)] {
        let queries = queries(&run.on(seconds, sampled(errors)));
        let reads = queries.contains(&DiskQuery::Filesystems);
        assert_eq!(reads, expected, "at {seconds} s");
        run.tick(seconds + 1);
    }
    let failed = facts(&run.on(24, reading(8))).map(|disks| disks.failed_filesystems);
    assert_eq!(failed, Some(vec!["nodefs (/data on dm-3)".to_owned()]));
    assert!(
        run.tick(34).contains(&DiskQuery::Filesystems),
        "while it fails"
    );
}
