//! A kill whose cgroups are known, from a program's record or from the kernel's log.

use serde::{Deserialize, Serialize};

use super::consequence::{Paths, consequence, is_whole_container};
use crate::clock::{BootNanos, Stamp};
use crate::escape::{escape, quote};
use crate::kube_event::{Cause, ContainerLabel, Finding, Limiting, VictimOwner};
use crate::pods::{CgroupKind, Owner, PodRef, claims_pod, classify, whole_path};
use crate::pressure::oom::{Kill, KillVerdict};
use crate::reading::oom::{Consequence, LimitOwner, OomConstraint, OomScope, ScopeSource};
use crate::record::{LoggedKill, MemcgLimit, RecordedKill, Via};
use crate::units::{Bytes, CgroupId, Pid};

/// The facts of a kill before it is judged: see [`Finding`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Case {
    stamp: Stamp,
    victim: Pid,
    comm: Vec<u8>,
    uid: Option<u32>,
    uid_in_namespace: Option<u32>,
    /// Path of the victim's cgroup, unescaped.
    pub(super) path: Option<String>,
    /// The known part of that path, escaped.
    cgroup: Option<String>,
    owner: VictimOwner,
    /// Path of the cgroup of all pods.
    pods: String,
    scope: OomScope<Limiting>,
    source: ScopeSource,
    constraint: Option<OomConstraint>,
    order: Option<i32>,
    resident: Option<[Bytes; 3]>,
    trigger: Option<String>,
    trigger_container: Option<ContainerLabel>,
    consequence: Option<Consequence>,
    /// Path of the cgroup that the kernel kills as a whole, unescaped.
    group: Option<String>,
}

impl Case {
    /// Converts a program's record. `paths` are those of [`cgroups_of`]; a page has `page` bytes.
    pub(super) fn recorded(
        kill: RecordedKill,
        read: BootNanos,
        pods: String,
        paths: Vec<Option<String>>,
        page: u64,
    ) -> Self {
        let mut paths = paths.into_iter();
        let mut next = || paths.next().flatten();
        // A service that has ended has no cgroup any more.
        let path = next().or_else(|| whole_path(&kill.names));
        let scope = kill.scope.map(|limit| {
            let tied = limit.tied.and_then(|_| next());
            let same = path.clone().filter(|_| limit.limiting == kill.cgroup);
            (limit, next().or(same), tied)
        });
        let bytes = |pages| Bytes::from_pages(pages, page);
        let (consequence, group, requester) = {
            let mut of = |id: Option<CgroupId>| match id {
                Some(id) if id == kill.cgroup => path.clone(),
                Some(_) => next(),
                None => None,
            };
            let reference = of(kill.namespace.map(|at| at.reference));
            let group = of(kill.group);
            let requester = of(kill.trigger_cgroup);
            let paths = Paths {
                victim: path.as_deref(),
                reference: reference.as_deref(),
                group: group.as_deref(),
            };
            (consequence(&kill, paths, &pods), group, requester)
        };
        let scope = scope.map(|(limit, path, tied)| Limiting {
            owner: limit_owner(path.as_deref(), &kill, &limit, &pods),
            unit: (path.as_deref()).and_then(|path| Owner::of_limit(path, &pods)),
            path: Some(path.map_or_else(|| format!("id:{}", limit.limiting.0), escape)),
            tied: tied.map(|path| (owner_by_path(&path, &pods), escape(path))),
            usage: Some((bytes(limit.usage_pages), bytes(limit.max_pages))),
        });
        let resident = [kill.anon_pages, kill.file_pages, kill.shmem_pages].map(bytes);
        // An exiting task may have returned its memory before the record was made.
        let known = kill.via != Via::Exit || resident.iter().any(|bytes| bytes.get() > 0);
        let owner = match &path {
            Some(path) => VictimOwner::of(classify(path, &pods)),
            None if claims_pod(&kill.names, &pods) => VictimOwner::UnknownPod,
            None => VictimOwner::NoPod,
        };
        let trigger = format!("process {} ({})", kill.trigger, quote(&kill.trigger_comm));
        let trigger_container = requester.and_then(|path| other_container(&path, &owner, &pods));
        Self {
            stamp: Stamp {
                kernel: kill.at,
                read,
            },
            victim: kill.victim,
            cgroup: Some(path.as_ref().map_or_else(|| last_names(&kill), escape)),
            comm: kill.comm,
            uid: Some(kill.uid),
            uid_in_namespace: kill.uid_in_namespace,
            path,
            owner,
            pods,
            scope,
            source: kill.source,
            constraint: kill.constraint,
            order: kill.order,
            resident: known.then_some(resident),
            trigger: Some(trigger),
            trigger_container,
            consequence,
            group,
        }
    }

