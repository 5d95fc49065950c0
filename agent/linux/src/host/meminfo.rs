//! `/proc/meminfo`.

use nodepulse_core::units::Bytes;

use super::{HostError, HostFile, HostRoot, parse_u64};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meminfo {
    /// `MemTotal`.
    pub total: Bytes,
    /// `MemAvailable`; `None` if not printed (before Linux 3.14).
    pub available: Option<Bytes>,
    /// `SwapTotal`; zero without swap.
    pub swap_total: Bytes,
    /// `SwapFree`; zero without swap.
    pub swap_free: Bytes,
}

#[derive(Debug, Clone)]
pub struct MeminfoFile(HostFile);

impl MeminfoFile {
    pub fn new(root: &HostRoot) -> Self {
        Self(root.file("proc/meminfo"))
    }

    /// Reads the file. Hot: does not allocate.
    pub fn read(&self, buf: &mut Vec<u8>) -> Result<Meminfo, HostError> {
        self.0.read(buf)?;
        parse(buf).ok_or_else(|| self.0.malformed("`MemTotal: <n> kB`"))
    }
}

/// Parses the file. Returns `None` without a valid `MemTotal`.
pub fn parse(meminfo: &[u8]) -> Option<Meminfo> {
    Some(Meminfo {
        total: field_kib(meminfo, b"MemTotal:")?,
        available: field_kib(meminfo, b"MemAvailable:"),
        swap_total: field_kib(meminfo, b"SwapTotal:").unwrap_or_default(),
        swap_free: field_kib(meminfo, b"SwapFree:").unwrap_or_default(),
    })
}

/// Returns the value after `key`, as in `MemAvailable:   123 kB`.
fn field_kib(meminfo: &[u8], key: &[u8]) -> Option<Bytes> {
    let value = meminfo
        .split(|&b| b == b'\n')
        .find_map(|line| line.strip_prefix(key))?;
    let digits = value.trim_ascii().strip_suffix(b" kB")?;
    parse_u64(digits.trim_ascii()).map(Bytes::from_kib)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::scratch::Scratch;

    const CAPTURED: &[u8] = include_bytes!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/proc/debian12-6.18/proc/meminfo"
    ));

    #[test]
    fn a_captured_file_is_parsed() {
        let meminfo = parse(CAPTURED).unwrap();
        assert_eq!(meminfo.total, Bytes::from_kib(24_684_096));
        assert!(meminfo.available.unwrap() < meminfo.total);
        assert_eq!(meminfo.swap_total, Bytes::default());
    }

    #[test]
    fn edges() {
        #[rustfmt::skip]
        let rows: [(&[u8], Option<u64>, &str); 8] = [
            (b"MemTotal: 16 kB\n", Some(16384), "one line"),
            (b"MemTotal:16 kB", Some(16384), "no blank, no newline"),
            (b"xMemTotal: 16 kB\n", None, "another key"),
            (b"MemTotal: 16 MB\n", None, "a unit that the kernel does not print"),
            (b"MemTotal: -16 kB\n", None, "a sign"),
            (b"MemTotal: kB\n", None, "no digits"),
            (b"MemTotal: 18446744073709551615 kB", Some(u64::MAX), "saturates"),
            (b"\xff\xfe\0", None, "not text"),
        ];
        for (text, expected, why) in rows {
            assert_eq!(parse(text).map(|m| m.total.get()), expected, "{why}");
        }
        let old = parse(b"MemTotal: 4 kB\nSwapTotal: 8 kB\nSwapFree: 2 kB\n").unwrap();
        let swap = (old.swap_total.get(), old.swap_free.get());
        assert_eq!((old.available, swap), (None, (8192, 2048)));
    }

    #[test]
    fn an_error_names_the_file() {
        let dir = Scratch::new();
        dir.write("proc/meminfo", "nonsense");
        let err = MeminfoFile::new(&dir.root())
            .read(&mut Vec::new())
            .unwrap_err();
        assert!(err.to_string().contains("proc/meminfo"), "{err}");
    }
}
