//! The form for OpenTelemetry: logs over OTLP/HTTP, as JSON.
//! <https://opentelemetry.io/docs/specs/otlp/#otlphttp>,
//! <https://opentelemetry.io/docs/specs/otel/logs/data-model/>

use std::io::Write as _;
use std::time::UNIX_EPOCH;

use flate2::Compression;
use flate2::write::GzEncoder;
use nodepulse_core::incident::JsonIncident;
use nodepulse_kube::convert;
use serde_json::{Map, Value, json};

use super::receiver::Body;

/// `SeverityNumber` and text. <https://opentelemetry.io/docs/specs/otel/logs/data-model/#field-severitynumber>
const INFO: (u8, &str) = (9, "INFO");
const WARN: (u8, &str) = (13, "WARN");

/// The collector gets log records of this resource.
#[derive(Debug)]
pub struct Otlp {
    pub host_name: String,
    /// The node has an API server.
    pub is_kubernetes: bool,
}

impl Otlp {
    pub fn body(&self, incidents: &[&JsonIncident]) -> serde_json::Result<Body> {
        let mut resource = vec![
            attribute("service.name", "nodepulse".into()),
            attribute("service.version", env!("CARGO_PKG_VERSION").into()),
            attribute("host.name", self.host_name.as_str().into()),
        ];
        if self.is_kubernetes {
            resource.push(attribute("k8s.node.name", self.host_name.as_str().into()));
        }
        let records: Result<Vec<_>, _> =
            incidents.iter().map(|incident| record(incident)).collect();
        let logs = json!({"resourceLogs": [{
            "resource": {"attributes": resource},
            "scopeLogs": [{
                "scope": {"name": "nodepulse", "version": env!("CARGO_PKG_VERSION")},
                "logRecords": records?,
            }],
        }]});
        let mut compressed = GzEncoder::new(Vec::new(), Compression::fast());
        compressed
            .write_all(&serde_json::to_vec(&logs)?)
            .map_err(serde_json::Error::io)?;
        let bytes = compressed.finish().map_err(serde_json::Error::io)?;
        Ok(Body {
            content_type: "application/json",
            content_encoding: Some("gzip"),
            bytes: bytes.into(),
        })
    }
}

fn record(incident: &JsonIncident) -> serde_json::Result<Value> {
    let (severity, text) = if incident.is_improvement() {
        INFO
    } else {
        WARN
    };
    let time = convert::parse_time(Some(&incident.time.as_str().into()));
    let time = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    // 64-bit integers are strings in the JSON of Protobuf.
    let time = time.unwrap_or_default().as_nanos().to_string();
    let object = &incident.object;
    let pod = object.pod.as_ref();
    let named = [
        (
            "k8s.namespace.name",
            pod.and_then(|pod| pod.namespace.as_deref()),
        ),
        ("k8s.pod.name", pod.and_then(|pod| pod.name.as_deref())),
        ("k8s.pod.uid", pod.map(|pod| pod.uid.as_str())),
        ("k8s.container.name", object.container.as_deref()),
        ("nodepulse.unit", object.unit.as_deref()),
        ("nodepulse.cgroup", object.cgroup.as_deref()),
        ("nodepulse.kind", incident.kind()),
    ];
    let mut attributes = vec![
        attribute("nodepulse.incident.id", incident.id.as_str().into()),
        attribute("nodepulse.incident.revision", incident.revision.into()),
        attribute("nodepulse.incident.settled", incident.settled.into()),
        attribute("nodepulse.reason", incident.reason.as_str().into()),
    ];
    let named = named.into_iter();
    attributes.extend(named.filter_map(|(key, value)| Some(attribute(key, value?.into()))));
    if let Some(Value::Object(mut facts)) = Some(serde_json::to_value(&incident.facts)?)
        && let Some(facts) = facts.remove("facts")
    {
        attributes.push(attribute("nodepulse.facts", facts));
    }
    Ok(json!({
        "timeUnixNano": time,
        "observedTimeUnixNano": time,
        "severityNumber": severity,
        "severityText": text,
        "body": {"stringValue": incident.message},
        "attributes": attributes,
    }))
}

fn attribute(key: &str, of: Value) -> Value {
    json!({"key": key, "value": any_value(of)})
}

/// Converts a value to an `AnyValue`.
fn any_value(of: Value) -> Value {
    let pairs = |map: Map<String, Value>| -> Vec<_> {
        let pairs = map.into_iter();
        pairs.map(|(key, value)| attribute(&key, value)).collect()
    };
    match of {
        Value::Null => json!({}),
        Value::Bool(value) => json!({"boolValue": value}),
        Value::Number(number) if number.is_f64() => json!({"doubleValue": number}),
        Value::Number(number) => json!({"intValue": number.to_string()}),
        Value::String(text) => json!({"stringValue": text}),
        Value::Array(values) => {
            let values: Vec<_> = values.into_iter().map(any_value).collect();
            json!({"arrayValue": {"values": values}})
        }
        Value::Object(map) => json!({"kvlistValue": {"values": pairs(map)}}),
    }
}