    /// Converts a kill from the kernel's log.
    pub(super) fn logged(kill: LoggedKill, read: BootNanos, pods: String) -> Self {
        // A name that is not text is a tenant's: those of Kubernetes and systemd are text.
        let text = |path: &Vec<u8>| String::from_utf8_lossy(path).into_owned();
        let path = kill.cgroup.as_ref().map(text);
        let scope = kill.scope.map(|path| Limiting {
            owner: path
                .as_ref()
                .map_or(LimitOwner::Other, |path| owner_by_path(&text(path), &pods)),
            unit: (path.as_ref()).and_then(|path| Owner::of_limit(&text(path), &pods)),
            path: path.map(escape),
            tied: None,
            usage: None,
        });
        let owner = path.as_deref().map_or(VictimOwner::NoPod, |path| {
            VictimOwner::of(classify(path, &pods))
        });
        let trigger = kill.trigger.map(quote);
        // The log has no namespace.
        let group = kill.group.as_ref().map(text);
        let is_whole = path
            .as_deref()
            .zip(group.as_deref())
            .is_some_and(|(path, group)| is_whole_container(path, group, &pods));
        Self {
            stamp: Stamp {
                kernel: kill.at,
                read,
            },
            victim: kill.victim,
            comm: kill.comm,
            uid: kill.uid,
            uid_in_namespace: None,
            path,
            cgroup: kill.cgroup.map(escape),
            owner,
            pods,
            scope,
            source: ScopeSource::Logged,
            constraint: kill.constraint,
            order: kill.order,
            resident: kill.resident,
            trigger: trigger.map(|comm| format!("a process named {comm}")),
            trigger_container: None,
            consequence: is_whole.then_some(Consequence::WholeContainer),
            group,
        }
    }

    pub(super) fn kill(&self) -> Kill {
        Kill {
            scope: self.scope.as_ref().map(|limiting| limiting.owner),
            source: self.source,
            constraint: self.constraint,
            order: self.order,
        }
    }

    /// The cause is given later.
    pub(super) fn judged(self, verdict: KillVerdict) -> Finding {
        Finding {
            stamp: self.stamp,
            cause: Cause::default(),
            victim: self.victim,
            comm: escape(&self.comm),
            uid: self.uid,
            uid_in_namespace: self.uid_in_namespace,
            cgroup: self.cgroup,
            counter: self.owner.counter(self.path.as_deref(), &self.pods),
            unit: (self.path.as_deref())
                .map(|path| Owner::from_path(path, &self.pods))
                .filter(|owner| !owner.is_of_pods()),
            owner: self.owner,
            scope: self.scope,
            resident: self.resident,
            trigger: self.trigger,
            trigger_container: self.trigger_container,
            consequence: self.consequence,
            group: self.group.map(escape),
            verdict,
        }
    }
}

/// Returns the cgroups of a record whose paths are needed, in the order in which they are used.
pub(super) fn cgroups_of(kill: &RecordedKill) -> Vec<CgroupId> {
    let limit = kill.scope.memcg();
    let tied = limit.and_then(|limit| limit.tied);
    let limiting = limit.map(|limit| limit.limiting);
    let other = |id: &CgroupId| *id != kill.cgroup;
    let reference = kill.namespace.map(|at| at.reference).filter(other);
    let group = kill.group.filter(other);
    let trigger = kill.trigger_cgroup.filter(other);
    [Some(kill.cgroup), tied, limiting, reference, group, trigger]
        .into_iter()
        .flatten()
        .collect()
}

fn other_container(path: &str, victim: &VictimOwner, pods: &str) -> Option<ContainerLabel> {
    let VictimOwner::Pod(victim) = victim else {
        return None;
    };
    let other = PodRef::of(classify(path, pods)).filter(|other| other.pod == victim.pod)?;
    let id = other
        .container
        .filter(|id| Some(id) != victim.container.as_ref());
    id.map(ContainerLabel::Id)
}

/// Returns the owner of the limiting cgroup. A cgroup that was removed is not that of all pods,
/// which outlives every pod.
fn limit_owner(
    path: Option<&str>,
    kill: &RecordedKill,
    limit: &MemcgLimit,
    pods: &str,
) -> LimitOwner {
    match path {
        Some(path) => owner_by_path(path, pods),
        None if limit.limiting == kill.cgroup => LimitOwner::Container,
        None => LimitOwner::Pod,
    }
}

fn owner_by_path(path: &str, pods: &str) -> LimitOwner {
    match classify(path, pods) {
        CgroupKind::Pods => LimitOwner::PodsCgroup,
        CgroupKind::Pod { .. } => LimitOwner::Pod,
        CgroupKind::Container { .. } => LimitOwner::Container,
        CgroupKind::Other => LimitOwner::Other,
    }
}

/// Returns the remains of the path of a removed cgroup: `…/grandparent/parent/leaf`.
fn last_names(kill: &RecordedKill) -> String {
    let names = kill.names.iter().rev().filter(|name| !name.is_empty());
    names.fold("…".to_owned(), |path, name| {
        format!("{path}/{}", escape(name))
    })
}
