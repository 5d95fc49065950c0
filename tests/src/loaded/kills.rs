//! Checks victim, cgroup and limit of kills. Each function provokes, checks, and panics if the
//! kernel's record is wrong; it returns a line for the log.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nodepulse_core::record::{
    MemcgLimit, OomConstraint, OomScope, Record, RecordedKill, ScopeSource, Via,
};
use nodepulse_core::units::{CgroupId, Pid};
use nodepulse_linux::kernel::{KillHook, Wanted};
use nodepulse_linux::os::cgroup_handle::CgroupMount;

use super::Loaded;

use crate::provoke::Provoke;
use crate::provoke::cgroup::CgroupTree;

mod limit;
mod storm;

pub use limit::limit;
pub use storm::storm;

const MIB: u64 = 1 << 20;

/// Selects only kills, by this hook or, if it is not available, a later one.
pub const fn only(rung: KillHook) -> Wanted {
    Wanted {
        kills: Some(rung),
        ..Wanted::NOTHING
    }
}

/// Kills in a container below a pod with a limit.
pub async fn nested(loaded: &mut Loaded, provoke: &Provoke) -> io::Result<String> {
    let mut tree = tree("nested")?;
    tree.add("pod/container")?;
    tree.limit("pod", 32 * MIB)?;

    let (pid, status) = provoke.eat_in(&tree.dir("pod/container"), 256 * MIB)?;
    assert!(!status.success(), "it was killed");
    let kill = loaded.kill_of(pid).await;

    assert_eq!((kill.victim, kill.trigger), (Pid(pid), Pid(pid)));
    assert_eq!((kill.comm.as_slice(), kill.uid), (&b"provoke"[..], 0));
    assert_eq!(kill.trigger_comm, b"provoke");
    assert_eq!(kill.trigger_cgroup, Some(kill.cgroup));
    assert_eq!(kill.names[0], b"container");
    assert_eq!(kill.names[1], b"pod");
    let OomScope::Memcg(MemcgLimit {
        limiting,
        usage_pages,
        max_pages,
        ..
    }) = kill.scope
    else {
        panic!("scope is {:?}", kill.scope);
    };
    assert_eq!(max_pages * page()?, 32 * MIB);
    assert!(usage_pages <= max_pages, "{usage_pages} of {max_pages}");
    let anon = kill.anon_pages * page()?;
    let sizes = anon > 16 * MIB || kill.via == Via::Exit;
    assert!(sizes, "{anon} bytes of anonymous memory");

    let below = tree.path("");
    let top = tree.dir("");
    let top = top.to_string_lossy();
    let mount = top.trim_end_matches('/').strip_suffix(&below);
    let mount = CgroupMount::open(Path::new(mount.expect("the path ends the directory")))?;
    assert_eq!(mount.path(limiting)?, tree.path("pod"));
    assert_eq!(mount.path(kill.cgroup)?, tree.path("pod/container"));
    drop(tree);
    assert!(
        mount.path(limiting).is_err(),
        "a removed cgroup has no path"
    );
    assert_source(loaded, &kill, OomConstraint::Memcg);
    triggered_by_another(loaded, provoke).await?;
    let positions = positions(loaded, provoke).await?;
    Ok(format!(
        "{:?}, {:?}, {positions}: usage {usage_pages} of {max_pages} pages, {} MiB anonymous",
        kill.via,
        kill.source,
        anon / MIB
    ))
}

/// Causes a nested kill, reported by this hook.
pub async fn by(loaded: &mut Loaded, provoke: &Provoke, via: Via) -> io::Result<String> {
    let summary = nested(loaded, provoke).await?;
    assert!(summary.starts_with(&format!("{via:?}, ")), "{summary}");
    Ok(summary)
}

/// Checks that a kill has the kernel's scope if the pair is attached, and is otherwise marked as
/// inferred.
fn assert_source(loaded: &Loaded, kill: &RecordedKill, constraint: OomConstraint) {
    let scope = (kill.source, kill.constraint, kill.order.is_some());
    let expected = if loaded.kernel.support().exact_scope() {
        (ScopeSource::Exact, Some(constraint), true)
    } else {
        (ScopeSource::Inferred, None, false)
    };
    assert_eq!(scope, expected);
}

