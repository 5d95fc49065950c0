//! Locks or unmaps pages of the program's code.

use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::ptr::NonNull;

use nix::sys::mman::{MmapAdvise, madvise, mlock};
use nodepulse_io::file;

/// Reads all of the program's code and keeps it in memory. Fails with `ENOMEM` or `EPERM` if the
/// limit on locked memory does not permit that.
pub fn lock_code() -> io::Result<()> {
    let maps = file::text(Path::new("/proc/self/maps")).map_err(io::Error::other)?;
    for (start, len) in maps.lines().filter_map(code) {
        // SAFETY: locking pages changes neither their addresses nor their contents.
        unsafe { mlock(start, len) }?;
    }
    Ok(())
}

/// Unmaps the pages of the program's code, which stay in the page cache, and returns their bytes.
/// Each is mapped again when it is executed next.
///
/// Most of the code runs at the start only, and the kernel maps 64 KiB around each page that is
/// executed. Fails with `EINVAL` if the pages are locked.
pub fn release_code() -> io::Result<usize> {
    let maps = file::text(Path::new("/proc/self/maps")).map_err(io::Error::other)?;
    let mut released = 0;
    for (start, len) in maps.lines().filter_map(code) {
        // SAFETY: a private mapping of a file that cannot be written to: its pages are read from
        // the file again. No reference is affected, because the addresses stay mapped.
        unsafe { madvise(start, len, MmapAdvise::MADV_DONTNEED) }?;
        released += len;
    }
    Ok(released)
}

/// Returns address and length of mapped code in a `/proc/<pid>/maps` line. The vDSO has no inode.
fn code(line: &str) -> Option<(NonNull<c_void>, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let is_code = fields.next()? == "r-xp";
    let inode = fields.nth(2)?;
    if !is_code || inode == "0" {
        return None;
    }
    let start = usize::from_str_radix(start, 16).ok()?;
    let len = usize::from_str_radix(end, 16).ok()?.checked_sub(start)?;
    let start = NonNull::without_provenance(NonZeroUsize::new(start)?);
    Some((start, len))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_private_mappings_of_a_file_that_are_executable_and_not_writable_are_code() {
        let line = "7f00a000-7f00c000 r-xp 00002000 fe:00 1234   /nodepulse";
        let (start, len) = code(line).unwrap();
        assert_eq!((start.addr().get(), len), (0x7f00_a000, 0x2000));
        for other in [
            "7f00a000-7f00c000 r--p 00002000 fe:00 1234   /nodepulse",
            "7f00a000-7f00c000 rwxp 00002000 fe:00 1234   /nodepulse",
            "7f00a000-7f00c000 r-xs 00002000 fe:00 1234   /nodepulse",
            "7f00a000-7f00c000 r-xp 00000000 00:00 0      [vdso]",
            "7f00c000-7f00a000 r-xp 00002000 fe:00 1234   /nodepulse",
            "00000000-7f00a000 r-xp 00002000 fe:00 1234   /nodepulse",
            "7f00a000 r-xp",
            "",
        ] {
            assert_eq!(code(other), None, "{other}");
        }
    }

    #[test]
    fn released_code_is_not_resident_and_can_still_be_executed() {
        // Each mapping of code in `smaps` consists of its header, then its fields.
        let resident = || {
            let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
            let mut is_code = false;
            let mut kib = 0;
            for line in smaps.lines() {
                match line.strip_prefix("Rss:") {
                    Some(rss) if is_code => {
                        kib += rss.trim().trim_end_matches(" kB").parse::<usize>().unwrap();
                    }
                    None if line.contains('-') => is_code = code(line).is_some(),
                    Some(_) | None => {}
                }
            }
            kib
        };
        let before = resident();
        let released = release_code().unwrap();
        let after = resident();
        assert!(
            released > 0 && after < before,
            "{released} B: {before} to {after} KiB"
        );
    }
}
