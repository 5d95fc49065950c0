//! Runs the checks in a virtual machine, and prints their results: one line each on the console.
//!
//! ```text
//! vm-kernel: <release> <milliseconds since boot>
//! vm-plan: <name> <name> …
//! vm-test: <name> ok|FAILED|skipped <milliseconds> <detail>
//! vm-ask: <verb> <serial number>
//! vm-done
//! ```
//!
//! `cargo xtask vm` reads them. A name of the plan without a line is a failure: the kernel panicked
//! or PID 1 ended.

// tidy: long: each check has a line in four lists.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nodepulse_core::clock::BootNanos;
use nodepulse_core::units::DeviceNumber;
use nodepulse_io::clock::Clock;
use nodepulse_linux::kernel::{KillHook, Probe, ProbeState, Wanted};

use crate::loaded::disks::{self, Disk};
use crate::loaded::{Loaded, judged, kills, pids, programs};
use crate::provoke::Provoke;
use crate::provoke::disk::{DirectFile, disk_of_node};
use crate::{eventually, logged};

pub mod alarms;
pub mod ask;
pub mod capabilities;
mod companion;
mod daemon;
mod idle;
pub mod kill_events;
mod ladder;
mod loopback;
mod thrash;
mod unwell;

/// A check, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    Load,
    OomNested,
    OomCgroupRemoved,
    OomGroup,
    OomGlobal,
    OomFentry,
    OomExit,
    OomExact,
    OomLimit,
    OomCpuset,
    OomStorm,
    PidCrossing,
    PidTrend,
    ForkStorm,
    DiskLimit,
    DiskJudged,
    DiskFew,
    DiskSilence,
    DiskPassthrough,
    DiskThrottled,
    DiskFlushZero,
    DiskDiscard,
    DiskHung,
    DiskBadBlock,
    DiskError,
    DiskStat,
    DiskStalled,
    DiskComesAndGoes,
    PsiIo,
    PsiMemory,
    PsiOff,
    NoLosses,
    Detach,
    FewCapabilities,
    FewCapabilitiesAndHandles,
    Daemon,
    DaemonFiles,
    TierKmsg,
    TierFiles,
    DaemonCpuset,
    DaemonBare,
}

/// The time that remains for the checks after the first.
struct Lab {
    provoke: Provoke,
    loaded: tokio::sync::Mutex<Option<Loaded>>,
    /// Programs that were loaded before.
    before: Vec<(u32, String)>,
}

enum Found {
    Good(String),
    /// The reason why this kernel does not support it.
    Skipped(String),
}

/// A small number, because nothing else forks here, and every fork is slow under emulation.
const CROWD: u32 = 100;
/// A small number, because emulation is slow.
const KILLS: usize = 40;

/// A kernel may have been built without the memory controller of cgroup v1.
const NO_MEMORY_CGROUPS: &str = "this kernel has no memory controller on cgroup v1";

fn no_memory_cgroups() -> bool {
    let files = ["memory/memory.limit_in_bytes", "cgroup.controllers"];
    let there = |file| Path::new("/sys/fs/cgroup").join(file).exists();
    !files.into_iter().any(there)
}

/// Location and message of the last panic: a task that panics gives only its payload.
static PANICKED: Mutex<Option<String>> = Mutex::new(None);

impl Check {
    const ALL: [Self; 39] = [
        Self::Load,
        Self::OomNested,
        Self::OomCgroupRemoved,
        Self::OomGroup,
        Self::OomGlobal,
        Self::OomFentry,
        Self::OomExit,
        Self::OomExact,
        Self::OomLimit,
        Self::OomCpuset,
        Self::OomStorm,
        Self::PidCrossing,
        Self::PidTrend,
        Self::ForkStorm,
        Self::DiskLimit,
        Self::DiskJudged,
        Self::DiskFew,
        Self::DiskSilence,
        Self::DiskPassthrough,
        Self::DiskThrottled,
        Self::DiskFlushZero,
        Self::DiskDiscard,
        Self::DiskHung,
        Self::DiskBadBlock,
        Self::DiskError,
        Self::DiskStat,
        Self::DiskStalled,
        Self::DiskComesAndGoes,
        Self::PsiIo,
        Self::PsiMemory,
        Self::NoLosses,
        Self::Detach,
        Self::FewCapabilities,
        Self::FewCapabilitiesAndHandles,
        Self::Daemon,
        Self::DaemonFiles,
        Self::TierKmsg,
        Self::TierFiles,
        Self::DaemonCpuset,
    ];

