//! OOM counters of cgroups: limit hits and kills.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nodepulse_core::units::CgroupId;

use super::{Hierarchy, Layout, Version, walk};
use crate::host::{HostError, HostFile, HostRoot, field, present};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OomCounters {
    /// Number of times that this cgroup hit its limit: see [`limit_hits`].
    pub limit_hits: u64,
    /// Kills of tasks directly in this cgroup. Version 1 before Linux 4.13 does not count them.
    pub kills: u64,
    /// Counters that include descendants. `None` on version 1.
    pub with_descendants: Option<OomEvents>,
}

/// Counters of `memory.events`: those of a cgroup with its descendants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OomEvents {
    /// `oom`.
    pub limit_hits: u64,
    /// `oom_kill`.
    pub kills: u64,
}

/// Reads the counters of a cgroup; `None` if it was removed or is the top of version 2.
pub fn counters(
    memory: &Hierarchy,
    cgroup: &str,
    buf: &mut Vec<u8>,
) -> Result<Option<OomCounters>, HostError> {
    let dir = memory.dir(cgroup);
    let Some(limit_hits) = limit_hits_of(&dir, memory.version, buf)? else {
        return Ok(None);
    };
    let counters = match memory.version {
        Version::V1 => events(&dir, "memory.oom_control", buf)?.map(|local| OomCounters {
            limit_hits,
            kills: local.kills,
            with_descendants: None,
        }),
        Version::V2 => {
            let local = events(&dir, "memory.events.local", buf)?;
            let tree = events(&dir, "memory.events", buf)?;
            local.map(|local| OomCounters {
                limit_hits,
                kills: local.kills,
                with_descendants: tree,
            })
        }
    };
    Ok(counters)
}

/// Returns limit hits by cgroup id, without cgroups that never hit their limit.
///
/// A later comparison shows whether a kill was at the limit of a cgroup: a global kill increases no
/// counter.
///
/// # Cost
///
/// A walk of the whole hierarchy, with one small file per cgroup: only at start-up. `see` is called
/// with the path of every cgroup.
pub fn limit_hits(
    layout: &Layout,
    mut see: impl FnMut(CgroupId, &str),
) -> Result<BTreeMap<CgroupId, u64>, HostError> {
    let version = layout.memory.version;
    let mut hits = BTreeMap::new();
    let mut buf = Vec::new();
    walk::each(&layout.memory, |id, dir, path| {
        see(id, path);
        if let Ok(Some(count @ 1..)) = limit_hits_of(dir, version, &mut buf) {
            hits.insert(id, count);
        }
        true
    })?;
    Ok(hits)
}

/// Returns the kills in some cgroups and their descendants, since the creation of each.
///
/// For the path of a cgroup at or below `top`, `of` returns the path of the cgroup to which it is
/// attributed, itself or an ancestor; `None` for neither.
///
/// Version 2 includes removed descendants; version 1 does not, so that a count can decrease.
///
/// # Cost
///
/// A walk of everything below `top`, with one small file per cgroup on version 1, and per
/// attributed cgroup on version 2.
pub fn kills_below(
    memory: &Hierarchy,
    top: &str,
    of: impl Fn(&str) -> Option<String>,
) -> Result<Vec<(CgroupId, String, u64)>, HostError> {
    let part = Hierarchy {
        mount: memory.dir(top),
        version: memory.version,
    };
    let mut found: BTreeMap<String, (CgroupId, u64)> = BTreeMap::new();
    let mut buf = Vec::new();
    walk::each(&part, |id, dir, below| {
        let path = format!("{top}{}", below.trim_end_matches('/'));
        let Some(at) = of(&path) else {
            return true;
        };
        let (name, is_read) = match part.version {
            Version::V1 => ("memory.oom_control", true),
            Version::V2 => ("memory.events", at == path),
        };
        let counted = if is_read {
            events(dir, name, &mut buf).ok().flatten()
        } else {
            None
        };
        if path == top && counted.is_none() {
            return true;
        }
        // Parents are visited first, so the id is that of the cgroup itself.
        let entry = found.entry(at).or_insert((id, 0));
        entry.1 += counted.map_or(0, |counted| counted.kills);
        true
    })?;
    let all = found.into_iter();
    Ok(all.map(|(path, (id, kills))| (id, path, kills)).collect())
}

