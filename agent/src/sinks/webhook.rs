//! The form for webhooks: one `CloudEvent` 1.0 per revision, as JSON.
//! <https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md>

use nodepulse_core::incident::JsonIncident;
use serde::Serialize;

use super::receiver::Body;

/// Webhooks get `CloudEvents` from this source: the node.
#[derive(Debug)]
pub struct Webhook {
    pub source: String,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
struct CloudEvent<'a> {
    specversion: &'static str,
    /// With the revision, so that a receiver can discard what it has. The id of the incident is in
    /// `incident`.
    id: String,
    source: &'a str,
    r#type: String,
    time: &'a str,
    subject: String,
    incident: &'a str,
    datacontenttype: &'static str,
    data: &'a JsonIncident,
}

impl Webhook {
    pub fn body(&self, incident: &JsonIncident) -> serde_json::Result<Body> {
        let bytes = serde_json::to_vec(&self.event(incident))?;
        Ok(Body {
            content_type: "application/cloudevents+json",
            content_encoding: None,
            bytes: bytes.into(),
        })
    }

    fn event<'a>(&'a self, incident: &'a JsonIncident) -> CloudEvent<'a> {
        CloudEvent {
            specversion: "1.0",
            id: format!("{}.{}", incident.id, incident.revision),
            source: &self.source,
            r#type: format!("{TYPE}.{}", incident.kind().unwrap_or("Unknown")),
            time: &incident.time,
            subject: incident.object_name(),
            incident: &incident.id,
            datacontenttype: "application/json",
            data: incident,
        }
    }
}

/// The beginning of the types: the reversed domain.
const TYPE: &str = "dev.nodepulse.incident";
