//! Taints of ours. `spec.taints` is an atomic list: it is read, changed in what is ours, and written
//! back under an optimistic lock, so that nobody's taint gets lost.

#![forbid(unsafe_code)]

use std::time::Duration;

use serde::de::Error as _;
use serde_json::{Value, json};

use super::backoff::Backoff;
use super::convert::text;
use super::{ApiError, Call, Client, Place, Refusal};
use crate::node_status::Taint;
use crate::node_status::own::OwnCondition;

/// Tries of one change. Whoever writes to the Node that often is at fault, and the next heartbeat
/// tries again.
const TRIES: u32 = 8;

/// Between two tries: 20, 40, … 640, then 1000 ms.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));

/// The taints of a Node as they were at one version of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Seen {
    version: String,
    taints: Vec<Value>,
}

/// A list that was written.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Change {
    /// The Node as stored.
    pub(super) node: Value,
    /// How many taints it has less than before.
    pub(super) removed: usize,
}

impl Seen {
    /// `None` for a Node that tells no version: there is nothing to lock by.
    pub(super) fn of(node: &Value) -> Option<Self> {
        let version = text(node, "/metadata/resourceVersion");
        let taints = node.pointer("/spec/taints").and_then(Value::as_array);
        (!version.is_empty()).then(|| Self {
            version,
            taints: taints.cloned().unwrap_or_default(),
        })
    }
}

/// Whether a stored taint is ours: it has one of our default keys, or key and effect of one that is
/// configured. A configured key may have other effects that are somebody else's.
pub(super) fn is_ours(taint: &Value, configured: &[Taint]) -> bool {
    let (key, effect) = (text(taint, "/key"), text(taint, "/effect"));
    let by_default = OwnCondition::ALL.iter().any(|own| own.taint_key() == key);
    let named = |ours: &Taint| ours.key == key && ours.effect == effect;
    by_default || configured.iter().any(named)
}

/// What `stored` should be for `wanted` to be all that is ours in it. What is there already keeps
/// its bytes and its place; new ones come last.
pub(super) fn with(stored: &[Value], wanted: &[Taint], configured: &[Taint]) -> Vec<Value> {
    let same = |stored: &Value, taint: &Taint| {
        text(stored, "/key") == taint.key
            && text(stored, "/effect") == taint.effect
            && text(stored, "/value") == taint.value
    };
    let mut taints = stored.to_vec();
    taints.retain(|stored| {
        !is_ours(stored, configured) || wanted.iter().any(|taint| same(stored, taint))
    });
    for taint in wanted {
        if !taints.iter().any(|stored| same(stored, taint)) {
            taints.push(super::convert::taint(taint));
        }
    }
    taints
}

/// Makes the list of taints of the Node `name` what `wanted` makes of it. The first try takes it as
/// `seen`, the others read it. `None`: it is so already.
pub(super) async fn change(
    client: &Client,
    name: &str,
    mut seen: Option<Seen>,
    wanted: impl Fn(&[Value]) -> Vec<Value>,
) -> Result<Option<Change>, ApiError> {
    let mut backoff = BACKOFF;
    let mut tries = 1;
    loop {
        let before = match seen.take() {
            Some(seen) => seen,
            None => read(client, name).await?,
        };
        let taints = wanted(&before.taints);
        if taints == before.taints {
            return Ok(None);
        }
        let removed = before.taints.len().saturating_sub(taints.len());
        let patch = patch(&before.version, taints);
        match client.patch(&Place::node(name), &patch).await {
            Ok(node) => return Ok(Some(Change { node, removed })),
            Err(err) if err.refusal() == Some(Refusal::Conflict) && tries < TRIES => {
                tries += 1;
                client.pause(backoff.advance()).await;
            }
            Err(err) => return Err(err),
        }
    }
}

async fn read(client: &Client, name: &str) -> Result<Seen, ApiError> {
    let place = Place::node(name);
    let node = client.get(&place).await?;
    Seen::of(&node).ok_or_else(|| ApiError::Garbled {
        call: Call {
            verb: "GET".to_owned(),
            object: place.object,
        },
        code: 200,
        source: serde_json::Error::custom("a Node without a resourceVersion"),
    })
}

