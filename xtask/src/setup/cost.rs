//! Estimates a first build, prints the estimate before it starts, and checks the space on the disk.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use nix::sys::statvfs::statvfs;

use crate::repo::Repo;

/// An estimate for a fresh clone on two cores, from earlier runs.
pub struct Cost {
    /// Name of what is built.
    pub what: &'static str,
    /// Path below the target directory that exists after the first build.
    pub left: &'static str,
    /// Duration on two cores.
    pub minutes: u32,
    pub disk_mib: u64,
    /// Size of the crates' sources, if cargo has not downloaded them.
    pub download_mib: u64,
}

pub const DEMO: Cost = Cost {
    what: "the agent and the demo",
    left: "debug/demo",
    minutes: 5,
    disk_mib: 2 * 1024,
    download_mib: 60,
};

pub const RELEASE: Cost = Cost {
    what: "the agent as it is shipped",
    left: "x86_64-unknown-linux-musl/release/nodepulse",
    minutes: 6,
    disk_mib: 1024,
    download_mib: 60,
};

pub const TEST: Cost = Cost {
    what: "everything that the tests need",
    left: "debug/init",
    minutes: 20,
    disk_mib: 10 * 1024,
    download_mib: 100,
};

impl Cost {
    /// Prints the cost of the first build, and fails if the disk has less space. Later builds take
    /// seconds, and are not announced.
    pub fn announce(&self, repo: &Repo) -> Result<()> {
        let target = &repo.target_dir;
        if target.join(self.left).exists() {
            return Ok(());
        }
        eprintln!(
            "setup: the first build of {} takes about {} minutes on two cores, {} below {}, and up \
             to {} MiB of downloads",
            self.what,
            self.minutes,
            gib(self.disk_mib),
            target.display(),
            self.download_mib
        );
        self.fits(target, free_mib(target)?)
    }

    fn fits(&self, target: &Path, free_mib: u64) -> Result<()> {
        if free_mib < self.disk_mib {
            bail!(
                "{} has {} free, and {} needs {}: free some space, or set CARGO_TARGET_DIR to a \
                 directory on a larger file system",
                target.display(),
                gib(free_mib),
                self.what,
                gib(self.disk_mib)
            );
        }
        Ok(())
    }
}

fn gib(mib: u64) -> String {
    format!("{}.{} GiB", mib / 1024, mib % 1024 * 10 / 1024)
}

/// Returns the space that is available to this user at `path`, which may not exist yet.
fn free_mib(path: &Path) -> Result<u64> {
    let there = path.ancestors().find(|path| path.exists());
    let there = there.unwrap_or(Path::new("/"));
    let found =
        statvfs(there).with_context(|| format!("cannot read free space of {}", there.display()))?;
    Ok(found
        .blocks_available()
        .saturating_mul(found.fragment_size())
        >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_space_is_an_error_with_path_sizes_and_cure() {
        let target = Path::new("/there/target");
        DEMO.fits(target, DEMO.disk_mib).unwrap();
        let err = DEMO.fits(target, 1536).unwrap_err().to_string();
        let expected = "/there/target has 1.5 GiB free, and the agent and the demo needs ";
        assert!(err.starts_with(expected), "{err}");
        assert!(err.contains("set CARGO_TARGET_DIR"), "{err}");
    }

    #[test]
    fn free_space_is_that_of_the_nearest_directory() {
        let here = free_mib(&std::env::temp_dir()).unwrap();
        let below = free_mib(&std::env::temp_dir().join("no/such/directory")).unwrap();
        assert!(here > 0 && below > 0);
        assert!(free_mib(Path::new("/proc/no-such")).unwrap() < here);
    }
}
