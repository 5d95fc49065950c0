//! A node with made-up files, for tests.

use std::io::ErrorKind;
use std::path::Path;

use nodepulse_linux::host::scratch::Scratch;

use crate::config::{Config, Overrides};

/// Directory of the cgroups of a made-up node.
pub const CGROUPS: &str = "sys/fs/cgroup";

/// A node with cgroups of version 2 and these files. A path that begins with `@` is below
/// [`CGROUPS`].
pub fn node(files: &[(&str, &str)]) -> (Scratch, Config) {
    let dir = Scratch::new();
    let mounts = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    dir.write("proc/self/mountinfo", mounts);
    dir.write(&path("@cgroup.controllers"), "memory pids\n");
    for (name, text) in files {
        dir.write(&path(name), text);
    }
    let overrides = Overrides {
        host_root: Some(dir.path().display().to_string()),
        ..Overrides::default()
    };
    let none = |_: &Path| Err(ErrorKind::NotFound.into());
    let config = Config::load(&overrides, &|_| None, &none, "a").unwrap();
    (dir, config)
}

pub fn path(name: &str) -> String {
    match name.strip_prefix('@') {
        Some(below) => format!("{CGROUPS}/{below}"),
        None => name.to_owned(),
    }
}
