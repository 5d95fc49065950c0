//! The state directory: nobody else may open it, and one process at a time uses it.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use rustix::fs::{FlockOperation, flock};

use super::StateError;

/// The file that is locked. Anybody who can open a file can lock it, so that it is not the directory.
const LOCK: &str = "lock";

/// What others may do with a file or directory.
const OF_OTHERS: u32 = 0o077;

/// Makes `directory` for us alone where it is missing.
///
/// # Errors
///
/// [`StateError::Io`].
pub(super) fn make(directory: &Path) -> Result<(), StateError> {
    let mut builder = DirBuilder::new();
    Ok(builder.recursive(true).mode(0o700).create(directory)?)
}

/// The directory is ours alone for as long as this value lives.
#[derive(Debug)]
pub struct Claim {
    /// Closing it gives the lock back, which is a system call less than to unlock it.
    _locked: File,
}

impl Claim {
    /// Claims `directory`, which is made where it is missing, and closed to others where it is open to
    /// them; `None` where another process has it. The kernel gives it back at our end, however that
    /// comes.
    ///
    /// # Errors
    ///
    /// [`StateError::Owner`] where it belongs to another user than ours and root, [`StateError::Io`].
    pub fn take(directory: &Path) -> Result<Option<Self>, StateError> {
        make(directory)?;
        // As a descriptor: what is looked at is what is changed.
        close_to_others(&File::open(directory)?, directory)?;
        let path = directory.join(LOCK);
        let locked = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            // A link leads elsewhere, and opening a pipe waits for its other end.
            .custom_flags(O_NOFOLLOW | O_NONBLOCK)
            .open(&path)?;
        close_to_others(&locked, &path)?;
        match flock(&locked, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { _locked: locked })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(io::Error::from(errno).into()),
        }
    }
}

/// Whether `path`, if it exists, belongs to our user or to root.
pub(super) fn is_ours(path: &Path) -> bool {
    fs::symlink_metadata(path).map_or(true, |found| may_own(found.uid()))
}

fn may_own(uid: u32) -> bool {
    uid == 0 || uid == nix::unistd::geteuid().as_raw()
}

/// Takes from others what they may do with `file`, which is at `path`: `DirectoryOrCreate` of a
/// kubelet makes directories that everybody may open.
fn close_to_others(file: &File, path: &Path) -> Result<(), StateError> {
    let found = file.metadata()?;
    if !may_own(found.uid()) {
        return Err(StateError::Owner {
            path: path.to_owned(),
            uid: found.uid(),
        });
    }
    // One of root's that is ours to use stays as root has it.
    if found.mode() & OF_OTHERS != 0 && found.uid() == nix::unistd::geteuid().as_raw() {
        file.set_permissions(Permissions::from_mode(found.mode() & 0o7777 & !OF_OTHERS))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    /// Whoever may open it may lock it.
    fn lock(path: &Path) -> File {
        let opened = File::open(path).unwrap();
        flock(&opened, FlockOperation::NonBlockingLockExclusive).unwrap();
        opened
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    /// Removed with this value.
    struct Dir(PathBuf);

    impl Dir {
        fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    fn directory(name: &str) -> Dir {
        let name = format!("nodepulse-claim-{name}-{}", std::process::id());
        let dir = Dir(std::env::temp_dir().join(name));
        fs::create_dir(dir.path()).unwrap();
        dir
    }

    /// As a kubelet makes it, with somebody who has opened and locked it before we came.
    fn open_to_all(name: &str) -> (Dir, File) {
        let dir = directory(name);
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let locked = lock(dir.path());
        (dir, locked)
    }

    #[test]
    fn a_lock_on_the_directory_keeps_nobody_out_and_it_is_closed_to_others() {
        let (dir, _locked) = open_to_all("open");
        let claim = Claim::take(dir.path()).unwrap();
        assert!(claim.is_some(), "a stranger's lock is on the directory");
        assert_eq!(mode(dir.path()), 0o700);
        assert_eq!(mode(&dir.path().join(LOCK)), 0o600);
        assert!(Claim::take(dir.path()).unwrap().is_none(), "the second");
        drop(claim);
        assert!(Claim::take(dir.path()).unwrap().is_some(), "the next");
    }

    #[test]
    fn what_stands_for_the_lock_is_closed_or_refused() {
        let (dir, _locked) = open_to_all("taken");
        let path = dir.path().join(LOCK);
        fs::write(&path, "kept").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        assert!(Claim::take(dir.path()).unwrap().is_some());
        assert_eq!(mode(&path), 0o600);
        assert_eq!(fs::read(&path).unwrap(), b"kept");

        fs::remove_file(&path).unwrap();
        symlink("/etc/hostname", &path).unwrap();
        assert!(Claim::take(dir.path()).is_err(), "a link");
        fs::remove_file(&path).unwrap();
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        // Nobody opens its other end; opened for both ends it is only a file that nobody else has.
        assert!(Claim::take(dir.path()).unwrap().is_some(), "a pipe");
    }
}
