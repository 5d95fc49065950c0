//! Samples the figures of a process in `/proc`.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::files;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sample {
    pub rss_kib: u64,
    pub anonymous_kib: u64,
    pub peak_rss_kib: u64,
    /// Sum over all threads.
    pub voluntary_switches: u64,
    /// User and system time, in ticks of 10 ms: `USER_HZ` is 100 on every Linux.
    pub cpu_ticks: u64,
}

impl Sample {
    pub fn take(pid: u32) -> Result<Self> {
        let process = Path::new("/proc").join(pid.to_string());
        let status = files::text(&process.join("status"))?;
        let mut voluntary_switches = 0;
        for task in std::fs::read_dir(process.join("task"))? {
            // A thread may end between the listing and the reading.
            if let Ok(status) = files::text(&task?.path().join("status")) {
                voluntary_switches += field(&status, "voluntary_ctxt_switches").unwrap_or(0);
            }
        }
        Ok(Self {
            rss_kib: field(&status, "VmRSS")?,
            anonymous_kib: field(&status, "RssAnon")?,
            peak_rss_kib: field(&status, "VmHWM")?,
            voluntary_switches,
            cpu_ticks: cpu_ticks(&files::text(&process.join("stat"))?)?,
        })
    }
}

/// Parses the number after `name:` in a `status` file.
fn field(status: &str, name: &str) -> Result<u64> {
    let value = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .and_then(|value| value.split_whitespace().next()?.parse().ok());
    value.with_context(|| format!("/proc/<pid>/status has no number {name}"))
}

/// Adds `utime` and `stime`, fields 14 and 15 of a `stat` file: 12 and 13 after the name.
fn cpu_ticks(stat: &str) -> Result<u64> {
    let behind_name = stat.rsplit_once(") ").map(|(_, rest)| rest);
    let ticks = behind_name.and_then(|rest| {
        let mut times = rest.split(' ').skip(11).map(str::parse::<u64>);
        Some(times.next()?.ok()? + times.next()?.ok()?)
    });
    ticks.with_context(|| format!("/proc/<pid>/stat has no CPU times: {stat}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_user_plus_system() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 12 34 0 0 20 0 1 0 5 6 7";
        assert_eq!(cpu_ticks(stat).unwrap(), 46);
        assert!(cpu_ticks("7 (a) S 1").is_err());
    }

    #[test]
    fn a_status_field_is_found_by_its_whole_name() {
        let status =
            "nonvoluntary_ctxt_switches:\t9\nvoluntary_ctxt_switches:\t3\nVmRSS:\t  12 kB\n";
        assert_eq!(field(status, "voluntary_ctxt_switches").unwrap(), 3);
        assert_eq!(field(status, "VmRSS").unwrap(), 12);
        let err = field(status, "Vm").unwrap_err();
        assert_eq!(err.to_string(), "/proc/<pid>/status has no number Vm");
    }

    #[test]
    fn this_process_can_be_sampled() {
        let sample = Sample::take(std::process::id()).unwrap();
        assert!(
            sample.rss_kib > 0 && sample.peak_rss_kib >= sample.rss_kib,
            "{sample:?}"
        );
    }
}
