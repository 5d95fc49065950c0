//! `nodepulse status` and `nodepulse explain`: the node status of the daemon, and its causes.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use nodepulse_core::explanation::{ExplainedCondition, Explanation};
use nodepulse_core::node_status::nodepulse_condition::NodepulseCondition;
use nodepulse_core::node_status::setters;
use nodepulse_core::reading::Resource;
use nodepulse_io::clock::Clock;
use nodepulse_kube::convert;
use serde_json::{Value, json};
use tokio::runtime::Builder;

use super::client::{self, DaemonError};
use super::settings::{configuration, one_of, without_files};
use super::terminal::{Style, print};
use super::{Output, explanation, fail, print_error, refuse, text};
use crate::app::Agent;
use crate::config::{Config, Overrides, key};

/// Flags that locate the daemon.
#[derive(Debug, Args)]
pub struct DaemonLocation {
    /// Configuration file [default: /etc/nodepulse/config.yaml, if it exists].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of the daemon's control socket [default: /run/nodepulse].
    #[arg(long = key::state_directory.spec.flag_name(), value_name = "DIR")]
    state_directory: Option<String>,
}

/// Flags of `status`.
#[derive(Debug, Args)]
pub struct StatusArguments {
    #[command(flatten)]
    location: DaemonLocation,
    /// Mode to assume if no daemon is running.
    #[arg(long = key::mode.spec.flag_name(), value_name = "MODE",
          value_parser = one_of(&key::mode.spec))]
    mode: Option<String>,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
    output: StatusFormat,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum StatusFormat {
    Yaml,
    Json,
}

/// Flags of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArguments {
    /// Type of a condition [default: all].
    #[arg(value_name = "TYPE", value_parser = PossibleValuesParser::new(condition_types()))]
    type_: Option<String>,
    #[command(flatten)]
    location: DaemonLocation,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

fn condition_types() -> Vec<&'static str> {
    let companion = NodepulseCondition::ALL.map(NodepulseCondition::type_);
    let node = Resource::ALL
        .into_iter()
        .filter_map(setters::condition_type);
    let node = node.filter(|type_| !companion.contains(type_));
    companion
        .into_iter()
        .chain(node)
        .chain([setters::ready::TYPE])
        .collect()
}

impl DaemonLocation {
    fn overrides(self) -> Overrides {
        Overrides {
            config: self.config,
            state_directory: self.state_directory,
            ..Overrides::default()
        }
    }

    /// See [`located`].
    pub(super) fn state_directory(self) -> Result<PathBuf, String> {
        located(&self.overrides()).map(|(directory, _)| directory)
    }
}

/// Prints the node status of the running daemon, or as computed now.
pub fn status(arguments: StatusArguments) -> ExitCode {
    let overrides = Overrides {
        mode: arguments.mode,
        ..arguments.location.overrides()
    };
    let (state_directory, config) = match located(&overrides) {
        Ok(located) => located,
        Err(reason) => return refuse(&reason),
    };
    let status = match client::get(&state_directory, "/v1/status") {
        Ok(status) => status,
        Err(DaemonError::NotRunning) => match config.map(computed) {
            Ok(Ok(status)) => status,
            Ok(Err(err)) => return fail(&err),
            Err(reason) => return refuse(&reason),
        },
        Err(DaemonError::Failed(reason)) => return fail(&reason),
    };
    print(&match arguments.output {
        StatusFormat::Yaml => text::yaml(&status),
        StatusFormat::Json => format!("{status:#}\n"),
    })
}

/// Returns the directory of `nodepulse history`; `None` if no history is kept.
pub(super) fn history_directory(overrides: &Overrides) -> Result<Option<PathBuf>, String> {
    let config = configuration(overrides).map(|loaded| loaded.config);
    let config = match config {
        Err(reason) if overrides.history_directory.is_none() && overrides.config.is_some() => {
            return Err(reason);
        }
        // As in `located`.
        Err(reason) => match without_files(overrides) {
            Ok(config) => {
                print_error(&format!("nodepulse: {reason}; using the default directory"));
                config
            }
            Err(_) => return Err(reason),
        },
        Ok(config) => config,
    };
    Ok(config.history_directory)
}

/// Returns the state directory of the daemon, and the configuration. A daemon runs with the last
/// valid one, so a fault in the file does not stop a command that only queries the daemon. Returns
/// `Err` for a fault in a flag or a variable.
fn located(overrides: &Overrides) -> Result<(PathBuf, Result<Config, String>), String> {
    let config = configuration(overrides).map(|loaded| loaded.config);
    let directory = match &config {
        Ok(config) => config.state_directory.clone(),
        Err(reason) => {
            let config = without_files(overrides).map_err(|_| reason.clone())?;
            config.state_directory
        }
    };
    Ok((directory, config))
}

fn computed(config: Config) -> io::Result<Value> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let status = runtime.block_on(Agent::status(config, Clock::kernel()));
    // A hanging file system call must not delay the output.
    runtime.shutdown_background();
    Ok(convert::status_value(&status))
}

pub fn explain(arguments: ExplainArguments) -> ExitCode {
    let (state_directory, config) = match located(&arguments.location.overrides()) {
        Ok(located) => located,
        Err(reason) => return refuse(&reason),
    };
    let asked = client::get::<Explanation>(&state_directory, "/v1/explain");
    let mut explanation = match asked {
        Ok(explanation) => explanation,
        Err(err) => {
            return match config {
                Err(reason) if matches!(err, DaemonError::NotRunning) => refuse(&reason),
                _ => fail(&client::reason(err, &state_directory, "explain")),
            };
        }
    };
    if let Some(type_) = arguments.type_
        && let Err(present) = keep_only(&mut explanation.conditions, &type_)
    {
        return refuse(&format!(
            "TYPE: this daemon has no condition {type_}; it has {}",
            present.join(", ")
        ));
    }
    print(&match arguments.output {
        Output::Text => explanation::text(&explanation, Style::of_stdout()),
        Output::Json => format!("{:#}\n", json!(explanation)),
    })
}

/// Removes all other conditions. `Err` contains the types of those that exist.
fn keep_only(conditions: &mut Vec<ExplainedCondition>, type_: &str) -> Result<(), Vec<String>> {
    if !conditions.iter().any(|condition| condition.type_ == type_) {
        return Err(conditions.drain(..).map(|one| one.type_).collect());
    }
    conditions.retain(|condition| condition.type_ == type_);
    Ok(())
}
