//! Demonstrates the agent: builds it and the demo, and executes the demo.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

use crate::repo::{self, Repo};
use crate::{build_ebpf, run, setup};

#[derive(clap::Args)]
pub struct Args {
    /// Print JSON, and nothing else, on standard output
    #[arg(long)]
    json: bool,
    /// Use the release build of the agent, for measurements; the additional build takes some
    /// minutes
    #[arg(long)]
    release: bool,
    /// Kubeconfig of a cluster to use instead of the embedded API server. Its user must be allowed
    /// to create and delete Nodes, as an administrator is. The Node `nodepulse-demo` is removed
    /// afterwards.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Write a picture of the output to this file, such as docs/demo.svg, and the recorded steps
    /// next to it
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub fn main(args: &Args) -> Result<ExitCode> {
    let repo = Repo::find()?;
    setup::DEMO.announce(&repo)?;
    setup::development(&repo)?;
    build_ebpf::object(&repo, "")?;
    build(&repo)?;
    let program = |name: &str| repo.target_dir.join("debug").join(name);
    let agent = if args.release {
        run::agent(&repo)?
    } else {
        program("nodepulse")
    };
    let program = program("demo");
    let mut demo = Command::new(&program);
    demo.arg("--agent").arg(&agent);
    if args.json {
        demo.arg("--json");
    }
    if let Some(kubeconfig) = &args.kubeconfig {
        demo.arg("--kubeconfig").arg(kubeconfig);
    }
    if let Some(svg) = &args.svg {
        demo.arg("--svg").arg(svg);
    }
    let err = demo.exec();
    Err(err).with_context(|| format!("cannot start {}", program.display()))
}

/// Builds the agent, the demo and its helper, which the demo expects in its directory. One target,
/// one profile and the tests' set of features, so that each crate is compiled once.
fn build(repo: &Repo) -> Result<()> {
    eprintln!("build: nodepulse, demo and provoke, for development");
    let mut build = repo.cargo();
    build.args(["build", "--workspace", "--exclude", "agent-ebpf"]);
    for name in ["nodepulse", "demo", "provoke"] {
        build.args(["--bin", name]);
    }
    repo::run(&mut build)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::{Cli, Task, repo};

    /// Extracts the commands in the fenced blocks of a document, without their comments.
    fn commands(document: &str) -> Vec<&str> {
        let blocks = document.split("```sh\n").skip(1);
        let blocks = blocks.filter_map(|rest| rest.split("```").next());
        let lines = blocks.flat_map(str::lines);
        let commands = lines.map(|line| line.split(" #").next().unwrap_or(line).trim());
        commands.filter(|command| !command.is_empty()).collect()
    }

    /// Parses a command; `None` if it is another program.
    fn task(command: &str) -> Option<Result<Task, clap::Error>> {
        let words = command.strip_prefix("cargo xtask ")?.split_whitespace();
        let parsed = Cli::try_parse_from(["cargo xtask"].into_iter().chain(words));
        Some(parsed.map(|cli| cli.task))
    }

    /// `tests/tests/kernel/newcomer.rs` runs it, as this command does.
    #[test]
    fn the_first_command_of_the_readme_is_the_demo() {
        let readme = std::fs::read_to_string(repo::root().join("README.md")).unwrap();
        let first_screen = readme.split("\n## ").next().unwrap();
        let commands = commands(first_screen);
        assert!(commands.len() <= 3, "{commands:?}");
        assert!(matches!(task(commands[0]), Some(Ok(Task::Demo(_)))));
    }

    #[test]
    fn commands_of_the_documents_exist() {
        let root = repo::root();
        let mut paths = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
        for directory in ["docs", "docs/questions"] {
            let files = std::fs::read_dir(root.join(directory)).unwrap();
            paths.extend(files.map(|entry| entry.unwrap().path()));
        }
        paths.retain(|path| path.extension().is_some_and(|end| end == "md"));
        let mut checked = 0;
        for path in paths {
            let document = std::fs::read_to_string(&path).unwrap();
            for command in commands(&document) {
                if let Some(Err(err)) = task(command) {
                    panic!("{}: {command}: {err}", path.display());
                }
                checked += usize::from(command.starts_with("cargo xtask "));
            }
        }
        assert!(checked >= 10, "{checked}");
    }
}
