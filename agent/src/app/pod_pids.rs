//! What pods do with their pids: forks refused at their limits, and who has most.

use tracing::{debug, info};

use super::App;
use crate::clock::{BootNanos, Now};
use crate::escape::escape;
use crate::host::cgroup::pods::PodsPath;
use crate::host::cgroup::{Hierarchy, Version, ancestors, pids, walk};
use crate::kube_event::{Incident, Occurrence, PodRef, RefusedForks, ReportedKills};
use crate::pods::{CgroupKind, classify};
use crate::pressure::Pressure;
use crate::pressure::change::PressureChange;
use crate::pressure::deadline::LONGEST;
use crate::pressure::refusals::{Refusals, Refused};
use crate::reading::Resource;
use crate::units::CgroupId;

/// Levels below the pods cgroup: class, pod, container, and one that some runtimes add.
pub(super) const LEVELS: usize = 4;
/// Pods that are named when pids run short.
const NAMED: usize = 3;

pub(super) struct PodPids {
    memory: Option<Hierarchy>,
    pids: Option<Hierarchy>,
    pods: PodsPath,
    refusals: Refusals,
    counted: BootNanos,
    buf: Vec<u8>,
}

impl PodPids {
    pub(super) fn new(pods: PodsPath, now: BootNanos) -> Self {
        let layout = pods.layout();
        let mut new = Self {
            memory: layout.map(|layout| layout.memory.clone()),
            pids: layout.and_then(|layout| layout.pids.clone()),
            pods,
            refusals: Refusals::default(),
            counted: now,
            buf: Vec::new(),
        };
        new.count(now);
        new
    }

    /// Reads one counter of every pod and container: about 15 µs each.
    fn count(&mut self, now: BootNanos) {
        self.counted = now;
        let Some(hierarchy) = &self.pids else {
            return;
        };
        let mut counts = Vec::new();
        let walked = walk::each_below(hierarchy, self.pods.path(), LEVELS, |id, dir, path| {
            if let Ok(Some(count)) = pids::refused(dir, &mut self.buf) {
                counts.push((id, path.to_owned(), count));
            }
            true
        });
        match walked {
            Ok(()) => self.refusals.apply_counts(counts),
            // No pod has run yet: all that are there later are new.
            Err(err) if err.is_absent() => self.refusals.apply_counts([]),
            Err(err) => debug!(err = &err as &dyn std::error::Error, "pids.events not read"),
        }
    }

    /// The cgroup of the pods, those of pods and their containers, as kills name them.
    fn memory_cgroups(&self) -> Vec<(CgroupId, String)> {
        let mut seen = Vec::new();
        if let Some(memory) = &self.memory {
            let walked = walk::each_below(memory, self.pods.path(), LEVELS - 1, |id, _, path| {
                seen.push((id, path.to_owned()));
                true
            });
            if let Err(err) = walked {
                debug!(
                    err = &err as &dyn std::error::Error,
                    "pods' cgroups not read"
                );
            }
        }
        seen
    }

    /// What to tell now. On version 1, where the kernel does not say when, it is counted first, but
    /// not at each of many looks.
    fn due(&mut self, now: Now) -> Vec<Incident> {
        let untold = self.pids.as_ref().is_some_and(|p| p.version == Version::V1);
        if untold && LONGEST <= now.boot.since(self.counted) {
            self.count(now.boot);
        }
        let due = self.refusals.due(now.boot);
        due.into_iter()
            .map(|refused| self.incident(refused, now))
            .collect()
    }

    fn incident(&mut self, refused: Refused, now: Now) -> Incident {
        let Refused { path, forks } = refused;
        let limit = self.limit(&path).map(|(at, max)| {
            let what_for = classify(&at, self.pods.path());
            (at, what_for, max)
        });
        let pod = PodRef::of(classify(&path, self.pods.path()));
        let refused = RefusedForks {
            cgroup: path,
            forks,
            limit,
        };
        info!(
            cgroup = escape(&refused.cgroup),
            forks,
            limit = refused.limit_of_cgroup(),
            "forks refused for want of pids"
        );
        Incident {
            pod,
            at: now.wall,
            stamp: None,
            kills: ReportedKills::default(),
            occurrence: Occurrence::RefusedForks(refused),
        }
    }

    /// The limit that refused: of those from the cgroup up to the pods', the one with least room.
    /// The kernel counts at that one itself, or at whoever forked: see [`pids::refused`].
    fn limit(&mut self, path: &str) -> Option<(String, u64)> {
        let hierarchy = self.pids.as_ref()?;
        let mut least: Option<(u64, String, u64)> = None;
        for at in ancestors(path).filter(|at| at.starts_with(self.pods.path())) {
            let Ok(Some(pids)) = pids::read(hierarchy, at, &mut self.buf) else {
                continue;
            };
            let Some(max) = pids.max else { continue };
            let room = max.saturating_sub(pids.current);
            if least.as_ref().is_none_or(|(other, ..)| room < *other) {
                least = Some((room, at.to_owned(), max));
            }
        }
        least.map(|(_, at, max)| (at, max))
    }

