//! Memory usage of the node and of a cgroup.
//!
//! The working set is usage minus inactive file cache (`inactive_file`). The top of version 2 has
//! no `memory.current`; `anon` plus `file` is used instead, which excludes kernel memory (slab,
//! page tables, socket buffers).

use nodepulse_core::reading::{Reading, Signal};
use nodepulse_core::units::Bytes;

use super::{Hierarchy, Version, read_limit};
use crate::host::{HostError, HostFile, field, signed};

/// Reads `memory.available`: the node's memory minus the working set of the top.
#[derive(Debug, Clone)]
pub struct RootMemory {
    usage: WorkingSet,
    total: Bytes,
}

impl RootMemory {
    /// Uses `total`, which is `MemTotal`, as the limit of the top.
    pub fn new(memory: &Hierarchy, total: Bytes) -> Self {
        let mut usage = WorkingSet::charged(memory, "/");
        if memory.version == Version::V2 {
            usage.used = Used::AnonAndFile;
        }
        Self { usage, total }
    }

    /// Reads one file, or two on version 1. Hot: does not allocate.
    pub fn read(&self, buf: &mut Vec<u8>) -> Result<Reading, HostError> {
        let working_set = self.usage.read(buf)?;
        Ok(reading(Signal::MemoryAvailable, self.total, working_set))
    }
}

/// Reads the memory of a cgroup other than the top, such as the pods cgroup.
#[derive(Debug, Clone)]
pub struct CgroupMemory {
    usage: WorkingSet,
    limit: HostFile,
}

impl CgroupMemory {
    /// The cgroup at this path may not exist yet.
    pub fn new(memory: &Hierarchy, cgroup: &str) -> Self {
        let limit = match memory.version {
            Version::V1 => "memory.limit_in_bytes",
            Version::V2 => "memory.max",
        };
        Self {
            usage: WorkingSet::charged(memory, cgroup),
            limit: memory.file(cgroup, limit),
        }
    }

    pub fn working_set(&self, buf: &mut Vec<u8>) -> Result<Bytes, HostError> {
        self.usage.read(buf)
    }

    /// Returns `None` if no limit is set.
    pub fn limit(&self, buf: &mut Vec<u8>) -> Result<Option<Bytes>, HostError> {
        Ok(read_limit(&self.limit, buf)?.map(Bytes::from_bytes))
    }

    /// Reads `allocatableMemory.available` of the pods cgroup: its limit minus its working set,
    /// which may be negative. Returns `None` without a limit. Hot: does not allocate.
    pub fn read(&self, buf: &mut Vec<u8>) -> Result<Option<Reading>, HostError> {
        let Some(limit) = self.limit(buf)? else {
            return Ok(None);
        };
        let working_set = self.working_set(buf)?;
        let signal = Signal::AllocatableMemoryAvailable;
        Ok(Some(reading(signal, limit, working_set)))
    }
}

fn reading(signal: Signal, capacity: Bytes, working_set: Bytes) -> Reading {
    Reading {
        signal,
        available: signed(capacity.get()).saturating_sub(signed(working_set.get())),
        capacity: capacity.get(),
    }
}

#[derive(Debug, Clone)]
struct WorkingSet {
    stat: HostFile,
    used: Used,
    inactive_file: &'static [u8],
}

#[derive(Debug, Clone)]
enum Used {
    /// `memory.current`, or version 1's `memory.usage_in_bytes`.
    File(HostFile),
    /// The sum of `anon` and `file` from `memory.stat`, for the top of version 2.
    AnonAndFile,
}

impl WorkingSet {
    /// Uses the memory that is charged to the cgroup, including its descendants.
    fn charged(memory: &Hierarchy, cgroup: &str) -> Self {
        Self {
            stat: memory.file(cgroup, "memory.stat"),
            used: Used::File(memory.file(cgroup, memory.version.memory_usage())),
            inactive_file: match memory.version {
                Version::V1 => b"total_inactive_file",
                Version::V2 => b"inactive_file",
            },
        }
    }

