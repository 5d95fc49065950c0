//! PURE: the annotations of Events about OOM kills, for programs. The recorder writes them, and `kubectl
//! nodepulse` reads them; the messages are for people.

use serde::{Deserialize, Serialize};

/// Annotation of an Event about OOM kills: [`OomKill`] as JSON.
pub const OOM_KILL: &str = concat!(domain!(), "/oom-kill");

/// Annotation that is added with the details: a list of [`MemoryUser`] as JSON, the largest first.
pub const MEMORY_USERS: &str = concat!(domain!(), "/memory-users");

/// What is known about one incident. What is unknown is absent. All text in it is escaped.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OomKill {
    /// Name of the container, or the beginning of its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// `main_process`, `child_process` or `whole_container`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consequence: Option<String>,
    /// Whose limit was reached: `container`, `pod`, `pods` (all pods of the node), `node` or `cgroup`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// The limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// What was in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// How many processes the kernel killed.
    pub processes: u64,
    /// Name of the first of them.
    pub victim: String,
    /// Its resident memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub victim_bytes: Option<u64>,
}

/// Who used the memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryUser {
    /// Name of a process, or namespace and name of a pod.
    pub name: String,
    /// Its memory.
    pub bytes: u64,
}
