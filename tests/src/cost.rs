//! The cost of the probes: nanoseconds for each run, and how much longer work that triggers them
//! longer.
//!
//! The first is counted by the kernel (`BPF_ENABLE_STATS`), less what an empty program on the same
//! tracepoint is charged, since most of that is the counting. The second is a loop, by turns with
//! and without the programs of the agent.

use std::hint::black_box;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use agent_common::{DiskEntry, PidSettings};
use aya::sys::{Stats, enable_stats};
use nix::time::{ClockId, clock_gettime};
use nodepulse_core::units::DeviceNumber;
use nodepulse_linux::kernel::Probe;

use crate::loaded::testing::{EMPTY_COMPLETE, EMPTY_FORK, Testing, tracepoint};
use crate::provoke::disk::{DirectFile, disk_of};

pub mod spread;

use spread::Spread;

/// Duration of each measurement.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Number of measurements with the programs, each followed by one without.
    pub pairs: u32,
    /// Threads that are started and joined in one measurement.
    pub forks: u32,
    /// Blocks that are read in one measurement.
    pub reads: u32,
}

#[derive(Debug, serde::Serialize)]
pub struct Costs {
    /// Number of pairs behind each figure.
    pub pairs: u32,
    /// In nanoseconds.
    pub fork: Net,
    /// In nanoseconds.
    pub completion: Net,
    /// Durations of starting and joining a thread.
    pub forks: Paired,
    /// Durations of reading a block of 4 KiB with direct I/O.
    pub reads: Paired,
}

/// Compares one program with the empty one.
#[derive(Debug, serde::Serialize)]
pub struct Net {
    /// Nanoseconds for each run of the empty program.
    pub empty: Spread,
    /// Nanoseconds for each run of the probe, less those of the empty program in the same pair.
    pub net: Spread,
}

/// Compares a loop with the programs attached and without them.
#[derive(Debug, serde::Serialize)]
pub struct Paired {
    /// Microseconds for each operation without the programs.
    pub without: Spread,
    /// Time with the programs, divided by the time without them in the same pair.
    pub ratio: Spread,
    /// Time without the programs, divided by that of the pair before: the difference between two
    /// equal runs.
    pub noise: Spread,
}

/// Measures everything. `dir` contains a file that is read; it must be on a disk.
pub fn measure(dir: &Path, effort: Effort) -> io::Result<Costs> {
    let mut testing = Testing::load()?;
    let disk = disk_of(dir).ok_or_else(|| {
        let dir = dir.display();
        io::Error::other(format!("{dir} is not on a disk"))
    })?;
    prepare(&mut testing, &disk)?;
    let file = DirectFile::create(dir)?;
    file.write(u64::from(BLOCKS))?;
    let forks = || fork(effort.forks);
    let reads = || read(&file, effort.reads);
    Ok(Costs {
        pairs: effort.pairs,
        fork: net(&mut testing, Probe::PidFork, EMPTY_FORK, effort, &forks)?,
        completion: net(
            &mut testing,
            Probe::DiskComplete,
            EMPTY_COMPLETE,
            effort,
            &reads,
        )?,
        forks: paired(&mut testing, effort.forks, effort.pairs, &forks)?,
        reads: paired(&mut testing, effort.reads, effort.pairs, &reads)?,
    })
}

/// The programs on a current kernel, except the pair that runs when the kernel selects a victim.
const USUAL: [Probe; 3] = [Probe::OomVictim, Probe::PidFork, Probe::DiskComplete];

/// Configures a healthy node: levels that are far away, and a disk that is watched.
fn prepare(testing: &mut Testing, disk: &(String, u32, u32)) -> io::Result<()> {
    const SECOND_NS: u64 = 1_000_000_000;
    testing.set_pid_settings(PidSettings {
        high: 1 << 22,
        low: 1 << 21,
        trend_step: 1 << 16,
        pad: 0,
    })?;
    let (_, major, minor) = *disk;
    let entry = DiskEntry::new(10 * SECOND_NS, SECOND_NS);
    testing.watch_disk(DeviceNumber { major, minor }, entry)
}

fn net(
    testing: &mut Testing,
    probe: Probe,
    empty: &'static str,
    effort: Effort,
    work: &dyn Fn() -> io::Result<()>,
) -> io::Result<Net> {
    let at = tracepoint(probe)?;
    // Stops counting on drop, also on errors: the kernel counts while the descriptor is open.
    let _counting = enable_stats(Stats::RunTime).map_err(io::Error::other)?;
    let mut each = |program| {
        let link = testing.attach(program, at)?;
        let before = testing.runs(program)?;
        work()?;
        let after = testing.runs(program)?;
        testing.detach(link)?;
        let time = after.time.saturating_sub(before.time).as_secs_f64();
        let count = u32::try_from(after.count - before.count).map_err(io::Error::other)?;
        io::Result::Ok(time * 1e9 / f64::from(count.max(1)))
    };
    // The first run loads it, and looks up its values once.
    each(probe.program())?;
    let mut empties = Vec::new();
    let mut nets = Vec::new();
    for n in 0..effort.pairs {
        let (of_probe, of_empty) = if n % 2 == 0 {
            let of_probe = each(probe.program())?;
            (of_probe, each(empty)?)
        } else {
            let of_empty = each(empty)?;
            (each(probe.program())?, of_empty)
        };
        empties.push(of_empty);
        nets.push(of_probe - of_empty);
    }
    Ok(Net {
        empty: Spread::of(empties),
        net: Spread::of(nets),
    })
}

fn paired(
    testing: &mut Testing,
    operations: u32,
    pairs: u32,
    work: &dyn Fn() -> io::Result<()>,
) -> io::Result<Paired> {
    let timed = || -> io::Result<f64> {
        let before = monotonic()?;
        work()?;
        Ok((monotonic()? - before).as_secs_f64())
    };
    let attached = |testing: &mut Testing| -> io::Result<f64> {
        let links: Vec<_> = USUAL
            .iter()
            .map(|probe| testing.attach_probe(*probe))
            .collect::<io::Result<_>>()?;
        let took = timed()?;
        links
            .into_iter()
            .try_for_each(|link| testing.detach(link))?;
        Ok(took)
    };
    timed()?;
    let (mut without, mut ratio) = (Vec::new(), Vec::new());
    for n in 0..pairs {
        let (with, none) = if n % 2 == 0 {
            let with = attached(testing)?;
            (with, timed()?)
        } else {
            let none = timed()?;
            (attached(testing)?, none)
        };
        without.push(none);
        ratio.push(with / none);
    }
    let noise = without.iter().zip(without.iter().skip(1));
    Ok(Paired {
        noise: Spread::of(noise.map(|(one, next)| next / one).collect()),
        without: Spread::of(
            without
                .iter()
                .map(|s| s * 1e6 / f64::from(operations))
                .collect(),
        ),
        ratio: Spread::of(ratio),
    })
}

/// Starts threads, the cheapest kind of fork, of which a probe takes the largest share.
fn fork(count: u32) -> io::Result<()> {
    for n in 0..count {
        let thread = thread::Builder::new().spawn(move || black_box(n))?;
        let _: u32 = thread.join().map_err(|_| io::ErrorKind::Other)?;
    }
    Ok(())
}

/// Number of blocks of the file that is read.
const BLOCKS: u32 = 256;

fn read(file: &DirectFile, count: u32) -> io::Result<()> {
    (0..count).try_for_each(|n| file.read(u64::from(n % BLOCKS)))
}

fn monotonic() -> io::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_MONOTONIC)?.into())
}
