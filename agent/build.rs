//! Finds the commit that is built, and sets the arguments of the linker.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    pack_relocations();
    println!("cargo::rustc-env=NODEPULSE_COMMIT={}", commit());
}

/// The commit that `version` prints: of the variable `NODEPULSE_COMMIT`, otherwise of this
/// repository. Empty if there is none, and for development, where each commit would compile
/// everything again.
fn commit() -> String {
    const VARIABLE: &str = "NODEPULSE_COMMIT";

    println!("cargo::rerun-if-env-changed={VARIABLE}");
    if let Some(commit) = env::var_os(VARIABLE) {
        return commit.into_string().unwrap_or_default();
    }
    if env::var_os("PROFILE").is_none_or(|profile| profile != "release") {
        return String::new();
    }
    // Written whenever HEAD changes: by a commit, a checkout, a merge.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_default()
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Packs the 18,000 relative relocations of the static binary: as a table they take 0.4 MiB of file
/// and resident memory, as a bitmap (`DT_RELR`, musl 1.2.4 and later) 10 KiB. Linkers without
/// support warn and continue.
fn pack_relocations() {
    let is = |key, value| env::var_os(key).is_some_and(|it| it == value);
    if is("CARGO_CFG_TARGET_ENV", "musl") && is("CARGO_CFG_TARGET_ARCH", "x86_64") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
