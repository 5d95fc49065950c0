//! `nodeInfo`: operating system and architecture, with Go's names.
//!
//! They describe the build, not `uname`: a 32-bit agent on a 64-bit kernel reports 32 bits.

use super::{Context, SetterError};
use crate::node_status::NodeStatus;

/// The only supported operating system.
pub const OPERATING_SYSTEM: &str = "linux";

pub fn set(_: &Context<'_>, status: &mut NodeStatus) -> Result<(), SetterError> {
    OPERATING_SYSTEM.clone_into(&mut status.node_info.operating_system);
    architecture().clone_into(&mut status.node_info.architecture);
    Ok(())
}

/// Returns Go's name for the architecture of the build.
pub fn architecture() -> &'static str {
    go_name(std::env::consts::ARCH)
}

/// Returns Go's name for Rust's name; most are the same.
fn go_name(rust: &'static str) -> &'static str {
    match rust {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "loongarch64" => "loong64",
        "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
        "powerpc64" => "ppc64",
        same => same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_have_the_names_that_go_gives_them() {
        let rows = [
            ("x86_64", "amd64"),
            ("x86", "386"),
            ("aarch64", "arm64"),
            ("arm", "arm"),
            ("s390x", "s390x"),
            ("riscv64", "riscv64"),
            ("loongarch64", "loong64"),
        ];
        for (rust, go) in rows {
            assert_eq!(go_name(rust), go, "{rust}");
        }
    }
}
