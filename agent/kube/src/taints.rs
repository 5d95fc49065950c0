//! nodepulse's taints. `spec.taints` is an atomic list: it is read, only nodepulse's taints are
//! changed, and it is written back under an optimistic lock, so that no other taint is lost.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::time::Duration;

use nodepulse_core::node_status::Taint;
use nodepulse_core::node_status::nodepulse_condition::NodepulseCondition;
use serde::de::Error as _;
use serde_json::{Value, json};
use tracing::warn;

use super::convert::text;
use super::{ApiError, Call, Client, Disposition, Endpoint, Refusal};
use nodepulse_core::backoff::Backoff;

/// Maximum number of attempts of one change. Only a faulty client writes to the Node more often,
/// and the next heartbeat tries again.
const MAX_ATTEMPTS: u32 = 8;

/// The delays between two attempts: 20, 40, … 640, then 1000 ms.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct StoredTaints {
    version: String,
    taints: Vec<Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct TaintChange {
    /// The Node as stored after the write.
    pub(super) node: Value,
    pub(super) removed: usize,
}

impl StoredTaints {
    /// Returns `None` for a Node without a version, which cannot be locked.
    pub(super) fn of(node: &Value) -> Option<Self> {
        let version = text(node, "/metadata/resourceVersion");
        let taints = node.pointer("/spec/taints").and_then(Value::as_array);
        (!version.is_empty()).then(|| Self {
            version,
            taints: taints.cloned().unwrap_or_default(),
        })
    }

    /// Ignores the taints of other clients.
    pub(super) fn any(&self, configured: &[Taint]) -> bool {
        let mut taints = self.taints.iter();
        taints.any(|taint| is_nodepulse(taint, configured))
    }
}

/// Key and effect: a Node has at most one taint of each.
type Slot = (String, String);

#[derive(Debug, Clone, Copy)]
pub struct NodepulseTaints<'a> {
    pub wanted: &'a [Taint],
    /// All configured taints, in addition to those with a default key.
    pub configured: &'a [Taint],
}

#[derive(Debug, Default)]
pub struct TaintOutcome {
    pub written: bool,
    /// The reason for which some taints are not as desired.
    pub failed: Option<ApiError>,
}

/// Returns true for a taint of nodepulse: it has a default key, or key and effect of a configured
/// taint. A configured key with another effect belongs to another client.
pub(super) fn is_nodepulse(taint: &Value, configured: &[Taint]) -> bool {
    let (key, effect) = (text(taint, "/key"), text(taint, "/effect"));
    let by_default = NodepulseCondition::ALL
        .iter()
        .any(|condition| condition.taint_key() == key);
    let named =
        |nodepulse_taint: &Taint| nodepulse_taint.key == key && nodepulse_taint.effect == effect;
    by_default || configured.iter().any(named)
}

impl NodepulseTaints<'_> {
    /// Returns the list with `wanted` as nodepulse's only taints in these slots. Existing taints
    /// stay unchanged and in their place; new ones are last.
    fn merged(&self, stored: &[Value], slots: &[Slot]) -> Vec<Value> {
        let mut taints = stored.to_vec();
        taints.retain(|stored| !slots.contains(&slot(stored)) || !self.is_unwanted(stored));
        let missing = self.missing(stored);
        let missing = missing.filter(|taint| slots.contains(&slot_of(taint)));
        taints.extend(missing.map(super::convert::taint));
        taints
    }

    fn outdated(&self, stored: &[Value]) -> Vec<Slot> {
        let unwanted = stored.iter().filter(|stored| self.is_unwanted(stored));
        let mut outdated: Vec<Slot> = unwanted.map(slot).collect();
        for taint in self.missing(stored) {
            let slot = slot_of(taint);
            if !outdated.contains(&slot) {
                outdated.push(slot);
            }
        }
        outdated
    }

    fn is_unwanted(&self, stored: &Value) -> bool {
        is_nodepulse(stored, self.configured)
            && !self.wanted.iter().any(|taint| is_same(stored, taint))
    }

    fn missing(&self, stored: &[Value]) -> impl Iterator<Item = &Taint> {
        let there = |taint: &Taint| stored.iter().any(|stored| is_same(stored, taint));
        self.wanted.iter().filter(move |taint| !there(taint))
    }
}

