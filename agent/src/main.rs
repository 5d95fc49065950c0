//! The nodepulse daemon and its commands.

use std::process::ExitCode;

fn main() -> ExitCode {
    nodepulse::main(std::env::args_os())
}
