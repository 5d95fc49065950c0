//! Cgroups that come, go or meet a limit: inotify on their directories and event files.
//!
//! kernfs tells of a directory made or removed like any file system, and of `pids.events` by
//! `kernfs_notify`. Version 1 since Linux 6.11 does not tell of the latter (tried on 6.18). A
//! directory that is removed takes no watch with it: they are removed here, by comparison.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use tokio::io::Interest;
use tokio::sync::mpsc;
use tracing::warn;

use crate::clock::Clock;
use crate::fd;
use crate::record::{Received, Record};

/// After news the next are waited for: whoever makes a thousand cgroups a second wakes us once.
const QUIET: Duration = Duration::from_secs(1);
/// Watches at most; each keeps an inode in memory, about 1 KiB. Eight a pod on a node of 500 pods.
/// Cgroups nearer to the top come first, so that one tenant's many cannot hide the pods of others.
const MOST_WATCHES: usize = 4096;
/// Reads of one drain. The kernel queues 16,384 events, of which one read takes at least 15.
const MOST_READS: usize = 2048;

/// What to watch.
#[derive(Debug, Clone)]
pub struct WatchedTree {
    /// The directory; where it is not there yet, its coming is waited for.
    pub top: PathBuf,
    /// Levels below it that are watched.
    pub depth: usize,
    /// The file that the kernel changes where a limit is met: the first of these that a directory
    /// has.
    pub files: &'static [&'static str],
}

