//! EDGE: gives up every right that the agent does not need once it runs, and looks that they are
//! gone. Memory that must stay, and standing when memory is short, are claimed here too, since both
//! need rights that go.
//!
//! Capabilities, Landlock rules and system call filters belong to threads: [`enter`] must be called
//! while there is one, and each later one inherits them.

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
mod trial;

pub use profile::{Plugin, Profile};

/// What was given up, and what was not.
#[derive(Debug)]
pub struct SandboxReport {
    capabilities: String,
    bounding: &'static str,
    landlock: String,
    tried: usize,
    /// What could not be given up.
    faults: Vec<String>,
    /// What must fail now, and does not.
    gets_through: Vec<&'static str>,
}

/// Gives up what `profile` does not name, for good. `map_look_up` says whether a look-up in a map of
/// the probes works: kernels before 5.19 can ask for `CAP_BPF` even then, and it is kept there.
///
/// Takes about a millisecond.
pub fn enter(profile: &Profile, map_look_up: impl Fn() -> bool) -> SandboxReport {
    let mut faults = Vec::new();
    if let Some(why) = other_threads() {
        faults.push(why);
    }
    let mut note = |what: &str, why: &dyn Display| faults.push(format!("{what}: {why}"));

    let kept = capabilities::kept(map_look_up).unwrap_or_else(|err| {
        note("capabilities", &err);
        Vec::new()
    });
    if let Err(err) = set_no_new_privs() {
        note("no_new_privs", &err);
    }
    let landlock = files::restrict(profile).unwrap_or_else(|err| {
        note("landlock", &err);
        "off".to_owned()
    });
    let bounding = capabilities::drop_all_but(&kept).unwrap_or_else(|err| {
        note("capabilities", &err);
        "kept"
    });
    // Last: it refuses the calls that the others make.
    if let Err(err) = syscalls::restrict(profile.plugin) {
        note("seccomp", &err);
    }
    let (tried, gets_through) = trial::run(profile);
    SandboxReport {
        capabilities: capabilities::effective(),
        bounding,
        landlock,
        tried,
        faults,
        gets_through,
    }
}

impl SandboxReport {
    /// What is not as it should be; `None` where everything holds.
    #[must_use]
    pub fn gaps(&self) -> Option<String> {
        let through = self.gets_through.iter().map(|what| format!("can {what}"));
        let all: Vec<String> = self.faults.iter().cloned().chain(through).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Writes one line to the log.
    pub fn log(&self) {
        let weakness = self.gaps();
        macro_rules! line {
            ($level:ident, $($more:tt)*) => {
                $level!(
                    capabilities = self.capabilities,
                    bounding = self.bounding,
                    landlock = self.landlock,
                    tried = self.tried,
                    $($more)*
                )
            };
        }
        match weakness {
            None => line!(info, "sandbox"),
            Some(weakness) => line!(warn, weakness, "sandbox does not hold everything"),
        }
    }
}

/// Threads that are there already keep what they have.
fn other_threads() -> Option<String> {
    let threads = fs::read_dir("/proc/self/task").ok()?.count();
    (threads > 1).then(|| format!("{} threads were there before", threads - 1))
}