    /// The checks without pressure files, on cgroup v1.
    const BARE: [Self; 9] = [
        Self::Load,
        Self::OomNested,
        Self::OomCgroupRemoved,
        Self::OomGlobal,
        Self::PidCrossing,
        Self::PsiOff,
        Self::NoLosses,
        Self::Detach,
        Self::DaemonBare,
    ];

    /// Returns the plan that the command line of the kernel names.
    fn plan(name: &str) -> io::Result<&'static [Self]> {
        match name {
            "full" => Ok(&Self::ALL),
            "bare" => Ok(&Self::BARE),
            _ => Err(io::Error::other(format!("no plan {name:?}"))),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::OomNested => "oom-nested",
            Self::OomCgroupRemoved => "oom-cgroup-gone",
            Self::OomGroup => "oom-group",
            Self::OomGlobal => "oom-global",
            Self::OomFentry => "oom-fentry",
            Self::OomExit => "oom-exit",
            Self::OomExact => "oom-exact",
            Self::OomLimit => "oom-limit",
            Self::OomCpuset => "oom-cpuset",
            Self::OomStorm => "oom-storm",
            Self::PidCrossing => "pid-crossing",
            Self::PidTrend => "pid-trend",
            Self::ForkStorm => "fork-storm",
            Self::DiskLimit => "disk-limit",
            Self::DiskJudged => "disk-judged",
            Self::DiskFew => "disk-few",
            Self::DiskSilence => "disk-silence",
            Self::DiskPassthrough => "disk-passthrough",
            Self::DiskThrottled => "disk-throttled",
            Self::DiskFlushZero => "disk-flush-zero",
            Self::DiskDiscard => "disk-discard",
            Self::DiskHung => "disk-hung",
            Self::DiskBadBlock => "disk-bad-block",
            Self::DiskError => "disk-error",
            Self::DiskStat => "disk-stat",
            Self::DiskStalled => "disk-stalled",
            Self::DiskComesAndGoes => "disk-comes-and-goes",
            Self::PsiIo => "psi-io",
            Self::PsiMemory => "psi-memory",
            Self::PsiOff => "psi-off",
            Self::NoLosses => "no-losses",
            Self::Detach => "detach",
            Self::FewCapabilities => "few-capabilities",
            Self::FewCapabilitiesAndHandles => "few-capabilities-and-handles",
            Self::Daemon => "daemon",
            Self::DaemonFiles => "daemon-files",
            Self::TierKmsg => "tier-kmsg",
            Self::TierFiles => "tier-files",
            Self::DaemonCpuset => "daemon-cpuset",
            Self::DaemonBare => "daemon-bare",
        }
    }

    /// Returns the probe that it requires. Kills are reported by one of several, and on every
    /// kernel.
    const fn probe(self) -> Option<Probe> {
        match self {
            Self::PidCrossing | Self::PidTrend | Self::ForkStorm => Some(Probe::PidFork),
            Self::DiskLimit
            | Self::DiskJudged
            | Self::DiskFew
            | Self::DiskSilence
            | Self::DiskPassthrough
            | Self::DiskThrottled
            | Self::DiskFlushZero
            | Self::DiskDiscard
            | Self::DiskHung
            | Self::DiskBadBlock
            | Self::DiskError => Some(Probe::DiskComplete),
            _ => None,
        }
    }

    async fn run(self, lab: Arc<Lab>) -> io::Result<Found> {
        let mut guard = lab.loaded.lock().await;
        let provoke = &lab.provoke;
        let unloaded = match self {
            Self::Load => return load(&mut guard),
            Self::Detach => return detach(guard.take(), &lab.before).await,
            Self::OomNested | Self::OomCgroupRemoved | Self::OomGlobal | Self::DaemonBare
                if no_memory_cgroups() =>
            {
                return Ok(Found::Skipped(NO_MEMORY_CGROUPS.to_owned()));
            }
            Self::OomCpuset | Self::DaemonCpuset
                if !Path::new("/sys/devices/system/node/node1").exists() =>
            {
                return Ok(Found::Skipped(
                    "this machine has one memory node".to_owned(),
                ));
            }
            Self::OomFentry => return ladder::fentry(provoke).await,
            Self::OomExit => return ladder::exit(provoke).await,
            Self::OomExact => return ladder::exact(provoke).await,
            Self::OomLimit => return ladder::limit(provoke).await,
            Self::PsiOff => Some(unwell::no_pressure()),
            Self::PsiIo | Self::PsiMemory | Self::DiskStalled => {
                Some(unwell::waiting(self, provoke).await)
            }
            Self::DiskStat => Some(unwell::counters()),
            Self::FewCapabilities => Some(capabilities::few(provoke, false)),
            Self::FewCapabilitiesAndHandles => Some(capabilities::few(provoke, true)),
            Self::Daemon => Some(daemon::conditions(provoke).await),
            Self::DaemonFiles => Some(daemon::files(provoke).await),
            Self::TierKmsg => Some(logged::by_the_log(provoke).await),
            Self::TierFiles => Some(logged::by_counters(provoke).await),
            Self::DaemonCpuset => Some(daemon::cpuset(provoke).await),
            Self::DaemonBare => Some(daemon::bare(provoke).await),
            _ => None,
        };
        if let Some(detail) = unloaded {
            return detail.map(Found::Good);
        }
        let loaded = guard
            .as_mut()
            .ok_or_else(|| io::Error::other("nothing is loaded"))?;
        let support = loaded.kernel.support();
        if let Some(why) = self.probe().and_then(|p| ladder::missing(support, p)) {
            return Ok(Found::Skipped(why));
        }
        self.with_programs(loaded, provoke).await.map(Found::Good)
    }

    /// Runs the check with the programs loaded, and the one that it checks attached.
    async fn with_programs(self, loaded: &mut Loaded, provoke: &Provoke) -> io::Result<String> {
        match self {
            Self::OomNested => kills::nested(loaded, provoke).await,
            Self::OomCgroupRemoved => kills::removed_at_once(loaded, provoke).await,
            Self::OomGroup => kills::group(loaded, provoke).await,
            Self::OomGlobal => kills::global(loaded, provoke).await,
            Self::OomCpuset => kills::cpuset(loaded, provoke).await,
            Self::OomStorm => kills::storm(loaded, provoke, KILLS).await,
            Self::PidCrossing => pids::crossing(loaded, provoke, CROWD).await,
            Self::PidTrend => pids::trend(loaded, provoke, CROWD).await,
            Self::ForkStorm => pids::storm(loaded, provoke, CROWD).await,
            Self::DiskLimit => {
                let node = disk("fast")?;
                let fast = watched(&node)?;
                let file = DirectFile::device(fast.node)?;
                disks::limit(loaded, &file, fast.device).await
            }
            Self::DiskJudged => judged::classes(loaded, watched(&disk("fast")?)?),
            Self::DiskFew => judged::few(loaded, watched(&disk("slow")?)?).await,
            Self::DiskSilence => judged::silence(loaded, watched(&disk("fast")?)?).await,
            Self::DiskPassthrough => unwell::passthrough(loaded, watched(&disk("fast")?)?).await,
            Self::DiskThrottled => {
                let (slow, fast) = (disk("slow")?, disk("fast")?);
                disks::throttled(loaded, watched(&slow)?, watched(&fast)?).await
            }
            Self::DiskFlushZero => {
                let node = disk("fast")?;
                disks::flush_and_zero(loaded, watched(&node)?).await
            }
            Self::DiskDiscard => {
                let node = disk("ext4")?;
                let at = Path::new("/tmp/ext4");
                std::fs::create_dir_all(at)?;
                disks::discard(loaded, watched(&node)?, at).await
            }
            Self::DiskHung => {
                let (hang, slow) = (disk("hang")?, disk("slow")?);
                unwell::hung(loaded, watched(&hang)?, watched(&slow)?).await
            }
            Self::DiskBadBlock => {
                let error = disk("error")?;
                unwell::bad_block(loaded, watched(&error)?)
            }
            Self::DiskError => {
                let error = disk("error")?;
                unwell::failing(loaded, watched(&error)?).await
            }
            Self::DiskComesAndGoes => unwell::plugged().await,
            Self::NoLosses => {
                loaded.assert_nothing_lost();
                Ok("every counter is 0".to_owned())
            }
            _ => Err(io::Error::other("it loads the programs itself")),
        }
    }
}

