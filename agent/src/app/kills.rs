//! What a kill was about: whose cgroup, which limit, and whether the node itself is short.

use std::collections::HashMap;
use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};
use tracing::{debug, warn};

use crate::api::recorder::{EventInput, Involved};
use crate::clock::{BootNanos, Now, Stamp};
use crate::config::Config;
use crate::event::{OomConstraint, OomKill, OomScope, ScopeSource};
use crate::host::cgroup::{self, Layout, oom};
use crate::host::escape;
use crate::kernel::handle::CgroupMount;
use crate::node_status::transition::EventType;
use crate::pods::{Place, place};
use crate::pressure::Policy;
use crate::pressure::oom::{
    Constraint, Evidence, Grounds, Kill, LimitCounters, LimitOwner, Scope, ScopeSource as Source,
    Verdict, judge,
};
use crate::reading::{Reading, Signal};
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
    layout: Option<Layout>,
    mount: Option<CgroupMount>,
    pods: String,
    page: u64,
    hits: HashMap<CgroupId, Hits>,
    /// For when handles cannot be used.
    paths: cgroup::walk::InodeMap,
    walked: Option<BootNanos>,
}

#[derive(Debug, Clone, Copy)]
struct Hits {
    count: u64,
    moved: Option<BootNanos>,
}

/// What was found out about one kill. All text in it is escaped.
pub(super) struct Finding {
    /// Name of the victim.
    pub(super) comm: String,
    /// Path of its memory cgroup, or its last names where the cgroup is gone.
    pub(super) cgroup: String,
    /// Path of the cgroup that was at its limit.
    pub(super) limiting: Option<String>,
    /// Whose limit it was.
    pub(super) scope: Scope,
    /// What it means for the node.
    pub(super) verdict: Verdict,
    page: u64,
}

impl Kills {
    pub(super) fn new(config: &Config, layout: Option<&Layout>) -> Self {
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
        let counted = layout
            .map(oom::limit_hits)
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
            layout: layout.cloned(),
            mount,
            pods: config.pods_cgroup.display().to_string(),
            page: page_size(),
            hits: hits
                .map(|(id, count)| (id, Hits { count, moved: None }))
                .collect(),
            paths: cgroup::walk::InodeMap::default(),
            walked: None,
        }
    }

    pub(super) fn examine(
        &mut self,
        kill: &OomKill,
        memory: Option<Reading>,
        policy: &Policy,
        now: BootNanos,
    ) -> Finding {
        let victim = self.path(kill.cgroup, now);
        let limiting = match kill.scope {
            OomScope::Memcg { limiting, .. } => Some(limiting),
            OomScope::Global | OomScope::Unknown => None,
        };
        let limiting_path = limiting.and_then(|id| self.path(id, now));
        let scope = match limiting {
            Some(limiting) => Scope::Memcg {
                limiting,
                limiting_is: self.owner(limiting_path.as_deref(), kill, limiting),
            },
            None => Scope::Global,
        };
        let evidence = Evidence {
            counters: self.counters(victim.as_deref(), now),
            memory,
            threshold: policy.threshold(Signal::MemoryAvailable),
        };
        let source = match kill.source {
            ScopeSource::Exact => Source::Exact,
            ScopeSource::Inferred => Source::Inferred,
        };
        let judged = Kill {
            scope,
            source,
            constraint: kill.constraint.map(constraint),
            order: kill.order,
        };
        Finding {
            comm: escape(&kill.comm),
            cgroup: victim.map_or_else(|| last_names(kill), escape),
            limiting: limiting
                .map(|id| limiting_path.map_or_else(|| format!("cgroup id {}", id.0), escape)),
            scope,
            verdict: judge(&judged, &evidence),
            page: self.page,
        }
    }

    /// By its handle, in constant time; where that is not possible by a walk.
    fn path(&mut self, id: CgroupId, now: BootNanos) -> Option<String> {
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
        let memory = &self.layout.as_ref()?.memory;
        let found = self.paths.resolve(memory, id).inspect_err(|err| {
            debug!(err = err as &dyn std::error::Error, "cgroups not walked");
        });
        found.ok().flatten().map(str::to_owned)
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
        match place(path, &self.pods) {
            Place::Pods => LimitOwner::PodsCgroup,
            Place::Pod { .. } => LimitOwner::Pod,
            Place::Container { .. } => LimitOwner::Container,
            Place::Other => LimitOwner::Other,
        }
    }

    /// Whether the victim's cgroup or one above it met its own limit since it was last looked at.
    fn counters(&mut self, victim: Option<&str>, now: BootNanos) -> LimitCounters {
        let (Some(layout), Some(victim)) = (&self.layout, victim) else {
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

impl Finding {
    /// The Event that tells of it.
    pub(super) fn event(&self, kill: &OomKill, stamp: Stamp, now: Now) -> EventInput {
        let global = matches!(
            (kill.scope, self.verdict),
            (OomScope::Global, _)
                | (
                    _,
                    Verdict::NodePressure {
                        why: Grounds::ConfirmedGlobal
                    }
                )
        );
        let (reason, message) = if global {
            let what = "System OOM encountered, victim process";
            (
                "SystemOOM",
                format!("{what}: {}, pid: {}", self.comm, kill.victim),
            )
        } else {
            ("OOMKilled", self.message(kill))
        };
        EventInput {
            object: Involved::Node,
            type_: EventType::Warning,
            reason: reason.to_owned(),
            message,
            at: now.wall_at(stamp.kernel),
            stamp: Some(stamp),
        }
    }

    fn message(&self, kill: &OomKill) -> String {
        let limiting = match kill.scope {
            OomScope::Memcg {
                usage_pages,
                max_pages,
                ..
            } => format!(
                "{} was at its limit ({} of {})",
                self.limiting.as_deref().unwrap_or("a cgroup"),
                self.bytes(usage_pages),
                self.bytes(max_pages),
            ),
            OomScope::Global | OomScope::Unknown => "no limit is known".to_owned(),
        };
        format!(
            "Killed process {} ({}) of uid {} in cgroup {}: {limiting}; it had anon {}, file {}, \
             shmem {}; triggered by process {} ({})",
            kill.victim,
            self.comm,
            kill.uid,
            self.cgroup,
            self.bytes(kill.anon_pages),
            self.bytes(kill.file_pages),
            self.bytes(kill.shmem_pages),
            kill.trigger,
            escape(&kill.trigger_comm),
        )
    }

    fn bytes(&self, pages: u64) -> Bytes {
        Bytes::from_pages(pages, self.page)
    }
}

fn constraint(told: OomConstraint) -> Constraint {
    match told {
        OomConstraint::None => Constraint::None,
        OomConstraint::Cpuset => Constraint::Cpuset,
        OomConstraint::MemoryPolicy => Constraint::MemoryPolicy,
        OomConstraint::Memcg => Constraint::Memcg,
    }
}

/// Containers come and go: keeps the cgroups that still exist and have met a limit.
fn forget_the_gone(hits: &mut HashMap<CgroupId, Hits>, layout: &Layout, now: BootNanos) {
    let live = oom::limit_hits(layout).unwrap_or_default();
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
