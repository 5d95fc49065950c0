//! Records tests that cannot run on this machine. They count as skipped, with a reason, and not as
//! passed.
//!
//! Also compiled into the tests of `xtask`, which collects these records.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write as _;

/// Variable with the path of the file to which every skipped test appends a line: target, test,
/// reason and details, separated by tabs.
pub const FILE: &str = "NODEPULSE_SKIPPED_TESTS";

/// Records that the running test cannot run, or only in part; the test then returns. A run with
/// CI=true fails unless `xtask/src/skips.rs` accepts the `reason`.
///
/// libtest knows no such result: without [`FILE`] only a line on standard error reports it.
pub fn skip(reason: &str, details: impl Display) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("unnamed");
    let details = details.to_string().replace(['\t', '\n'], " ");
    // One write: lines of tests that run at the same time stay whole. `eprintln!` is captured.
    let line = format!("\nskipped: {test}: {reason}: {details}\n");
    let _unseen = std::io::stderr().write_all(line.as_bytes());
    let Some(path) = std::env::var_os(FILE) else {
        return;
    };
    let target = std::env::current_exe().expect("the path of this program");
    let target = target.file_stem().unwrap_or_default().to_string_lossy();
    // Without the hash that cargo appends.
    let target = target.rsplit_once('-').map_or(&*target, |(name, _)| name);
    let line = format!("{target}\t{test}\t{reason}\t{details}\n");
    let file = OpenOptions::new().append(true).create(true).open(&path);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|err| panic!("{}: {err}", path.display()));
}
