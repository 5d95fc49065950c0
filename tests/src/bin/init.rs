//! PID 1 of a virtual machine: mounts, runs the checks, powers off. Started by `cargo xtask vm`.

use std::fs;
use std::io;
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use nodepulse_tests::vm;

/// What is mounted: kind of file system, and where.
const MOUNTS: &[(&str, &str)] = &[
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("tracefs", "/sys/kernel/tracing"),
    ("cgroup2", "/sys/fs/cgroup"),
    ("tmpfs", "/tmp"),
];

fn main() {
    if std::process::id() != 1 {
        eprintln!("init: I am PID 1 of a virtual machine: run `cargo xtask vm`");
        std::process::exit(2);
    }
    // Whatever happens, the machine must end: without PID 1 the kernel would panic instead.
    if let Err(err) = checks() {
        println!("vm-error: {err}");
    }
    let Err(err) = reboot(RebootMode::RB_POWER_OFF);
    println!("vm-error: cannot power off: {err}");
    std::process::exit(1);
}

fn checks() -> io::Result<()> {
    for (kind, at) in MOUNTS {
        fs::create_dir_all(at)?;
        mount(
            Some(*kind),
            *at,
            Some(*kind),
            MsFlags::empty(),
            None::<&str>,
        )
        .map_err(|err| io::Error::other(format!("mounting {kind} on {at}: {err}")))?;
    }
    fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory")?;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    println!("vm-kernel: {} {}", release.trim(), uptime()?.as_millis());
    vm::run()
}

/// Since the kernel started.
fn uptime() -> io::Result<Duration> {
    let text = fs::read_to_string("/proc/uptime")?;
    let seconds = text
        .split(' ')
        .next()
        .and_then(|seconds| seconds.parse().ok());
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| io::Error::other(text.clone()))
}
