//! What a kill was about: whose cgroup, which limit, and whether the node itself is short.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};
use tracing::{debug, warn};

use super::observe::Observe;
use crate::clock::{BootNanos, Stamp};
use crate::escape::escape;
use crate::host::cgroup::pods::PodsPath;
use crate::host::cgroup::{self, Layout, oom};
use crate::kube_event::{Finding, Limiting, VictimOwner};
use crate::os::cgroup_handle::CgroupMount;
use crate::pods::{ByNames, CgroupKind, RecentPods, classify, classify_by_names};
use crate::pressure::Policy;
use crate::pressure::oom::{Kill, KillVerdict, LimitCounters, RemainingMemory, judge};
use crate::reading::Signal;
use crate::reading::oom::{LimitOwner, ScopeSource};
use crate::record::{LoggedKill, MemcgLimit, OomKill, Via};
use crate::units::{Bytes, CgroupId};

/// Several kills of one moment share the movement of a counter: whoever reads first sees it move.
const SAME_MOMENT: Duration = Duration::from_secs(2);

/// Cgroups that are remembered before those that are gone are looked for.
const MOST_HITS: usize = 8192;

/// Page size where the kernel does not say.
const USUAL_PAGE: u64 = 4096;

/// Looks kills up. Keeps how often each cgroup had met its own limit, so that a later look tells
/// whether a kill was at a limit or for want of memory on the node.
pub(super) struct Kills {
    mount: Option<CgroupMount>,
    pods: PodsPath,
    page: u64,
    hits: HashMap<CgroupId, Hits>,
    /// Victims' cgroups whose counters had no say, and are to be looked at all the same.
    uncounted: BTreeSet<String>,
    /// For when handles cannot be used.
    paths: cgroup::walk::InodeMap,
    walked: Option<BootNanos>,
    /// For when the cgroup is gone.
    recent_pods: RecentPods,
}

#[derive(Debug, Clone, Copy)]
struct Hits {
    count: u64,
    moved: Option<BootNanos>,
}

/// When a kill is looked at, and what it is looked at with.
pub(super) struct Around<'a> {
    pub(super) observe: &'a mut Observe,
    pub(super) policy: &'a Policy,
    /// When the record was read.
    pub(super) read: BootNanos,
    pub(super) now: BootNanos,
}

impl Around<'_> {
    fn stamp(&self, kernel: BootNanos) -> Stamp {
        Stamp {
            kernel,
            read: self.read,
        }
    }
}

impl Kills {
    pub(super) fn new(pods: PodsPath) -> Self {
        let layout = pods.layout();
        let mount = layout.and_then(|layout| {
            CgroupMount::open(&layout.memory.mount)
                .inspect_err(|err| {
                    warn!(
                        err = err as &dyn std::error::Error,
                        "cgroups cannot be opened by id, and are searched for"
                    );
                })
                .ok()
        });
        let mut recent_pods = RecentPods::default();
        let see = |id, path: &str| {
            if classify(path, pods.path()) != CgroupKind::Other {
                recent_pods.remember(id, path);
            }
        };
        let counted = layout
            .map(|layout| oom::limit_hits(layout, see))
            .transpose()
            .unwrap_or_else(|err| {
                warn!(
                    err = &err as &dyn std::error::Error,
                    "limits of cgroups not read"
                );
                None
            });
        let hits = counted.unwrap_or_default().into_iter();
        Self {
            mount,
            pods,
            page: page_size(),
            hits: hits
                .map(|(id, count)| (id, Hits { count, moved: None }))
                .collect(),
            uncounted: BTreeSet::new(),
            paths: cgroup::walk::InodeMap::default(),
            walked: None,
            recent_pods,
        }
    }

    /// A cgroup was seen that may be gone when its kill is examined.
    pub(super) fn remember(&mut self, id: CgroupId, path: &str) {
        self.recent_pods.remember(id, path);
    }

