//! `nodepulse-replay`: repeats the decisions of a recording that `nodepulse record` has written,
//! with the code of this version, and prints each Event and each change of pressure.
//!
//! It is not a command of the daemon: what reads the state of all subjects takes 1 MB of code,
//! which the daemon would keep in memory on every node.

mod anonymize;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use jiff::Timestamp;
use nodepulse_core::escape::{escape_json, escape_to};
use nodepulse_core::kube_event::{Draft, EventWords, Involved, NodeEvents};
use nodepulse_core::subjects::recording::{Step, replay};
use nodepulse_core::subjects::{Decision, Effect, StallDecision};

/// Maximum length of an Event's text in characters.
const LINE: usize = 2048;

/// Repeats the decisions in a recording of `nodepulse record`, and prints them
///
/// Exit status: 0 no difference; 1 a difference, or not a valid recording; 2 wrong usage.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 80)]
struct Args {
    /// The recording.
    file: PathBuf,
    /// Writes the recording to a new file, with other names of pods, containers, processes,
    /// disks, images and users, and other identifiers.
    #[arg(long, value_name = "FILE")]
    anonymize: Option<PathBuf>,
}

/// The exit code is 1 if a decision differs, or if the recording is not valid.
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "the result")]
fn main() -> ExitCode {
    let Args {
        file: path,
        anonymize,
    } = Args::parse();
    let mut out = String::new();
    let result = match anonymize {
        None => replayed(&path, &mut out),
        Some(to) => anonymized(&path, &to),
    };
    print!("{out}");
    match result {
        Ok(steps) => {
            println!("{steps} steps replayed without a difference");
            ExitCode::SUCCESS
        }
        Err(err) => {
            let err = format!("{err:#}");
            let err = escape_json(err.as_bytes()).unwrap_or(err);
            eprintln!("nodepulse-replay: {}: {err}", path.display());
            ExitCode::FAILURE
        }
    }
}

/// Returns the recording, which can be cut off within a character.
fn read(path: &Path) -> anyhow::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}

/// Writes the recording with other names. Returns the number of steps.
fn anonymized(path: &Path, to: &Path) -> anyhow::Result<usize> {
    let text = anonymize::anonymized(&read(path)?)?;
    let steps = replay(text.split_inclusive('\n'), |_| {})?.steps;
    let file = File::create_new(to).with_context(|| to.display().to_string());
    file?.write_all(text.as_bytes())?;
    Ok(steps)
}

/// Returns the number of steps.
fn replayed(path: &Path, out: &mut String) -> anyhow::Result<usize> {
    let text = read(path)?;
    let mut words = EventWords::new("node", NodeEvents::Companion);
    let replayed = replay(text.split_inclusive('\n'), |step| {
        describe(step, &mut words, out);
    })?;
    Ok(replayed.steps)
}

/// Appends a line for each Event, and for each change of what a condition depends on.
fn describe(step: &Step, words: &mut EventWords, out: &mut String) {
    let at = Timestamp::try_from(step.now.wall).unwrap_or_default();
    let at = at.strftime("%Y-%m-%dT%H:%M:%SZ");
    for effect in &step.effects {
        let text = match effect {
            Effect::NodeEvents(node_events) => {
                words.configure(*node_events);
                continue;
            }
            Effect::Incident(incident) => {
                let drafts = words.word(incident, None);
                let drafts: Vec<String> = drafts.iter().map(described).collect();
                if drafts.is_empty() {
                    continue;
                }
                drafts.join(&format!("\n{at} "))
            }
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
