//! Checks rules that the compiler does not: keys, names, vocabulary, links, sizes.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::repo::{self, Repo};

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

    fn is_product(&self) -> bool {
        let path = &self.path;
        let is_unit_tests =
            path.ends_with("/tests.rs") || path.contains("/tests/") && !path.starts_with("tests/");
        self.is_rust() && !is_unit_tests && !path.starts_with("tests/tests/")
    }

    fn product_lines(&self) -> usize {
        // `mod tests;` can be anywhere, and product code follows it.
        let lines = self
            .text
            .lines()
            .take_while(|line| !line.ends_with("mod tests {"));
        let lines: Vec<&str> = lines.collect();
        let attributes = lines.iter().rev().take_while(|line| line.starts_with('#'));
        lines.len() - attributes.count()
    }
}

pub fn main(args: &Args) -> Result<ExitCode> {
    let broken = report(args.deep)?;
    Ok(ExitCode::from(u8::from(broken > 0)))
}

/// Prints the sizes and the findings, and returns the number of broken rules.
pub fn report(deep: bool) -> Result<usize> {
    let sources = sources(&repo::root())?;
    println!("{}", sizes::table(&sources));
    let mut broken = broken(&sources);
    if deep {
        broken.extend(crates::broken(&Repo::find()?)?);
    }
    for broken in &broken {
        println!("{broken}");
    }
    println!("tidy: {} broken", broken.len());
    Ok(broken.len())
}

/// Returns the findings, each in the form `path:line: text`.
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

/// Returns the files that git tracks, and new ones that are not ignored.
fn sources(root: &Path) -> Result<Vec<Source>> {
    let mut git = repo::command("git");
    git.args(["ls-files", "-z", "--cached", "--others"]);
    let listed = repo::output(git.arg("--exclude-standard").current_dir(root))?;
    // A deleted file stays listed until the deletion is staged; a link has no text.
    let is_file = |path: &&str| !root.join(path).is_symlink() && root.join(path).is_file();
    let source = |path: &str| {
        let bytes = std::fs::read(root.join(path)).with_context(|| format!("cannot read {path}"));
        Ok(source(path, &String::from_utf8_lossy(&bytes?)))
    };
    let paths = listed.split_terminator('\0').filter(is_file);
    paths.map(source).collect()
}

fn source(path: &str, text: &str) -> Source {
    let (path, text) = (path.to_owned(), text.to_owned());
    Source { path, text }
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
