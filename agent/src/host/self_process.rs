//! What the kernel says of this process itself.

use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use procfs::ProcResult;
use procfs::process::Process;

/// One look at our own process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessUsage {
    /// User and system time.
    pub cpu: Duration,
    /// Resident memory, in bytes.
    pub resident: u64,
    /// Address space, in bytes.
    pub virtual_memory: u64,
    /// From the machine's start to ours.
    pub started: Duration,
    /// Open file descriptors, the one that counts them included.
    pub open_fds: usize,
    /// How many there may be; `None` where that cannot be asked.
    pub max_fds: Option<u64>,
}

/// Reads `/proc/self`. About 50 µs.
///
/// # Errors
///
/// Where `/proc` is not mounted, or not ours to read.
pub fn read() -> ProcResult<ProcessUsage> {
    let own = Process::myself()?;
    let stat = own.stat()?;
    let limit = getrlimit(Resource::RLIMIT_NOFILE);
    Ok(ProcessUsage {
        cpu: ticks(stat.utime.saturating_add(stat.stime)),
        resident: stat.rss.saturating_mul(procfs::page_size()),
        virtual_memory: stat.vsize,
        started: ticks(stat.starttime),
        open_fds: own.fd_count()?,
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
    fn this_process_uses_something_of_everything() {
        let own = read().unwrap();
        assert!(
            own.resident > 1 << 20 && own.virtual_memory > own.resident,
            "{own:?}"
        );
        assert!(own.started > Duration::ZERO && own.open_fds > 2, "{own:?}");
        assert!(own.max_fds.unwrap() >= 3);
    }
}
