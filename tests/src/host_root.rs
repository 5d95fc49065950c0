//! Simulates a node: a `/proc`, `/sys` and cgroup tree in a temporary directory.
//!
//! Starts from files of a real machine (`fixtures/proc/`), and lets a test change the numbers, also
//! while an agent reads them. What no available machine could print (memory files of cgroup version
//! 2, ids) is made up here.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use nodepulse_linux::host::HostRoot;
use tempfile::TempDir;

/// How the cgroup hierarchies of the node are mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cgroups {
    /// One hierarchy for each controller, and no unified one.
    V1,
    /// The captured layout: controllers on version 1, and a unified hierarchy without any.
    Hybrid,
    /// Only the unified hierarchy.
    V2,
}

/// The name of the pods cgroup with the kubelet's cgroupfs driver.
pub const PODS: &str = "kubepods";

/// The files of the node, which are removed on drop.
#[derive(Debug)]
pub struct MadeUpHost {
    dir: TempDir,
    cgroups: Cgroups,
}

impl Drop for MadeUpHost {
    /// An agent that ends with its runtime may still write its state on a thread, so that a
    /// directory may not be empty when it is removed.
    fn drop(&mut self) {
        const TRIES: usize = 1000;
        for _ in 0..TRIES {
            match fs::remove_dir_all(self.path()) {
                Err(err) if err.kind() == ErrorKind::DirectoryNotEmpty => std::thread::yield_now(),
                Ok(()) | Err(_) => break,
            }
        }
    }
}

impl MadeUpHost {
    /// Creates a calm node of 16 GiB, of which the working set is 4 GiB, with cgroup version 2.
    pub fn calm() -> Self {
        Self::with(Cgroups::V2)
    }

    /// Creates a calm node with another layout of cgroups.
    pub fn with(cgroups: Cgroups) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("made-up-host-")
            .tempdir()
            .expect("a temporary directory");
        let host = Self { dir, cgroups };
        copy_tree(&fixture(), host.path());
        // The captured cgroup files are of a hybrid node; `write_cgroups` creates those of
        // `cgroups`.
        fs::remove_dir_all(host.path().join("sys/fs/cgroup")).expect("fixture with cgroup files");
        fs::remove_file(host.path().join("README.md")).expect("fixture with a README");
        host.write_cgroups();
        host.write_machine();
        fs::create_dir(host.path().join("run")).expect("a directory for the agent's state");
        host.mem_total("16Gi")
            .mem_working_set("4Gi")
            .pods_limit("15Gi")
            .pods_working_set("2Gi")
            .pods_pids(100, None)
            .pods_oom(0, 0)
            .tasks(200)
            .pid_max(4_194_304)
            .threads_max(128_000)
            // Enough for a disk to be slow, if its requests are, and not enough for a stall.
            .pressure("io", 30.0, 0.0);
        host
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the directory that the agent uses as `/`.
    pub fn root(&self) -> HostRoot {
        HostRoot::new(self.path())
    }

    pub fn mem_total(&self, quantity: &str) -> &Self {
        self.meminfo("MemTotal", bytes(quantity) / 1024)
    }

    /// Sets one line of `/proc/meminfo`, such as `SwapTotal`, in KiB.
    pub fn meminfo(&self, field: &str, kib: u64) -> &Self {
        const FILE: &str = "proc/meminfo";
        let text = fs::read_to_string(self.path().join(FILE)).expect("captured meminfo");
        let mut found = false;
        let mut lines = String::new();
        for line in text.lines() {
            if line.split(':').next() == Some(field) {
                found = true;
                lines += &format!("{:<15} {kib:>8} kB\n", format!("{field}:"));
            } else {
                lines += &format!("{line}\n");
            }
        }
        assert!(found, "no {field} in {FILE}");
        self.write(FILE, lines)
    }

    /// Sets the used memory, without the file cache that the kernel would drop first.
    pub fn mem_working_set(&self, quantity: &str) -> &Self {
        const INACTIVE: u64 = 512 << 20;
        let used = bytes(quantity);
        if self.cgroups == Cgroups::V2 {
            // A quarter of the used memory is active file cache.
            let (anon, file) = (used - used / 4, used / 4 + INACTIVE);
            let text =
                format!("anon {anon}\nfile {file}\nkernel 1048576\ninactive_file {INACTIVE}\n");
            return self.write(&self.memory_file("", "memory.stat"), text);
        }
        self.usage_v1("", used, INACTIVE)
    }

    /// Sets `memory.max` of the pods cgroup: a quantity, or `max`.
    pub fn pods_limit(&self, quantity: &str) -> &Self {
        let (name, none) = match self.cgroups {
            Cgroups::V2 => ("memory.max", "max"),
            Cgroups::V1 | Cgroups::Hybrid => ("memory.limit_in_bytes", "9223372036854771712"),
        };
        let text = match quantity {
            "max" => none.to_owned(),
            quantity => bytes(quantity).to_string(),
        };
        self.write(&self.memory_file(PODS, name), text + "\n")
    }

