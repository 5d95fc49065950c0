//! Watches cgroups that are created, removed or reach a limit: inotify on their directories and
//! event files.
//!
//! kernfs notifies of created and removed directories, and of changes of `pids.events` through
//! `kernfs_notify`; version 1 since Linux 6.11 does not notify of the latter (tested on 6.18).
//! Removing a directory does not remove its watch; the next read does.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use nodepulse_core::record::{Received, Record};
use nodepulse_io::clock::Clock;
use nodepulse_io::fd;
use tokio::io::Interest;
use tokio::sync::mpsc;
use tracing::warn;

/// Delay after a change, so that a thousand new cgroups per second cause one wake-up per second.
const QUIET: Duration = Duration::from_secs(1);
/// Maximum number of watches: eight per pod on a node of 500 pods. Each pins an inode of 1 KiB.
/// Upper levels come first, so that many cgroups of one tenant cannot exclude other pods.
const MOST_WATCHES: usize = 4096;
/// Maximum reads per drain. The kernel queues 16,384 events; one read returns at least 15.
const MOST_READS: usize = 2048;

#[derive(Debug, Clone)]
pub struct WatchedTree {
    /// The top directory, which may not exist yet.
    pub top: PathBuf,
    /// Number of levels below the top that are watched.
    pub depth: usize,
    /// The file that the kernel changes when a limit is reached: the first of these that exists.
    pub files: &'static [&'static str],
}

/// Sends a record after changes in `trees`, at most one per second, until the receiver is dropped.
/// The first record is sent once the watches exist, so that no change is missed.
pub async fn read(
    trees: Vec<WatchedTree>,
    clock: Clock,
    records: mpsc::Sender<Received>,
) -> io::Result<()> {
    let mut inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    let mut watches = Watches::with_room(MOST_WATCHES);
    loop {
        watches.renew(&inotify, &trees);
        let at = clock.now().boot;
        let record = Ok(Record::CgroupsChanged { at });
        if records.send(Received { read: at, record }).await.is_err() {
            return Ok(());
        }
        // The inotify descriptor is not registered with the runtime meanwhile, because that would
        // wake up for each change.
        tokio::time::sleep(QUIET).await;
        inotify = changed(inotify).await?;
    }
}

