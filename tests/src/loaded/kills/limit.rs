//! Checks which cgroup was at its limit, if several above the victim are close to theirs, against
//! the kernel log.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

use nodepulse_core::record::kmsg::KmsgParser;
use nodepulse_core::record::{LoggedKill, MemcgLimit, OomScope, RecordedKill};
use nodepulse_core::units::CgroupId;
use nodepulse_io::clock::Clock;
use nodepulse_linux::os::cgroup_handle::CgroupMount;
use nodepulse_linux::os::kmsg;
use tokio::time::{interval, timeout};

use super::{MIB, tree};
use crate::loaded::Loaded;
use crate::provoke::Provoke;
use crate::provoke::cgroup::CgroupTree;

/// Number of kills for each shape.
const KILLS: usize = 2;
/// The kernel logs the limit of at most ten kills in 5 s, for all processes together.
/// <https://github.com/torvalds/linux/blob/v6.12/mm/oom_kill.c>
const ATTEMPTS: usize = 12;
/// Time limit of one line of the log.
const LOGGED: Duration = Duration::from_secs(1);

/// Limits of a pod and of the container in it, in KiB, and whether another container of the pod
/// runs too.
const SHAPES: [(&str, u64, u64, bool); 4] = [
    (
        "the same limit, nothing else in the pod",
        20_480,
        20_480,
        false,
    ),
    ("the same limit, with another process", 20_480, 20_480, true),
    ("the pod has a little less", 19_456, 20_480, false),
    ("the pod has a little more", 20_992, 20_480, false),
];

/// Checks that each kill names the limit in the kernel log, or two limits of which it is one.
pub async fn limit(loaded: &mut Loaded, provoke: &Provoke) -> io::Result<String> {
    let mut log = kmsg::open(&Path::new("/").join(kmsg::PATH))?;
    let (mut at_pod, mut ambiguous) = (0, 0);
    for (n, (shape, pod, container, with_other)) in SHAPES.into_iter().enumerate() {
        let mut tree = tree(&format!("limit-{n}"))?;
        tree.add("pod/container")?;
        tree.add("pod/pause")?;
        tree.limit("pod", pod * 1024)?;
        tree.limit("pod/container", container * 1024)?;
        let pause = with_other.then(|| provoke.wait_in(&tree.dir("pod/pause")));
        let _pause = pause.transpose()?;
        let mount = mount(&tree)?;
        for _ in 0..KILLS {
            let (kill, logged) = logged_kill(loaded, provoke, &tree, &mut log).await?;
            let limits = limits(&kill, &mount);
            assert!(
                limits.contains(&logged),
                "{shape}: the kernel logged {logged}, the record has {limits:?}: {kill:?}"
            );
            at_pod += u32::from(logged == tree.path("pod"));
            ambiguous += u32::from(limits.len() > 1);
        }
    }
    let kills = SHAPES.len() * KILLS;
    assert!(at_pod > 0, "the kernel named a pod's limit at least once");
    Ok(format!(
        "{kills} kills as in the kernel's log, {at_pod} at a pod's limit, {ambiguous} \
         ambiguous"
    ))
}

/// Repeats a kill until the kernel logs its limit.
async fn logged_kill(
    loaded: &mut Loaded,
    provoke: &Provoke,
    tree: &CgroupTree,
    log: &mut File,
) -> io::Result<(RecordedKill, String)> {
    for _ in 0..ATTEMPTS {
        let (pid, status) = provoke.eat_in(&tree.dir("pod/container"), 64 * MIB)?;
        assert!(!status.success(), "it was killed");
        let kill = loaded.kill_of(pid).await;
        if let Ok(logged) = timeout(LOGGED, logged(log, pid)).await {
            return Ok((kill, logged));
        }
    }
    panic!("the kernel logged the limit of none of {ATTEMPTS} kills");
}

fn mount(tree: &CgroupTree) -> io::Result<CgroupMount> {
    let (below, top) = (tree.path(""), tree.dir(""));
    let top = top.to_string_lossy();
    let mount = top.trim_end_matches('/').strip_suffix(&below);
    CgroupMount::open(Path::new(mount.expect("the path ends the directory")))
}

/// Returns the paths of the cgroups that may have been at their limit, by the record.
fn limits(kill: &RecordedKill, mount: &CgroupMount) -> Vec<String> {
    let OomScope::Memcg(MemcgLimit { limiting, tied, .. }) = kill.scope else {
        panic!("scope is {:?}", kill.scope);
    };
    let path = |id: CgroupId| mount.path(id).expect("it is there");
    [Some(limiting), tied]
        .into_iter()
        .flatten()
        .map(path)
        .collect()
}

/// Waits until the kernel has logged the kill of `pid`, and returns its `oom_memcg`.
async fn logged(log: &mut File, pid: u32) -> String {
    let mut lines = KmsgParser::default();
    let mut reads = interval(Duration::from_millis(5));
    loop {
        reads.tick().await;
        let mut buf = vec![0; 8192];
        while let Ok(len) = log.read(&mut buf) {
            lines.record(&buf[..len]);
        }
        let kills = lines.take(Clock::kernel().now().boot);
        let is = |kill: &LoggedKill| kill.victim.0 == pid;
        let scope = kills.into_iter().find(is).map(|kill| kill.scope);
        if let Some(OomScope::Memcg(Some(path))) = scope {
            return String::from_utf8_lossy(&path).into_owned();
        }
    }
}