fn is_same(stored: &Value, taint: &Taint) -> bool {
    slot(stored) == slot_of(taint) && text(stored, "/value") == taint.value
}

fn slot(stored: &Value) -> Slot {
    (text(stored, "/key"), text(stored, "/effect"))
}

fn slot_of(taint: &Taint) -> Slot {
    (taint.key.clone(), taint.effect.clone())
}

/// Keeps taints as desired. A taint that is rejected does not delay the others.
#[derive(Debug, Default)]
pub(super) struct TaintKeeper {
    /// The taints that were rejected when they were last tried, the oldest first. They are excluded
    /// from changes of the others, and are tried one at a time when there are no other changes.
    /// They are remembered when their condition changes; only a taint that is neither configured
    /// nor stored is forgotten.
    rejected: Vec<Slot>,
}

impl TaintKeeper {
    /// Brings the taints of the Node `name` to the desired state; `seen` is their last known state.
    ///
    /// Changes all taints at once, and each separately if that is rejected. Many requests are
    /// therefore sent only if a taint is to be changed that was not rejected before.
    pub(super) async fn keep(
        &mut self,
        client: &Client,
        name: &str,
        mut seen: Option<StoredTaints>,
        nodepulse_taint: NodepulseTaints<'_>,
    ) -> (Option<Value>, Option<ApiError>) {
        let before = match seen.take() {
            Some(seen) => seen,
            None => match read(client, name).await {
                Ok(seen) => seen,
                Err(err) => return (None, Some(err)),
            },
        };
        let mut rounds = VecDeque::from_iter(self.first_round(
            nodepulse_taint.outdated(&before.taints),
            nodepulse_taint.configured,
        ));
        seen = Some(before);
        let (mut node, mut failed) = (None, None);
        while let Some(slots) = rounds.pop_front() {
            let change = change(client, name, &mut seen, |stored| {
                nodepulse_taint.merged(stored, &slots)
            });
            match change.await {
                Ok(changed) => {
                    node = changed.map(|changed| changed.node).or(node);
                    self.retry_rejected(&slots, &mut rounds);
                }
                Err(err) if err.disposition() != Disposition::GiveUp => {
                    failed = Some(err);
                    break;
                }
                Err(_) if slots.len() > 1 => rounds.extend(slots.into_iter().map(|one| vec![one])),
                Err(err) => {
                    self.log_rejected(slots, &err);
                    failed = Some(err);
                }
            }
        }
        (node, failed)
    }

    /// Returns the slots that were not rejected before, together; if there are none, one that was.
    fn first_round(&mut self, outdated: Vec<Slot>, configured: &[Taint]) -> Option<Vec<Slot>> {
        let can_be = |slot: &Slot| configured.iter().any(|taint| slot_of(taint) == *slot);
        self.rejected
            .retain(|slot| outdated.contains(slot) || can_be(slot));
        let again = self
            .rejected
            .iter()
            .find(|slot| outdated.contains(slot))
            .cloned();
        let mut fresh = outdated;
        fresh.retain(|slot| !self.rejected.contains(slot));
        if fresh.is_empty() {
            fresh.extend(again);
        }
        (!fresh.is_empty()).then_some(fresh)
    }

    /// Tries the other rejected taints again if one is accepted, because they may be accepted too.
    fn retry_rejected(&mut self, slots: &[Slot], rounds: &mut VecDeque<Vec<Slot>>) {
        let before = self.rejected.len();
        self.rejected.retain(|slot| !slots.contains(slot));
        if self.rejected.len() < before && !self.rejected.is_empty() {
            rounds.push_back(std::mem::take(&mut self.rejected));
        }
    }

