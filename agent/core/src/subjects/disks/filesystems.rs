//! Detects file systems of the node that became read-only, or returned errors.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::DiskDecision;
use crate::clock::BootNanos;
use crate::reading::{FilesystemAccess, FilesystemErrors, FilesystemReading, NodeFilesystem};

/// A file system becomes read-only a moment after the error that is the cause: it is read at once,
/// and once more after this time.
const AGAIN: Duration = Duration::from_secs(1);
/// The interval between reads while a file system fails.
const FAILING: Duration = Duration::from_secs(10);
/// A file system that continues after an error fails for this time, as a disk does.
const PERIOD: Duration = Duration::from_mins(1);

/// The access to a file system.
///
/// ```text
///            writable                   read-only
/// (unread) ───────────► Writable ◄──────────────────► ReadOnly
///    │                     ▲          writable            ▲
///    ├─ read-only ─► Immutable (not of nodefs)            │
///    └─ read-only, nodefs ────────────────────────────────┘
/// Mounted: Writable ── read-only without an I/O error ──► Immutable
/// any state ── shut down ──► ShutDown ── mounted again ──► Writable, ReadOnly
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Access {
    /// The file system was read-only when the agent started, as the root file system of many node
    /// images is.
    Immutable,
    Writable,
    /// The file system became read-only. For nodefs it does not matter when: without writing to it
    /// no pod can run.
    ReadOnly,
    ShutDown,
}

#[derive(Debug, Serialize, Deserialize)]
struct Errors {
    mount: u64,
    place: String,
    /// The errors at the last rise, or at the first read. They may be those of former boots.
    counted: Option<FilesystemErrors>,
    /// Time of the last rise, until it is over.
    rose_at: Option<BootNanos>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Filesystems {
    #[serde(with = "crate::pairs")]
    access: BTreeMap<NodeFilesystem, Access>,
    #[serde(with = "crate::pairs")]
    errors: BTreeMap<NodeFilesystem, Errors>,
    /// The sum of the errors in the last sample.
    sampled: u64,
    /// Time of the last I/O error.
    error_at: Option<BootNanos>,
    /// Time of the second read after an error.
    again_at: Option<BootNanos>,
    /// Time of the next read while one of them fails.
    failing_at: Option<BootNanos>,
}

impl Filesystems {
    pub(super) fn read_only(&self) -> Vec<NodeFilesystem> {
        let read_only = self
            .access
            .iter()
            .filter(|(_, access)| **access == Access::ReadOnly);
        read_only
            .map(|(filesystem, _)| filesystem.clone())
            .collect()
    }

    /// Returns those that returned errors, with their places.
    pub(super) fn failed(&self) -> Vec<String> {
        let failed = self.errors.iter().filter(|(filesystem, errors)| {
            let access = self.access.get(filesystem);
            errors.rose_at.is_some() || access == Some(&Access::ShutDown)
        });
        let text = |(filesystem, errors): (&NodeFilesystem, &Errors)| match filesystem {
            NodeFilesystem::Mounted(_) => errors.place.clone(),
            of_node => format!("{} ({})", of_node.as_str(), errors.place),
        };
        failed.map(text).collect()
    }

    /// Requests a read after an I/O error. Returns true if they must be read now: they are read
    /// again in any case.
    pub(super) fn request(&mut self, now: BootNanos) -> bool {
        let at_once = self.again_at.is_none();
        self.error_at = Some(now);
        self.again_at.get_or_insert(now.plus(AGAIN));
        at_once
    }

    /// Returns true if the number of errors in a sample differs from that of the last one.
    pub(super) fn has_counted(&mut self, errors: u64) -> bool {
        std::mem::replace(&mut self.sampled, errors) != errors
    }

    pub(super) fn due(&self) -> Option<BootNanos> {
        self.again_at.into_iter().chain(self.failing_at).min()
    }

    /// Returns true if they have to be read now.
    pub(super) fn take_due(&mut self, now: BootNanos) -> bool {
        let times = [&mut self.again_at, &mut self.failing_at];
        let due = times.map(|at| at.take_if(|at| *at <= now).is_some());
        due.contains(&true)
    }

    /// Applies a sample of storage: the file systems, each with true if it is read-only. Returns
    /// the changes.
    pub(super) fn sampled(&mut self, sample: &[(NodeFilesystem, bool)]) -> Vec<DiskDecision> {
        let mut changes = Vec::new();
        for (filesystem, read_only) in sample {
            // `statfs` does not show that a file system is shut down.
            if self.access.get(filesystem) != Some(&Access::ShutDown) {
                let access = if *read_only {
                    FilesystemAccess::ReadOnly
                } else {
                    FilesystemAccess::Writable
                };
                changes.extend(self.accessed(filesystem, access, true));
            }
        }
        changes
    }

