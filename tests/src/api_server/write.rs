//! Implements the verbs that write: defaults, admission, subresource separation, optimistic locks.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::auth::{Identity, restrict_node};
use super::failure::Failure;
use super::merge;
use super::resource::{Part, Resource, Scope, Target};
use super::stamp;
use super::store::{Key, Store};
use super::validate::{self, From};

#[derive(Debug)]
pub(super) struct Write<'a> {
    pub(super) target: &'a Target,
    pub(super) identity: &'a Identity,
    /// Wall time, for timestamps.
    pub(super) wall: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PatchKind {
    Merge,
    Strategic,
}

/// The result of a deletion.
#[derive(Debug)]
pub(super) enum Deleted {
    Now(Arc<Value>),
    /// The object waits for its grace period or its finalizers.
    Later(Arc<Value>),
}

impl Write<'_> {
    pub(super) fn create(&self, store: &mut Store, body: Value) -> Result<Arc<Value>, Failure> {
        let resource = self.target.resource;
        let mut object = self.decoded(body, From::Object)?;
        if !object["metadata"]["resourceVersion"].is_null() {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(Failure::bad_request(message));
        }
        self.place(store, &mut object)?;
        let key = self.key(&object);
        if store.get(resource, &key).is_some() {
            return Err(Failure::already_exists(resource, &key.1));
        }
        self.namespace_exists(store)?;
        if resource.kind == "Node" {
            add_not_ready_taint(&mut object);
            default_allocatable(&mut object);
        }
        if resource.kind == "Pod" && object["status"]["phase"].is_null() {
            object["status"]["phase"] = json!("Pending");
        }
        if resource.kind == "CertificateSigningRequest" {
            // The server sets the user, and ignores a client's value.
            object["spec"]["username"] = json!(self.identity.user);
            object["spec"]["groups"] = json!(self.identity.groups);
            object["status"] = json!({});
        }
        self.admit(None, &object)?;
        validate::valid(resource, &object)?;
        object["metadata"]["uid"] = json!(store.next_uid());
        object["metadata"]["creationTimestamp"] = json!(stamp::time(self.wall));
        Ok(store.put(resource, key, object))
    }

    /// Implements PUT, which can also create leases and events, as in the real server. Returns the
    /// status code with the object.
    pub(super) fn update(
        &self,
        store: &mut Store,
        body: Value,
    ) -> Result<(u16, Arc<Value>), Failure> {
        let Target { resource, name, .. } = self.target;
        let mut object = self.decoded(body, From::Object)?;
        self.place(store, &mut object)?;
        let key = self.key(&object);
        if key.1 != *name {
            let message = format!(
                "the name of the object ({}) does not match the name on the URL ({name})",
                key.1
            );
            return Err(Failure::bad_request(message));
        }
        let Some(old) = store.get(resource, &key).cloned() else {
            return self.update_of_nothing(store, object);
        };
        let version = &object["metadata"]["resourceVersion"];
        if version.is_null() && resource.kind == "Lease" {
            let why = "Invalid value: 0: must be specified for an update".to_owned();
            let causes = [("metadata.resourceVersion".to_owned(), why)];
            return Err(Failure::invalid(resource.kind, name, &causes));
        }
        Ok((200, self.replace(store, &old, object)?))
    }

    pub(super) fn patch(
        &self,
        store: &mut Store,
        kind: PatchKind,
        patch: &Value,
    ) -> Result<Arc<Value>, Failure> {
        let resource = self.target.resource;
        let key = (self.target.namespace.clone(), self.target.name.clone());
        let Some(old) = store.get(resource, &key).cloned() else {
            return Err(Failure::not_found(resource, &key.1));
        };
        let patched = match kind {
            PatchKind::Merge => {
                let mut object = Value::clone(&old);
                merge::merge_patch(&mut object, patch);
                object
            }
            PatchKind::Strategic => {
                merge::strategic(resource.kind, &old, patch).map_err(Failure::internal)?
            }
        };
        let object = self.decoded(patched, From::Patch)?;
        if self.key(&object) != key {
            let message = "the name of the object does not match the name on the URL";
            return Err(Failure::bad_request(message));
        }
        self.replace(store, &old, object)
    }

    pub(super) fn delete(&self, store: &mut Store, options: &Value) -> Result<Deleted, Failure> {
        let resource = self.target.resource;
        let key = (self.target.namespace.clone(), self.target.name.clone());
        let Some(old) = store.get(resource, &key).cloned() else {
            return Err(Failure::not_found(resource, &key.1));
        };
        for field in ["uid", "resourceVersion"] {
            let wanted = &options["preconditions"][field];
            if !wanted.is_null() && *wanted != old["metadata"][field] {
                let why = format!("Precondition failed: {field} does not match");
                return Err(Failure::conflict(resource, &key.1, &why));
            }
        }
        let waits = has_finalizers(&old) || grace_seconds(&old, options) > 0;
        if !waits {
            let removed = store.remove(resource, &key).unwrap_or(old);
            return Ok(Deleted::Now(removed));
        }
        let mut object = Value::clone(&old);
        if object["metadata"]["deletionTimestamp"].is_null() {
            let grace = grace_seconds(&old, options);
            let at = self.wall + Duration::from_secs(grace);
            object["metadata"]["deletionTimestamp"] = json!(stamp::time(at));
            object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
            return Ok(Deleted::Later(store.put(resource, key, object)));
        }
        Ok(Deleted::Later(old))
    }

    /// Represents the body in the kind's types.
    fn decoded(&self, mut body: Value, from: From) -> Result<Value, Failure> {
        let resource = self.target.resource;
        merge::typed(&mut body);
        let (kind, version) = (&body["kind"], &body["apiVersion"]);
        let fits = (kind.is_null() || *kind == resource.kind)
            && (version.is_null() || *version == resource.api_version());
        if !body.is_object() || !fits {
            let message = format!(
                "{kind} in {version} in the body, but the path takes {}",
                resource.kind
            );
            return Err(Failure::bad_request(message));
        }
        validate::decodable(resource, &body, from)?;
        body["kind"] = json!(resource.kind);
        body["apiVersion"] = json!(resource.api_version());
        if !body["metadata"].is_object() {
            body["metadata"] = json!({});
        }
        merge::encoded(resource.kind, &mut body);
        Ok(body)
    }

    /// Sets the object's name and namespace.
    fn place(&self, store: &mut Store, object: &mut Value) -> Result<(), Failure> {
        let Target {
            resource,
            namespace,
            ..
        } = self.target;
        let metadata = &mut object["metadata"];
        if metadata["name"].as_str().unwrap_or_default().is_empty() {
            let Some(prefix) = metadata["generateName"].as_str() else {
                let why = "Required value: name or generateName is required".to_owned();
                let causes = [("metadata.name".to_owned(), why)];
                return Err(Failure::invalid(resource.kind, "", &causes));
            };
            metadata["name"] = json!(format!("{prefix}{}", store.next_suffix()));
        }
        if resource.scope == Scope::Namespaced {
            let object_namespace = metadata["namespace"].as_str().unwrap_or(namespace);
            if object_namespace != namespace {
                let message = "the namespace of the provided object does not match the namespace \
                               sent on the request";
                return Err(Failure::bad_request(message));
            }
            metadata["namespace"] = json!(namespace);
        }
        Ok(())
    }

    fn namespace_exists(&self, store: &Store) -> Result<(), Failure> {
        let Target {
            resource,
            namespace,
            ..
        } = self.target;
        let namespaces = Resource::named("", "namespaces");
        match (resource.scope, namespaces) {
            (Scope::Namespaced, Some(namespaces)) => {
                let found = store.get(namespaces, &(String::new(), namespace.clone()));
                found
                    .map(|_| ())
                    .ok_or_else(|| Failure::not_found(namespaces, namespace))
            }
            _ => Ok(()),
        }
    }

    fn key(&self, object: &Value) -> Key {
        let text = |field: &str| {
            object["metadata"][field]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        (text("namespace"), text("name"))
    }

    fn update_of_nothing(
        &self,
        store: &mut Store,
        mut object: Value,
    ) -> Result<(u16, Arc<Value>), Failure> {
        let Target { resource, name, .. } = self.target;
        if !matches!(resource.kind, "Lease" | "Event") {
            return Err(Failure::not_found(resource, name));
        }
        // The object may have been deleted, and perhaps created again, in the meantime.
        if let Some(uid) = object["metadata"]["uid"].as_str() {
            let why = format!(
                "StorageError: invalid object, Code: 4, AdditionalErrorMsg: Precondition failed: \
                 UID in precondition: {uid}, UID in object meta: "
            );
            return Err(Failure::conflict(resource, name, &why));
        }
        if !object["metadata"]["resourceVersion"].is_null() {
            return Err(Failure::not_found(resource, name));
        }
        object["metadata"]["namespace"] = json!(self.target.namespace);
        Ok((201, self.create(store, object)?))
    }

    /// Replaces `old` by `object`, unless another client has changed it.
    fn replace(
        &self,
        store: &mut Store,
        old: &Arc<Value>,
        mut object: Value,
    ) -> Result<Arc<Value>, Failure> {
        let Target { resource, part, .. } = self.target;
        let key = self.key(&object);
        let metadata = &object["metadata"];
        let version = &metadata["resourceVersion"];
        if !version.is_null() && *version != old["metadata"]["resourceVersion"] {
            return Err(Failure::stale(resource, &key.1));
        }
        let (uid, old_uid) = (&metadata["uid"], &old["metadata"]["uid"]);
        if !uid.is_null() && uid != old_uid {
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {old_uid}"
            );
            return Err(Failure::conflict(resource, &key.1, &why));
        }
        for field in [
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "resourceVersion",
        ] {
            keep(&mut object["metadata"], &old["metadata"], field);
        }
        // Admission also checks fields that this path does not write.
        self.admit(Some(old), &object)?;
        separate(*part, old, &mut object, resource.kind);
        validate::valid(resource, &object)?;
        if object == **old {
            return Ok(Arc::clone(old));
        }
        let stored = store.put(resource, key.clone(), object);
        let last_finalizer = has_finalizers(old) && !has_finalizers(&stored);
        if last_finalizer && !stored["metadata"]["deletionTimestamp"].is_null() {
            store.remove(resource, &key);
        }
        Ok(stored)
    }

    fn admit(&self, old: Option<&Value>, new: &Value) -> Result<(), Failure> {
        match self.identity.node_name() {
            Some(node) => restrict_node(node, self.target.resource, old, new),
            None => Ok(()),
        }
    }
}