    /// Logs each taint once, and moves it to the end.
    fn log_rejected(&mut self, slots: Vec<Slot>, err: &ApiError) {
        for (key, effect) in slots {
            let slot = (key, effect);
            let known = self.rejected.len();
            self.rejected.retain(|other| *other != slot);
            if self.rejected.len() == known {
                let (key, effect) = (slot.0.as_str(), slot.1.as_str());
                let err = err.as_dyn();
                warn!(
                    key,
                    effect,
                    err,
                    "taint not changed, will retry; this requires permission to patch nodes"
                );
            }
            self.rejected.push(slot);
        }
    }
}

/// Replaces the list of taints of the Node `name` by the result of `wanted`. The first attempt uses
/// `seen`, the others read the Node; afterwards `seen` is the last known state. Returns `None` if
/// no change was necessary.
pub(super) async fn change(
    client: &Client,
    name: &str,
    seen: &mut Option<StoredTaints>,
    wanted: impl Fn(&[Value]) -> Vec<Value>,
) -> Result<Option<TaintChange>, ApiError> {
    let mut backoff = BACKOFF;
    let mut tries = 1;
    loop {
        let before = match seen.take() {
            Some(seen) => seen,
            None => read(client, name).await?,
        };
        let taints = wanted(&before.taints);
        if taints == before.taints {
            *seen = Some(before);
            return Ok(None);
        }
        let removed = before.taints.len().saturating_sub(taints.len());
        let patch = patch(&before.version, taints);
        match client.patch(&Endpoint::node(name), &patch).await {
            Ok(node) => {
                *seen = StoredTaints::of(&node);
                return Ok(Some(TaintChange { node, removed }));
            }
            Err(err) if err.refusal() == Some(Refusal::Conflict) && tries < MAX_ATTEMPTS => {
                tries += 1;
                client.pause(backoff.advance()).await;
            }
            Err(err) => {
                if err.disposition() == Disposition::GiveUp {
                    *seen = Some(before); // Nothing was written.
                }
                return Err(err);
            }
        }
    }
}

async fn read(client: &Client, name: &str) -> Result<StoredTaints, ApiError> {
    let place = Endpoint::node(name);
    let node = client.get(&place).await?;
    StoredTaints::of(&node).ok_or_else(|| ApiError::Garbled {
        call: Call {
            verb: "GET".to_owned(),
            object: place.object,
        },
        code: 200,
        source: serde_json::Error::custom("a Node without a resourceVersion"),
    })
}