    fn read(&self, buf: &mut Vec<u8>) -> Result<Bytes, HostError> {
        let used = match &self.used {
            Used::File(usage) => Some(usage.number(buf)?),
            Used::AnonAndFile => None,
        };
        self.stat.read(buf)?;
        let of_stat = |key| field(buf, key).ok_or_else(|| self.stat.malformed("required counter"));
        let used = match used {
            Some(used) => used,
            None => of_stat(b"anon")?.saturating_add(of_stat(b"file")?),
        };
        let inactive = of_stat(self.inactive_file)?;
        // The files are not read atomically, so the difference could be negative.
        Ok(Bytes::from_bytes(used.saturating_sub(inactive)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::hierarchy;
    use super::*;
    use crate::host::scratch::Scratch;

    const V1_STAT: &str = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/proc/debian12-6.18/sys/fs/cgroup/memory/memory.stat"
    ));

    fn root_available(dir: &Scratch, version: Version, total: u64) -> Result<i64, HostError> {
        RootMemory::new(&hierarchy(dir.path(), version), Bytes::from_bytes(total))
            .read(&mut Vec::new())
            .map(|reading| reading.available)
    }

    #[test]
    fn the_node_on_version_2_counts_anon_and_file_of_the_top() {
        #[rustfmt::skip]
        let rows = [
            ("anon 300\nfile 500\ninactive_file 200\n", Some(400), "as specified"),
            ("anon 1\nfile 2\ninactive_file 9\n", Some(1000), "never a negative working set"),
            ("anon 2000\nfile 0\ninactive_file 0\n", Some(-1000), "more than there is"),
            ("anon 300\nfile_mapped 500\ninactive_file 2\n", None, "a counter is missing"),
            ("anon x\nfile 5\ninactive_file 2\n", None, "a counter is not a number"),
            ("", None, "empty"),
        ];
        for (stat, expected, why) in rows {
            let dir = Scratch::new();
            dir.write("memory.stat", stat);
            assert_eq!(
                root_available(&dir, Version::V2, 1000).ok(),
                expected,
                "{why}"
            );
        }
    }

    #[test]
    fn the_node_on_version_1_counts_usage_less_total_inactive_file() {
        let dir = Scratch::new();
        let inactive = field(V1_STAT.as_bytes(), b"total_inactive_file").unwrap();
        dir.write("memory.stat", V1_STAT);
        dir.write("memory.usage_in_bytes", format!("{}\n", inactive + 100));
        assert_eq!(root_available(&dir, Version::V1, 1000).unwrap(), 900);

        dir.write("memory.usage_in_bytes", "lots");
        let err = root_available(&dir, Version::V1, 1000).unwrap_err();
        assert!(err.to_string().contains("memory.usage_in_bytes"), "{err}");
    }

    #[test]
    fn the_pods_cgroup_is_measured_against_its_limit_on_both_versions() {
        let rows = [
            ("4000", Some((4000, 3200)), "within its limit"),
            ("500", Some((500, -300)), "above its limit"),
            ("max", None, "no limit, no observation"),
            ("9223372036854771712", None, "no limit in version 1"),
        ];
        for (limit, expected, why) in rows {
            let dir = Scratch::new();
            for name in ["memory.max", "memory.limit_in_bytes"] {
                dir.write(&format!("kubepods/{name}"), limit);
            }
            for name in ["memory.current", "memory.usage_in_bytes"] {
                dir.write(&format!("kubepods/{name}"), "1000");
            }
            // `inactive_file` of version 1 excludes descendants, and must not be used.
            dir.write(
                "kubepods/memory.stat",
                "inactive_file 200\ntotal_inactive_file 200\n",
            );
            for version in [Version::V1, Version::V2] {
                let pods = CgroupMemory::new(&hierarchy(dir.path(), version), "/kubepods");
                let got = pods.read(&mut Vec::new()).unwrap();
                let got = got.map(|r| (r.capacity, r.available));
                assert_eq!(got, expected, "{why}, {version:?}");
            }
            dir.write(
                "kubepods/memory.stat",
                "inactive_file 200\ntotal_inactive_file 700\n",
            );
            let v1 = CgroupMemory::new(&hierarchy(dir.path(), Version::V1), "/kubepods");
            assert_eq!(v1.working_set(&mut Vec::new()).unwrap().get(), 300, "{why}");
        }
    }

    #[test]
    fn a_removed_cgroup_is_absent() {
        let dir = Scratch::new();
        for version in [Version::V1, Version::V2] {
            let pods = CgroupMemory::new(&hierarchy(dir.path(), version), "/kubepods");
            assert!(pods.read(&mut Vec::new()).unwrap_err().is_absent());
        }
    }
}
