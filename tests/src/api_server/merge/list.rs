//! Merges lists of a strategic merge patch, and determines the order.

use serde_json::Value;

use super::{At, DIRECTIVE, Strategy, drop_directives, go, go_map, merge_map, unknown_directive};

/// Merges two lists without a `$setElementOrder`.
pub(super) fn merge_list(
    original: Vec<Value>,
    patch: Vec<Value>,
    at: &At<'_>,
) -> Result<Vec<Value>, String> {
    let key = match at.strategy() {
        Strategy::Atomic => return Ok(patch),
        Strategy::Set => {
            let mut merged = original.clone();
            for value in &patch {
                if !merged.contains(value) {
                    merged.push(value.clone());
                }
            }
            return Ok(arrange(merged, &patch, &original, None));
        }
        Strategy::ByKey(key) => key,
    };
    let (original, patch) = apply_list_directives(original, patch, key)?;
    let mut merged = original.clone();
    for element in &patch {
        merge_element(&mut merged, element, key, at)?;
    }
    for element in &merged {
        required(element, Some(key))?;
    }
    Ok(arrange(merged, &patch, &original, Some(key)))
}

/// Merges two lists, and puts the result in `order`. `None` if neither side has a list.
pub(super) fn merge_ordered(
    original: Option<Vec<Value>>,
    patch: Option<Vec<Value>>,
    order: &[Value],
    at: &At<'_>,
) -> Result<Option<Vec<Value>>, String> {
    let key = match at.strategy() {
        Strategy::ByKey(key) => Some(key),
        Strategy::Atomic | Strategy::Set => None,
    };
    check_order(patch.as_deref().unwrap_or_default(), order, key)?;
    let count = |list: &Option<Vec<Value>>| list.as_ref().map(Vec::len);
    let counts = (count(&original), count(&patch));
    if matches!(counts, (Some(0), None | Some(0)) | (None, Some(0))) {
        return Err("no elements in any of the given slices".to_owned());
    }
    let merged = match (original.clone(), patch) {
        (None, None) => return Ok(None),
        (Some(original), None) => original,
        (Some(original), Some(patch)) => merge_list(original, patch, at)?,
        (None, Some(patch)) => {
            let mut patch = Value::Array(patch);
            drop_directives(&mut patch);
            match patch {
                Value::Array(patch) => patch,
                _ => Vec::new(),
            }
        }
    };
    let original = original.unwrap_or_default();
    Ok(Some(arrange(merged, order, &original, key)))
}

/// Applies the elements that are directives; returns what is left of both lists.
fn apply_list_directives(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), String> {
    let mut plain = Vec::new();
    let mut replace = false;
    for element in patch {
        let Value::Object(map) = &element else {
            return Err("expected a list of maps".to_owned());
        };
        match map.get(DIRECTIVE).map(Value::as_str) {
            None => plain.push(element),
            Some(Some("replace")) => replace = true,
            Some(Some("delete")) => {
                let removed = map.get(key).ok_or_else(|| no_merge_key(&element, key))?;
                original.retain(|item| item.get(key) != Some(removed));
            }
            Some(Some("merge")) => {
                return Err("merging lists cannot yet be specified in the patch".to_owned());
            }
            Some(_) => return Err(unknown_directive(map)),
        }
    }
    Ok(if replace {
        (plain, Vec::new())
    } else {
        (original, plain)
    })
}

/// Merges into the first element with the same key only, which is the known defect of `addresses`.
fn merge_element(
    merged: &mut Vec<Value>,
    element: &Value,
    key: &str,
    at: &At<'_>,
) -> Result<(), String> {
    let Some(wanted) = element.get(key) else {
        return Err(no_merge_key(element, key));
    };
    match merged.iter_mut().find(|item| item.get(key) == Some(wanted)) {
        Some(Value::Object(found)) => {
            if let Value::Object(patch) = element {
                *found = merge_map(std::mem::take(found), patch.clone(), at)?;
            }
        }
        _ => merged.push(element.clone()),
    }
    Ok(())
}

/// Checks that the patch's elements are in `order`. A deletion may be anywhere, another directive
/// before the last element that `order` names.
fn check_order(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<(), String> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let is_delete = |item: &&Value| item.get(DIRECTIVE).is_some_and(|value| value == "delete");
    let mut items = patch
        .iter()
        .filter(|item| key.is_none() || !is_delete(item))
        .peekable();
    let mut rest = order.iter().peekable();
    while let (Some(item), Some(ordered)) = (items.peek(), rest.peek()) {
        if item.get(DIRECTIVE).is_some() {
            items.next();
            continue;
        }
        if required(item, key)? == required(ordered, key)? {
            items.next();
        }
        rest.next();
    }
    if items.next().is_none() {
        return Ok(());
    }
    let list = |items: &[Value]| go(&Value::Array(items.to_vec()));
    Err(format!(
        "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
        list(patch),
        list(order)
    ))
}

/// Sorts the elements that `order` names, and keeps the relative position of the others.
fn arrange(
    merged: Vec<Value>,
    order: &[Value],
    original: &[Value],
    key: Option<&str>,
) -> Vec<Value> {
    let place = |list: &[Value], item: &Value| {
        list.iter()
            .position(|other| identity(other, key) == identity(item, key))
    };
    let (mut named, mut rest): (Vec<Value>, Vec<Value>) = merged
        .into_iter()
        .partition(|item| place(order, item).is_some());
    named.sort_by_key(|item| place(order, item));
    rest.sort_by_key(|item| place(original, item));

    let mut named = named.into_iter().peekable();
    let mut rest = rest.into_iter().peekable();
    let mut arranged = Vec::new();
    while let (Some(left), Some(right)) = (rest.peek(), named.peek()) {
        // Only an item that was in front before stays in front: a new one has precedence.
        let in_front = match (place(original, left), place(original, right)) {
            (Some(left), Some(right)) => left < right,
            _ => false,
        };
        arranged.extend(if in_front { rest.next() } else { named.next() });
    }
    arranged.extend(named);
    arranged.extend(rest);
    arranged
}

fn identity<'a>(item: &'a Value, key: Option<&str>) -> Option<&'a Value> {
    match key {
        Some(key) => item.get(key),
        None => Some(item),
    }
}

fn required<'a>(item: &'a Value, key: Option<&str>) -> Result<&'a Value, String> {
    identity(item, key).ok_or_else(|| no_merge_key(item, key.unwrap_or_default()))
}

fn no_merge_key(element: &Value, key: &str) -> String {
    let shown = element.as_object().map(go_map).unwrap_or_default();
    format!("map: {shown} does not contain declared merge key: {key}")
}
