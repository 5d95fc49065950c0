//! The time that tasks of a cgroup of version 2 waited for memory, and the number of times that
//! they had to reclaim within its limit.

use std::path::Path;
use std::time::Duration;

use nodepulse_core::reading::StallKind;

use crate::host::{HostError, HostFile, field, present, psi};

/// Reads `total` of `some` of `memory.pressure` of the cgroup at `dir`. Returns `None` if the
/// kernel has no PSI, if it is disabled for the cgroup, or if the cgroup was removed.
pub fn stalled(dir: &Path, buf: &mut Vec<u8>) -> Result<Option<Duration>, HostError> {
    let read = psi::read(&psi::cgroup_file(dir, StallKind::Memory), buf)?;
    Ok(read.map(|psi| psi.total))
}

/// Reads the number of times that tasks directly in the cgroup at `dir` reached its `memory.high`
/// or `memory.max`. 0 without the memory controller, which means without a limit.
pub fn limit_hits(dir: &Path, buf: &mut Vec<u8>) -> Result<u64, HostError> {
    hits(dir, "memory.events.local", buf)
}

/// Reads the same number as [`limit_hits`], including all cgroups below this one.
pub fn limit_hits_of_tree(dir: &Path, buf: &mut Vec<u8>) -> Result<u64, HostError> {
    hits(dir, "memory.events", buf)
}

fn hits(dir: &Path, name: &str, buf: &mut Vec<u8>) -> Result<u64, HostError> {
    let file = HostFile::at(dir.join(name));
    if present(file.read(buf))?.is_none() {
        return Ok(0);
    }
    let of_both = field(buf, b"high").zip(field(buf, b"max"));
    let (high, max) = of_both.ok_or_else(|| file.malformed("`high` and `max` lines"))?;
    Ok(high.saturating_add(max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::scratch::Scratch;

    #[test]
    fn hits_of_both_limits_are_summed_and_a_missing_file_is_no_limit() {
        let dir = Scratch::new();
        dir.write(
            "pod/memory.events",
            "low 9\nhigh 30\nmax 4\noom 9\noom_kill 9\n",
        );
        dir.write("pod/memory.events.local", "low 9\nhigh 1\nmax 0\n");
        dir.write(
            "pod/memory.pressure",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\n",
        );
        dir.write("bad/memory.events.local", "low 9\n");
        dir.mkdir("none");
        let mut buf = Vec::new();
        let pod = dir.path().join("pod");
        assert_eq!(limit_hits_of_tree(&pod, &mut buf).unwrap(), 34);
        assert_eq!(limit_hits(&pod, &mut buf).unwrap(), 1);
        let total = stalled(&pod, &mut buf).unwrap();
        assert_eq!(total, Some(Duration::from_millis(1500)));
        for removed in ["none", "removed"] {
            let at = dir.path().join(removed);
            assert_eq!(limit_hits(&at, &mut buf).unwrap(), 0, "{removed}");
            assert_eq!(stalled(&at, &mut buf).unwrap(), None, "{removed}");
        }
        assert!(limit_hits(&dir.path().join("bad"), &mut buf).is_err());
    }
}