    /// Looks at a kill that a program told.
    pub(super) fn examine(&mut self, kill: &OomKill, mut around: Around<'_>) -> Finding {
        let now = around.now;
        let victim = self.path(kill.cgroup, now);
        let bytes = |pages| Bytes::from_pages(pages, self.page);
        let resident = [kill.anon_pages, kill.file_pages, kill.shmem_pages].map(bytes);
        let scope = kill.scope.map(|limit| self.limiting(kill, limit, now));
        let judged = Kill {
            scope: scope.as_ref().map(|limiting| limiting.owner),
            source: kill.source,
            constraint: kill.constraint,
            order: kill.order,
        };
        let verdict = self.judge(&judged, victim.as_deref(), &mut around);
        // An exiting task may have given its memory back before it is looked at.
        let known = kill.via != Via::Exit || resident.iter().any(|bytes| bytes.get() > 0);
        let owner = match &victim {
            Some(path) => VictimOwner::of(classify(path, self.pods.path())),
            None => self.last_seen(kill),
        };
        Finding {
            stamp: around.stamp(kill.at),
            victim: kill.victim,
            comm: escape(&kill.comm),
            uid: Some(kill.uid),
            cgroup: Some(victim.as_ref().map_or_else(|| last_names(kill), escape)),
            counter: owner.counter(victim.as_deref(), self.pods.path()),
            owner,
            scope,
            resident: known.then_some(resident),
            trigger: Some(format!(
                "process {} ({})",
                kill.trigger,
                escape(&kill.trigger_comm)
            )),
            verdict,
        }
    }

    /// Looks at a kill that the kernel's log told.
    pub(super) fn examine_logged(&mut self, kill: &LoggedKill, mut around: Around<'_>) -> Finding {
        // A cgroup's name that is no text is a tenant's own: Kubernetes' and systemd's are.
        let text = |path: &Vec<u8>| String::from_utf8_lossy(path).into_owned();
        let victim = kill.cgroup.as_ref().map(text);
        let scope = kill.scope.clone().map(|path| self.logged_limiting(path));
        let judged = Kill {
            scope: scope.as_ref().map(|limiting| limiting.owner),
            source: ScopeSource::Logged,
            constraint: kill.constraint,
            order: kill.order,
        };
        let verdict = self.judge(&judged, victim.as_deref(), &mut around);
        let owner = victim.as_deref().map_or(VictimOwner::NoPod, |path| {
            VictimOwner::of(classify(path, self.pods.path()))
        });
        Finding {
            stamp: around.stamp(kill.at),
            victim: kill.victim,
            comm: escape(&kill.comm),
            uid: kill.uid,
            cgroup: kill.cgroup.as_ref().map(escape),
            counter: owner.counter(victim.as_deref(), self.pods.path()),
            owner,
            scope,
            resident: kill.resident,
            trigger: kill
                .trigger
                .as_ref()
                .map(|comm| format!("a process named {}", escape(comm))),
            verdict,
        }
    }

    /// Of a cgroup that is gone and was not seen before.
    fn last_seen(&self, kill: &OomKill) -> VictimOwner {
        match classify_by_names(&kill.names, self.pods.path()) {
            ByNames::Certain(place) => VictimOwner::of(place),
            ByNames::Claimed(_) => VictimOwner::UnknownPod,
            ByNames::Nothing => VictimOwner::NoPod,
        }
    }

    fn judge(&mut self, kill: &Kill, victim: Option<&str>, around: &mut Around<'_>) -> KillVerdict {
        let Around {
            observe,
            policy,
            now,
            ..
        } = around;
        let mut counted = false;
        let counters = || {
            counted = true;
            self.counters(victim, *now)
        };
        let left = || RemainingMemory {
            memory: observe.memory(),
            threshold: policy.threshold(Signal::MemoryAvailable),
        };
        let verdict = judge(kill, counters, left);
        if !counted {
            self.uncounted.extend(victim.map(str::to_owned));
        }
        verdict
    }

    /// Looks at the counters that had no say yet, so that what moved them is not held against a kill
    /// to come. For when what was found out has been told.
    pub(super) fn catch_up(&mut self, now: BootNanos) {
        for victim in std::mem::take(&mut self.uncounted) {
            self.counters(Some(&victim), now);
        }
    }

