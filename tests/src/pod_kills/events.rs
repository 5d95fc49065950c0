//! Reads from Events which kills they report, and when details are added to them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::api_server::ApiServer;

/// Returns how long after an Event was accepted the patch with its details was, for each that has
/// one.
pub fn details_after(api: &ApiServer) -> Vec<Duration> {
    let writes = api.requests_where(|request| request.path.contains("/events"));
    let name =
        |body: &Option<Value>, at: &str| Some(body.as_ref()?.pointer(at)?.as_str()?.to_owned());
    let mut accepted = BTreeMap::new();
    let mut after = Vec::new();
    for write in writes {
        let Some(answered) = write.answered_at else {
            continue;
        };
        if let Some(name) = name(&write.body, "/metadata/name") {
            accepted.insert(name, answered);
            continue;
        }
        let event = write
            .path
            .rsplit('/')
            .next()
            .and_then(|name| accepted.get(name));
        let details = name(&write.body, "/message").filter(|message| is_detailed(message));
        if let (Some(event), Some(_)) = (event, details) {
            after.push(answered.saturating_sub(*event));
        }
    }
    after
}

/// Prefixes of the memory that remains. The second: a victim has not ended yet.
pub const IN_USE: [&str; 2] = [
    "In use after the kill: ",
    "In use while killed processes still release their memory: ",
];

pub fn is_detailed(message: &str) -> bool {
    let starts = IN_USE
        .iter()
        .chain(&["The pods that use most memory ", "Most memory was used by "]);
    starts.into_iter().any(|start| message.contains(start))
}

/// Returns the number of kills that an Event reports: each if combined with others, else one per
/// group.
pub fn kills_in(event: &Value) -> u64 {
    let message = event["message"].as_str().unwrap_or_default();
    let group = message
        .split_once(" processes together")
        .and_then(|(before, _)| before.rsplit([' ', '(']).next()?.parse::<u64>().ok());
    let count = event["count"].as_u64().unwrap_or_default();
    if message.starts_with("(combined") {
        return count;
    }
    group.map_or(count, |group| count - 1 + group)
}