/// Keeps the old spec on `/status`, and the old status on the object. Both paths write labels and
/// annotations.
fn separate(part: Part, old: &Value, object: &mut Value, kind: &str) {
    match (part, kind) {
        (Part::Status, _) => keep(object, old, "spec"),
        (Part::Object, "Node" | "Pod" | "Namespace") => keep(object, old, "status"),
        (Part::Object | Part::Proxy, _) => {}
    }
}

fn keep(object: &mut Value, old: &Value, field: &str) {
    match old.get(field) {
        Some(value) => object[field] = value.clone(),
        None => {
            object.as_object_mut().map(|object| object.remove(field));
        }
    }
}

// Implements the admission that keeps pods away until the node controller has seen the node ready.
//
// https://github.com/kubernetes/kubernetes/blob/v1.33.0/plugin/pkg/admission/nodetaint/admission.go
fn add_not_ready_taint(object: &mut Value) {
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    match object["spec"]["taints"].as_array_mut() {
        Some(taints) if taints.contains(&taint) => {}
        Some(taints) => taints.push(taint),
        None => object["spec"]["taints"] = json!([taint]),
    }
}

fn default_allocatable(object: &mut Value) {
    let status = &object["status"];
    if status["allocatable"].is_null() && status["capacity"].is_object() {
        object["status"]["allocatable"] = status["capacity"].clone();
    }
}

fn has_finalizers(object: &Value) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|finalizers| !finalizers.is_empty())
}

/// Returns the grace period of a running pod that is bound to a node; others are deleted at once.
fn grace_seconds(object: &Value, options: &Value) -> u64 {
    let phase = object["status"]["phase"].as_str().unwrap_or_default();
    let bound = object["kind"] == "Pod" && object["spec"]["nodeName"].is_string();
    if !bound || matches!(phase, "Succeeded" | "Failed") {
        return 0;
    }
    let configured = &object["spec"]["terminationGracePeriodSeconds"];
    let asked = options["gracePeriodSeconds"].as_u64();
    asked.or(configured.as_u64()).unwrap_or(30)
}
