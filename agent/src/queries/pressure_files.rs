//! The pressure files of the node and its pods, and the triggers set in them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use nodepulse_core::pressure::stall::StallSample;
use nodepulse_core::reading::{AbsentSource, Stall, StallKind, StallOf};
use nodepulse_core::settings::Mode;
use nodepulse_linux::host::cgroup::pods::PodsPath;
use nodepulse_linux::host::cgroup::{Hierarchy, Version};
use nodepulse_linux::host::{HostFile, HostRoot, psi};
use nodepulse_linux::os::psi::{Trigger, open};
use tracing::{debug, info, warn};

use crate::config::Config;

/// Sets the triggers of this configuration, and logs each failure. Must be called before privileges
/// are dropped: the kernel checks them when a trigger is set.
pub fn triggers(config: &Config, pods: &PodsPath) -> Vec<Trigger> {
    // A trigger cannot be moved, and the pods may turn out to be in the other cgroup.
    let is_clear = pods.possible().len() == 1 || pods.existing().len() < 2;
    let absent = absent(config, pods);
    let useful = useful_triggers(config, &absent);
    let watched = watched(config, &absent);
    let files = files(config, pods).into_iter();
    let files = files
        .filter(|(stall, _)| useful.contains(stall) && (is_clear || stall.of == StallOf::Node));
    let set = |(stall, file): (Stall, HostFile)| {
        let trigger = open(file.path(), stall, config.psi.thresholds.of(stall.kind));
        let (of, kind, path) = (
            stall.of.as_str(),
            stall.kind.as_str(),
            file.path().display(),
        );
        trigger
            .inspect_err(|err| {
                let err = err as &dyn std::error::Error;
                if watched.contains(&stall) {
                    warn!(of, kind, %path, err, "no trigger; the pressure file is read every ten seconds instead");
                } else {
                    info!(of, kind, %path, err, "no trigger; no condition depends on it");
                }
            })
            .ok()
    };
    files.filter_map(set).collect()
}

/// The stalls that are watched: those whose condition is on and whose file can exist.
pub fn watched(config: &Config, absent: &BTreeMap<Stall, AbsentSource>) -> BTreeSet<Stall> {
    let mut watched = BTreeSet::new();
    if config.mode == Mode::Companion {
        let conditions = config.conditions.iter();
        watched.extend(conditions.filter_map(|condition| condition.stall()));
    }
    watched.retain(|stall| !absent.contains_key(stall));
    watched
}

/// The stalls of which a trigger is useful: those that are watched; the node's on I/O, for disks
/// that do not respond; and without conditions the node's on memory, to sample memory.
pub fn useful_triggers(config: &Config, absent: &BTreeMap<Stall, AbsentSource>) -> BTreeSet<Stall> {
    let mut useful = watched(config, absent);
    useful.insert(Stall::new(StallOf::Node, StallKind::Io));
    if config.mode == Mode::Node {
        useful.insert(Stall::new(StallOf::Node, StallKind::Memory));
    }
    useful.retain(|stall| !absent.contains_key(stall));
    useful
}

/// The stalls that cannot be measured on this node, decided once at start. A file that exists but
/// cannot be read is not absent.
pub fn absent(config: &Config, pods: &PodsPath) -> BTreeMap<Stall, AbsentSource> {
    let root = HostRoot::new(&config.host_root);
    // A missing mount is not a kernel without PSI.
    let has_proc = root.path("proc/loadavg").exists();
    let without_psi = |kind| {
        let read = psi::read(&psi::node_file(&root, kind), &mut Vec::new());
        has_proc && matches!(read, Ok(None))
    };
    let of_pods = pods_on_version_1(pods);
    let why = |stall: Stall| match stall.of {
        _ if !config.psi.enabled => Some(AbsentSource::Disabled),
        _ if without_psi(stall.kind) => Some(AbsentSource::NoPsi),
        StallOf::Pods if of_pods => Some(AbsentSource::CgroupV1),
        StallOf::Pods | StallOf::Node => None,
    };
    let all = Stall::ALL.into_iter();
    all.filter_map(|stall| Some((stall, why(stall)?))).collect()
}

/// Returns `true` if the pods have no cgroup in the unified hierarchy, but maybe in version 1.
fn pods_on_version_1(pods: &PodsPath) -> bool {
    let Some(layout) = pods.layout() else {
        return false;
    };
    let is_unified = |mount: &PathBuf| {
        let unified = Hierarchy {
            mount: mount.clone(),
            version: Version::V2,
        };
        let mut possible = pods.possible().iter();
        possible.any(|path| unified.dir(path).is_dir())
    };
    layout.memory.version == Version::V1 && !layout.unified.as_ref().is_some_and(is_unified)
}

/// The pressure files of this node that can exist.
pub fn files(config: &Config, pods: &PodsPath) -> BTreeMap<Stall, HostFile> {
    let files = PressureFiles::new(config, pods.clone()).by_stall;
    let all = files.into_iter().filter(|_| config.psi.enabled);
    all.collect()
}

