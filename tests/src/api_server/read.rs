//! Implements GET and LIST, and the representations of objects.

use serde_json::{Value, json};

use super::failure::Failure;
use super::query::{QueryParameters, Selector};
use super::resource::{Resource, Target};
use super::store::Store;
use super::table;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Full,
    /// Only `metadata`.
    Metadata,
    /// Rows that kubectl prints.
    Table,
}

impl Form {
    /// Returns the first accepted type that the server supports.
    pub(super) fn of(accept: &str) -> Self {
        for media in accept.split(',').map(str::trim) {
            if media.contains("as=Table") {
                return Self::Table;
            } else if media.contains("as=PartialObjectMetadata") {
                return Self::Metadata;
            } else if media.starts_with("application/json") && !media.contains("as=") {
                return Self::Full;
            }
        }
        Self::Full
    }

    /// Represents one object in this form. `wall` is seconds since 1970, for ages.
    pub(super) fn object(self, resource: &Resource, object: &Value, wall: u64) -> Value {
        match self {
            Self::Full => object.clone(),
            Self::Metadata => metadata_only(object),
            Self::Table => table::of(resource, &[object], object["metadata"].clone(), wall),
        }
    }

    fn list(self, resource: &Resource, items: &[&Value], metadata: Value, wall: u64) -> Value {
        match self {
            Self::Full => json!({
                "kind": format!("{}List", resource.kind),
                "apiVersion": resource.api_version(),
                "metadata": metadata,
                "items": items.iter().map(|item| without_type(item)).collect::<Vec<_>>(),
            }),
            Self::Metadata => json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
                "items": items.iter().map(|item| metadata_only(item)).collect::<Vec<_>>(),
            }),
            Self::Table => table::of(resource, items, metadata, wall),
        }
    }
}

/// Removes kind and version, which items in a list of a built-in kind do not have.
fn without_type(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(object) = object.as_object_mut() {
        object.remove("kind");
        object.remove("apiVersion");
    }
    object
}

pub(super) fn metadata_only(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}

#[derive(Debug)]
pub(super) struct ReadRequest<'a> {
    pub(super) target: &'a Target,
    pub(super) query: &'a QueryParameters,
    pub(super) form: Form,
    /// Seconds since 1970.
    pub(super) wall: u64,
}

impl ReadRequest<'_> {
    pub(super) fn get(&self, store: &Store) -> Result<Value, Failure> {
        let Target {
            resource,
            namespace,
            name,
            ..
        } = self.target;
        self.not_from_the_future(store)?;
        let object = store
            .get(resource, &(namespace.clone(), name.clone()))
            .ok_or_else(|| Failure::not_found(resource, name))?;
        Ok(self.form.object(resource, object, self.wall))
    }

    pub(super) fn list(&self, store: &Store, selector: &Selector) -> Result<Value, Failure> {
        let resource = self.target.resource;
        self.not_from_the_future(store)?;
        let (revision, after) = self.start(store)?;
        let snapshot = store.snapshot(resource, revision).map_err(|compacted| {
            match self.query.get("continue") {
                Some(_) => Failure::expired_continue(),
                None => Failure::expired(revision, compacted.0),
            }
        })?;
        let found: Vec<&Value> = snapshot
            .iter()
            .filter(|((namespace, name), object)| {
                let past = after
                    .as_ref()
                    .is_none_or(|after| (namespace, name) > (&after.0, &after.1));
                past && selector.matches(object)
            })
            .map(|(_, object)| &**object)
            .collect();
        let limit = self.query.number("limit")?.filter(|limit| *limit > 0);
        let limit = limit.map_or(found.len(), |limit| {
            usize::try_from(limit).unwrap_or(usize::MAX)
        });
        let (page, rest) = found.split_at(limit.min(found.len()));
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if let (false, Some(last)) = (rest.is_empty(), page.last()) {
            let text = |field: &str| last["metadata"][field].as_str().unwrap_or_default();
            let token = format!("{revision}/{}/{}", text("namespace"), text("name"));
            metadata["continue"] = json!(hex(&token));
            metadata["remainingItemCount"] = json!(rest.len());
        }
        Ok(self.form.list(resource, page, metadata, self.wall))
    }

    /// Returns the revision to list at, and the last key of the page before.
    fn start(&self, store: &Store) -> Result<(u64, Option<(String, String)>), Failure> {
        if let Some(token) = self.query.get("continue") {
            let invalid = || Failure::bad_request("continue key is not valid");
            let text = unhex(token).ok_or_else(invalid)?;
            let mut parts = text.splitn(3, '/');
            let (Some(revision), Some(namespace), Some(name)) =
                (parts.next(), parts.next(), parts.next())
            else {
                return Err(invalid());
            };
            let revision = revision.parse().map_err(|_| invalid())?;
            return Ok((revision, Some((namespace.to_owned(), name.to_owned()))));
        }
        let exact = self.query.get("resourceVersionMatch") == Some("Exact");
        match self.query.number("resourceVersion")? {
            Some(revision) if exact => Ok((revision, None)),
            _ => Ok((store.revision(), None)),
        }
    }

    fn not_from_the_future(&self, store: &Store) -> Result<(), Failure> {
        match self.query.number("resourceVersion")? {
            Some(asked) if asked > store.revision() => {
                Err(Failure::too_large(asked, store.revision()))
            }
            _ => Ok(()),
        }
    }
}

// Encodes a token as hex, so that no client interprets it.
fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<String> {
    let digits = text.as_bytes().chunks(2);
    let bytes = digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    String::from_utf8(bytes.collect::<Option<_>>()?).ok()
}
