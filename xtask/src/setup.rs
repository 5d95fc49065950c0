//! Installs what the other commands need. Repeating it changes nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::files;
use crate::repo::{ARM64_TARGET, Repo, command, on_path, output, run};
use crate::vm::{disks, qemu};

mod cost;
pub mod helm;
mod promtool;

pub use cost::{DEMO, RELEASE, TEST};

/// The last minor version that uses the LLVM inside rustc: newer ones need a separate LLVM. Linker
/// and compiler need the same LLVM major version, so both are raised together.
const BPF_LINKER: &str = "0.10.4";

/// A program that must be on PATH, and its Debian package.
type Program = (&'static str, &'static str);

/// Links build scripts, and compiles ring.
const COMPILER: Program = ("cc", "gcc");

/// Compiles ring for the static agent.
const MUSL_COMPILER: Program = ("musl-gcc", "musl-tools");

/// Compiles ring for arm64, and links.
pub const ARM64_COMPILER: &str = "aarch64-linux-gnu-gcc";

/// The component that building the eBPF object requires.
const SOURCE: &str = "rust-src";

/// Programs that only `cargo xtask vm` needs.
const VM_PROGRAMS: &[Program] = &[
    (qemu::PROGRAM, "qemu-system-x86"),
    (disks::MAKE_EXT4, "e2fsprogs"),
    ("setpriv", "util-linux"),
];

/// Programs with which `cargo xtask test` reads packages.
const PACKAGE_PROGRAMS: &[Program] = &[("rpm", "rpm")];

/// Programs that only `cargo xtask test alarms --all` needs.
const ALARMS_PROGRAMS: &[Program] = &[("containerd", "containerd"), ("ctr", "containerd")];

/// Programs that the tests of completions and manual pages run.
const SHELL_PROGRAMS: &[Program] = &[
    ("zsh", "zsh"),
    ("fish", "fish"),
    ("man", "man-db"),
    ("mandoc", "mandoc"),
];

#[derive(clap::Args)]
pub struct Args {
    /// Only print what is installed; exit 1 if something is missing
    #[arg(long)]
    check: bool,
    /// Also install what `cargo xtask vm` needs
    #[arg(long)]
    vm: bool,
}

