//! Finds the eBPF object that `cargo xtask build-ebpf` wrote, or reports how to build it.

use std::env;
use std::path::{Path, PathBuf};

/// Path below the target directory, for every profile.
const OBJECT: &str = "ebpf/bpfel-unknown-none/release/agent-ebpf";

fn main() -> Result<(), String> {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_WITHOUT_EBPF").is_some() {
        return Ok(());
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let candidates: Vec<PathBuf> = out
        .ancestors()
        .skip(1)
        .map(|dir| dir.join(OBJECT))
        .collect();
    let Some(object) = candidates.iter().find(|path| path.is_file()) else {
        // Run again once it exists. OUT_DIR is <target>/<profile>/build/<crate>/out.
        let target = out
            .ancestors()
            .nth(4)
            .unwrap_or(Path::new("target"))
            .join(OBJECT);
        println!("cargo::rerun-if-changed={}", target.display());
        return Err(format!(
            "no eBPF object at {}: run `cargo xtask build-ebpf`, or build with \
             `--features without-ebpf` for an agent without eBPF",
            target.display()
        ));
    };
    println!("cargo::rerun-if-changed={}", object.display());
    println!(
        "cargo::rustc-env=NODEPULSE_EBPF_OBJECT={}",
        object.display()
    );
    Ok(())
}
