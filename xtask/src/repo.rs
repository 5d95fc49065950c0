//! Finds paths, and starts every child, such as `cargo`, with the same clean environment.
//!
//! Progress goes to standard error, so that standard output contains results only.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;

use crate::files;

/// The target of the shipped agent, which is one static file.
pub const MUSL_TARGET: &str = "x86_64-unknown-linux-musl";

/// The same for arm64, which requires a cross compiler.
pub const ARM64_TARGET: &str = "aarch64-unknown-linux-musl";

/// An architecture by its name in images and in Debian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Arch {
    Amd64,
    Arm64,
}

impl Arch {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    pub const fn target(self) -> &'static str {
        match self {
            Self::Amd64 => MUSL_TARGET,
            Self::Arm64 => ARM64_TARGET,
        }
    }
}

/// Variables that the outer `cargo` or users set, and that would change what a nested `cargo`
/// builds, or where.
const REMOVED: &[&str] = &[
    "CARGO",
    "CARGO_BUILD_TARGET",
    "CARGO_CRATE_NAME",
    "CARGO_MAKEFLAGS",
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_PATH",
    "CARGO_PRIMARY_PACKAGE",
    "MAKEFLAGS",
    "OUT_DIR",
    "RUSTC_BOOTSTRAP",
    "RUSTUP_TOOLCHAIN",
    "RUST_RECURSION_COUNT",
];

/// The checkout, and the toolchain that it pins.
pub struct Repo {
    /// The directory of the workspace's Cargo.toml.
    pub root: PathBuf,
    /// Absolute, after `CARGO_TARGET_DIR` and the configuration.
    pub target_dir: PathBuf,
    pub toolchain: Toolchain,
}

/// The commit that is checked out. Empty outside a checkout.
#[derive(Debug, Default, Clone)]
pub struct Commit {
    pub hash: String,
    /// RFC 3339.
    pub time: String,
    /// Seconds since 1970, for `SOURCE_DATE_EPOCH`.
    pub epoch: u64,
}

/// The contents of rust-toolchain.toml.
#[derive(Debug, PartialEq, Eq)]
pub struct Toolchain {
    pub channel: String,
    pub components: Vec<String>,
    pub targets: Vec<String>,
}

impl Repo {
    pub fn find() -> Result<Self> {
        let root = root();
        let file = root.join("rust-toolchain.toml");
        let text = files::text(&file)?;
        let toolchain = Toolchain::parse(&text).with_context(|| file.display().to_string())?;
        let target_dir = target_dir(&root)?;
        Ok(Self {
            root,
            target_dir,
            toolchain,
        })
    }

    pub fn commit(&self) -> Commit {
        let mut git = command("git");
        git.current_dir(&self.root);
        git.args(["log", "-1", "--format=%H %cI %ct"]);
        let printed = output(&mut git).unwrap_or_default();
        let mut words = printed.split_whitespace().map(str::to_owned);
        Commit {
            hash: words.next().unwrap_or_default(),
            time: words.next().unwrap_or_default(),
            epoch: words
                .next()
                .and_then(|word| word.parse().ok())
                .unwrap_or_default(),
        }
    }

    pub fn read(&self, path: &str) -> Result<String> {
        files::text(&self.root.join(path))
    }

    /// Returns `cargo` of the pinned toolchain, at the root, with this target directory.
    pub fn cargo(&self) -> Command {
        let mut cargo = command("cargo");
        cargo
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target_dir);
        cargo
    }

    /// Returns `cargo <verb>` for all packages but agent-ebpf, which only builds for the BPF
    /// target. The same set of packages everywhere resolves the same features, so that nothing is
    /// built twice.
    pub fn workspace(&self, verb: &str) -> Command {
        let mut cargo = self.cargo();
        cargo.args([verb, "--workspace", "--exclude", "agent-ebpf"]);
        cargo
    }
}

impl Toolchain {
    fn parse(text: &str) -> Result<Self> {
        let channel = toml_strings(text, "channel").into_iter().next();
        Ok(Self {
            channel: channel.context("names no `channel`")?,
            components: toml_strings(text, "components"),
            targets: toml_strings(text, "targets"),
        })
    }
}

/// Parses the strings of `key = "…"` or `key = ["…", …]`.
pub fn toml_strings(text: &str, key: &str) -> Vec<String> {
    let value = text
        .match_indices(key)
        .filter(|(at, _)| *at == 0 || text[..*at].ends_with('\n'))
        .find_map(|(at, _)| text[at + key.len()..].trim_start().strip_prefix('='));
    let Some(value) = value.map(str::trim_start) else {
        return Vec::new();
    };
    let end = if value.starts_with('[') { ']' } else { '\n' };
    let value = value.split(end).next().unwrap_or_default();
    value
        .split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// Returns the checkout of this xtask: from `cargo run`, otherwise from the path of the build,
/// which is wrong if a target directory was copied.
pub fn root() -> PathBuf {
    let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let xtask = manifest_dir
        .filter(|dir| dir.ends_with("xtask"))
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    xtask.parent().map_or(xtask.clone(), Path::to_owned)
}

fn target_dir(root: &Path) -> Result<PathBuf> {
    // Runs in the caller's directory, to which a relative CARGO_TARGET_DIR refers.
    let mut metadata = command("cargo");
    metadata
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .arg("--manifest-path")
        .arg(root.join("Cargo.toml"));
    let json: serde_json::Value = serde_json::from_str(&output(&mut metadata)?)
        .context("`cargo metadata` did not print JSON")?;
    json["target_directory"]
        .as_str()
        .map(PathBuf::from)
        .context("`cargo metadata` names no target_directory")
}

/// Returns a command without the variables that the outer `cargo run` has set.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    for name in REMOVED {
        command.env_remove(name);
    }
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|n| n.starts_with("CARGO_PKG_")) {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a command to its end, with its standard output on standard error.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command
        .stdout(io::stderr())
        .status()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !status.success() {
        bail!("`{}` failed with {status}", shown(command));
    }
    Ok(())
}

/// Runs a command, and returns its standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !output.status.success() {
        bail!("`{}` failed with {}", shown(command), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Formats the command line for a shell.
pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Finds the first `program` on PATH, or in Debian's directories that are only on root's PATH.
pub fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toolchain_file_gives_channel_components_and_targets() {
        let text = "[toolchain]\nchannel = \"1.2.3\"\ncomponents = [\n  \"a\",\n  \"b\",\n]\n\
                    targets = [\"t\"]\nprofile = \"minimal\"\n";
        let expected = Toolchain {
            channel: "1.2.3".to_owned(),
            components: vec!["a".to_owned(), "b".to_owned()],
            targets: vec!["t".to_owned()],
        };
        assert_eq!(Toolchain::parse(text).unwrap(), expected);
    }

    #[test]
    fn a_toolchain_file_without_a_channel_is_refused() {
        let err = Toolchain::parse("[toolchain]\nsubchannel = \"x\"\n").unwrap_err();
        assert_eq!(err.to_string(), "names no `channel`");
    }
}
