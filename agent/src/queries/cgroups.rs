//! Reads cgroups for the subjects. None of these reads waits for a disk.

use std::error::Error;
use std::io;

use nix::unistd::{SysconfVar, sysconf};
use nodepulse_core::clock::BootNanos;
use nodepulse_core::pods::{CgroupKind, classify};
use nodepulse_core::subjects::kill_counters::{Counting, PodsCounter};
use nodepulse_core::subjects::pod_pids::PidLimit;
use nodepulse_core::subjects::{Announced, KillCounterSetup, KillInput, KillSource, PodPidInput};
use nodepulse_core::units::CgroupId;
use nodepulse_linux::host::cgroup::paths::CgroupPaths;
use nodepulse_linux::host::cgroup::pods::{POD_LEVELS, PodsPath};
use nodepulse_linux::host::cgroup::{self, Hierarchy, Layout, Version, oom, pids, walk};
use nodepulse_linux::os::cgroup_handle::CgroupMount;
use nodepulse_linux::os::cgroup_watch::WatchedTree;
use tracing::{debug, warn};

/// Levels below the pods cgroup: those of pods, the container, and one that some runtimes add.
const LEVELS: usize = POD_LEVELS + 2;

/// The counters of forks that a limit refused: see [`pids::refused`].
const PIDS_FILES: &[&str] = &["pids.events.local", "pids.events"];

/// The cgroup of systemd's services. Their refused forks are reported on a machine without an API
/// server. Not those of users, who can make any number of cgroups.
const UNITS: [&str; 1] = ["/system.slice"];

/// Levels below it: `system-getty.slice/getty@tty1.service`.
const UNIT_LEVELS: usize = 2;

/// Page size in bytes if the kernel does not report one.
const USUAL_PAGE: u64 = 4096;

pub fn page_size() -> u64 {
    let size = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    size.and_then(|size| u64::try_from(size).ok())
        .unwrap_or(USUAL_PAGE)
}

/// The trees whose changes the agent watches: all cgroups that may be that of the pods, and those
/// of units.
pub fn watched_trees(pods: &PodsPath, with_units: bool) -> Vec<WatchedTree> {
    // `pods_path` has logged why there is no layout.
    let Some(layout) = pods.layout() else {
        return Vec::new();
    };
    let units = layout.pids.iter().filter(|_| with_units);
    let units = units.flat_map(|pids| {
        UNITS.map(|cgroup| WatchedTree {
            top: pids.dir(cgroup),
            depth: UNIT_LEVELS,
            files: PIDS_FILES,
        })
    });
    let trees = pods.possible().iter();
    trees
        .flat_map(|cgroup| pod_cgroups(layout, cgroup))
        .chain(units)
        .collect()
}

/// The pods' cgroups in the hierarchy that kills refer to, and in the one that counts pids. In
/// version 2 these are the same.
fn pod_cgroups(layout: &Layout, cgroup: &str) -> Vec<WatchedTree> {
    let tree = |hierarchy: &Hierarchy, files| WatchedTree {
        top: hierarchy.dir(cgroup),
        depth: LEVELS,
        files,
    };
    let counting = layout.pids.iter();
    let mut trees: Vec<WatchedTree> = counting.map(|pids| tree(pids, PIDS_FILES)).collect();
    if layout.pids.as_ref() != Some(&layout.memory) {
        trees.push(tree(&layout.memory, &[]));
    }
    trees
}

pub struct Cgroups {
    pods: PodsPath,
    /// `None` if handles cannot be used.
    mount: Option<CgroupMount>,
    paths: CgroupPaths,
    /// The units whose refused forks are counted.
    units: &'static [&'static str],
}

impl Cgroups {
    pub fn new(pods: PodsPath, with_units: bool) -> Self {
        let mount = pods.layout().and_then(|layout| {
            let opened = CgroupMount::open(&layout.memory.mount);
            ok_or_log!(
                warn,
                opened,
                "cgroups cannot be opened by id; they are found by a walk instead"
            )
        });
        Self {
            pods,
            mount,
            paths: CgroupPaths::default(),
            units: if with_units { &UNITS } else { &[] },
        }
    }

