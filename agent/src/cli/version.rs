//! `nodepulse version`.

#![expect(clippy::print_stdout, reason = "the output of the command")]

use std::process::ExitCode;

use agent_common::ABI_VERSION;
use clap::Args;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::Output;
use crate::kernel::object;

/// Flags of `version`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

/// Prints the version of the agent and of the eBPF object inside it.
pub fn print(arguments: &Arguments) -> ExitCode {
    let version = env!("CARGO_PKG_VERSION");
    let object = object::embedded().map(|object| (object.len(), sha256(object)));
    match arguments.output {
        Output::Text => {
            let object = match object {
                Some((bytes, sha256)) => {
                    format!("eBPF object of {bytes} bytes, ABI {ABI_VERSION}, sha256 {sha256}")
                }
                None => "built without eBPF".to_owned(),
            };
            println!("nodepulse {version} ({object})");
        }
        Output::Json => {
            let object = object.map_or(
                Value::Null,
                |(bytes, sha256)| json!({ "abi": ABI_VERSION, "bytes": bytes, "sha256": sha256 }),
            );
            println!("{}", json!({ "version": version, "ebpfObject": object }));
        }
    }
    ExitCode::SUCCESS
}

fn sha256(bytes: &[u8]) -> String {
    let digest = digest(&SHA256, bytes);
    let digits = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
    digits.collect()
}