/// Returns the kills on the node since it was started: `oom_kill` of `/proc/vmstat`, which the
/// kernel raises directly before the counter of the victim's cgroup (`__oom_kill_process()` in
/// [mm/oom_kill.c](https://github.com/torvalds/linux/blob/v6.12/mm/oom_kill.c)).
pub fn node_kills(root: &HostRoot) -> Option<u64> {
    let mut buf = Vec::new();
    root.read("proc/vmstat", &mut buf).ok()?;
    field(&buf, b"oom_kill")
}

/// Returns the kills in a cgroup of version 2 and below it; zero if there is no such cgroup.
pub fn kills_in_tree(memory: &Hierarchy, cgroup: &str) -> Result<u64, HostError> {
    let events = events(&memory.dir(cgroup), "memory.events", &mut Vec::new())?;
    Ok(events.map_or(0, |events| events.kills))
}

/// Returns a cgroup's id and number of limit hits; `None` if removed, or the top of version 2.
pub fn limit_hits_of_path(
    memory: &Hierarchy,
    cgroup: &str,
) -> Result<Option<(CgroupId, u64)>, HostError> {
    let dir = memory.dir(cgroup);
    let Ok(metadata) = std::fs::metadata(&dir) else {
        return Ok(None);
    };
    let count = limit_hits_of(&dir, memory.version, &mut Vec::new())?;
    Ok(count.map(|count| (CgroupId(metadata.ino()), count)))
}

/// Returns the number of hits of a cgroup's limit; `None` if it was removed, or if it is the top of
/// version 2.
///
/// Version 2 counts failed reclaims (`oom` of `memory.events.local`, Linux 5.2). Version 1 counts
/// every time that usage reached the limit, usually without a kill.
fn limit_hits_of(
    dir: &Path,
    version: Version,
    buf: &mut Vec<u8>,
) -> Result<Option<u64>, HostError> {
    match version {
        Version::V1 => present(HostFile::at(dir.join("memory.failcnt")).number(buf)),
        Version::V2 => Ok(events(dir, "memory.events.local", buf)?.map(|local| local.limit_hits)),
    }
}

