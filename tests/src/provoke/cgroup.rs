//! Memory cgroups of our own, removed on drop, on cgroup v1, hybrid and v2 alike.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A tree of memory cgroups under one directory of ours.
#[derive(Debug)]
pub struct CgroupTree {
    mount: PathBuf,
    name: String,
    version: Version,
    /// Below the mount, in the order of creation.
    made: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

impl CgroupTree {
    /// Makes the top directory, `name`, in the memory controller's hierarchy of this machine.
    ///
    /// # Errors
    ///
    /// When there is none, or we may not write to it.
    pub fn new(name: &str) -> io::Result<Self> {
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let v2 = Path::new("/sys/fs/cgroup");
        let (mount, version) = if v1.join("memory.limit_in_bytes").exists() {
            (v1, Version::V1)
        } else if fs::read_to_string(v2.join("cgroup.controllers"))?.contains("memory") {
            (v2, Version::V2)
        } else {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "no memory cgroup hierarchy",
            ));
        };
        let mut tree = Self {
            mount: mount.to_owned(),
            name: name.to_owned(),
            version,
            made: Vec::new(),
        };
        if version == Version::V2 {
            fs::write(v2.join("cgroup.subtree_control"), "+memory")?;
        }
        tree.add("")?;
        Ok(tree)
    }

    /// Makes the cgroup `below` our top directory, such as `kubepods/pod1`, and all above it.
    ///
    /// # Errors
    ///
    /// As the file system says.
    pub fn add(&mut self, below: &str) -> io::Result<()> {
        let parts: Vec<&str> = below.split('/').filter(|part| !part.is_empty()).collect();
        for depth in 0..=parts.len() {
            let at = Path::new(&self.name).join(parts[..depth].join("/"));
            let dir = self.mount.join(&at);
            if !dir.exists() {
                fs::create_dir(&dir)?;
                self.made.push(at);
            }
            if self.version == Version::V2 && depth < parts.len() {
                fs::write(dir.join("cgroup.subtree_control"), "+memory")?;
            }
        }
        Ok(())
    }

    /// Limits the memory of the cgroup `below`.
    ///
    /// # Errors
    ///
    /// As the file system says.
    pub fn limit(&self, below: &str, bytes: u64) -> io::Result<()> {
        let file = match self.version {
            Version::V1 => "memory.limit_in_bytes",
            Version::V2 => "memory.max",
        };
        fs::write(self.dir(below).join(file), bytes.to_string())
    }

    /// A kill in the cgroup `below` takes all of its processes.
    ///
    /// # Errors
    ///
    /// As the file system says; cgroup v1 has no such thing.
    pub fn kill_together(&self, below: &str) -> io::Result<()> {
        fs::write(self.dir(below).join("memory.oom.group"), "1")
    }

    /// Path of the cgroup `below` as the kernel names it, beginning with `/`.
    pub fn path(&self, below: &str) -> String {
        let path = Path::new("/").join(&self.name).join(below);
        path.to_string_lossy().trim_end_matches('/').to_owned()
    }

    /// Its directory.
    pub fn dir(&self, below: &str) -> PathBuf {
        self.mount.join(&self.name).join(below)
    }
}

impl Drop for CgroupTree {
    fn drop(&mut self) {
        for made in self.made.iter().rev() {
            let dir = self.mount.join(made);
            // A killed process leaves its cgroup a moment after it was waited for.
            let gone = (0..1000).any(|_| {
                let left = fs::remove_dir(&dir).is_err() && dir.exists();
                if left {
                    std::thread::yield_now();
                }
                !left
            });
            if !gone {
                eprintln!("could not remove {}", dir.display());
            }
        }
    }
}
