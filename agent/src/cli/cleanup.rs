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

use super::client;
use super::refuse;
use super::settings::{self, Settings, for_once};
use crate::api::companion::{self, Removed};
use crate::api::{ApiError, Client, Disposition, Endpoint, Refusal};
use crate::escape::escape;
use crate::node_status::Taint;
use crate::node_status::nodepulse_condition::NodepulseCondition;

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
    /// Remove taints alone; the conditions stay. With --all-nodes, a Node that fails is told and is no
    /// failure.
    #[arg(long, action = ArgAction::SetTrue)]
    taints_only: bool,
    /// Clean although a daemon runs here, which may write again what is removed.
    #[arg(long, action = ArgAction::SetTrue)]
    force: bool,
    #[command(flatten)]
    settings: Box<Settings>,
}

/// Removes our conditions and taints, never a Node or a Lease. Exit code 1 where one failed; for the
/// taints of all Nodes only where the Nodes could not be listed, since an upgrade waits for that and
/// is not to fail with a Node.
#[must_use]
pub fn run(arguments: Arguments) -> ExitCode {
    let (config, runtime) = match for_once(*arguments.settings) {
        Ok(both) => both,
        Err(err) => return refuse(&err),
    };
    if !arguments.force
        && let Some(socket) = client::daemon(&config.state_directory)
    {
        eprintln!(
            "nodepulse: a daemon answers at {}, and writes again what is removed from its Node; \
             stop it first, or use --force",
            socket.display()
        );
        return ExitCode::FAILURE;
    }
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
                &NodepulseCondition::ALL
            },
            taints: config.nodepulse_taints.values().cloned().collect(),
        };
        let cleaned = if arguments.all_nodes {
            all(&client, &ours).await
        } else {
            let removed =
                companion::remove(&client, &config.node_name, ours.conditions, &ours.taints);
            told(&config.node_name, removed.await)
        };
        match cleaned {
            Cleaned::All => ExitCode::SUCCESS,
            Cleaned::NotAll if arguments.all_nodes && arguments.taints_only => ExitCode::SUCCESS,
            Cleaned::NotAll | Cleaned::NotListed => ExitCode::FAILURE,
        }
    })
}

/// What is to go.
struct Ours {
    conditions: &'static [NodepulseCondition],
    /// Those that the configuration names beside the default ones.
    taints: Vec<Taint>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cleaned {
    All,
    NotAll,
    /// It is not known of which.
    NotListed,
}

/// Page after page, so that a cluster of any size is never held whole. What may have failed by
/// chance is tried once more at the end.
async fn all(client: &Client, ours: &Ours) -> Cleaned {
    let mut cleaned = Cleaned::All;
    let mut listed = true;
    let mut from: Option<String> = None;
    let mut restarts = 0;
    let mut again: Vec<String> = Vec::new();
    loop {
        let mut page = match client.get(&Endpoint::nodes(PAGE, from.as_deref())).await {
            Ok(page) => page,
            Err(err) if err.refusal() == Some(Refusal::Expired) && restarts < RESTARTS => {
                restarts += 1;
                from = None;
                continue;
            }
            Err(err) => {
                failed("the list of Nodes", &err);
                listed = false;
                break;
            }
        };
        for (name, node) in nodes(&mut page) {
            if is_in_node_mode(&node) {
                println!("{name}: in node mode, left alone");
                continue;
            }
            let removed =
                companion::remove_from(client, &name, node, ours.conditions, &ours.taints);
            let removed = removed.await;
            if may_mend(&removed) {
                again.push(name);
            } else if told(&name, removed) == Cleaned::NotAll {
                cleaned = Cleaned::NotAll;
            }
        }
        let next = page.pointer("/metadata/continue").and_then(Value::as_str);
        match next.filter(|next| !next.is_empty()) {
            Some(next) => from = Some(next.to_owned()),
            None => break,
        }
    }
    for name in again {
        let removed = companion::remove(client, &name, ours.conditions, &ours.taints);
        if told(&name, removed.await) == Cleaned::NotAll {
            cleaned = Cleaned::NotAll;
        }
    }
    if listed { cleaned } else { Cleaned::NotListed }
}

/// Whether the agent keeps the whole of this Node, as its version says. Then its conditions are no
/// release's: the agent that writes them stays when that one is removed.
fn is_in_node_mode(node: &Value) -> bool {
    let version = node.pointer("/status/nodeInfo/kubeletVersion");
    let build = version
        .and_then(Value::as_str)
        .and_then(|version| version.split_once('+'));
    build.is_some_and(|(_, build)| build.starts_with("nodepulse."))
}

fn may_mend(removed: &Result<Removed, ApiError>) -> bool {
    let err = removed.as_ref().err();
    err.is_some_and(|err| err.disposition() != Disposition::GiveUp)
}

/// The Nodes of one answer. A name that no Node can have would lead elsewhere in a path.
fn nodes(page: &mut Value) -> impl Iterator<Item = (String, Value)> {
    let items = page.get_mut("items").and_then(Value::as_array_mut);
    let can_be = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    items.into_iter().flatten().filter_map(move |node| {
        let name = node.pointer("/metadata/name")?.as_str()?.to_owned();
        let is_one = name.chars().all(can_be);
        is_one.then(|| (name, node.take()))
    })
}

fn told(node: &str, removed: Result<Removed, ApiError>) -> Cleaned {
    match removed {
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
    fn a_node_in_node_mode_is_known_by_its_version() {
        let node =
            |version: &str| json!({ "status": { "nodeInfo": { "kubeletVersion": version } } });
        let rows = [
            ("v1.33.0+nodepulse.0.1.0", true),
            ("v1.33.0-rc.1+nodepulse.0.1.0-dev", true),
            ("v1.33.0", false),
            ("v1.33.0+k3s1", false),
            ("v1.33.0+x.nodepulse.1", false),
            ("nodepulse.1", false),
        ];
        for (version, expected) in rows {
            assert_eq!(is_in_node_mode(&node(version)), expected, "{version}");
        }
        assert!(!is_in_node_mode(&json!({})), "no version");
    }

    #[test]
    fn only_what_can_be_a_node_is_cleaned() {
        let node = |name: &str| json!({ "metadata": { "name": name } });
        let odd = ["../x", "a/b", "a?b", "A", "a b"].map(node);
        let mut items = vec![node("worker-1"), json!({}), node("a.b")];
        items.extend(odd);
        let names = |mut page: Value| -> Vec<String> { nodes(&mut page).map(|(n, _)| n).collect() };
        assert_eq!(names(json!({ "items": items })), ["worker-1", "a.b"]);
        assert_eq!(names(json!({})), [""; 0]);
    }
}