/// Removes the cgroup before it is read: the names are in the record.
pub async fn removed_at_once(loaded: &mut Loaded, provoke: &Provoke) -> io::Result<String> {
    let mut tree = tree("gone")?;
    tree.add("container")?;
    tree.limit("container", 16 * MIB)?;
    let (pid, _) = provoke.eat_in(&tree.dir("container"), 128 * MIB)?;
    let top = tree.path("");
    drop(tree);
    let kill = loaded.kill_of(pid).await;
    assert_eq!(kill.names[0], b"container");
    assert_eq!(kill.names[1], top.trim_start_matches('/').as_bytes());
    Ok(format!("named {top}/container"))
}

/// Kills all processes of a cgroup with `memory.oom.group`, each of which has a record. Needs
/// cgroup v2.
pub async fn group(loaded: &mut Loaded, provoke: &Provoke) -> io::Result<String> {
    let mut tree = tree("group")?;
    tree.add("container")?;
    tree.limit("container", 32 * MIB)?;
    tree.kill_together("container")?;
    let dir = tree.dir("container");
    let bystanders = [provoke.wait_in(&dir)?, provoke.wait_in(&dir)?];
    let (eater, _) = provoke.eat_in(&dir, 256 * MIB)?;

    let mut left: BTreeSet<u32> = bystanders.iter().map(|b| b.id()).collect();
    left.insert(eater);
    let expected = left.len();
    loaded
        .next("kill of each process in the group", |event| {
            if let Record::OomKill(kill) = event {
                assert_eq!(kill.names[0], b"container");
                assert_eq!(kill.group, Some(kill.cgroup));
                assert!(left.remove(&kill.victim.0), "{kill:?} is not of the group");
            }
            left.is_empty().then_some(())
        })
        .await;
    Ok(format!("{expected} records"))
}

/// Reaches the limit of the pod in one container, so that a process of another is killed.
async fn triggered_by_another(loaded: &mut Loaded, provoke: &Provoke) -> io::Result<()> {
    let mut tree = tree("another")?;
    for container in ["pod/web", "pod/proxy"] {
        tree.add(container)?;
    }
    tree.limit("pod", 48 * MIB)?;
    let (web, proxy) = (tree.dir("pod/web"), tree.dir("pod/proxy"));
    let victim = provoke.allocate_with_score(&web, 1000, 24 * MIB)?;
    let (trigger, _) = provoke.eat_in(&proxy, 32 * MIB)?;
    let kill = loaded.kill_of(victim.id()).await;
    assert_eq!(kill.trigger, Pid(trigger));
    let cgroups = [web.metadata()?.ino(), proxy.metadata()?.ino()].map(CgroupId);
    assert_eq!(
        (kill.cgroup, kill.trigger_cgroup),
        (cgroups[0], Some(cgroups[1]))
    );
    Ok(())
}

/// The name, the words around the process, whether it is the first of its namespace, and the cgroup
/// that it depends on.
type Position<'a> = (&'a str, &'a [&'a OsStr], Option<bool>, Option<CgroupId>);

