//! Whether somebody else keeps our Node alive.
//!
//! A kubelet and we hold a Lease under the same identity, the Node's name. Who really writes it
//! stands in the server's bookkeeping: `metadata.managedFields` names the client that last wrote
//! `spec.renewTime`, after the first word of its user agent.

#![forbid(unsafe_code)]
// Sums and products of durations panic if they do not fit, and these are of numbers from outside.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

use std::fmt;
use std::time::{Duration, SystemTime};

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::{ApiError, Client, Endpoint, Refusal, transport};

/// How long a Lease is good for that does not say so: the kubelet's default.
const USUAL_DURATION: u64 = 40;

/// The longest that a Lease is good for, whatever it says: a node agent renews four times in that
/// time, so one that has been silent for an hour is gone.
const LONGEST_DURATION: u64 = 3600;

/// Who keeps a Lease alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// `spec.holderIdentity`.
    pub identity: String,
    /// The client that last renewed it, where the server says.
    pub manager: Option<String>,
    /// How long ago that was.
    pub ago: Duration,
}

impl fmt::Display for Holder {
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

/// Reads the Lease of `node`: whoever else has renewed it and could still be alive at `now`.
///
/// A Lease of our own that is still fresh is that of our last run.
///
/// # Errors
///
/// When the API server does not answer, or not with a Lease.
pub async fn find(
    client: &Client,
    node: &str,
    now: SystemTime,
) -> Result<Option<Holder>, ApiError> {
    match client.get(&Endpoint::lease(node)).await {
        Ok(lease) => Ok(holder(&lease, now).filter(|holder| !is_same_agent(holder, node))),
        Err(err) if err.refusal() == Some(Refusal::NotFound) => Ok(None),
        Err(err) => Err(err),
    }
}

/// Whoever renewed `lease`; `None` where it has run out.
pub(super) fn holder(lease: &Value, now: SystemTime) -> Option<Holder> {
    let spec = lease.get("spec")?;
    let renewed: Timestamp = spec.get("renewTime")?.as_str()?.parse().ok()?;
    let seconds = spec.get("leaseDurationSeconds").and_then(Value::as_u64);
    let seconds = seconds.unwrap_or(USUAL_DURATION).min(LONGEST_DURATION);
    let good_for = Duration::from_secs(seconds);
    // A time ahead of our clock was written just now by another one.
    let ago = now
        .duration_since(SystemTime::from(renewed))
        .unwrap_or_default();
    let identity = spec.get("holderIdentity").and_then(Value::as_str);
    (ago < good_for).then(|| Holder {
        identity: identity.unwrap_or_default().to_owned(),
        manager: renewed_by(lease),
        ago,
    })
}

/// The manager of `spec.renewTime`.
fn renewed_by(lease: &Value) -> Option<String> {
    let managers = lease.pointer("/metadata/managedFields")?.as_array()?;
    let renews = |entry: &&Value| entry.pointer("/fieldsV1/f:spec/f:renewTime").is_some();
    let manager = managers.iter().find(renews)?.get("manager")?;
    manager.as_str().map(str::to_owned)
}

fn is_same_agent(holder: &Holder, node: &str) -> bool {
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
    fn somebody_else_is_whoever_renewed_lately_and_is_not_our_last_run() {
        const FRESH: &str = "2026-01-01T00:00:50.000000Z";
        const OLD: &str = "2026-01-01T00:00:20.000000Z";
        const AHEAD: &str = "2026-01-01T00:02:00.000000Z";
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let mut forever = lease("worker-1", "2025-12-31T23:00:00Z", Some("kubelet"));
        forever["spec"]["leaseDurationSeconds"] = json!(u64::MAX);
        let rows = [
            ("a kubelet", lease("worker-1", FRESH, Some("kubelet")), true),
            (
                "one that is gone",
                lease("worker-1", OLD, Some("kubelet")),
                false,
            ),
            (
                "one with a clock ahead",
                lease("worker-1", AHEAD, Some("kubelet")),
                true,
            ),
            (
                "our last run",
                lease("worker-1", FRESH, Some("nodepulse")),
                false,
            ),
            (
                "nobody says who, by our name",
                lease("worker-1", FRESH, None),
                false,
            ),
            (
                "nobody says who, by another name",
                lease("worker-2", FRESH, None),
                true,
            ),
            (
                "us under another name",
                lease("worker-2", FRESH, Some("nodepulse")),
                true,
            ),
            (
                "no renewal at all",
                json!({"spec": {"holderIdentity": "worker-1"}}),
                false,
            ),
            ("nonsense", json!({"spec": {"renewTime": "soon"}}), false),
            ("one for ever", forever, false),
        ];
        for (name, lease, other) in rows {
            let holder =
                holder(&lease, now.into()).filter(|holder| !is_same_agent(holder, "worker-1"));
            assert_eq!(holder.is_some(), other, "{name}: {holder:?}");
        }
    }
}
