//! `pid_max`, `threads-max` and the number of tasks.

use nodepulse_core::reading::{Reading, Signal};

use super::{HostError, HostFile, HostRoot, parse_u64, present, signed};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pids {
    /// The lower one of `pid_max` and `threads-max`, or the one that can be read.
    pub max: u64,
    /// Number of threads of all processes.
    pub tasks: u64,
}

impl Pids {
    /// Returns the signal `pid.available`.
    pub fn reading(self) -> Reading {
        Reading {
            signal: Signal::PidAvailable,
            available: signed(self.max).saturating_sub(signed(self.tasks)),
            capacity: self.max,
        }
    }
}

#[derive(Debug, Clone)]
pub struct PidFiles {
    pid_max: HostFile,
    threads_max: HostFile,
    loadavg: HostFile,
    this_machine: bool,
}

impl PidFiles {
    pub fn new(root: &HostRoot) -> Self {
        Self {
            pid_max: root.file("proc/sys/kernel/pid_max"),
            threads_max: root.file("proc/sys/kernel/threads-max"),
            loadavg: root.file("proc/loadavg"),
            this_machine: root.is_this_machine(),
        }
    }

    /// Reads three small files. Hot: does not allocate.
    pub fn read(&self, buf: &mut Vec<u8>) -> Result<Pids, HostError> {
        Ok(Pids {
            max: self.max(buf)?,
            tasks: self.tasks(buf)?,
        })
    }

    fn max(&self, buf: &mut Vec<u8>) -> Result<u64, HostError> {
        let threads = present(self.threads_max.number(buf))?;
        match (self.pid_max.number(buf), threads) {
            (Ok(pids), Some(threads)) => Ok(pids.min(threads)),
            (Err(err), Some(threads)) if err.is_absent() => Ok(threads),
            (only, _) => only,
        }
    }

    fn tasks(&self, buf: &mut Vec<u8>) -> Result<u64, HostError> {
        match self.loadavg.read(buf) {
            Ok(()) => tasks(buf).ok_or_else(|| self.loadavg.malformed("count of tasks")),
            // sysinfo(2) as a fallback refers to this machine only, and counts in 16 bits.
            Err(err) if self.this_machine => nix::sys::sysinfo::sysinfo()
                .map(|info| u64::from(info.process_count()))
                .map_err(|_| err),
            Err(err) => Err(err),
        }
    }
}

/// Returns the number after the slash in the fourth field of `/proc/loadavg`.
pub fn tasks(loadavg: &[u8]) -> Option<u64> {
    let fourth = loadavg.trim_ascii().split(|&b| b == b' ').nth(3)?;
    let slash = fourth.iter().position(|&b| b == b'/')?;
    parse_u64(fourth.get(slash + 1..)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::scratch::Scratch;

    const CAPTURED: &[u8] = include_bytes!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/proc/debian12-6.18/proc/loadavg"
    ));

    #[test]
    fn the_number_of_tasks_follows_the_slash() {
        let rows: [(&[u8], Option<u64>, &str); 7] = [
            (
                b"0.00 0.01 0.05 1/234 5678\n",
                Some(234),
                "as the kernel prints it",
            ),
            (b"0.00 0.01 0.05 1/234", Some(234), "without the last field"),
            (b"0.00 0.01 0.05 234 5678", None, "no slash"),
            (b"0.00 0.01 1/234 5678", None, "a field short"),
            (b"0.00 0.01 0.05 1/ 5678", None, "nothing after the slash"),
            (b"0.00 0.01 0.05 1/-3 5678", None, "a sign"),
            (b"", None, "empty"),
        ];
        for (text, expected, why) in rows {
            assert_eq!(tasks(text), expected, "{why}");
        }
        assert!(tasks(CAPTURED).is_some_and(|n| 10 < n && n < 100_000));
    }

    #[test]
    fn the_smaller_limit_applies_and_available_may_be_negative() {
        //          pid_max    threads-max  expected
        let rows = [
            (Some("4194304"), Some("1000\n"), Some((1000, 766))),
            (Some("200"), Some("1000"), Some((200, -34))),
            (Some("500"), None, Some((500, 266))),
            (None, Some("500"), Some((500, 266))),
            (None, None, None),
            (Some("many"), Some("500"), None),
        ];
        for (pid_max, threads_max, expected) in rows {
            let dir = Scratch::new();
            dir.write("proc/loadavg", "0.1 0.1 0.1 2/234 99\n");
            for (rel, text) in [("pid_max", pid_max), ("threads-max", threads_max)] {
                if let Some(text) = text {
                    dir.write(&format!("proc/sys/kernel/{rel}"), text);
                }
            }
            let reading = PidFiles::new(&dir.root())
                .read(&mut Vec::new())
                .map(Pids::reading);
            let got = reading.ok().map(|r| (r.capacity, r.available));
            assert_eq!(got, expected, "{pid_max:?} {threads_max:?}");
        }
    }

    #[test]
    fn a_simulated_node_without_loadavg_is_an_error() {
        let dir = Scratch::new();
        dir.write("proc/sys/kernel/pid_max", "100");
        let err = PidFiles::new(&dir.root())
            .read(&mut Vec::new())
            .unwrap_err();
        assert!(
            err.is_absent() && err.to_string().contains("loadavg"),
            "{err}"
        );
    }
}
