//! The Nodes of the cluster, page by page, so that memory does not depend on the size of the
//! cluster.

#![forbid(unsafe_code)]

use serde_json::Value;

use super::{ApiError, Client, Endpoint, Refusal};

/// Nodes per page: a Node takes 10 to 40 KiB, and the size of an answer is limited.
const PAGE: u32 = 50;

/// Maximum number of restarts of a list that has expired.
const RESTARTS: u32 = 3;

#[derive(Debug)]
pub struct NodeList<'a> {
    client: &'a Client,
    labels: Option<&'a str>,
    next: Next,
    restarts: u32,
}

#[derive(Debug)]
enum Next {
    First,
    From(String),
    End,
}

impl<'a> NodeList<'a> {
    /// Starts with the first page. `labels` is a label selector.
    pub const fn new(client: &'a Client, labels: Option<&'a str>) -> Self {
        Self {
            client,
            labels,
            next: Next::First,
            restarts: 0,
        }
    }

    /// Returns the names and Nodes of the next page; `None` after the last. A list that expires
    /// meanwhile is read from its beginning. After an error there is no further page.
    pub async fn next(&mut self) -> Result<Option<Vec<(String, Value)>>, ApiError> {
        loop {
            let from = match std::mem::replace(&mut self.next, Next::End) {
                Next::First => None,
                Next::From(from) => Some(from),
                Next::End => return Ok(None),
            };
            let place = Endpoint::nodes(PAGE, self.labels, from.as_deref());
            let mut page = match self.client.get(&place).await {
                Ok(page) => page,
                Err(err) if err.refusal() == Some(Refusal::Expired) && self.restarts < RESTARTS => {
                    self.restarts = self.restarts.saturating_add(1);
                    self.next = Next::First;
                    continue;
                }
                Err(err) => return Err(err),
            };
            let more = page.pointer("/metadata/continue").and_then(Value::as_str);
            if let Some(more) = more.filter(|more| !more.is_empty()) {
                self.next = Next::From(more.to_owned());
            }
            return Ok(Some(nodes(&mut page).collect()));
        }
    }
}

/// Returns the Nodes of one page. Invalid names are skipped, because they would change the path of
/// a request.
fn nodes(page: &mut Value) -> impl Iterator<Item = (String, Value)> {
    let items = page.get_mut("items").and_then(Value::as_array_mut);
    let is_allowed =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    items.into_iter().flatten().filter_map(move |node| {
        let name = node.pointer("/metadata/name")?.as_str()?.to_owned();
        let is_valid = name.chars().all(is_allowed);
        is_valid.then(|| (name, node.take()))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn invalid_node_names_are_skipped() {
        let node = |name: &str| json!({ "metadata": { "name": name } });
        let odd = ["../x", "a/b", "a?b", "A", "a b"].map(node);
        let mut items = vec![node("worker-1"), json!({}), node("a.b")];
        items.extend(odd);
        let names = |mut page: Value| -> Vec<String> { nodes(&mut page).map(|(n, _)| n).collect() };
        assert_eq!(names(json!({ "items": items })), ["worker-1", "a.b"]);
        assert_eq!(names(json!({})), [""; 0]);
    }
}
