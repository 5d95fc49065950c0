//! Files of a directory that are written, replaced or removed: inotify on the directory.
//!
//! A mounted `ConfigMap` is replaced by renaming the link `..data`, which everything in it goes
//! through, so that the files themselves never change.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent};
use tokio::io::Interest;
use tokio::sync::mpsc;

use crate::fd;

/// The link that leads to the files of a mounted `ConfigMap`.
const MOUNTED: &str = "..data";

/// A file that is only made is not written yet: its end is told, too.
const WRITTEN: AddWatchFlags = AddWatchFlags::IN_CLOSE_WRITE
    .union(AddWatchFlags::IN_MOVED_TO)
    .union(AddWatchFlags::IN_MOVED_FROM)
    .union(AddWatchFlags::IN_DELETE);

/// A directory that comes later is told of where it is made.
const MADE: AddWatchFlags = AddWatchFlags::IN_CREATE;

/// What to watch.
#[derive(Debug, Clone)]
pub struct WatchedFiles {
    /// One file; its directory must be there.
    pub file: PathBuf,
    /// A directory beside it, which may be missing.
    pub parts: PathBuf,
    /// How the names of the files in it end that matter: `yaml`.
    pub end: &'static str,
}

/// Sends word whenever one of `files` may have another content, until the receiver is gone. One word
/// waits at most: it stands for all that came until it is taken.
///
/// # Errors
///
/// Where the directory is not there, or the kernel gives no inotify instance.
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
        // Again each time: it may be another directory of that name by now. One that is watched
        // already stays so.
        let _absent: nix::Result<_> = watch.get_ref().0.add_watch(&files.parts, WRITTEN);
        let mut ready = watch.readable_mut().await?;
        match ready.get_inner().0.read_events() {
            Ok(events) => {
                if events.iter().any(|event| matters(event, &files)) {
                    // Full: whoever reads has not begun yet.
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
    if files.parts.file_name() == Some(name) {
        return true;
    }
    let ours = files.file.file_name() == Some(name) || name == OsStr::new(MOUNTED);
    let like = Path::new(name).extension() == Some(OsStr::new(files.end));
    (ours || like) && event.mask.intersects(WRITTEN)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn each_way_to_change_a_file_matters_and_other_files_do_not() {
        let dir = std::env::temp_dir().join(format!("nodepulse-files-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let at = |name: &str| dir.join(name);
        let files = WatchedFiles {
            file: at("config.yaml"),
            parts: at("conf.d"),
            end: "yaml",
        };
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
        inotify.add_watch(&dir, WRITTEN | MADE).unwrap();
        let write = |name: &str| fs::write(at(name), "a: b").unwrap();
        let rename = |from: &str, to: &str| fs::rename(at(from), at(to)).unwrap();
        let remove = |name: &str| fs::remove_file(at(name)).unwrap();
        let made = || drop(fs::File::create(at("half")).unwrap());
        let script: [(&dyn Fn(), bool, &str); 11] = [
            (&|| write("config.yaml"), true, "written"),
            (&|| write("other"), false, "another file"),
            (&|| rename("other", "config.yaml"), true, "replaced"),
            (&made, false, "made, and not ours"),
            (
                &|| fs::create_dir(at("conf.d")).unwrap(),
                true,
                "a directory",
            ),
            (&|| write("conf.d/10.yaml"), true, "a file in it"),
            (&|| write("conf.d/10.yaml~"), false, "a copy of an editor"),
            (&|| remove("conf.d/10.yaml"), true, "gone"),
            (&|| symlink("v1", at("..tmp")).unwrap(), false, "a link"),
            (
                &|| rename("..tmp", "..data"),
                true,
                "a mounted one is swapped",
            ),
            (&|| remove("config.yaml"), true, "the file is gone"),
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
