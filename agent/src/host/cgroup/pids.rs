//! Tasks of one cgroup against its own limit. The files are the same in both versions.

use super::{Hierarchy, read_limit};
use crate::host::{HostError, present};

/// How many tasks one cgroup has, and may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CgroupPids {
    /// `pids.current`.
    pub current: u64,
    /// `pids.max`. `None`: no limit.
    pub max: Option<u64>,
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
}
