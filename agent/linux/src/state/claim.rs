//! A directory that other users cannot access, and that one process at a time uses.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::libc::{self, O_NOFOLLOW, O_NONBLOCK};
use nodepulse_io::file::{OTHERS, is_trusted_owner};
use procfs::LockType;
use procfs::process::Process;
use rustix::fs::{FlockOperation, flock, major, minor};

use super::StateError;

/// Name of the locked file. The directory is not: every user who can open a file can lock it.
const LOCK: &str = "lock";

/// The sticky bit: only a file's owner may remove it, as in `/tmp`.
const STICKY: u32 = 0o1000;

/// Returns a builder of directories with access only for nodepulse's user.
pub(super) fn builder() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

/// Exclusive use of the directory for as long as this value lives.
#[derive(Debug)]
pub struct Claim {
    /// The former mode of the directory, if it was open to other users.
    pub closed_from: Option<u32>,
    /// The locked file. Closing it releases the lock, which saves a system call.
    _locked: File,
}

impl Claim {
    /// Locks `directory`, which is created if it is missing, and closed to other users if it is
    /// open to them. Returns `None` if another process has locked it. The kernel releases the lock
    /// when the process ends. Fails with [`StateError::Owner`] if it belongs to another user than
    /// nodepulse's or root, and with [`StateError::Shared`] if it is open to others and contains
    /// files that are not nodepulse's by `is_known`.
    pub fn take(
        directory: &Path,
        is_known: impl Fn(&OsStr) -> bool,
    ) -> Result<Option<Self>, StateError> {
        builder().recursive(true).create(directory)?;
        // A descriptor ensures that the checked directory is the one that is changed.
        let opened = File::open(directory)?;
        let mode = opened.metadata()?.mode();
        if mode & OTHERS != 0
            && let Some(why) = shared(directory, mode, is_known)?
        {
            let path = directory.to_owned();
            return Err(StateError::Shared { path, why });
        }
        let closed = close_to_others(&opened, directory)?;
        let path = directory.join(LOCK);
        let locked = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            // A link may redirect, and opening a pipe waits for its other end.
            .custom_flags(O_NOFOLLOW | O_NONBLOCK)
            .open(&path)?;
        close_to_others(&locked, &path)?;
        match flock(&locked, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self {
                closed_from: closed.then_some(mode & 0o7777),
                _locked: locked,
            })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(io::Error::from(errno).into()),
        }
    }
}

/// The process that has locked a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Process ID in the PID namespace of `/proc`.
    pub pid: i32,
    /// Set if the process was killed and its main thread has not ended: the CPU time of the process
    /// so far, in ticks. Without a signal that kills it, it may go on, however long it has slept.
    pub halted: Option<u64>,
}

/// Returns the process that locked `directory`; `None` without one, or if it is not visible.
pub fn holder(directory: &Path) -> Option<Holder> {
    let file = fs::metadata(directory.join(LOCK)).ok()?;
    let device = (major(file.dev()), minor(file.dev()));
    let mut locks = procfs::locks().ok()?.into_iter();
    let found = locks.find(|lock| {
        lock.lock_type == LockType::FLock
            && (lock.devmaj, lock.devmin) == device
            && lock.inode == file.ino()
    });
    let pid = found?.pid.filter(|pid| 0 < *pid)?;
    let stat = Process::new(pid).ok()?.stat().ok()?;
    let is_halted = is_halted(stat.state, stat.signal);
    Some(Holder {
        pid,
        halted: is_halted.then(|| stat.utime.saturating_add(stat.stime)),
    })
}

/// Decides by the state of the main thread, and by the signals that are pending for it. SIGKILL is
/// pending for each thread of a process that was killed, by any signal, until the thread ends.
const fn is_halted(state: char, pending: u64) -> bool {
    let is_killed = pending & 1 << (libc::SIGKILL - 1) != 0;
    // The main thread is dead, while another thread is not.
    (state == 'D' && is_killed) || state == 'Z'
}

/// Returns the evidence that others use `directory`, which is open to them.
fn shared(
    directory: &Path,
    mode: u32,
    is_known: impl Fn(&OsStr) -> bool,
) -> io::Result<Option<String>> {
    if directory.canonicalize()? == Path::new("/") {
        return Ok(Some("it is the root directory".to_owned()));
    }
    if mode & STICKY != 0 {
        return Ok(Some("all users can write to it".to_owned()));
    }
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        if name != LOCK && !is_known(&name) {
            return Ok(Some(format!("it contains {:?}", name.to_string_lossy())));
        }
    }
    Ok(None)
}