pub struct PressureFiles {
    pods: PodsPath,
    pods_cgroup: String,
    by_stall: BTreeMap<Stall, HostFile>,
    is_enabled: bool,
    buf: Vec<u8>,
}

impl PressureFiles {
    pub fn new(config: &Config, pods: PodsPath) -> Self {
        let root = HostRoot::new(&config.host_root);
        let node = Stall::ALL.into_iter();
        let node = node.filter(|stall| stall.of == StallOf::Node);
        let mut files = Self {
            pods_cgroup: String::new(),
            by_stall: node
                .map(|stall| (stall, psi::node_file(&root, stall.kind)))
                .collect(),
            pods,
            is_enabled: config.psi.enabled,
            buf: Vec::new(),
        };
        files.follow();
        files
    }

    /// Updates the paths of the pods' files if their cgroup has changed.
    fn follow(&mut self) {
        let path = self.pods.path();
        if path == self.pods_cgroup {
            return;
        }
        // Used with controllers in version 1 too: tasks are in both hierarchies.
        let Some(mount) = self.pods.layout().and_then(|on| on.unified.clone()) else {
            return;
        };
        let version = Version::V2;
        let dir = Hierarchy { mount, version }.dir(path);
        let of_pods = Stall::ALL.into_iter();
        let of_pods = of_pods.filter(|stall| stall.of == StallOf::Pods);
        self.by_stall
            .extend(of_pods.map(|stall| (stall, psi::cgroup_file(&dir, stall.kind))));
        path.clone_into(&mut self.pods_cgroup);
    }

    /// Reads `some` of one file, in about 5 µs. `None` if it does not exist or cannot be read.
    pub fn sample(&mut self, stall: Stall) -> Option<StallSample> {
        self.follow();
        let file = self.by_stall.get(&stall)?;
        let read = psi::read(file, &mut self.buf);
        let read = ok_or_log!(debug, read, "pressure not read").flatten();
        read.map(|psi| StallSample {
            avg10: psi.avg10,
            avg60: psi.avg60,
        })
    }

