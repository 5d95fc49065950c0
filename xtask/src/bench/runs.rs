//! Defines the measured runs, and their gates.

use super::NODE;

/// One agent on a node with a number of pods, and its gates.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Value of the agent's flag.
    pub mode: &'static str,
    /// Number of pods on the agent's node.
    pub pods: u32,
    /// Incidents are also delivered to a collector and two webhooks.
    pub has_sinks: bool,
    pub rss_mib: f64,
    pub anonymous_mib: Option<f64>,
    /// Maximum per second.
    pub voluntary_switches: f64,
    /// Maximum per hour.
    pub lease_renewals: f64,
    /// Number of watches that the mode keeps open, each reopened up to 13 times an hour.
    pub watches: f64,
}

/// Maximum per hour, in either mode.
pub const STATUS_PATCHES: f64 = 12.0;
/// Maximum per hour, for each watch.
pub const WATCH_REOPENS: f64 = 13.0;

/// Thresholds that the machine is far from: a disk that is nearly full is sampled more often.
const THRESHOLDS: &str = "memory.available<64Mi,nodefs.available<64Mi,imagefs.available<64Mi,\
     nodefs.inodesFree<1Ki,imagefs.inodesFree<1Ki,pid.available<1Ki";

/// Nothing listens there, and nothing happens of which they would get an incident.
const SINKS: [&str; 4] = [
    "--sinks-otlp-endpoint",
    "http://127.0.0.1:9",
    "--sinks-webhooks",
    "http://127.0.0.1:9/a,http://127.0.0.1:9/b",
];

const COMPANION: Run = Run {
    mode: "companion",
    pods: 110,
    has_sinks: false,
    rss_mib: 8.0,
    anonymous_mib: Some(2.0),
    voluntary_switches: 0.6,
    lease_renewals: 0.0,
    watches: 1.0,
};

pub const RUNS: [Run; 4] = [
    COMPANION,
    Run {
        has_sinks: true,
        ..COMPANION
    },
    Run {
        pods: 500,
        rss_mib: 10.0,
        anonymous_mib: None,
        ..COMPANION
    },
    Run {
        mode: "node",
        rss_mib: 10.0,
        voluntary_switches: 1.0,
        lease_renewals: 366.0,
        watches: 2.0,
        ..COMPANION
    },
];

impl Run {
    pub fn title(&self) -> String {
        let sinks = if self.has_sinks { ", sinks" } else { "" };
        format!("{} mode, {} pods{sinks}", self.mode, self.pods)
    }

    /// Returns whether another client has registered the Node.
    pub fn is_alongside_a_kubelet(&self) -> bool {
        self.mode == "companion"
    }

    pub fn arguments(&self) -> Vec<&'static str> {
        let mut arguments = vec!["run", "--mode", self.mode, "--node-name", NODE];
        arguments.extend(["--eviction-hard", THRESHOLDS]);
        if self.has_sinks {
            arguments.extend(SINKS);
        }
        if !self.is_alongside_a_kubelet() {
            arguments.push("--take-over");
        }
        arguments
    }
}
