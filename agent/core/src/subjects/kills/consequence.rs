//! Derives the effect of a kill on the container of the victim.
//!
//! The main process of a container has pid 1 in the innermost of its pid namespaces, and its parent
//! is not in the container; the first process of a sandbox inside the container has a parent there.
//! If a container shares the pid namespace of its pod, its main process cannot be distinguished
//! from the others, and nothing is claimed; with that of the host, only about a process whose
//! parent is in the container. The same applies to a service of systemd.

use crate::pods::is_within;
use crate::pods::{CgroupKind, Owner, PodId, classify, container_path};
use crate::reading::oom::Consequence;
use crate::record::RecordedKill;
use crate::units::Pid;

/// The paths of the cgroups of a record. `None`: it has no such cgroup, or the cgroup was removed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paths<'a> {
    pub victim: Option<&'a str>,
    /// The path of [`NamespacePid::reference`](crate::record::NamespacePid::reference).
    pub reference: Option<&'a str>,
    /// The path of [`RecordedKill::group`].
    pub group: Option<&'a str>,
}

/// Returns `None` if the effect is unknown, or the victim is in no container.
pub(super) fn consequence(
    kill: &RecordedKill,
    paths: Paths<'_>,
    pods: &str,
) -> Option<Consequence> {
    let victim = paths.victim?;
    let Some(container) = container_path(victim, pods) else {
        return is_below_service(kill, victim, paths.reference?, pods)
            .then_some(Consequence::ChildProcess);
    };
    if kill.group.is_some() && is_within(container, paths.group?) {
        return Some(Consequence::WholeContainer);
    }
    let namespace = kill.namespace?;
    let reference = paths.reference?;
    if is_within(reference, container) {
        return Some(Consequence::ChildProcess);
    }
    let in_other_container =
        identified(reference, pods).is_some_and(|pod| Some(pod) == identified(container, pods));
    (namespace.pid == Pid(1) && !in_other_container).then_some(Consequence::MainProcess)
}

/// Returns true if the victim is in a service of systemd, but not its main process, whose parent is
/// the service manager.
fn is_below_service(kill: &RecordedKill, victim: &str, reference: &str, pods: &str) -> bool {
    let owner = Owner::from_path(victim, pods);
    let is_service = matches!(&owner, Owner::Unit { name, .. } if name.ends_with(".service"));
    kill.group.is_none() && is_service && owner == Owner::from_path(reference, pods)
}

/// Returns true if a group that is killed together is all of the victim's container. A group below
/// the container is a part of it.
pub(super) fn is_whole_container(victim: &str, group: &str, pods: &str) -> bool {
    container_path(victim, pods).is_some_and(|container| is_within(container, group))
}

