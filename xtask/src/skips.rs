//! Reads which tests, checks and stages were skipped, each with a reason.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};

/// Variable with the path of the file to which a skipped test appends a line
/// (`tests/src/skipped.rs`).
const FILE: &str = "NODEPULSE_SKIPPED_TESTS";

pub const NO_CLUSTER: &str = "no real API server";
pub const NO_IMAGE: &str = "the kernel cannot be downloaded";

/// First words of accepted reasons: properties of a machine or a kernel that no change of this
/// repository can mend. With CI=true every other reason is a failure.
const ACCEPTED: &[(&str, &str)] = &[
    (
        NO_CLUSTER,
        "NODEPULSE_E2E_KUBECONFIG names no administrator's kubeconfig; the same scenarios run on \
         the embedded server, but for those of admission policies.",
    ),
    (
        NO_IMAGE,
        "A mirror does not have the package any more; the other end of the matrix still runs.",
    ),
    (
        "this kernel has no memory controller on cgroup v1",
        "Debian builds kernels from 6.12 on without CONFIG_MEMCG_V1.",
    ),
    (
        "no kubectl",
        "setup does not install kubectl; the rendered objects are compared with the chart without it.",
    ),
    (
        "no containerd",
        "setup installs containerd, which starts as a service, only for the full suite of false alarms; \
         a scripted runtime has the same answers.",
    ),
    (
        "lintian is missing",
        "setup does not install lintian, which brings a hundred Perl modules; the contents of the \
         packages are checked without it.",
    ),
    (
        "systemd-analyze is missing",
        "setup does not install systemd on a machine without it.",
    ),
    (
        "no reserved blocks",
        "The file system below the temporary directory reserves less than 1 % for root.",
    ),
    (
        "the disk does not discard",
        "The disk below the temporary directory has no discard, or its file system does not send it.",
    ),
    (
        "no disk that takes commands of programs",
        "The target directory is on neither a virtio nor an NVMe disk; the VMs have NVMe disks.",
    ),
    (
        "no further address",
        "All interfaces but loopback lack an address of the family.",
    ),
    (
        "another agent keeps a Node",
        "`cleanup --all-nodes` must not change Nodes of a real cluster that others use.",
    ),
    (
        "no values for a real node",
        "NODEPULSE_E2E_VALUES names no values with which the chart's pods can run on the cluster.",
    ),
    (
        "no pods that need a feature",
        "An API server before 1.36 knows neither `declaredFeatures` nor a pod that needs one of them.",
    ),
    (
        "the kernel log is not restricted",
        "kernel.dmesg_restrict is 0, so every process may read the log.",
    ),
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skip {
    /// The test, check or stage.
    pub what: String,
    pub reason: String,
}

impl Skip {
    pub fn new(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            reason: reason.into(),
        }
    }

    /// Returns why this is not a failure in CI; `None` if it is one.
    pub fn accepted(&self) -> Option<&'static str> {
        let found = ACCEPTED.iter().find(|(of, _)| self.reason.starts_with(of));
        found.map(|(_, why)| *why)
    }
}

impl std::fmt::Display for Skip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what, self.reason)
    }
}

/// The machines of CI are chosen for the tests.
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true" || ci == "1")
}

/// Returns why a run with these skips fails in CI; `None` if all reasons are accepted.
pub fn failure(skips: &[Skip]) -> Option<String> {
    let refused = skips.iter().filter(|skip| skip.accepted().is_none());
    let refused: Vec<String> = refused.map(ToString::to_string).collect();
    let words = format!(
        "skipped, which is a failure with CI=true: {}",
        refused.join("; ")
    );
    (!refused.is_empty()).then_some(words)
}

/// The file that tests write to; removed on drop.
pub struct Record(PathBuf);

impl Record {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (process, next) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let name = format!("nodepulse-skipped-{process}-{next}");
        Self(std::env::temp_dir().join(name))
    }

    /// Returns the environment variable for the tests.
    pub fn variable(&self) -> (&'static str, &Path) {
        (FILE, &self.0)
    }

    /// Returns what tests have recorded, each test once.
    pub fn read(&self) -> Result<Vec<Skip>> {
        let text = match std::fs::read_to_string(&self.0) {
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => String::new(),
            other => other.with_context(|| format!("cannot read {}", self.0.display()))?,
        };
        Ok(skips_in(&text))
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // Only a skipped test creates it.
        let _absent = std::fs::remove_file(&self.0);
    }
}

/// Parses lines `target TAB test TAB reason TAB details`.
fn skips_in(text: &str) -> Vec<Skip> {
    let mut skips: Vec<Skip> = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(4, '\t');
        let mut next = || fields.next().unwrap_or_default();
        let (target, test, reason, details) = (next(), next(), next(), next());
        let what = format!("{target} {test}");
        if skips.iter().all(|skip| skip.what != what) {
            skips.push(Skip::new(what, format!("{reason}: {details}")));
        }
    }
    skips
}

#[cfg(test)]
#[path = "../../tests/src/skipped.rs"]
mod skipped;

#[cfg(test)]
pub use skipped::skip;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_test_counts_once_with_its_first_reason() {
        let text = "pids\ta::b\tno kubectl\tnot found\n\
                    pids\ta::b\tanother\t\npids\tc\tneeds root\t\n";
        let expected = [
            Skip::new("pids a::b", "no kubectl: not found"),
            Skip::new("pids c", "needs root: "),
        ];
        assert_eq!(skips_in(text), expected);
    }

    #[test]
    fn only_an_accepted_reason_is_no_failure_in_ci() {
        let accepted = Skip::new("a", "no kubectl: not found");
        let refused = Skip::new("b", "needs root");
        assert_eq!(failure(std::slice::from_ref(&accepted)), None);
        let words = "skipped, which is a failure with CI=true: b: needs root";
        assert_eq!(failure(&[accepted, refused]).as_deref(), Some(words));
    }

    #[test]
    fn both_sides_agree_on_the_file() {
        assert_eq!(FILE, skipped::FILE);
    }
}
