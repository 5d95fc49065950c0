//! Units as types: no bare `u64` of bytes or pids crosses a function boundary.

use serde::{Deserialize, Serialize};

pub mod duration;
pub mod latency;
pub mod quantity;
pub mod rate;

/// Returns a number with what it counts, a noun whose plural ends with `s`.
pub fn counted(number: u64, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{s}")
}

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize,
)]
pub struct Bytes(u64);

impl Bytes {
    /// Takes a number from a source that counts bytes, such as `memory.current`.
    pub const fn from_bytes(n: u64) -> Self {
        Self(n)
    }

    /// Takes a number from a source that counts KiB, such as `/proc/meminfo`, whose "kB" means 1024
    /// bytes.
    pub const fn from_kib(n: u64) -> Self {
        Self(n.saturating_mul(1024))
    }

    /// Takes a number from a record of the kernel that counts pages of `page_size` bytes.
    pub const fn from_pages(pages: u64, page_size: u64) -> Self {
        Self(pages.saturating_mul(page_size))
    }

    pub const fn get(self) -> u64 {
        self.0
    }
}

impl std::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        Self(all.map(Self::get).fold(0, u64::saturating_add))
    }
}

impl std::fmt::Display for Bytes {
    /// Writes the value in the largest binary unit that is not above it, with one decimal:
    /// `63.9Mi`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const UNITS: [(&str, u64); 4] = [
            ("Ti", 1 << 40),
            ("Gi", 1 << 30),
            ("Mi", 1 << 20),
            ("Ki", 1 << 10),
        ];
        for (name, size) in UNITS {
            if self.0 >= size {
                let tenths = u128::from(self.0) * 10 / u128::from(size);
                return write!(f, "{}.{}{name}", tenths / 10, tenths % 10);
            }
        }
        write!(f, "{}", self.0)
    }
}

/// A process or thread id in the initial pid namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Pid(pub u32);

impl std::fmt::Display for Pid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A cgroup id: on 64-bit kernels also the inode number of its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CgroupId(pub u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceNumber {
    pub major: u32,
    /// Identifies the disk or partition.
    pub minor: u32,
}

impl DeviceNumber {
    /// Parses `major:minor`.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| digits)
        };
        let (major, minor) = text.split_once(':')?;
        Some(Self {
            major: number(major)?,
            minor: number(minor)?,
        })
    }
}

impl std::fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        let texts = [0, 1, 2].map(|number| counted(number, "OOM kill"));
        assert_eq!(texts, ["0 OOM kills", "1 OOM kill", "2 OOM kills"]);
    }
}
