//! `nodepulse cleanup --stale`.

use std::process::ExitCode;
use std::time::Duration;

use nodepulse_io::clock::Clock;
use nodepulse_kube::Client;
use nodepulse_kube::stale::{self, AgentState, StaleOutcome, StaleRule};

use super::print_error;
use crate::config::{self, Config, key};

/// Parses the value of the flag. It is an error if a running agent can be that late.
pub(super) fn after(text: &str, config: &Config) -> Result<Duration, String> {
    let after = config::parse_duration(text);
    let after = after.map_err(|why| format!("--stale: {text:?} {why}; example: --stale 30m"))?;
    let period = config.status_report_frequency;
    if after < period.saturating_mul(2) {
        return Err(format!(
            "--stale: {text:?} is less than twice {} ({}s), with which agents renew their \
             conditions; example: --stale 30m",
            key::node_status_report_frequency,
            period.as_secs()
        ));
    }
    Ok(after)
}

/// Cleans the Nodes, and prints a line for each that is changed or needs manual action.
pub(super) async fn run(client: &Client, rule: StaleRule) -> ExitCode {
    let mut failed = false;
    let (mut running, mut silent) = (0_usize, 0_usize);
    let cleaned = stale::clean(
        client,
        &rule,
        Clock::kernel(),
        |node, outcome| match outcome {
            StaleOutcome::Cleaned(removed) => println!(
                "{node}: {} conditions and {} taints removed",
                removed.conditions, removed.taints
            ),
            StaleOutcome::Left(AgentState::UnknownAge) => println!(
                "{node}: skipped (no condition of nodepulse has a heartbeat; if no agent runs there, \
             use --node-name {node})"
            ),
            StaleOutcome::Left(AgentState::KubeletSilent) => silent = silent.saturating_add(1),
            StaleOutcome::Left(_) => running = running.saturating_add(1),
            StaleOutcome::Failed(err) => {
                print_error(node, &err);
                failed = true;
            }
        },
    );
    if let Err(err) = cleaned.await {
        print_error("list of Nodes", &err);
        failed = true;
    }
    println!("{running} Nodes in use or clean, {silent} Nodes whose kubelet does not respond");
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