/// Sends one record whenever something in `trees` has changed, at most one a second, until the
/// receiver is gone. The first one comes once the watches are there, so that nothing which happens
/// in between is missed.
///
/// # Errors
///
/// Where the kernel gives no inotify instance, or it cannot be waited for.
pub async fn read(
    trees: Vec<WatchedTree>,
    clock: Clock,
    records: mpsc::Sender<Received>,
) -> io::Result<()> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    let mut watch = fd::watch(inotify, Interest::READABLE)?;
    let mut watches = Watches::with_room(MOST_WATCHES);
    loop {
        watches.renew(&watch.get_ref().0, &trees);
        let at = clock.now().boot;
        let record = Ok(Record::CgroupsChanged { at });
        if records.send(Received { read: at, record }).await.is_err() {
            return Ok(());
        }
        tokio::time::sleep(QUIET).await;
        loop {
            let mut ready = watch.readable_mut().await?;
            let drained = drain(&ready.get_inner().0)?;
            if drained != Drained::Partly {
                ready.clear_ready();
            }
            if drained != Drained::Nothing {
                break;
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Drained {
    Nothing,
    News,
    /// There is more.
    Partly,
}

/// Takes what there is. That a watch of ours is gone is no news.
fn drain(inotify: &Inotify) -> io::Result<Drained> {
    let mut drained = Drained::Nothing;
    for _ in 0..MOST_READS {
        match inotify.read_events() {
            Ok(events) => {
                let news = |mask: AddWatchFlags| !mask.contains(AddWatchFlags::IN_IGNORED);
                if events.iter().any(|event| news(event.mask)) {
                    drained = Drained::News;
                }
            }
            Err(Errno::EAGAIN) => return Ok(drained),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(Drained::Partly)
}

/// What is watched, by path.
#[derive(Debug)]
struct Watches {
    room: usize,
    known: HashMap<PathBuf, Watch>,
    round: u64,
    told: bool,
}

#[derive(Debug)]
struct Watch {
    descriptor: WatchDescriptor,
    /// Inode of the directory: a path can be used again.
    directory: u64,
    round: u64,
}

impl Watches {
    fn with_room(room: usize) -> Self {
        Self {
            room,
            known: HashMap::new(),
            round: 0,
            told: false,
        }
    }

    /// Watches what is there now, and what is gone no longer.
    fn renew(&mut self, inotify: &Inotify, trees: &[WatchedTree]) {
        self.round += 1;
        for tree in trees {
            self.tree(inotify, tree);
        }
        let round = self.round;
        self.known.retain(|_, watch| {
            let stays = watch.round == round;
            if !stays {
                // EINVAL: the kernel was quicker.
                let _gone = inotify.rm_watch(watch.descriptor);
            }
            stays
        });
    }

    /// A directory is watched before it is listed: what comes in between is in the queue.
    fn tree(&mut self, inotify: &Inotify, tree: &WatchedTree) {
        const DIRECTORY: AddWatchFlags = AddWatchFlags::IN_CREATE
            .union(AddWatchFlags::IN_DELETE)
            .union(AddWatchFlags::IN_ONLYDIR);
        // The one above tells of the top itself, or is what is there of the way to it.
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

    /// `false` where it is not there, or there is no room for it.
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
            self.tell("as many cgroups are watched as can be");
            return false;
        }
        match inotify.add_watch(path, mask) {
            Ok(descriptor) => {
                let round = self.round;
                let watch = Watch {
                    descriptor,
                    directory,
                    round,
                };
                if let Some(old) = self.known.insert(path.to_owned(), watch) {
                    let _gone = inotify.rm_watch(old.descriptor);
                }
                true
            }
            Err(Errno::ENOSPC) => {
                self.tell("raise fs.inotify.max_user_watches");
                false
            }
            Err(_) => false,
        }
    }

    /// Once.
    fn tell(&mut self, what: &'static str) {
        if !self.told {
            self.told = true;
            warn!(
                watches = self.known.len(),
                "some cgroups are not watched: {what}"
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

    const ROOM: usize = 50;

    /// A directory of ours, removed on drop. Any file system tells of directories as kernfs does.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("nodepulse-{name}-{}", std::process::id()));
            fs::create_dir(&dir).unwrap();
            Self(dir)
        }

        fn mkdir(&self, rel: &str) {
            fs::create_dir_all(self.0.join(rel)).unwrap();
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    fn inotify() -> Inotify {
        Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).unwrap()
    }

    #[test]
    fn each_change_is_news_from_the_top_that_is_not_there_yet_to_the_last_level() {
        let dir = Scratch::new("watch");
        dir.mkdir("mount");
        let trees = [WatchedTree {
            top: dir.0.join("mount/a/pods"),
            depth: 2,
            files: &["local", "events"],
        }];
        let file = |rel: &str| fs::write(dir.0.join("mount/a/pods").join(rel), "max 1").unwrap();
        let rmdir = |rel: &str| fs::remove_dir_all(dir.0.join("mount/a/pods").join(rel)).unwrap();
        let pods = |rel: &str| dir.mkdir(&format!("mount/a/pods/{rel}"));
        let (inotify, mut watches) = (inotify(), Watches::with_room(ROOM));
        let script: [(&dyn Fn(), Drained, &str); 11] = [
            (&|| (), Drained::Nothing, "nothing yet"),
            (
                &|| dir.mkdir("mount/a"),
                Drained::News,
                "the one above the top",
            ),
            (&|| pods(""), Drained::News, "the top"),
            (&|| pods("pod"), Drained::News, "a pod"),
            (&|| pods("pod/container"), Drained::News, "a container"),
            (
                &|| file("pod/container/events"),
                Drained::Nothing,
                "a file not watched yet",
            ),
            (&|| file("pod/container/events"), Drained::News, "a limit"),
            (
                &|| pods("pod/container/x"),
                Drained::Nothing,
                "below the last level",
            ),
            (
                &|| rmdir("pod/container"),
                Drained::News,
                "a container goes",
            ),
            (&|| rmdir("pod"), Drained::News, "a pod goes"),
            (&|| (), Drained::Nothing, "only watches of what is gone"),
        ];
        for (change, expected, why) in script {
            watches.renew(&inotify, &trees);
            while drain(&inotify).unwrap() != Drained::Nothing {}
            change();
            assert_eq!(drain(&inotify).unwrap(), expected, "{why}");
        }
        let left: Vec<_> = watches.known.keys().collect();
        assert_eq!(left.len(), 2, "the top and the one above it: {left:?}");
    }

    #[test]
    fn watches_are_bounded_and_the_upper_levels_come_first() {
        let dir = Scratch::new("bound");
        for n in 0..ROOM + 10 {
            dir.mkdir(&format!("pods/hostile/{n}"));
        }
        dir.mkdir("pods/zzz");
        let trees = [WatchedTree {
            top: dir.0.join("pods"),
            depth: 4,
            files: &[],
        }];
        let (inotify, mut watches) = (inotify(), Watches::with_room(ROOM));
        watches.renew(&inotify, &trees);
        assert_eq!(watches.known.len(), ROOM);
        assert!(watches.known.contains_key(&dir.0.join("pods/zzz")));

        fs::remove_dir_all(dir.0.join("pods/hostile")).unwrap();
        watches.renew(&inotify, &trees);
        assert_eq!(watches.known.len(), 3, "the one above, the top and zzz");
    }
}
