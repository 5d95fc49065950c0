//! Defines workloads on an ext4 that returns errors below a device that no program watches: only
//! its count of errors shows them, and its mount remains writable by name.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Expected, Form, Prepared, Site, Workload, cannot_run, workload};
use crate::provoke::disk::Mounted;

const MIB: u64 = 1 << 20;
const BYTES: u64 = 64 * MIB;
/// Size of the device, less than the file system can contain.
const BACKING: &str = "size=24m";
/// Period of storage samples.
const SAMPLED: Duration = Duration::from_secs(10);
const WITHIN: Duration = Duration::from_secs(12);

/// Names of the workloads, for runs without loop devices.
pub(super) const NAMES: [&str; 3] = [
    "aborted-nodefs",
    "nodefs-with-an-error",
    "old-and-foreign-errors",
];

pub(super) fn workloads() -> Vec<Workload> {
    let failing = Expected::Alarm {
        condition: "DiskFailing",
        reason: "FilesystemShutdown",
        within: WITHIN,
        culprit: Some("nodefs on loop"),
    };
    let [aborted, error, old] = NAMES;
    vec![
        workload(aborted, Form::Short, failing, aborted_journal),
        workload(error, Form::Short, failing, |site| {
            let nodefs = Ext4::new(site, "nodefs")?;
            let at = nodefs.at.clone();
            let load = Prepared::new(move |control| {
                control.begins();
                nodefs.count_an_error()?;
                control.until_noticed();
                Ok(String::new())
            });
            Ok(load.nodefs(at))
        }),
        workload(old, Form::Short, Expected::NoAlarm, |site| {
            let nodefs = Ext4::new(site, "nodefs")?;
            nodefs.count_an_error()?;
            let (volume, at) = (Ext4::new(site, "volume")?, nodefs.at.clone());
            let load = Prepared::new(move |_| {
                volume.count_an_error()?;
                std::thread::park_timeout(SAMPLED + Duration::from_secs(2));
                drop(nodefs);
                Ok(String::new())
            });
            Ok(load.nodefs(at))
        }),
    ]
}

/// Fills the device below nodefs, so that a write returns an error and the journal is aborted.
fn aborted_journal(site: &Site) -> io::Result<Prepared> {
    let directory = site.directory();
    let backing = directory.join("backing");
    fs::create_dir(&backing)?;
    let room = Mounted::tmpfs(&backing, BACKING)?;
    let at = directory.join("nodefs");
    fs::create_dir(&at)?;
    let mounted = Mounted::ext4(&at, &backing, BYTES)?;
    mounted.dig_holes()?;
    let nodefs = at.clone();
    let load = Prepared::new(move |control| {
        // Fills the remaining space.
        let full = fill(&backing.join("rest")).expect_err("tmpfs is full");
        control.begins();
        let error = create_files(&at).expect_err("the device has no room");
        control.until_noticed();
        drop((mounted, room));
        Ok(format!("{full}, then {error}"))
    });
    Ok(load.nodefs(nodefs))
}

fn fill(path: &Path) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    loop {
        file.write_all(&[1; 4096])?;
    }
}

/// Creates files until ext4 detects at a commit that its journal is aborted.
fn create_files(at: &Path) -> io::Result<()> {
    const FILES: u32 = 100;
    let directory = fs::File::open(at)?;
    for n in 0..FILES {
        fs::File::create(at.join(n.to_string()))?;
        let _aborted = directory.sync_all();
    }
    Ok(())
}

/// An ext4 on a loop device that continues after errors.
struct Ext4 {
    at: PathBuf,
    _mounted: Mounted,
}

impl Ext4 {
    fn new(site: &Site, name: &str) -> io::Result<Self> {
        let at = site.directory().join(name);
        fs::create_dir(&at)?;
        Ok(Self {
            _mounted: Mounted::ext4(&at, site.directory(), BYTES)?,
            at,
        })
    }

    /// Makes the kernel count an error that has not happened.
    fn count_an_error(&self) -> io::Result<()> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let at = self.at.display().to_string();
        let device = mounts.lines().find_map(|line| {
            let (device, rest) = line.split_once(' ')?;
            (rest.split(' ').next() == Some(&at)).then_some(device)
        });
        let name = device.and_then(|device| device.strip_prefix("/dev/"));
        let name = name.ok_or_else(|| cannot_run(format!("nothing is mounted at {at}")))?;
        fs::write(format!("/sys/fs/ext4/{name}/trigger_fs_error"), "1")
    }
}
