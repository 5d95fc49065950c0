//! A receiver of incidents: what a collector or a webhook got, and answers as a test wants them.

use std::io::{self, Read as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::header::{CONTENT_ENCODING, LOCATION, RETRY_AFTER};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use nodepulse_core::clock::BootNanos;
use nodepulse_io::clock::Clock;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AttributeValue;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use serde::Deserialize as _;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// One request.
#[derive(Debug, Clone)]
pub struct Received {
    pub path: String,
    pub headers: HeaderMap,
    /// The body, decompressed.
    pub body: Value,
    /// The status of the answer.
    pub answered: u16,
    /// When the body was read.
    pub at: BootNanos,
}

impl Received {
    /// Returns the incidents in it.
    pub fn incidents(&self) -> Vec<ReceivedIncident> {
        incidents(&self.body)
    }
}

/// A revision of an incident, as a receiver reads it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReceivedIncident {
    pub id: String,
    pub revision: u64,
    pub is_settled: bool,
    pub kind: String,
    /// Of the pod; empty without one.
    pub uid: String,
    pub kills: u64,
}

/// In place of a status: the connection is closed without an answer.
pub const AWAY: u16 = 0;

#[derive(Debug)]
struct State {
    status: u16,
    received: Vec<Received>,
}

/// A server on a port of 127.0.0.1. It ends with the runtime.
#[derive(Debug, Clone)]
pub struct Receiver {
    pub port: u16,
    state: Arc<Mutex<State>>,
}

