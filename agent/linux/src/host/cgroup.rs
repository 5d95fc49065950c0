//! Cgroup hierarchies and their files, for versions 1 and 2.
//!
//! The path of a cgroup is relative to the top of its hierarchy, with a leading `/`, such as
//! `/kubepods.slice/kubepods-pod1.slice`.

pub mod io;
pub mod memory;
pub mod memory_stall;
pub mod memory_use;
pub mod oom;
pub mod outside_pods;
pub mod paths;
pub mod pids;
pub mod pod_memory;
pub mod pods;
pub mod usage;
pub mod walk;

use std::path::{Component, Path, PathBuf};

use procfs::process::MountInfo;
use procfs::{CGroupControllers, FromBufRead as _};

use super::{HostError, HostFile, HostRoot, parse_u64, present};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy per controller.
    V1,
    /// The unified hierarchy.
    V2,
}

impl Version {
    /// Returns the name of the file with the memory that is charged to a cgroup and those below it.
    pub const fn memory_usage(self) -> &'static str {
        match self {
            Self::V1 => "memory.usage_in_bytes",
            Self::V2 => "memory.current",
        }
    }
}

/// The hierarchy of one controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Mount point, including the host root.
    pub mount: PathBuf,
    pub version: Version,
}

impl Hierarchy {
    /// Returns the directory of a cgroup, always below the mount: `..` is dropped.
    pub fn dir(&self, cgroup: &str) -> PathBuf {
        let mut dir = self.mount.clone();
        dir.extend(
            Path::new(cgroup)
                .components()
                .filter(|part| matches!(part, Component::Normal(_))),
        );
        dir
    }

    fn file(&self, cgroup: &str, name: &str) -> HostFile {
        HostFile::at(self.dir(cgroup).join(name))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The memory controller's: version 1 on hybrid nodes, which have a unified hierarchy too.
    pub memory: Hierarchy,
    /// `None` if no hierarchy has the pids controller.
    pub pids: Option<Hierarchy>,
    /// The unified hierarchy, with controllers or without.
    pub unified: Option<PathBuf>,
}

impl Layout {
    /// Detects the mounted hierarchies. Cold: called once at start-up.
    pub fn detect(root: &HostRoot) -> Result<Self, HostError> {
        let mounts = Mounts::parse(root, &root.read_list("proc/self/mountinfo")?);
        let mut buf = Vec::new();
        let controllers = match &mounts.unified {
            Some(mount) => present(HostFile::at(mount.join("cgroup.controllers")).read(&mut buf))?
                .map(|()| String::from_utf8_lossy(&buf).into_owned()),
            None => None,
        }
        .unwrap_or_default();

        let of = |controller: &str| mounts.hierarchy_of(controller, &controllers);
        let Some(memory) = of("memory") else {
            let why = why_no_memory(root, &mounts);
            return Err(HostError::NoMemoryController { why });
        };
        Ok(Self {
            memory,
            pids: of("pids"),
            unified: mounts.unified.clone(),
        })
    }
}

/// The visible cgroup mounts, in mount order.
#[derive(Debug, Default)]
struct Mounts {
    /// Mount points of version 1, with their controllers.
    v1: Vec<(PathBuf, Vec<String>)>,
    unified: Option<PathBuf>,
}

impl Mounts {
    /// Parses line by line, because the source of another mount can contain any bytes.
    fn parse(root: &HostRoot, mountinfo: &str) -> Self {
        let mut mounts = Self::default();
        for line in mountinfo.split('\n') {
            if !line.contains(" - cgroup") {
                continue;
            }
            let Ok(info) = MountInfo::from_line(line) else {
                continue;
            };
            let Some(mount) = visible(root, &info.mount_point) else {
                continue;
            };
            match info.fs_type.as_str() {
                "cgroup" => mounts
                    .v1
                    .push((mount, info.super_options.into_keys().collect())),
                "cgroup2" => mounts.unified = mounts.unified.or(Some(mount)),
                _ => {}
            }
        }
        mounts
    }

