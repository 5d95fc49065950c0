//! `nodepulse status` and `nodepulse explain`: what a daemon would say, and why.

#![expect(
    clippy::print_stderr,
    reason = "what is wrong with a call is said to whoever made it"
)]

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::Value;
use tokio::runtime::Builder;

use super::client::{self, NoAnswer};
use super::settings::configuration;
use super::{Output, USAGE, text};
use crate::api::convert;
use crate::app;
use crate::clock::Clock;
use crate::config::{Config, Overrides};

/// Flags that find the daemon, or stand for it.
#[derive(Debug, Args)]
pub struct Place {
    /// Configuration file [default: /etc/nodepulse/config.yaml, if it is there].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the daemon's control socket is [default: /run/nodepulse].
    #[arg(long, value_name = "DIR")]
    state_directory: Option<String>,
}

/// Flags of `status`.
#[derive(Debug, Args)]
pub struct StatusArguments {
    #[command(flatten)]
    place: Place,
    /// What to look as, where no daemon runs.
    #[arg(long, value_name = "companion|node")]
    mode: Option<String>,
    /// How to print it.
    #[arg(short, long, value_name = "yaml|json", default_value = "yaml")]
    output: StatusForm,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum StatusForm {
    Yaml,
    Json,
}

/// Flags of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArguments {
    /// Type of one condition [default: all].
    #[arg(value_name = "TYPE")]
    type_: Option<String>,
    #[command(flatten)]
    place: Place,
    /// How to print it.
    #[arg(short, long, value_name = "text|json", default_value = "text")]
    output: Output,
}

impl Place {
    fn overrides(self) -> Overrides {
        Overrides {
            config: self.config,
            state_directory: self.state_directory,
            ..Overrides::default()
        }
    }
}

/// Prints the status that a daemon would send: by the one that runs, else as one would begin.
#[must_use]
pub fn status(arguments: StatusArguments) -> ExitCode {
    let overrides = Overrides {
        mode: arguments.mode,
        ..arguments.place.overrides()
    };
    let config = match configuration(&overrides) {
        Ok(loaded) => loaded.config,
        Err(why) => return refuse(&why, USAGE),
    };
    let status = match client::get(&config.state_directory, "/v1/status") {
        Ok(status) => status,
        Err(NoAnswer::NotRunning) => match computed(config) {
            Ok(status) => status,
            Err(err) => return refuse(&err.to_string(), 1),
        },
        Err(NoAnswer::Failed(why)) => return refuse(&why, 1),
    };
    print(&match arguments.output {
        StatusForm::Yaml => text::yaml(&status),
        StatusForm::Json => format!("{status:#}\n"),
    })
}

fn computed(config: Config) -> io::Result<Value> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let status = runtime.block_on(app::status_now(config, Clock::kernel()));
    // A call that hangs in the file system must not hold up the answer.
    runtime.shutdown_background();
    Ok(convert::status_value(&status))
}

/// Prints why each condition has its status.
#[must_use]
pub fn explain(arguments: ExplainArguments) -> ExitCode {
    let config = match configuration(&arguments.place.overrides()) {
        Ok(loaded) => loaded.config,
        Err(why) => return refuse(&why, USAGE),
    };
    let mut told = match client::get(&config.state_directory, "/v1/explain") {
        Ok(told) => told,
        Err(NoAnswer::NotRunning) => {
            let directory = config.state_directory.display();
            let why = format!(
                "no daemon runs with the state directory {directory}, and only one that runs knows \
                 why; start it, or name its directory with --state-directory"
            );
            return refuse(&why, 1);
        }
        Err(NoAnswer::Failed(why)) => return refuse(&why, 1),
    };
    if let Some(type_) = arguments.type_
        && let Err(known) = only(&mut told, &type_)
    {
        let type_: String = type_.chars().take(80).collect();
        let why = format!("no condition {type_:?}; a correct example: nodepulse explain {known}");
        return refuse(&why, USAGE);
    }
    print(&match arguments.output {
        Output::Text => text::explanation(&told),
        Output::Json => format!("{told:#}\n"),
    })
}

/// Leaves one condition; `Err` names one that there is.
fn only(told: &mut Value, type_: &str) -> Result<(), String> {
    let Some(Value::Array(conditions)) = told.get_mut("conditions") else {
        return Err("MemoryPressure".to_owned());
    };
    let of = |condition: &Value| condition.get("type").cloned().unwrap_or_default();
    if conditions.iter().any(|condition| of(condition) == type_) {
        conditions.retain(|condition| of(condition) == type_);
        return Ok(());
    }
    let first = conditions.first().map(of).unwrap_or_default();
    Err(first.as_str().unwrap_or("MemoryPressure").to_owned())
}

fn print(text: &str) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever listened has seen enough.
        Err(err) if err.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(err) => refuse(&format!("cannot print: {err}"), 1),
    }
}

fn refuse(why: &str, code: u8) -> ExitCode {
    eprintln!("nodepulse: {why}");
    ExitCode::from(code)
}
