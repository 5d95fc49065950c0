//! Mounts a directory whose file system never responds, like that of a dead NFS server: FUSE
//! without a server. As root.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// Blocks readers of the directory until it is dropped; its former contents are visible again then.
#[derive(Debug)]
pub struct HungDirectory {
    path: PathBuf,
    /// The server's side, which is not read; closing it ends every call with an error.
    server: Option<File>,
}

impl HungDirectory {
    /// Mounts over `path`, which must exist.
    pub fn over(path: &Path) -> Self {
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
        let server = device.expect("/dev/fuse, as root, with the module fuse");
        let fd = server.as_raw_fd();
        let options = format!("fd={fd},rootmode=40000,user_id=0,group_id=0");
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("hung"), path, Some("fuse"), flags, Some(&*options)).expect("mount, as root");
        Self {
            path: path.to_owned(),
            server: Some(server),
        }
    }

    /// Ends every call, which dropping does.
    pub fn answers(self) {}
}

impl Drop for HungDirectory {
    fn drop(&mut self) {
        // First, because the mount cannot be removed while calls hang in it.
        drop(self.server.take());
        if let Err(err) = umount2(&self.path, MntFlags::MNT_DETACH) {
            eprintln!("{} stays mounted: {err}", self.path.display());
        }
    }
}
