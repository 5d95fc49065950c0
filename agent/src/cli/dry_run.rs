//! Prints the requests of a dry run: as JSON, or on a terminal as sentences.

use std::io::{self, IsTerminal as _, Write as _};

use nodepulse_core::escape::{escape, escape_json, escape_to};
use nodepulse_kube::dry_run::RequestLog;
use serde_json::Value;

/// More than any message has.
const LONGEST: usize = 4096;

/// Returns the printer of requests. Must be called before the sandbox is entered, in which a
/// terminal cannot be distinguished.
pub(super) fn printer() -> RequestLog {
    let is_terminal = io::stdout().is_terminal();
    Box::new(move |method, path, body| print(is_terminal, method, path, body))
}

fn print(is_terminal: bool, method: &str, path: &str, body: &[u8]) {
    let sentences = is_terminal.then(|| sentences(path, body)).flatten();
    let text = sentences.unwrap_or_else(|| {
        // The body is JSON, but contains names of others.
        let body = escape_json(body).unwrap_or_else(|| escape(body));
        format!("{method} {}\n{body}\n", escape(path))
    });
    let mut out = io::stdout().lock();
    // The reader may have closed the pipe.
    let _closed: io::Result<()> = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Returns a line for each condition, or the Event; `None` for another request.
fn sentences(path: &str, body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let text = |at: &str| {
        let text = body.pointer(at)?.as_str()?;
        Some(escape_to(text, LONGEST))
    };
    if let Some(message) = text("/message") {
        let (Some(kind), Some(name)) = (text("/involvedObject/kind"), text("/involvedObject/name"))
        else {
            return Some(format!("The Event changes: {message}\n"));
        };
        let reason = text("/reason").unwrap_or_default();
        let namespace = text("/involvedObject/namespace");
        let namespace = namespace.map_or_else(String::new, |namespace| format!("{namespace}/"));
        return Some(format!(
            "Event {reason} on the {kind} {namespace}{name}: {message}\n"
        ));
    }
    let conditions = body.pointer("/status/conditions")?.as_array()?;
    let status = body.get("status")?.as_object()?;
    let order = status.contains_key("$setElementOrder/conditions");
    if 1 + usize::from(order) < status.len() {
        return None;
    }
    let node = escape(
        path.strip_prefix("/api/v1/nodes/")?
            .strip_suffix("/status")?,
    );
    let line = |condition: &Value| {
        let text = |key: &str| {
            let text = condition.get(key).and_then(Value::as_str);
            escape_to(text.unwrap_or_default(), LONGEST)
        };
        let [type_, status, message] = ["type", "status", "message"].map(text);
        if condition.get("$patch").is_some() {
            return format!("{type_} is removed from the Node {node}\n");
        }
        format!("{type_} of the Node {node} is {status}: {message}\n")
    };
    Some(conditions.iter().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_sentence_on_a_terminal() {
        //  path, body, text
        #[rustfmt::skip]
        let rows = [
            ("/api/v1/namespaces/shop/events",
             r#"{"involvedObject":{"kind":"Pod","namespace":"shop","name":"cart"},"reason":"OOMKilled","message":"killed\u001b[1m"}"#,
             Some("Event OOMKilled on the Pod shop/cart: killed\\u{1b}[1m\n")),
            ("/api/v1/namespaces/default/events",
             r#"{"involvedObject":{"kind":"Node","name":"n"},"reason":"SystemOOM","message":"out"}"#,
             Some("Event SystemOOM on the Node n: out\n")),
            ("/api/v1/namespaces/shop/events/cart.1", r#"{"count":2,"message":"killed, details"}"#,
             Some("The Event changes: killed, details\n")),
            ("/api/v1/namespaces/shop/events/cart.1", r#"{"count":2}"#, None),
            ("/api/v1/nodes/n/status",
             r#"{"status":{"conditions":[{"type":"PIDsLow","status":"True","message":"few"},{"type":"MemoryLow","status":"False"}]}}"#,
             Some("PIDsLow of the Node n is True: few\nMemoryLow of the Node n is False: \n")),
            ("/api/v1/nodes/n/status", r#"{"status":{"conditions":[{"type":"PIDsLow","$patch":"delete"}]}}"#,
             Some("PIDsLow is removed from the Node n\n")),
            ("/api/v1/nodes/n/status", r#"{"status":{"conditions":[],"addresses":[]}}"#, None),
            ("/api/v1/nodes/n/status", r#"{"status":{}}"#, None),
            ("/api/v1/nodes/n/status", "no JSON", None),
        ];
        for (path, body, expected) in rows {
            assert_eq!(
                sentences(path, body.as_bytes()).as_deref(),
                expected,
                "{body}"
            );
        }
    }
}
