//! Resolves a cgroup id to its path in constant time.
//!
//! On 64-bit kernels a cgroup id is the file handle of its directory. Opening it requires
//! `CAP_DAC_READ_SEARCH` in the initial user namespace.

use std::ffi::c_int;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::libc;
use nix::sys::statfs::{CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, fstatfs};
use nodepulse_core::units::CgroupId;

/// `FILEID_KERNFS` (`include/linux/exportfs.h`).
const FILEID_KERNFS: c_int = 0xfe;

/// `struct file_handle` with room for a cgroup id.
#[repr(C)]
struct FileHandle {
    bytes: u32,
    kind: c_int,
    id: u64,
}

/// A mounted cgroup hierarchy whose directories can be opened by id.
#[derive(Debug)]
pub struct CgroupMount {
    mount: PathBuf,
    dir: File,
}

impl CgroupMount {
    /// Opens the mount point of a hierarchy. Fails with [`io::ErrorKind::Unsupported`] if it is not
    /// a cgroup file system, on which every id would appear to be that of a removed cgroup.
    pub fn open(mount: &Path) -> io::Result<Self> {
        let dir = File::open(mount)?;
        let kind = fstatfs(&dir)?.filesystem_type();
        if ![CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC].contains(&kind) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // The kernel prints paths without symbolic links.
        let mount = fs::canonicalize(mount)?;
        Ok(Self { mount, dir })
    }

    /// Returns the path of cgroup `id` below the mount, with a leading `/`. Fails with `ESTALE` if
    /// the cgroup is removed, and with `EPERM` without the capability.
    pub fn path(&self, id: CgroupId) -> io::Result<String> {
        let mut handle = FileHandle {
            bytes: 8,
            kind: FILEID_KERNFS,
            id: id.0,
        };
        // SAFETY: `handle` is a file_handle with `bytes` bytes of payload after its header, valid
        // for the call; the descriptor of the mount is open as long as `self`.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_open_by_handle_at,
                self.dir.as_raw_fd(),
                &raw mut handle,
                libc::O_PATH | libc::O_CLOEXEC,
            )
        };
        let fd = c_int::try_from(fd)
            .ok()
            .filter(|fd| *fd >= 0)
            .ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the call above returned this descriptor, which has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let full = path_of(&File::from(fd))?;
        let below = full
            .strip_prefix(&self.mount)
            .map_err(|_| io::ErrorKind::NotFound)?;
        Ok(format!("/{}", below.display()))
    }
}

/// Returns the path of an open directory. Fails with [`io::ErrorKind::NotFound`] if it was removed:
/// the kernel then appends ` (deleted)`, in which another directory's name can end, too.
fn path_of(dir: &File) -> io::Result<PathBuf> {
    let path = fs::read_link(format!("/proc/self/fd/{}", dir.as_raw_fd()))?;
    let (there, open) = (fs::symlink_metadata(&path)?, dir.metadata()?);
    let is_same = (there.dev(), there.ino()) == (open.dev(), open.ino());
    is_same
        .then_some(path)
        .ok_or_else(|| io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::host::scratch::Scratch;

    #[test]
    fn a_mount_behind_a_symbolic_link_has_its_path_without_the_link() {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mut mounts = mounts.lines().filter(|line| line.contains(" - cgroup"));
        let mount = mounts.find_map(|line| line.split(' ').nth(4)).unwrap();
        let dir = Scratch::new();
        let link = dir.path().join("cgroup");
        symlink(mount, &link).unwrap();
        assert_eq!(CgroupMount::open(&link).unwrap().mount, Path::new(mount));
    }

    #[test]
    fn a_directory_that_is_removed_while_it_is_open_has_no_path() {
        //  its name, whether it is removed, and the name of another one
        let rows = [
            ("web.scope", false, None),
            ("web.scope (deleted)", false, None),
            ("web.scope (deleted)", false, Some("web.scope")),
            ("web.scope", true, None),
            ("web.scope", true, Some("web.scope (deleted)")),
        ];
        for (name, is_removed, other) in rows {
            let scratch = Scratch::new();
            let path = fs::canonicalize(scratch.path()).unwrap().join(name);
            fs::create_dir(&path).unwrap();
            let dir = File::open(&path).unwrap();
            if is_removed {
                fs::remove_dir(&path).unwrap();
            }
            if let Some(other) = other {
                fs::create_dir(path.with_file_name(other)).unwrap();
            }
            let found = path_of(&dir).map_err(|err| err.kind());
            let expected = if is_removed {
                Err(io::ErrorKind::NotFound)
            } else {
                Ok(path)
            };
            assert_eq!(
                found, expected,
                "{name}, removed: {is_removed}, and {other:?}"
            );
        }
    }
}
