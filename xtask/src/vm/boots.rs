//! Defines how a kernel is booted. One boot takes 10 to 30 s under emulation, so each runs as many
//! checks as are compatible.

use std::time::Duration;

/// Time limit of a boot, which takes 10 to 90 s on an idle machine with two cores.
const LIMIT: Duration = Duration::from_mins(8);

#[derive(Clone)]
pub struct Boot {
    /// The plan of PID 1, in `nodepulse.plan=`: see `tests/src/vm.rs`.
    pub plan: &'static str,
    /// Further parameters of the kernel's command line.
    pub kernel_line: &'static str,
    /// Further arguments of QEMU.
    pub machine: &'static [&'static str],
    /// Time after which the machine is ended.
    pub limit: Duration,
    /// Only for the plans `alarms` and `kills`: comma-separated parts of the names of the workloads
    /// or kills to run; in `nodepulse.workloads=`.
    pub workloads: String,
}

/// One boot with every feature of a node, and one on cgroup v1 without pressure files.
pub static BOOTS: [Boot; 2] = [
    Boot {
        plan: "full",
        // Debian's 5.10 turns pressure files off.
        kernel_line: "psi=1",
        // With two memory nodes, a cpuset can be full while the machine is not. Debian's cloud
        // kernels do not support `numa=fake=2`.
        machine: &[
            "-object",
            "memory-backend-ram,id=near,size=384M",
            "-object",
            "memory-backend-ram,id=far,size=384M",
            "-numa",
            "node,nodeid=0,memdev=near,cpus=0-1",
            "-numa",
            "node,nodeid=1,memdev=far",
        ],
        limit: LIMIT,
        workloads: String::new(),
    },
    Boot {
        plan: "bare",
        kernel_line: "psi=0",
        machine: &[],
        limit: LIMIT,
        workloads: String::new(),
    },
];

/// Kills of every kind, for runs with all kernels.
pub static KILLS: Boot = Boot {
    plan: "kills",
    kernel_line: "psi=1",
    machine: &[],
    limit: Duration::from_mins(22),
    workloads: String::new(),
};

/// An idle agent on a machine with the memory of a node: with less, it is sampled more often.
pub static IDLE: Boot = Boot {
    plan: "kills",
    kernel_line: "psi=1",
    machine: &["-m", "16384"],
    limit: Duration::from_mins(10),
    workloads: String::new(),
};

/// The packages, on a Debian with systemd as PID 1.
pub static PACKAGES: Boot = Boot {
    plan: "packages",
    // A login would hang up the console, and there is no network to wait for.
    kernel_line: "psi=1 rdinit=/sbin/init systemd.show_status=false \
                  systemd.mask=serial-getty@ttyS0.service \
                  systemd.mask=systemd-networkd-wait-online.service",
    // The root directory is in memory.
    machine: &["-m", "1536"],
    limit: Duration::from_mins(15),
    workloads: String::new(),
};

/// The suite of false alarms, for runs with all kernels.
pub static ALARMS: Boot = Boot {
    plan: "alarms",
    kernel_line: "psi=1",
    machine: &[],
    // Two of its workloads take five minutes.
    limit: Duration::from_mins(27),
    workloads: String::new(),
};
