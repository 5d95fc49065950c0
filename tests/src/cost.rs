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
    /// By turns so often with the one and with the other.
    pub pairs: u32,
    /// Threads that are started and joined in one turn.
    pub forks: u32,
    /// Blocks that are read in one turn.
    pub reads: u32,
}

/// What was found.
#[derive(Debug, serde::Serialize)]
pub struct Costs {
    /// Pairs behind each figure.
    pub pairs: u32,
    /// Of the fork probe, in nanoseconds.
    pub fork: Net,
    /// Of the completion probe, in nanoseconds.
    pub completion: Net,
    /// Starting and joining a thread.
    pub forks: Paired,
    /// Reading a block of 4 KiB past the page cache.
    pub reads: Paired,
}

/// One program against the empty one.
#[derive(Debug, serde::Serialize)]
pub struct Net {
    /// Nanoseconds each time the empty program ran.
    pub empty: Spread,
    /// The same of the probe, less those of the empty program in the same pair.
    pub net: Spread,
}

/// One loop with the programs attached and without them.
#[derive(Debug, serde::Serialize)]
pub struct Paired {
    /// Microseconds an operation, without.
    pub without: Spread,
    /// Time with the programs, by the time without them, in the same pair.
    pub ratio: Spread,
    /// Time without them, by the time without them in the pair before: how much two equal runs
    /// differ.
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

/// As on a node that is well: levels that are far, and a disk that is watched.
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
    // Ends with this value, also on errors: the kernel counts while the descriptor is open.
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

/// Starting a thread is the cheapest fork there is, so that a probe weighs most.
fn fork(count: u32) -> io::Result<()> {
    for n in 0..count {
        let thread = thread::Builder::new().spawn(move || black_box(n))?;
        let _: u32 = thread.join().map_err(|_| io::ErrorKind::Other)?;
    }
    Ok(())
}

/// Blocks of the file that is read.
const BLOCKS: u32 = 256;

fn read(file: &DirectFile, count: u32) -> io::Result<()> {
    (0..count).try_for_each(|n| file.read(u64::from(n % BLOCKS)))
}

fn monotonic() -> io::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_MONOTONIC)?.into())
}
