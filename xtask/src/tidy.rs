//! Checks the rules of the layout: imports, sizes, names, links, vocabulary.
//! Each rule is a function of paths and texts; the tables are the rules.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::repo;

mod app;
mod circles;
mod code;
mod crates;
mod keys;
mod links;
mod sizes;
mod vocabulary;
mod words;

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

/// Findings, each beginning with `path:line: what`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// These fail.
    pub broken: Vec<String>,
    /// These are for a reviewer to check.
    pub notes: Vec<String>,
}

pub fn main(args: &Args) -> Result<ExitCode> {
    let broken = report(args.deep)?;
    Ok(ExitCode::from(u8::from(broken > 0)))
}

/// Prints the findings, and returns the number of broken rules.
pub fn report(deep: bool) -> Result<usize> {
    let mut found = check(&sources(&repo::root())?);
    if deep {
        found.broken.extend(crates::broken(&repo::Repo::find()?)?);
    }
    for note in &found.notes {
        println!("note: {note}");
    }
    for broken in &found.broken {
        println!("{broken}");
    }
    let (broken, notes) = (found.broken.len(), found.notes.len());
    println!("tidy: {broken} broken, {notes} to review");
    Ok(broken)
}

fn check(sources: &[Source]) -> Found {
    let mut found = sizes::check(sources);
    found.broken.extend(app::broken(sources));
    found.broken.extend(circles::broken(sources));
    found.broken.extend(words::broken(sources));
    found.broken.extend(keys::broken(sources));
    found.broken.extend(links::broken(sources));
    found.broken.extend(vocabulary::broken(sources));
    found.notes.extend(vocabulary::notes(sources));
    found.broken.sort();
    found
}

impl Source {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The part under `src`, of Rust sources that ship or build: not of integration tests.
    fn is_product(&self) -> bool {
        self.is_rust() && !self.path.starts_with("tests/tests/") && !self.is_unit_tests()
    }

    /// Product code of a crate in `agent`.
    fn is_agent(&self) -> bool {
        self.path.starts_with("agent/") && self.path.contains("/src/") && self.is_product()
    }

    /// A test module in a separate file.
    fn is_unit_tests(&self) -> bool {
        self.path.ends_with("/tests.rs")
            || self.path.contains("/tests/") && !self.path.starts_with("tests/")
    }
}

/// What git tracks, or would; without git, everything but build output.
fn sources(root: &Path) -> Result<Vec<Source>> {
    let mut git = repo::command("git");
    git.args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ])
    .current_dir(root);
    let paths = match git.output() {
        Ok(listed) if listed.status.success() => String::from_utf8_lossy(&listed.stdout)
            .split_terminator('\0')
            .map(str::to_owned)
            .collect(),
        _ => walked(root, "")?,
    };
    let mut sources = Vec::new();
    for path in paths {
        let file = root.join(&path);
        // A deleted file stays listed until the deletion is staged; a link has no text.
        if file.is_symlink() || !file.is_file() {
            continue;
        }
        let bytes = std::fs::read(&file).with_context(|| format!("cannot read {path}"))?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        sources.push(Source { path, text });
    }
    Ok(sources)
}

fn walked(root: &Path, below: &str) -> Result<Vec<String>> {
    let dir = root.join(below);
    let mut paths = Vec::new();
    for entry in
        std::fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))?
    {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if below.is_empty() {
            name.clone()
        } else {
            format!("{below}/{name}")
        };
        if !entry.file_type()?.is_dir() {
            paths.push(path);
        } else if name != ".git" && name != "target" {
            paths.extend(walked(root, &path)?);
        }
    }
    Ok(paths)
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
        let found = check(&sources(&repo::root()).unwrap());
        assert!(found.broken.is_empty(), "\n{}\n", found.broken.join("\n"));
    }

    #[test]
    fn without_git_the_sources_are_walked_and_build_output_is_left_out() {
        let paths = walked(&repo::root(), "").unwrap();
        assert!(paths.iter().any(|path| path == "xtask/src/tidy.rs"));
        let hidden = |path: &&String| path.starts_with("target/") || path.starts_with(".git/");
        assert_eq!(paths.iter().find(hidden), None);
    }
}
