//! Validates what other agents have failed at: quantities, events, leases.

use serde_json::Value;

use super::failure::Failure;
use super::resource::Resource;
use super::stamp;

type Causes = Vec<(String, String)>;

const NOT_A_QUANTITY: &str = "quantities must match the regular expression \
                              '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// The kind of body, which determines the answer to an invalid value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// POST or PUT: the body cannot be decoded, 400.
    Object,
    /// PATCH: the patch is invalid, 422 without a name.
    Patch,
}

/// Checks that the object can be decoded into the types of its kind.
pub(super) fn decodable(resource: &Resource, object: &Value, from: From) -> Result<(), Failure> {
    let Some(why) = undecodable(resource, object) else {
        return Ok(());
    };
    Err(match from {
        From::Object => Failure::bad_request(format!(
            "{kind} in version \"v1\" cannot be handled as a {kind}: {why}",
            kind = resource.kind
        )),
        From::Patch => {
            let why = format!("Invalid value: \"the patch\": {why}");
            Failure::invalid("", "", &[("patch".to_owned(), why)])
        }
    })
}

fn undecodable(resource: &Resource, object: &Value) -> Option<String> {
    let micro_time = |field: &str| {
        let text = object["spec"][field].as_str()?;
        (!is_micro_time(text)).then(|| {
            format!("parsing time {text:?} as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse")
        })
    };
    match resource.kind {
        "Node" => ["capacity", "allocatable"]
            .iter()
            .filter_map(|map| object["status"][*map].as_object())
            .flatten()
            .any(|(_, value)| sign(value).is_none())
            .then(|| NOT_A_QUANTITY.to_owned()),
        "Lease" => micro_time("renewTime").or_else(|| micro_time("acquireTime")),
        _ => None,
    }
}

/// Checks the rules of the kind; a violation is 422 with all causes.
pub(super) fn valid(resource: &Resource, object: &Value) -> Result<(), Failure> {
    let causes = match resource.kind {
        "Node" => node(object),
        "Event" => event(object),
        "Lease" => lease(object),
        _ => Vec::new(),
    };
    if causes.is_empty() {
        return Ok(());
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    Err(Failure::invalid(resource.kind, name, &causes))
}

fn node(object: &Value) -> Causes {
    let mut causes = Causes::new();
    for map in ["capacity", "allocatable"] {
        for (name, value) in object["status"][map].as_object().into_iter().flatten() {
            if sign(value) == Some(Sign::Negative) {
                let shown = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned);
                let why = format!("Invalid value: \"{shown}\": must be greater than or equal to 0");
                causes.push((format!("status.{map}.{name}"), why));
            }
        }
    }
    let addresses = object["status"]["addresses"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    for (index, address) in addresses.iter().enumerate() {
        if addresses[..index].contains(address) {
            let why = format!("Duplicate value: {address}");
            causes.push((format!("status.addresses[{index}]"), why));
        }
    }
    causes
}

// Checks lengths only in events of the new style, which have an eventTime.
//
// https://github.com/kubernetes/kubernetes/blob/v1.33.0/pkg/apis/core/validation/events.go
fn event(object: &Value) -> Causes {
    let mut causes = Causes::new();
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let involved = object["involvedObject"]["namespace"]
        .as_str()
        .unwrap_or_default();
    let matches = if involved.is_empty() {
        namespace == "default"
    } else {
        namespace == involved
    };
    if !matches {
        let why = format!("Invalid value: \"{involved}\": does not match event.namespace");
        causes.push(("involvedObject.namespace".to_owned(), why));
    }
    if object["eventTime"].is_null() {
        return causes;
    }
    for field in [
        "reportingComponent",
        "reportingInstance",
        "reason",
        "action",
    ] {
        if object[field].as_str().unwrap_or_default().is_empty() {
            causes.push((field.to_owned(), "Required value".to_owned()));
        }
    }
    for (field, most) in [
        ("reportingInstance", 128),
        ("reason", 128),
        ("action", 128),
        ("message", 1024),
    ] {
        if object[field].as_str().unwrap_or_default().len() > most {
            let why = format!("Invalid value: \"\": can have at most {most} characters");
            causes.push((field.to_owned(), why));
        }
    }
    causes
}

fn lease(object: &Value) -> Causes {
    match object["spec"]["leaseDurationSeconds"].as_i64() {
        Some(seconds) if seconds <= 0 => {
            let why = format!("Invalid value: {seconds}: must be greater than 0");
            vec![("spec.leaseDurationSeconds".to_owned(), why)]
        }
        _ => Vec::new(),
    }
}

/// Checks for the six decimals of a `metav1.MicroTime`; anything else cannot be decoded.
fn is_micro_time(text: &str) -> bool {
    let fraction = text.strip_suffix('Z').and_then(|text| text.split_once('.'));
    fraction.is_some_and(|(_, digits)| digits.len() == 6) && stamp::parse(text).is_some()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    Positive,
    Negative,
}

/// Returns the sign of a quantity; `None` if it is invalid.
fn sign(value: &Value) -> Option<Sign> {
    const SUFFIXES: [&str; 16] = [
        "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
    ];
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let digits = text.trim_start_matches(['+', '-']);
    if text.len() - digits.len() > 1 {
        return None;
    }
    let end = digits
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(digits.len());
    let (number, suffix) = digits.split_at(end);
    let exponent = suffix
        .strip_prefix(['e', 'E'])
        .is_some_and(|exponent| exponent.parse::<i32>().is_ok());
    let number: f64 = number.parse().ok()?;
    if !exponent && !SUFFIXES.contains(&suffix) {
        return None;
    }
    Some(if text.starts_with('-') && number > 0.0 {
        Sign::Negative
    } else {
        Sign::Positive
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_quantity_is_a_number_and_a_known_suffix() {
        for (value, expected) in [
            (json!("4"), Some(Sign::Positive)),
            (json!(4), Some(Sign::Positive)),
            (json!("3920m"), Some(Sign::Positive)),
            (json!("1.5Gi"), Some(Sign::Positive)),
            (json!("1e3"), Some(Sign::Positive)),
            (json!("-0"), Some(Sign::Positive)),
            (json!("-1"), Some(Sign::Negative)),
            (json!("1GB"), None),
            (json!("four"), None),
            (json!(""), None),
            (json!("--1"), None),
        ] {
            assert_eq!(sign(&value), expected, "{value}");
        }
    }
}
