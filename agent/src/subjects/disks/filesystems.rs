//! Whether the file systems of the node became read-only.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::BootNanos;
use crate::reading::NodeFilesystem;

/// A file system becomes read-only a moment after the error that is the cause: it is read at once, and
/// once more after this time.
const AGAIN: Duration = Duration::from_secs(1);

/// Whether a file system can be written.
///
/// ```text
///            writable                   read-only
/// (unread) ───────────► Writable ◄──────────────────► ReadOnly
///    │                     ▲          writable            ▲
///    ├─ read-only ─► Immutable (not of nodefs)            │
///    └─ read-only, nodefs ────────────────────────────────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// It was read-only when the agent started: the root file system of many node images is.
    Immutable,
    Writable,
    /// It became read-only. No pod can run if nodefs is, whenever that happened.
    ReadOnly,
}

/// The file systems of the node.
#[derive(Debug, Default)]
pub(super) struct Filesystems {
    access: BTreeMap<NodeFilesystem, Access>,
    /// When to read them once more.
    again_at: Option<BootNanos>,
}

impl Filesystems {
    /// Those that became read-only.
    pub(super) fn read_only(&self) -> Vec<NodeFilesystem> {
        let read_only = self
            .access
            .iter()
            .filter(|(_, access)| **access == Access::ReadOnly);
        read_only.map(|(filesystem, _)| *filesystem).collect()
    }

    /// After an I/O error. Returns whether to read them now: they are read again in any case.
    pub(super) fn request(&mut self, now: BootNanos) -> bool {
        let at_once = self.again_at.is_none();
        self.again_at.get_or_insert(now.plus(AGAIN));
        at_once
    }

    pub(super) const fn due(&self) -> Option<BootNanos> {
        self.again_at
    }

    /// Whether they have to be read now.
    pub(super) fn take_due(&mut self, now: BootNanos) -> bool {
        self.again_at.take_if(|at| *at <= now).is_some()
    }

    /// Applies what was read, and returns those that became read-only or writable again.
    pub(super) fn apply(
        &mut self,
        read: Vec<(NodeFilesystem, bool)>,
    ) -> Vec<(NodeFilesystem, bool)> {
        let mut changes = Vec::new();
        for (filesystem, read_only) in read {
            let before = self.access.get(&filesystem).copied();
            let after = match (before, read_only) {
                (None, true) if filesystem == NodeFilesystem::Nodefs => Access::ReadOnly,
                (None | Some(Access::Immutable), true) => Access::Immutable,
                (Some(Access::Writable | Access::ReadOnly), true) => Access::ReadOnly,
                (_, false) => Access::Writable,
            };
            self.access.insert(filesystem, after);
            let is = |access| access == Access::ReadOnly;
            if before.is_some_and(is) != is(after) {
                changes.push((filesystem, read_only));
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use NodeFilesystem::{Imagefs, Nodefs, Root};

    use super::*;

    #[test]
    fn a_file_system_that_was_read_only_at_the_start_did_not_become_so_except_nodefs() {
        let rows: [(NodeFilesystem, &[bool], &[bool], &str); 6] = [
            (Root, &[true, true], &[false, false], "immutable root"),
            (
                Root,
                &[true, false, true],
                &[false, false, true],
                "writable once",
            ),
            (
                Root,
                &[false, true, true, false],
                &[false, true, true, false],
                "an error",
            ),
            (
                Imagefs,
                &[true, true],
                &[false, false],
                "an immutable image store",
            ),
            (Imagefs, &[false, true], &[false, true], "an error"),
            (
                Nodefs,
                &[true, true, false],
                &[true, true, false],
                "no pod can run",
            ),
        ];
        for (filesystem, script, expected, why) in rows {
            let mut filesystems = Filesystems::default();
            let mut before = false;
            for (read_only, expected) in script.iter().zip(expected) {
                let changes = filesystems.apply(vec![(filesystem, *read_only)]);
                let found = filesystems.read_only().contains(&filesystem);
                assert_eq!(found, *expected, "{why}");
                assert_eq!(changes.len(), usize::from(before != found), "{why}");
                before = found;
            }
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
}
