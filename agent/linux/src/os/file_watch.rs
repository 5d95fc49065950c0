//! Watches files that are written, replaced or removed: inotify on their directory.
//!
//! A mounted `ConfigMap` is updated by replacing the symbolic link `..data`; its files never
//! change.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent};
use nodepulse_io::fd;
use tokio::io::Interest;
use tokio::sync::mpsc;

/// The symbolic link to the files of a mounted `ConfigMap`.
const MOUNTED: &str = "..data";

/// Flags for completed changes of a file. Creation is excluded, because the close follows.
const WRITTEN: AddWatchFlags = AddWatchFlags::IN_CLOSE_WRITE
    .union(AddWatchFlags::IN_MOVED_TO)
    .union(AddWatchFlags::IN_MOVED_FROM)
    .union(AddWatchFlags::IN_DELETE);

/// Flags for creation, for a directory that does not exist yet.
const MADE: AddWatchFlags = AddWatchFlags::IN_CREATE;

#[derive(Debug, Clone)]
pub struct WatchedFiles {
    /// A file whose directory must exist.
    pub file: PathBuf,
    /// Files in a directory that is watched in addition to the file, if any.
    pub drop_ins: Option<DropIns>,
}

/// The files of one extension in a directory.
#[derive(Debug, Clone)]
pub struct DropIns {
    /// The directory, which may be missing.
    pub directory: PathBuf,
    pub extension: &'static str,
}

/// Sends a message if one of `files` may have changed, until the receiver is dropped. At most one
/// message is queued; it covers all changes until it is received.
pub async fn read(files: WatchedFiles, changed: mpsc::Sender<()>) -> io::Result<()> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    let above = files
        .file
        .parent()
        .filter(|dir| !dir.as_os_str().is_empty());
    let above = above.unwrap_or_else(|| Path::new(".")).to_owned();
    inotify.add_watch(&above, WRITTEN | MADE)?;
    let mut watch = fd::watch(inotify, Interest::READABLE)?;
    loop {
        // Repeated, because the directory may have been replaced. Watching it twice has no effect.
        if let Some(drop_ins) = &files.drop_ins {
            let _absent: nix::Result<_> = watch.get_ref().0.add_watch(&drop_ins.directory, WRITTEN);
        }
        let mut ready = watch.readable_mut().await?;
        match ready.get_inner().0.read_events() {
            Ok(events) => {
                if events.iter().any(|event| matters(event, &files)) {
                    // If the channel is full, a message is queued already.
                    if let Err(mpsc::error::TrySendError::Closed(())) = changed.try_send(()) {
                        return Ok(());
                    }
                }
            }
            Err(Errno::EAGAIN) => ready.clear_ready(),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn matters(event: &InotifyEvent, files: &WatchedFiles) -> bool {
    if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
        return true;
    }
    let Some(name) = event.name.as_deref() else {
        return false;
    };
    let drop_ins = files.drop_ins.as_ref();
    if drop_ins.is_some_and(|drop_ins| drop_ins.directory.file_name() == Some(name)) {
        return true;
    }
    let is_file = files.file.file_name() == Some(name) || name == OsStr::new(MOUNTED);
    let extension = Path::new(name).extension();
    let is_drop_in =
        drop_ins.is_some_and(|drop_ins| extension == Some(OsStr::new(drop_ins.extension)));
    (is_file || is_drop_in) && event.mask.intersects(WRITTEN)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_change_of_a_watched_file_is_reported() {
        let dir = std::env::temp_dir().join(format!("nodepulse-files-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let at = |name: &str| dir.join(name);
        let files = WatchedFiles {
            file: at("config.yaml"),
            drop_ins: Some(DropIns {
                directory: at("conf.d"),
                extension: "yaml",
            }),
        };
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
        inotify.add_watch(&dir, WRITTEN | MADE).unwrap();
        let write = |name: &str| fs::write(at(name), "a: b").unwrap();
        let rename = |from: &str, to: &str| fs::rename(at(from), at(to)).unwrap();
        let remove = |name: &str| fs::remove_file(at(name)).unwrap();
        let made = || drop(fs::File::create(at("half")).unwrap());
        #[rustfmt::skip]
        let script: [(&dyn Fn(), bool, &str); 11] = [
            (&|| write("config.yaml"), true, "written"),
            (&|| write("other"), false, "another file"),
            (&|| rename("other", "config.yaml"), true, "replaced"),
            (&made, false, "created, not watched"),
            (&|| fs::create_dir(at("conf.d")).unwrap(), true, "a directory"),
            (&|| write("conf.d/10.yaml"), true, "a file in it"),
            (&|| write("conf.d/10.yaml~"), false, "a copy of an editor"),
            (&|| remove("conf.d/10.yaml"), true, "removed"),
            (&|| symlink("v1", at("..tmp")).unwrap(), false, "a link"),
            (&|| rename("..tmp", "..data"), true, "a mounted one is replaced"),
            (&|| remove("config.yaml"), true, "the file is removed"),
        ];
        for (change, matter, what) in script {
            change();
            let events = inotify.read_events().unwrap_or_default();
            let found = events.iter().any(|event| matters(event, &files));
            assert_eq!(found, matter, "{what}: {events:?}");
            let _absent: nix::Result<_> = inotify.add_watch(&at("conf.d"), WRITTEN);
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
