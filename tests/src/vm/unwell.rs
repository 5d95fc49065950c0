//! Checks a disk that stops completing requests, one that cannot read a block, and one that is
//! added and removed.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use agent_common::DiskEntry;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount, umount};
use nodepulse_core::reading::StallKind;
use nodepulse_core::record::DiskAction;

use super::ask::{self, ask};
use super::{Check, disk, watched};
use crate::eventually;
use crate::loaded::Loaded;
use crate::loaded::disks::{self, Disk};
use crate::loaded::{judged, psi};
use crate::provoke::Provoke;
use crate::provoke::disk::DirectFile;
use crate::provoke::ioctl::nvme_read;

const MILLISECOND_NS: u64 = 1_000_000;

/// Checks that a disk that hangs completes no request, so that no record is written. One request
/// that took long is no slow window, if those before it were quick.
pub(super) async fn hung(
    loaded: &mut Loaded,
    hang: Disk<'_>,
    slow: Disk<'_>,
) -> io::Result<String> {
    let watch = DiskEntry::new(25 * MILLISECOND_NS, 1000 * MILLISECOND_NS);
    loaded.kernel.watch_disk(hang.device, watch)?;
    let released = Arc::new(AtomicBool::new(false));
    let writer = {
        let (file, released) = (DirectFile::device(hang.node)?, Arc::clone(&released));
        // One after the other: some complete before the disk hangs.
        thread::spawn(move || {
            let mut written = 0;
            while !released.load(Ordering::Relaxed) {
                file.write(1)?;
                written += 1;
            }
            io::Result::Ok(written)
        })
    };
    ask("hang", "hang");
    eventually("request in flight, and none completed meanwhile", || {
        let before = completed(loaded, hang)?;
        // A second of another disk's time.
        DirectFile::device(slow.node)?.write(20)?;
        match (in_flight(hang.node)?, completed(loaded, hang)? - before) {
            (1.., 0) => Ok(()),
            other => Err(io::Error::other(format!("{other:?}"))),
        }
    })
    .await;
    released.store(true, Ordering::Relaxed);
    assert!(!writer.is_finished(), "it waits for the disk");
    ask("release", "hang");
    let written: u64 = writer.join().expect("the writer does not panic")?;
    assert_eq!(completed(loaded, hang)?, written, "none is lost");
    assert_eq!(in_flight(hang.node)?, 0);
    let longest = Duration::from_nanos(entry(loaded, hang)?.max_ns);
    // It hung while the other disk wrote 20 blocks, at about 20 per second.
    assert!(longest > Duration::from_millis(250), "{longest:?}");
    Ok(format!(
        "the last of {written} requests took {} ms",
        longest.as_millis()
    ))
}

fn completed(loaded: &Loaded, disk: Disk<'_>) -> io::Result<u64> {
    Ok(disks::completed(&entry(loaded, disk)?))
}

fn entry(loaded: &Loaded, disk: Disk<'_>) -> io::Result<DiskEntry> {
    let entry = loaded.kernel.disk(disk.device);
    entry.ok_or_else(|| io::Error::other("the disk is not watched"))
}

/// Checks that an unreadable block is an error of the disk, and its neighbours are none.
pub(super) fn bad_block(loaded: &mut Loaded, disk: Disk<'_>) -> io::Result<String> {
    let watch = DiskEntry::new(1000 * MILLISECOND_NS, 1000 * MILLISECOND_NS);
    loaded.kernel.watch_disk(disk.device, watch)?;
    let file = fs::File::open(disk.node)?;
    let mut block = [0; 512];
    file.read_exact_at(&mut block, 0)?;
    let before = entry(loaded, disk)?.errors;
    assert_eq!(before, 0, "the first block can be read");
    let read = file.read_exact_at(&mut block, ask::BAD_BLOCK);
    let error = read.expect_err("it cannot be read").raw_os_error();
    assert!(
        error.is_some_and(|error| error == Errno::EIO as i32 || error == Errno::ENODATA as i32)
    );
    let errors = entry(loaded, disk)?.errors;
    assert!(errors > 0, "the error is counted");
    Ok(format!("errno {error:?}, {errors} failed requests"))
}