    /// Sets the memory of the pods, without their inactive file cache.
    pub fn pods_working_set(&self, quantity: &str) -> &Self {
        const INACTIVE: u64 = 64 << 20;
        let used = bytes(quantity);
        if self.cgroups != Cgroups::V2 {
            return self.usage_v1(PODS, used, INACTIVE);
        }
        let stat = format!("anon {used}\nfile {INACTIVE}\ninactive_file {INACTIVE}\n");
        let current = format!("{}\n", used + INACTIVE);
        self.write(&self.memory_file(PODS, "memory.stat"), stat)
            .write(&self.memory_file(PODS, "memory.current"), current)
    }

    /// Sets `pids.current` and `pids.max` of the pods cgroup; `None` is `max`.
    pub fn pods_pids(&self, current: u64, max: Option<u64>) -> &Self {
        let max = max.map_or_else(|| "max".to_owned(), |max| max.to_string());
        let dir = match self.cgroups {
            Cgroups::V2 => "sys/fs/cgroup",
            Cgroups::V1 | Cgroups::Hybrid => "sys/fs/cgroup/pids",
        };
        self.write(
            &format!("{dir}/{PODS}/pids.current"),
            format!("{current}\n"),
        )
        .write(&format!("{dir}/{PODS}/pids.max"), max + "\n")
    }

    /// Sets how often the pods cgroup reached its limit, and the number of tasks killed because of
    /// it.
    pub fn pods_oom(&self, limit_hits: u64, kills: u64) -> &Self {
        self.oom(PODS, limit_hits, kills)
    }

    /// Sets the counters of any cgroup, such as `kubepods/pod1/ctr`. The files are written in
    /// place, so that inotify watches are notified.
    pub fn oom(&self, cgroup: &str, limit_hits: u64, kills: u64) -> &Self {
        if self.cgroups == Cgroups::V2 {
            let text =
                format!("low 0\nhigh 0\nmax {limit_hits}\noom {limit_hits}\noom_kill {kills}\n");
            return self
                .write_in_place(&self.memory_file(cgroup, "memory.events"), &text)
                .write_in_place(&self.memory_file(cgroup, "memory.events.local"), &text);
        }
        let control = format!("oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n");
        let failcnt = format!("{limit_hits}\n");
        self.write_in_place(&self.memory_file(cgroup, "memory.oom_control"), &control)
            .write_in_place(&self.memory_file(cgroup, "memory.failcnt"), &failcnt)
    }

    /// Creates the cgroup of this container and those above it, without kills.
    pub fn container(&self, cgroup: &str) -> &Self {
        let above = cgroup.match_indices('/').skip(1);
        for (end, _) in above {
            self.oom(&cgroup[..end], 0, 0);
        }
        self.oom(cgroup, 0, 0)
    }

    /// Sets the number of threads in `/proc/loadavg`.
    pub fn tasks(&self, n: u64) -> &Self {
        self.write("proc/loadavg", format!("0.10 0.20 0.30 1/{n} 4242\n"))
    }

    pub fn pid_max(&self, n: u64) -> &Self {
        self.write("proc/sys/kernel/pid_max", format!("{n}\n"))
    }

    pub fn threads_max(&self, n: u64) -> &Self {
        self.write("proc/sys/kernel/threads-max", format!("{n}\n"))
    }

    /// Adds a disk without I/O and with statistics. `dev` is its number, such as `8:0`.
    pub fn disk(&self, name: &str, dev: &str) -> &Self {
        let at = |rel: &str| format!("sys/block/{name}/{rel}");
        self.write(&at("mq/0/cpu_list"), "0\n")
            .write(&at("dev"), format!("{dev}\n"))
            .write(&at("queue/rotational"), "0\n")
            .write(&at("queue/iostats"), "1\n")
            .disk_counters(name, [0; 5])
    }

    /// Sets reads, their milliseconds, writes, their milliseconds, and requests in flight.
    pub fn disk_counters(&self, name: &str, counters: [u64; 5]) -> &Self {
        let [reads, read_ms, writes, write_ms, in_flight] = counters;
        let text =
            format!("{reads} 0 0 {read_ms} {writes} 0 0 {write_ms} {in_flight} 0 0 0 0 0 0 0 0\n");
        self.write(&format!("sys/block/{name}/stat"), text)
    }

    /// Sets `some` of `/proc/pressure/<cpu|memory|io>`, in percent over 10 and 60 s.
    pub fn pressure(&self, what: &str, avg10: f32, avg60: f32) -> &Self {
        let text = format!(
            "some avg10={avg10:.2} avg60={avg60:.2} avg300=0.00 total=1\n\
             full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
        );
        self.write(&format!("proc/pressure/{what}"), text)
    }

