//! PID 1 of a virtual machine: mounts, runs the checks, powers off. Started by `cargo xtask vm`.

use std::fs;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use nodepulse_tests::vm;
use nodepulse_tests::vm::capabilities::{UNPRIVILEGED, run_unprivileged};

/// Type of file system, target and options.
type Mount = (&'static str, &'static str, Option<&'static str>);

const MOUNTS: &[Mount] = &[
    ("proc", "/proc", None),
    ("sysfs", "/sys", None),
    ("devtmpfs", "/dev", None),
    ("tracefs", "/sys/kernel/tracing", None),
    ("tmpfs", "/tmp", None),
];

/// One hierarchy, as on current nodes.
const UNIFIED: &[Mount] = &[("cgroup2", "/sys/fs/cgroup", None)];

/// One hierarchy for each controller, as systemd mounts them on an old node.
const HYBRID: &[Mount] = &[
    ("tmpfs", "/sys/fs/cgroup", None),
    ("cgroup2", "/sys/fs/cgroup/unified", None),
    ("cgroup", "/sys/fs/cgroup/pids", Some("pids")),
    ("cgroup", "/sys/fs/cgroup/memory", Some("memory")),
];

/// Before 5.11 a limit bounds the cgroups below only with this file; systemd sets it.
const HIERARCHY: &str = "/sys/fs/cgroup/memory/memory.use_hierarchy";

/// Prefix of the plan's name on the command line of the kernel.
const PLAN: &str = "nodepulse.plan=";
/// Prefix of comma-separated names of workloads; without names, all run.
const WORKLOADS: &str = "nodepulse.workloads=";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if std::process::id() != 1 {
        if args.first().is_some_and(|arg| arg == UNPRIVILEGED) {
            let done = run_unprivileged(args.get(1).map(String::as_str));
            return ExitCode::from(u8::from(done.is_err()));
        }
        eprintln!("init: I am PID 1 of a virtual machine: run `cargo xtask vm`");
        return ExitCode::from(2);
    }
    // The machine must end in any case: without PID 1 the kernel would panic.
    if let Err(err) = checks() {
        println!("vm-error: {err}");
    }
    let Err(err) = reboot(RebootMode::RB_POWER_OFF);
    println!("vm-error: cannot power off: {err}");
    ExitCode::FAILURE
}

fn checks() -> io::Result<()> {
    mounted(MOUNTS)?;
    let line = fs::read_to_string("/proc/cmdline")?;
    let value = |key| {
        let mut words = line.split_whitespace();
        words.find_map(|word| word.strip_prefix(key))
    };
    let plan = value(PLAN);
    let plan = plan.ok_or_else(|| io::Error::other(format!("no {PLAN} in {line}")))?;
    if plan == "bare" {
        // A kernel without the old memory controller rejects the last write; the checks report it.
        let old = mounted(HYBRID).and_then(|()| fs::write(HIERARCHY, "1"));
        if let Err(err) = old {
            println!("{err}");
        }
    } else {
        mounted(UNIFIED)?;
        fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory")?;
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    println!("vm-kernel: {} {}", release.trim(), uptime()?.as_millis());
    match plan {
        "kills" => vm::kill_events::run(value(WORKLOADS).unwrap_or_default()),
        "alarms" => vm::alarms::run(value(WORKLOADS).unwrap_or_default()),
        plan => vm::run(plan),
    }
}

fn mounted(mounts: &[Mount]) -> io::Result<()> {
    for (kind, at, options) in mounts {
        fs::create_dir_all(at)?;
        mount(Some(*kind), *at, Some(*kind), MsFlags::empty(), *options)
            .map_err(|err| io::Error::other(format!("mounting {kind} on {at}: {err}")))?;
    }
    Ok(())
}

/// Returns the time since the kernel started.
fn uptime() -> io::Result<Duration> {
    let text = fs::read_to_string("/proc/uptime")?;
    let seconds = text
        .split(' ')
        .next()
        .and_then(|seconds| seconds.parse().ok());
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| io::Error::other(text.clone()))
}