/// Runs the checks of a plan and prints their results. A failed check is no error: the reader of
/// the console counts.
pub fn run(plan: &str) -> io::Result<()> {
    let plan = Check::plan(plan)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    note_panics();
    let lab = Arc::new(Lab {
        provoke: Provoke::next_to_this_program()?,
        loaded: tokio::sync::Mutex::new(None),
        before: programs(),
    });
    let names: Vec<_> = plan.iter().map(|check| check.name()).collect();
    println!("vm-plan: {}", names.join(" "));
    runtime.block_on(async {
        for check in plan.iter().copied() {
            print_result(check.name(), check.run(Arc::clone(&lab))).await;
        }
    });
    // A child that was not killed remains.
    runtime.shutdown_background();
    println!("vm-done");
    Ok(())
}

/// Records the location of a panic for the result of its check.
fn note_panics() {
    std::panic::set_hook(Box::new(|info| {
        *PANICKED.lock().unwrap_or_else(PoisonError::into_inner) = Some(info.to_string());
    }));
}

async fn print_result(name: &str, check: impl Future<Output = io::Result<Found>> + Send + 'static) {
    let start = now();
    let (verdict, detail) = match tokio::spawn(check).await {
        Ok(Ok(Found::Good(detail))) => ("ok", detail),
        Ok(Ok(Found::Skipped(why))) => ("skipped", why),
        Ok(Err(err)) => ("FAILED", err.to_string()),
        Err(err) => ("FAILED", panic_of(err)),
    };
    let took = now().since(start).as_millis();
    println!("{}", line(name, verdict, took, &detail));
}

