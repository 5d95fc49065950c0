//! `nodepulse cleanup`: takes what is ours off Nodes, so that nothing stays when we go.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "what was done and what failed is told as it happens"
)]

use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgAction, Args};
use serde_json::Value;

use super::refuse;
use super::settings::{self, Settings, for_once};
use crate::api::own::{self, Removed};
use crate::api::{ApiError, Client, Place, Refusal};
use crate::host::escape;
use crate::node_status::Taint;
use crate::node_status::own::OwnCondition;

/// For each request.
const DEADLINE: Duration = Duration::from_secs(10);

/// Nodes in one answer: a Node is 10 to 40 KiB, and what a client reads at once is bounded.
const PAGE: u32 = 50;

/// A list that expires is begun again so often; what was cleaned stays so.
const RESTARTS: u32 = 3;

/// Flags of `cleanup`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Clean every Node of the cluster instead of this one.
    #[arg(long, action = ArgAction::SetTrue, conflicts_with = "node_name")]
    all_nodes: bool,
    /// Remove taints alone; the conditions stay.
    #[arg(long, action = ArgAction::SetTrue)]
    taints_only: bool,
    #[command(flatten)]
    settings: Box<Settings>,
}

/// Removes our conditions and taints, never a Node or a Lease. Exit code 1 where one failed.
#[must_use]
pub fn run(arguments: Arguments) -> ExitCode {
    let (config, runtime) = match for_once(*arguments.settings) {
        Ok(both) => both,
        Err(err) => return refuse(&err),
    };
    runtime.block_on(async {
        let client = match settings::client(&config, DEADLINE).await {
            Ok(Some(client)) => client,
            Ok(None) => {
                return refuse(
                    &"kubeconfig: none is given, and this is no pod with a service account; \
                      example: --kubeconfig /etc/kubernetes/admin.conf",
                );
            }
            Err(err) => return refuse(&err),
        };
        let ours = Ours {
            conditions: if arguments.taints_only {
                &[]
            } else {
                &OwnCondition::ALL
            },
            taints: config.own_taints.values().cloned().collect(),
        };
        let cleaned = if arguments.all_nodes {
            all(&client, &ours).await
        } else {
            one(&client, &config.node_name, &ours).await
        };
        match cleaned {
            Cleaned::All => ExitCode::SUCCESS,
            Cleaned::NotAll => ExitCode::FAILURE,
        }
    })
}

/// What is to go.
struct Ours {
    conditions: &'static [OwnCondition],
    /// Those that the configuration names beside the default ones.
    taints: Vec<Taint>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cleaned {
    All,
    NotAll,
}

/// Page after page, so that a cluster of any size is never held whole.
async fn all(client: &Client, ours: &Ours) -> Cleaned {
    let mut cleaned = Cleaned::All;
    let mut from: Option<String> = None;
    let mut restarts = 0;
    loop {
        let page = match client.get(&Place::nodes(PAGE, from.as_deref())).await {
            Ok(page) => page,
            Err(err) if err.refusal() == Some(Refusal::Expired) && restarts < RESTARTS => {
                restarts += 1;
                from = None;
                continue;
            }
            Err(err) => {
                failed("the list of Nodes", &err);
                return Cleaned::NotAll;
            }
        };
        for name in names(&page) {
            if one(client, &name, ours).await == Cleaned::NotAll {
                cleaned = Cleaned::NotAll;
            }
        }
        let next = page.pointer("/metadata/continue").and_then(Value::as_str);
        match next.filter(|next| !next.is_empty()) {
            Some(next) => from = Some(next.to_owned()),
            None => return cleaned,
        }
    }
}

/// The Nodes of one answer. A name that no Node can have would lead elsewhere in a path.
fn names(page: &Value) -> Vec<String> {
    let items = page.get("items").and_then(Value::as_array);
    let name = |node: &Value| node.pointer("/metadata/name")?.as_str().map(str::to_owned);
    let names = items.into_iter().flatten().filter_map(name);
    let can_be = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    names.filter(|name| name.chars().all(can_be)).collect()
}

async fn one(client: &Client, node: &str, ours: &Ours) -> Cleaned {
    match own::remove(client, node, ours.conditions, &ours.taints).await {
        Ok(Removed { conditions, taints }) => {
            println!("{node}: {conditions} conditions and {taints} taints removed");
            Cleaned::All
        }
        Err(err) if err.refusal() == Some(Refusal::NotFound) => {
            println!("{node}: there is no such Node, so nothing is left on it");
            Cleaned::All
        }
        Err(err) => {
            failed(node, &err);
            Cleaned::NotAll
        }
    }
}

fn failed(what: &str, err: &ApiError) {
    eprintln!("nodepulse: {what}: {}", escape(err.to_string()));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_can_be_a_node_is_cleaned() {
        let node = |name: &str| json!({ "metadata": { "name": name } });
        let odd = ["../x", "a/b", "a?b", "A", "a b"].map(node);
        let mut items = vec![node("worker-1"), json!({}), node("a.b")];
        items.extend(odd);
        assert_eq!(names(&json!({ "items": items })), ["worker-1", "a.b"]);
        assert_eq!(names(&json!({})), [""; 0]);
    }
}
