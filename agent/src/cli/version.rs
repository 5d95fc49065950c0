//! `nodepulse version`.

use std::process::ExitCode;

use agent_common::ABI_VERSION;
use clap::Args;
use nodepulse_linux::kernel::object;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::{Output, terminal};

/// Flags of `version`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that was built; empty if it is unknown.
const COMMIT: &str = env!("NODEPULSE_COMMIT");

/// Prints the version of the agent and of the eBPF object inside it.
pub fn print(arguments: &Arguments) -> ExitCode {
    match arguments.output {
        Output::Text => print_text(),
        Output::Json => terminal::print(&format!("{}\n", json())),
    }
}

/// Prints the version in one line, also for `--version`.
pub(super) fn print_text() -> ExitCode {
    terminal::print(&format!("nodepulse {}\n", text()))
}

/// Version, commit and eBPF object in one line.
fn text() -> String {
    let commit = match COMMIT {
        "" => "unknown commit".to_owned(),
        commit => format!("commit {commit}"),
    };
    let object = match object::embedded() {
        Some(object) => format!(
            "eBPF object of {} bytes, ABI {ABI_VERSION}, sha256 {}",
            object.len(),
            sha256(object)
        ),
        None => "built without eBPF".to_owned(),
    };
    format!("{VERSION} ({commit}, {object})")
}

fn json() -> Value {
    let object = object::embedded().map_or(
        Value::Null,
        |object| json!({ "abi": ABI_VERSION, "bytes": object.len(), "sha256": sha256(object) }),
    );
    let commit = (!COMMIT.is_empty()).then_some(COMMIT);
    json!({ "version": VERSION, "commit": commit, "ebpfObject": object })
}

fn sha256(bytes: &[u8]) -> String {
    let digest = digest(&SHA256, bytes);
    let digits = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
    digits.collect()
}
