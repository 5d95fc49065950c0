//! Creates the machine's disks, and changes them while it runs. The machine identifies them by
//! their serial numbers.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::repo::{Arch, command, on_path, run};

pub const MAKE_EXT4: &str = "mke2fs";

/// Size of a sparse file: only what the checks write takes space.
const BYTES: u64 = 64 << 20;
const NODE_BYTES: u64 = 2 << 30;
const SWAP_BYTES: u64 = 512 << 20;
/// Space at the end of a disk, after its file system: no file has a block there.
const UNUSED_BYTES: u64 = 4 << 20;

/// The port of a disk that is plugged in later: unlike amd64's, the root bus of arm64's machine
/// type cannot hotplug.
const HOTPLUG_PORT: &str = "port-later";

struct Disk {
    serial: &'static str,
    bytes: u64,
    /// True if it has an ext4 file system.
    is_ext4: bool,
    /// Further options of its drive.
    drive: &'static str,
    /// True if it is present from the start; otherwise it is plugged in on request.
    plugged: bool,
}

const DISKS: [Disk; 8] = [
    disk("fast", ""),
    // Twenty requests per second are found slow.
    disk("slow", ",throttling.iops-total=20"),
    Disk {
        is_ext4: true,
        ..disk("ext4", "")
    },
    // The failing block is 1 MiB before the end, outside the file system.
    Disk {
        bytes: NODE_BYTES,
        is_ext4: true,
        ..disk(
            "node",
            ",file.inject-error.0.event=none,file.inject-error.0.iotype=read,\
             file.inject-error.0.errno=5,file.inject-error.0.sector=4192256",
        )
    },
    disk("hang", ""),
    // Reads of the block at 4 MiB always fail, as `tests/src/vm/ask.rs` expects.
    disk(
        "error",
        ",file.inject-error.0.event=none,file.inject-error.0.iotype=read,\
         file.inject-error.0.errno=5,file.inject-error.0.sector=8192",
    ),
    Disk {
        plugged: false,
        ..disk("later", "")
    },
    Disk {
        bytes: SWAP_BYTES,
        ..disk("swap", "")
    },
];

const fn disk(serial: &'static str, drive: &'static str) -> Disk {
    Disk {
        serial,
        bytes: BYTES,
        is_ext4: false,
        drive,
        plugged: true,
    }
}

/// Creates the disks in `dir`, and returns QEMU's options.
pub fn options(dir: &Path, arch: Arch) -> Result<Vec<String>> {
    let mut options = Vec::new();
    if arch == Arch::Arm64 {
        options.push("-device".to_owned());
        options.push(format!("pcie-root-port,id={HOTPLUG_PORT}"));
    }
    for disk in &DISKS {
        let Disk { serial, drive, .. } = disk;
        let file = file(dir, serial);
        File::create(&file)
            .and_then(|file| file.set_len(disk.bytes))
            .with_context(|| format!("cannot create {}", file.display()))?;
        if disk.is_ext4 {
            let mut mkfs = command(on_path(MAKE_EXT4).unwrap_or_else(|| MAKE_EXT4.into()));
            let kib = format!("{}k", (disk.bytes - UNUSED_BYTES) >> 10);
            run(mkfs.args(["-q", "-F", "-t", "ext4"]).arg(&file).arg(kib))?;
        }
        let file = file.display();
        options.push("-drive".to_owned());
        options.push(format!(
            "if=none,id={serial},format=raw,discard=unmap,file.driver=blkdebug,\
             file.image.driver=file,file.image.filename={file}{drive}"
        ));
        if disk.plugged {
            options.push("-device".to_owned());
            options.push(format!("nvme,id={serial},drive={serial},serial={serial}"));
        }
    }
    Ok(options)
}

fn file(dir: &Path, serial: &str) -> PathBuf {
    dir.join(format!("{serial}.raw"))
}

/// Converts a request of the machine (`tests/src/vm/ask.rs`) to a command of QEMU.
pub fn asked(words: &str, arch: Arch) -> Result<(&'static str, Value)> {
    let (verb, serial) = words.split_once(' ').unwrap_or((words, ""));
    if DISKS.iter().all(|disk| disk.serial != serial) {
        bail!("asked to {verb} {serial:?}, which is not a disk");
    }
    Ok(match verb {
        "hang" => ("block_set_io_throttle", throttle(serial, 1)),
        "slow" => ("block_set_io_throttle", requests(serial, 20)),
        "delay" => ("block_set_io_throttle", requests(serial, 10)),
        "release" => ("block_set_io_throttle", throttle(serial, 0)),
        "plug" => ("device_add", device(serial, arch)),
        "unplug" => ("device_del", json!({"id": serial})),
        _ => bail!("asked to {verb}, which is unknown"),
    })
}

fn device(serial: &str, arch: Arch) -> Value {
    let mut device = json!({"driver": "nvme", "id": serial, "drive": serial, "serial": serial});
    if arch == Arch::Arm64 {
        device["bus"] = json!(HOTPLUG_PORT);
    }
    device
}

/// Limits bytes per second: with 1, the first request passes and the next takes an hour. 0 removes
/// the limit, and completes waiting requests.
fn throttle(serial: &str, bytes: u64) -> Value {
    json!({"device": serial, "bps": bytes, "bps_rd": 0, "bps_wr": 0,
           "iops": 0, "iops_rd": 0, "iops_wr": 0})
}

/// Limits requests per second.
fn requests(serial: &str, iops: u64) -> Value {
    json!({"device": serial, "bps": 0, "bps_rd": 0, "bps_wr": 0,
           "iops": iops, "iops_rd": 0, "iops_wr": 0})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valid_request_becomes_a_command_and_an_invalid_one_does_not() {
        let table = [
            ("hang slow", Some("block_set_io_throttle")),
            ("release slow", Some("block_set_io_throttle")),
            ("slow node", Some("block_set_io_throttle")),
            ("delay node", Some("block_set_io_throttle")),
            ("plug later", Some("device_add")),
            ("unplug later", Some("device_del")),
            ("plug", None),
            ("plug /etc/passwd", None),
            ("quit fast", None),
        ];
        for (words, expected) in table {
            let command = asked(words, Arch::Amd64).ok().map(|(command, _)| command);
            assert_eq!(command, expected, "{words}");
        }
    }

    #[test]
    fn only_arm64_needs_a_port_to_plug_a_disk_into() {
        for (arch, port) in [(Arch::Amd64, None), (Arch::Arm64, Some("port-later"))] {
            let (_, arguments) = asked("plug later", arch).unwrap();
            assert_eq!(arguments["bus"].as_str(), port);
        }
    }
}