    /// Reads how long tasks of the node waited for memory and for disks, whatever is watched.
    pub fn node_waits(&mut self) -> Vec<(StallKind, StallSample)> {
        let of_node = Stall::ALL.into_iter();
        let is_read = |stall: &Stall| self.is_enabled && stall.of == StallOf::Node;
        let of_node: Vec<Stall> = of_node.filter(is_read).collect();
        of_node
            .into_iter()
            .filter_map(|stall| Some((stall.kind, self.sample(stall)?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use nodepulse_core::node_status::nodepulse_condition::NodepulseCondition;
    use nodepulse_core::reading::StallKind;
    use nodepulse_linux::host::scratch::Scratch;

    use super::super::fixture::{self, CGROUPS};
    use super::super::signals::pods_path;
    use super::*;

    /// A node with these cgroups of pods, which contain no process.
    fn node(pods: &[&str]) -> (Scratch, Config) {
        let of_node = ["proc/pressure/memory", "proc/pressure/io"].map(str::to_owned);
        let files = |pods: &&str| ["memory", "io"].map(|kind| format!("@{pods}/{kind}.pressure"));
        let files = of_node.into_iter().chain(pods.iter().flat_map(files));
        let files: Vec<String> = files.collect();
        let files: Vec<(&str, &str)> = files.iter().map(|file| (file.as_str(), "")).collect();
        fixture::node(&files)
    }

    #[test]
    fn no_trigger_is_set_in_a_cgroup_that_may_not_be_that_of_the_pods() {
        let rows: [(&[&str], usize); 3] = [
            (&["kubepods"], 4),
            (&["kubepods.slice"], 4),
            (&["kubepods.slice", "kubepods"], 2),
        ];
        for (cgroups, expected) in rows {
            let (_dir, mut config) = node(cgroups);
            config.conditions = NodepulseCondition::ALL.into();
            let set = triggers(&config, &pods_path(&config));
            let set: Vec<Stall> = set.iter().map(|trigger| trigger.stall).collect();
            assert_eq!(set.len(), expected, "{cgroups:?}: {set:?}");
        }
    }

    fn names(of: &BTreeSet<Stall>) -> Vec<String> {
        let names = of.iter();
        let name = |stall: &Stall| format!("{} {}", stall.of.as_str(), stall.kind.as_str());
        names.map(name).collect()
    }

    /// Mode, conditions that are on, watched stalls, triggers.
    type Row<'a> = (Mode, &'a [NodepulseCondition], &'a [&'a str], &'a [&'a str]);

    #[test]
    fn a_trigger_is_set_only_if_something_uses_it() {
        use NodepulseCondition::{MemoryStallPressure, PodsDiskStallPressure};
        let (_dir, mut config) = node(&["kubepods"]);
        #[rustfmt::skip]
        let rows: [Row<'_>; 4] = [
            (Mode::Companion, &[MemoryStallPressure], &["node memory"], &["node memory", "node io"]),
            (Mode::Companion, &[PodsDiskStallPressure], &["pods io"], &["node io", "pods io"]),
            (Mode::Companion, &[], &[], &["node io"]),
            (Mode::Node, &[MemoryStallPressure], &[], &["node memory", "node io"]),
        ];
        for (mode, on, expected, triggers) in rows {
            config.mode = mode;
            config.conditions = on.iter().copied().collect();
            let absent = BTreeMap::new();
            assert_eq!(
                names(&watched(&config, &absent)),
                expected,
                "{mode:?} {on:?}"
            );
            let useful = useful_triggers(&config, &absent);
            assert_eq!(names(&useful), triggers, "{mode:?} {on:?}");
            let set = self::triggers(&config, &pods_path(&config));
            assert_eq!(set.len(), triggers.len(), "{mode:?} {on:?}");
        }
        config.conditions = NodepulseCondition::ALL.into();
        let absent = Stall::ALL.map(|stall| (stall, AbsentSource::NoPsi)).into();
        assert_eq!(names(&watched(&config, &absent)), [""; 0]);
        assert_eq!(names(&useful_triggers(&config, &absent)), [""; 0]);
    }

    /// A change of a node.
    type Change = Box<dyn Fn(&Scratch, &mut Config)>;

    #[test]
    fn a_source_that_cannot_exist_is_distinguished_from_one_that_cannot_be_read() {
        use AbsentSource::{CgroupV1, Disabled, NoPsi};
        let version_1 = |dir: &Scratch| {
            let mounts = "31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                          32 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
            dir.write("proc/self/mountinfo", mounts);
            dir.mkdir("sys/fs/cgroup/memory/kubepods");
        };
        let remove = |dir: &Scratch, path: &str| {
            std::fs::remove_dir_all(dir.path().join(path)).unwrap();
        };
        #[rustfmt::skip]
        let rows: [(&str, Change, &[Option<AbsentSource>; 4]); 8] = [
            ("everything exists", Box::new(|_, _| ()), &[None; 4]),
            ("off by configuration", Box::new(|_, config| config.psi.enabled = false), &[Some(Disabled); 4]),
            ("no PSI", Box::new(move |dir, _| remove(dir, "proc/pressure")), &[Some(NoPsi); 4]),
            ("no /proc at all: a mount is missing", Box::new(move |dir, _| remove(dir, "proc")), &[None; 4]),
            ("not readable", Box::new(|dir, _| dir.write("proc/pressure/memory", "nonsense")), &[None; 4]),
            ("no pods yet", Box::new(move |dir, _| remove(dir, "sys/fs/cgroup/kubepods")), &[None; 4]),
            ("version 1", Box::new(move |dir, _| version_1(dir)), &[None, None, Some(CgroupV1), Some(CgroupV1)]),
            (
                "version 1, with the pods in the unified hierarchy too",
                Box::new(move |dir, _| {
                    version_1(dir);
                    dir.mkdir("sys/fs/cgroup/unified/kubepods");
                }),
                &[None; 4],
            ),
        ];
        for (name, change, expected) in rows {
            let (dir, mut config) = node(&["kubepods"]);
            dir.write("proc/loadavg", "0.00 0.00 0.00 1/100 7\n");
            change(&dir, &mut config);
            let absent = absent(&config, &pods_path(&config));
            let found = Stall::ALL.map(|stall| absent.get(&stall).copied());
            assert_eq!(found, *expected, "{name}");
        }
    }

    #[test]
    fn the_waits_of_the_node_are_read_although_no_condition_depends_on_them() {
        let (dir, mut config) = node(&["kubepods"]);
        config.conditions.clear();
        let some = |share| format!("some avg10={share} avg60=1.00 avg300=0.00 total=9\n");
        dir.write("proc/pressure/io", some("12.50"));
        for (is_enabled, memory, expected) in [
            (true, "", &[(StallKind::Io, 12.5)][..]),
            (
                true,
                "3.00",
                &[(StallKind::Memory, 3.0), (StallKind::Io, 12.5)],
            ),
            (false, "3.00", &[]),
        ] {
            config.psi.enabled = is_enabled;
            dir.write("proc/pressure/memory", some(memory));
            let waits = PressureFiles::new(&config, pods_path(&config)).node_waits();
            let waits: Vec<_> = waits
                .iter()
                .map(|(kind, read)| (*kind, read.avg10))
                .collect();
            assert_eq!(waits, expected, "{is_enabled} {memory:?}");
        }
    }

    #[test]
    fn pressure_files_follow_the_cgroup_of_the_pods() {
        let (dir, config) = node(&["kubepods.slice", "kubepods"]);
        let mut files = PressureFiles::new(&config, pods_path(&config));
        let stall = Stall::new(StallOf::Pods, StallKind::Io);
        let mut path = || {
            files.follow();
            files.by_stall[&stall].path().to_owned()
        };
        let cgroups = dir.path().join(CGROUPS);
        assert_eq!(path(), cgroups.join("kubepods.slice/io.pressure"));
        dir.write(
            &format!("{CGROUPS}/kubepods/cgroup.events"),
            "populated 1\n",
        );
        assert_eq!(path(), cgroups.join("kubepods/io.pressure"));
    }
}
