//! Checks which requests to disks are slow, and which do not count at all.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use agent_common::settings::{CLASS_JUDGED, CLASS_WRITE, ERRORS_PER_WINDOW};
use agent_common::{DiskEntry, DropReason};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount, umount};
use nodepulse_core::clock::BootNanos;
use nodepulse_core::reading::{DiskError, DiskReport, SlowWindow};
use nodepulse_core::record::{DiskAction, Record};
use nodepulse_core::units::DeviceNumber;
use nodepulse_io::clock::Clock;
use nodepulse_linux::host::{HostRoot, block};
use nodepulse_linux::os::uevent;
use tokio::sync::mpsc;

use super::Loaded;
use crate::provoke::disk::DirectFile;
use crate::{SOON, eventually};

const HOUR_NS: u64 = 3_600_000_000_000;
const MILLISECOND_NS: u64 = 1_000_000;

#[derive(Debug, Clone, Copy)]
pub struct Disk<'a> {
    /// Path below `/dev`, which is opened for direct I/O, and written to.
    pub node: &'a Path,
    /// Number in the kernel's records.
    pub device: DeviceNumber,
}

/// Checks that requests over the limit make a window of the disk under `file` slow, and those under
/// it do not. The histogram must be as good as a sample of a quarter.
pub async fn limit(
    loaded: &mut Loaded,
    file: &DirectFile,
    device: DeviceNumber,
) -> io::Result<String> {
    let watch = |ns| DiskEntry::new(ns, MILLISECOND_NS);
    loaded.kernel.watch_disk(device, watch(HOUR_NS))?;
    // The kernel may still count the last use before the disk was watched.
    let begun = eventually("first request", || {
        file.write(1).expect("the disk takes it");
        match completed(&entry(loaded, device)) {
            0 => Err(()),
            some => Ok(some),
        }
    });
    let begun = begun.await;
    (0..4000).try_for_each(|_| file.read(0))?;
    let entry = entry(loaded, device);
    let completed = completed(&entry);
    // On a busy machine some runs of a program are omitted: up to 60 of 4,000 were.
    assert!(completed >= begun + 3600, "{completed} completed");
    let of_reads = entry.completed[CLASS_JUDGED];
    assert!(of_reads >= 3600, "direct reads are judged: {of_reads}");
    assert_eq!(entry.slow, 0, "nothing takes an hour");
    // Six times the standard deviation of such a sample.
    let in_buckets: u64 = entry.histogram.iter().flatten().sum();
    let off = in_buckets.abs_diff(completed);
    assert!(off < completed / 6, "{in_buckets} in the histogram");
    assert!(
        entry.sum_ns[0] > 0 && entry.sum_ns[1] > 0,
        "both were timed"
    );

    // Every request exceeds a nanosecond.
    loaded.kernel.watch_disk(device, watch(1))?;
    file.write(200)?;
    let (_, window) = loaded.next("slow window", |e| window_of(e, device)).await;
    assert!(window.judged > 0, "{window:?}");
    assert_eq!(window.slow, window.judged, "all of them are over the limit");
    let losses = loaded.kernel.losses()?;
    assert!(losses.contains(&(DropReason::NoStartTime, 0)));
    Ok(format!(
        "{completed} completed, {in_buckets} by the histogram"
    ))
}

/// Checks that windows of a disk that completes 20 requests per second are slow, from the first one
/// on, and those of another without a limit never.
pub async fn throttled(loaded: &mut Loaded, slow: Disk<'_>, fast: Disk<'_>) -> io::Result<String> {
    const WINDOW: Duration = Duration::from_secs(1);
    // The throttled disk takes 50 ms for a request, which the other exceeds on no machine.
    let watch = || DiskEntry::new(25 * MILLISECOND_NS, 1000 * MILLISECOND_NS);
    let files = [slow, fast].map(|disk| DirectFile::device(disk.node));
    for disk in [slow, fast] {
        loaded.kernel.watch_disk(disk.device, watch())?;
    }
    let start = Clock::kernel().now().boot;
    let [at_slow, at_fast] = files.map(|file| thread::spawn(move || file?.write(40)));
    let (end, first) = loaded
        .next("slow window", |event| window_of(event, slow.device))
        .await;
    let took = end.since(start);
    assert!(first.slow * 2 >= first.judged, "{first:?}");
    assert!(took >= WINDOW && took < WINDOW * 13 / 10, "after {took:?}");
    let (length, longest) = (WINDOW * 13 / 10, WINDOW);
    assert!(first.length >= WINDOW && first.length < length, "{first:?}");
    assert!(first.longest < longest, "{first:?}");
    for writer in [at_slow, at_fast] {
        writer.join().expect("the writer does not panic")?;
    }
    let seen = loaded.all_within(Duration::from_millis(200)).await;
    let of_fast = seen.iter().find_map(|event| window_of(event, fast.device));
    assert_eq!(of_fast, None, "the fast disk stays quiet");
    let quick = entry(loaded, fast.device);
    assert!(completed(&quick) >= 40, "{:?} completed", quick.completed);
    assert_eq!(quick.slow, 0);
    Ok(format!(
        "slow after {} ms and {} requests",
        took.as_millis(),
        first.judged
    ))
}

