//! Detects another client that renews this Node's Lease.
//!
//! A kubelet and nodepulse renew the Lease with the same identity, the Node's name.
//! `metadata.managedFields` identifies the writer: it contains the client that last wrote
//! `spec.renewTime`, named after the first word of its user agent.

#![forbid(unsafe_code)]
// Sums and products of durations panic on overflow, and these numbers are external.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

use std::fmt;
use std::time::{Duration, SystemTime};

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::{ApiError, Client, Endpoint, Refusal, transport};

/// Duration in seconds of a Lease that contains none: the kubelet's default.
const DEFAULT_DURATION: u64 = 40;

/// Maximum duration of a Lease in seconds, whatever it contains: a node agent renews four times in
/// that time, so one that has not renewed for an hour has ended.
const MAX_DURATION: u64 = 3600;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseHolder {
    /// `spec.holderIdentity`.
    pub identity: String,
    /// The client that last renewed the Lease, if the server reports it.
    pub manager: Option<String>,
    /// Time since the last renewal.
    pub ago: Duration,
}

impl fmt::Display for LeaseHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let manager = self.manager.as_deref().unwrap_or("an unknown client");
        write!(
            f,
            "{manager:?} as {:?}, {} s ago",
            self.identity,
            self.ago.as_secs()
        )
    }
}

/// Reads the Lease of `node`, and returns another client that renewed it and could still be alive
/// at `now`.
///
/// A valid Lease of nodepulse itself belongs to its previous run.
pub async fn find(
    client: &Client,
    node: &str,
    now: SystemTime,
) -> Result<Option<LeaseHolder>, ApiError> {
    match client.get(&Endpoint::lease(node)).await {
        Ok(lease) => Ok(holder(&lease, now).filter(|holder| !is_same_agent(holder, node))),
        Err(err) if err.refusal() == Some(Refusal::NotFound) => Ok(None),
        Err(err) => Err(err),
    }
}

/// Returns the client that renewed `lease`; `None` if it has expired.
pub(super) fn holder(lease: &Value, now: SystemTime) -> Option<LeaseHolder> {
    let spec = lease.get("spec")?;
    let renewed: Timestamp = spec.get("renewTime")?.as_str()?.parse().ok()?;
    let seconds = spec.get("leaseDurationSeconds").and_then(Value::as_u64);
    let seconds = seconds.unwrap_or(DEFAULT_DURATION).min(MAX_DURATION);
    let valid_for = Duration::from_secs(seconds);
    // A time in the future was written just now by another clock.
    let ago = now
        .duration_since(SystemTime::from(renewed))
        .unwrap_or_default();
    let identity = spec.get("holderIdentity").and_then(Value::as_str);
    (ago < valid_for).then(|| LeaseHolder {
        identity: identity.unwrap_or_default().to_owned(),
        manager: renewed_by(lease),
        ago,
    })
}

/// Returns the manager of `spec.renewTime`.
fn renewed_by(lease: &Value) -> Option<String> {
    let managers = lease.pointer("/metadata/managedFields")?.as_array()?;
    let renews = |entry: &&Value| entry.pointer("/fieldsV1/f:spec/f:renewTime").is_some();
    let manager = managers.iter().find(renews)?.get("manager")?;
    manager.as_str().map(str::to_owned)
}

fn is_same_agent(holder: &LeaseHolder, node: &str) -> bool {
    holder.identity == node
        && holder
            .manager
            .as_deref()
            .is_none_or(|manager| manager == transport::MANAGER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lease(identity: &str, renewed: &str, manager: Option<&str>) -> Value {
        let mut lease = json!({
            "metadata": {"name": "worker-1"},
            "spec": {
                "holderIdentity": identity,
                "leaseDurationSeconds": 40,
                "renewTime": renewed,
            },
        });
        if let Some(manager) = manager {
            lease["metadata"]["managedFields"] = json!([
                {"manager": "kubectl", "fieldsV1": {"f:metadata": {"f:labels": {}}}},
                {"manager": manager, "fieldsV1": {"f:spec": {"f:renewTime": {}}}},
            ]);
        }
        lease
    }

    #[test]
    fn another_holder_is_a_client_that_renewed_recently_and_is_not_the_previous_run() {
        const FRESH: &str = "2026-01-01T00:00:50.000000Z";
        const OLD: &str = "2026-01-01T00:00:20.000000Z";
        const AHEAD: &str = "2026-01-01T00:02:00.000000Z";
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let mut forever = lease("worker-1", "2025-12-31T23:00:00Z", Some("kubelet"));
        forever["spec"]["leaseDurationSeconds"] = json!(u64::MAX);
        #[rustfmt::skip]
        let rows = [
            ("a kubelet", lease("worker-1", FRESH, Some("kubelet")), true),
            ("one that has ended", lease("worker-1", OLD, Some("kubelet")), false),
            ("one with a clock ahead", lease("worker-1", AHEAD, Some("kubelet")), true),
            ("the previous run", lease("worker-1", FRESH, Some("nodepulse")), false),
            ("unknown manager, same identity", lease("worker-1", FRESH, None), false),
            ("unknown manager, other identity", lease("worker-2", FRESH, None), true),
            ("nodepulse with another identity", lease("worker-2", FRESH, Some("nodepulse")), true),
            ("no renewal at all", json!({"spec": {"holderIdentity": "worker-1"}}), false),
            ("an invalid time", json!({"spec": {"renewTime": "soon"}}), false),
            ("one without end", forever, false),
        ];
        for (name, lease, other) in rows {
            let holder =
                holder(&lease, now.into()).filter(|holder| !is_same_agent(holder, "worker-1"));
            assert_eq!(holder.is_some(), other, "{name}: {holder:?}");
        }
    }
}
