//! `nodepulse replay`: the decisions of a recording, repeated.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use nodepulse_core::escape::escape_to;
use nodepulse_core::kube_event::{Draft, Involved};
use nodepulse_core::subjects::recording::{Step, replay};
use nodepulse_core::subjects::{Decision, Effect, StallDecision};
use nodepulse_kube::convert;

use super::fail;
use super::terminal::print;

/// Maximum length of an Event's text in characters.
const LINE: usize = 2048;

/// Flags of `replay`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// A file that `nodepulse record` has written.
    file: PathBuf,
}

/// Prints what follows from the inputs of the recording, up to the first difference. The exit code
/// is 1 if there is one, or if the recording is not valid.
pub fn run(arguments: &Arguments) -> ExitCode {
    let path = arguments.file.display();
    let text = match std::fs::read_to_string(&arguments.file) {
        Ok(text) => text,
        Err(err) => return fail(&format!("cannot read {path}: {err}")),
    };
    let mut out = String::new();
    let replayed = replay(text.split_inclusive('\n'), |step| describe(step, &mut out));
    match replayed {
        Ok(replayed) => {
            let steps = replayed.steps;
            print(&format!(
                "{out}{steps} steps replayed without a difference\n"
            ))
        }
        Err(err) => {
            print(&out);
            let source = std::error::Error::source(&err);
            let source = source.map_or_else(String::new, |source| format!(": {source}"));
            fail(&format!("{path}: {err}{source}"))
        }
    }
}

/// Appends a line for each Event, and for each change of what a condition depends on.
fn describe(step: &Step, out: &mut String) {
    let at = convert::time(step.now.wall);
    for effect in &step.effects {
        let text = match effect {
            Effect::Event(event) => described(event),
            Effect::Log(Decision::PressureChanged(change)) => format!(
                "{} {} -> {} ({})",
                change.resource.as_str(),
                change.from,
                change.to,
                change.reason.as_str()
            ),
            Effect::Log(Decision::Stall(StallDecision::Changed { change, .. })) => format!(
                "{} stall of the {} {} -> {}",
                change.stall.kind.as_str(),
                change.stall.of.as_str(),
                change.from,
                change.to
            ),
            Effect::Log(Decision::FrequencyOfKills { from, to }) => {
                format!("FrequentOOMKills {from} -> {to}")
            }
            _ => continue,
        };
        // Writing to a string cannot fail.
        let _written = writeln!(out, "{at} {text}");
    }
}

/// Returns the object, the reason and the message in one line.
fn described(event: &Draft) -> String {
    let object = match &event.object {
        Involved::Node => "node".to_owned(),
        Involved::Pod {
            namespace, name, ..
        } => format!("pod {namespace}/{name}"),
    };
    let text = format!("{object} {}: {}", event.reason, event.message);
    escape_to(text, LINE)
}