/// Checks that failed reads are reported, and only a few of them if there are many.
pub async fn failing(
    loaded: &mut Loaded,
    disk: Disk<'_>,
    read_bad: impl Fn() -> io::Result<()>,
) -> io::Result<String> {
    const FAILED: u64 = 10;
    // Discards records of earlier errors.
    loaded.all_within(Duration::from_millis(100)).await;
    // No request takes an hour, and no window ends.
    let watch = DiskEntry::new(HOUR_NS, HOUR_NS);
    loaded.kernel.watch_disk(disk.device, watch)?;
    for _ in 0..FAILED {
        read_bad().expect_err("the disk cannot read this");
    }
    let seen = loaded.all_within(Duration::from_millis(200)).await;
    let errors = seen.iter().filter_map(|event| match event {
        Record::DiskReported {
            device,
            report: DiskReport::Error(DiskError { write, errno }),
            ..
        } if *device == disk.device => Some((*write, *errno)),
        _ => None,
    });
    let errors: Vec<_> = errors.collect();
    let entry = entry(loaded, disk.device);
    assert!(entry.errors >= FAILED, "{} counted", entry.errors);
    assert_eq!(entry.errors_reported, ERRORS_PER_WINDOW);
    assert_eq!(errors.len() as u64, ERRORS_PER_WINDOW, "{errors:?}");
    for (write, number) in &errors {
        assert!(!write, "a read failed");
        // A reader through the page cache gets EIO, whatever the disk returned.
        let expected = [Errno::EIO as i32, Errno::ENODATA as i32];
        assert!(expected.contains(number), "{number}");
    }
    assert_eq!(completed(&entry), 0, "a failed request is not counted");
    Ok(format!("{} failed requests, {errors:?}", entry.errors))
}

/// Checks that changes to this disk are announced.
pub async fn announced(
    is: impl Fn(&str) -> bool,
    action: DiskAction,
    act: impl FnOnce() -> io::Result<()>,
) -> io::Result<String> {
    let socket = uevent::open()?;
    let (send, mut events) = mpsc::channel(64);
    tokio::spawn(uevent::read(socket, Clock::kernel(), send));
    act()?;
    let search = async {
        loop {
            let received = events.recv().await.expect("the socket is read");
            match received.record {
                Ok(Record::Disk(change)) if is(&change.name) && change.action == action => {
                    return change;
                }
                _ => {}
            }
        }
    };
    let found = tokio::time::timeout(SOON, search).await;
    let change = found.unwrap_or_else(|_| panic!("no {action:?} within {SOON:?}"));
    Ok(format!("{} is {}", change.name, change.device))
}

/// Checks that the counters of `disk` increase with writes, and that the average wait is what the
/// writer measured.
pub fn counters(name: &str, file: &DirectFile) -> io::Result<String> {
    const COUNT: u64 = 40;
    let read = || {
        let found = block::counters(&HostRoot::new("/"), name).map_err(io::Error::other)?;
        found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    };
    let before = read()?;
    let start = Clock::kernel().now().boot;
    file.write(COUNT)?;
    let took = Clock::kernel().now().boot.since(start);
    let after = read()?;
    let (writes, ms) = (
        after.writes - before.writes,
        after.write_ms - before.write_ms,
    );
    assert!(writes >= COUNT, "{writes} of {COUNT} writes");
    Ok(format!(
        "{writes} writes, {ms} ms by the counters, {} ms here",
        took.as_millis()
    ))
}

/// Checks that flushes, and zeroing blocks without data, are no reads or writes, however long they
/// take.
pub async fn flush_and_zero(loaded: &mut Loaded, disk: Disk<'_>) -> io::Result<String> {
    let file = DirectFile::device(disk.node)?;
    // Without a write, there is nothing to flush; the rest of it must not be in the counts.
    file.write(1)?;
    loaded
        .kernel
        .watch_disk(disk.device, DiskEntry::new(1, MILLISECOND_NS))?;
    for _ in 0..20 {
        file.flush()?;
    }
    file.punch(20)?;
    let entry = entry(loaded, disk.device);
    assert_eq!((completed(&entry), entry.slow, entry.errors), (0, 0, 0));
    file.write(1)?;
    let completed = self::entry(loaded, disk.device).completed;
    let mut expected = [0; 4];
    expected[CLASS_JUDGED | CLASS_WRITE] = 1;
    assert_eq!(completed, expected, "a small direct write is judged");
    Ok("20 flushes, 20 zeroed blocks: none counted".to_owned())
}

