//! A temporary directory for one test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::HostRoot;

pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("nodepulse-host-{}-{n}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir(&dir).unwrap();
        Self(dir)
    }

    pub fn root(&self) -> HostRoot {
        HostRoot::new(&self.0)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file and creates its parent directories.
    pub fn write(&self, rel: &str, text: impl AsRef<[u8]>) {
        let path = self.0.join(rel);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn mkdir(&self, rel: &str) {
        fs::create_dir_all(self.0.join(rel)).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // An error here must not hide the failure of the test.
        drop(fs::remove_dir_all(&self.0));
    }
}