/// Checks the position of the victim in its pid namespace, for each way in which a container can be
/// set up.
async fn positions(loaded: &mut Loaded, provoke: &Provoke) -> io::Result<String> {
    let mut tree = tree("positions")?;
    for container in ["container", "pause"] {
        tree.add(container)?;
    }
    tree.limit("container", 32 * MIB)?;
    let (container, pause) = (tree.dir("container"), tree.dir("pause"));
    let (container_id, pause_id) = (
        CgroupId(container.metadata()?.ino()),
        pause.metadata()?.ino(),
    );
    let [container, pause] = [container.as_os_str(), pause.as_os_str()];
    let bytes = (256 * MIB).to_string();
    let [namespace, parent, users, eat] = ["namespace", "parent", "users", "eat"].map(OsStr::new);
    let eat = [eat, container, OsStr::new(&bytes)];
    let inside = Some(container_id);
    let rows: [Position<'_>; 6] = [
        ("the main process", &[namespace], Some(true), None),
        (
            "a child",
            &[namespace, parent, container],
            Some(false),
            inside,
        ),
        (
            "a sandbox",
            &[namespace, parent, container, namespace],
            Some(true),
            inside,
        ),
        (
            "shared",
            &[namespace, parent, pause],
            Some(false),
            Some(CgroupId(pause_id)),
        ),
        ("of the host", &[parent, container], Some(false), inside),
        ("another user", &[users], Some(false), None),
    ];
    for (what, before, is_first, reference) in rows {
        provoke.run(&[before, &eat].concat())?;
        let is = |record: &Record| match record {
            Record::OomKill(kill) if kill.cgroup == container_id => Some((**kill).clone()),
            _ => None,
        };
        let kill = loaded.next(what, is).await;
        let at = kill.namespace;
        assert_eq!(at.map(|at| at.pid == Pid(1)), is_first, "{what}: {at:?}");
        if reference.is_some() {
            assert_eq!(at.map(|at| at.reference), reference, "{what}");
        } else if let Some(at) = at {
            assert!(
                ![container_id.0, pause_id, 0].contains(&at.reference.0),
                "{what}"
            );
        }
        assert_eq!(kill.group, None, "{what}");
        let user = if before.contains(&users) { 1000 } else { 0 };
        assert_eq!((kill.uid, kill.uid_in_namespace), (0, Some(user)), "{what}");
    }
    Ok(format!("{} positions", rows.len()))
}

/// Kills because the node is short of memory; the victim's limit is far and not the cause. Uses all
/// memory of this machine: for a virtual one only.
pub async fn global(loaded: &mut Loaded, provoke: &Provoke) -> io::Result<String> {
    fs::write("/proc/sys/vm/overcommit_memory", "1")?;
    let mut tree = tree("global")?;
    tree.add("pod/container")?;
    tree.limit("pod", 1 << 40)?;
    let (pid, status) = provoke.eat_in(&tree.dir("pod/container"), 1 << 36)?;
    assert!(!status.success(), "it was killed");
    let kill: RecordedKill = loaded.kill_of(pid).await;
    assert_eq!(kill.scope, OomScope::Global);
    assert_eq!((kill.victim, kill.trigger), (Pid(pid), Pid(pid)));
    assert_eq!(kill.names[0], b"container");
    assert_source(loaded, &kill, OomConstraint::None);
    let mib = kill.anon_pages * page()? / MIB;
    Ok(format!("at {mib} MiB, source {:?}", kill.source))
}

/// Kills because the memory node that a cpuset allows is short, and the machine as a whole is not.
/// Needs a second one and uses all of its memory: for a virtual machine only.
pub async fn cpuset(loaded: &mut Loaded, provoke: &Provoke) -> io::Result<String> {
    fs::write("/proc/sys/vm/overcommit_memory", "1")?;
    let mut tree = tree("cpuset")?;
    tree.add("container")?;
    tree.memory_node("container", 1)?;
    let (pid, status) = provoke.eat_in(&tree.dir("container"), 1 << 36)?;
    assert!(!status.success(), "it was killed");
    let kill = loaded.kill_of(pid).await;
    assert_eq!(kill.scope, OomScope::Global, "no memory cgroup is short");
    assert_source(loaded, &kill, OomConstraint::Cpuset);
    let mib = kill.anon_pages * page()? / MIB;
    Ok(format!("at {mib} MiB, source {:?}", kill.source))
}

fn tree(what: &str) -> io::Result<CgroupTree> {
    CgroupTree::new(&format!("nodepulse-{what}-{}", std::process::id()))
}

fn page() -> io::Result<u64> {
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)?;
    let size = size.and_then(|size| u64::try_from(size).ok());
    size.ok_or_else(|| io::Error::other("no page size"))
}
