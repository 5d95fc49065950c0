//! The memory of cgroups that reach their limits.

use tracing::debug;

use crate::host::HostRoot;
use crate::host::cgroup::memory_limit;
use crate::host::cgroup::pods::PodsPath;
use crate::host::meminfo::MeminfoFile;
use crate::subjects::MemoryLimitInput;
use crate::units::{Bytes, CgroupId};

/// Reads the cgroups with a limit in these pods.
pub(super) fn read(
    root: &HostRoot,
    pods: &PodsPath,
    of: Vec<(CgroupId, String)>,
) -> MemoryLimitInput {
    let Some(layout) = pods.layout() else {
        return none(&of);
    };
    let meminfo = MeminfoFile::new(root).read(&mut Vec::new());
    let swap_free = meminfo.map_or_else(
        |err| {
            let err = &err as &dyn std::error::Error;
            debug!(err, "swap space not read");
            Bytes::default()
        },
        |meminfo| meminfo.swap_free,
    );
    let read = of.into_iter().map(|(id, path)| {
        let cgroups = memory_limit::of_pod(&layout.memory, &path, swap_free);
        (id, cgroups)
    });
    MemoryLimitInput::Read {
        pods: pods.path().to_owned(),
        read: read.collect(),
    }
}

/// Nothing was read.
pub(super) fn none(of: &[(CgroupId, String)]) -> MemoryLimitInput {
    MemoryLimitInput::Read {
        pods: String::new(),
        read: of.iter().map(|(id, _)| (*id, None)).collect(),
    }
}
