//! PURE: the certificate with which node mode authenticates at the API server: what a request and a
//! certificate contain.
//!
//! As with a kubelet, the user is `system:node:<name>` in the group `system:nodes`.

// Certificates are external.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

mod der;
pub mod signing_request;
pub mod x509;

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

/// Checks a certificate for `node`: its user and its validity.
pub fn check(
    certificate: &x509::Fields,
    fingerprint: u64,
    node: &str,
    now: SystemTime,
) -> Result<Certificate, Problem> {
    let x509::Fields {
        not_before,
        not_after,
        subject,
        ..
    } = certificate;
    let is_node = subject.common_name == user(node);
    if !is_node || !subject.organizations.iter().any(|group| group == GROUP) {
        return Err(Problem::OtherUser(subject.to_string()));
    }
    if *not_after <= now {
        return Err(Problem::Expired(*not_after));
    }
    if now < *not_before {
        return Err(Problem::NotYetValid(*not_before));
    }
    Ok(Certificate {
        fingerprint,
        not_before: *not_before,
        not_after: *not_after,
        stored: None,
    })
}