/// Formats any detail as one line, because the console is read line by line.
fn line(name: &str, verdict: &str, took_ms: u128, detail: &str) -> String {
    let words: Vec<&str> = detail.split_whitespace().collect();
    format!("vm-test: {name} {verdict} {took_ms} {}", words.join(" "))
}

fn panic_of(err: tokio::task::JoinError) -> String {
    let panic = PANICKED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    panic.unwrap_or_else(|| err.to_string())
}

fn now() -> BootNanos {
    Clock::kernel().now().boot
}

/// Loads and attaches everything, and checks that the rung for kills is the one for the kernel's
/// description of the tracepoint.
fn load(lab: &mut Option<Loaded>) -> io::Result<Found> {
    let loaded = ladder::load(&Wanted::ALL)?;
    let support = loaded.kernel.support().clone();
    *lab = Some(Loaded::start(loaded));
    let mut states = Vec::new();
    for (probe, state) in &support.probes {
        match state {
            ProbeState::Attached => states.push(probe.program().to_owned()),
            ProbeState::NotNeeded => {}
            ProbeState::Missing(why) => states.push(format!("no {}: {why}", probe.program())),
        }
    }
    let rung = if mark_victim_has_task()? {
        KillHook::Task
    } else {
        KillHook::Fentry
    };
    let came_to = (support.kills(), support.tier(), support.exact_scope());
    assert_eq!(came_to, (Some(rung), "btf", true), "{states:?}");
    Ok(Found::Good(states.join(", ")))
}

/// Checks BTF by another source: with the task its owner was added, as a field of the classic
/// tracepoint.
fn mark_victim_has_task() -> io::Result<bool> {
    let format = std::fs::read_to_string("/sys/kernel/tracing/events/oom/mark_victim/format")?;
    Ok(format.contains("uid"))
}

async fn detach(loaded: Option<Loaded>, before: &[(u32, String)]) -> io::Result<Found> {
    let loaded = loaded.ok_or_else(|| io::Error::other("nothing is loaded"))?;
    let new_programs = || {
        let mut new_programs = programs();
        new_programs.retain(|program| !before.contains(program));
        new_programs
    };
    let attached = new_programs();
    let support = loaded.kernel.support().clone();
    for (probe, state) in &support.probes {
        let there = attached.iter().any(|(_, name)| name == probe.program());
        assert_eq!(there, *state == ProbeState::Attached, "{attached:?}");
    }
    drop(loaded);
    // The kernel frees them a moment after the last reference is dropped.
    eventually("programs unloaded", || match new_programs() {
        left if left.is_empty() => Ok(()),
        left => Err(left),
    })
    .await;
    Ok(Found::Good(format!(
        "{} programs before, none after",
        attached.len()
    )))
}

/// Finds the node of the disk with this serial number: the kernel numbers disks in the order of
/// their answers.
pub(crate) fn disk(serial: &str) -> io::Result<PathBuf> {
    for entry in std::fs::read_dir("/sys/block")? {
        let path = entry?.path();
        let is = std::fs::read_to_string(path.join("device/serial"));
        if is.is_ok_and(|is| is.trim() == serial) {
            let name = path.file_name().unwrap_or_default();
            return Ok(Path::new("/dev").join(name));
        }
    }
    Err(io::Error::other(format!(
        "no disk with serial number {serial}"
    )))
}

fn watched(node: &Path) -> io::Result<Disk<'_>> {
    let (major, minor) = disk_of_node(node)?;
    let device = DeviceNumber { major, minor };
    Ok(Disk { node, device })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_one_line_whatever_its_detail() {
        let expected = "vm-test: load FAILED 12 panicked at a.rs:1: left: 1";
        assert_eq!(
            line("load", "FAILED", 12, "panicked at a.rs:1:\n  left: 1\n"),
            expected
        );
    }

    #[test]
    fn every_check_has_a_different_name() {
        let mut names = Check::ALL.map(Check::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Check::ALL.len());
    }
}
