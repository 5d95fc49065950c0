//! Defines workloads on a disk that fails, in a virtual machine: its host causes the fault.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use super::{Control, Expected, Form, Pace, Prepared, Workload, volume_faults, workload};
use crate::provoke::disk::DirectFile;
use crate::vm::ask::{BAD_BLOCK_OF_NODE, ask};
use crate::vm::disk;

/// Serial number of the disk.
const DISK: &str = "node";
/// `diskIO.stalledAfter`, the additional time of the specification, and half a second for the
/// request to the host.
const STALLED_AFTER: Duration = Duration::from_secs(10 + 1);
const AFTER_ERRORS: Duration = Duration::from_secs(1);
/// Number of errors that sets the condition.
const ERRORS: usize = 3;

/// Returns the workloads with nodefs on the disk, which is mounted at `at`.
pub(crate) fn workloads(at: &Path) -> Vec<Workload> {
    let errors = at.to_owned();
    let mut all = volume_faults::workloads();
    all.extend([
        slow("throttled-disk", "slow", "4"),
        // At ten requests per second, two in flight take 200 ms each.
        slow("delayed-disk", "delay", "1"),
        hung(),
        workload(
            "disk-errors",
            Form::Short,
            failing("DiskErrors", AFTER_ERRORS),
            move |_| {
                let nodefs = errors.clone();
                Ok(Prepared::new(fail).nodefs(nodefs))
            },
        ),
        unplugged(),
    ]);
    all
}

/// Ends the fault of the disk on drop.
struct Fault;

impl Fault {
    fn begin(verb: &str) -> Self {
        ask(verb, DISK);
        Self
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        ask("release", DISK);
    }
}

/// Returns a workload with a pod that writes in `writers` threads, while the database of another
/// waits for the disk.
fn slow(name: &str, verb: &'static str, writers: &'static str) -> Workload {
    let expected = Expected::Alarm {
        condition: "DiskIOPressure",
        reason: "SlowDisk",
        within: Pace::MACHINE.slow_within(),
        culprit: Some("writer"),
    };
    workload(name, Form::Short, expected, move |site| {
        DirectFile::filled(Path::new(&site.path("data")), 64)?;
        DirectFile::filled(Path::new(&site.path("table")), 16)?;
        Ok(Prepared::new(move |control| {
            let site = control.site();
            let writer = ["saturate", &site.path("data"), writers, "60"];
            let writer = site.load("writer", &writer)?;
            let database = ["database", &site.path("table"), "60"];
            let database = site.load("database", &database)?;
            control.begins();
            let fault = Fault::begin(verb);
            control.until_noticed();
            // Only now can the tasks that wait for the disk end.
            drop(fault);
            drop((writer, database));
            Ok(String::new())
        }))
    })
}

fn failing(reason: &'static str, within: Duration) -> Expected {
    Expected::Alarm {
        condition: "DiskFailing",
        reason,
        within,
        culprit: None,
    }
}

/// Stops a disk while requests of a database are in flight.
fn hung() -> Workload {
    let expected = failing("StalledDisk", STALLED_AFTER);
    workload("hung-disk", Form::Short, expected, |site| {
        DirectFile::filled(Path::new(&site.path("table")), 16)?;
        Ok(Prepared::new(|control| {
            let site = control.site();
            let database = ["database", &site.path("table"), "60"];
            let database = site.load("database", &database)?;
            control.begins();
            let fault = Fault::begin("hang");
            control.until_noticed();
            drop(fault);
            drop(database);
            Ok(String::new())
        }))
    })
}

/// Reads a bad block.
fn fail(control: &Control) -> io::Result<String> {
    let disk = File::open(disk(DISK)?)?;
    for _ in 0..ERRORS {
        control.begins();
        let mut block = [0; 512];
        disk.read_exact_at(&mut block, BAD_BLOCK_OF_NODE)
            .expect_err("the block cannot be read");
    }
    control.until_noticed();
    Ok(format!("{ERRORS} reads failed"))
}

/// Removes a disk that a pod has used.
fn unplugged() -> Workload {
    workload("unplugged-disk", Form::Short, Expected::NoAlarm, |_| {
        Ok(Prepared::new(|_| {
            ask("plug", "later");
            let node = eventually(|| disk("later").ok().filter(|node| node.exists()))?;
            DirectFile::device(&node)?.write(8)?;
            ask("unplug", "later");
            eventually(|| disk("later").is_err().then_some(()))?;
            Ok(format!("it was {}", node.display()))
        }))
    })
}

/// Retries until the host has performed a request.
fn eventually<T>(mut there: impl FnMut() -> Option<T>) -> io::Result<T> {
    const INTERVAL: Duration = Duration::from_millis(20);
    for _ in 0..1000 {
        if let Some(there) = there() {
            return Ok(there);
        }
        std::thread::park_timeout(INTERVAL);
    }
    Err(io::Error::from(io::ErrorKind::TimedOut))
}