    pub fn pods(&self) -> String {
        self.pods.path().to_owned()
    }

    pub fn kill_counters(&self, source: KillSource, boot_known: bool) -> KillCounterSetup {
        let counting = self
            .pods
            .layout()
            .map(|layout| match layout.memory.version {
                Version::V1 => Counting::Flat,
                Version::V2 => Counting::Nested,
            });
        KillCounterSetup {
            source,
            counting,
            boot_known,
        }
    }

    pub fn announces_refused_forks(&self) -> Announced {
        let pids = self.pods.layout().and_then(|layout| layout.pids.as_ref());
        match pids.map(|pids| pids.version) {
            Some(Version::V1) => Announced::No,
            Some(Version::V2) | None => Announced::Yes,
        }
    }

    pub fn read_all(&self) -> KillInput {
        let mut pods = Vec::new();
        let visit = |id, path: &str| {
            if classify(path, self.pods.path()) != CgroupKind::Other {
                pods.push((id, path.to_owned()));
            }
        };
        let counted = self.pods.layout().map(|on| oom::limit_hits(on, visit));
        let counted = ok_or_log!(warn, counted.transpose(), "limits of cgroups not read");
        let limit_hits = counted.flatten().into_iter().flatten().collect();
        KillInput::CgroupsRead { pods, limit_hits }
    }

    pub fn paths_of(&mut self, ids: &[CgroupId], now: BootNanos) -> KillInput {
        let paths = ids.iter().map(|id| self.path_of(*id, now));
        KillInput::CgroupPaths(paths.collect())
    }

    /// Finds the path by handle in constant time, or by a walk if handles cannot be used.
    fn path_of(&mut self, id: CgroupId, now: BootNanos) -> Option<String> {
        let found = match &self.mount {
            None => return self.walk_for(id, now),
            Some(mount) => mount.path(id),
        };
        match found {
            Ok(path) => Some(path),
            Err(err) if err.kind() == io::ErrorKind::PermissionDenied => self.walk_for(id, now),
            Err(err) => {
                debug!(cgroup = id.0, err = &err as &dyn Error, "cgroup is removed");
                None
            }
        }
    }

    fn walk_for(&mut self, id: CgroupId, now: BootNanos) -> Option<String> {
        let memory = &self.pods.layout()?.memory;
        let found = self.paths.find(memory, id, now);
        let found = ok_or_log!(debug, found, "cgroups not walked");
        found.flatten().map(str::to_owned)
    }

    /// Reads the limit hits of `victim` and its ancestors except the root, which has no limit.
    pub fn limit_hits(&self, victim: &str) -> KillInput {
        let counted = self.pods.layout().map(|layout| {
            let above = cgroup::ancestors(victim).filter(|path| *path != "/");
            let hits = |path: &str| oom::limit_hits_of_path(&layout.memory, path).ok().flatten();
            above.map(hits).collect()
        });
        KillInput::LimitHits(counted)
    }

    pub fn live_limit_hits(&self) -> KillInput {
        let counted = |on: &Layout| oom::limit_hits(on, |_, _| ()).unwrap_or_default();
        let live = self.pods.layout().map(counted).unwrap_or_default();
        KillInput::LiveLimitHits(live.into_keys().collect())
    }

    pub fn pods_counter(&self) -> PodsCounter {
        let Some(layout) = self.pods.layout() else {
            return PodsCounter::NoPods;
        };
        match oom::counters(&layout.memory, self.pods.path(), &mut Vec::new()) {
            Ok(Some(counters)) => {
                PodsCounter::Counted(counters.with_descendants.map(|tree| tree.kills))
            }
            Ok(None) => PodsCounter::NoPods,
            Err(_) => PodsCounter::Failed,
        }
    }
}