/// An empty list is none: the server keeps no empty ones.
fn patch(version: &str, taints: Vec<Value>) -> Vec<u8> {
    let taints = if taints.is_empty() {
        Value::Null
    } else {
        Value::Array(taints)
    };
    let patch = json!({
        "metadata": { "resourceVersion": version },
        "spec": { "taints": taints },
    });
    patch.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::scripted::{Reply, Scripted, refusal};

    const GET: &str = "GET /api/v1/nodes/worker-1";
    const PATCH: &str = "PATCH /api/v1/nodes/worker-1";

    fn ours(value: &str) -> Taint {
        Taint {
            key: "nodepulse.dev/memory-low".to_owned(),
            value: value.to_owned(),
            effect: "NoSchedule".to_owned(),
        }
    }

    fn node(version: u32, taints: &Value) -> Value {
        json!({
            "metadata": { "resourceVersion": version.to_string() },
            "spec": { "taints": taints },
        })
    }

    fn seen(version: u32, taints: &Value) -> Option<Seen> {
        Seen::of(&node(version, taints))
    }

    fn add(stored: &[Value]) -> Vec<Value> {
        with(stored, &[ours("")], &[])
    }

    #[test]
    fn the_list_is_changed_in_what_is_ours_and_in_nothing_else() {
        let (a, b) = (
            json!({ "key": "a", "value": "1", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z" }),
            json!({ "key": "b", "effect": "NoSchedule", "unheard": { "of": [1] } }),
        );
        let plain = json!({ "key": "nodepulse.dev/memory-low", "effect": "NoSchedule" });
        let stamped =
            json!({ "key": "nodepulse.dev/memory-low", "effect": "NoSchedule", "timeAdded": "x" });
        let other_effect = json!({ "key": "nodepulse.dev/memory-low", "effect": "NoExecute" });
        let valued =
            json!({ "key": "nodepulse.dev/memory-low", "value": "v", "effect": "NoSchedule" });
        #[rustfmt::skip]
        let rows = [
            ("added last", vec![&a, &b], vec![ours("")], vec![&a, &b, &plain]),
            ("there already, as somebody stamped it", vec![&a, &stamped, &b], vec![ours("")], vec![&a, &stamped, &b]),
            ("with another value", vec![&a, &plain, &b], vec![ours("v")], vec![&a, &b, &valued]),
            ("with another effect", vec![&other_effect, &b], vec![ours("")], vec![&b, &plain]),
            ("removed", vec![&a, &plain, &b], vec![], vec![&a, &b]),
            ("nothing of ours", vec![&b, &a], vec![], vec![&b, &a]),
        ];
        for (name, stored, wanted, expected) in rows {
            let stored: Vec<Value> = stored.into_iter().cloned().collect();
            let expected: Vec<Value> = expected.into_iter().cloned().collect();
            assert_eq!(with(&stored, &wanted, &[]), expected, "{name}");
        }
    }

    #[test]
    fn a_configured_key_is_ours_with_its_effect_alone() {
        let configured = [Taint {
            key: "example.com/slow".to_owned(),
            value: String::new(),
            effect: "NoSchedule".to_owned(),
        }];
        let rows = [
            ("example.com/slow", "NoSchedule", true),
            ("example.com/slow", "NoExecute", false),
            ("nodepulse.dev/pids-low", "NoExecute", true),
            ("nodepulse.dev/no-runtime", "NoSchedule", false),
            ("node.kubernetes.io/not-ready", "NoSchedule", false),
        ];
        for (key, effect, expected) in rows {
            let taint = json!({ "key": key, "effect": effect });
            assert_eq!(is_ours(&taint, &configured), expected, "{key}:{effect}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_quicker_is_read_and_kept() {
        let theirs = json!([{ "key": "a", "effect": "NoSchedule" }]);
        let both = json!([
            { "key": "a", "effect": "NoSchedule" },
            { "key": "nodepulse.dev/memory-low", "effect": "NoSchedule" },
        ]);
        let server = Scripted::new([
            refusal(409, "Conflict"),
            Reply::json(200, node(5, &theirs)),
            Reply::json(200, node(6, &both)),
        ]);
        let before = seen(4, &json!(null));
        let change = change(&server.client(), "worker-1", before, add).await;
        assert_eq!(change.unwrap().unwrap().node, node(6, &both));
        assert_eq!(server.lines(), [PATCH, GET, PATCH]);
        assert_eq!(server.body(0)["metadata"]["resourceVersion"], "4");
        let expected = json!({
            "metadata": { "resourceVersion": "5" },
            "spec": { "taints": both },
        });
        assert_eq!(server.body(2), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn tries_are_bounded_and_only_a_conflict_is_tried_again() {
        let conflicts = (0..TRIES).flat_map(|n| {
            [
                Reply::json(200, node(n, &json!(null))),
                refusal(409, "Conflict"),
            ]
        });
        let server = Scripted::new(conflicts);
        let ended = change(&server.client(), "worker-1", None, add).await;
        assert_eq!(ended.unwrap_err().refusal(), Some(Refusal::Conflict));
        assert_eq!(server.lines().len(), 16);

        let server = Scripted::new([refusal(403, "Forbidden")]);
        let before = seen(4, &json!(null));
        let ended = change(&server.client(), "worker-1", before, add).await;
        assert_eq!(ended.unwrap_err().refusal(), Some(Refusal::Forbidden));
        assert_eq!(server.lines(), [PATCH]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_so_already_is_not_written_and_the_last_taint_leaves_no_list() {
        let plain = json!([{ "key": "nodepulse.dev/memory-low", "effect": "NoSchedule" }]);
        let server = Scripted::new([Reply::json(200, node(5, &json!(null)))]);
        let client = server.client();
        let still = change(&client, "worker-1", seen(4, &plain), add).await;
        assert_eq!(still.unwrap(), None);
        assert_eq!(server.lines(), [""; 0]);

        let none = |_: &[Value]| Vec::new();
        let gone = change(&client, "worker-1", seen(4, &plain), none).await;
        assert_eq!(gone.unwrap().unwrap().removed, 1);
        assert_eq!(server.body(0)["spec"], json!({ "taints": null }));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_version_to_lock_by_nothing_is_written() {
        let server = Scripted::new([Reply::json(200, json!({ "spec": {} }))]);
        let ended = change(&server.client(), "worker-1", None, add).await;
        assert!(matches!(ended, Err(ApiError::Garbled { .. })));
        assert_eq!(server.lines(), [GET]);
    }
}
