//! Defines workloads whose tasks wait for memory: because the node is short of it, and because
//! their container is at its limit.
//!
//! Threads read random pages of a file that is a little larger than the memory that they may use:
//! each evicts pages that another uses, so that they wait for pages that were just in memory.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nodepulse_io::clock::Clock;

use super::unwell::meminfo;
use super::{Expected, Form, Prepared, Site, Workload, cannot_run, workload};
use crate::provoke::Load;
use crate::provoke::disk::DirectFile;

const MIB: u64 = 1 << 20;
/// Limit of the container that thrashes.
const LIMIT: u64 = 96 * MIB;
/// Size of its file.
const FILE_MIB: u64 = 128;
const THREADS: &str = "16";
/// The average over a minute reaches 15 % after 10 to 30 s. The agent detects a short node 11 s
/// after the trigger, and repeats this if the average is still too low.
const STALLED: Duration = Duration::from_secs(60);
/// The default of `psi.memory`, in percent.
const THRESHOLD: f32 = 15.0;
/// Limit, file in MiB and processes of a tenant.
const TENANT: (u64, u64, usize) = (64 * MIB, 96, 5);
/// Memory that a short node leaves for the pages of its file.
const LEFT: u64 = 96 * MIB;
/// Maximum time until the average is below 15 %: a minute and a half, and the last sample.
const ENDED: Duration = Duration::from_secs(150);
/// Duration that keeps the average over a minute below 15 %.
const BURST: Duration = Duration::from_secs(8);
/// Limit of the container that grows to just below it.
const GROWTH_LIMIT: u64 = 512 * MIB;

pub(super) fn workloads() -> Vec<Workload> {
    vec![burst(), growth(), tenant(), at_high()]
}

/// Returns the workloads that need a separate machine.
pub(super) fn in_machine() -> Vec<Workload> {
    vec![short_of_memory()]
}

/// Makes tasks wait for memory for a few seconds.
fn burst() -> Workload {
    let (form, expected) = (Form::Full, Expected::NoAlarm);
    workload("reclaim-burst", form, expected, |site| {
        set_up(site)?;
        Ok(Prepared::new(|control| {
            let averages = Averages::start();
            let thrash = thrash(control.site())?;
            pass(BURST);
            drop(thrash);
            // The kernel updates the averages every two seconds.
            pass(Duration::from_secs(4));
            averages.end()
        }))
    })
}

/// Allocates almost the limit of a container without swap, and keeps it.
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

/// Reads a file that is larger than the container's limit, as an unprivileged user.
fn tenant() -> Workload {
    let (form, expected) = (Form::Full, Expected::NoAlarm);
    workload("memory-tenant-at-limit", form, expected, |site| {
        let (limit, mib, processes) = TENANT;
        calm()?;
        site.limit("writer", limit)?;
        DirectFile::filled(Path::new(&site.path("data")), mib)?;
        Ok(Prepared::new(move |control| {
            let averages = Averages::start();
            let site = control.site();
            let data = site.path("data");
            let load = ["thrash-unprivileged", &data, "1", "3600"];
            let all = (0..processes).map(|_| site.load("writer", &load));
            let all: Vec<Load> = all.collect::<io::Result<_>>()?;
            pass(AS_LONG_AS_A_TENANT);
            drop(all);
            averages.end_stalled()
        }))
    })
}

/// Exceeds `memory.high`, at which the kernel slows the container down until it almost stops.
fn at_high() -> Workload {
    let (form, expected) = (Form::Full, Expected::NoAlarm);
    workload("memory-high-hang", form, expected, |site| {
        calm()?;
        let (limit, _, _) = TENANT;
        site.slow_down_above("writer", limit)?;
        Ok(Prepared::new(move |control| {
            let averages = Averages::start();
            let site = control.site();
            let load = site.load("writer", &["allocate", &(4 * limit / MIB).to_string()])?;
            pass(AS_LONG_AS_A_TENANT);
            drop(load);
            averages.end_stalled()
        }))
    })
}

/// Long enough for the average over a minute to exceed the threshold by far.
const AS_LONG_AS_A_TENANT: Duration = Duration::from_mins(5);

/// Fills most of the memory by one pod, so that the tasks of another wait for the rest, until the
/// condition is True.
fn short_of_memory() -> Workload {
    let expected = Expected::Alarm {
        condition: "MemoryStallPressure",
        reason: "Stalled",
        within: STALLED,
        culprit: Some("waiting most: pod shop/writer"),
    };
    workload("memory-stall", Form::Full, expected, |site| {
        calm()?;
        // With much more, most pages would be evicted for too long for the kernel to count reading
        // them as a wait for memory.
        DirectFile::filled(Path::new(&site.path("data")), LEFT / 2 * 3 / MIB)?;
        let load = Prepared::new(|control| {
            let averages = Averages::start();
            let site = control.site();
            let bytes = meminfo("MemAvailable:")?.saturating_sub(LEFT);
            let taken = site.provoke.allocate_in(&site.container("other"), bytes)?;
            control.begins();
            let thrash = thrash(site)?;
            control.until_noticed();
            drop((thrash, taken));
            averages.end()
        });
        // Prevents `MemoryLow`, which is not tested here.
        let load = load.threshold("memory.available", "1Mi");
        Ok(load
            .settings("evictionPressureTransitionPeriod: 10s\n")
            .ends_within(ENDED))
    })
}

fn set_up(site: &Site) -> io::Result<()> {
    calm()?;
    site.limit("writer", LIMIT)?;
    DirectFile::filled(Path::new(&site.path("data")), FILE_MIB)?;
    Ok(())
}

/// Waits after earlier stalls until the average over a minute is low: from 100 % within four
/// minutes.
fn calm() -> io::Result<()> {
    const CALM: f32 = 2.0;
    const ATTEMPTS: u32 = 300;
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

/// Starts a load that thrashes until it is dropped.
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

/// Samples the node's memory PSI for the maximum of each average.
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

    /// Formats the maximums.
    fn end(self) -> io::Result<String> {
        self.most().map(words)
    }

    /// Formats the maximums. Fails if one of them stayed below the threshold: then the absence of a
    /// condition proves nothing.
    fn end_stalled(self) -> io::Result<String> {
        let most = self.most()?;
        let text = words(most);
        if most.into_iter().any(|average| average < THRESHOLD) {
            return Err(io::Error::other(format!(
                "tasks did not wait enough: {text}"
            )));
        }
        Ok(text)
    }

    fn most(self) -> io::Result<[f32; 2]> {
        self.ended.store(true, Ordering::Relaxed);
        self.sampler.thread().unpark();
        self.sampler.join().map_err(|_| io::ErrorKind::Other)?
    }
}

fn words([ten, sixty]: [f32; 2]) -> String {
    format!("memory PSI avg10 {ten:.0} %, avg60 {sixty:.0} %;")
}

/// Returns `some` of the node over 10 s and over a minute, in percent.
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
