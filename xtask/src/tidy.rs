//! Checks what a compiler does not see: keys, names, vocabulary, links, sizes.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};

use crate::repo;

mod crates;
mod keys;
mod links;
mod pieces;
mod sizes;
mod vocabulary;

#[derive(clap::Args)]
pub struct Args {
    /// Also check the crates that are linked into the agent (needs every dependency's source)
    #[arg(long)]
    deep: bool,
}

/// A tracked file. `path` is relative to the root, with slashes.
pub struct Source {
    pub path: String,
    pub text: String,
}

impl Source {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// A Rust source that is not only tests.
    fn is_product(&self) -> bool {
        let is_unit_tests = self.path.ends_with("/tests.rs")
            || self.path.contains("/tests/") && !self.path.starts_with("tests/");
        self.is_rust() && !self.path.starts_with("tests/tests/") && !is_unit_tests
    }

    /// Product code of a crate in `agent`.
    fn is_agent(&self) -> bool {
        self.path.starts_with("agent/") && self.path.contains("/src/") && self.is_product()
    }

    /// The number of lines before the unit tests.
    fn product_lines(&self) -> usize {
        let lines: Vec<&str> = self.text.lines().collect();
        let is_tests = |lines: &[&str]| {
            let mut attributed = lines
                .iter()
                .skip(1)
                .skip_while(|line| line.starts_with('#'));
            lines[0] == "#[cfg(test)]"
                && attributed
                    .next()
                    .is_some_and(|line| line.contains("mod tests"))
        };
        let tests = (0..lines.len()).find(|at| is_tests(&lines[*at..]));
        tests.unwrap_or(lines.len())
    }
}

pub fn main(args: &Args) -> Result<ExitCode> {
    let broken = report(args.deep)?;
    Ok(ExitCode::from(u8::from(broken > 0)))
}

/// Prints the sizes and the findings, and returns the number of broken rules.
pub fn report(deep: bool) -> Result<usize> {
    let sources = sources(&repo::root())?;
    for line in sizes::table(&sources) {
        println!("{line}");
    }
    let mut broken = broken(&sources);
    if deep {
        broken.extend(crates::broken(&repo::Repo::find()?)?);
    }
    for broken in &broken {
        println!("{broken}");
    }
    println!("tidy: {} broken", broken.len());
    Ok(broken.len())
}

/// Findings, each beginning with `path:line: what`.
fn broken(sources: &[Source]) -> Vec<String> {
    let rules = [
        sizes::broken,
        keys::broken,
        links::broken,
        vocabulary::broken,
    ];
    let mut broken: Vec<String> = rules.into_iter().flat_map(|rule| rule(sources)).collect();
    broken.sort();
    broken
}

/// What git tracks, or would.
fn sources(root: &Path) -> Result<Vec<Source>> {
    let mut git = repo::command("git");
    git.args(["ls-files", "-z", "--cached", "--others"]);
    git.arg("--exclude-standard").current_dir(root);
    let listed = git.output().context("cannot run git")?;
    ensure!(
        listed.status.success(),
        "not in a git checkout: {}",
        String::from_utf8_lossy(&listed.stderr).trim()
    );
    let paths = String::from_utf8_lossy(&listed.stdout).into_owned();
    let mut sources = Vec::new();
    for path in paths.split_terminator('\0') {
        let file = root.join(path);
        // A deleted file stays listed until the deletion is staged; a link has no text.
        if file.is_symlink() || !file.is_file() {
            continue;
        }
        let bytes = std::fs::read(&file).with_context(|| format!("cannot read {path}"))?;
        sources.push(Source {
            path: path.to_owned(),
            text: String::from_utf8_lossy(&bytes).into_owned(),
        });
    }
    Ok(sources)
}

#[cfg(test)]
fn source(path: &str, text: &str) -> Source {
    Source {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_keeps_its_rules() {
        let found = broken(&sources(&repo::root()).unwrap());
        assert!(found.is_empty(), "\n{}\n", found.join("\n"));
    }
}
