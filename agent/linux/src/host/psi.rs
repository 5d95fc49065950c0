//! Pressure stall information: `*/pressure` files.

use std::path::Path;
use std::time::Duration;

use nodepulse_core::reading::StallKind;

use super::{HostError, HostFile, HostRoot, parse_u64};

/// The line `some` of a pressure file: the share of wall time in which at least one task was
/// stalled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Psi {
    /// Percent over the last 10 s.
    pub avg10: f32,
    /// Percent over the last 60 s.
    pub avg60: f32,
    /// Stall time since boot, never reset. The kernel counts microseconds.
    pub total: Duration,
}

pub fn node_file(root: &HostRoot, kind: StallKind) -> HostFile {
    root.file(Path::new("proc/pressure").join(kind.as_str()))
}

/// Returns the pressure file of a directory in the unified hierarchy.
pub fn cgroup_file(cgroup: &Path, kind: StallKind) -> HostFile {
    HostFile::at(cgroup.join(format!("{}.pressure", kind.as_str())))
}

/// Reads one file. `None` without PSI, which may need `psi=1` on the kernel command line.
pub fn read(file: &HostFile, buf: &mut Vec<u8>) -> Result<Option<Psi>, HostError> {
    match file.read(buf) {
        Ok(()) => parse(buf)
            .map(Some)
            .ok_or_else(|| file.malformed("`some avg10=…` line")),
        Err(err) if err.is_absent() || err.is_disabled() => Ok(None),
        Err(err) => Err(err),
    }
}

/// Parses a file. Returns `None` without a valid `some` line.
pub fn parse(text: &[u8]) -> Option<Psi> {
    let mut lines = str::from_utf8(text).ok()?.lines();
    let line = lines.find_map(|line| line.strip_prefix("some "))?;
    let value = |key: &str| {
        line.split_ascii_whitespace()
            .find_map(|field| field.strip_prefix(key)?.strip_prefix('='))
    };
    let percent = |key| {
        let percent: f32 = value(key)?.parse().ok()?;
        // Rounding in the kernel can give slightly more than 100.
        (0.0..=101.0).contains(&percent).then_some(percent)
    };
    Some(Psi {
        avg10: percent("avg10")?,
        avg60: percent("avg60")?,
        total: Duration::from_micros(parse_u64(value("total")?.as_bytes())?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::scratch::Scratch;

    const CAPTURED: &[u8] = include_bytes!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/proc/debian12-6.18/proc/pressure/io"
    ));

    #[test]
    fn the_line_of_any_task_is_read() {
        let psi = parse(
            b"some avg10=1.50 avg60=0.25 avg300=0.00 total=1234567\n\
              full avg10=0.50 avg60=0.00 avg300=100.00 total=9\n",
        )
        .unwrap();
        let expected = Psi {
            avg10: 1.5,
            avg60: 0.25,
            total: Duration::from_micros(1_234_567),
        };
        assert_eq!(psi, expected);
        assert!(parse(CAPTURED).is_some());
    }

    #[test]
    fn malformed_files_are_refused() {
        let good = "avg10=0.00 avg60=0.00 avg300=0.00 total=1";
        //          text                                     parsed, why
        #[rustfmt::skip]
        let rows = [
            (format!("some {good}\n"), true, "cpu before 5.13"),
            (format!("full {good}\n"), false, "no `some`"),
            ("some avg10=nan avg60=0 avg300=0 total=1".to_owned(), false, "not a number"),
            ("some avg10=-1 avg60=0 avg300=0 total=1".to_owned(), false, "below zero"),
            ("some avg10=500 avg60=0 avg300=0 total=1".to_owned(), false, "above 100%"),
            ("some avg10=0 avg60=0 avg300=0 total=-1".to_owned(), false, "negative total"),
            (String::new(), false, "empty"),
        ];
        for (text, parsed, why) in rows {
            assert_eq!(parse(text.as_bytes()).is_some(), parsed, "{why}");
        }
    }

    #[test]
    fn no_file_means_no_psi() {
        let dir = Scratch::new();
        let mut buf = Vec::new();
        let file = node_file(&dir.root(), StallKind::Io);
        assert_eq!(read(&file, &mut buf).unwrap(), None);
        dir.write("proc/pressure/io", CAPTURED);
        assert_eq!(read(&file, &mut buf).unwrap(), parse(CAPTURED));
        dir.write("proc/pressure/io", "garbage");
        assert!(
            read(&file, &mut buf)
                .unwrap_err()
                .to_string()
                .contains("pressure/io")
        );
        let of_cgroup = cgroup_file(dir.path(), StallKind::Memory);
        assert!(of_cgroup.path().ends_with("memory.pressure"));
    }

    #[test]
    fn disabled_psi_is_not_an_error() {
        let off = HostError::Read {
            path: "/proc/pressure/io".into(),
            source: nix::errno::Errno::EOPNOTSUPP.into(),
        };
        assert!(off.is_disabled() && !off.is_absent());
    }
}
