//! Reads OOM kills from the kernel log, if no program reports them: opens, polls and drains
//! `/dev/kmsg`, parses it with [`nodepulse_core::record::kmsg`], and sends the kills to the loop.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc::O_NONBLOCK;
use nodepulse_core::record::kmsg::KmsgParser;
use nodepulse_core::record::{Received, Record};
use nodepulse_io::clock::Clock;
use nodepulse_io::fd;
use tokio::io::Interest;
use tokio::sync::mpsc;
use tracing::warn;

/// Path of the log below the host root.
pub const PATH: &str = "dev/kmsg";

/// Size of the longest record, with every byte escaped: `CONSOLE_EXT_LOG_MAX`.
const RECORD: usize = 8192;

/// Number of records that are read before other tasks run.
const BATCH: usize = 256;

/// Time limit for the last line of a kill. It follows within about 50 µs (Linux 6.18), or later
/// with a slow console. After this time the kill is reported without its memory sizes.
const LAST_LINE: Duration = Duration::from_millis(200);

/// Opens the log after its newest record, so that earlier kills are not reported. Requires
/// `CAP_SYSLOG` if `kernel.dmesg_restrict` is 1, for opening but not for reading. Fails with
/// [`io::ErrorKind::NotFound`] in a container without the device.
pub fn open(path: &Path) -> io::Result<File> {
    let mut log = OpenOptions::new()
        .read(true)
        .custom_flags(O_NONBLOCK)
        .open(path)?;
    log.seek(SeekFrom::End(0))?;
    Ok(log)
}

/// Sends every kill that is logged from now on, until the receiver is dropped.
///
/// # Cost
///
/// One wake-up per burst of records.
pub async fn read(log: File, clock: Clock, records: mpsc::Sender<Received>) -> io::Result<()> {
    let mut file = fd::watch(log, Interest::READABLE)?;
    let mut log = KmsgParser::default();
    let mut buf = vec![0; RECORD];
    loop {
        file.readable().await?.clear_ready();
        while drain(&mut file.get_mut().0, &mut log, &mut buf)? {
            if log.is_full() {
                send(&mut log, clock, &records).await;
            }
            tokio::task::yield_now().await;
        }
        if log.is_incomplete() {
            let more = tokio::time::timeout(LAST_LINE, file.readable()).await;
            if let Ok(ready) = more {
                // The log is still ready: the next iteration drains it.
                ready?.retain_ready();
                continue;
            }
        }
        send(&mut log, clock, &records).await;
        if records.is_closed() {
            return Ok(());
        }
    }
}

async fn send(log: &mut KmsgParser, clock: Clock, records: &mpsc::Sender<Received>) {
    let read = clock.now().boot;
    for kill in log.take(read) {
        let record = Ok(Record::LoggedKill(Box::new(kill)));
        if records.send(Received { read, record }).await.is_err() {
            return;
        }
    }
}

/// Returns `true` if records may be left.
fn drain(file: &mut File, log: &mut KmsgParser, buf: &mut [u8]) -> io::Result<bool> {
    for _ in 0..BATCH {
        match file.read(buf) {
            // The log has no end; some containers mount another file in its place.
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => log.record(buf.get(..len).unwrap_or_default()),
            Err(err) if err.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => match err.raw_os_error().map(Errno::from_raw) {
                // The kernel continues with the oldest record that is left.
                Some(Errno::EPIPE) => {
                    let losses = log.lost();
                    if losses.is_power_of_two() {
                        warn!(losses, "the kernel log was overwritten before it was read");
                    }
                }
                Some(Errno::EINVAL) => warn!("skipped a kernel log record that is too long"),
                _ => return Err(err),
            },
        }
        if log.is_full() {
            break;
        }
    }
    Ok(true)
}
