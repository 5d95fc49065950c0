//! Lists the contents of a program as a CycloneDX bill of materials: every linked crate with its
//! checksum in Cargo.lock.

use serde_json::{Value, json};

use crate::files::sha256;
use crate::linked::Linked;

/// A program, and the inputs of its build.
pub struct Built<'a> {
    pub name: &'a str,
    pub version: &'a str,
    pub target: &'a str,
    /// Version of the toolchain.
    pub rust: &'a str,
    pub bytes: &'a [u8],
    pub crates: &'a [Linked],
}

pub fn text(built: &Built<'_>) -> String {
    let mut components: Vec<Value> = built.crates.iter().map(component).collect();
    components.push(json!({
        "type": "library",
        "bom-ref": "rust-std",
        "name": "rust-std",
        "version": built.rust,
        "description": format!(
            "the standard library for {}, with the C library it brings", built.target),
        "licenses": [{"expression": "MIT OR Apache-2.0"}],
    }));
    let bom = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": built.name,
                "name": built.name,
                "version": built.version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "hashes": [{"alg": "SHA-256", "content": sha256(built.bytes)}],
            },
        },
        "components": components,
    });
    format!("{bom:#}\n")
}

fn component(linked: &Linked) -> Value {
    let purl = format!("pkg:cargo/{}@{}", linked.name, linked.version);
    json!({
        "type": "library",
        "bom-ref": purl,
        "name": linked.name,
        "version": linked.version,
        "purl": purl,
        "licenses": [{"expression": linked.licence}],
        "hashes": [{"alg": "SHA-256", "content": linked.checksum}],
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::linked::linked;
    use crate::repo::{MUSL_TARGET, Repo};

    #[test]
    fn the_bill_of_materials_has_what_cyclonedx_requires() {
        let repo = Repo::find().unwrap();
        let crates = linked(&repo, "nodepulse", MUSL_TARGET).unwrap();
        assert!(crates.len() > 100, "{}", crates.len());
        let bom = text(&Built {
            name: "nodepulse",
            version: "1.2.3",
            target: MUSL_TARGET,
            rust: &repo.toolchain.channel,
            bytes: b"program",
            crates: &crates,
        });
        let bom: Value = serde_json::from_str(&bom).unwrap();
        assert_eq!(bom["bomFormat"], "CycloneDX");
        let components = bom["components"].as_array().unwrap();
        assert_eq!(components.len(), crates.len() + 1);
        let mut references = BTreeSet::from(["nodepulse"]);
        for component in components {
            let reference = component["bom-ref"].as_str().unwrap();
            assert!(references.insert(reference), "{reference} is there twice");
            let expression = component["licenses"][0]["expression"].as_str().unwrap();
            assert!(!expression.is_empty(), "{reference} has no licence");
            let hash = component["hashes"][0]["content"].as_str();
            let is_sha256 =
                |hash: &str| hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit());
            assert!(
                reference == "rust-std" || hash.is_some_and(is_sha256),
                "{component}"
            );
        }
    }
}
