//! The record of each incident in systemd's journal, also under the unit that it is about.

use nodepulse_core::incident::{Incident, JsonFacts, JsonIncident, JsonPod};
use nodepulse_kube::convert;
use nodepulse_linux::journal::{Journal, JournalRecord};

/// Priorities of syslog.
const WARNING: &str = "4";
const INFO: &str = "6";

/// Systemd's journal.
#[derive(Debug)]
pub struct Journald {
    journal: Journal,
    /// The lines of the log are in the journal, too.
    has_log: bool,
}

impl Journald {
    /// `has_log`: the lines of the log are also in the journal.
    pub const fn new(journal: Journal, has_log: bool) -> Self {
        Self { journal, has_log }
    }

    /// Sends a settled incident. Returns true if it need not be logged.
    pub(super) fn report(&self, incident: &Incident) -> bool {
        let json = JsonIncident::new(incident, convert::micro_time);
        self.journal.send(&record(&json)).is_ok() && self.has_log
    }
}

/// Each kind has an id, by which the journal can be searched and translated.
const fn message_id(facts: &JsonFacts) -> Option<&'static str> {
    Some(match facts {
        JsonFacts::OomKill(_) => "587b2e343804407fbd7f2a4acac65aa0",
        JsonFacts::UnidentifiedOomKills(_) => "0cc89c5ee5bc4b27bf5d159ce645ce16",
        JsonFacts::RefusedForks(_) => "ed8e4f871fe34356989dd0e7ad7321de",
        JsonFacts::Volume(_) => "0c76eebded134bd095f9db249a64bb86",
        JsonFacts::Boot(_) => "f320c904f34c46a1b8259044ee89864c",
        JsonFacts::Gap(_) => "6d1f2c0be5a44e0f9a3c64a07f1be6d2",
        JsonFacts::Condition(_) => "82ceb694025c4252872cf55719db300e",
        // Only a sink that did not deliver incidents has one.
        JsonFacts::Summary(_) => return None,
    })
}

fn record(json: &JsonIncident) -> JournalRecord {
    let mut record = JournalRecord::default();
    record.add("MESSAGE", &json.message);
    let priority = if json.is_improvement() { INFO } else { WARNING };
    record.add("PRIORITY", priority);
    record.add("SYSLOG_IDENTIFIER", "nodepulse");
    let object = &json.object;
    let (pod, id) = (
        object.pod.as_ref(),
        json.facts.as_ref().and_then(message_id),
    );
    let of_pod = |field: fn(&JsonPod) -> Option<&String>| pod.and_then(field).map(String::as_str);
    // Names of units have no other character that is escaped.
    let raw = |unit: &Option<String>| unit.as_ref().map(|unit| unit.replace("\\\\", "\\"));
    let (unit, user_unit) = (raw(&object.unit), raw(&object.user_unit));
    let fields = [
        ("MESSAGE_ID", id),
        ("NODEPULSE_ID", Some(json.id.as_str())),
        ("NODEPULSE_REASON", Some(json.reason.as_str())),
        ("NODEPULSE_NAMESPACE", of_pod(|pod| pod.namespace.as_ref())),
        ("NODEPULSE_POD", of_pod(|pod| pod.name.as_ref())),
        ("NODEPULSE_CONTAINER", object.container.as_deref()),
        ("NODEPULSE_CGROUP", object.cgroup.as_deref()),
        // `journalctl --unit` finds what root's programs record about a unit by this field.
        ("OBJECT_SYSTEMD_UNIT", unit.as_deref()),
        ("OBJECT_SYSTEMD_USER_UNIT", user_unit.as_deref()),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            record.add(name, value);
        }
    }
    if let Ok(whole) = serde_json::to_string(json) {
        record.add("NODEPULSE_INCIDENT", &whole);
    }
    record
}

#[cfg(test)]
mod tests {
    use nodepulse_core::incident::JsonObject;

    use super::*;

    fn json(object: JsonObject) -> JsonIncident {
        JsonIncident {
            api_version: "v1".to_owned(),
            id: "boot-7".to_owned(),
            revision: 2,
            settled: true,
            time: String::new(),
            until: None,
            object,
            reason: "OOMKilling".to_owned(),
            message: "killed\nPRIORITY=0".to_owned(),
            facts: None,
        }
    }

    #[test]
    fn a_record_is_found_by_its_unit_or_pod_and_no_text_adds_a_field() {
        let pod = JsonPod {
            namespace: Some("shop".to_owned()),
            name: Some("web-0".to_owned()),
            uid: "aa".to_owned(),
        };
        let rows = [
            (
                JsonObject {
                    unit: Some("hog.service".to_owned()),
                    ..JsonObject::default()
                },
                "OBJECT_SYSTEMD_UNIT=hog.service\n",
            ),
            (
                JsonObject {
                    unit: Some("user@7.service".to_owned()),
                    user_unit: Some("a\\\\x2db.service".to_owned()),
                    ..JsonObject::default()
                },
                "OBJECT_SYSTEMD_UNIT=user@7.service\nOBJECT_SYSTEMD_USER_UNIT=a\\x2db.service\n",
            ),
            (
                JsonObject {
                    pod: Some(pod),
                    container: Some("web".to_owned()),
                    ..JsonObject::default()
                },
                "NODEPULSE_NAMESPACE=shop\nNODEPULSE_POD=web-0\nNODEPULSE_CONTAINER=web\n",
            ),
        ];
        for (object, fields) in rows {
            let record = record(&json(object));
            let text = String::from_utf8_lossy(record.as_bytes());
            assert!(text.contains(&format!("\n{fields}")), "{text}");
            let begin = "MESSAGE\n\u{11}\0\0\0\0\0\0\0killed\nPRIORITY=0\nPRIORITY=4\n";
            assert!(text.starts_with(begin), "{text}");
            assert!(text.contains("\nNODEPULSE_ID=boot-7\n"), "{text}");
            assert!(text.contains("\nNODEPULSE_INCIDENT={"), "{text}");
        }
    }
}
