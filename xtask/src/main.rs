//! Everything that is done to this repository, as commands: `cargo xtask <command>`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod acceptance;
mod bench;
mod build_ebpf;
mod demo;
mod fuzz;
mod golden;
mod image;
mod kernels;
mod manifests;
mod manual;
mod repo;
mod run;
mod setup;
mod skips;
mod test;
mod tidy;
mod vm;

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "Everything that is done to this repository"
)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what the other commands need, and say what is there already.
    Setup(setup::Args),
    /// Build the eBPF object, which the agent embeds.
    BuildEbpf(build_ebpf::Args),
    /// Build the agent as it is shipped, and run it with the given arguments (as root).
    Run(run::Args),
    /// Show the agent at work on this machine, against an API server of its own.
    Demo(demo::Args),
    /// Everything that must hold before a change goes in.
    Test(test::Args),
    /// What is promised at the API server, line by line, with the result of its tests.
    Acceptance(acceptance::Args),
    /// Check the rules of the layout: rooms, sizes, names, words.
    Tidy(tidy::Args),
    /// Run the kernel's tests on other kernels, in virtual machines.
    Vm(vm::Args),
    /// Measure what the agent costs, and compare with the budget.
    Bench(bench::Args),
    /// Feed the parsers with made-up input.
    Fuzz(fuzz::Args),
    /// Write the manifests for kustomize from the Helm chart.
    Manifests(manifests::Args),
    /// Make the container image and its bill of materials.
    Image(image::Args),
    /// Write completions and manual pages.
    Manual(manual::Args),
    /// Record anew what kubectl's strategic merge makes of the golden cases.
    Golden(golden::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Setup(args) => setup::main(&args),
        Task::BuildEbpf(args) => build_ebpf::main(&args),
        Task::Run(args) => run::main(&args),
        Task::Demo(args) => demo::main(&args),
        Task::Test(args) => test::main(&args),
        Task::Acceptance(args) => acceptance::main(&args),
        Task::Tidy(args) => tidy::main(&args),
        Task::Vm(args) => vm::main(&args),
        Task::Bench(args) => bench::main(&args),
        Task::Fuzz(args) => fuzz::main(&args),
        Task::Manifests(args) => manifests::main(&args),
        Task::Image(args) => image::main(&args),
        Task::Manual(args) => manual::main(&args),
        Task::Golden(args) => golden::main(&args),
    };
    done.unwrap_or_else(|err| {
        eprintln!("xtask: {err:#}");
        ExitCode::FAILURE
    })
}
