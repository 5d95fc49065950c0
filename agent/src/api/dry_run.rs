//! What would be written, for `run --dry-run`: told instead of sent, and taken as done, so that what
//! comes after it is what would come after it.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use http::{HeaderMap, Method};
use serde_json::{Map, Value, json};

use super::convert::text;
use super::{ApiError, Call, Client, Endpoint, Payload, Refusal};

/// `resource` of an Event's place.
const EVENTS: &str = "events";

/// Takes method, path and body of a request that is not sent.
pub type RequestLog = Box<dyn Fn(&str, &str, &[u8]) + Send + Sync>;

/// Whether there is a cluster to read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadSource {
    /// What was not written here is read there.
    Cluster,
    /// The Node is there and empty, and there is nothing else.
    Nowhere,
}

/// In place of the API server's memory.
pub(super) struct DryRun {
    reads: ReadSource,
    tell: RequestLog,
    /// Nodes and Leases that were written, by path. The tasks that write share one client, and wait
    /// for none of each other: hence the lock, held for a look-up.
    written: Mutex<BTreeMap<String, Value>>,
}

impl fmt::Debug for DryRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paper").finish_non_exhaustive()
    }
}

impl DryRun {
    pub(super) const fn new(reads: ReadSource, tell: RequestLog) -> Self {
        Self {
            reads,
            tell,
            written: Mutex::new(BTreeMap::new()),
        }
    }

    /// Answers as the server would, as far as we know of it. A write is told and not sent; what
    /// `client` reads it reads of the server, where there is one.
    pub(super) async fn answer(
        &self,
        client: &Client,
        method: Method,
        place: &Endpoint,
        payload: Payload<'_>,
    ) -> Result<Value, ApiError> {
        let body = match &payload {
            Payload::None => Vec::new(),
            Payload::Object(object) => object.to_string().into_bytes(),
            Payload::StrategicMerge(patch) => patch.to_vec(),
        };
        if method != Method::GET {
            (self.tell)(method.as_str(), &place.path, &body);
        }
        let creates = method == Method::POST;
        let path = path_of_object(place, &payload, creates);
        let there = match self.reads {
            // What is asked for is there, and what is made is new.
            ReadSource::Nowhere if creates => None,
            ReadSource::Nowhere | ReadSource::Cluster => self.look(client, place, &path).await?,
        };
        let refused = |code, reason| refused(&method, place, code, reason);
        match (payload, there) {
            (Payload::Object(_), Some(_)) if creates => Err(refused(409, "AlreadyExists")),
            (Payload::Object(object), _) => Ok(self.store(&path, object.clone())),
            // Nobody knows it any more, and it is answered as if somebody did.
            (Payload::StrategicMerge(_), None) if place.resource == EVENTS => Ok(json!({})),
            (Payload::StrategicMerge(change), Some(mut object)) => {
                merge(
                    &mut object,
                    serde_json::from_slice(change).unwrap_or_default(),
                );
                Ok(self.store(&path, object))
            }
            (Payload::None, Some(object)) => Ok(object),
            (Payload::StrategicMerge(_) | Payload::None, None) => Err(refused(404, "NotFound")),
        }
    }

    /// What is at `path`, here or there.
    async fn look(
        &self,
        client: &Client,
        place: &Endpoint,
        path: &str,
    ) -> Result<Option<Value>, ApiError> {
        if let Some(object) = self.known(place, path) {
            return Ok(Some(object));
        }
        if self.reads == ReadSource::Nowhere || place.resource == EVENTS {
            return Ok(None);
        }
        let there = Endpoint {
            path: path.to_owned(),
            ..place.clone()
        };
        match client.send(Method::GET, &there, Payload::None).await {
            Err(err) if err.refusal() == Some(Refusal::NotFound) => Ok(None),
            read => read.map(Some),
        }
    }

    /// The object at `path` as it was written here, or as it is where nothing can be read: a Node
    /// that is asked for is there.
    fn known(&self, place: &Endpoint, path: &str) -> Option<Value> {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(object) = written.get(path) {
            return Some(object.clone());
        }
        let name = place.path.strip_prefix("/api/v1/nodes/")?;
        let name = name.trim_end_matches("/status");
        (self.reads == ReadSource::Nowhere).then(|| {
            json!({
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": { "name": name, "resourceVersion": "1" },
            })
        })
    }

