//! PURE: the annotations of Events about OOM kills, for programs. The recorder writes them, and
//! `kubectl nodepulse` reads them; the messages are for people.

use serde::{Deserialize, Serialize};

/// Annotation of an Event about OOM kills: [`OomKill`] as JSON.
pub const OOM_KILL: &str = concat!(domain!(), "/oom-kill");

/// Annotation that is added with the details: a list of [`MemoryUser`] as JSON, the largest first.
pub const MEMORY_USERS: &str = concat!(domain!(), "/memory-users");

/// The facts that are known about one incident; unknown ones are absent. All text is escaped.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, rename_all = "camelCase")]
pub struct OomKill {
    /// Name of the container, or the beginning of its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// `main_process`, `child_process` or `whole_container`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consequence: Option<String>,
    /// The limit that was reached: `container`, `pod`, `pods` (all pods of the node),
    /// `node` or `cgroup`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// Number of processes that the kernel killed.
    pub processes: u64,
    /// Name of the first process that was killed.
    pub victim: String,
    /// Resident memory of the victim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub victim_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct MemoryUser {
    /// Name of a process, or namespace and name of a pod.
    pub name: String,
    pub bytes: u64,
}