    fn hierarchy_of(&self, controller: &str, on_unified: &str) -> Option<Hierarchy> {
        let v1 = self
            .v1
            .iter()
            .find(|(_, options)| options.iter().any(|option| option == controller));
        if let Some((mount, _)) = v1 {
            return Some(Hierarchy {
                mount: mount.clone(),
                version: Version::V1,
            });
        }
        on_unified
            .split_ascii_whitespace()
            .any(|name| name == controller)
            .then_some(())?;
        Some(Hierarchy {
            mount: self.unified.clone()?,
            version: Version::V2,
        })
    }
}

/// Returns the visible path of a mount point. A container with the node's `/` at `/host` lists both
/// `/sys/fs/cgroup` and `/host/sys/fs/cgroup`.
fn visible(root: &HostRoot, mount_point: &Path) -> Option<PathBuf> {
    if mount_point.starts_with(root.dir()) && mount_point.is_dir() {
        return Some(mount_point.to_owned());
    }
    Some(root.path(mount_point)).filter(|path| path.is_dir())
}

fn why_no_memory(root: &HostRoot, mounts: &Mounts) -> &'static str {
    let mut buf = Vec::new();
    let listed = root
        .read("proc/cgroups", &mut buf)
        .ok()
        .and_then(|()| CGroupControllers::from_buf_read(buf.as_slice()).ok());
    let memory = listed
        .iter()
        .flat_map(|list| &list.0)
        .find(|controller| controller.name == "memory");
    match memory {
        Some(memory) if !memory.enabled => {
            "it is disabled; remove cgroup_disable=memory from the kernel command line"
        }
        Some(memory) if memory.hierarchy != 0 => {
            "it is bound to a version 1 hierarchy that is not mounted; mount /sys/fs/cgroup of the node"
        }
        Some(_) | None if mounts.unified.is_none() && mounts.v1.is_empty() => {
            "no cgroup file system is mounted; mount /sys/fs/cgroup of the node"
        }
        Some(_) | None => {
            "cgroup.controllers of the unified hierarchy does not list it; use the host's cgroup namespace"
        }
    }
}

/// Reads a limit: `max` or a number. Version 1 represents "no limit" by a number above 2^62.
fn read_limit(file: &HostFile, buf: &mut Vec<u8>) -> Result<Option<u64>, HostError> {
    const NO_LIMIT_ABOVE: u64 = 1 << 62;
    file.read(buf)?;
    match buf.trim_ascii() {
        b"max" => Ok(None),
        text => parse_u64(text)
            .map(|limit| Some(limit).filter(|&limit| limit <= NO_LIMIT_ABOVE))
            .ok_or_else(|| file.malformed("limit")),
    }
}

