//! Runs a virtual machine from start to end: flags, disks, console, timeout. It is emulated in
//! software, so that it runs without KVM, and the same everywhere.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result};

use super::boots::Boot;
use super::console::Console;
use super::{disks, qmp};
use crate::repo::{Arch, command, shown};

pub const PROGRAM: &str = "qemu-system-x86_64";
pub const PROGRAM_ARM64: &str = "qemu-system-aarch64";

/// `mitigations=off`, since emulation is slow; `panic=-1` with `-no-reboot` ends the machine at
/// once.
const KERNEL_LINE: &str = "quiet loglevel=3 panic=-1 mitigations=off";

/// The kernel signs each return address; QEMU emulates the architecture's algorithm much more
/// slowly than this one.
const ARM64_CPU: &str = "max,pauth-impdef=on";

pub struct Machine<'a> {
    pub arch: Arch,
    pub vmlinuz: &'a Path,
    pub initramfs: &'a Path,
    /// Directory of its disks and its socket.
    pub dir: &'a Path,
}

/// Boots the machine and reads its console until it is off or the time is over; returns the reason
/// of the end, too.
pub fn boot(boot: &Boot, machine: &Machine<'_>) -> Result<(Console, String)> {
    let socket = machine.dir.join("qmp");
    let mut qemu = command_line(boot, machine);
    qemu.arg("-qmp")
        .arg(format!("unix:{},server=on,wait=off", socket.display()));
    qemu.args(disks::options(machine.dir, machine.arch)?);
    let mut child = RunningMachine::start(&mut qemu)?;
    let lines = lines_of(&mut child.0)?;
    let mut console = Console::default();
    let deadline = Instant::now() + boot.limit;
    let late = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left) {
            Ok(line) => {
                if let Some(report) = console.line(&line) {
                    eprintln!("{report}");
                    if let Some(request) = report.strip_prefix("vm-ask: ") {
                        done(request, machine.arch, &socket);
                    }
                }
            }
            Err(RecvTimeoutError::Disconnected) => break false,
            Err(RecvTimeoutError::Timeout) => break true,
        }
    };
    if late {
        // It may have ended already; `wait` below returns its status.
        let _ = child.0.kill();
    }
    let status = child.0.wait().context("waiting for the virtual machine")?;
    let why = if late {
        format!("killed: not done after {} s", boot.limit.as_secs())
    } else {
        format!("the virtual machine ended early with {status}")
    };
    Ok((console, why))
}

/// Performs a request of a check. The check waits for the effect, and fails without it.
fn done(request: &str, arch: Arch, socket: &Path) {
    let done = disks::asked(request, arch)
        .and_then(|(command, arguments)| qmp::execute(socket, command, &arguments));
    if let Err(err) = done {
        eprintln!("vm: {request}: {err:#}");
    }
}

/// Kills QEMU on drop. The kernel kills it with the thread that started it.
struct RunningMachine(Child);

impl RunningMachine {
    fn start(qemu: &mut Command) -> Result<Self> {
        let child = qemu
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .with_context(|| format!("cannot start `{}`", shown(qemu)))?;
        Ok(Self(child))
    }
}

impl Drop for RunningMachine {
    fn drop(&mut self) {
        // Fails if it has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads in a separate thread, so that silence does not delay the timeout.
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

/// The machine has one CPU. If it could not get a second one, QEMU before 8.1 would translate the
/// guest's memory barriers to nothing (`tcg_gen_mb` in `tcg/tcg-op.c`), although the devices run in
/// another thread: under load a doorbell of a disk is lost, and the disk completes nothing until
/// the next one.
const CPUS: &str = "1,maxcpus=2";

fn command_line(boot: &Boot, machine: &Machine<'_>) -> Command {
    // A program of util-linux, which every Debian contains.
    let mut qemu = command("setpriv");
    let (program, options, console): (_, &[&str], _) = match machine.arch {
        Arch::Amd64 => (PROGRAM, &["-cpu", "max"], "ttyS0"),
        Arch::Arm64 => (
            PROGRAM_ARM64,
            &["-machine", "virt", "-cpu", ARM64_CPU],
            "ttyAMA0",
        ),
    };
    qemu.args(["--pdeathsig", "KILL", program]).args(options);
    qemu.args(["-accel", "tcg", "-smp", CPUS, "-m", "768"])
        .args([
            "-nographic",
            "-no-reboot",
            "-nodefaults",
            "-serial",
            "stdio",
        ])
        .arg("-kernel")
        .arg(machine.vmlinuz)
        .arg("-initrd")
        .arg(machine.initramfs)
        .arg("-append")
        .arg(format!(
            "console={console} {KERNEL_LINE} {} nodepulse.plan={} nodepulse.workloads={}",
            boot.kernel_line, boot.plan, boot.workloads
        ));
    qemu.args(boot.machine);
    qemu
}
