//! Events as JSON, in the core/v1 form: without `eventTime`, which would enable stricter rules.

#![forbid(unsafe_code)]

use nodepulse_core::kill_annotation::MEMORY_USERS;
use nodepulse_core::kube_event::{Draft, Involved};
use serde_json::{Value, json};

use super::correlate::EventWrite;
use super::{MESSAGE_LIMIT, Reporter};
use crate::convert::time;

/// The value of `source.component` and `reportingComponent`.
const COMPONENT: &str = "nodepulse";

pub fn event(name: &str, write: &EventWrite, reporter: &Reporter) -> Value {
    let mut event = once(name, &write.pending.newest, reporter);
    add(&mut event, "message", json!(cut(&write.message)));
    add(
        &mut event,
        "firstTimestamp",
        json!(time(write.pending.first)),
    );
    add(&mut event, "count", json!(write.count.max(1)));
    event
}

/// Returns the Event about one observation.
pub fn once(name: &str, input: &Draft, reporter: &Reporter) -> Value {
    let mut metadata = json!({ "name": name, "namespace": namespace(&input.object) });
    if !input.annotations.is_empty() {
        add(&mut metadata, "annotations", json!(input.annotations));
    }
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": metadata,
        "involvedObject": involved(&input.object, reporter),
        "reason": input.reason,
        "message": cut(&input.message),
        "type": input.type_.as_str(),
        "source": { "component": COMPONENT, "host": reporter.node },
        "reportingComponent": COMPONENT,
        "reportingInstance": reporter.node,
        "firstTimestamp": time(input.at),
        "lastTimestamp": time(input.at),
        "count": input.times.max(1),
    })
}

/// Returns the patch that raises the count of an existing Event to `count`.
pub fn patch(count: u32, write: &EventWrite) -> Vec<u8> {
    let mut patch = json!({
        "count": count,
        "lastTimestamp": time(write.pending.newest.at),
    });
    // An unchanged message is stored already, with the details that were added to it.
    if write.is_combined() || write.is_update() {
        add(&mut patch, "message", json!(cut(&write.message)));
    }
    // The annotations of an unchanged message about a kill are stored already. A combined message
    // is about the newest kill, whose details are not known.
    let annotations = &write.pending.newest.annotations;
    let is_new = write.is_update() || write.pending.newest.is_transition;
    if is_new && !annotations.is_empty() {
        add(
            &mut patch,
            "metadata",
            json!({ "annotations": annotations }),
        );
    }
    if write.is_combined() && !annotations.is_empty() {
        let mut all = json!(annotations);
        add(&mut all, MEMORY_USERS, Value::Null);
        add(&mut patch, "metadata", json!({ "annotations": all }));
    }
    patch.to_string().into_bytes()
}

/// Returns the patch with which an Event that exists already is like this one, except for its count
/// and times.
pub fn completion(event: &Value) -> Vec<u8> {
    let mut patch = json!({ "message": event.get("message") });
    if let Some(annotations) = event.pointer("/metadata/annotations") {
        add(
            &mut patch,
            "metadata",
            json!({ "annotations": annotations }),
        );
    }
    patch.to_string().into_bytes()
}

fn add(object: &mut Value, key: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(key.to_owned(), value);
    }
}

pub fn namespace(object: &Involved) -> &str {
    match object {
        Involved::Node => "default",
        Involved::Pod { namespace, .. } => namespace,
    }
}

fn involved(object: &Involved, reporter: &Reporter) -> Value {
    match object {
        Involved::Node => {
            let uid = reporter.uid.borrow();
            // Without the key: an empty uid would match nothing.
            if uid.is_empty() {
                json!({ "apiVersion": "v1", "kind": "Node", "name": reporter.node })
            } else {
                json!({ "apiVersion": "v1", "kind": "Node", "name": reporter.node, "uid": *uid })
            }
        }
        Involved::Pod {
            namespace,
            name,
            uid,
            field_path,
        } => {
            let mut pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "namespace": namespace, "name": name, "uid": uid,
            });
            // Absent instead of null, which the server would store.
            if let Some(path) = field_path {
                add(&mut pod, "fieldPath", json!(path));
            }
            pod
        }
    }
}

/// Returns `<object>.<nanoseconds in hex>`, within the 253 characters of a DNS subdomain.
pub fn name(object: &str, nanos: u64) -> String {
    let suffix = format!("{nanos:x}");
    let room = 252_usize.saturating_sub(suffix.len());
    let object: String = object.chars().take(room).collect();
    let object = object.trim_end_matches(['.', '-']);
    format!("{object}.{suffix}")
}

/// Cuts a message to the longest that is written.
pub fn cut(message: &str) -> &str {
    let end = message.floor_char_boundary(MESSAGE_LIMIT);
    message.get(..end).unwrap_or(message)
}

#[cfg(test)]
mod tests {
    use nodepulse_core::clock::BootNanos;

    use super::super::correlate::tests::input;
    use super::super::correlate::{Correlator, PendingEvent};
    use super::*;

    #[test]
    fn a_raised_count_keeps_the_details_that_were_added_to_an_unchanged_message() {
        let mut correlator = Correlator::new();
        let mut patched = |message: &str| {
            let pending = PendingEvent::once(input("OOMKilled", message));
            let write = correlator.admit(pending, BootNanos(0)).unwrap();
            let patch: Value = serde_json::from_slice(&patch(2, &write)).unwrap();
            patch["message"].clone()
        };
        for unchanged in ["1", "1", "2", "3", "4", "5", "6", "7", "8", "9"] {
            assert_eq!(patched(unchanged), Value::Null, "{unchanged}");
        }
        let combined = json!("(combined from similar events): 10");
        assert_eq!(patched("10"), combined, "it replaces the one before");
    }

    #[test]
    fn names_and_messages_fit() {
        let long = "a".repeat(251) + ".b";
        let name = super::name(&long, 0x1797_9cfe_362a_0000);
        assert_eq!(name.len(), 253);
        assert!(name.ends_with("a.17979cfe362a0000"), "{name}");
        assert_eq!(super::name("a-.-", 15), "a.f");
        assert_eq!(cut(&"é".repeat(600)).len(), 1024);
        assert_eq!(cut("short"), "short");
    }
}