    /// The pods with most tasks, the largest first.
    fn largest(&mut self) -> Vec<(String, u64)> {
        let Some(hierarchy) = &self.pids else {
            return Vec::new();
        };
        let mut pods = Vec::new();
        let walked = walk::each_below(hierarchy, self.pods.path(), 2, |_, _, path| {
            if let CgroupKind::Pod { pod } = classify(path, self.pods.path())
                && let Ok(Some(pids)) = pids::read(hierarchy, path, &mut self.buf)
            {
                pods.push((pod.as_str().to_owned(), pids.current));
            }
            true
        });
        if let Err(err) = walked {
            debug!(
                err = &err as &dyn std::error::Error,
                "pods' tasks not counted"
            );
        }
        pods.sort_by_key(|(_, tasks)| std::cmp::Reverse(*tasks));
        pods.truncate(NAMED);
        pods
    }
}

impl App {
    /// Cgroups below the pods' came, went, or met a limit.
    pub(super) fn cgroups_changed(&mut self, now: Now) {
        for (id, path) in self.pod_pids.memory_cgroups() {
            self.kills.remember(id, &path);
        }
        self.pod_pids.count(now.boot);
        self.tell_refused(now);
    }

    pub(super) fn tell_refused(&mut self, now: Now) {
        let incidents = self.pod_pids.due(now);
        self.tell(incidents, now);
    }

    /// Says who has most tasks, where they have run short.
    pub(super) fn name_largest(&mut self, changes: &[PressureChange]) {
        let short = |change: &PressureChange| {
            matches!(change.resource, Resource::Pids | Resource::PodsPids)
                && matches!(change.to, Pressure::UnderPressure { .. })
        };
        if !changes.iter().any(short) {
            return;
        }
        let largest = self.pod_pids.largest();
        if !largest.is_empty() {
            info!(
                pods = escape(format!("{largest:?}")),
                "pods with most tasks"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::scratch::Scratch;

    /// Cgroups with `pids.max` and `pids.current`.
    fn pods(cgroups: &[(&str, &str, u64)]) -> (Scratch, PodPids) {
        let dir = Scratch::new();
        for (cgroup, max, current) in cgroups {
            dir.write(&format!("{cgroup}/pids.max"), max);
            dir.write(&format!("{cgroup}/pids.current"), current.to_string());
        }
        let pods = PodPids {
            memory: None,
            pids: Some(Hierarchy {
                mount: dir.path().to_owned(),
                version: Version::V2,
            }),
            pods: PodsPath::new(None, &["/kubepods".into()]),
            refusals: Refusals::default(),
            counted: BootNanos(0),
            buf: Vec::new(),
        };
        (dir, pods)
    }

    #[test]
    fn the_limit_that_refused_is_the_one_with_least_room() {
        //  pods, pod, container: max and current; then whose limit
        let rows = [
            (
                [("max", 9), ("10", 10), ("max", 5)],
                Some(("/kubepods/podaa", 10)),
                "the pod's",
            ),
            (
                [("max", 9), ("10", 9), ("5", 5)],
                Some(("/kubepods/podaa/c", 5)),
                "the container's",
            ),
            (
                [("9", 9), ("10", 8), ("5", 4)],
                Some(("/kubepods", 9)),
                "that of all pods",
            ),
            (
                [("9", 9), ("5", 5), ("5", 5)],
                Some(("/kubepods/podaa/c", 5)),
                "the nearest",
            ),
            ([("max", 9), ("max", 9), ("max", 9)], None, "none"),
        ];
        for ([all, pod, container], expected, why) in rows {
            let (_dir, mut pods) = pods(&[
                ("kubepods", all.0, all.1),
                ("kubepods/podaa", pod.0, pod.1),
                ("kubepods/podaa/c", container.0, container.1),
            ]);
            let expected = expected.map(|(at, max)| (at.to_owned(), max));
            assert_eq!(pods.limit("/kubepods/podaa/c"), expected, "{why}");
            assert_eq!(
                pods.limit("/kubepods/podaa/c/gone"),
                expected,
                "{why}: one below is gone"
            );
        }
    }

    #[test]
    fn the_largest_pods_are_named() {
        let (_dir, mut pods) = pods(&[
            ("kubepods", "max", 100),
            ("kubepods/burstable", "max", 90),
            ("kubepods/burstable/podaa", "max", 3),
            ("kubepods/burstable/podbb", "max", 50),
            ("kubepods/podcc", "max", 7),
            ("kubepods/podcc/podff", "max", 99),
            ("kubepods/poddd", "max", 8),
            ("kubepods/not-a-pod", "max", 70),
        ]);
        let expected = [("bb", 50), ("dd", 8), ("cc", 7)];
        assert_eq!(
            pods.largest(),
            expected.map(|(pod, tasks)| (pod.to_owned(), tasks))
        );
    }
}