/// Checks that commands that programs send to the disk are no reads, and no errors of the disk if
/// they fail.
pub(super) async fn passthrough(loaded: &mut Loaded, disk: Disk<'_>) -> io::Result<String> {
    const FAILED: u32 = 5;
    let file = DirectFile::device(disk.node)?;
    let which = (name(disk.node)?, disk.device);
    let nvme = judged::Passthrough::NvmeRead;
    let sent = judged::passthrough(loaded, &file, which, nvme).await?;
    let node = fs::File::open(disk.node)?;
    for _ in 0..FAILED {
        // A block far beyond the end of the disk.
        assert_ne!(nvme_read(&node, 1 << 40)?, 0);
    }
    assert_eq!(entry(loaded, disk)?.errors, 0);
    Ok(format!("{sent}; {FAILED} failed"))
}

/// Checks that the disk is created on request, can be written to, and is removed.
pub(super) async fn plugged() -> io::Result<String> {
    assert!(disk("later").is_err(), "it was not requested yet");
    let ask_for = |verb| {
        move || {
            ask(verb, "later");
            Ok(())
        }
    };
    let is = |name: &str| name.starts_with("nvme");
    disks::announced(is, DiskAction::Added, ask_for("plug")).await?;
    let node = eventually("disk that is plugged in", || {
        let node = disk("later")?;
        // The node under /dev is created a moment after the directory.
        watched(&node)?;
        io::Result::Ok(node)
    })
    .await;
    DirectFile::device(&node)?.write(1)?;
    disks::announced(is, DiskAction::Removed, ask_for("unplug")).await?;
    eventually("end of the disk", || match disk("later") {
        Err(_) => Ok(()),
        Ok(there) => Err(there),
    })
    .await;
    Ok(format!("it was {}", node.display()))
}

/// Returns the number of reads and writes in flight.
fn in_flight(node: &Path) -> io::Result<u64> {
    let name = node.file_name().unwrap_or_default();
    let text = fs::read_to_string(Path::new("/sys/block").join(name).join("inflight"))?;
    let numbers = text.split_whitespace().map(str::parse::<u64>);
    numbers
        .sum::<Result<u64, _>>()
        .map_err(|_| io::Error::other(text.clone()))
}

/// Checks that each read of the unreadable block is an error of the disk.
pub(super) async fn failing(loaded: &mut Loaded, disk: Disk<'_>) -> io::Result<String> {
    let file = fs::File::open(disk.node)?;
    let read_bad = || {
        let mut block = [0; 512];
        file.read_exact_at(&mut block, ask::BAD_BLOCK)
    };
    disks::failing(loaded, disk, read_bad).await
}

/// Checks the kernel's counters of the throttled disk.
pub(super) fn counters() -> io::Result<String> {
    let slow = disk("slow")?;
    disks::counters(name(&slow)?, &DirectFile::device(&slow)?)
}

/// Makes tasks wait, and checks that the trigger fires.
pub(super) async fn waiting(check: Check, provoke: &Provoke) -> io::Result<String> {
    match check {
        Check::PsiMemory => {
            let at = Path::new("/tmp/thrash");
            fs::create_dir_all(at)?;
            let none: Option<&str> = None;
            mount(
                Some(&disk("ext4")?),
                at,
                Some("ext4"),
                MsFlags::empty(),
                none,
            )?;
            let result = psi::memory(provoke, at).await;
            umount(at)?;
            result
        }
        Check::DiskStalled => {
            let node = disk("hang")?;
            let hang = |on| {
                ask(if on { "hang" } else { "release" }, "hang");
                Ok(())
            };
            let device = watched(&node)?.device;
            psi::hung((name(&node)?, device), DirectFile::device(&node)?, hang).await
        }
        _ => psi::io(DirectFile::device(&disk("slow")?)?).await,
    }
}

/// Checks that there is a reason but no trigger if PSI is off in the kernel.
pub(super) fn no_pressure() -> io::Result<String> {
    psi::missing(StallKind::Io).ok_or_else(|| io::Error::other("there is a trigger"))
}

fn name(node: &Path) -> io::Result<&str> {
    let name = node.file_name().and_then(|name| name.to_str());
    name.ok_or_else(|| io::ErrorKind::InvalidData.into())
}