    /// As it is now; that of a cgroup that is gone from memory.
    fn path(&mut self, id: CgroupId, now: BootNanos) -> Option<String> {
        let Some(path) = self.live_path(id, now) else {
            return self.recent_pods.path(id).map(str::to_owned);
        };
        self.recent_pods.remember(id, &path);
        Some(path)
    }

    /// By its handle, in constant time; where that is not possible by a walk.
    fn live_path(&mut self, id: CgroupId, now: BootNanos) -> Option<String> {
        let Some(mount) = &self.mount else {
            return self.walk(id, now);
        };
        match mount.path(id) {
            Ok(path) => Some(path),
            Err(err) if err.kind() == std::io::ErrorKind::PermissionDenied => self.walk(id, now),
            Err(err) => {
                debug!(
                    cgroup = id.0,
                    err = &err as &dyn std::error::Error,
                    "cgroup is gone"
                );
                None
            }
        }
    }

    /// Walks the tree again for an id that is not known, but not for each of many kills.
    fn walk(&mut self, id: CgroupId, now: BootNanos) -> Option<String> {
        let recent = self
            .walked
            .is_some_and(|last| now.since(last) < SAME_MOMENT);
        if recent || self.paths.known(id).is_some() {
            return self.paths.known(id).map(str::to_owned);
        }
        self.walked = Some(now);
        let memory = &self.pods.layout()?.memory;
        let found = self.paths.resolve(memory, id).inspect_err(|err| {
            debug!(err = err as &dyn std::error::Error, "cgroups not walked");
        });
        found.ok().flatten().map(str::to_owned)
    }

    fn limiting(&mut self, kill: &OomKill, limit: MemcgLimit, now: BootNanos) -> Limiting {
        let MemcgLimit {
            limiting,
            usage_pages,
            max_pages,
            tied,
        } = limit;
        let bytes = |pages| Bytes::from_pages(pages, self.page);
        let usage = Some((bytes(usage_pages), bytes(max_pages)));
        let tied = tied.and_then(|id| self.path(id, now));
        let path = self.path(limiting, now);
        Limiting {
            owner: self.owner(path.as_deref(), kill, limiting),
            path: Some(path.map_or_else(|| format!("cgroup id {}", limiting.0), escape)),
            tied: tied.map(|path| (self.owner_by_place(&path), escape(path))),
            usage,
        }
    }

    fn logged_limiting(&self, path: Option<Vec<u8>>) -> Limiting {
        let owner = |path: &Vec<u8>| self.owner_by_place(&String::from_utf8_lossy(path));
        Limiting {
            owner: path.as_ref().map_or(LimitOwner::Other, owner),
            path: path.map(escape),
            tied: None,
            usage: None,
        }
    }

    /// Whose limit it was. A cgroup that is gone was no pods cgroup: that one outlives every pod.
    fn owner(&self, path: Option<&str>, kill: &OomKill, limiting: CgroupId) -> LimitOwner {
        let Some(path) = path else {
            return if limiting == kill.cgroup {
                LimitOwner::Container
            } else {
                LimitOwner::Pod
            };
        };
        self.owner_by_place(path)
    }

    fn owner_by_place(&self, path: &str) -> LimitOwner {
        match classify(path, self.pods.path()) {
            CgroupKind::Pods => LimitOwner::PodsCgroup,
            CgroupKind::Pod { .. } => LimitOwner::Pod,
            CgroupKind::Container { .. } => LimitOwner::Container,
            CgroupKind::Other => LimitOwner::Other,
        }
    }

