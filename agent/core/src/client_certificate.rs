//! PURE: the certificate with which node mode authenticates at the API server.
//!
//! As with a kubelet, the user is `system:node:<name>` in the group `system:nodes`.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

/// The group of all nodes, `O` of the subject.
pub const GROUP: &str = "system:nodes";

/// The user of a node, `CN` of the subject.
pub fn user(node: &str) -> String {
    format!("system:node:{node}")
}

/// A certificate that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// Equal for the same certificate with the same key.
    pub fingerprint: u64,
    /// The start of its life.
    pub not_before: SystemTime,
    /// Its expiry.
    pub not_after: SystemTime,
    /// By this machine's clock, if that is known.
    pub stored: Option<SystemTime>,
}

impl Certificate {
    /// From the start of its life to its expiry.
    pub fn life(&self) -> Duration {
        let life = self.not_after.duration_since(self.not_before);
        life.unwrap_or_default()
    }
}

/// Why a certificate is not used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Problem {
    /// There is none.
    Missing,
    /// The file cannot be read.
    Unreadable(String),
    /// Other users can read the key, with this mode of the file.
    ReadableByOthers(u32),
    /// The file belongs to this user, who is neither root nor nodepulse's.
    Owner(u32),
    /// The file, or what the server returned, does not contain it in this form.
    Malformed(Cow<'static, str>),
    /// It is for another key.
    OtherKey,
    /// It is for this user, not for the node.
    OtherUser(String),
    /// It is valid from then on.
    NotYetValid(SystemTime),
    /// It expired then.
    Expired(SystemTime),
}

/// The validity and the subject of an X.509 certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFields {
    pub not_before: SystemTime,
    pub not_after: SystemTime,
    /// `CN`, the user.
    pub common_name: String,
    /// Each `O`, the groups of the user.
    pub organizations: Vec<String>,
}

impl CertificateFields {
    /// Checks that the certificate is for `node`, and valid now.
    pub fn check(
        self,
        fingerprint: u64,
        node: &str,
        now: SystemTime,
    ) -> Result<Certificate, Problem> {
        let is_node = self.common_name == user(node);
        if !is_node || !self.organizations.iter().any(|group| group == GROUP) {
            let groups = self.organizations.iter().map(|group| format!(",O={group}"));
            let groups: String = groups.collect();
            return Err(Problem::OtherUser(format!(
                "CN={}{groups}",
                self.common_name
            )));
        }
        if self.not_after <= now {
            return Err(Problem::Expired(self.not_after));
        }
        if now < self.not_before {
            return Err(Problem::NotYetValid(self.not_before));
        }
        Ok(Certificate {
            fingerprint,
            not_before: self.not_before,
            not_after: self.not_after,
            stored: None,
        })
    }
}