    /// Keeps what a write would leave at `path`; gives it as stored.
    fn store(&self, path: &str, mut object: Value) -> Value {
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            for (key, value) in [("uid", "not-created"), ("resourceVersion", "1")] {
                metadata.entry(key).or_insert_with(|| json!(value));
            }
        }
        // Of Events there may be any number, and nobody reads them back.
        if !path.contains("/events") {
            let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            written.insert(path.to_owned(), object.clone());
        }
        object
    }
}

/// Where the object is, or would be.
fn path_of_object(place: &Endpoint, payload: &Payload<'_>, creates: bool) -> String {
    let path = place.path.trim_end_matches("/status");
    match payload {
        Payload::Object(object) if creates => {
            format!("{path}/{}", text(object, "/metadata/name"))
        }
        Payload::Object(_) | Payload::StrategicMerge(_) | Payload::None => path.to_owned(),
    }
}

fn refused(method: &Method, place: &Endpoint, code: u16, reason: &str) -> ApiError {
    let call = Call {
        verb: method.as_str().to_owned(),
        object: place.object.clone(),
    };
    let body = json!({ "reason": reason, "message": "as far as a dry run can tell" });
    ApiError::refused(call, code, &HeaderMap::new(), body.to_string().as_bytes())
}

/// Applies a patch of ours: objects are merged by key, conditions by type, all other lists are whole.
fn merge(into: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *into = patch;
        return;
    };
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    let Value::Object(into) = into else { return };
    for (key, value) in patch {
        if key.starts_with('$') {
            continue;
        }
        match value {
            Value::Null => {
                into.remove(&key);
            }
            Value::Array(elements) if key == "conditions" => {
                merge_conditions(into.entry(key).or_insert_with(|| json!([])), elements);
            }
            Value::Array(mut elements) => {
                elements.retain(|element| element.get("$patch").is_none());
                into.insert(key, Value::Array(elements));
            }
            value => merge(into.entry(key).or_insert(Value::Null), value),
        }
    }
}

fn merge_conditions(into: &mut Value, elements: Vec<Value>) {
    let Value::Array(list) = into else {
        *into = Value::Array(elements);
        return;
    };
    for element in elements {
        let place = list
            .iter()
            .position(|known| known.get("type") == element.get("type"));
        let deleted = element.get("$patch").is_some();
        match place.and_then(|place| Some((place, list.get_mut(place)?))) {
            Some((place, _)) if deleted => drop(list.remove(place)),
            Some((_, known)) => merge(known, element),
            None if deleted => {}
            None => list.push(element),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::convert::tests::{at, registration, status};
    use crate::api::convert::{desired_node, initial_node};
    use crate::api::patch::status_patch;
    use crate::node_status::{Address, Status};

    #[test]
    fn a_patch_of_ours_leads_to_what_was_desired() {
        let mut stored = initial_node(&registration(), &status(0));
        stored["status"]["conditions"]
            .as_array_mut()
            .unwrap()
            .push(json!({ "type": "Foreign", "status": "True" }));
        stored["status"]["nodeInfo"]["swap"] = json!({ "capacity": 5 });
        let mut desired = status(10);
        desired.conditions[0].status = Status::True;
        desired.conditions[0].last_transition_time = at(10);
        desired.addresses = Some(vec![Address::Hostname("other".to_owned())]);
        let desired = desired_node(&stored, &desired);
        let patch = status_patch(&stored, &desired).unwrap();
        merge(&mut stored, patch);
        assert_eq!(stored, desired);
        assert_eq!(status_patch(&stored, &desired), None);
    }

    #[test]
    fn a_condition_that_is_removed_goes_and_others_stay() {
        let mut node = json!({ "conditions": [{ "type": "A" }, { "type": "B" }] });
        let patch = json!({ "conditions": [
            { "type": "A", "$patch": "delete" },
            { "type": "C", "$patch": "delete" },
        ] });
        merge(&mut node, patch);
        assert_eq!(node, json!({ "conditions": [{ "type": "B" }] }));
    }
}
