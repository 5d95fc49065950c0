//! The memory of pods and containers that have a limit, on version 2.
//!
//! Version 1 has no counter like `max` whose changes it reports: `memory.failcnt` must be polled, and
//! the eventfd of `memory.usage_in_bytes` counts file pages.

use super::{Hierarchy, read_limit, walk};
use crate::host::{HostError, HostFile, field, present};
use crate::reading::memory_limit::{LimitedCgroup, LimitedMemory};
use crate::units::Bytes;

/// Cgroups of one pod that are read: its own, and those of its containers.
const MOST_CGROUPS: usize = 64;

/// The cgroups of a pod that have a limit and have reached it: its own and those directly below it. A
/// cgroup that is removed meanwhile, or cannot be read, is left out. `None`: the pod was removed.
///
/// `swap_free` is what is left on the node.
///
/// # Cost
///
/// One small file for each cgroup, and five more for each that has reached its limit.
pub fn of_pod(memory: &Hierarchy, pod: &str, swap_free: Bytes) -> Option<Vec<LimitedCgroup>> {
    let (mut found, mut buf, mut seen) = (Vec::new(), Vec::new(), 0_usize);
    let walked = walk::each_below(memory, pod, 1, |id, _, path| {
        if let Ok(Some(memory)) = read(memory, path, swap_free, &mut buf) {
            let path = path.to_owned();
            found.push(LimitedCgroup { id, path, memory });
        }
        seen = seen.saturating_add(1);
        seen < MOST_CGROUPS
    });
    walked.is_ok().then_some(found)
}

/// `None`: it was removed, has no limit, or has never reached it.
fn read(
    memory: &Hierarchy,
    cgroup: &str,
    swap_free: Bytes,
    buf: &mut Vec<u8>,
) -> Result<Option<LimitedMemory>, HostError> {
    let events = memory.file(cgroup, "memory.events.local");
    if present(events.read(buf))?.is_none() {
        return Ok(None);
    }
    let hits = of(&events, buf, b"max")?;
    if hits == 0 {
        return Ok(None);
    }
    let Some(limit) = read_limit(&memory.file(cgroup, "memory.max"), buf)? else {
        return Ok(None);
    };
    let usage = memory.file(cgroup, "memory.current").number(buf)?;
    let stat = memory.file(cgroup, "memory.stat");
    stat.read(buf)?;
    // The files are not read atomically, so a difference could be negative.
    let reclaimable = of(&stat, buf, b"active_file")?
        .saturating_add(of(&stat, buf, b"inactive_file")?)
        .saturating_add(field(buf, b"slab_reclaimable").unwrap_or_default());
    let (anon, shmem) = (of(&stat, buf, b"anon")?, of(&stat, buf, b"shmem")?);
    // Missing if the kernel does not account for swap.
    let swapped = present(memory.file(cgroup, "memory.swap.current").number(buf))?;
    let swap_limit = present(read_limit(&memory.file(cgroup, "memory.swap.max"), buf))?;
    let swapped = swapped.unwrap_or_default();
    let allowed = swap_limit
        .flatten()
        .map_or(u64::MAX, |limit| limit.saturating_sub(swapped));
    let bytes = Bytes::from_bytes;
    Ok(Some(LimitedMemory {
        hits,
        limit: bytes(limit),
        working_set: bytes(usage.saturating_sub(reclaimable)),
        anon: bytes(anon),
        shmem: bytes(shmem),
        swapped: bytes(swapped),
        swap_left: bytes(allowed.min(swap_free.get())),
    }))
}