impl Receiver {
    /// Starts a server that answers with `status`.
    pub async fn start(status: u16, tls: Option<TlsAcceptor>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let receiver = Self {
            port: listener.local_addr()?.port(),
            state: Arc::new(Mutex::new(State {
                status,
                received: Vec::new(),
            })),
        };
        let server = receiver.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if server.lock().status == AWAY {
                    continue;
                }
                let (server, tls) = (server.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => server.serve(stream).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                server.serve(stream).await;
                            }
                        }
                    }
                });
            }
        });
        Ok(receiver)
    }

    async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let server = self.clone();
        let answer = service_fn(move |request| {
            let server = server.clone();
            async move {
                server
                    .answer(request)
                    .await
                    .ok_or(io::ErrorKind::ConnectionAborted.into()) as io::Result<_>
            }
        });
        let served = auto::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), answer)
            .await;
        // The agent may be killed at any time.
        drop(served);
    }

    /// Returns nothing while it is away.
    async fn answer(&self, request: Request<Incoming>) -> Option<Response<Full<Bytes>>> {
        let (parts, body) = request.into_parts();
        let bytes = body
            .collect()
            .await
            .map(|body| body.to_bytes())
            .unwrap_or_default();
        let mut text = Vec::new();
        if parts.headers.contains_key(CONTENT_ENCODING) {
            GzDecoder::new(&bytes[..])
                .read_to_end(&mut text)
                .expect("gzip");
        } else {
            text.extend_from_slice(&bytes);
        }
        let body: Value = serde_json::from_slice(&text).expect("JSON");
        // Fails if it is neither.
        incidents(&body);
        let status = {
            let mut state = self.lock();
            let answered = state.status;
            if answered == AWAY {
                return None;
            }
            state.received.push(Received {
                path: parts.uri.path().to_owned(),
                headers: parts.headers,
                body,
                answered,
                at: Clock::kernel().now().boot,
            });
            answered
        };
        let location = format!("http://127.0.0.1:{}/elsewhere", self.port);
        let response = Response::builder()
            .status(status)
            .header(RETRY_AFTER, "0")
            .header(LOCATION, location)
            .body(Full::from("{}"));
        Some(response.expect("a response"))
    }

    /// Sets the status of further answers.
    pub fn set_status(&self, status: u16) {
        self.lock().status = status;
    }

    pub fn received(&self) -> Vec<Received> {
        self.lock().received.clone()
    }

    /// Returns the revisions that were accepted, in their order.
    pub fn accepted(&self) -> Vec<ReceivedIncident> {
        let received = self.received().into_iter();
        let accepted = received.filter(|one| one.answered == 200);
        accepted.flat_map(|one| one.incidents()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads what a webhook or a collector got.
fn incidents(body: &Value) -> Vec<ReceivedIncident> {
    let Some(incident) = body.get("data") else {
        let resources = logs(body).resource_logs.into_iter();
        let scopes = resources.flat_map(|resource| resource.scope_logs);
        let records = scopes.flat_map(|scope| scope.log_records);
        return records.map(|record| of_record(&record)).collect();
    };
    let text = |at: &str| {
        let text = incident.pointer(at).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let number = |at: &str| incident.pointer(at).and_then(Value::as_u64).unwrap_or(0);
    vec![ReceivedIncident {
        id: text("/id"),
        revision: number("/revision"),
        is_settled: incident["settled"] == true,
        kind: text("/kind"),
        uid: text("/object/pod/uid"),
        kills: number("/facts/processes") + number("/facts/kills"),
    }]
}

/// Decodes logs by the types of the public Protobuf files, and fails if these do not have all that
/// was sent.
fn logs(body: &Value) -> ExportLogsServiceRequest {
    let logs = ExportLogsServiceRequest::deserialize(body).expect("OTLP");
    let known = serde_json::to_value(&logs).expect("JSON");
    assert!(has(&known, body), "{body:#} is read as {known:#}");
    logs
}

/// Returns true if `whole` has every member of `part`, with the same values.
fn has(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            let mut members = part.iter();
            members.all(|(key, value)| whole.get(key).is_some_and(|found| has(found, value)))
        }
        (Value::Array(whole), Value::Array(part)) => {
            let mut both = whole.iter().zip(part);
            whole.len() == part.len() && both.all(|(whole, part)| has(whole, part))
        }
        _ => whole == part,
    }
}

fn of_record(record: &LogRecord) -> ReceivedIncident {
    let text = |key| match attribute(&record.attributes, key) {
        Some(AttributeValue::StringValue(text)) => text.clone(),
        _ => String::new(),
    };
    let number = |attributes, key| match attribute(attributes, key) {
        Some(AttributeValue::IntValue(number)) => u64::try_from(*number).unwrap_or(0),
        _ => 0,
    };
    let facts = match attribute(&record.attributes, "nodepulse.facts") {
        Some(AttributeValue::KvlistValue(facts)) => &facts.values[..],
        _ => &[],
    };
    ReceivedIncident {
        id: text("nodepulse.incident.id"),
        revision: number(&record.attributes, "nodepulse.incident.revision"),
        is_settled: attribute(&record.attributes, "nodepulse.incident.settled")
            == Some(&AttributeValue::BoolValue(true)),
        kind: text("nodepulse.kind"),
        uid: text("k8s.pod.uid"),
        kills: number(facts, "processes") + number(facts, "kills"),
    }
}

fn attribute<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a AttributeValue> {
    let found = attributes.iter().find(|one| one.key == key)?;
    found.value.as_ref()?.value.as_ref()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn logs_are_decoded_and_have_no_other_members() {
        let logs_with = |member: &str, value: Value| {
            let record = json!({"severityNumber": 9, "severityText": "INFO", member: value});
            json!({"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]})
        };
        let attributes = json!([{"key": "nodepulse.kind", "value": {"stringValue": "Boot"}}]);
        let sent = logs_with("attributes", attributes);
        assert_eq!(incidents(&sent)[0].kind, "Boot");
        let known = serde_json::to_value(logs(&sent)).unwrap();
        for (member, value) in [("severity", json!("INFO")), ("timeUnixNano", json!(7))] {
            assert!(!has(&known, &logs_with(member, value)), "{member}");
        }
    }
}