/// Parses the counters. A missing counter is zero.
fn events(dir: &Path, name: &str, buf: &mut Vec<u8>) -> Result<Option<OomEvents>, HostError> {
    let file = HostFile::at(dir.join(name));
    if present(file.read(buf))?.is_none() {
        return Ok(None);
    }
    // Every kernel with the file has one of these.
    if field(buf, b"oom").is_none() && field(buf, b"under_oom").is_none() {
        return Err(file.malformed("`oom` counter"));
    }
    Ok(Some(OomEvents {
        limit_hits: field(buf, b"oom").unwrap_or_default(),
        kills: field(buf, b"oom_kill").unwrap_or_default(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::scratch::Scratch;

    const OOM_CONTROL: &str = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/proc/debian12-6.18/sys/fs/cgroup/memory/memory.oom_control"
    ));

    fn layout(dir: &Scratch, version: Version) -> Layout {
        Layout {
            memory: super::super::tests::hierarchy(dir.path(), version),
            pids: None,
            unified: None,
        }
    }

    #[test]
    fn version_2_separates_local_hits_from_those_of_descendants() {
        let dir = Scratch::new();
        dir.write(
            "pod/memory.events.local",
            "low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\n",
        );
        dir.write(
            "pod/memory.events",
            "low 0\nhigh 0\nmax 9\noom 5\noom_kill 4\noom_group_kill 0\n",
        );
        let memory = layout(&dir, Version::V2).memory;
        let mut buf = Vec::new();
        let expected = OomCounters {
            limit_hits: 2,
            kills: 1,
            with_descendants: Some(OomEvents {
                limit_hits: 5,
                kills: 4,
            }),
        };
        assert_eq!(counters(&memory, "/pod", &mut buf).unwrap(), Some(expected));
        assert_eq!(
            counters(&memory, "/", &mut buf).unwrap(),
            None,
            "the top has no events"
        );
        assert_eq!(counters(&memory, "/gone", &mut buf).unwrap(), None);

        dir.write("pod/memory.events.local", "\u{0}garbage");
        let err = counters(&memory, "/pod", &mut buf).unwrap_err();
        assert!(err.to_string().contains("memory.events.local"), "{err}");
    }

    #[test]
    fn version_1_reads_oom_control_and_failcnt() {
        let dir = Scratch::new();
        let memory = layout(&dir, Version::V1).memory;
        let mut buf = Vec::new();
        //          memory.oom_control                                  kills
        let rows = [
            (OOM_CONTROL, 0, "as captured"),
            (
                "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
                3,
                "three kills",
            ),
            ("oom_kill_disable 0\nunder_oom 0\n", 0, "before 4.13"),
        ];
        for (text, kills, why) in rows {
            dir.write("pod/memory.oom_control", text);
            dir.write("pod/memory.failcnt", "17\n");
            let expected = OomCounters {
                limit_hits: 17,
                kills,
                with_descendants: None,
            };
            assert_eq!(
                counters(&memory, "/pod", &mut buf).unwrap(),
                Some(expected),
                "{why}"
            );
        }
    }

    #[test]
    fn kills_are_attributed_to_pods() {
        let at = |path: &str| {
            let pod = path.split('/').position(|name| name.starts_with("pod"));
            let names: Vec<_> = path.split('/').take(pod? + 1).collect();
            Some(names.join("/"))
        };
        for version in [Version::V1, Version::V2] {
            let dir = Scratch::new();
            let text = |local: u32, tree: u32| match version {
                Version::V1 => format!("oom_kill_disable 0\nunder_oom 0\noom_kill {local}\n"),
                Version::V2 => format!("low 0\noom 0\noom_kill {tree}\n"),
            };
            let name = match version {
                Version::V1 => "memory.oom_control",
                Version::V2 => "memory.events",
            };
            // Version 2 includes two kills in a removed container.
            let all = if version == Version::V1 { 3 } else { 5 };
            dir.write(&format!("k/b/pod1/{name}"), text(1, 5));
            dir.write(&format!("k/b/pod1/ctr/{name}"), text(2, 2));
            dir.write(&format!("k/pod2/{name}"), "garbage");
            dir.write(&format!("k/b/{name}"), text(9, 9));
            let memory = layout(&dir, version).memory;
            let mut found = kills_below(&memory, "/k", at).unwrap();
            found.sort();
            let id = |rel: &str| CgroupId(dir.path().join(rel).metadata().unwrap().ino());
            let mut expected = vec![
                (id("k/b/pod1"), "/k/b/pod1".to_owned(), all),
                (id("k/pod2"), "/k/pod2".to_owned(), 0),
            ];
            expected.sort();
            assert_eq!(found, expected, "{version:?}");
            assert!(kills_below(&memory, "/none", at).unwrap_err().is_absent());
        }
    }

    #[test]
    fn only_cgroups_that_hit_their_limit_are_collected() {
        for (version, name) in [
            (Version::V2, "memory.events.local"),
            (Version::V1, "memory.failcnt"),
        ] {
            let dir = Scratch::new();
            let text = |n: u32| match version {
                Version::V1 => format!("{n}\n"),
                Version::V2 => format!("max 1\noom {n}\noom_kill 0\n"),
            };
            dir.write(&format!("kubepods/pod1/ctr/{name}"), text(3));
            dir.write(&format!("kubepods/pod1/{name}"), text(0));
            dir.write(&format!("kubepods/pod2/{name}"), "garbage");
            dir.write(&format!("system/{name}"), text(1));
            let id = |rel: &str| CgroupId(dir.path().join(rel).metadata().unwrap().ino());
            let expected = BTreeMap::from([(id("kubepods/pod1/ctr"), 3), (id("system"), 1)]);
            assert_eq!(
                limit_hits(&layout(&dir, version), |_, _| ()).unwrap(),
                expected,
                "{version:?}"
            );
        }
    }
}
