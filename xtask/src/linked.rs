//! Lists the crates that are linked into a program, with the features that a target resolves to.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::build_ebpf;
use crate::repo::{Repo, output, toml_strings};

/// A crate of a registry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Linked {
    pub name: String,
    pub version: String,
    /// SPDX expression.
    pub licence: String,
    /// SHA-256 of the archive, from Cargo.lock.
    pub checksum: String,
}

/// Lists the crates in the program of `package` and in the eBPF object that it embeds, sorted.
pub fn linked(repo: &Repo, package: &str, target: &str) -> Result<Vec<Linked>> {
    let mut trees = tree(repo, package, target)?;
    trees += &tree(repo, "agent-ebpf", build_ebpf::TARGET)?;
    Ok(crates(&trees, &checksums(&repo.read("Cargo.lock")?)))
}

fn tree(repo: &Repo, package: &str, target: &str) -> Result<String> {
    let mut tree = repo.cargo();
    tree.args(["tree", "--package", package, "--target", target]);
    tree.args(["--edges", "normal,no-proc-macro", "--prefix", "none"]);
    output(tree.args(["--format", "{p}|{l}"]))
}

/// Parses lines of `cargo tree` such as `bytes v1.12.0|MIT`, without the workspace's crates, which
/// have a path.
fn crates(tree: &str, checksums: &BTreeMap<(String, String), String>) -> Vec<Linked> {
    let mut found = Vec::new();
    for line in tree.lines() {
        // Repeated entries end in ` (*)`.
        let line = line.trim_end_matches(" (*)");
        let (package, licence) = line.split_once('|').unwrap_or((line, ""));
        let mut words = package.split(' ');
        let (name, version) = (words.next(), words.next());
        let version = version.and_then(|version| version.strip_prefix('v'));
        let (Some(name), Some(version)) = (name, version) else {
            continue;
        };
        let Some(checksum) = checksums.get(&(name.to_owned(), version.to_owned())) else {
            continue;
        };
        found.push(Linked {
            name: name.to_owned(),
            version: version.to_owned(),
            // `/` is the deprecated form of "or".
            licence: licence.replace('/', " OR ").replace("  OR  ", " OR "),
            checksum: checksum.clone(),
        });
    }
    found.sort();
    found.dedup();
    found
}

/// Returns checksums by name and version. Only crates of a registry have one.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let first = |package: &str, key| toml_strings(package, key).into_iter().next();
    let packages = lock.split("[[package]]").skip(1);
    packages
        .filter_map(|package| {
            let named = (first(package, "name")?, first(package, "version")?);
            Some((named, first(package, "checksum")?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linked_crates_are_listed_once_with_their_checksums() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n\
                    source = \"registry\"\nchecksum = \"aa\"\n\n\
                    [[package]]\nname = \"member\"\nversion = \"0.1.0\"\n\n\
                    [[package]]\nname = \"not-linked\"\nversion = \"2.0.0\"\nchecksum = \"cc\"\n";
        let tree = "member v0.1.0 (/work)|Apache-2.0\na v1.0.0|MIT/Apache-2.0\n\
                    a v1.0.0|MIT/Apache-2.0 (*)\n";
        let expected = Linked {
            name: "a".to_owned(),
            version: "1.0.0".to_owned(),
            licence: "MIT OR Apache-2.0".to_owned(),
            checksum: "aa".to_owned(),
        };
        assert_eq!(crates(tree, &checksums(lock)), [expected]);
    }
}