/// Returns the pod of a container with an id. A cgroup without an id is that of a runtime's
/// monitor, which is the parent of the main process.
fn identified(path: &str, pods: &str) -> Option<PodId> {
    match classify(path, pods) {
        CgroupKind::Container {
            pod,
            container: Some(_),
        } => Some(pod),
        CgroupKind::Container {
            container: None, ..
        }
        | CgroupKind::Pod { .. }
        | CgroupKind::Pods
        | CgroupKind::Other => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{kill, limit};
    use super::*;
    use crate::reading::oom::ScopeSource;
    use crate::record::NamespacePid;
    use crate::units::CgroupId;

    const PODS: &str = "/kubepods";
    const POD: &str = "/kubepods/burstable/pod6d8a4d2e-1f4b-4a62-9b0e-0f7c0f5d8a11";

    /// The victim's cgroup, its pid in its namespace and the cgroup of reference, the group, and
    /// the effect.
    type Row<'a> = (
        &'a str,
        Option<(u32, Option<&'a str>)>,
        Option<Option<&'a str>>,
        Option<Consequence>,
    );

    #[test]
    fn the_consequence_follows_from_the_position_of_the_victim_and_from_the_group() {
        use Consequence::{ChildProcess, MainProcess, WholeContainer};
        let [web, pause] = ["3b", "00"].map(|id| format!("{POD}/{}", id.repeat(32)));
        let deeper = format!("{web}/system.slice/db.service");
        let monitor = format!("{POD}/crio-conmon-{}.scope", "3b".repeat(32));
        let other_pod = format!("/kubepods/podaa/{}", "3b".repeat(32));
        let (shim, service) = (
            "/system.slice/containerd.service",
            "/system.slice/cron.service",
        );
        let forked = "/user.slice/user-7.slice/user@7.service/app.slice/a.service";
        let (session, init) = ("/user.slice/user-7.slice/session-3.scope", "/init.scope");
        #[rustfmt::skip]
        let rows: [Row<'_>; 28] = [
            (&web, Some((1, Some(shim))), None, Some(MainProcess)),
            (&web, Some((1, Some(&monitor))), None, Some(MainProcess)),
            (&deeper, Some((1, Some(shim))), None, Some(MainProcess)),
            // kind: the node is a container.
            (&web, Some((1, Some("/"))), None, Some(MainProcess)),
            (&web, Some((1, Some(&other_pod))), None, Some(MainProcess)),
            (&web, Some((17, Some(&web))), None, Some(ChildProcess)),
            (&deeper, Some((17, Some(&web))), None, Some(ChildProcess)),
            // The first process of a sandbox in the container.
            (&web, Some((1, Some(&web))), None, Some(ChildProcess)),
            (&web, Some((1, Some(&deeper))), None, Some(ChildProcess)),
            // The pid namespace is that of the pod, of the host, or unknown.
            (&web, Some((17, Some(&pause))), None, None),
            (&web, Some((1, Some(&pause))), None, None),
            (&web, None, None, None),
            (&web, Some((17, Some(shim))), None, None),
            // In the pid namespace of the host, the cgroup of reference is that of the parent.
            (service, Some((17, Some(service))), None, Some(ChildProcess)),
            (
                service,
                Some((17, Some("/system.slice/cron.service/below"))),
                None,
                Some(ChildProcess),
            ),
            (forked, Some((17, Some(forked))), None, Some(ChildProcess)),
            // Its main process, or one whose parent has ended.
            (service, Some((17, Some(init))), None, None),
            (
                forked,
                Some((
                    17,
                    Some("/user.slice/user-7.slice/user@7.service/init.scope"),
                )),
                None,
                None,
            ),
            (service, Some((17, Some(shim))), None, None),
            (service, Some((17, None)), None, None),
            (
                service,
                Some((17, Some(service))),
                Some(Some(service)),
                None,
            ),
            (session, Some((17, Some(session))), None, None),
            (&web, Some((1, None)), None, None),
            // The groups are the container, its pod, a part of it, and a removed cgroup.
            (&web, None, Some(Some(&web)), Some(WholeContainer)),
            (&deeper, None, Some(Some(POD)), Some(WholeContainer)),
            (
                &deeper,
                Some((17, Some(&web))),
                Some(Some(&deeper)),
                Some(ChildProcess),
            ),
            (&web, Some((1, Some(shim))), Some(None), None),
            (service, Some((1, Some(shim))), None, None),
        ];
        for (victim, namespace, group, expected) in rows {
            let reference = CgroupId(8);
            let kill = RecordedKill {
                namespace: namespace.map(|(pid, _)| NamespacePid {
                    pid: Pid(pid),
                    reference,
                }),
                group: group.map(|_| CgroupId(9)),
                ..kill(limit(CgroupId(3)), ScopeSource::Exact)
            };
            let paths = Paths {
                victim: Some(victim),
                reference: namespace.and_then(|(_, path)| path),
                group: group.flatten(),
            };
            let row = format!("{victim} {namespace:?} {group:?}");
            assert_eq!(consequence(&kill, paths, PODS), expected, "{row}");
            let removed = Paths {
                victim: None,
                ..paths
            };
            assert_eq!(consequence(&kill, removed, PODS), None, "{row}");
        }
    }
}