async fn changed(inotify: Inotify) -> io::Result<Inotify> {
    let mut watch = fd::watch(inotify, Interest::READABLE)?;
    loop {
        let mut ready = watch.readable_mut().await?;
        let drained = drain(&ready.get_inner().0)?;
        if drained != Changes::More {
            ready.clear_ready();
        }
        if drained != Changes::None {
            return Ok(watch.into_inner().0);
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Changes {
    None,
    Some,
    /// The queue is not empty yet.
    More,
}

/// Reads all queued events. The removal of a watch is not a change.
fn drain(inotify: &Inotify) -> io::Result<Changes> {
    let mut drained = Changes::None;
    for _ in 0..MOST_READS {
        match inotify.read_events() {
            Ok(events) => {
                let is_change = |mask: AddWatchFlags| !mask.contains(AddWatchFlags::IN_IGNORED);
                if events.iter().any(|event| is_change(event.mask)) {
                    drained = Changes::Some;
                }
            }
            Err(Errno::EAGAIN) => return Ok(drained),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(Changes::More)
}

#[derive(Debug)]
struct Watches {
    room: usize,
    known: HashMap<PathBuf, WatchedDirectory>,
    round: u64,
    warned: bool,
}

#[derive(Debug)]
struct WatchedDirectory {
    descriptor: WatchDescriptor,
    /// Inode of the directory, because a path can be reused.
    directory: u64,
    round: u64,
}

impl Watches {
    fn with_room(room: usize) -> Self {
        Self {
            room,
            known: HashMap::new(),
            round: 0,
            warned: false,
        }
    }

    /// Adds watches for new cgroups, and removes those of removed cgroups.
    fn renew(&mut self, inotify: &Inotify, trees: &[WatchedTree]) {
        self.round += 1;
        for tree in trees {
            self.tree(inotify, tree);
        }
        let round = self.round;
        self.known.retain(|_, watch| {
            let exists = watch.round == round;
            if !exists {
                // EINVAL: the kernel has removed it already.
                let _removed = inotify.rm_watch(watch.descriptor);
            }
            exists
        });
    }

    /// Watches a directory before listing it, so that no new entry is missed.
    fn tree(&mut self, inotify: &Inotify, tree: &WatchedTree) {
        const DIRECTORY: AddWatchFlags = AddWatchFlags::IN_CREATE
            .union(AddWatchFlags::IN_DELETE)
            .union(AddWatchFlags::IN_ONLYDIR);
        // The nearest existing ancestor is watched, to detect the creation of the top.
        let above = tree.top.ancestors().skip(1).find(|dir| dir.is_dir());
        if let Some((dir, inode)) = above.and_then(|dir| Some((dir, inode(dir)?))) {
            self.watch(inotify, dir, inode, DIRECTORY);
        }
        let mut waiting = VecDeque::from([(tree.top.clone(), 0)]);
        while let Some((dir, depth)) = waiting.pop_front() {
            let Some(inode) = inode(&dir) else { continue };
            for file in tree.files.iter().map(|name| dir.join(name)) {
                if self.watch(inotify, &file, inode, AddWatchFlags::IN_MODIFY) {
                    break;
                }
            }
            if depth == tree.depth || !self.watch(inotify, &dir, inode, DIRECTORY) {
                continue;
            }
            let below = children(&dir).take(self.room.saturating_sub(waiting.len()));
            waiting.extend(below.map(|child| (child, depth + 1)));
        }
    }

    /// Returns `false` if the path does not exist, or if the limit of watches is reached.
    fn watch(
        &mut self,
        inotify: &Inotify,
        path: &Path,
        directory: u64,
        mask: AddWatchFlags,
    ) -> bool {
        if let Some(watch) = self.known.get_mut(path)
            && watch.directory == directory
        {
            watch.round = self.round;
            return true;
        }
        if self.known.len() >= self.room {
            self.warn_once("the limit of watches is reached");
            return false;
        }
        match inotify.add_watch(path, mask) {
            Ok(descriptor) => {
                let round = self.round;
                let watch = WatchedDirectory {
                    descriptor,
                    directory,
                    round,
                };
                if let Some(old) = self.known.insert(path.to_owned(), watch) {
                    let _removed = inotify.rm_watch(old.descriptor);
                }
                true
            }
            Err(Errno::ENOSPC) => {
                self.warn_once("raise fs.inotify.max_user_watches");
                false
            }
            Err(_) => false,
        }
    }

    fn warn_once(&mut self, reason: &'static str) {
        if !self.warned {
            self.warned = true;
            warn!(
                watches = self.known.len(),
                "some cgroups are not watched: {reason}"
            );
        }
    }
}

fn inode(dir: &Path) -> Option<u64> {
    fs::metadata(dir).ok().map(|metadata| metadata.ino())
}

fn children(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::scratch::Scratch;

    const ROOM: usize = 50;

    fn inotify() -> Inotify {
        Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).unwrap()
    }

    #[test]
    fn changes_are_reported_from_the_missing_top_to_the_last_level() {
        let dir = Scratch::new();
        dir.mkdir("mount");
        let trees = [WatchedTree {
            top: dir.path().join("mount/a/pods"),
            depth: 2,
            files: &["local", "events"],
        }];
        let file =
            |rel: &str| fs::write(dir.path().join("mount/a/pods").join(rel), "max 1").unwrap();
        let rmdir =
            |rel: &str| fs::remove_dir_all(dir.path().join("mount/a/pods").join(rel)).unwrap();
        let pods = |rel: &str| dir.mkdir(&format!("mount/a/pods/{rel}"));
        let (inotify, mut watches) = (inotify(), Watches::with_room(ROOM));
        #[rustfmt::skip]
        let script: [(&dyn Fn(), Changes, &str); 11] = [
            (&|| (), Changes::None, "no change yet"),
            (&|| dir.mkdir("mount/a"), Changes::Some, "the parent of the top"),
            (&|| pods(""), Changes::Some, "the top"),
            (&|| pods("pod"), Changes::Some, "a pod"),
            (&|| pods("pod/container"), Changes::Some, "a container"),
            (&|| file("pod/container/events"), Changes::None, "a file not watched yet"),
            (&|| file("pod/container/events"), Changes::Some, "a limit"),
            (&|| pods("pod/container/x"), Changes::None, "below the last level"),
            (&|| rmdir("pod/container"), Changes::Some, "a container is removed"),
            (&|| rmdir("pod"), Changes::Some, "a pod is removed"),
            (&|| (), Changes::None, "only removed watches"),
        ];
        for (change, expected, why) in script {
            watches.renew(&inotify, &trees);
            while drain(&inotify).unwrap() != Changes::None {}
            change();
            assert_eq!(drain(&inotify).unwrap(), expected, "{why}");
        }
        let left: Vec<_> = watches.known.keys().collect();
        assert_eq!(left.len(), 2, "the top and its parent: {left:?}");
    }

    #[test]
    fn watches_are_bounded_and_upper_levels_are_watched_first() {
        let dir = Scratch::new();
        for n in 0..ROOM + 10 {
            dir.mkdir(&format!("pods/hostile/{n}"));
        }
        dir.mkdir("pods/zzz");
        let trees = [WatchedTree {
            top: dir.path().join("pods"),
            depth: 4,
            files: &[],
        }];
        let (inotify, mut watches) = (inotify(), Watches::with_room(ROOM));
        watches.renew(&inotify, &trees);
        assert_eq!(watches.known.len(), ROOM);
        assert!(watches.known.contains_key(&dir.path().join("pods/zzz")));

        fs::remove_dir_all(dir.path().join("pods/hostile")).unwrap();
        watches.renew(&inotify, &trees);
        assert_eq!(watches.known.len(), 3, "the parent, the top and zzz");
    }
}