/// Iterates over a cgroup and its ancestors, up to `/`.
pub fn ancestors(cgroup: &str) -> impl Iterator<Item = &str> {
    let cgroup = cgroup.trim_end_matches('/');
    std::iter::successors(Some(if cgroup.is_empty() { "/" } else { cgroup }), |path| {
        if *path == "/" {
            return None;
        }
        match path.rfind('/') {
            Some(0) | None => Some("/"),
            Some(end) => path.get(..end),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::scratch::Scratch;

    const HYBRID: &str = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/proc/debian12-6.18/proc/self/mountinfo"
    ));
    const V2: &str =
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      36 31 0:33 / /sys/fs/cgroup/cpu,pids rw - cgroup cgroup rw,cpu,pids\n";

    pub fn hierarchy(mount: impl Into<PathBuf>, version: Version) -> Hierarchy {
        Hierarchy {
            mount: mount.into(),
            version,
        }
    }

    fn node(mountinfo: &[u8], dirs: &[&str], controllers: &[(&str, &str)]) -> Scratch {
        let dir = Scratch::new();
        dir.write("proc/self/mountinfo", mountinfo);
        for rel in dirs {
            dir.mkdir(rel);
        }
        for (rel, text) in controllers {
            dir.write(rel, text);
        }
        dir
    }

    fn described(dir: &Scratch) -> String {
        let short = |path: &Path| path.strip_prefix(dir.path()).unwrap().display().to_string();
        match Layout::detect(&dir.root()) {
            Ok(layout) => format!(
                "{:?} {} | {} | {}",
                layout.memory.version,
                short(&layout.memory.mount),
                layout.pids.map_or("-".into(), |pids| short(&pids.mount)),
                layout.unified.map_or("-".into(), |path| short(&path)),
            ),
            Err(err) => err.to_string(),
        }
    }

    #[test]
    fn every_layout_is_detected() {
        let v1_dirs = ["sys/fs/cgroup/memory", "sys/fs/cgroup/cpu,pids"];
        let hybrid_dirs = [
            "sys/fs/cgroup/memory",
            "sys/fs/cgroup/pids",
            "sys/fs/cgroup/unified",
        ];
        let v2 = ("sys/fs/cgroup/cgroup.controllers", "cpu io memory pids\n");
        let hybrid = ("sys/fs/cgroup/unified/cgroup.controllers", "hugetlb\n");
        let hostile = [
            b"1 2 0:1 / /x rw - fuse.\xff \xff rw\n1 - cgroup\n",
            V2.as_bytes(),
        ]
        .concat();
        #[rustfmt::skip]
        let rows = [
            ("version 1, controllers mounted together", node(V1.as_bytes(), &v1_dirs, &[]),
                "V1 sys/fs/cgroup/memory | sys/fs/cgroup/cpu,pids | -"),
            ("hybrid, as captured", node(HYBRID.as_bytes(), &hybrid_dirs, &[hybrid]),
                "V1 sys/fs/cgroup/memory | sys/fs/cgroup/pids | sys/fs/cgroup/unified"),
            ("version 2", node(V2.as_bytes(), &[], &[v2]), "V2 sys/fs/cgroup | sys/fs/cgroup | sys/fs/cgroup"),
            ("version 2 among malformed mounts", node(&hostile, &[], &[v2]),
                "V2 sys/fs/cgroup | sys/fs/cgroup | sys/fs/cgroup"),
            ("version 2 without pids", node(V2.as_bytes(), &[], &[(v2.0, "memory")]),
                "V2 sys/fs/cgroup | - | sys/fs/cgroup"),
        ];
        for (name, dir, expected) in &rows {
            assert_eq!(described(dir), *expected, "{name}");
        }
    }

    #[test]
    fn a_missing_memory_controller_has_a_reason() {
        let header = "#subsys_name\thierarchy\tnum_cgroups\tenabled\n";
        let v2 = ("sys/fs/cgroup/cgroup.controllers", "cpu\n");
        let disabled = format!("{header}memory\t0\t1\t0\n");
        let elsewhere = format!("{header}memory\t4\t22\t1\n");
        #[rustfmt::skip]
        let rows = [
            (node(V2.as_bytes(), &[], &[v2, ("proc/cgroups", &disabled)]), "cgroup_disable"),
            (node(V2.as_bytes(), &[], &[v2, ("proc/cgroups", &elsewhere)]), "version 1"),
            (node(V2.as_bytes(), &[], &[v2]), "cgroup.controllers"),
            (node(V2.as_bytes(), &[], &[v2, ("proc/cgroups", "\u{0}junk")]), "cgroup.controllers"),
            (node(b"\xff\xfe", &[], &[]), "no cgroup file system"),
        ];
        for (dir, why) in &rows {
            assert!(described(dir).contains(why), "{why}: {}", described(dir));
        }
        assert!(
            Layout::detect(&Scratch::new().root())
                .unwrap_err()
                .is_absent()
        );
    }

    #[test]
    fn a_mount_point_below_the_root_is_not_prefixed_again() {
        let dir = Scratch::new();
        dir.write("sys/fs/cgroup/cgroup.controllers", "memory");
        let at = dir.path().join("sys/fs/cgroup");
        let line = format!("30 23 0:26 / {} rw - cgroup2 cgroup2 rw\n", at.display());
        dir.write("proc/self/mountinfo", line);
        assert_eq!(Layout::detect(&dir.root()).unwrap().memory.mount, at);
    }

    #[test]
    fn a_cgroup_path_cannot_leave_its_hierarchy() {
        let memory = hierarchy("/m", Version::V2);
        let rows = [
            ("/", "/m"),
            ("", "/m"),
            ("/a/b", "/m/a/b"),
            ("a//b/", "/m/a/b"),
            ("/../../etc", "/m/etc"),
            ("/./a", "/m/a"),
        ];
        for (cgroup, expected) in rows {
            assert_eq!(memory.dir(cgroup), Path::new(expected), "{cgroup}");
        }
    }

    #[test]
    fn ancestors_end_at_the_top() {
        let rows = [
            ("/a/b/c", vec!["/a/b/c", "/a/b", "/a", "/"]),
            ("/a/", vec!["/a", "/"]),
            ("/", vec!["/"]),
            ("", vec!["/"]),
            ("a", vec!["a", "/"]),
        ];
        for (cgroup, expected) in rows {
            assert_eq!(ancestors(cgroup).collect::<Vec<_>>(), expected, "{cgroup}");
        }
    }

    #[test]
    fn limits() {
        let dir = Scratch::new();
        let two_62 = (1_u64 << 62).to_string();
        let above = ((1_u64 << 62) + 1).to_string();
        let rows = [
            ("max\n", Some(None), "no limit in version 2"),
            ("4096\n", Some(Some(4096)), "a limit"),
            ("0", Some(Some(0)), "nothing allowed is a limit"),
            (two_62.as_str(), Some(Some(1 << 62)), "the largest limit"),
            (above.as_str(), Some(None), "one more means none"),
            ("9223372036854771712\n", Some(None), "no limit in version 1"),
            ("-1", None, "garbage"),
            ("", None, "empty"),
        ];
        let file = HostFile::at(dir.path().join("limit"));
        for (text, expected, why) in rows {
            dir.write("limit", text);
            let got = read_limit(&file, &mut Vec::new()).ok();
            assert_eq!(got, expected, "{why}");
        }
        let gone = HostFile::at(dir.path().join("gone"));
        assert!(read_limit(&gone, &mut Vec::new()).unwrap_err().is_absent());
    }
}