    /// Applies a read of the mounts, and returns the changes.
    pub(super) fn read(
        &mut self,
        read: Vec<FilesystemReading>,
        now: BootNanos,
    ) -> Vec<DiskDecision> {
        let before = self.failed();
        let mut changes = self.forget_unmounted(&read);
        let has_failed = self.error_at.is_some_and(|at| now.since(at) < PERIOD);
        for reading in read {
            let is_mounted = matches!(reading.filesystem, NodeFilesystem::Mounted(_));
            let may_fail = !is_mounted || has_failed;
            changes.extend(self.accessed(&reading.filesystem, reading.access, may_fail));
            self.counted(reading, now);
        }
        let after = self.failed();
        let difference = |of: &[String], others: &[String], failed| {
            let only = of.iter().filter(|name| !others.contains(name));
            let decision = |name: &String| DiskDecision::FilesystemErrors {
                filesystem: name.clone(),
                failed,
            };
            only.map(decision).collect::<Vec<_>>()
        };
        changes.extend(difference(&after, &before, true));
        changes.extend(difference(&before, &after, false));
        self.failing_at = (!after.is_empty()).then(|| now.plus(FAILING));
        changes
    }

    /// Removes what was unmounted, or mounted again, and returns the changes.
    fn forget_unmounted(&mut self, read: &[FilesystemReading]) -> Vec<DiskDecision> {
        let is_gone = |filesystem: &NodeFilesystem, mount: u64| {
            // Others are a part of every node, or nothing was read.
            matches!(filesystem, NodeFilesystem::Mounted(_))
                && !read.is_empty()
                && !read
                    .iter()
                    .any(|one| one.filesystem == *filesystem && one.mount == mount)
        };
        let gone = self
            .errors
            .extract_if(.., |filesystem, errors| is_gone(filesystem, errors.mount));
        let access = &mut self.access;
        let gone = gone.filter_map(|(filesystem, _)| access.remove_entry(&filesystem));
        let read_only = gone.filter(|(_, access)| *access == Access::ReadOnly);
        let change = |(filesystem, _)| DiskDecision::ReadOnly {
            filesystem,
            read_only: false,
        };
        read_only.map(change).collect()
    }

    /// `may_fail` is false if one that was writable was remounted read-only on purpose, as after a
    /// backup.
    fn accessed(
        &mut self,
        filesystem: &NodeFilesystem,
        access: FilesystemAccess,
        may_fail: bool,
    ) -> Option<DiskDecision> {
        let before = self.access.get(filesystem).copied();
        let after = match (before, access) {
            (_, FilesystemAccess::ShutDown) => Access::ShutDown,
            (_, FilesystemAccess::Writable) => Access::Writable,
            (None, FilesystemAccess::ReadOnly) if *filesystem == NodeFilesystem::Nodefs => {
                Access::ReadOnly
            }
            (None | Some(Access::Immutable), FilesystemAccess::ReadOnly) => Access::Immutable,
            (Some(Access::Writable), FilesystemAccess::ReadOnly) if !may_fail => Access::Immutable,
            (
                Some(Access::Writable | Access::ReadOnly | Access::ShutDown),
                FilesystemAccess::ReadOnly,
            ) => Access::ReadOnly,
        };
        self.access.insert(filesystem.clone(), after);
        let read_only = after == Access::ReadOnly;
        let changed = before.is_some_and(|before| before == Access::ReadOnly) != read_only;
        changed.then(|| DiskDecision::ReadOnly {
            filesystem: filesystem.clone(),
            read_only,
        })
    }

    /// Compares the number of errors with the last one. Only a rise is a failure: a healthy file
    /// system may have had errors in a former boot.
    fn counted(&mut self, reading: FilesystemReading, now: BootNanos) {
        let FilesystemReading {
            filesystem,
            mount,
            place,
            access,
            errors: read,
        } = reading;
        let new = Errors {
            mount,
            place,
            counted: read,
            rose_at: None,
        };
        let errors = match self.errors.entry(filesystem) {
            std::collections::btree_map::Entry::Vacant(entry) => entry.insert(new),
            std::collections::btree_map::Entry::Occupied(entry) => {
                let errors = entry.into_mut();
                if errors.mount != new.mount {
                    *errors = new;
                }
                errors
            }
        };
        match (errors.counted, read) {
            (None, Some(_)) => errors.counted = read,
            (Some(before), Some(after)) if after.count < before.count => {
                errors.counted = read;
                errors.rose_at = None;
            }
            (Some(before), Some(after))
                if before.count < after.count && before.last < after.last =>
            {
                errors.counted = read;
                errors.rose_at = Some(now);
            }
            (_, None) | (Some(_), Some(_)) => {}
        }
        let stopped = errors.counted.is_some_and(|counted| counted.stopped);
        let continues = access == FilesystemAccess::Writable && !stopped;
        errors
            .rose_at
            .take_if(|at| continues && PERIOD <= now.since(*at));
    }
}

#[cfg(test)]
mod tests;