/// Writes a file to the ext4 file system on `disk`, mounted at `at`, and deletes it: the probe
/// counts the reads and writes that moved data, the journal's with their flushes included, and
/// neither empty flushes nor discards. The other count is taken from the tracepoint's text.
pub async fn discard(loaded: &mut Loaded, disk: Disk<'_>, at: &Path) -> io::Result<String> {
    let watch = DiskEntry::new(HOUR_NS, 1000 * MILLISECOND_NS);
    loaded.kernel.watch_disk(disk.device, watch)?;
    fs::write(Path::new(TRACING).join("trace"), "")?;
    let switch = Path::new(TRACING).join("events/block/block_rq_complete/enable");
    fs::write(&switch, "1")?;
    let ext4 = Some("ext4");
    mount(Some(disk.node), at, ext4, MsFlags::empty(), Some("discard"))?;
    let path = at.join("file");
    fs::write(&path, vec![1_u8; 8 << 20])?;
    nix::unistd::sync();
    fs::remove_file(&path)?;
    nix::unistd::sync();
    // The file system discards asynchronously.
    eventually("discard", || match traced(disk.device) {
        Ok(now) if now.discards > 0 => Ok(()),
        other => Err(other),
    })
    .await;
    umount(at)?;
    fs::write(&switch, "0")?;
    let traced = traced(disk.device)?;
    let completed = completed(&entry(loaded, disk.device));
    assert_eq!(completed, traced.reads_and_writes, "{traced:?}");
    Ok(format!("{completed} counted of {traced:?}"))
}

/// The mount of the kernel's tracing.
const TRACING: &str = "/sys/kernel/tracing";

/// Numbers of completions.
#[derive(Debug, Default, PartialEq, Eq)]
struct Traced {
    /// Requests with data.
    reads_and_writes: u64,
    discards: u64,
    /// Flushes, and writes without data that only carry one.
    others: u64,
}

fn traced(of: DeviceNumber) -> io::Result<Traced> {
    let text = fs::read_to_string(Path::new(TRACING).join("trace"))?;
    let device = format!("{},{}", of.major, of.minor);
    Ok(count(&text, &device))
}

/// Parses lines such as `… block_rq_complete: 259,2 FWFS () 4096 + 8 [0]`. The letters are those of
/// `blk_fill_rwbs` (`kernel/trace/blktrace.c`).
fn count(text: &str, device: &str) -> Traced {
    let mut traced = Traced::default();
    for line in text.lines() {
        let event = line.split_once("block_rq_complete: ");
        let words: Vec<&str> = event.map_or("", |(_, e)| e).split_whitespace().collect();
        let [of, letters, _, _, "+", sectors, ..] = words[..] else {
            continue;
        };
        if of != device {
            continue;
        }
        if letters.contains('D') {
            traced.discards += 1;
        } else if letters.contains(['R', 'W']) && !letters.contains('Z') && sectors != "0" {
            traced.reads_and_writes += 1;
        } else {
            traced.others += 1;
        }
    }
    traced
}

/// Returns the slow window in a record about this disk, and the end of the window.
pub fn window_of(event: &Record, of: DeviceNumber) -> Option<(BootNanos, SlowWindow)> {
    match event {
        Record::DiskReported {
            at,
            device,
            report: DiskReport::SlowWindow(window),
        } if *device == of => Some((*at, *window)),
        _ => None,
    }
}

/// Returns the number of completed reads and writes.
pub fn completed(entry: &DiskEntry) -> u64 {
    entry.completed.iter().sum()
}

fn entry(loaded: &Loaded, device: DeviceNumber) -> DiskEntry {
    loaded.kernel.disk(device).expect("the disk is watched")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_classified_by_operation_and_length() {
        let text = "\
# entries-in-buffer/entries-written: 5/5   #P:1
     init-1  [000] d..2.  1.0: block_rq_complete: 259,2 RSM () 0 + 8 [0]
     init-1  [000] d..2.  1.1: block_rq_complete: 259,2 FWFS () 64 + 8 none,0,0 [0]
     init-1  [000] d..2.  1.2: block_rq_complete: 259,2 WS () 64 + 0 [0]
     init-1  [000] d..2.  1.3: block_rq_complete: 259,2 DS () 64 + 8 [0]
     init-1  [000] d..2.  1.4: block_rq_complete: 259,1 WS () 64 + 8 [0]
     init-1  [000] d..2.  1.5: block_rq_complete: 259,2 FF () 0 + 0 [0]
";
        let expected = Traced {
            reads_and_writes: 2,
            discards: 1,
            others: 2,
        };
        assert_eq!(count(text, "259,2"), expected);
    }
}
