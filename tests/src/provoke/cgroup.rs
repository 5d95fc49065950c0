//! Creates cgroups for tests, removed on drop, on cgroup v1, hybrid and v2.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A tree of cgroups of one controller under one directory.
#[derive(Debug)]
pub struct CgroupTree {
    mount: PathBuf,
    name: String,
    controller: &'static str,
    version: Version,
    /// Paths below the mount, in the order of creation.
    made: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

impl CgroupTree {
    /// Creates the top directory, `name`, in the memory controller's hierarchy of this machine.
    pub fn new(name: &str) -> io::Result<Self> {
        Self::of("memory", name)
    }

    /// Creates the top directory in the hierarchy of another controller.
    pub fn of(controller: &'static str, name: &str) -> io::Result<Self> {
        let v2 = Path::new("/sys/fs/cgroup");
        let v1 = v2.join(controller);
        let (mount, version) = if v1.join("release_agent").exists() {
            (v1.as_path(), Version::V1)
        } else if fs::read_to_string(v2.join("cgroup.controllers"))?.contains(controller) {
            (v2, Version::V2)
        } else {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("no {controller} cgroup hierarchy"),
            ));
        };
        let mut tree = Self {
            mount: mount.to_owned(),
            name: name.to_owned(),
            controller,
            version,
            made: Vec::new(),
        };
        if version == Version::V2 {
            fs::write(v2.join("cgroup.subtree_control"), format!("+{controller}"))?;
        }
        tree.add("")?;
        Ok(tree)
    }

    /// Creates the cgroup `below` the top directory, such as `kubepods/pod1`, and all above it.
    pub fn add(&mut self, below: impl AsRef<Path>) -> io::Result<()> {
        let parts: Vec<_> = below.as_ref().components().collect();
        for depth in 0..=parts.len() {
            let at = Path::new(&self.name).join(parts[..depth].iter().collect::<PathBuf>());
            let dir = self.mount.join(&at);
            if !dir.exists() {
                fs::create_dir(&dir)?;
                self.made.push(at);
            }
            if self.version == Version::V2 && depth < parts.len() {
                let controller = format!("+{}", self.controller);
                fs::write(dir.join("cgroup.subtree_control"), controller)?;
            }
        }
        Ok(())
    }

    /// Turns on further controllers for the tree on cgroup v2, if this kernel has them. On v1 each
    /// controller has a separate hierarchy.
    pub fn share<const N: usize>(&self, controllers: [&str; N]) -> io::Result<()> {
        if self.version == Version::V1 {
            return Ok(());
        }
        let known = fs::read_to_string(self.mount.join("cgroup.controllers"))?;
        let known: Vec<&str> = known.split_whitespace().collect();
        let has_children = |dir: &&PathBuf| self.made.iter().any(|m| m.parent() == Some(dir));
        let above = self.made.iter().filter(has_children);
        for dir in std::iter::once(&PathBuf::new()).chain(above) {
            for controller in controllers.iter().filter(|c| known.contains(*c)) {
                let file = self.mount.join(dir).join("cgroup.subtree_control");
                fs::write(file, format!("+{controller}"))?;
            }
        }
        Ok(())
    }

    /// Limits the memory of the cgroup `below`.
    pub fn limit(&self, below: impl AsRef<Path>, bytes: u64) -> io::Result<()> {
        let file = match self.version {
            Version::V1 => "memory.limit_in_bytes",
            Version::V2 => "memory.max",
        };
        fs::write(self.dir(below).join(file), bytes.to_string())
    }

    /// Slows the cgroup `below` down while it uses more memory. Not supported on cgroup v1.
    pub fn slow_down_above(&self, below: impl AsRef<Path>, bytes: u64) -> io::Result<()> {
        if self.version == Version::V1 {
            let why = "cgroup v1 has no memory.high";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        fs::write(self.dir(below).join("memory.high"), bytes.to_string())
    }

    /// Removes the limit of the memory of the cgroup `below`.
    pub fn unlimit(&self, below: impl AsRef<Path>) -> io::Result<()> {
        let (file, none) = match self.version {
            Version::V1 => ("memory.limit_in_bytes", "-1"),
            Version::V2 => ("memory.max", "max"),
        };
        fs::write(self.dir(below).join(file), none)
    }

    /// Returns the memory of the cgroup `below`, in bytes.
    pub fn usage(&self, below: impl AsRef<Path>) -> io::Result<u64> {
        let file = match self.version {
            Version::V1 => "memory.usage_in_bytes",
            Version::V2 => "memory.current",
        };
        let text = fs::read_to_string(self.dir(below).join(file))?;
        text.trim().parse().map_err(io::Error::other)
    }

    /// Returns whether its hierarchy is cgroup v2.
    pub fn is_version_2(&self) -> bool {
        self.version == Version::V2
    }

    /// Returns the kernel's count of OOM-killed processes of the cgroup `below`, without
    /// descendants.
    pub fn kills(&self, below: impl AsRef<Path>) -> io::Result<u64> {
        let file = match self.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events.local",
        };
        let text = fs::read_to_string(self.dir(below).join(file))?;
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count
            .and_then(|count| count.parse().ok())
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, text))
    }

    /// Makes a kill in the cgroup `below` kill all of its processes. Not supported on cgroup v1.
    pub fn kill_together(&self, below: &str) -> io::Result<()> {
        fs::write(self.dir(below).join("memory.oom.group"), "1")
    }

    /// Restricts the cgroup `below` to this memory node. Its hierarchy is cgroup v2.
    pub fn memory_node(&self, below: &str, node: u32) -> io::Result<()> {
        let dir = self.dir(below);
        let above: Vec<_> = dir.ancestors().skip(1).collect();
        let hierarchy = above.iter().rev();
        for dir in hierarchy.filter(|dir| dir.starts_with(&self.mount)) {
            fs::write(dir.join("cgroup.subtree_control"), "+cpuset")?;
        }
        fs::write(dir.join("cpuset.mems"), node.to_string())
    }

    /// Returns the kernel's path of the cgroup `below`, beginning with `/`.
    pub fn path(&self, below: &str) -> String {
        let path = Path::new("/").join(&self.name).join(below);
        path.to_string_lossy().trim_end_matches('/').to_owned()
    }

    pub fn dir(&self, below: impl AsRef<Path>) -> PathBuf {
        self.mount.join(&self.name).join(below)
    }
}

