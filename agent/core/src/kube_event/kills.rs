//! OOM kills with one cause.

use serde::{Deserialize, Serialize};

use super::Finding;
use crate::reading::oom::Consequence;

/// The number of findings that are stored of one incident. A container can have thousands of
/// processes.
const STORED: usize = 256;

/// OOM kills with one cause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kills {
    /// The first kills; at least one.
    pub findings: Vec<Finding>,
    /// The number of kills that are not stored.
    pub further: u64,
}

impl From<Vec<Finding>> for Kills {
    fn from(findings: Vec<Finding>) -> Self {
        let mut kills = Self {
            findings,
            further: 0,
        };
        kills.limit();
        kills
    }
}

impl Kills {
    pub fn count(&self) -> u64 {
        let stored = u64::try_from(self.findings.len()).unwrap_or(u64::MAX);
        stored.saturating_add(self.further)
    }

    pub fn first(&self) -> Option<&Finding> {
        self.findings.first()
    }

    pub fn only(&self) -> Option<&Finding> {
        match &self.findings[..] {
            [one] if self.further == 0 => Some(one),
            _ => None,
        }
    }

    pub fn add(&mut self, later: &Self) {
        self.findings.extend_from_slice(&later.findings);
        self.further = self.further.saturating_add(later.further);
        self.limit();
    }

    fn limit(&mut self) {
        let count = self.count();
        self.findings.truncate(STORED);
        self.further = 0;
        self.further = count - self.count();
    }

    /// Returns the effect of all kills together on their container.
    pub(super) fn consequence(&self) -> Option<Consequence> {
        use Consequence::{ChildProcess, MainProcess, WholeContainer};
        let all = || self.findings.iter().map(|one| one.consequence);
        let any = |consequence| all().any(|one| one == Some(consequence));
        if any(WholeContainer) {
            Some(WholeContainer)
        } else if any(MainProcess) {
            Some(MainProcess)
        } else if !self.findings.is_empty() && all().all(|one| one == Some(ChildProcess)) {
            Some(ChildProcess)
        } else {
            None
        }
    }
}
