//! Tasks and pids limit of a cgroup, and refused forks. The files are the same in both versions.

use std::path::Path;

use nodepulse_core::reading::{Reading, Signal};

use super::{Hierarchy, read_limit};
use crate::host::{HostError, HostFile, field, present, signed};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CgroupPids {
    /// `pids.current`.
    pub current: u64,
    /// `pids.max`; `None` without a limit.
    pub max: Option<u64>,
}

impl CgroupPids {
    /// Returns `allocatablePid.available`, for the pods cgroup; `None` without a limit.
    pub fn reading(self) -> Option<Reading> {
        let max = self.max?;
        Some(Reading {
            signal: Signal::AllocatablePidAvailable,
            available: signed(max).saturating_sub(signed(self.current)),
            capacity: max,
        })
    }
}

/// Returns the number of forks refused since the cgroup at `dir` was created: at its limit, or,
/// depending on the kernel, of its tasks at the limit of an ancestor. `None` if it was removed, or
/// is the top.
///
/// - Linux 6.11 and later on version 2 count in `pids.events.local` of the cgroup whose limit was
///   reached, and in `pids.events` of that cgroup and its ancestors.
/// - Older kernels, version 1, and the mount option `pids_localevents` count in the cgroup of the
///   forking task. They have no `pids.events.local`, except with that option.
///
/// <https://github.com/torvalds/linux/blob/v6.12/kernel/cgroup/pids.c#L240-L273>
pub fn refused(dir: &Path, buf: &mut Vec<u8>) -> Result<Option<u64>, HostError> {
    for name in ["pids.events.local", "pids.events"] {
        let file = HostFile::at(dir.join(name));
        if present(file.read(buf))?.is_some() {
            let max = field(buf, b"max").ok_or_else(|| file.malformed("`max` counter"))?;
            return Ok(Some(max));
        }
    }
    Ok(None)
}

/// Reads two files of a cgroup. Returns `None` if it was removed, or is the top.
pub fn read(
    pids: &Hierarchy,
    cgroup: &str,
    buf: &mut Vec<u8>,
) -> Result<Option<CgroupPids>, HostError> {
    let Some(current) = present(pids.file(cgroup, "pids.current").number(buf))? else {
        return Ok(None);
    };
    let max = present(read_limit(&pids.file(cgroup, "pids.max"), buf))?;
    Ok(max.map(|max| CgroupPids { current, max }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::cgroup::Version;
    use crate::host::scratch::Scratch;

    #[test]
    fn current_and_max_are_read() {
        let rows = [
            (Some("7\n"), Some("max\n"), Some(Some((7, None)))),
            (Some("7\n"), Some("100\n"), Some(Some((7, Some(100))))),
            (None, None, Some(None)),
            (Some("7"), None, Some(None)),
            (Some("seven"), Some("max"), None),
            (Some("7"), Some("-1"), None),
        ];
        for (current, max, expected) in rows {
            let dir = Scratch::new();
            let pids = super::super::tests::hierarchy(dir.path(), Version::V2);
            for (name, text) in [("pids.current", current), ("pids.max", max)] {
                if let Some(text) = text {
                    dir.write(&format!("kubepods/{name}"), text);
                }
            }
            let got = read(&pids, "/kubepods", &mut Vec::new()).ok();
            let got = got.map(|pids| pids.map(|p| (p.current, p.max)));
            assert_eq!(got, expected, "{current:?} {max:?}");
        }
    }

    #[test]
    fn refused_forks_are_counted_once_on_every_kernel() {
        //  name, pids.events.local, pids.events, then counted
        #[rustfmt::skip]
        let rows = [
            ("before 6.11, version 1", None, Some("max 3\n"), Some(Some(3))),
            ("the cgroup's limit", Some("max 3\n"), Some("max 5\n"), Some(Some(3))),
            ("the limit of a descendant", Some("max 0\n"), Some("max 5\n"), Some(Some(0))),
            ("removed, or the top", None, None, Some(None)),
            ("malformed", None, Some("max -3\n"), None),
            ("another counter only", Some("forks 3\n"), Some("max 5\n"), None),
        ];
        for (name, local, all, expected) in rows {
            let dir = Scratch::new();
            for (file, text) in [("pids.events.local", local), ("pids.events", all)] {
                if let Some(text) = text {
                    dir.write(&format!("pod/{file}"), text);
                }
            }
            let got = refused(&dir.path().join("pod"), &mut Vec::new()).ok();
            assert_eq!(got, expected, "{name}");
        }
    }

    #[test]
    fn without_a_limit_there_is_no_reading() {
        let reading = |current, max| CgroupPids { current, max }.reading();
        let left = |current, max| reading(current, max).map(|r| (r.available, r.capacity));
        assert_eq!(left(7, None), None);
        assert_eq!(left(7, Some(100)), Some((93, 100)));
        assert_eq!(
            left(7, Some(5)),
            Some((-2, 5)),
            "lowered below the current number"
        );
    }
}
