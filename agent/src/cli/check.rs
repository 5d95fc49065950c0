//! `nodepulse check`: what this machine and the API server provide, with a remedy for each fault.
//!
//! Programs are attached and detached again, and triggers are set and removed. A missing capability
//! is reported.

use std::process::ExitCode;

use clap::Args;

use super::settings::{Settings, configuration_and_runtime};
use super::terminal::{Style, print};
use super::{Output, refuse};
use crate::config::{KeySpec, key};

mod cluster;
mod history;
mod host;
mod kernel;
mod report;
mod without_kubelet;

use report::Verdict;

/// Exit code if an item is missing that the configured mode requires.
const MISSING: u8 = 3;

/// Keys whose flags apply to `check`.
pub const USED: &[&KeySpec] = &[
    &key::mode.spec,
    &key::kubeconfig.spec,
    &key::bootstrap_kubeconfig.spec,
    &key::cert_dir.spec,
    &key::node_name.spec,
    &key::register_node.spec,
    &key::register_with_taints.spec,
    &key::allow_ready_without_runtime.spec,
    &key::runtime_endpoint.spec,
    &key::eviction_hard.spec,
    &key::system_reserved.spec,
    &key::kube_reserved.spec,
    &key::reserved_system_cpus.spec,
    &key::cgroup_root.spec,
    &key::cgroup_driver.spec,
    &key::root_directory.spec,
    &key::kernel_tier.spec,
    &key::state_directory.spec,
    &key::history_directory.spec,
];

/// Flags of `check`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
    #[command(flatten)]
    settings: Box<Settings>,
}

/// Checks all items and prints them. The exit code is 3 if a required item is missing.
pub fn run(arguments: Arguments) -> ExitCode {
    let (config, runtime) = match configuration_and_runtime(*arguments.settings) {
        Ok(both) => both,
        Err(err) => return refuse(&err),
    };
    let mut items = kernel::items(&config);
    items.extend(host::items(&config));
    items.push(history::recording(&config).named("incidents"));
    let (item, imagefs) = runtime.block_on(host::container_runtime(&config));
    items.push(item.named("container runtime (CRI)"));
    let item = runtime.block_on(host::imagefs(&config, imagefs));
    items.push(item.named("imagefs"));
    items.extend(without_kubelet::items(&config));
    let of_cluster = runtime.block_on(cluster::items(&config));
    // A file system that does not answer must not delay the output.
    runtime.shutdown_background();
    match of_cluster {
        Ok(of_cluster) => items.extend(of_cluster),
        Err(err) => return refuse(&err),
    }
    let text = match arguments.output {
        Output::Text => report::text(&items, Style::of_stdout()),
        Output::Json => format!("{}\n", report::json(&items)),
    };
    let printed = print(&text);
    if items.iter().any(|item| item.verdict == Verdict::Missing) {
        return ExitCode::from(MISSING);
    }
    printed
}
