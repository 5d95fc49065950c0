//! Kills: who, in which cgroup, against which limit. Each function provokes, looks, and panics
//! where the kernel's word is not what it should be; what it gives back is worth a line in a log.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use nodepulse::event::{Event, OomKill, OomScope};
use nodepulse::kernel::handle::CgroupMount;
use nodepulse::units::Pid;

use super::Loaded;
use crate::provoke::Provoke;
use crate::provoke::cgroup::CgroupTree;

const MIB: u64 = 1 << 20;

/// A limit on the pod, a kill in the container below it.
pub async fn nested(loaded: &mut Loaded, provoke: &Provoke) -> io::Result<String> {
    let mut tree = tree("nested")?;
    tree.add("pod/container")?;
    tree.limit("pod", 32 * MIB)?;

    let (pid, status) = provoke.eat_in(&tree.dir("pod/container"), 256 * MIB)?;
    assert!(!status.success(), "it was killed");
    let kill = loaded.kill_of(pid).await;

    assert_eq!(kill.comm, b"provoke");
    assert_eq!(kill.names[0], b"container");
    assert_eq!(kill.names[1], b"pod");
    let OomScope::Memcg {
        limiting,
        usage_pages,
        max_pages,
    } = kill.scope
    else {
        panic!("scope is {:?}", kill.scope);
    };
    assert_eq!(max_pages * page()?, 32 * MIB);
    assert!(usage_pages <= max_pages, "{usage_pages} of {max_pages}");
    let anon = kill.anon_pages * page()?;
    assert!(anon > 16 * MIB, "{anon} bytes of anonymous memory");

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
    Ok(format!(
        "usage {usage_pages} of {max_pages} pages, {} MiB anonymous",
        anon / MIB
    ))
}

/// The cgroup is gone before anyone looks: the names are in the record.
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

/// `memory.oom.group`: one kill takes all processes of the cgroup, and each has its record. Needs
/// cgroup v2.
pub async fn group(loaded: &mut Loaded, provoke: &Provoke) -> io::Result<String> {
    let mut tree = tree("group")?;
    tree.add("container")?;
    tree.limit("container", 32 * MIB)?;
    tree.kill_together("container")?;
    let dir = tree.dir("container");
    let bystanders = [provoke.stay_in(&dir)?, provoke.stay_in(&dir)?];
    let (eater, _) = provoke.eat_in(&dir, 256 * MIB)?;

    let mut left: BTreeSet<u32> = bystanders.iter().map(|b| b.id()).collect();
    left.insert(eater);
    let expected = left.len();
    loaded
        .next("kill of each process in the group", |event| {
            if let Event::OomKill(kill) = event {
                assert_eq!(kill.names[0], b"container");
                assert!(left.remove(&kill.victim.0), "{kill:?} is not of the group");
            }
            left.is_empty().then_some(())
        })
        .await;
    Ok(format!("{expected} records"))
}

/// The node itself is short of memory; the victim's own limit, which is far, is not to blame.
/// Takes all memory of this machine: for a virtual one only.
pub async fn global(loaded: &mut Loaded, provoke: &Provoke) -> io::Result<String> {
    fs::write("/proc/sys/vm/overcommit_memory", "1")?;
    let mut tree = tree("global")?;
    tree.add("pod/container")?;
    tree.limit("pod", 1 << 40)?;
    let (pid, status) = provoke.eat_in(&tree.dir("pod/container"), 1 << 36)?;
    assert!(!status.success(), "it was killed");
    let kill: OomKill = loaded.kill_of(pid).await;
    assert_eq!(kill.scope, OomScope::Global);
    assert_eq!((kill.victim, kill.trigger), (Pid(pid), Pid(pid)));
    assert_eq!(kill.names[0], b"container");
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
