//! Runs the parsers with input from libFuzzer: `tests/fuzz`, one program for each target.
//!
//! The stored inputs are in `tests/fuzz/corpus/<target>`; new ones, and inputs that crash, are
//! below the target directory.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::repo::{Repo, command, run};
use crate::{build_ebpf, files, setup};

/// The flags of cargo-fuzz without a sanitizer: the parsers forbid unsafe code, and the profile
/// turns overflows and debug assertions into panics. Coverage needs no unstable flag.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
     -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares";

/// An explicit target, so that the flags do not apply to build scripts.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Maximum size of an input: a page, which exceeds every record, name and line that is parsed.
const MAX_LEN: u32 = 4096;
/// Seconds after which an input counts as a crash.
const TIMEOUT: u32 = 10;

#[derive(clap::Args)]
pub struct Args {
    /// How long each target runs.
    #[arg(long, default_value_t = 180)]
    seconds: u64,
    /// Only these; by default, all
    targets: Vec<String>,
}

pub fn main(args: &Args) -> Result<ExitCode> {
    let repo = Repo::find()?;
    let package = repo.root.join("tests/fuzz");
    let targets = chosen(&args.targets, &known(&package)?)?;
    setup::all(&repo)?;
    // The agent's build script needs the object.
    build_ebpf::object(&repo, "")?;
    let programs = build(&repo, &package)?;
    let mut lines = Vec::new();
    let mut crashed = false;
    for target in &targets {
        eprintln!("fuzz: {target} for {} s", args.seconds);
        let report = one(&repo, &package, &programs, target, args.seconds)?;
        crashed |= !report.good;
        lines.push(format!("| {target} | {} |", report.cells()));
    }
    println!("| target | inputs tried | edges | features | result |");
    println!("| --- | ---: | ---: | ---: | --- |");
    println!("{}", lines.join("\n"));
    Ok(ExitCode::from(u8::from(crashed)))
}

/// Lists the targets, one for each program in the package.
fn known(package: &Path) -> Result<Vec<String>> {
    let programs = files::entries(&package.join("src/bin"))?;
    let stem = |path: &PathBuf| Some(path.file_stem()?.to_string_lossy().into_owned());
    Ok(programs.iter().filter_map(stem).collect())
}

fn chosen(asked: &[String], known: &[String]) -> Result<Vec<String>> {
    if let Some(unknown) = asked.iter().find(|name| !known.contains(name)) {
        bail!("no target {unknown}; there are {}", known.join(", "));
    }
    let all = asked.is_empty();
    let wanted = |name: &&String| all || asked.contains(name);
    Ok(known.iter().filter(wanted).cloned().collect())
}

/// Builds all targets, and returns their directory.
fn build(repo: &Repo, package: &Path) -> Result<PathBuf> {
    // The locked versions are those that are shipped; libFuzzer is added to them.
    std::fs::copy(repo.root.join("Cargo.lock"), package.join("Cargo.lock"))
        .context("cannot copy Cargo.lock")?;
    eprintln!("build: tests/fuzz (several minutes the first time)");
    let directory = repo.target_dir.join("fuzz");
    let mut cargo = repo.cargo();
    cargo
        .current_dir(package)
        .args(["build", "--release", "--bins", "--target", TARGET])
        .arg("--target-dir")
        .arg(&directory)
        .env("RUSTFLAGS", FLAGS)
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    run(&mut cargo)?;
    Ok(directory.join(TARGET).join("release"))
}

#[derive(Debug, Default, PartialEq, Eq)]
struct FuzzReport {
    good: bool,
    tried: u64,
    edges: u64,
    features: u64,
    /// The path of the input that failed.
    input: Option<String>,
}

fn one(
    repo: &Repo,
    package: &Path,
    programs: &Path,
    target: &str,
    seconds: u64,
) -> Result<FuzzReport> {
    let found = repo.target_dir.join("fuzz/corpus").join(target);
    let crashes = repo.target_dir.join("fuzz/crashes").join(target);
    for dir in [&found, &crashes] {
        files::create_dir(dir)?;
    }
    let mut fuzz: Command = command(programs.join(target));
    fuzz.arg(&found)
        .arg(package.join("corpus").join(target))
        .arg(format!("-artifact_prefix={}/", crashes.display()))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={MAX_LEN}"))
        .arg(format!("-timeout={TIMEOUT}"))
        .arg("-print_final_stats=1")
        .stderr(Stdio::piped());
    let ended = fuzz
        .output()
        .with_context(|| format!("cannot start {target}"))?;
    let printed = String::from_utf8_lossy(&ended.stderr);
    let report = FuzzReport {
        good: ended.status.success(),
        ..read(&printed)
    };
    if !report.good {
        eprintln!("{printed}");
    }
    Ok(report)
}

/// Parses libFuzzer's lines: `#12 DONE   cov: 34 ft: 56 …`, `stat::number_of_executed_units: 12`.
fn read(printed: &str) -> FuzzReport {
    let mut report = FuzzReport::default();
    for line in printed.lines() {
        let behind = |name: &str| {
            let mut words = line.split_whitespace().skip_while(|found| *found != name);
            words.nth(1).and_then(|number| number.parse().ok())
        };
        report.edges = behind("cov:").unwrap_or(report.edges);
        report.features = behind("ft:").unwrap_or(report.features);
        report.tried = behind("stat::number_of_executed_units:").unwrap_or(report.tried);
        if let Some((_, path)) = line.split_once("Test unit written to ") {
            report.input = Some(path.trim().to_owned());
        }
    }
    report
}

impl FuzzReport {
    fn cells(&self) -> String {
        let result = match (&self.input, self.good) {
            (_, true) => "no crash",
            (Some(input), false) => input,
            (None, false) => "failed",
        };
        let Self {
            tried,
            edges,
            features,
            ..
        } = self;
        format!("{tried} | {edges} | {features} | {result}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_each_kind_counts() {
        let printed = "INFO: seed corpus: files: 3\n#4\tINITED cov: 5 ft: 6 corp: 1/1b\n\
             #99\tDONE   cov: 70 ft: 80 corp: 9/99b lim: 4096 exec/s: 3\n\
             stat::number_of_executed_units: 99\n\
             artifact_prefix='/a/'; Test unit written to /a/crash-1\n";
        let expected = FuzzReport {
            good: false,
            tried: 99,
            edges: 70,
            features: 80,
            input: Some("/a/crash-1".to_owned()),
        };
        assert_eq!(read(printed), expected);
        assert_eq!(expected.cells(), "99 | 70 | 80 | /a/crash-1");
    }

    #[test]
    fn targets_are_named_or_all() {
        let known = ["a", "b"].map(str::to_owned);
        assert_eq!(chosen(&[], &known).unwrap(), known);
        assert_eq!(chosen(&["b".to_owned()], &known).unwrap(), ["b"]);
        let err = chosen(&["c".to_owned()], &known).unwrap_err();
        assert_eq!(err.to_string(), "no target c; there are a, b");
    }
}
