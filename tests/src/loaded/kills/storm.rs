//! Checks that none of many kills, several at a time, is lost, doubled or mixed up with another.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::thread;

use nodepulse_core::record::{MemcgLimit, OomScope, Record, RecordedKill};
use nodepulse_core::units::CgroupId;

use super::{MIB, page, tree};
use crate::loaded::Loaded;
use crate::provoke::cgroup::CgroupTree;
use crate::provoke::{Crowd, Provoke};

/// Number of kills before the ring is read again; it has room for about 130.
const AT_ONCE: usize = 20;
const LIMIT: u64 = 8 * MIB;

/// The expected record of one victim.
#[derive(Debug, PartialEq, Eq)]
struct Expected {
    leaf: CgroupId,
    name: Vec<u8>,
    limiting: CgroupId,
    max_pages: u64,
}

/// The cgroup whose limit is reached.
#[derive(Clone, Copy)]
enum Kind {
    Container,
    /// The pod, one level above.
    Pod,
    /// Three levels above.
    Deep,
    /// The container, whose processes are all killed together. Needs cgroup v2.
    Group,
}

/// Provokes `count` kills in cgroups of four shapes, each removed as soon as its victim has ended.
pub async fn storm(loaded: &mut Loaded, provoke: &Provoke, count: usize) -> io::Result<String> {
    const KINDS: [Kind; 4] = [Kind::Container, Kind::Pod, Kind::Deep, Kind::Group];
    let (mut provoked, mut together) = (0, 0);
    let mut records = BTreeSet::new();
    let kinds: Vec<Kind> = KINDS.into_iter().cycle().take(count).collect();
    for (batch, kinds) in kinds.chunks(AT_ONCE).enumerate() {
        let mut expected = BTreeMap::new();
        for (victims, group) in at_once(provoke, batch, kinds)? {
            together += usize::from(group);
            expected.extend(victims);
        }
        provoked += expected.len();
        await_records(loaded, expected, &mut records).await;
    }
    assert_eq!(records.len(), provoked);
    let groups = match together {
        0 => "groups skipped: needs cgroup v2".to_owned(),
        n => format!("{n} groups of two"),
    };
    Ok(format!(
        "{provoked} victims ({groups}): {} records, all right",
        records.len()
    ))
}

type Victims = BTreeMap<u32, Expected>;

fn at_once(provoke: &Provoke, batch: usize, kinds: &[Kind]) -> io::Result<Vec<(Victims, bool)>> {
    thread::scope(|scope| {
        let running: Vec<_> = kinds
            .iter()
            .enumerate()
            .map(|(n, kind)| {
                let name = format!("storm-{batch}-{n}");
                scope.spawn(move || one(provoke, &name, *kind))
            })
            .collect();
        let done = running.into_iter().map(|one| one.join());
        done.map(|one| one.expect("the thread does not panic"))
            .collect()
    })
}

/// Provokes one kill, or that of a group. Returns the victims, and whether they were a group. The
/// cgroups are removed afterwards.
fn one(provoke: &Provoke, name: &str, kind: Kind) -> io::Result<(Victims, bool)> {
    let mut tree = tree(name)?;
    let (leaf, limited) = match kind {
        Kind::Container | Kind::Group => ("pod/container", "pod/container"),
        Kind::Pod => ("pod/container", "pod"),
        Kind::Deep => ("pod/container/init/inner", "pod"),
    };
    tree.add(leaf)?;
    tree.limit(limited, LIMIT)?;
    let dir = tree.dir(leaf);
    let group = matches!(kind, Kind::Group) && tree.kill_together(leaf).is_ok();
    let bystander: Option<Crowd> = group.then(|| provoke.wait_in(&dir)).transpose()?;

    let (eater, status) = provoke.eat_in(&dir, 16 * LIMIT)?;
    assert!(!status.success(), "{name}: it was killed");
    let victims = [Some(eater), bystander.as_ref().map(Crowd::id)];
    let victims = victims.into_iter().flatten();
    let victims = victims
        .map(|pid| Ok((pid, expected(&tree, leaf, limited)?)))
        .collect::<io::Result<_>>()?;
    drop(bystander);
    Ok((victims, group))
}

fn expected(tree: &CgroupTree, leaf: &str, limited: &str) -> io::Result<Expected> {
    // The id of a cgroup is the inode of its directory.
    let id = |below| Ok::<_, io::Error>(CgroupId(tree.dir(below).metadata()?.ino()));
    Ok(Expected {
        leaf: id(leaf)?,
        name: leaf.rsplit('/').next().unwrap_or(leaf).into(),
        limiting: id(limited)?,
        max_pages: LIMIT / page()?,
    })
}

/// Checks that each of `left` has one record, with the expected contents. Other kills are ignored.
async fn await_records(loaded: &mut Loaded, mut left: Victims, records: &mut BTreeSet<u32>) {
    loaded
        .next("record of each kill", |event| {
            if let Record::OomKill(kill) = event {
                assert!(
                    !records.contains(&kill.victim.0),
                    "reported twice: {kill:?}"
                );
                if let Some(expected) = left.remove(&kill.victim.0) {
                    records.insert(kill.victim.0);
                    assert_eq!(contents(kill), Some(expected), "{kill:?}");
                }
            }
            left.is_empty().then_some(())
        })
        .await;
}

fn contents(kill: &RecordedKill) -> Option<Expected> {
    let OomScope::Memcg(MemcgLimit {
        limiting,
        max_pages,
        ..
    }) = kill.scope
    else {
        return None;
    };
    Some(Expected {
        leaf: kill.cgroup,
        name: kill.names[0].clone(),
        limiting,
        max_pages,
    })
}
