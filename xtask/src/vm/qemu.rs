//! One virtual machine from start to end: flags, disks, console, timeout. Emulated in software, so
//! that it runs where there is no KVM, and the same everywhere.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::console::Console;
use crate::repo::{command, on_path, run, shown};

pub const PROGRAM: &str = "qemu-system-x86_64";
pub const MAKE_EXT4: &str = "mke2fs";

/// Kernels take 20 to 40 s here on a quiet machine.
const LIMIT: Duration = Duration::from_secs(120);

/// `mitigations=off`, since emulation is slow enough; `psi=1`, since Debian leaves it off in 5.10;
/// `panic=-1` with `-no-reboot` ends the machine at once.
const KERNEL_LINE: &str = "console=ttyS0 quiet loglevel=3 psi=1 panic=-1 mitigations=off";

/// Sparse: only what the checks write takes space.
const DISK_BYTES: u64 = 64 << 20;

/// Requests a second of the disk that is to be found slow.
const SLOW_REQUESTS: u32 = 20;

/// Boots it and listens until it is off or the time is over; the text says why it ended.
pub fn boot(vmlinuz: &Path, initramfs: &Path, dir: &Path) -> Result<(Console, String)> {
    let mut qemu = command_line(vmlinuz, initramfs, &disks(dir)?);
    let mut child = qemu
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .with_context(|| format!("cannot start `{}`", shown(&qemu)))?;
    let lines = lines_of(&mut child)?;
    let mut console = Console::default();
    let deadline = Instant::now() + LIMIT;
    let late = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left) {
            Ok(line) => {
                if let Some(ours) = console.line(&line) {
                    eprintln!("{ours}");
                }
            }
            Err(RecvTimeoutError::Disconnected) => break false,
            Err(RecvTimeoutError::Timeout) => break true,
        }
    };
    if late {
        // It may have ended this moment; waiting tells.
        let _ = child.kill();
    }
    let status = child.wait().context("waiting for the virtual machine")?;
    let why = if late {
        format!("killed: not done after {} s", LIMIT.as_secs())
    } else {
        format!("the virtual machine ended early with {status}")
    };
    Ok((console, why))
}

/// Read in a thread of their own, so that silence does not hold up the timeout.
fn lines_of(child: &mut Child) -> Result<Receiver<String>> {
    let output = child.stdout.take().context("the child has no output")?;
    let (send, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            if send
                .send(String::from_utf8_lossy(&line).into_owned())
                .is_err()
            {
                break;
            }
            line.clear();
        }
    });
    Ok(lines)
}

/// One that is not held back, one that is, and one with a file system; as `-drive` options and
/// serial numbers.
fn disks(dir: &Path) -> Result<[(String, &'static str); 3]> {
    let made = |serial: &'static str, more: String| {
        let file: PathBuf = dir.join(format!("{serial}.raw"));
        File::create(&file)
            .and_then(|file| file.set_len(DISK_BYTES))
            .with_context(|| format!("cannot make {}", file.display()))?;
        let file = file.display();
        let drive = format!("if=none,id={serial},file={file},format=raw,discard=unmap{more}");
        anyhow::Ok((drive, serial))
    };
    let disks = [
        made("fast", String::new())?,
        made("slow", format!(",throttling.iops-total={SLOW_REQUESTS}"))?,
        made("ext4", String::new())?,
    ];
    let mut mkfs = command(on_path(MAKE_EXT4).unwrap_or_else(|| MAKE_EXT4.into()));
    run(mkfs
        .args(["-q", "-F", "-t", "ext4"])
        .arg(dir.join("ext4.raw")))?;
    Ok(disks)
}

fn command_line(vmlinuz: &Path, initramfs: &Path, disks: &[(String, &str)]) -> Command {
    let mut qemu = command(PROGRAM);
    qemu.args(["-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "768"])
        .args([
            "-nographic",
            "-no-reboot",
            "-nodefaults",
            "-serial",
            "stdio",
        ])
        .arg("-kernel")
        .arg(vmlinuz)
        .arg("-initrd")
        .arg(initramfs)
        .args(["-append", KERNEL_LINE]);
    for (drive, serial) in disks {
        qemu.args(["-drive", drive, "-device"]);
        qemu.arg(format!("nvme,drive={serial},serial={serial}"));
    }
    qemu
}
