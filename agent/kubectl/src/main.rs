//! `kubectl nodepulse`: what nodepulse has reported about the nodes and pods of a cluster.
//!
//! A plugin of kubectl, which runs any program named `kubectl-NAME`. It only reads, with the
//! permissions of the kubeconfig's user. The daemon links none of it.

mod age;
mod agent_pods;
mod arguments;
mod cluster;
mod explain;
mod failure;
mod fleet;
mod health;
mod history;
mod kills;
mod kubeconfig;
mod node;
mod objects;
mod place;
mod proxy;
mod screen;
mod style;
mod table;
mod tier;
mod top;
mod why;

use std::process::ExitCode;

use arguments::{Arguments, Command};
use cluster::Cluster;
use failure::Failure;
use style::Style;

fn main() -> ExitCode {
    let arguments = match Arguments::of(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(message) => return message.print(),
    };
    match run(&arguments) {
        // The reader of the output has what it wanted.
        Ok(()) | Err(Failure::BrokenPipe) => ExitCode::SUCCESS,
        Err(failure) => {
            screen::print_error(&failure);
            ExitCode::from(failure.exit_status())
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::Runtime)?;
    let style = Style::from_stdout();
    if let Some(note) = arguments.connection.note() {
        screen::note(&note);
    }
    let done = runtime.block_on(async {
        let cluster = Cluster::connect(&arguments.connection).await?;
        match &arguments.command {
            Command::Fleet(options) => fleet::run(&cluster, options, style).await,
            Command::Node(options) => node::run(&cluster, options, style).await,
            Command::Kills(options) => kills::run(&cluster, options, style).await,
            Command::Why(options) => why::run(&cluster, options, style).await,
            Command::Top(options) => top::run(&cluster, options).await,
        }
    });
    // A program that kubectl started may keep its output open.
    runtime.shutdown_background();
    done
}
