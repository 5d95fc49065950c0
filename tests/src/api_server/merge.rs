//! Patches: JSON merge patch (RFC 7386), and the strategic merge of the API server.
//!
//! The strategic merge follows `StrategicMergeMapPatch`, including its oddities: a directive in a
//! map that does not exist yet drops that map, and `$setElementOrder` stays in one. The API server
//! loses the latter when it decodes the result into its own types; [`typed`] does that here. What
//! the real code does is recorded in `tests/fixtures/golden/strategic-merge`.
//!
//! <https://github.com/kubernetes/kubernetes/blob/v1.33.0/staging/src/k8s.io/apimachinery/pkg/util/strategicpatch/patch.go>

use serde_json::{Map, Value};

mod list;
mod schema;

use list::{merge_list, merge_ordered};
use schema::{Strategy, strategy};

type Object = Map<String, Value>;

const DIRECTIVE: &str = "$patch";
const ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const RETAIN: &str = "$retainKeys";

pub(super) fn merge_patch(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(object) = target else {
        return;
    };
    for (key, value) in patch {
        if value.is_null() {
            object.remove(key);
        } else {
            merge_patch(object.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

pub(super) fn strategic(kind: &str, original: &Value, patch: &Value) -> Result<Value, String> {
    let (Value::Object(original), Value::Object(patch)) = (original, patch) else {
        return Err("a strategic merge patch and what it is applied to must be maps".to_owned());
    };
    let merged = merge_map(original.clone(), patch.clone(), &At::root(kind))?;
    Ok(Value::Object(merged))
}

/// Removes directives and nulls, as the server does when it decodes an object into its types.
pub(super) fn typed(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|key, value| !key.starts_with('$') && !value.is_null());
            object.values_mut().for_each(typed);
        }
        Value::Array(list) => list.iter_mut().for_each(typed),
        _ => {}
    }
}

/// Encodes a typed object like the server. `names` of an image is the only field of a Node without
/// `omitempty` that a client may leave out; an image without a size has no `sizeBytes`.
pub(super) fn encoded(kind: &str, value: &mut Value) {
    if kind != "Node" {
        return;
    }
    let images = value.pointer_mut("/status/images");
    let images = images.and_then(Value::as_array_mut).into_iter().flatten();
    for image in images.filter_map(Value::as_object_mut) {
        image.entry("names").or_insert(Value::Null);
        image.retain(|key, value| key != "sizeBytes" || *value != 0);
    }
}

/// A location in an object: its kind, and the path of field names.
struct At<'a> {
    kind: &'a str,
    path: String,
}

impl<'a> At<'a> {
    fn root(kind: &'a str) -> Self {
        Self {
            kind,
            path: String::new(),
        }
    }

    fn field(&self, name: &str) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        Self {
            kind: self.kind,
            path: format!("{}{dot}{name}", self.path),
        }
    }

    fn strategy(&self) -> Strategy {
        strategy(self.kind, &self.path)
    }
}

fn merge_map(mut original: Object, mut patch: Object, at: &At<'_>) -> Result<Object, String> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Map::new()),
            _ => Err(unknown_directive(&patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    merge_orders(&mut original, &mut patch, at)?;
    for (key, value) in patch {
        merge_field(&mut original, key, value, at)?;
    }
    Ok(original)
}

fn merge_field(into: &mut Object, key: String, patch: Value, at: &At<'_>) -> Result<(), String> {
    if let Some(key) = key.strip_prefix(DELETE_FROM) {
        if let (Some(Value::Array(list)), Value::Array(removed)) = (into.get_mut(key), &patch) {
            list.retain(|item| !removed.contains(item));
        }
        return Ok(());
    }
    let merged = match (into.remove(&key), patch) {
        (_, Value::Null) => return Ok(()),
        (Some(Value::Object(original)), Value::Object(patch)) => {
            Value::Object(merge_map(original, patch, &at.field(&key))?)
        }
        (Some(Value::Array(original)), Value::Array(patch)) => {
            Value::Array(merge_list(original, patch, &at.field(&key))?)
        }
        (Some(original), patch) if same_type(&original, &patch) => patch,
        (_, mut patch) => {
            discard_nulls(&mut patch);
            if !is_directive(&patch) {
                drop_directives(&mut patch);
                into.insert(key, patch);
            }
            return Ok(());
        }
    };
    into.insert(key, merged);
    Ok(())
}

/// Applies each `$setElementOrder/<list>` together with the list, and removes both from the patch.
fn merge_orders(into: &mut Object, patch: &mut Object, at: &At<'_>) -> Result<(), String> {
    let orders: Vec<String> = patch
        .keys()
        .filter(|key| key.starts_with(ORDER))
        .cloned()
        .collect();
    for directive in orders {
        let Some(Value::Array(order)) = patch.remove(&directive) else {
            return Err("expecting a list as the value of $setElementOrder".to_owned());
        };
        let key = directive.trim_start_matches(ORDER);
        let patched = match patch.remove(key) {
            Some(Value::Array(list)) => Some(list),
            Some(other) => return Err(not_a_list(&other)),
            None => None,
        };
        let original = match into.get(key) {
            Some(Value::Array(list)) => Some(list.clone()),
            Some(other) => return Err(not_a_list(other)),
            None => None,
        };
        if let Some(merged) = merge_ordered(original, patched, &order, &at.field(key))? {
            into.insert(key.to_owned(), Value::Array(merged));
        }
    }
    Ok(())
}

fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), String> {
    let Some(retained) = patch.remove(RETAIN) else {
        return Ok(());
    };
    let invalid = || "invalid patch format of retainKeys".to_owned();
    let Value::Array(retained) = retained else {
        return Err(invalid());
    };
    let kept = |key: &str| retained.iter().any(|retained| retained == key);
    let unlisted = |(key, value): (&String, &Value)| {
        !value.is_null() && !key.starts_with(ORDER) && !key.starts_with(DELETE_FROM) && !kept(key)
    };
    if patch.iter().any(unlisted) {
        return Err(invalid());
    }
    original.retain(|key, _| kept(key));
    Ok(())
}

fn same_type(left: &Value, right: &Value) -> bool {
    std::mem::discriminant(left) == std::mem::discriminant(right)
}

fn is_directive(value: &Value) -> bool {
    value.get(DIRECTIVE).is_some()
}

fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|_, value| !value.is_null());
            object.values_mut().for_each(discard_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// Removes the maps that contain a directive, which have no object to apply to.
fn drop_directives(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|_, value| !is_directive(value));
            object.values_mut().for_each(drop_directives);
        }
        Value::Array(list) => {
            list.retain(|item| !is_directive(item));
            list.iter_mut().for_each(drop_directives);
        }
        _ => {}
    }
}

fn unknown_directive(patch: &Object) -> String {
    format!(
        "unknown patch type: {} in map: {}",
        go(patch.get(DIRECTIVE).unwrap_or(&Value::Null)),
        go_map(patch)
    )
}

fn not_a_list(value: &Value) -> String {
    let type_ = match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    format!("expected a []interface {{}}, but received a {type_}")
}

/// Formats `value` like Go's `%v`, which the real messages use.
fn go(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) => {
            let items: Vec<String> = list.iter().map(go).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(object) => go_map(object),
        other => other.to_string(),
    }
}

fn go_map(object: &Object) -> String {
    let items: Vec<String> = object
        .iter()
        .map(|(key, value)| format!("{key}:{}", go(value)))
        .collect();
    format!("map[{}]", items.join(" "))
}

#[cfg(test)]
mod property;
#[cfg(test)]
mod tests;
