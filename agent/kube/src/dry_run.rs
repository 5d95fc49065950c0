//! Simulated writes for `run --dry-run`: logged instead of sent, and regarded as successful, so
//! that the following requests are the real ones.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use http::{HeaderMap, Method};
use serde_json::{Map, Value, json};

use super::convert::text;
use super::{ApiError, Call, Client, Endpoint, Payload, Refusal};

const EVENTS: &str = "events";

/// Receives method, path and body of a request that is not sent.
pub type RequestLog = Box<dyn Fn(&str, &str, &[u8]) + Send + Sync>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadSource {
    /// Objects that were not written here are read from the cluster. If that is not permitted, the
    /// Node exists and is empty.
    Cluster,
    /// The Node exists and is empty; nothing else exists.
    None,
}

/// A replacement for the storage of the API server.
pub(super) struct DryRun {
    reads: ReadSource,
    log: RequestLog,
    /// The written Nodes and Leases, by path. The tasks that write share one client without waiting
    /// for each other, so a lock covers each lookup.
    written: Mutex<BTreeMap<String, Value>>,
}

impl fmt::Debug for DryRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DryRun").finish_non_exhaustive()
    }
}

impl DryRun {
    pub(super) const fn new(reads: ReadSource, log: RequestLog) -> Self {
        Self {
            reads,
            log,
            written: Mutex::new(BTreeMap::new()),
        }
    }

    /// Answers as the server would, as far as is known. A write is logged and not sent; a read by
    /// `client` goes to the server, if there is one.
    pub(super) async fn answer(
        &self,
        client: &Client,
        method: Method,
        endpoint: &Endpoint,
        payload: Payload<'_>,
    ) -> Result<Value, ApiError> {
        let body = match &payload {
            Payload::None => Vec::new(),
            Payload::Object(object) => object.to_string().into_bytes(),
            Payload::StrategicMerge(patch) => patch.to_vec(),
        };
        if method != Method::GET {
            (self.log)(method.as_str(), &endpoint.path, &body);
        }
        let creates = method == Method::POST;
        let path = path_of_object(endpoint, &payload, creates);
        let existing = match self.reads {
            // A read finds the Node, and a created object is new.
            ReadSource::None if creates => None,
            ReadSource::None | ReadSource::Cluster => self.read(client, endpoint, &path).await?,
        };
        let refused = |code, reason| refused(&method, endpoint, code, reason);
        match (payload, existing) {
            (Payload::Object(_), Some(_)) if creates => Err(refused(409, "AlreadyExists")),
            (Payload::Object(object), _) => Ok(self.store(&path, object.clone())),
            // The dry run does not store Events, so it answers as if this one existed.
            (Payload::StrategicMerge(_), None) if endpoint.resource == EVENTS => Ok(json!({})),
            (Payload::StrategicMerge(bytes), Some(mut object)) => {
                merge(
                    &mut object,
                    serde_json::from_slice(bytes).unwrap_or_default(),
                );
                Ok(self.store(&path, object))
            }
            (Payload::None, Some(object)) => Ok(object),
            (Payload::StrategicMerge(_) | Payload::None, None) => Err(refused(404, "NotFound")),
        }
    }

    /// Returns the object at `path`, written here or read from the server.
    async fn read(
        &self,
        client: &Client,
        endpoint: &Endpoint,
        path: &str,
    ) -> Result<Option<Value>, ApiError> {
        if let Some(object) = self.known(endpoint, path) {
            return Ok(Some(object));
        }
        if self.reads == ReadSource::None || endpoint.resource == EVENTS {
            return Ok(None);
        }
        let existing = Endpoint {
            path: path.to_owned(),
            ..endpoint.clone()
        };
        match client.send(Method::GET, &existing, Payload::None).await {
            Err(err) => match err.refusal() {
                Some(Refusal::NotFound) => Ok(None),
                Some(Refusal::Forbidden) => empty_node(endpoint).map(Some).ok_or(err),
                _ => Err(err),
            },
            Ok(read) => Ok(Some(read)),
        }
    }

    /// Returns the object at `path` as written here, or a simulated Node if nothing can be read.
    fn known(&self, endpoint: &Endpoint, path: &str) -> Option<Value> {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(object) = written.get(path) {
            return Some(object.clone());
        }
        match self.reads {
            ReadSource::None => empty_node(endpoint),
            ReadSource::Cluster => None,
        }
    }

    /// Returns the object as stored.
    fn store(&self, path: &str, mut object: Value) -> Value {
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            for (key, value) in [("uid", "not-created"), ("resourceVersion", "1")] {
                metadata.entry(key).or_insert_with(|| json!(value));
            }
        }
        // There may be any number of Events, and they are never read back.
        if !path.contains("/events") {
            let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            written.insert(path.to_owned(), object.clone());
        }
        object
    }
}

fn empty_node(endpoint: &Endpoint) -> Option<Value> {
    let name = endpoint.path.strip_prefix("/api/v1/nodes/")?;
    let name = name.trim_end_matches("/status");
    Some(json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": name, "resourceVersion": "1" },
    }))
}

/// Returns the path of the object, which may not exist yet.
fn path_of_object(endpoint: &Endpoint, payload: &Payload<'_>, creates: bool) -> String {
    let path = endpoint.path.trim_end_matches("/status");
    match payload {
        Payload::Object(object) if creates => {
            format!("{path}/{}", text(object, "/metadata/name"))
        }
        Payload::Object(_) | Payload::StrategicMerge(_) | Payload::None => path.to_owned(),
    }
}

fn refused(method: &Method, endpoint: &Endpoint, code: u16, reason: &str) -> ApiError {
    let call = Call {
        verb: method.as_str().to_owned(),
        object: endpoint.object.clone(),
    };
    let body = json!({ "reason": reason, "message": "simulated by a dry run" });
    ApiError::refused(call, code, &HeaderMap::new(), body.to_string().as_bytes())
}

/// Applies a patch: objects are merged by key, conditions by type, and all other lists are
/// replaced.
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
        let endpoint = list
            .iter()
            .position(|known| known.get("type") == element.get("type"));
        let deleted = element.get("$patch").is_some();
        match endpoint.and_then(|endpoint| Some((endpoint, list.get_mut(endpoint)?))) {
            Some((endpoint, _)) if deleted => drop(list.remove(endpoint)),
            Some((_, known)) => merge(known, element),
            None if deleted => {}
            None => list.push(element),
        }
    }
}

#[cfg(test)]
mod tests {
    use nodepulse_core::node_status::{Address, Status};

    use super::*;
    use crate::convert::tests::{at, registration, status};
    use crate::convert::{desired_node, initial_node};
    use crate::patch::status_patch;

    #[test]
    fn a_patch_results_in_the_desired_object() {
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
    fn a_deleted_condition_is_removed_and_others_stay() {
        let mut node = json!({ "conditions": [{ "type": "A" }, { "type": "B" }] });
        let patch = json!({ "conditions": [
            { "type": "A", "$patch": "delete" },
            { "type": "C", "$patch": "delete" },
        ] });
        merge(&mut node, patch);
        assert_eq!(node, json!({ "conditions": [{ "type": "B" }] }));
    }
}