/// Removes the permissions of other users on `file`, which is at `path`: the `DirectoryOrCreate` of
/// a kubelet creates directories that every user can open. Returns `true` if there were any.
fn close_to_others(file: &File, path: &Path) -> Result<bool, StateError> {
    let found = file.metadata()?;
    if !is_trusted_owner(found.uid()) {
        return Err(StateError::Owner {
            path: path.to_owned(),
            uid: found.uid(),
        });
    }
    // Root's directory, used by another user, keeps its permissions.
    if found.mode() & OTHERS != 0 && found.uid() == nix::unistd::geteuid().as_raw() {
        file.set_permissions(Permissions::from_mode(found.mode() & 0o7777 & !OTHERS))?;
        return Ok(true);
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::super::is_known;
    use super::*;

    /// Locks the file, as every user who can open it can.
    fn lock(path: &Path) -> File {
        let opened = File::open(path).unwrap();
        flock(&opened, FlockOperation::NonBlockingLockExclusive).unwrap();
        opened
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    /// A directory that is removed when this value is dropped.
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

    /// Creates a directory as a kubelet does, opened and locked by another user before.
    fn open_to_all(name: &str) -> (Dir, File) {
        let dir = directory(name);
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let locked = lock(dir.path());
        (dir, locked)
    }

    #[test]
    fn a_lock_on_the_directory_excludes_nothing_and_it_is_closed_to_other_users() {
        let (dir, _locked) = open_to_all("open");
        let claim = Claim::take(dir.path(), is_known).unwrap();
        assert!(claim.is_some(), "another user's lock is on the directory");
        assert_eq!(mode(dir.path()), 0o700);
        assert_eq!(mode(&dir.path().join(LOCK)), 0o600);
        assert!(
            Claim::take(dir.path(), is_known).unwrap().is_none(),
            "the second"
        );
        drop(claim);
        assert!(
            Claim::take(dir.path(), is_known).unwrap().is_some(),
            "the next"
        );
    }

    #[test]
    fn a_directory_that_others_use_is_refused_and_keeps_its_mode() {
        #[rustfmt::skip]
        let rows: [(&str, u32, &[&str], Option<&str>); 6] = [
            ("of a kubelet", 0o755, &[], None),
            ("used before", 0o755, &["state", "lock", "nodepulse.sock"], None),
            ("foreign", 0o755, &["lock", "passwd"], Some("it contains \"passwd\"")),
            ("foreign, but closed", 0o700, &["passwd"], None),
            ("sticky", 0o1777, &[], Some("all users can write to it")),
            ("sticky, but closed", 0o1700, &[], None),
        ];
        for (name, bits, files, refused) in rows {
            let dir = directory(&name.replace([' ', ','], "-"));
            for file in files {
                fs::write(dir.path().join(file), "").unwrap();
            }
            fs::set_permissions(dir.path(), Permissions::from_mode(bits)).unwrap();
            let taken = Claim::take(dir.path(), is_known);
            let Some(why) = refused else {
                let claim = taken.unwrap().unwrap();
                let open = (bits & OTHERS != 0).then_some(bits);
                assert_eq!(claim.closed_from, open, "{name}");
                assert_eq!(mode(dir.path()), bits & !OTHERS, "{name}");
                continue;
            };
            let err = taken.unwrap_err().to_string();
            assert!(
                err.contains(why) && err.contains("example"),
                "{name}: {err}"
            );
            assert_eq!(mode(dir.path()), bits, "{name}");
        }
        let err = Claim::take(Path::new("/"), is_known)
            .unwrap_err()
            .to_string();
        assert!(err.contains("it is the root directory"), "{err}");
    }

    #[test]
    fn only_a_process_that_was_killed_and_does_not_end_is_halted() {
        let (killed, hung_up) = (1 << 8, 1);
        let rows = [
            ('D', killed, true, "killed in uninterruptible sleep"),
            ('D', 0, false, "a slow disk"),
            ('D', hung_up, false, "it will read its configuration again"),
            ('R', killed, false, "it is about to end"),
            ('S', 0, false, "idle"),
            ('Z', 0, true, "another thread has not ended"),
        ];
        for (state, pending, expected, why) in rows {
            assert_eq!(is_halted(state, pending), expected, "{why}");
        }
    }

    #[test]
    fn an_existing_lock_file_is_closed_to_others_or_rejected() {
        let (dir, _locked) = open_to_all("taken");
        let path = dir.path().join(LOCK);
        fs::write(&path, "kept").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        assert!(Claim::take(dir.path(), is_known).unwrap().is_some());
        assert_eq!(mode(&path), 0o600);
        assert_eq!(fs::read(&path).unwrap(), b"kept");

        fs::remove_file(&path).unwrap();
        symlink("/etc/hostname", &path).unwrap();
        assert!(Claim::take(dir.path(), is_known).is_err(), "a link");
        fs::remove_file(&path).unwrap();
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        // A pipe without another reader or writer is like a file.
        assert!(
            Claim::take(dir.path(), is_known).unwrap().is_some(),
            "a pipe"
        );
    }
}
