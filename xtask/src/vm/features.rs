//! Lists the checks for each row of docs/kernels.md.

/// A row of the page, and the names of its checks; those of the plan `bare` begin with `bare/`. A
/// name that ends with a slash stands for all checks of a plan. A check that is not listed here has
/// a separate row.
#[rustfmt::skip]
pub const FEATURES: &[(&str, &str)] = &[
    ("probes are attached", "load bare/load"),
    ("OOM kill in a cgroup", "oom-nested oom-cgroup-gone oom-group"),
    ("OOM kill of the node", "oom-global"),
    ("Event of each kind of kill", "kills/"),
    ("50 kills at once", "oom-storm"),
    ("OOM scope",
     "oom-nested oom-global oom-exact oom-limit oom-cpuset daemon-cpuset bare/oom-global"),
    ("OOM kill reported by another program", "oom-fentry oom-exit"),
    ("victim on cgroup v1", "bare/oom-nested bare/oom-cgroup-gone bare/daemon-bare"),
    ("PID threshold exceeded", "pid-crossing fork-storm bare/pid-crossing"),
    ("forecast of the PID limit", "pid-trend"),
    ("slow disk",
     "disk-limit disk-judged disk-few disk-silence disk-passthrough disk-throttled disk-flush-zero \
      disk-discard disk-stat"),
    ("hung disk", "disk-hung disk-stalled"),
    ("failing disk", "disk-bad-block disk-error"),
    ("disk plugged in and removed", "disk-comes-and-goes"),
    ("pressure files", "psi-io psi-memory bare/psi-off"),
    ("tier `kmsg`, without eBPF", "tier-kmsg"),
    ("tier `files`, without eBPF", "tier-files daemon-files"),
    ("conditions by the daemon", "daemon"),
    ("runs with two capabilities", "few-capabilities few-capabilities-and-handles"),
    ("no false alarm",
     "alarms/write-32-mib-fsync alarms/write-32-mib-writeback alarms/write-256-mib-fsync \
      alarms/write-256-mib-writeback alarms/mixed-random-depth-1 alarms/mixed-random-depth-8 \
      alarms/mixed-random-depth-64 alarms/fsync-loop alarms/tar-x-20000-files \
      alarms/build-5000-forks alarms/fstrim alarms/flush-loop alarms/smart-passthrough \
      alarms/page-cache-container alarms/page-cache-node alarms/swap-out-cold-memory \
      alarms/reclaim-burst alarms/memory-tenant-at-limit alarms/memory-high-hang \
      alarms/crash-loop alarms/unplugged-disk"),
    ("every alarm in time",
     "alarms/pids-leak alarms/memory-leak alarms/kills-in-three-pods alarms/disk-stall \
      alarms/memory-stall alarms/throttled-disk alarms/delayed-disk alarms/hung-disk \
      alarms/disk-errors alarms/throttled-volume alarms/volume-errors"),
    ("nothing lost or left", "no-losses detach bare/no-losses bare/detach"),
];
