//! Checks the crates that are linked into the agent. Cargo unifies features: one crate that enables another's
//! defaults enables them for all.

use anyhow::Result;

use crate::repo::{MUSL_TARGET, Repo, output};

/// Two providers in one binary make rustls panic at the first handshake; we ship `ring`.
const PROVIDERS: &[&str] = &["aws-lc-rs", "ring", "rustls-openssl", "rustls-rustcrypto"];

/// A second TLS stack, or code for a protocol that the agent does not speak.
const CRATES: &[&str] = &[
    "aws-lc-rs",
    "aws-lc-sys",
    "flate2",
    "native-tls",
    "openssl",
    "openssl-sys",
    "tokio-tungstenite",
    "tungstenite",
];

/// Of `kube` and `kube-client`: memory and code for nothing that we do.
const KUBE_FEATURES: &[&str] = &["aws-lc-rs", "gzip", "oauth", "oidc", "openssl-tls", "ws"];

pub fn broken(repo: &Repo) -> Result<Vec<String>> {
    let mut tree = repo.cargo();
    tree.args(["tree", "--package", "nodepulse", "--target", MUSL_TARGET]);
    tree.args(["--edges", "normal,features", "--prefix", "none"]);
    Ok(violations(&output(&mut tree)?))
}

/// `tree` has lines such as `kube v5.0.0` and `kube feature "client" (*)`.
fn violations(tree: &str) -> Vec<String> {
    let has_crate = |name: &str| {
        let line = |line: &str| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(" v"))
        };
        tree.lines().any(line)
    };
    let has_feature = |name: &str, feature: &str| {
        let wanted = format!("{name} feature \"{feature}\"");
        tree.lines().any(|line| line.starts_with(&wanted))
    };

    let mut broken = Vec::new();
    for name in CRATES.iter().filter(|name| has_crate(name)) {
        broken.push(format!(
            "agent/Cargo.toml:1: `{name}` is linked; find who asks: cargo tree -i {name}"
        ));
    }
    for name in ["kube", "kube-client"] {
        for feature in KUBE_FEATURES.iter().filter(|f| has_feature(name, f)) {
            broken.push(format!(
                "agent/Cargo.toml:1: `{name}` has its feature `{feature}`"
            ));
        }
    }
    let providers: Vec<_> = PROVIDERS.iter().filter(|name| has_crate(name)).collect();
    if providers.len() != 1 {
        broken.push(format!(
            "agent/Cargo.toml:1: one rustls provider is wanted, not {providers:?}"
        ));
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_tls_stack_or_an_unused_protocol_is_found() {
        let good =
            "nodepulse v0.1.0 (/a)\nkube v5.0.0\nkube feature \"client\" (*)\nring v0.17.14\n";
        let table = [
            ("", 0, "as it should be"),
            ("aws-lc-rs v1.0.0\n", 2, "unwanted, and a second provider"),
            ("openssl v1.0.0 (*)\n", 1, "a second TLS stack"),
            ("openssl-probe v0.1.6\n", 0, "only finds certificates"),
            ("kube-client feature \"ws\"\n", 1, "web sockets"),
            ("hyper feature \"gzip\"\n", 0, "not kube's"),
        ];
        for (more, expected, why) in table {
            let found = violations(&format!("{good}{more}"));
            assert_eq!(found.len(), expected, "{why}: {found:?}");
        }
        let none = ["agent/Cargo.toml:1: one rustls provider is wanted, not []"];
        assert_eq!(violations("nodepulse v0.1.0\n"), none);
    }
}