pub fn main(args: &Args) -> Result<ExitCode> {
    let repo = Repo::find()?;
    if !args.check {
        for_tests(&repo)?;
        if args.vm {
            vm(&repo)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut complete = true;
    let for_tests = test_steps()?.into_iter().map(|(step, _)| step);
    let for_vm = args.vm.then(|| packages(VM_PROGRAMS));
    for step in steps(&repo)?.into_iter().chain(for_tests).chain(for_vm) {
        complete &= step.present;
        let state = if step.present { "present" } else { "missing" };
        eprintln!("setup: {}: {state}", step.name);
    }
    Ok(ExitCode::from(u8::from(!complete)))
}

pub fn all(repo: &Repo) -> Result<()> {
    install(repo, steps(repo)?)
}

pub fn for_tests(repo: &Repo) -> Result<()> {
    all(repo)?;
    for (step, tests) in test_steps()? {
        if let Err(err) = install(repo, [step]) {
            eprintln!("{err:#}; tests of the {tests} will be skipped");
        }
    }
    Ok(())
}

/// Installs what a development build needs: not the musl target, its compiler, rustfmt and clippy.
pub fn development(repo: &Repo) -> Result<()> {
    let pinned = &repo.toolchain.channel;
    let components = [SOURCE.to_owned()];
    let source = missing(pinned, "component", &components)?;
    install(repo, [packages(&[COMPILER]), source, linker(repo)?])
}

pub fn arm64(repo: &Repo) -> Result<()> {
    let targets = [ARM64_TARGET.to_owned()];
    let target = missing(&repo.toolchain.channel, "target", &targets)?;
    // Without recommended packages, the compiler's package lacks the headers of the C library.
    let headers = ("aarch64-linux-gnu-gcc", "libc6-dev-arm64-cross");
    let compiler = packages(&[(ARM64_COMPILER, "gcc-aarch64-linux-gnu"), headers]);
    install(repo, [compiler, target])
}

pub fn vm(repo: &Repo) -> Result<()> {
    install(repo, [packages(VM_PROGRAMS)])
}

pub fn vm_packages(repo: &Repo) -> Result<()> {
    install(repo, [packages(&[("mmdebstrap", "mmdebstrap")])])
}

pub fn vm_arm64(repo: &Repo) -> Result<()> {
    let qemu = packages(&[(qemu::PROGRAM_ARM64, "qemu-system-arm")]);
    install(repo, [qemu])
}

/// Installs containerd, without which a workload of the full suite of false alarms is skipped.
pub fn alarms(repo: &Repo) -> Result<()> {
    install(repo, [packages(ALARMS_PROGRAMS)])
}

fn install(repo: &Repo, steps: impl IntoIterator<Item = Step>) -> Result<()> {
    for step in steps {
        if step.present {
            eprintln!("setup: {}: present", step.name);
            continue;
        }
        eprintln!("setup: {}: installing", step.name);
        let start = Instant::now();
        (step.install)(repo).with_context(|| format!("setup: {}", step.name))?;
        eprintln!("setup: {}: installed in {:.0?}", step.name, start.elapsed());
    }
    Ok(())
}

/// Returns the path of the linker for this toolchain, which may not exist yet.
pub fn bpf_linker(repo: &Repo) -> Result<PathBuf> {
    Ok(bpf_linker_root(repo)?.join("bin/bpf-linker"))
}

struct Step {
    name: String,
    present: bool,
    install: Install,
}

type Install = Box<dyn FnOnce(&Repo) -> Result<()>>;

/// Returns what only tests need, and which of them are skipped without it.
fn test_steps() -> Result<[(Step, &'static str); 4]> {
    Ok([
        (promtool::step()?, "alerts"),
        (helm::step()?, "chart"),
        (packages(PACKAGE_PROGRAMS), "rpm package"),
        (packages(SHELL_PROGRAMS), "completions and manual pages"),
    ])
}

/// Returns the steps in the order of their dependencies.
fn steps(repo: &Repo) -> Result<Vec<Step>> {
    let pinned = &repo.toolchain;
    let channel = &pinned.channel;
    Ok(vec![
        packages(&[COMPILER, MUSL_COMPILER]),
        missing(channel, "component", &pinned.components)?,
        missing(channel, "target", &pinned.targets)?,
        linker(repo)?,
    ])
}

fn linker(repo: &Repo) -> Result<Step> {
    let linker = bpf_linker(repo)?;
    Ok(Step {
        name: format!(
            "bpf-linker {BPF_LINKER} in {} (compiled once: some minutes, 50 MiB)",
            linker.display()
        ),
        present: is_linker(&linker),
        install: Box::new(install_bpf_linker),
    })
}

fn missing_packages(programs: &[Program]) -> Vec<&'static str> {
    let missing = programs.iter().filter(|(name, _)| on_path(name).is_none());
    missing.map(|(_, package)| *package).collect()
}

/// Returns one step, which reports all missing packages at once if it may not install them.
fn packages(programs: &[Program]) -> Step {
    let missing = missing_packages(programs);
    let programs: Vec<_> = programs.iter().map(|(program, _)| *program).collect();
    Step {
        name: programs.join(", "),
        present: missing.is_empty(),
        install: Box::new(move |_| apt_get(&missing)),
    }
}

/// Finds what `rustup <kind> list` does not report as installed.
fn missing(channel: &str, kind: &'static str, wanted: &[String]) -> Result<Step> {
    let have = installed(channel, kind)?;
    let missing: Vec<String> = wanted
        .iter()
        .filter(|want| !have.iter().any(|have| names(have, want)))
        .cloned()
        .collect();
    Ok(Step {
        name: format!("Rust {channel} {kind} {}", wanted.join(", ")),
        present: missing.is_empty(),
        install: Box::new(move |repo| {
            let mut add = command("rustup");
            add.args([kind, "add", "--toolchain", &repo.toolchain.channel]);
            run(add.args(missing))
        }),
    })
}

/// Compares names: rustup lists `clippy-x86_64-unknown-linux-gnu` for the component `clippy`.
fn names(listed: &str, wanted: &str) -> bool {
    let rest = listed.strip_prefix(wanted);
    let hosts = ["-x86_64", "-aarch64"];
    let is_host = |rest: &str| hosts.iter().any(|host| rest.starts_with(host));
    rest.is_some_and(|rest| rest.is_empty() || is_host(rest))
}

fn installed(channel: &str, kind: &str) -> Result<Vec<String>> {
    if on_path("rustup").is_none() {
        bail!("rustup is not on PATH: install it from https://rustup.rs, then run this again");
    }
    let mut list = command("rustup");
    list.args([kind, "list", "--installed", "--toolchain", channel]);
    let listed = output(&mut list)
        .with_context(|| format!("install the toolchain: `rustup toolchain install {channel}`"))?;
    Ok(listed.lines().map(str::to_owned).collect())
}

fn apt_get(packages: &[&str]) -> Result<()> {
    let by_hand = format!(
        "install {0} with your package manager; on Debian and Ubuntu: sudo apt-get install {0}",
        packages.join(" ")
    );
    if on_path("apt-get").is_none() {
        bail!("apt-get is missing: {by_hand}");
    }
    if !nix::unistd::geteuid().is_root() {
        bail!("not root: {by_hand}");
    }
    update_lists();
    let mut install = apt_get_command();
    install
        .args(["install", "--no-install-recommends"])
        .args(packages);
    run(&mut install).context(by_hand)
}

fn apt_get_command() -> Command {
    let mut apt_get = command("apt-get");
    // Another process, such as an upgrade at boot, may have the lock.
    apt_get
        .args(["-y", "-q", "-o", "DPkg::Lock::Timeout=300"])
        .env("DEBIAN_FRONTEND", "noninteractive");
    apt_get
}

/// Updates lists that are old or absent; the failure of one mirror is not an error.
fn update_lists() {
    if let Err(err) = run(apt_get_command().arg("update")) {
        eprintln!("setup: {err:#}; continuing with the existing package lists");
    }
}

fn bpf_linker_root(repo: &Repo) -> Result<PathBuf> {
    let channel = &repo.toolchain.channel;
    Ok(cache()?.join(format!("tools/bpf-linker-{BPF_LINKER}-rust-{channel}")))
}

/// Returns a directory outside the checkout, so that all checkouts share the linker.
pub fn cache() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let base = set("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| Path::new(&home).join(".cache")));
    Ok(base
        .context("neither HOME nor XDG_CACHE_HOME is set: set one")?
        .join("nodepulse"))
}

fn is_linker(file: &Path) -> bool {
    let version = command(file).arg("--version").output();
    let is_wanted = |printed: &[u8]| printed.trim_ascii_end().ends_with(BPF_LINKER.as_bytes());
    version.is_ok_and(|output| is_wanted(&output.stdout))
}

fn install_bpf_linker(repo: &Repo) -> Result<()> {
    let root = bpf_linker_root(repo)?;
    files::create_dir(&root)?;
    let mut install = command("cargo");
    // A separate directory and target directory, so that no setting of this workspace applies.
    // `--force`, because a broken copy may exist.
    install.args(["install", "bpf-linker", "--version", BPF_LINKER]);
    install
        .args(["--locked", "--force", "--root"])
        .arg(&root)
        .current_dir(&root)
        .env("RUSTUP_TOOLCHAIN", &repo.toolchain.channel)
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTFLAGS");
    run(&mut install)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_is_listed_with_or_without_its_host() {
        let table = [
            ("clippy-x86_64-unknown-linux-gnu", "clippy", true),
            ("rust-src", "rust-src", true),
            ("rust-std-x86_64-unknown-linux-gnu", "rust", false),
            ("rustfmt-x86_64-unknown-linux-gnu", "clippy", false),
        ];
        for (listed, wanted, expected) in table {
            assert_eq!(names(listed, wanted), expected, "{listed} for {wanted}");
        }
    }
}