    /// Adds a file system to the mount table; nothing is mounted.
    pub fn mount(&self, point: &str) -> &Self {
        const FILE: &str = "proc/self/mountinfo";
        let table = fs::read_to_string(self.path().join(FILE)).expect("a mount table");
        let line = format!("90 23 8:16 / {point} rw,relatime - ext4 /dev/sdb rw\n");
        self.write(FILE, table + &line)
    }

    /// Replaces one file atomically: a reader reads either the old text or the new one.
    pub fn write(&self, rel: &str, text: impl AsRef<[u8]>) -> &Self {
        let path = self.prepared(rel);
        let mut new = tempfile::NamedTempFile::new_in(self.path()).expect("a new file");
        new.write_all(text.as_ref()).expect("the new text");
        new.persist(&path)
            .unwrap_or_else(|err| panic!("put {}: {err}", path.display()));
        self
    }

    /// Removes a file or a directory, which need not exist.
    pub fn remove(&self, rel: &str) -> &Self {
        let path = self.path().join(rel);
        let removed = if path.is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        match removed {
            Err(err) if err.kind() != std::io::ErrorKind::NotFound => {
                panic!("remove {}: {err}", path.display())
            }
            Ok(()) | Err(_) => self,
        }
    }

    fn write_in_place(&self, rel: &str, text: &str) -> &Self {
        fs::write(self.prepared(rel), text).unwrap_or_else(|err| panic!("write {rel}: {err}"));
        self
    }

    fn prepared(&self, rel: &str) -> PathBuf {
        let path = self.path().join(rel);
        let above = path.parent().expect("a path below the root");
        fs::create_dir_all(above).unwrap_or_else(|err| panic!("make {}: {err}", above.display()));
        path
    }

    fn memory_file(&self, cgroup: &str, name: &str) -> String {
        let top = match self.cgroups {
            Cgroups::V2 => "sys/fs/cgroup",
            Cgroups::V1 | Cgroups::Hybrid => "sys/fs/cgroup/memory",
        };
        format!("{top}/{cgroup}/{name}")
    }

    fn usage_v1(&self, cgroup: &str, used: u64, inactive: u64) -> &Self {
        let stat = format!("inactive_file 0\ntotal_inactive_file {inactive}\n");
        let usage = format!("{}\n", used + inactive);
        self.write(&self.memory_file(cgroup, "memory.stat"), stat)
            .write(&self.memory_file(cgroup, "memory.usage_in_bytes"), usage)
    }

    fn write_cgroups(&self) {
        const V2: &str =
            "31 23 0:28 / /sys/fs/cgroup rw,nosuid,nodev,noexec - cgroup2 cgroup2 rw,nsdelegate\n";
        const MOUNTINFO: &str = "proc/self/mountinfo";

        let captured = fs::read_to_string(fixture().join(MOUNTINFO)).expect("captured mountinfo");
        let without = |kind: &str| {
            let lines = captured.lines().filter(|line| !line.contains(kind));
            lines.map(|line| format!("{line}\n")).collect::<String>()
        };
        match self.cgroups {
            Cgroups::V2 => self.write(MOUNTINFO, without("/sys/fs/cgroup") + V2).write(
                "sys/fs/cgroup/cgroup.controllers",
                "cpuset cpu io memory pids\n",
            ),
            Cgroups::V1 => self.write(MOUNTINFO, without(" - cgroup2 ")),
            Cgroups::Hybrid => self.write("sys/fs/cgroup/unified/cgroup.controllers", "hugetlb\n"),
        };
    }

    fn write_machine(&self) {
        self.write("etc/machine-id", "00000000000040008000000000000001\n")
            .write(
                "sys/class/dmi/id/product_uuid",
                "00000000-0000-4000-8000-000000000002\n",
            )
            .write(
                "proc/sys/kernel/random/boot_id",
                "00000000-0000-4000-8000-000000000003\n",
            )
            .write("sys/devices/system/node/node0/cpu0/online", "1\n")
            .write("sys/devices/system/node/node0/cpu1/online", "1\n")
            .write("sys/block/vda/mq/0/cpu_list", "0, 1\n");
    }
}

/// Parses `4Gi`, `512Mi`, `16Ki` or a number of bytes.
fn bytes(quantity: &str) -> u64 {
    let digits = quantity.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: u64 = match quantity.get(digits.len()..) {
        Some("") => 1,
        Some("Ki") => 1 << 10,
        Some("Mi") => 1 << 20,
        Some("Gi") => 1 << 30,
        Some("Ti") => 1 << 40,
        _ => panic!("{quantity}: expected a number with Ki, Mi, Gi, Ti or nothing"),
    };
    let n: u64 = digits.parse().expect("digits before the unit");
    n * factor
}

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/proc/debian12-6.18")
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory in the temporary directory");
    for entry in fs::read_dir(from).expect("the fixture's directory") {
        let entry = entry.expect("an entry of the fixture's directory");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).expect("a copy of a fixture");
        }
    }
}