    /// Whether the victim's cgroup or one above it met its own limit since it was last looked at.
    fn counters(&mut self, victim: Option<&str>, now: BootNanos) -> LimitCounters {
        let (Some(layout), Some(victim)) = (self.pods.layout(), victim) else {
            return LimitCounters::Unknown;
        };
        if self.hits.len() > MOST_HITS {
            forget_the_gone(&mut self.hits, layout, now);
        }
        let mut verdict = LimitCounters::Still;
        // The top has no limit, and on version 2 no counter either.
        for path in cgroup::ancestors(victim).filter(|path| *path != "/") {
            let Ok(Some((id, count))) = oom::limit_hits_of_path(&layout.memory, path) else {
                verdict = if verdict == LimitCounters::Moved {
                    verdict
                } else {
                    LimitCounters::Unknown
                };
                continue;
            };
            // A cgroup that was not there at start began at zero.
            let known = self.hits.entry(id).or_insert(Hits {
                count: 0,
                moved: None,
            });
            if count > known.count {
                *known = Hits {
                    count,
                    moved: Some(now),
                };
            }
            if known
                .moved
                .is_some_and(|moved| now.since(moved) < SAME_MOMENT)
            {
                verdict = LimitCounters::Moved;
            }
        }
        verdict
    }
}

/// Containers come and go: keeps the cgroups that still exist and have met a limit.
fn forget_the_gone(hits: &mut HashMap<CgroupId, Hits>, layout: &Layout, now: BootNanos) {
    let live = oom::limit_hits(layout, |_, _| ()).unwrap_or_default();
    let recent = |hits: &Hits| {
        hits.moved
            .is_some_and(|moved| now.since(moved) < SAME_MOMENT)
    };
    hits.retain(|id, known| live.contains_key(id) || recent(known));
}

/// `…/grandparent/parent/leaf`: what is left of the path of a cgroup that is gone.
fn last_names(kill: &OomKill) -> String {
    let names = kill.names.iter().rev().filter(|name| !name.is_empty());
    names.fold("…".to_owned(), |path, name| {
        format!("{path}/{}", escape(name))
    })
}

fn page_size() -> u64 {
    let size = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    size.and_then(|size| u64::try_from(size).ok())
        .unwrap_or(USUAL_PAGE)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;
    use crate::host::cgroup::{Hierarchy, Version};
    use crate::host::scratch::Scratch;

    #[test]
    fn a_cgroup_that_is_gone_keeps_its_path_and_many_unknown_ones_cause_one_walk() {
        let dir = Scratch::new();
        let memory = Hierarchy {
            mount: dir.path().to_owned(),
            version: Version::V2,
        };
        let layout = Layout {
            memory,
            pids: None,
            unified: None,
        };
        let id = |rel: &str| CgroupId(dir.path().join(rel).metadata().unwrap().ino());
        // Held open, so that this file system does not give the inode to the next directory;
        // cgroups never do.
        let held = |rel: &str| fs::File::open(dir.path().join(rel)).unwrap();
        for rel in ["kubepods/podaa/at-start", "elsewhere"] {
            dir.mkdir(rel);
        }
        let (at_start, elsewhere) = (id("kubepods/podaa/at-start"), id("elsewhere"));
        let _held = [held("kubepods/podaa/at-start"), held("elsewhere")];
        let mut kills = Kills::new(PodsPath::new(Some(layout), &["/kubepods".into()]));
        kills.remember(CgroupId(1), "/kubepods/podaa/told");
        fs::remove_dir_all(dir.path().join("kubepods")).unwrap();
        fs::remove_dir_all(dir.path().join("elsewhere")).unwrap();

        let now = BootNanos(10_000_000_000);
        dir.mkdir("later");
        let mut path = |id, at| kills.path(id, at);
        let known = Some("/kubepods/podaa/at-start".to_owned());
        assert_eq!(path(at_start, now), known, "seen by the walk at start");
        let told = Some("/kubepods/podaa/told".to_owned());
        assert_eq!(path(CgroupId(1), now), told, "told of when it came");
        assert_eq!(path(elsewhere, now), None, "no pod's: not kept");
        assert_eq!(
            path(id("later"), now),
            Some("/later".into()),
            "found by the walk"
        );

        dir.mkdir("new");
        assert_eq!(path(id("new"), now), None, "no second walk in one moment");
        let next = now.plus(SAME_MOMENT);
        assert_eq!(path(id("new"), next), Some("/new".into()), "walked again");
    }
}
