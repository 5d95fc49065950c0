//! `nodepulse cleanup`: removes nodepulse's conditions and taints from Nodes.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "results and failures are printed as they happen"
)]

use std::process::ExitCode;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{ArgAction, Args};
use futures_util::{StreamExt as _, stream};
use nodepulse_core::escape::escape;
use nodepulse_core::node_status::Taint;
use nodepulse_core::node_status::nodepulse_condition::NodepulseCondition;
use nodepulse_kube::companion::{self, Removed};
use nodepulse_kube::node_list::NodeList;
use nodepulse_kube::stale::{StaleRule, is_in_node_mode};
use nodepulse_kube::{ApiError, Client, Disposition, Refusal};

use super::client;
use super::refuse;
use super::settings::{self, Settings, configuration_and_runtime};
use crate::config::{KeySpec, key};

mod stale;

/// Timeout for each request.
const DEADLINE: Duration = Duration::from_secs(10);

/// Keys whose flags apply to `cleanup`.
pub const USED: &[&KeySpec] = &[
    &key::kubeconfig.spec,
    &key::node_name.spec,
    &key::state_directory.spec,
];

/// Flags of `cleanup`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Clean every Node of the cluster instead of this one.
    #[arg(long, action = ArgAction::SetTrue, conflicts_with = key::node_name.spec.name)]
    all_nodes: bool,
    /// With --all-nodes: only Nodes with these labels. Example: kubernetes.io/os=linux,pool=gpu.
    #[arg(
        long,
        value_name = "LABELS",
        requires = "all_nodes",
        // Empty, it would select every Node.
        value_parser = NonEmptyStringValueParser::new(),
    )]
    selector: Option<String>,
    /// Remove only taints. With --all-nodes: report Nodes that fail, but exit 0.
    #[arg(long, action = ArgAction::SetTrue)]
    taints_only: bool,
    /// Clean every Node of the cluster whose agent does not exist any more.
    ///
    /// It has not renewed its conditions for this time, although the kubelet is alive. Example:
    /// 30m.
    #[arg(
        long,
        value_name = "DURATION",
        conflicts_with_all = ["all_nodes", "taints_only", "force", key::node_name.spec.name],
    )]
    stale: Option<String>,
    /// Run although a daemon is running here, which may write them again.
    #[arg(long, action = ArgAction::SetTrue)]
    force: bool,
    #[command(flatten)]
    settings: Box<Settings>,
}

/// Removes nodepulse's conditions and taints, never a Node or a Lease. The exit code is 1 if a Node
/// failed; for all Nodes only if listing failed: one Node must not fail an upgrade.
pub fn run(arguments: Arguments) -> ExitCode {
    let (config, runtime) = match configuration_and_runtime(*arguments.settings) {
        Ok(both) => both,
        Err(err) => return refuse(&err),
    };
    let stale = match arguments
        .stale
        .as_deref()
        .map(|text| stale::after(text, &config))
    {
        Some(Ok(after)) => Some(after),
        Some(Err(why)) => return refuse(&why),
        None => None,
    };
    if !arguments.force
        && stale.is_none()
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
                      example: --kubeconfig ~/.kube/config",
                );
            }
            Err(err) => return err.report(),
        };
        if let Some(after) = stale {
            let taints = config.nodepulse_taints.values().cloned().collect();
            return stale::run(&client, StaleRule { after, taints }).await;
        }
        let targets = Targets {
            conditions: if arguments.taints_only {
                &[]
            } else {
                &NodepulseCondition::ALL
            },
            taints: config.nodepulse_taints.values().cloned().collect(),
        };
        let cleaned = if arguments.all_nodes {
            clean_all(&client, arguments.selector.as_deref(), &targets).await
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

/// Nodes that are cleaned at the same time: the chart's Job has four minutes for all of them.
const AT_ONCE: usize = 8;

struct Targets {
    conditions: &'static [NodepulseCondition],
    /// Configured taints, in addition to the default ones.
    taints: Vec<Taint>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cleaned {
    All,
    NotAll,
    NotListed,
}

/// Cleans page by page. An agent in node mode is skipped, because it is not part of the release
/// that is removed. Temporary failures are retried once at the end.
async fn clean_all(client: &Client, labels: Option<&str>, targets: &Targets) -> Cleaned {
    let mut cleaned = Cleaned::All;
    let mut listed = true;
    let mut retries: Vec<String> = Vec::new();
    let mut list = NodeList::new(client, labels);
    loop {
        let page = match list.next().await {
            Ok(Some(page)) => page,
            Ok(None) => break,
            Err(err) => {
                print_error("list of Nodes", &err);
                listed = false;
                break;
            }
        };
        let removals = page.into_iter().filter_map(|(name, node)| {
            if is_in_node_mode(&node) {
                println!("{name}: skipped (node mode)");
                return None;
            }
            let Targets { conditions, taints } = targets;
            Some(async move {
                let removed = companion::remove_from(client, &name, node, conditions, taints);
                let removed = removed.await;
                (name, removed)
            })
        });
        let mut removals = stream::iter(removals).buffer_unordered(AT_ONCE);
        while let Some((name, removed)) = removals.next().await {
            if is_temporary(&removed) {
                retries.push(name);
            } else if print_result(&name, removed) == Cleaned::NotAll {
                cleaned = Cleaned::NotAll;
            }
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

fn is_temporary(removed: &Result<Removed, ApiError>) -> bool {
    let err = removed.as_ref().err();
    err.is_some_and(|err| err.disposition() != Disposition::GiveUp)
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
}