fn of(file: &HostFile, text: &[u8], key: &[u8]) -> Result<u64, HostError> {
    field(text, key).ok_or_else(|| file.malformed("required counter"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::cgroup::Version;
    use crate::host::scratch::Scratch;

    const STAT: &str = "anon 400\nfile 90\nkernel 30\nshmem 20\ninactive_anon 9\nactive_anon 9\n\
                        inactive_file 50\nactive_file 15\nslab_reclaimable 5\n";

    fn memory(dir: &Scratch) -> Hierarchy {
        Hierarchy {
            mount: dir.path().to_owned(),
            version: Version::V2,
        }
    }

    fn container(dir: &Scratch, name: &str, files: &[(&str, &str)]) {
        let usual = [
            ("memory.events.local", "low 0\nhigh 0\nmax 7\noom 0\n"),
            ("memory.max", "512\n"),
            ("memory.current", "510\n"),
            ("memory.stat", STAT),
        ];
        for (file, text) in usual.iter().chain(files) {
            dir.write(&format!("pod/{name}/{file}"), text);
        }
    }

    #[test]
    fn the_working_set_is_without_files_and_swap_counts_if_it_is_left() {
        type Row<'a> = (&'a [(&'a str, &'a str)], u64, u64, u64);
        //  files of the container, SwapFree; swapped out, can be swapped out
        let swap_max = "memory.swap.max";
        let rows: [Row; 5] = [
            (&[], 0, 0, 0),
            (&[], 100, 0, 100),
            (&[(swap_max, "0\n")], 100, 0, 0),
            (
                &[(swap_max, "max\n"), ("memory.swap.current", "9\n")],
                100,
                9,
                100,
            ),
            (
                &[(swap_max, "40\n"), ("memory.swap.current", "9\n")],
                100,
                9,
                31,
            ),
        ];
        for (files, free, swapped, left) in rows {
            let dir = Scratch::new();
            container(&dir, "main", files);
            let found = of_pod(&memory(&dir), "/pod", Bytes::from_bytes(free)).unwrap();
            let [LimitedCgroup { path, memory, .. }] = &found[..] else {
                panic!("{found:?}");
            };
            assert_eq!(path, "/pod/main");
            let bytes = Bytes::from_bytes;
            let expected = LimitedMemory {
                hits: 7,
                limit: bytes(512),
                working_set: bytes(440),
                anon: bytes(400),
                shmem: bytes(20),
                swapped: bytes(swapped),
                swap_left: bytes(left),
            };
            assert_eq!(*memory, expected, "{files:?}");
            assert_eq!(memory.anonymous(), bytes(420 + swapped), "{files:?}");
            assert_eq!(memory.room(), bytes(72 + left), "{files:?}");
        }
    }

    #[test]
    fn cgroups_without_a_limit_or_that_never_reached_it_or_with_garbage_are_left_out() {
        let dir = Scratch::new();
        dir.write("pod/memory.events.local", "max 3\n");
        dir.write("pod/memory.max", "max\n");
        container(&dir, "calm", &[("memory.events.local", "max 0\noom 0\n")]);
        container(&dir, "unlimited", &[("memory.max", "max\n")]);
        container(&dir, "garbage", &[("memory.stat", "\u{0}anon")]);
        container(&dir, "torn", &[("memory.events.local", "ma")]);
        container(&dir, "main/deeper", &[]);
        container(&dir, "main", &[]);
        dir.mkdir("pod/leaving");
        let found = of_pod(&memory(&dir), "/pod", Bytes::default()).unwrap();
        let paths: Vec<_> = found.iter().map(|one| &*one.path).collect();
        assert_eq!(paths, ["/pod/main"], "and nothing below a container");
        assert_eq!(of_pod(&memory(&dir), "/gone", Bytes::default()), None);
    }

    #[test]
    fn of_a_thousand_cgroups_in_a_pod_a_part_is_read() {
        let dir = Scratch::new();
        for n in 0..MOST_CGROUPS + 10 {
            container(&dir, &n.to_string(), &[]);
        }
        let found = of_pod(&memory(&dir), "/pod", Bytes::default()).unwrap();
        assert_eq!(found.len(), MOST_CGROUPS - 1, "one is that of the pod");
    }
}
