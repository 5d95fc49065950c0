//! Measures the resources that a process uses.

use std::fs;
use std::io;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    /// Resident memory, in KiB.
    pub rss_kib: u64,
    /// Anonymous part of the resident memory, in KiB.
    pub anonymous_kib: u64,
    pub threads: u64,
    pub descriptors: usize,
    /// Number of child processes, and their children, that still exist.
    pub descendants: usize,
}

impl Footprint {
    /// Measures the process with this id.
    pub fn of(pid: u32) -> io::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
            number.ok_or_else(|| io::Error::other(format!("no {name} in its status")))
        };
        Ok(Self {
            rss_kib: field("VmRSS:")?,
            anonymous_kib: field("RssAnon:")?,
            threads: field("Threads:")?,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
            descendants: descendants(pid),
        })
    }
}

fn descendants(pid: u32) -> usize {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let children = tasks.into_iter().flatten().flatten().flat_map(|task| {
        let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        let pids = list.split_whitespace().map(str::parse::<u32>);
        pids.flatten().collect::<Vec<_>>()
    });
    children.map(|child| 1 + descendants(child)).sum()
}
