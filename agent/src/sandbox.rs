//! EDGE: drops all privileges that the running agent does not need, and verifies that they are
//! dropped. Also locks memory and sets the OOM score, which require dropped privileges.
//!
//! Capabilities, Landlock rules and system call filters apply to threads. [`enter`] must be called
//! while there is one; later threads inherit them.

#![forbid(unsafe_code)]

use std::fmt::Display;
use std::fs;

use nix::sys::prctl::set_no_new_privs;
use tracing::{info, warn};

mod capabilities;
mod files;
pub mod memory;
pub mod profile;
mod syscalls;
mod verify;

pub use profile::{Plugin, Profile, Used};

#[derive(Debug)]
pub struct SandboxReport {
    capabilities: String,
    bounding: &'static str,
    landlock: String,
    checks: usize,
    faults: Vec<String>,
    /// Forbidden actions that still succeed.
    permitted: Vec<&'static str>,
}

/// Permanently drops the privileges that `profile` does not need. `map_lookup` returns whether a
/// lookup in a map of the probes works without `CAP_BPF`, which kernels before 5.19 may require;
/// then it is kept.
///
/// Takes about a millisecond.
pub fn enter(profile: &Profile, map_lookup: impl Fn() -> bool) -> SandboxReport {
    let mut faults = Vec::new();
    if let Some(why) = other_threads() {
        faults.push(why);
    }
    let mut fault = |what: &str, why: &dyn Display| faults.push(format!("{what}: {why}"));

    let kept = capabilities::kept(map_lookup).unwrap_or_else(|err| {
        fault("capabilities", &err);
        Vec::new()
    });
    if let Err(err) = set_no_new_privs() {
        fault("no_new_privs", &err);
    }
    let landlock = files::restrict(profile).unwrap_or_else(|err| {
        fault("landlock", &err);
        "off".to_owned()
    });
    let bounding = capabilities::drop_all_but(&kept).unwrap_or_else(|err| {
        fault("capabilities", &err);
        "kept"
    });
    // Last, because it refuses the system calls of the other steps.
    if let Err(err) = syscalls::restrict(profile.plugin, profile.unix_sockets()) {
        fault("seccomp", &err);
    }
    let (checks, permitted) = verify::run(profile);
    SandboxReport {
        capabilities: capabilities::effective(),
        bounding,
        landlock,
        checks,
        faults,
        permitted,
    }
}

impl SandboxReport {
    /// The privileges that were not dropped; `None` if the sandbox is complete.
    pub fn gaps(&self) -> Option<String> {
        let permitted = self.permitted.iter().map(|what| format!("can {what}"));
        let all: Vec<String> = self.faults.iter().cloned().chain(permitted).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    pub fn log(&self) {
        let gaps = self.gaps();
        macro_rules! line {
            ($level:ident, $($more:tt)*) => {
                $level!(
                    capabilities = self.capabilities,
                    bounding = self.bounding,
                    landlock = self.landlock,
                    checks = self.checks,
                    $($more)*
                )
            };
        }
        match gaps {
            None => line!(info, "sandbox"),
            Some(gaps) => line!(warn, gaps, "sandbox is incomplete"),
        }
    }
}

/// Returns a fault if there are other threads, which keep their privileges.
fn other_threads() -> Option<String> {
    let threads = fs::read_dir("/proc/self/task").ok()?.count();
    (threads > 1).then(|| format!("{} other threads exist", threads - 1))
}
