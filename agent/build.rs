//! Finds the eBPF object that `cargo xtask build-ebpf` wrote, and says what to run without it.

use std::env;
use std::path::{Path, PathBuf};

/// Below the target directory; the same for every profile of the agent.
const OBJECT: &str = "ebpf/bpfel-unknown-none/release/agent-ebpf";

fn main() -> Result<(), String> {
    println!("cargo::rerun-if-changed=build.rs");
    pack_relocations();
    if env::var_os("CARGO_FEATURE_WITHOUT_EBPF").is_some() {
        return Ok(());
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let places: Vec<PathBuf> = out
        .ancestors()
        .skip(1)
        .map(|dir| dir.join(OBJECT))
        .collect();
    let Some(object) = places.iter().find(|path| path.is_file()) else {
        // Look again once it is there: the target directory holds target/<profile>/build/<crate>/out.
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

/// The static binary is moved to a random address when it starts, and its 18,000 relocations are
/// 0.4 MiB of file and of resident memory as a table, but 10 KiB as a bitmap (`DT_RELR`). musl reads
/// it since 1.2.4; linkers that do not know it say so and go on.
fn pack_relocations() {
    let is = |key, value| env::var_os(key).is_some_and(|it| it == value);
    if is("CARGO_CFG_TARGET_ENV", "musl") && is("CARGO_CFG_TARGET_ARCH", "x86_64") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
