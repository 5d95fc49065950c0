//! Tasks that wait for memory: long enough for the condition, and not.
//!
//! Threads of a container read random pages of a file that is a little larger than the container's limit:
//! each evicts pages that another uses, so that they wait for pages that were just in memory.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nodepulse::clock::Clock;

use super::{Expected, Form, Prepared, Site, Workload, cannot_run, workload};
use crate::provoke::Load;
use crate::provoke::disk::DirectFile;

const MIB: u64 = 1 << 20;
/// Of the container that thrashes.
const LIMIT: u64 = 96 * MIB;
/// Of its file.
const FILE_MIB: u64 = 128;
const THREADS: &str = "8";
/// The average over a minute reaches 15 % after 10 to 30 s, and is read every 10 s.
const STALLED: Duration = Duration::from_secs(60);
/// The average falls below 15 % within a minute and a half.
const ENDED: Duration = Duration::from_secs(150);
/// The average over a minute stays below 15 %.
const BURST: Duration = Duration::from_secs(8);
/// Of the container that grows to just below its limit.
const GROWTH_LIMIT: u64 = 512 * MIB;

pub(super) fn workloads() -> Vec<Workload> {
    vec![burst(), growth(), stall()]
}

/// Tasks wait for memory for a few seconds.
fn burst() -> Workload {
    let (form, expected) = (Form::Full, Expected::NoAlarm);
    workload("reclaim-burst", form, expected, |site| {
        set_up(site)?;
        Ok(Prepared::new(|control| {
            let averages = Averages::start();
            let thrash = thrash(control.site())?;
            pass(BURST);
            drop(thrash);
            // The averages are brought up to date every two seconds.
            pass(Duration::from_secs(4));
            averages.end()
        }))
    })
}

/// A container without swap allocates almost as much as it may, and keeps it.
fn growth() -> Workload {
    let (form, expected) = (Form::Full, Expected::NoAlarm);
    workload("memory-near-limit", form, expected, |site| {
        calm()?;
        site.limit("other", GROWTH_LIMIT)?;
        Ok(Prepared::new(|control| {
            let averages = Averages::start();
            let site = control.site();
            let bytes = GROWTH_LIMIT / 100 * 95;
            let grown = site.provoke.allocate_in(&site.container("other"), bytes)?;
            pass(site.pace.load);
            drop(grown);
            averages.end()
        }))
    })
}

/// Tasks wait for memory until the condition is True; then it ends.
fn stall() -> Workload {
    let expected = Expected::Alarm {
        condition: "MemoryStallPressure",
        reason: "Stalled",
        within: STALLED,
        culprit: Some("memory stall (PSI some) of the node"),
    };
    workload("memory-stall", Form::Full, expected, |site| {
        set_up(site)?;
        let load = Prepared::new(|control| {
            let averages = Averages::start();
            control.begins();
            let thrash = thrash(control.site())?;
            control.until_noticed();
            drop(thrash);
            averages.end()
        });
        let load = load.settings("evictionPressureTransitionPeriod: 10s\n");
        Ok(load.ends_within(ENDED))
    })
}

fn set_up(site: &Site) -> io::Result<()> {
    calm()?;
    site.limit("writer", LIMIT)?;
    DirectFile::filled(Path::new(&site.path("data")), FILE_MIB)?;
    Ok(())
}

/// After earlier stalls, the average over a minute has to fall first.
fn calm() -> io::Result<()> {
    const CALM: f32 = 2.0;
    const ATTEMPTS: u32 = 180;
    for _ in 0..ATTEMPTS {
        let averages = averages().map_err(|err| cannot_run(format!("no PSI of memory: {err}")))?;
        let [_, sixty] = averages;
        if sixty < CALM {
            return Ok(());
        }
        pass(Duration::from_secs(1));
    }
    let seconds = ATTEMPTS;
    Err(io::Error::other(format!(
        "tasks of this machine wait for memory since {seconds} s"
    )))
}

/// Until it is dropped.
fn thrash(site: &Site) -> io::Result<Load> {
    site.load("writer", &["thrash", &site.path("data"), THREADS, "300"])
}

fn pass(time: Duration) {
    let clock = Clock::kernel();
    let start = clock.now().boot;
    while clock.now().boot.since(start) < time {
        thread::park_timeout(time);
    }
}

/// Samples the node's memory PSI; the most of each average.
struct Averages {
    ended: Arc<AtomicBool>,
    sampler: JoinHandle<io::Result<[f32; 2]>>,
}

impl Averages {
    fn start() -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ended);
        let sampler = thread::spawn(move || {
            let mut most = [0.0_f32; 2];
            while !until.load(Ordering::Relaxed) {
                for (most, now) in most.iter_mut().zip(averages()?) {
                    *most = most.max(now);
                }
                thread::park_timeout(Duration::from_millis(500));
            }
            Ok(most)
        });
        Self { ended, sampler }
    }

    /// In words.
    fn end(self) -> io::Result<String> {
        self.ended.store(true, Ordering::Relaxed);
        self.sampler.thread().unpark();
        let most = self.sampler.join().map_err(|_| io::ErrorKind::Other)?;
        let [ten, sixty] = most?;
        Ok(format!("memory PSI avg10 {ten:.0} %, avg60 {sixty:.0} %;"))
    }
}

/// `some` of the node: over 10 s and over a minute, in percent.
fn averages() -> io::Result<[f32; 2]> {
    let text = fs::read_to_string("/proc/pressure/memory")?;
    let average = |name| {
        let words = text.lines().next()?.split(' ');
        let mut found = words.filter_map(|word| word.strip_prefix(name)?.parse().ok());
        found.next()
    };
    let both = average("avg10=").zip(average("avg60="));
    both.map(|(ten, sixty)| [ten, sixty])
        .ok_or_else(|| io::Error::other(text.clone()))
}
