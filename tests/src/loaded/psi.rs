//! Checks real triggers on stalls, and the counters of a disk that hangs.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nodepulse_core::pressure::disks::{DiskBoard, DiskRules, DiskSample, Health, LatencySource};
use nodepulse_core::reading::{DiskRole, Stall, StallKind, StallOf};
use nodepulse_core::record::{Received, Record};
use nodepulse_core::units::DeviceNumber;
use nodepulse_io::clock::Clock;
use nodepulse_linux::host::{HostRoot, block};
use nodepulse_linux::os::psi;
use tokio::sync::mpsc;

use crate::SOON;
use crate::provoke::Provoke;
use crate::provoke::cgroup::CgroupTree;
use crate::provoke::disk::DirectFile;

/// Percentage at which a trigger fires.
const THRESHOLD: f32 = 15.0;

/// Returns why there is no trigger here.
pub fn missing(kind: StallKind) -> Option<String> {
    open(kind).err().map(|why| why.to_string())
}

fn open(kind: StallKind) -> Result<psi::Trigger, psi::TriggerError> {
    let path = Path::new("/proc/pressure").join(kind.as_str());
    psi::open(&path, Stall::new(StallOf::Node, kind), THRESHOLD)
}

/// Sets a trigger and starts to wait for it. Must be called in a runtime.
fn listen(kind: StallKind) -> io::Result<mpsc::Receiver<Received>> {
    let trigger = open(kind).map_err(io::Error::other)?;
    let (send, events) = mpsc::channel(16);
    tokio::spawn(psi::read(trigger, Clock::kernel(), send));
    Ok(events)
}

/// Waits until it fires. Panics if it does not within [`SOON`].
async fn fires(events: &mut mpsc::Receiver<Received>, kind: StallKind) {
    let received = tokio::time::timeout(SOON, events.recv()).await;
    let received = received.unwrap_or_else(|_| panic!("no {kind:?} stall within {SOON:?}"));
    let event = received.expect("the trigger is read").record;
    let stall = Stall::new(StallOf::Node, kind);
    let is = matches!(event, Ok(Record::Stall { stall: reported, .. }) if reported == stall);
    assert!(is, "{event:?}");
}

/// Checks that the trigger on I/O fires while a file is written with direct I/O.
pub async fn io(file: DirectFile) -> io::Result<String> {
    let mut events = listen(StallKind::Io)?;
    let busy = Busy::start(move || file.write_together().map(drop));
    fires(&mut events, StallKind::Io).await;
    let rounds = busy.end()?;
    Ok(format!("fired within {rounds} rounds of writing"))
}

/// Checks that the trigger on memory fires while a cgroup reads a file that is a little larger than
/// its limit, so that evicted pages are read again soon. `dir` is on a disk.
pub async fn memory(provoke: &Provoke, dir: &Path) -> io::Result<String> {
    const LIMIT: u64 = 8 << 20;
    let tree = CgroupTree::new("nodepulse-test-thrash")?;
    tree.limit("", LIMIT)?;
    let file = tempfile::NamedTempFile::new_in(dir)?;
    fs::write(file.path(), vec![1_u8; 10 << 20])?;
    file.as_file().sync_all()?;
    let mut events = listen(StallKind::Memory)?;
    let thrash = provoke.thrash_in(&tree.dir(""), file.path())?;
    fires(&mut events, StallKind::Memory).await;
    drop(thrash);
    Ok("fired".to_owned())
}

/// The minimum of `diskIO.stalledAfter`.
const STALLED_AFTER: Duration = Duration::from_secs(2);

/// Checks that a disk that `hang(true)` stops is stalled according to two samples of its counters,
/// the first when the trigger fires, and healthy again after `hang(false)`.
pub async fn hung(
    disk: (&str, DeviceNumber),
    file: DirectFile,
    hang: impl Fn(bool) -> io::Result<()>,
) -> io::Result<String> {
    let (name, device) = disk;
    let mut events = listen(StallKind::Io)?;
    let rules = DiskRules {
        slow_for: Duration::from_secs(15),
        min_stall: 10.0,
        stalled_after: STALLED_AFTER,
    };
    let mut board = DiskBoard::new(rules, LatencySource::Program);
    board.watch(device, name.to_owned(), DiskRole::Node, STALLED_AFTER);
    hang(true)?;
    let start = Clock::kernel().now().boot;
    let hanging = Hanging(&hang);
    let busy = Busy::start(move || file.write(1));
    fires(&mut events, StallKind::Io).await;
    let samples = until(&mut board, disk, Health::Stalled).await;
    let took = Clock::kernel().now().boot.since(start).as_millis();
    assert!(samples >= 2, "one sample is no proof");
    drop(hanging);
    let more = until(&mut board, disk, Health::Healthy).await;
    busy.end()?;
    Ok(format!(
        "stalled after {took} ms and {samples} samples, healthy after {more} more"
    ))
}

/// Ends the hang on drop, also after a panic.
struct Hanging<'a, F: Fn(bool) -> io::Result<()>>(&'a F);

impl<F: Fn(bool) -> io::Result<()>> Drop for Hanging<'_, F> {
    fn drop(&mut self) {
        if let Err(err) = self.0(false) {
            eprintln!("the disk still hangs: {err}");
        }
    }
}

/// Samples like an agent that suspects a hung disk, and returns the number of samples.
async fn until(board: &mut DiskBoard, disk: (&str, DeviceNumber), health: Health) -> u32 {
    let (name, device) = disk;
    let root = HostRoot::new("/");
    let mut samples = 0;
    let search = async {
        while board.health(device) != Some(health) {
            let now = Clock::kernel().now().boot;
            let counters = block::counters(&root, name);
            let counters = counters
                .expect("the counters make sense")
                .expect("it is there");
            let sample = DiskSample {
                completed: counters.reads + counters.writes + counters.others,
                in_flight: counters.in_flight,
                ..DiskSample::default()
            };
            board.suspect(now);
            board.apply_sample(device, sample, None, now);
            samples += 1;
            let next = board.sample_at().map(|at| at.since(now));
            tokio::time::sleep(next.unwrap_or(STALLED_AFTER)).await;
        }
    };
    let found = tokio::time::timeout(SOON, search).await;
    found.unwrap_or_else(|_| panic!("{name} is {:?}, not {health:?}", board.health(device)));
    samples
}

/// Work that is repeated on a separate thread, until this is ended or dropped.
struct Busy {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<u32>>>,
}

impl Busy {
    fn start(work: impl Fn() -> io::Result<()> + Send + 'static) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        let thread = thread::spawn(move || {
            let mut rounds = 0;
            while !stop.load(Ordering::Relaxed) {
                work()?;
                rounds += 1;
            }
            Ok(rounds)
        });
        Self {
            over,
            thread: Some(thread),
        }
    }

    /// Returns the number of repetitions.
    fn end(mut self) -> io::Result<u32> {
        self.over.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it was started");
        thread.join().expect("the work does not panic")
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}
