//! Uses a disk as swap space.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::libc;

/// Ends the use of the swap space on drop.
#[derive(Debug)]
pub struct Swap {
    node: CString,
}

impl Swap {
    /// Formats the disk like mkswap(8), and uses it. Its contents are lost.
    pub fn on(node: &Path) -> io::Result<Self> {
        const PAGE: usize = 4096;
        /// `union swap_header` of `linux/swap.h`.
        const INFO: usize = 1024;
        const MAGIC: &[u8] = b"SWAPSPACE2";
        let mut disk = OpenOptions::new().read(true).write(true).open(node)?;
        let pages = disk.seek(SeekFrom::End(0))? / PAGE as u64;
        let last = u32::try_from(pages.saturating_sub(1)).map_err(io::Error::other)?;
        let mut header = vec![0_u8; PAGE];
        header[INFO..][..4].copy_from_slice(&1_u32.to_ne_bytes());
        header[INFO + 4..][..4].copy_from_slice(&last.to_ne_bytes());
        header[PAGE - MAGIC.len()..].copy_from_slice(MAGIC);
        disk.write_all_at(&header, 0)?;
        disk.sync_all()?;
        drop(disk);
        let node = CString::new(node.as_os_str().as_bytes())?;
        // SAFETY: the path is a string that ends with a zero.
        Errno::result(unsafe { libc::swapon(node.as_ptr(), 0) })?;
        Ok(Self { node })
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        // SAFETY: the path is a string that ends with a zero.
        let done = Errno::result(unsafe { libc::swapoff(self.node.as_ptr()) });
        if let Err(err) = done {
            let node = self.node.to_string_lossy();
            eprintln!("{node} is still used as swap: {err}");
        }
    }
}