/// Refused forks, limits and tasks of pods.
impl Cgroups {
    /// The cgroups of all pods, of each pod and of its containers, in the hierarchy of memory.
    pub fn pod_cgroups(&self) -> KillInput {
        let mut found = Vec::new();
        if let Some(layout) = self.pods.layout() {
            let pods = self.pods.path();
            let walked = walk::each_below(&layout.memory, pods, LEVELS - 1, |id, _, path| {
                found.push((id, path.to_owned()));
                true
            });
            ok_or_log!(debug, walked, "pods' cgroups not read");
        }
        KillInput::CgroupsSeen(found)
    }

    fn pids(&self) -> Option<&Hierarchy> {
        self.pods.layout()?.pids.as_ref()
    }

    /// Reads one counter of every pod, container and unit: about 15 µs each.
    pub fn refused_forks(&self) -> PodPidInput {
        let Some(hierarchy) = self.pids() else {
            return PodPidInput::Counted(None);
        };
        let (mut counts, mut buf) = (Vec::new(), Vec::new());
        let units = self.units.iter().map(|top| (*top, UNIT_LEVELS));
        for (top, levels) in [(self.pods.path(), LEVELS)].into_iter().chain(units) {
            let walked = walk::each_below(hierarchy, top, levels, |id, dir, path| {
                if let Ok(Some(count)) = pids::refused(dir, &mut buf) {
                    counts.push((id, path.to_owned(), count));
                }
                true
            });
            match walked {
                Ok(()) => {}
                // No pod has run yet, so all later cgroups are new.
                Err(err) if err.is_absent() => {}
                Err(err) => {
                    debug!(err = &err as &dyn Error, "pids.events not read");
                    return PodPidInput::Counted(None);
                }
            }
        }
        PodPidInput::Counted(Some(counts))
    }

    /// The cgroups in that of a pod, and their tasks.
    fn tasks_of_containers(&self, pod: &str) -> Vec<(String, u64)> {
        /// A pod has a few; a workload may make more.
        const MOST: usize = 100;

        let (mut tasks, mut buf) = (Vec::new(), Vec::new());
        let Some(hierarchy) = self.pids() else {
            return tasks;
        };
        let walked = walk::each_below(hierarchy, pod, 1, |_, _, path| {
            if path != pod
                && let Ok(Some(pids)) = pids::read(hierarchy, path, &mut buf)
            {
                tasks.push((path.to_owned(), pids.current));
            }
            tasks.len() < MOST
        });
        // The pod may have ended.
        walked.map_or_else(|_| Vec::new(), |()| tasks)
    }

