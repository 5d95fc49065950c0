//! `nodepulse-top`: a live view of one machine in a terminal. The collector reads a view from the
//! control socket, the history and the cgroups; rows and a screen are derived from it.
//! The daemon links none of it.

#![forbid(unsafe_code)]

mod arguments;
mod collector;
mod live;
mod metrics;
mod rows;
mod screen;
mod view;

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::mpsc::channel;

use clap::Parser as _;
use ratatui::crossterm::terminal;

use arguments::Arguments;
use collector::Collector;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = if arguments.once {
        once(arguments)
    } else {
        live::run(arguments).map_err(|err| format!("cannot use the terminal: {err}"))
    };
    done.map_or_else(|why| fail(&why), |()| ExitCode::SUCCESS)
}

#[expect(clippy::print_stderr, reason = "the reason of the exit code")]
fn fail(why: &str) -> ExitCode {
    eprintln!("nodepulse-top: {why}");
    ExitCode::FAILURE
}

/// Prints a frame of two readings. Fails if the agent does not answer.
fn once(arguments: Arguments) -> Result<(), String> {
    let size = io::stdout().is_terminal().then(terminal::size);
    let (width, height) = size.and_then(Result::ok).unwrap_or((80, 24));
    let interval = arguments.interval;
    let mut collector = Collector::new(arguments);
    collector.read();
    // Nothing is sent: it waits for the interval.
    let (_sender, receiver) = channel::<()>();
    let _waited = receiver.recv_timeout(interval);
    let view = collector.read();
    let frame = screen::text(&view, width, height);
    match io::stdout().write_all(frame.as_bytes()) {
        Err(err) if err.kind() != io::ErrorKind::BrokenPipe => Err(format!("cannot print: {err}")),
        _ => view.explanation.map(|_| ()),
    }
}
