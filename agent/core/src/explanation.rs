//! The reasons for the status of each condition: the document that the daemon writes at
//! `/v1/explain`, and that `nodepulse explain` and the plugin of kubectl read.
//!
//! Keys are only added. A reader accepts a document of another version: it ignores unknown keys.

use serde::{Deserialize, Serialize};

pub use journal::{CurrentState, Journal, amount};
pub use text::{Line, Tone};

mod disks;
mod journal;
mod text;

/// The conditions of one node at one time. Times are in RFC 3339.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    pub node: String,
    pub at: String,
    /// `evictionPressureTransitionPeriod`.
    pub transition_period_seconds: u64,
    /// Purposes of file system calls that do not return.
    pub blocked_calls: Vec<String>,
    /// The reason for missing credentials for the API server; empty if there are credentials.
    pub missing_credentials: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sinks: Vec<ExplainedSink>,
    pub conditions: Vec<ExplainedCondition>,
}

/// A receiver of incidents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedSink {
    pub name: String,
    /// The number of revisions that are not delivered.
    pub lag: i64,
    /// The receiver did not accept the last attempt.
    pub failing: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExplainedCondition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    pub reason: String,
    pub message: String,
    pub since: String,
    #[serde(skip_serializing_if = "OnNode::is_same")]
    pub on_node: OnNode,
    /// One for each threshold.
    pub signals: Vec<ExplainedSignal>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stalls: Vec<ExplainedStall>,
    /// Set for `FrequentOOMKills` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kills: Option<ExplainedKills>,
    /// Causes of the status, each a sentence without a period.
    pub because: Vec<String>,
    /// Text that the Event about the last change to True has in addition to the message.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
    /// Names of disks whose I/O statistics are off.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unwatched: Vec<String>,
    /// Set for the conditions of disks only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disks: Option<Vec<ExplainedDisk>>,
    /// The newest first.
    pub changes: Vec<ExplainedChange>,
    /// The earliest end of a True condition, which later readings can extend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends_not_before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends_in_seconds: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OnNode {
    /// The condition is as desired, or unknown.
    #[default]
    #[serde(skip)]
    Same,
    /// `null`: the Node does not have it.
    NotSet,
    Different(StoredCondition),
}

impl OnNode {
    fn is_same(&self) -> bool {
        *self == Self::Same
    }
}

/// A condition at the API server that differs from the desired one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredCondition {
    pub status: String,
    pub reason: String,
    pub message: String,
    pub since: String,
}

/// A threshold, and the last samples of its signal. Amounts are in bytes, inodes or pids.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExplainedSignal {
    /// The name, such as `memory.available`.
    pub signal: String,
    /// `hard` or `soft`.
    pub strength: String,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub reading: Option<SignalReading>,
    /// The computation of the threshold from the capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub computed: Option<String>,
    /// False if the last attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readable: Option<bool>,
    /// `None` if the signal has not been sampled yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_ago: Option<u64>,
    /// The samples before the last one, the newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<EarlierSample>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalReading {
    /// Negative if more is used than is allocatable.
    pub available: i64,
    pub capacity: u64,
    pub threshold: u64,
    /// The threshold is met.
    pub below: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EarlierSample {
    pub available: i64,
    pub seconds_ago: u64,
}

/// A stall (PSI some), in percent of the time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExplainedStall {
    /// `node` or `pods`.
    pub of: String,
    /// `memory` or `io`.
    pub kind: String,
    pub threshold: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avg10: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avg60: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_ago: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shortage: Option<ExplainedShortage>,
}

/// The facts that decide if a stall on memory is one of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedShortage {
    /// The node's reclaim of memory; `None` if `/proc/vmstat` cannot be read.
    pub reclaim: Option<String>,
    /// The cgroups that waited most.
    pub units: Vec<String>,
    /// The reason for which the condition stays False.
    pub withheld: Option<String>,
    pub seconds_ago: u64,
}

/// OOM incidents in pods, and the limits of `FrequentOOMKills`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedKills {
    pub incidents: usize,
    pub incidents_threshold: usize,
    /// Number of different pods.
    pub pods: usize,
    pub pods_threshold: usize,
    pub window_seconds: u64,
}

/// A recorded change of what a condition depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedChange {
    pub at: String,
    pub from: String,
    pub to: String,
    pub why: String,
}

/// A disk: numbers, and the same as lines of text. Values that do not matter to the condition are
/// absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExplainedDisk {
    pub name: String,
    /// `node` or `volume`.
    pub role: String,
    pub health: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_computed: Option<ComputedLimit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_windows: Option<SlowWindows>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_watched: Option<RequestLatency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_wait: Option<ExplainedIoWait>,
    /// The time for which requests have been in flight without a completion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors_last_minute: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors_since_watched: Option<u64>,
    pub lines: Vec<String>,
}

/// The computation of a limit of latency from the usual latency of the disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComputedLimit {
    pub least_seconds: f64,
    pub percentile_seconds: Option<f64>,
    pub requests: u64,
    pub hours: usize,
}

/// The latency-sensitive requests of the last slow windows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SlowWindows {
    pub judged: u64,
    pub slow: u64,
    pub median_seconds: Option<f64>,
    pub largest_seconds: f64,
    pub bytes_per_second: Option<u64>,
    pub seconds: f64,
    pub within_seconds: f64,
}

/// The latency-sensitive requests since the agent began to watch the disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestLatency {
    pub requests: u64,
    pub median_seconds: Option<f64>,
}

/// The cgroups that use a disk, and those that wait for I/O.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedIoWait {
    pub users: Vec<ExplainedIoUser>,
    pub waiters: Vec<ExplainedIoWaiter>,
    pub seconds_ago: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedIoUser {
    pub name: String,
    pub read_bytes_per_second: u64,
    pub written_bytes_per_second: u64,
}

/// A cgroup that waits for I/O, in percent of the time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExplainedIoWaiter {
    pub name: String,
    pub percent: f32,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_condition_that_the_node_lacks_is_null() {
        let condition = |on_node| ExplainedCondition {
            on_node,
            ..ExplainedCondition::default()
        };
        let written = |on_node| json!(condition(on_node));
        assert_eq!(written(OnNode::Same).get("onNode"), None);
        assert_eq!(written(OnNode::NotSet)["onNode"], json!(null));
        for on_node in [OnNode::Same, OnNode::NotSet] {
            let read = serde_json::from_value(written(on_node.clone()));
            assert_eq!(read.ok(), Some(condition(on_node)));
        }
    }
}
