//! Parses the query string, and the selectors in it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::failure::Failure;
use super::resource::{Resource, Target};

/// The decoded parameters of a request. The last of several with one name counts.
#[derive(Debug, Clone, Default)]
pub(super) struct QueryParameters(BTreeMap<String, String>);

impl QueryParameters {
    pub(super) fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(name, value)| (decode(name), decode(value)))
                .collect(),
        )
    }

    /// Returns the value; `None` if it is empty, as in the real server.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    pub(super) fn is_true(&self, name: &str) -> bool {
        matches!(self.get(name), Some("true" | "1"))
    }

    /// Parses a whole number; 400 if it is invalid.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Failure> {
        let parse = |text: &str| {
            text.parse()
                .map_err(|_| Failure::bad_request(format!("invalid {name}: {text:?}")))
        };
        self.get(name).map(parse).transpose()
    }
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        let hex = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        match (*first, tail.get(..2).and_then(hex)) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            (b'+', _) => bytes.push(b' '),
            (byte, _) => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[derive(Debug, Clone, Default)]
pub(super) struct Selector {
    namespace: String,
    fields: Vec<(String, Wanted)>,
    labels: Vec<(String, Wanted)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Missing,
}

impl Wanted {
    fn matches(&self, value: Option<&str>) -> bool {
        match (self, value) {
            (Self::In(values), Some(value)) => values.iter().any(|wanted| wanted == value),
            (Self::In(_) | Self::Exists, None) => false,
            (Self::NotIn(values), Some(value)) => values.iter().all(|wanted| wanted != value),
            (Self::NotIn(_) | Self::Missing, None) | (Self::Exists, Some(_)) => true,
            (Self::Missing, Some(_)) => false,
        }
    }
}

impl Selector {
    /// Parses the path, `fieldSelector` and `labelSelector`.
    pub(super) fn of(target: &Target, query: &QueryParameters) -> Result<Self, Failure> {
        let fields = query.get("fieldSelector").unwrap_or_default();
        let fields = terms(fields)
            .into_iter()
            .map(equality)
            .collect::<Result<Vec<_>, _>>()?;
        for (field, _) in &fields {
            if !selectable(target.resource, field) {
                let message = format!("field label not supported: {field}");
                return Err(Failure::bad_request(message));
            }
        }
        let labels = query.get("labelSelector").unwrap_or_default();
        Ok(Self {
            namespace: target.namespace.clone(),
            fields,
            labels: terms(labels)
                .into_iter()
                .map(label)
                .collect::<Result<_, _>>()?,
        })
    }

    /// Parses the equality in the `fieldSelector` of a SelfSubjectAccessReview.
    pub(super) fn asked(requirements: &Value) -> Self {
        let requirements = requirements.as_array();
        let equality = |one: &Value| {
            let [value] = one["values"].as_array()?.as_slice() else {
                return None;
            };
            let wanted = Wanted::In(vec![value.as_str()?.to_owned()]);
            (one["operator"] == "In").then_some((one["key"].as_str()?.to_owned(), wanted))
        };
        Self {
            fields: requirements
                .into_iter()
                .flatten()
                .filter_map(equality)
                .collect(),
            ..Self::default()
        }
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        (self.namespace.is_empty() || object["metadata"]["namespace"] == self.namespace.as_str())
            && self.fields.iter().all(|(path, wanted)| {
                // A field that is not set is the empty text, unlike a label.
                wanted.matches(Some(field(object, path).unwrap_or_default()))
            })
            && self
                .labels
                .iter()
                .all(|(name, wanted)| wanted.matches(labels[name].as_str()))
    }

    /// Returns the one value that the selector allows for a field.
    pub(super) fn only(&self, field: &str) -> Option<&str> {
        self.fields.iter().find_map(|(path, wanted)| match wanted {
            Wanted::In(values) if path == field => values.first().map(String::as_str),
            _ => None,
        })
    }
}

fn selectable(resource: &Resource, field: &str) -> bool {
    field == "metadata.name" || field == "metadata.namespace" || resource.fields.contains(&field)
}

fn field<'a>(object: &'a Value, path: &str) -> Option<&'a str> {
    // `source` of an Event selects by component.
    let path = if path == "source" {
        "source.component"
    } else {
        path
    };
    path.split('.')
        .try_fold(object, |value, name| value.get(name))
        .and_then(Value::as_str)
}

/// Splits at commas; between brackets, these separate values instead.
fn terms(text: &str) -> Vec<&str> {
    let mut depth = 0;
    text.split(|c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|term| !term.is_empty())
    .collect()
}

fn equality(term: &str) -> Result<(String, Wanted), Failure> {
    let one = |value: &str| vec![value.trim().to_owned()];
    let parsed = if let Some((name, value)) = term.split_once("!=") {
        (name, Wanted::NotIn(one(value)))
    } else if let Some((name, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        (name, Wanted::In(one(value)))
    } else {
        let message = format!("invalid selector: {term:?}; can't understand it");
        return Err(Failure::bad_request(message));
    };
    Ok((parsed.0.trim().to_owned(), parsed.1))
}

fn label(term: &str) -> Result<(String, Wanted), Failure> {
    let values = |text: &str| -> Vec<String> {
        let text = text.trim().trim_start_matches('(').trim_end_matches(')');
        text.split(',')
            .map(|value| value.trim().to_owned())
            .collect()
    };
    if let Some((name, rest)) = term.split_once(" notin ") {
        Ok((name.trim().to_owned(), Wanted::NotIn(values(rest))))
    } else if let Some((name, rest)) = term.split_once(" in ") {
        Ok((name.trim().to_owned(), Wanted::In(values(rest))))
    } else if term.contains('=') {
        equality(term)
    } else if let Some(name) = term.strip_prefix('!') {
        Ok((name.trim().to_owned(), Wanted::Missing))
    } else {
        Ok((term.to_owned(), Wanted::Exists))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_choose_what_the_api_server_chooses() {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "default", "labels": {"app": "web"}},
            "spec": {"nodeName": "worker-1"},
        });
        let target = Target::parse("/api/v1/pods").unwrap();
        for (query, expected) in [
            ("", true),
            ("fieldSelector=spec.nodeName%3Dworker-1", true),
            ("fieldSelector=spec.nodeName==worker-2", false),
            ("fieldSelector=spec.nodeName!=worker-1", false),
            (
                "fieldSelector=status.phase!=Failed,spec.nodeName=worker-1",
                true,
            ),
            ("fieldSelector=status.phase=", true),
            ("labelSelector=app", true),
            ("labelSelector=!app", false),
            ("labelSelector=app+in+(web,db),tier!=x", true),
            ("labelSelector=app%20notin%20(web)", false),
            ("labelSelector=tier=x", false),
        ] {
            let selector = Selector::of(&target, &QueryParameters::parse(query)).unwrap();
            assert_eq!(selector.matches(&pod), expected, "{query}");
        }
        let unknown = Selector::of(
            &target,
            &QueryParameters::parse("fieldSelector=spec.hostname=x"),
        );
        assert_eq!(unknown.unwrap_err().code, 400);
    }
}