/// Returns the patch of the list. An empty list is sent as null, because the server stores no empty
/// ones.
pub(super) fn patch(version: &str, taints: Vec<Value>) -> Vec<u8> {
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
    use crate::scripted::{Reply, Scripted, refusal};

    const GET: &str = "GET /api/v1/nodes/worker-1";
    const PATCH: &str = "PATCH /api/v1/nodes/worker-1";

    fn nodepulse_taint(value: &str) -> Taint {
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

    fn seen(version: u32, taints: &Value) -> Option<StoredTaints> {
        StoredTaints::of(&node(version, taints))
    }

    fn merged(stored: &[Value], wanted: &[Taint]) -> Vec<Value> {
        let nodepulse_taint = NodepulseTaints {
            wanted,
            configured: &[],
        };
        nodepulse_taint.merged(stored, &nodepulse_taint.outdated(stored))
    }

    fn add(stored: &[Value]) -> Vec<Value> {
        merged(stored, &[nodepulse_taint("")])
    }

    #[test]
    fn only_nodepulses_taints_in_the_list_are_changed() {
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
            ("added last", vec![&a, &b], vec![nodepulse_taint("")], vec![&a, &b, &plain]),
            ("exists already, with another client's timeAdded", vec![&a, &stamped, &b], vec![nodepulse_taint("")], vec![&a, &stamped, &b]),
            ("with another value", vec![&a, &plain, &b], vec![nodepulse_taint("v")], vec![&a, &b, &valued]),
            ("with another effect", vec![&other_effect, &b], vec![nodepulse_taint("")], vec![&b, &plain]),
            ("removed", vec![&a, &plain, &b], vec![], vec![&a, &b]),
            ("none of nodepulse's", vec![&b, &a], vec![], vec![&b, &a]),
        ];
        for (name, stored, wanted, expected) in rows {
            let stored: Vec<Value> = stored.into_iter().cloned().collect();
            let expected: Vec<Value> = expected.into_iter().cloned().collect();
            assert_eq!(merged(&stored, &wanted), expected, "{name}");
        }
    }

    #[test]
    fn a_configured_taint_is_nodepulses_only_with_its_effect() {
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
            assert_eq!(
                is_nodepulse(&taint, &configured),
                expected,
                "{key}:{effect}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_concurrent_change_is_read_and_kept() {
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
        let mut before = seen(4, &json!(null));
        let change = change(&server.client(), "worker-1", &mut before, add).await;
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
    async fn attempts_are_limited_and_only_a_conflict_is_retried() {
        let conflicts = (0..MAX_ATTEMPTS).flat_map(|n| {
            [
                Reply::json(200, node(n, &json!(null))),
                refusal(409, "Conflict"),
            ]
        });
        let server = Scripted::new(conflicts);
        let ended = change(&server.client(), "worker-1", &mut None, add).await;
        assert_eq!(ended.unwrap_err().refusal(), Some(Refusal::Conflict));
        assert_eq!(server.lines().len(), 16);

        let server = Scripted::new([refusal(403, "Forbidden")]);
        let mut before = seen(4, &json!(null));
        let ended = change(&server.client(), "worker-1", &mut before, add).await;
        assert_eq!(ended.unwrap_err().refusal(), Some(Refusal::Forbidden));
        assert_eq!(server.lines(), [PATCH]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unchanged_list_is_not_written_and_an_empty_one_is_removed() {
        let plain = json!([{ "key": "nodepulse.dev/memory-low", "effect": "NoSchedule" }]);
        let server = Scripted::new([Reply::json(200, node(5, &json!(null)))]);
        let client = server.client();
        let still = change(&client, "worker-1", &mut seen(4, &plain), add).await;
        assert_eq!(still.unwrap(), None);
        assert_eq!(server.lines(), [""; 0]);

        let none = |_: &[Value]| Vec::new();
        let removed = change(&client, "worker-1", &mut seen(4, &plain), none).await;
        assert_eq!(removed.unwrap().unwrap().removed, 1);
        assert_eq!(server.body(0)["spec"], json!({ "taints": null }));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_version_nothing_is_written() {
        let server = Scripted::new([Reply::json(200, json!({ "spec": {} }))]);
        let ended = change(&server.client(), "worker-1", &mut None, add).await;
        assert!(matches!(ended, Err(ApiError::Garbled { .. })));
        assert_eq!(server.lines(), [GET]);
    }

    fn keyed(key: &str) -> Taint {
        Taint {
            key: key.to_owned(),
            ..nodepulse_taint("")
        }
    }

    /// Requests these keys for a Node that has `stored`. `answers` contains the Node's keys after
    /// each write, or `None` if it is rejected. Returns the keys in each request, and true if it
    /// failed.
    async fn keep(
        keeper: &mut TaintKeeper,
        stored: &[&str],
        wanted: &[&str],
        answers: &[Option<&[&str]>],
    ) -> (Vec<Vec<String>>, bool) {
        keep_of(keeper, stored, wanted, wanted, answers).await
    }

    async fn keep_of(
        keeper: &mut TaintKeeper,
        stored: &[&str],
        wanted: &[&str],
        configured: &[&str],
        answers: &[Option<&[&str]>],
    ) -> (Vec<Vec<String>>, bool) {
        let list = |keys: &[&str]| {
            json!(
                keys.iter()
                    .map(|k| super::super::convert::taint(&keyed(k)))
                    .collect::<Vec<_>>()
            )
        };
        let server = Scripted::new(answers.iter().map(|answer| match answer {
            Some(keys) => Reply::json(200, node(9, &list(keys))),
            None => refusal(403, "Forbidden"),
        }));
        let taints = |keys: &[&str]| keys.iter().map(|key| keyed(key)).collect::<Vec<Taint>>();
        let (wanted, configured) = (taints(wanted), taints(configured));
        let nodepulse_taint = NodepulseTaints {
            wanted: &wanted,
            configured: &configured,
        };
        let seen = seen(4, &list(stored));
        let kept = keeper
            .keep(&server.client(), "worker-1", seen, nodepulse_taint)
            .await;
        let keys = |n: usize| {
            let taints = server.body(n)["spec"]["taints"].clone();
            let taints = taints.as_array().cloned().unwrap_or_default();
            taints.iter().map(|taint| text(taint, "/key")).collect()
        };
        let asked = (0..server.lines().len()).map(keys).collect();
        (asked, kept.1.is_some())
    }

    #[tokio::test(start_paused = true)]
    async fn a_rejected_taint_is_remembered_when_its_condition_returns() {
        let mut keeper = TaintKeeper::default();
        let (all, none) = (["a", "b"], [""; 0]);
        let rejected = None;
        let first = keep(&mut keeper, &none, &all, &[rejected, rejected, rejected]).await;
        assert_eq!(first.0, [vec!["a", "b"], vec!["a"], vec!["b"]]);
        for wanted in ["b", "a"] {
            let off = keep_of(&mut keeper, &none, &none, &all, &[]).await;
            assert_eq!(off, (Vec::new(), false));
            let on = keep_of(&mut keeper, &none, &[wanted], &all, &[rejected]).await;
            assert_eq!(on.0, [vec![wanted]]);
            assert_eq!(keeper.rejected.len(), 2, "neither is forgotten");
        }

        // A taint that is no longer configured is forgotten.
        keep_of(&mut keeper, &none, &none, &["b"], &[]).await;
        assert_eq!(keeper.rejected, [slot_of(&keyed("b"))]);
    }

    #[tokio::test(start_paused = true)]
    async fn rejected_taints_are_excluded_and_tried_one_at_a_time() {
        let mut keeper = TaintKeeper::default();
        let all = ["a", "b", "c"];
        let none: &[&str] = &[];
        let rejected = None;
        let first = keep(
            &mut keeper,
            none,
            &all,
            &[rejected, rejected, Some(&["b"]), rejected],
        )
        .await;
        assert_eq!(
            first.0,
            [vec!["a", "b", "c"], vec!["a"], vec!["b"], vec!["b", "c"]]
        );
        assert!(first.1);
        for alone in ["a", "c", "a"] {
            let next = keep(&mut keeper, &["b"], &all, &[rejected]).await;
            assert_eq!(next.0, [vec!["b", alone]], "in turn");
        }
        let four = ["a", "b", "c", "d"];
        let fresh = keep(&mut keeper, &["b"], &four, &[Some(&["b", "d"])]).await;
        assert_eq!(fresh, (vec![vec!["b".to_owned(), "d".to_owned()]], false));

        // They are no longer rejected.
        let answers: [Option<&[&str]>; 2] = [Some(&["b", "c"]), Some(&["b", "c", "a"])];
        let back = keep(&mut keeper, &["b"], &all, &answers).await;
        assert_eq!(back.0, [vec!["b", "c"], vec!["b", "c", "a"]]);
        assert!(!back.1);
        let still = keep(&mut keeper, &all, &all, &[]).await;
        assert_eq!(still, (Vec::new(), false));
    }
}
