//! The form for OpenTelemetry: logs over OTLP/HTTP, as JSON.
//! <https://opentelemetry.io/docs/specs/otlp/#otlphttp>,
//! <https://opentelemetry.io/docs/specs/otel/logs/data-model/>

use std::io::Write as _;
use std::time::UNIX_EPOCH;

use flate2::Compression;
use flate2::write::GzEncoder;
use nodepulse_core::incident::JsonIncident;
use nodepulse_kube::convert;
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::{Number, Value, json};

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
        let node = self.is_kubernetes.then_some(self.host_name.as_str());
        let resource = [
            ("service.name", Some("nodepulse")),
            ("service.version", Some(env!("CARGO_PKG_VERSION"))),
            ("host.name", Some(&self.host_name)),
            ("k8s.node.name", node),
        ];
        let logs = Logs {
            resource_logs: [ResourceLogs {
                resource: json!({"attributes": texts(&resource).collect::<Vec<_>>()}),
                scope_logs: [ScopeLogs {
                    scope: json!({"name": "nodepulse", "version": env!("CARGO_PKG_VERSION")}),
                    log_records: incidents.iter().copied().map(Record).collect(),
                }],
            }],
        };
        let mut bytes = serde_json::to_vec(&logs)?;
        // The compressor takes 350 KB.
        let is_compressed = 1 < incidents.len();
        if is_compressed {
            let mut compressed = GzEncoder::new(Vec::new(), Compression::fast());
            compressed
                .write_all(&bytes)
                .map_err(serde_json::Error::io)?;
            bytes = compressed.finish().map_err(serde_json::Error::io)?;
        }
        Ok(Body {
            content_type: "application/json",
            content_encoding: is_compressed.then_some("gzip"),
            bytes: bytes.into(),
        })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Logs<'a> {
    resource_logs: [ResourceLogs<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceLogs<'a> {
    resource: Value,
    scope_logs: [ScopeLogs<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ScopeLogs<'a> {
    scope: Value,
    log_records: Vec<Record<'a>>,
}

/// Becomes a [`LogRecord`] when it is written: of all incidents of a batch, these would take much
/// memory.
struct Record<'a>(&'a JsonIncident);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LogRecord<'a> {
    time_unix_nano: &'a str,
    observed_time_unix_nano: &'a str,
    severity_number: u8,
    severity_text: &'static str,
    body: AnyValue<'a>,
    attributes: Vec<Attribute<'a>>,
}

#[derive(Serialize)]
struct Attribute<'a> {
    key: &'a str,
    value: AnyValue<'a>,
}

#[derive(Serialize)]
enum AnyValue<'a> {
    #[serde(rename = "boolValue")]
    Bool(bool),
    #[serde(rename = "doubleValue")]
    Double(&'a Number),
    /// 64-bit integers are strings in the JSON of Protobuf.
    #[serde(rename = "intValue")]
    Int(String),
    #[serde(rename = "stringValue")]
    String(&'a str),
    #[serde(rename = "arrayValue")]
    Array { values: Vec<Self> },
    #[serde(rename = "kvlistValue")]
    Kvlist { values: Vec<Attribute<'a>> },
}

impl Serialize for Record<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let incident = self.0;
        let (severity_number, severity_text) = if incident.is_improvement() {
            INFO
        } else {
            WARN
        };
        let time = convert::parse_time(Some(&incident.time.as_str().into()));
        let time = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let time = time.unwrap_or_default().as_nanos().to_string();
        let object = &incident.object;
        let pod = object.pod.as_ref();
        let named = [
            ("nodepulse.incident.id", Some(incident.id.as_str())),
            ("nodepulse.reason", Some(&incident.reason)),
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
        let facts = serde_json::to_value(&incident.facts).map_err(S::Error::custom)?;
        let facts = facts.get("facts").and_then(AnyValue::new);
        let further = [
            (
                "nodepulse.incident.revision",
                Some(AnyValue::Int(incident.revision.to_string())),
            ),
            (
                "nodepulse.incident.settled",
                Some(AnyValue::Bool(incident.settled)),
            ),
            ("nodepulse.facts", facts),
        ];
        let further = further.into_iter();
        let further = further.filter_map(|(key, value)| Some(Attribute { key, value: value? }));
        let record = LogRecord {
            time_unix_nano: &time,
            observed_time_unix_nano: &time,
            severity_number,
            severity_text,
            body: AnyValue::String(&incident.message),
            attributes: texts(&named).chain(further).collect(),
        };
        record.serialize(serializer)
    }
}

/// Returns the attributes that are known.
fn texts<'a>(all: &'a [(&'static str, Option<&'a str>)]) -> impl Iterator<Item = Attribute<'a>> {
    all.iter().filter_map(|(key, text)| {
        let value = AnyValue::String((*text)?);
        Some(Attribute { key, value })
    })
}

impl<'a> AnyValue<'a> {
    /// Returns `None` for null, which is an absent value.
    fn new(of: &'a Value) -> Option<Self> {
        Some(match of {
            Value::Null => return None,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) if number.is_f64() => Self::Double(number),
            Value::Number(number) => Self::Int(number.to_string()),
            Value::String(text) => Self::String(text),
            Value::Array(values) => Self::Array {
                values: values.iter().filter_map(Self::new).collect(),
            },
            Value::Object(map) => {
                let values = map.iter().filter_map(|(key, value)| {
                    let value = Self::new(value)?;
                    Some(Attribute { key, value })
                });
                Self::Kvlist {
                    values: values.collect(),
                }
            }
        })
    }
}
