//! Resource usage of this process.

use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use procfs::ProcResult;
use procfs::process::Process;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessUsage {
    pub cpu: Duration,
    /// Resident memory in bytes.
    pub resident: u64,
    /// Size of the address space in bytes.
    pub virtual_memory: u64,
    /// Start time, relative to boot.
    pub started: Duration,
    /// Number of open file descriptors, including the one that is used to count.
    pub open_fds: usize,
    /// Limit on open file descriptors; `None` if unknown.
    pub max_fds: Option<u64>,
}

/// Reads `/proc/self`. Takes about 50 µs.
pub fn read() -> ProcResult<ProcessUsage> {
    let process = Process::myself()?;
    let stat = process.stat()?;
    let limit = getrlimit(Resource::RLIMIT_NOFILE);
    Ok(ProcessUsage {
        cpu: ticks(stat.utime.saturating_add(stat.stime)),
        resident: stat.rss.saturating_mul(procfs::page_size()),
        virtual_memory: stat.vsize,
        started: ticks(stat.starttime),
        open_fds: process.fd_count()?,
        max_fds: limit.ok().map(|(soft, _)| soft),
    })
}

fn ticks(ticks: u64) -> Duration {
    let hertz = procfs::ticks_per_second().max(1);
    let (seconds, rest) = (ticks / hertz, ticks % hertz);
    Duration::from_secs(seconds) + Duration::from_nanos(rest * (1_000_000_000 / hertz))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_of_this_process_is_plausible() {
        let usage = read().unwrap();
        assert!(
            usage.resident > 1 << 20 && usage.virtual_memory > usage.resident,
            "{usage:?}"
        );
        assert!(
            usage.started > Duration::ZERO && usage.open_fds > 2,
            "{usage:?}"
        );
        assert!(usage.max_fds.unwrap() >= 3);
    }
}
