//! Tasks of one cgroup against its own limit, and the forks that limits refused. The files are the
//! same in both versions.

use std::path::Path;

use super::{Hierarchy, read_limit};
use crate::host::{HostError, HostFile, field, present, signed};
use crate::reading::{Reading, Signal};

/// How many tasks one cgroup has, and may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CgroupPids {
    /// `pids.current`.
    pub current: u64,
    /// `pids.max`. `None`: no limit.
    pub max: Option<u64>,
}

impl CgroupPids {
    /// As `allocatablePid.available`, where these are the pods cgroup's. `None`: no limit, hence
    /// nothing to observe.
    #[must_use]
    pub fn reading(self) -> Option<Reading> {
        let max = self.max?;
        Some(Reading {
            signal: Signal::AllocatablePidAvailable,
            available: signed(max).saturating_sub(signed(self.current)),
            capacity: max,
        })
    }
}

/// How many forks were refused since the cgroup at `dir` was made: at its own limit, or, where the kernel
/// counts so, of its own tasks at the limit of any cgroup above. `None` where it is gone, or is the
/// top, which has no limit.
///
/// - Linux 6.11 and later on version 2 count `max` of `pids.events.local` where the limit was met,
///   and `max` of `pids.events` there and in all above: the sum would count a fork many times.
/// - Older kernels, version 1, and the mount option `pids_localevents` count where the fork was
///   tried. They have no `pids.events.local`, but for that option.
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

/// Reads two files of a cgroup. `None` where it is gone, or is the top, which has neither.
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
            let pids = Hierarchy {
                mount: dir.path().to_owned(),
                version: Version::V2,
            };
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
    fn refused_forks_are_counted_once_by_either_meaning() {
        //  name, pids.events.local, pids.events, then counted
        let rows = [
            (
                "before 6.11, version 1",
                None,
                Some("max 3\n"),
                Some(Some(3)),
            ),
            (
                "its own limit",
                Some("max 3\n"),
                Some("max 5\n"),
                Some(Some(3)),
            ),
            (
                "the limit of one below",
                Some("max 0\n"),
                Some("max 5\n"),
                Some(Some(0)),
            ),
            ("gone, or the top", None, None, Some(None)),
            ("garbled", None, Some("max -3\n"), None),
            (
                "another counter only",
                Some("forks 3\n"),
                Some("max 5\n"),
                None,
            ),
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
    fn only_a_limit_can_be_near() {
        let reading = |current, max| CgroupPids { current, max }.reading();
        let left = |current, max| reading(current, max).map(|r| (r.available, r.capacity));
        assert_eq!(left(7, None), None);
        assert_eq!(left(7, Some(100)), Some((93, 100)));
        assert_eq!(
            left(7, Some(5)),
            Some((-2, 5)),
            "lowered below what there is"
        );
    }
}
