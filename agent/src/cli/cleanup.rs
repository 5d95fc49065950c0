//! `nodepulse cleanup`: removes nodepulse's conditions and taints from Nodes.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "results and failures are printed as they happen"
)]

use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgAction, Args};
use serde_json::Value;

use super::client;
use super::refuse;
use super::settings::{self, Settings, configuration_and_runtime};
use crate::api::companion::{self, Removed};
use crate::api::{ApiError, Client, Disposition, Endpoint, Refusal};
use crate::config::key;
use crate::escape::escape;
use crate::node_status::Taint;
use crate::node_status::nodepulse_condition::NodepulseCondition;

/// For each request.
const DEADLINE: Duration = Duration::from_secs(10);

/// Nodes per page: a Node takes 10 to 40 KiB, and the size of an answer is limited.
const PAGE: u32 = 50;

/// How often an expired list is restarted.
const RESTARTS: u32 = 3;

/// Flags of `cleanup`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Clean every Node of the cluster instead of this one.
    #[arg(long, action = ArgAction::SetTrue, conflicts_with = key::node_name.spec.name)]
    all_nodes: bool,
    /// Remove only taints. With --all-nodes: report Nodes that fail, but exit 0.
    #[arg(long, action = ArgAction::SetTrue)]
    taints_only: bool,
    /// Run although a daemon is running here, which may write them again.
    #[arg(long, action = ArgAction::SetTrue)]
    force: bool,
    #[command(flatten)]
    settings: Box<Settings>,
}

/// Removes nodepulse's conditions and taints, never a Node or a Lease. The exit code is 1 if a Node
/// failed; for the taints of all Nodes only if the Nodes could not be listed, because one Node must
/// not fail an upgrade.
pub fn run(arguments: Arguments) -> ExitCode {
    let (config, runtime) = match configuration_and_runtime(*arguments.settings) {
        Ok(both) => both,
        Err(err) => return refuse(&err),
    };
    if !arguments.force
        && let Some(socket) = client::daemon(&config.state_directory)
    {
        eprintln!(
            "nodepulse: a daemon is listening on {}, and would write them again; stop it first, or \
             use --force",
            socket.display()
        );
        return ExitCode::FAILURE;
    }
    runtime.block_on(async {
        let client = match settings::client(&config, DEADLINE).await {
            Ok(Some(client)) => client,
            Ok(None) => {
                return refuse(
                    &"kubeconfig: not set, and this is not a pod with a service account; \
                      example: --kubeconfig /etc/kubernetes/admin.conf",
                );
            }
            Err(err) => return refuse(&err),
        };
        let targets = Targets {
            conditions: if arguments.taints_only {
                &[]
            } else {
                &NodepulseCondition::ALL
            },
            taints: config.nodepulse_taints.values().cloned().collect(),
        };
        let cleaned = if arguments.all_nodes {
            clean_all(&client, &targets).await
        } else {
            let removed = companion::remove(
                &client,
                &config.node_name,
                targets.conditions,
                &targets.taints,
            );
            print_result(&config.node_name, removed.await)
        };
        match cleaned {
            Cleaned::All => ExitCode::SUCCESS,
            Cleaned::NotAll if arguments.all_nodes && arguments.taints_only => ExitCode::SUCCESS,
            Cleaned::NotAll | Cleaned::NotListed => ExitCode::FAILURE,
        }
    })
}

/// What to remove.
struct Targets {
    conditions: &'static [NodepulseCondition],
    /// Configured taints, in addition to the default ones.
    taints: Vec<Taint>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cleaned {
    All,
    NotAll,
    /// The Nodes could not be listed.
    NotListed,
}

/// Cleans page by page, so that memory does not depend on the size of the cluster. Temporary
/// failures are retried once at the end.
async fn clean_all(client: &Client, targets: &Targets) -> Cleaned {
    let mut cleaned = Cleaned::All;
    let mut listed = true;
    let mut from: Option<String> = None;
    let mut restarts = 0;
    let mut retries: Vec<String> = Vec::new();
    loop {
        let mut page = match client.get(&Endpoint::nodes(PAGE, from.as_deref())).await {
            Ok(page) => page,
            Err(err) if err.refusal() == Some(Refusal::Expired) && restarts < RESTARTS => {
                restarts += 1;
                from = None;
                continue;
            }
            Err(err) => {
                print_error("list of Nodes", &err);
                listed = false;
                break;
            }
        };
        for (name, node) in nodes(&mut page) {
            if is_in_node_mode(&node) {
                println!("{name}: skipped (node mode)");
                continue;
            }
            let removed =
                companion::remove_from(client, &name, node, targets.conditions, &targets.taints);
            let removed = removed.await;
            if is_temporary(&removed) {
                retries.push(name);
            } else if print_result(&name, removed) == Cleaned::NotAll {
                cleaned = Cleaned::NotAll;
            }
        }
        let next = page.pointer("/metadata/continue").and_then(Value::as_str);
        match next.filter(|next| !next.is_empty()) {
            Some(next) => from = Some(next.to_owned()),
            None => break,
        }
    }
    for name in retries {
        let removed = companion::remove(client, &name, targets.conditions, &targets.taints);
        if print_result(&name, removed.await) == Cleaned::NotAll {
            cleaned = Cleaned::NotAll;
        }
    }
    if listed { cleaned } else { Cleaned::NotListed }
}

/// Whether an agent in node mode manages this Node, by its version. Such an agent is not part of
/// the release that is removed.
fn is_in_node_mode(node: &Value) -> bool {
    let version = node.pointer("/status/nodeInfo/kubeletVersion");
    let build = version
        .and_then(Value::as_str)
        .and_then(|version| version.split_once('+'));
    build.is_some_and(|(_, build)| build.starts_with("nodepulse."))
}

fn is_temporary(removed: &Result<Removed, ApiError>) -> bool {
    let err = removed.as_ref().err();
    err.is_some_and(|err| err.disposition() != Disposition::GiveUp)
}

/// The Nodes of one page. Invalid names are skipped, because they would change the path of a
/// request.
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

fn print_result(node: &str, removed: Result<Removed, ApiError>) -> Cleaned {
    match removed {
        Ok(Removed { conditions, taints }) => {
            println!("{node}: {conditions} conditions and {taints} taints removed");
            Cleaned::All
        }
        Err(err) if err.refusal() == Some(Refusal::NotFound) => {
            println!("{node}: the Node does not exist");
            Cleaned::All
        }
        Err(err) => {
            print_error(node, &err);
            Cleaned::NotAll
        }
    }
}

fn print_error(what: &str, err: &ApiError) {
    eprintln!("nodepulse: {what}: {}", escape(err.to_string()));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn node_mode_is_recognised_by_the_version() {
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
