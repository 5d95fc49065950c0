//! Checks the crates that are linked into the agent. Cargo unifies features: one crate that enables
//! another's defaults enables them for all.

use anyhow::Result;

use crate::repo::{MUSL_TARGET, Repo, output};

/// Crates that may not be linked: a second TLS stack, a second provider of rustls, with which it
/// panics at the first handshake, or code for a protocol that the agent does not use.
const CRATES: &str = "aws-lc-rs aws-lc-sys native-tls openssl openssl-sys rustls-openssl \
                      rustls-rustcrypto tokio-tungstenite tungstenite";

/// Features of `kube` and `kube-client` that cost memory and code, and that the agent does not use.
const KUBE_FEATURES: &str = "aws-lc-rs gzip oauth oidc openssl-tls ws";

pub fn broken(repo: &Repo) -> Result<Vec<String>> {
    let mut tree = repo.cargo();
    tree.args(["tree", "--package", "nodepulse", "--target", MUSL_TARGET]);
    tree.args(["--edges", "normal,features", "--prefix", "none"]);
    Ok(violations(&output(&mut tree)?))
}

/// Finds violations in lines such as `kube v5.0.0` and `kube feature "client" (*)`.
fn violations(tree: &str) -> Vec<String> {
    let has = |start: &String| tree.lines().any(|line| line.starts_with(start));
    let crates = CRATES.split(' ').map(|name| format!("{name} v"));
    let of_kube = |name| {
        let features = KUBE_FEATURES.split(' ');
        features.map(move |feature| format!("{name} feature \"{feature}\""))
    };
    let features = ["kube", "kube-client"].into_iter().flat_map(of_kube);
    let linked = crates.chain(features).filter(has);
    let line = |found| format!("agent/Cargo.toml:1: `{found}` is linked: see cargo tree -i");
    let mut broken: Vec<String> = linked.map(line).collect();
    if !has(&"ring v".to_owned()) {
        broken.push("agent/Cargo.toml:1: rustls has no provider: ring is wanted".to_owned());
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_tls_stack_or_an_unused_protocol_is_found() {
        let good = "nodepulse v0.1.0 (/a)\nkube v5.0.0\nkube feature \"client\" (*)\n";
        let table = [
            ("ring v0.17.14\n", 0, "as it should be"),
            ("ring v0.17.14\naws-lc-rs v1.0.0\n", 1, "a second provider"),
            ("ring v0.17.14\nopenssl v1.0.0 (*)\n", 1, "a second stack"),
            ("ring v0.17.14\nopenssl-probe v0.1.6\n", 0, "no stack"),
            ("ring v0.17.14\nkube-client feature \"ws\"\n", 1, "unused"),
            ("ring v0.17.14\nhyper feature \"gzip\"\n", 0, "not kube's"),
            ("", 1, "no provider"),
        ];
        for (more, expected, why) in table {
            let found = violations(&format!("{good}{more}"));
            assert_eq!(found.len(), expected, "{why}: {found:?}");
        }
    }
}
