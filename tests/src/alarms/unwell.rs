//! Defines workloads of a node that fails or is short of a resource: the right condition becomes
//! True in time.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use nix::mount::{MsFlags, mount};

use super::{Expected, Form, Pace, Prepared, Workload, workload};
use crate::flapping::resource::available_memory;
use crate::provoke::disk::{DirectFile, Mounted};
use crate::provoke::tasks;

const MIB: u64 = 1 << 20;
/// Margin for the tasks and the memory that other programs of this machine may need meanwhile.
const SPARE_TASKS: u32 = 100;
const SPARE_MEMORY: u64 = 512 * MIB;
/// Time for processes to start and memory to fill, after which a condition takes milliseconds.
const LEAKED: Duration = Duration::from_secs(5);

pub(super) fn workloads(pace: Pace) -> Vec<Workload> {
    vec![
        pids_leak(),
        memory_leak(),
        kills_in_three_pods(),
        read_only(),
        disk_stall(),
        saturated(pace),
    ]
}

/// Starts processes that do not end.
fn pids_leak() -> Workload {
    let expected = Expected::Alarm {
        condition: "PIDsLow",
        reason: "LowPIDs",
        within: LEAKED,
        culprit: None,
    };
    workload("pids-leak", Form::Short, expected, |_| {
        let threshold = most_tasks()?.saturating_sub(tasks()? + SPARE_TASKS);
        let threshold = threshold.to_string();
        let load = Prepared::new(|control| {
            // With an emulated processor, 200 forks can take five seconds.
            let below = control.site().provoke.crowd(SPARE_TASKS * 3 / 4)?;
            control.begins();
            let above = control.site().provoke.crowd(SPARE_TASKS)?;
            control.until_noticed();
            drop((below, above));
            Ok(String::new())
        });
        Ok(load.threshold("pid.available", &threshold))
    })
}

/// Allocates memory and keeps it.
fn memory_leak() -> Workload {
    let expected = Expected::Alarm {
        condition: "MemoryLow",
        reason: "LowMemory",
        within: Duration::from_secs(10),
        culprit: Some("writer"),
    };
    workload("memory-leak", Form::Short, expected, |_| {
        let available = available_memory()?;
        let spare = SPARE_MEMORY.min(available / 8);
        let threshold = (available - spare) / MIB;
        let threshold = format!("{threshold}Mi");
        let load = Prepared::new(move |control| {
            let site = control.site();
            let container = site.container("writer");
            control.begins();
            let leak = site.provoke.allocate_in(&container, 3 * spare)?;
            control.until_noticed();
            drop(leak);
            Ok(String::new())
        });
        Ok(load.threshold("memory.available", &threshold))
    })
}

/// Exceeds the limits of containers of three pods repeatedly.
fn kills_in_three_pods() -> Workload {
    let expected = Expected::Alarm {
        condition: "FrequentOOMKills",
        reason: "FrequentOOMKills",
        within: LEAKED,
        culprit: None,
    };
    workload("kills-in-three-pods", Form::Short, expected, |site| {
        const LIMIT: u64 = 8 * MIB;
        let pods = ["writer", "database", "other"];
        for pod in pods {
            site.limit(pod, LIMIT)?;
        }
        Ok(Prepared::new(move |control| {
            let site = control.site();
            control.begins();
            for pod in pods.into_iter().cycle().take(6) {
                site.provoke.eat_in(&site.container(pod), 8 * LIMIT)?;
            }
            control.until_noticed();
            Ok(String::new())
        }))
    })
}

/// Mounts the file system of the kubelet's directory read-only.
fn read_only() -> Workload {
    let expected = Expected::Alarm {
        condition: "DiskFailing",
        reason: "ReadOnlyFilesystem",
        // It is sampled every ten seconds.
        within: Duration::from_secs(12),
        culprit: None,
    };
    workload("read-only-nodefs", Form::Short, expected, |site| {
        let at = site.directory().join("nodefs");
        fs::create_dir(&at)?;
        let mounted = Mounted::ext4(&at, site.directory(), 64 * MIB)?;
        let nodefs = at.clone();
        let load = Prepared::new(move |control| {
            let flags = MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
            mount(None::<&str>, &at, None::<&str>, flags, None::<&str>)?;
            control.begins();
            control.until_noticed();
            drop(mounted);
            Ok(String::new())
        });
        Ok(load.nodefs(nodefs))
    })
}

/// Makes tasks wait for a healthy disk most of the time: it is not slow, but a stall.
fn disk_stall() -> Workload {
    let expected = Expected::Alarm {
        condition: "DiskStallPressure",
        reason: "Stalled",
        // From 0, the average over a minute reaches 40 % after 66 s if tasks wait for 60 % of the
        // time; it is read every 10 s.
        within: Duration::from_secs(80),
        culprit: None,
    };
    workload("disk-stall", Form::Full, expected, |site| {
        DirectFile::filled(Path::new(&site.path("data")), 256)?;
        let load = Prepared::new(|control| {
            let site = control.site();
            control.begins();
            let load = site.load("writer", &["mixed", &site.path("data"), "16", "120"])?;
            control.until_noticed();
            drop(load);
            Ok(String::new())
        });
        Ok(load.condition("DiskStallPressure"))
    })
}

/// Writes as much as the disk can complete in one pod, while the commits of another wait for it.
fn saturated(pace: Pace) -> Workload {
    let expected = Expected::Alarm {
        condition: "DiskIOPressure",
        reason: "SlowDisk",
        within: pace.slow_within(),
        culprit: None,
    };
    workload("saturated-disk", Form::Short, expected, |site| {
        DirectFile::filled(Path::new(&site.path("data")), 512)?;
        DirectFile::filled(Path::new(&site.path("table")), 64)?;
        let load = Prepared::new(|control| {
            let site = control.site();
            let writers = ["saturate", &site.path("data"), "128", "60"];
            let writers = site.load("writer", &writers)?;
            let database = ["database", &site.path("table"), "60"];
            let database = site.load("database", &database)?;
            control.begins();
            control.until_noticed();
            drop((writers, database));
            Ok(String::new())
        });
        Ok(load.slow("5ms"))
    })
}

/// Returns the number of tasks that the kernel allows.
pub(crate) fn most_tasks() -> io::Result<u32> {
    let number = |path| {
        let text = fs::read_to_string(path)?;
        text.trim().parse::<u32>().map_err(io::Error::other)
    };
    Ok(number("/proc/sys/kernel/pid_max")?.min(number("/proc/sys/kernel/threads-max")?))
}

/// Reads a line of `/proc/meminfo`, in bytes.
pub(crate) fn meminfo(name: &str) -> io::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map(|kib| kib << 10)
        .ok_or_else(|| io::Error::other(text.clone()))
}
