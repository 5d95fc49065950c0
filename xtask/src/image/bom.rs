//! The contents of the binary, as a CycloneDX bill of materials: every crate that is linked, with its
//! checksum in Cargo.lock.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::layout::sha256;
use crate::build_ebpf;
use crate::repo::{Repo, output, toml_strings};

pub fn text(repo: &Repo, target: &str, version: &str, program: &[u8]) -> Result<String> {
    let agent = tree(repo, "nodepulse", target)?;
    // The object inside.
    let object = tree(repo, "agent-ebpf", build_ebpf::TARGET)?;
    let lock = repo.root.join("Cargo.lock");
    let lock = std::fs::read_to_string(&lock).with_context(|| lock.display().to_string())?;

    let mut components = components(&(agent + &object), &checksums(&lock));
    components.push(json!({
        "type": "library",
        "name": "rust-std",
        "version": repo.toolchain.channel,
        "description": format!("the standard library for {target}, with the C library it brings"),
        "licenses": [{"expression": "MIT OR Apache-2.0"}],
    }));
    let bom = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": "nodepulse",
                "name": "nodepulse",
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "hashes": [{"alg": "SHA-256", "content": sha256(program)}],
            },
        },
        "components": components,
    });
    Ok(format!("{bom:#}\n"))
}

/// What is linked into a package, with the features that this target resolves to.
fn tree(repo: &Repo, package: &str, target: &str) -> Result<String> {
    let mut tree = repo.cargo();
    tree.args(["tree", "--package", package, "--target", target]);
    tree.args(["--edges", "normal,no-proc-macro", "--prefix", "none"]);
    output(tree.args(["--format", "{p}|{l}"]))
}

/// From lines such as `bytes v1.12.0|MIT` of `cargo tree`; the workspace's crates, which have a path, are left out.
fn components(tree: &str, checksums: &BTreeMap<(String, String), String>) -> Vec<Value> {
    let mut found = BTreeMap::new();
    for line in tree.lines() {
        // A second mention ends in ` (*)`.
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
        // The old way to write "or".
        let licence = licence.replace('/', " OR ").replace("  OR  ", " OR ");
        let purl = format!("pkg:cargo/{name}@{version}");
        let component = json!({
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": version,
            "purl": purl,
            "licenses": [{"expression": licence}],
            "hashes": [{"alg": "SHA-256", "content": checksum}],
        });
        found.insert(purl, component);
    }
    found.into_values().collect()
}

/// By name and version. What comes from a registry has one.
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
        let found = components(tree, &checksums(lock));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0]["purl"], "pkg:cargo/a@1.0.0");
        assert_eq!(found[0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(found[0]["hashes"][0]["content"], "aa");
    }
}
