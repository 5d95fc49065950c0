//! Commands that build, test, measure and check this repository: `cargo xtask <command>`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod acceptance;
mod archive;
mod bench;
mod build_ebpf;
mod demo;
mod dist;
mod files;
mod fuzz;
mod golden;
mod image;
mod kernels;
mod linked;
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
    about = "Builds, tests, measures and checks this repository"
)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what the other commands need, and print what is already installed
    Setup(setup::Args),
    /// Build the eBPF object, which the agent embeds
    BuildEbpf(build_ebpf::Args),
    /// Build the agent as it is shipped, and run it with the given arguments (as root)
    Run(run::Args),
    /// Demonstrate the agent on this machine, with an embedded API server
    Demo(demo::Args),
    /// Run all tests and checks that a change must pass
    Test(test::Args),
    /// Print the requirements at the API server, each with the result of its tests
    Acceptance(acceptance::Args),
    /// Check the rules of the layout: modules, sizes, names, vocabulary, links of the documents
    Tidy(tidy::Args),
    /// Run the kernel tests on other kernels, in virtual machines
    Vm(vm::Args),
    /// Measure the cost of the agent, and compare it with the budget
    Bench(bench::Args),
    /// Run the parsers with generated input
    Fuzz(fuzz::Args),
    /// Generate the kustomize manifests from the Helm chart
    Manifests(manifests::Args),
    /// Build the container image and its bill of materials
    Image(image::Args),
    /// Build what a release consists of: image, packages, archives, chart, licences, checksums
    Dist(dist::Args),
    /// Generate manual pages, the references of configuration and metrics, and the JSON Schema
    Manual(manual::Args),
    /// Record the results of kubectl's strategic merge for the golden cases
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
        Task::Dist(args) => dist::main(&args),
        Task::Manual(args) => manual::main(&args),
        Task::Golden(args) => golden::main(&args),
    };
    done.unwrap_or_else(|err| {
        eprintln!("xtask: {err:#}");
        ExitCode::FAILURE
    })
}
