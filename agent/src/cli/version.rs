//! `nodepulse version`.

#![expect(clippy::print_stdout, reason = "this is what the command is for")]

use std::process::ExitCode;

use agent_common::ABI_VERSION;

use crate::kernel::object;

/// Prints the version of the agent and of the eBPF object inside it.
#[must_use]
pub fn print() -> ExitCode {
    let object = match object::embedded() {
        Some(object) => format!("eBPF object of {} bytes, ABI {ABI_VERSION}", object.len()),
        None => "built without eBPF".to_owned(),
    };
    println!("nodepulse {} ({object})", env!("CARGO_PKG_VERSION"));
    ExitCode::SUCCESS
}