impl Drop for CgroupTree {
    fn drop(&mut self) {
        for made in self.made.iter().rev() {
            remove(&self.mount.join(made));
        }
    }
}

/// Retries, because a killed process leaves its cgroup a moment after it was waited for.
fn remove(dir: &Path) {
    let removed = (0..1000).any(|_| {
        let left = fs::remove_dir(dir).is_err() && dir.exists();
        if left {
            std::thread::yield_now();
        }
        !left
    });
    if !removed {
        eprintln!("could not remove {}", dir.display());
    }
}

/// A cgroup with at most this many processes, which are killed on drop.
#[derive(Debug)]
pub struct Pen {
    dir: PathBuf,
}

impl Pen {
    /// Creates the cgroup in the hierarchy of the pids controller.
    pub fn new(name: &str, processes: u32) -> io::Result<Self> {
        let v1 = Path::new("/sys/fs/cgroup/pids");
        let v2 = Path::new("/sys/fs/cgroup");
        let mount = if v1.join("cgroup.procs").exists() {
            v1
        } else {
            fs::write(v2.join("cgroup.subtree_control"), "+pids")?;
            v2
        };
        let pen = Self {
            dir: mount.join(name),
        };
        fs::create_dir(&pen.dir)?;
        fs::write(pen.dir.join("pids.max"), processes.to_string())?;
        Ok(pen)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the number of refused forks.
    pub fn refused(&self) -> io::Result<u64> {
        let events = fs::read_to_string(self.dir.join("pids.events"))?;
        let count = events.trim().strip_prefix("max ").map(str::parse);
        count
            .and_then(Result::ok)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, events))
    }

    fn kill_all(&self) -> io::Result<()> {
        fs::write(self.dir.join("pids.max"), "0")?;
        loop {
            let left = fs::read_to_string(self.dir.join("cgroup.procs"))?;
            if left.is_empty() {
                return Ok(());
            }
            for pid in left.lines().filter_map(|line| line.parse().ok()) {
                // A process that has ended meanwhile needs no signal.
                let _: nix::Result<()> = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for Pen {
    fn drop(&mut self) {
        if let Err(err) = self.kill_all() {
            eprintln!("emptying {}: {err}", self.dir.display());
        }
        remove(&self.dir);
    }
}