    /// Reads the limits of `cgroup` and its ancestors up to the pods cgroup, if it is below that.
    pub fn pid_limits(&self, cgroup: &str) -> PodPidInput {
        let pods = self.pods.path();
        let mut buf = Vec::new();
        let limits = self.pids().map(|hierarchy| {
            let is_in_pods = classify(cgroup, pods) != CgroupKind::Other;
            let above = cgroup::ancestors(cgroup).filter(|at| {
                if is_in_pods {
                    at.starts_with(pods)
                } else {
                    *at != "/"
                }
            });
            let limit = |at: &str| {
                let read = pids::read(hierarchy, at, &mut buf).ok().flatten()?;
                Some(PidLimit {
                    cgroup: at.to_owned(),
                    current: read.current,
                    max: read.max?,
                })
            };
            above.filter_map(limit).collect()
        });
        let is_pod = matches!(classify(cgroup, pods), CgroupKind::Pod { .. });
        PodPidInput::PidLimits {
            pods: pods.to_owned(),
            limits: limits.unwrap_or_default(),
            containers: if is_pod {
                self.tasks_of_containers(cgroup)
            } else {
                Vec::new()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use nodepulse_linux::host::scratch::Scratch;

    use super::super::fixture::{CGROUPS, node};
    use super::super::signals::pods_path;
    use super::*;

    const POD: &str = "/kubepods/burstable/pod-0";
    const CONTAINER: &str = "/kubepods/burstable/pod-0/main";
    const UID: &str = "pod4e7b6a2e-6d1f-4c55-9a3e-0a1b2c3d4e5f";

    /// The cgroups of one pod; `POD` stands for a name with a valid UID.
    fn cgroups(files: &[(&str, &str)]) -> (Scratch, Cgroups) {
        let files: Vec<(String, &str)> = files
            .iter()
            .map(|(name, text)| (format!("@{}", named(name).trim_start_matches('/')), *text))
            .collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (&**name, *text)).collect();
        let (dir, config) = node(&files);
        (dir, Cgroups::new(pods_path(&config), false))
    }

    fn named(path: &str) -> String {
        path.replace("pod-0", UID)
    }

    #[test]
    fn limit_hits_are_those_of_the_cgroup_and_of_each_above_it() {
        let (_dir, cgroups) = cgroups(&[
            ("/kubepods/memory.events.local", "max 3\noom 1\n"),
            (
                &format!("{CONTAINER}/memory.events.local"),
                "max 9\noom 7\n",
            ),
        ]);
        let KillInput::LimitHits(Some(hits)) = cgroups.limit_hits(&named(CONTAINER)) else {
            panic!("no answer");
        };
        let hits: Vec<_> = hits
            .into_iter()
            .map(|hit| hit.map(|(_, count)| count))
            .collect();
        assert_eq!(
            hits,
            [Some(7), None, None, Some(1)],
            "from the container up"
        );
    }

    #[test]
    fn pid_limits_are_those_below_the_cgroup_of_the_pods() {
        let (_dir, cgroups) = cgroups(&[
            ("/pids.current", "900\n"),
            ("/pids.max", "1000\n"),
            ("/kubepods/pids.current", "300\n"),
            ("/kubepods/pids.max", "500\n"),
            ("/kubepods/burstable/pids.current", "200\n"),
            ("/kubepods/burstable/pids.max", "max\n"),
            (&format!("{POD}/pids.current"), "64\n"),
            (&format!("{POD}/pids.max"), "64\n"),
        ]);
        let answer = cgroups.pid_limits(&named(CONTAINER));
        let PodPidInput::PidLimits {
            pods,
            limits,
            containers,
        } = answer
        else {
            panic!("no answer");
        };
        assert_eq!(containers, [], "it is no pod");
        assert_eq!(pods, "/kubepods");
        let limit = |cgroup: &str, current, max| PidLimit {
            cgroup: named(cgroup),
            current,
            max,
        };
        assert_eq!(limits, [limit(POD, 64, 64), limit("/kubepods", 300, 500)]);
    }

    #[test]
    fn the_tasks_of_the_containers_of_a_pod_are_read_at_its_limit() {
        let (_dir, cgroups) = cgroups(&[
            (&format!("{CONTAINER}/pids.current"), "60\n"),
            (&format!("{CONTAINER}/pids.max"), "max\n"),
            (&format!("{CONTAINER}/below/pids.current"), "59\n"),
            (&format!("{POD}/other/pids.current"), "4\n"),
            (&format!("{POD}/other/pids.max"), "max\n"),
        ]);
        let answer = cgroups.pid_limits(&named(POD));
        let PodPidInput::PidLimits { mut containers, .. } = answer else {
            panic!("no answer");
        };
        containers.sort();
        let mut expected = [(CONTAINER, 60), (&format!("{POD}/other"), 4)]
            .map(|(path, tasks)| (named(path), tasks));
        expected.sort();
        assert_eq!(containers, expected);
    }

    #[test]
    fn refused_forks_are_counted_even_before_the_first_pod() {
        type Row<'a> = (&'a [(&'a str, &'a str)], Option<&'a [(&'a str, u64)]>);
        let rows: [Row; 2] = [
            (&[("/cgroup.procs", "")], Some(&[])),
            (
                &[
                    ("/kubepods/burstable/pod-0/pids.events", "max 5\n"),
                    ("/kubepods/burstable/pod-0/main/pids.events", "max 4\n"),
                ],
                Some(&[(POD, 5), (CONTAINER, 4)]),
            ),
        ];
        for (files, expected) in rows {
            let (_dir, cgroups) = cgroups(files);
            let PodPidInput::Counted(counted) = cgroups.refused_forks() else {
                panic!("no answer");
            };
            let counted = counted.map(|counts| {
                let counts = counts.into_iter();
                counts.map(|(_, path, count)| (path, count)).collect()
            });
            let expected = expected.map(|counts| -> Vec<_> {
                let counts = counts.iter();
                counts.map(|(path, count)| (named(path), *count)).collect()
            });
            assert_eq!(counted, expected, "{files:?}");
        }
    }

    #[test]
    fn refused_forks_of_units_are_counted_with_their_limits_if_that_is_wanted() {
        const SERVICE: &str = "/system.slice/a.service";
        const NESTED: &str = "/system.slice/system-b.slice/b@1.service";
        let files = [
            ("/system.slice/a.service/pids.events", "max 3\n"),
            ("/system.slice/a.service/pids.current", "32\n"),
            ("/system.slice/a.service/pids.max", "32\n"),
            (
                "/system.slice/system-b.slice/b@1.service/pids.events",
                "max 2\n",
            ),
            ("/system.slice/system-b.slice/pids.current", "90\n"),
            ("/system.slice/system-b.slice/pids.max", "100\n"),
            (
                "/system.slice/a.service/delegated/deep/pids.events",
                "max 1\n",
            ),
            (
                "/user.slice/user-7.slice/session-1.scope/pids.events",
                "max 1\n",
            ),
            ("/init.scope/pids.events", "max 1\n"),
        ];
        for (units, expected) in [(&UNITS[..], &[(SERVICE, 3), (NESTED, 2)][..]), (&[], &[])] {
            let (_dir, cgroups) = cgroups(&files);
            let cgroups = Cgroups { units, ..cgroups };
            let PodPidInput::Counted(Some(counts)) = cgroups.refused_forks() else {
                panic!("not counted");
            };
            let counts: Vec<_> = counts.iter().map(|(_, path, n)| (&**path, *n)).collect();
            assert_eq!(counts, expected);
        }
        let (_dir, cgroups) = cgroups(&files);
        for (path, at, max) in [
            (SERVICE, SERVICE, 32),
            (NESTED, "/system.slice/system-b.slice", 100),
        ] {
            let PodPidInput::PidLimits { limits, .. } = cgroups.pid_limits(path) else {
                panic!("no limits");
            };
            let limits: Vec<_> = limits.iter().map(|one| (&*one.cgroup, one.max)).collect();
            assert_eq!(limits, [(at, max)], "{path}");
        }
    }

    #[test]
    fn the_counter_of_all_pods_is_read_or_there_are_no_pods() {
        let counted = |kills| PodsCounter::Counted(Some(kills));
        let rows = [
            (None, PodsCounter::NoPods),
            (Some("max 0\noom 4\noom_kill 3\n"), counted(3)),
            (Some("oom_kill many\n"), PodsCounter::Failed),
        ];
        for (text, expected) in rows {
            let files = ["/kubepods/memory.events", "/kubepods/memory.events.local"];
            let files = files.map(|file| text.map(|text| (file, text)));
            let files: Vec<_> = files.into_iter().flatten().collect();
            let (_dir, cgroups) = cgroups(&files);
            assert_eq!(cgroups.pods_counter(), expected, "{text:?}");
        }
    }

    #[test]
    fn every_cgroup_that_may_be_that_of_the_pods_is_watched() {
        for (events, expected) in [
            ("populated 1\n", &["kubepods"][..]),
            ("populated 0\n", &["kubepods.slice", "kubepods"]),
        ] {
            let (dir, config) = node(&[("@kubepods/cgroup.events", events)]);
            for (with_units, units) in [(false, &[][..]), (true, &["system.slice"])] {
                let trees = watched_trees(&pods_path(&config), with_units);
                let tops: Vec<_> = trees.into_iter().map(|tree| tree.top).collect();
                let cgroups = dir.path().join(CGROUPS);
                let names = expected.iter().chain(units);
                let expected: Vec<_> = names.map(|name| cgroups.join(name)).collect();
                assert_eq!(tops, expected, "{events}");
            }
        }
    }
}
