//! Boots kernels of the matrix in virtual machines and runs the kernel tests in them. Each machine
//! gets a kernel, and an initramfs with the tests' PID 1.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::kernels::{self, Image, Kernel};
use crate::repo::{Arch, Repo, command, output, run};
use crate::run::cargo_for;
use crate::{build_ebpf, files, setup};

mod boots;
mod console;
pub mod disks;
mod features;
mod initramfs;
mod packages;
pub mod qemu;
mod qmp;
mod report;

use boots::{ALARMS, IDLE, KILLS, PACKAGES};
pub use boots::{BOOTS, Boot};
use console::Check;
use qemu::Machine;
pub use report::{counts, failures, skips, table};

/// A profile of the workspace's Cargo.toml.
const PROFILE: &str = "vm";

#[derive(clap::Args)]
pub struct Args {
    /// Kernels of xtask/kernels.toml; by default, the oldest that can be downloaded, and the newest
    kernels: Vec<String>,
    /// All kernels, each also with kills of every kind and the suite of false alarms; also write
    /// docs/kernels.md
    #[arg(long, conflicts_with = "kernels")]
    all: bool,
    /// Architecture of the kernels; for arm64, also write its part of docs/kernels.md
    #[arg(long, value_enum, default_value_t = Arch::Amd64, conflicts_with = "all")]
    arch: Arch,
    /// Only the deb on a Debian with systemd and logind; the journal is packages/journal.txt in the
    /// target directory
    #[arg(long, conflicts_with_all = ["all", "arch", "alarms"])]
    packages: bool,
    /// Only the suite of false alarms
    #[arg(long, conflicts_with = "all", group = "suite")]
    alarms: bool,
    /// Only kills of every kind: consequence, limit and QoS class
    #[arg(long, conflicts_with_all = ["all", "packages"], group = "suite")]
    kills: bool,
    /// Only an idle agent with the settings of the chart, and 110 pods
    #[arg(long, conflicts_with_all = ["all", "packages", "suite"])]
    idle: bool,
    /// Of these, only the workloads or kills whose names contain one of these
    #[arg(long, requires = "suite", value_name = "NAME,...")]
    workloads: Option<String>,
    /// Run this agent, and do not build one, for figures of the release binary
    #[arg(long, conflicts_with_all = ["all", "packages"])]
    agent: Option<PathBuf>,
}

pub enum Choice<'a> {
    All,
    /// The oldest kernel that can be downloaded.
    Oldest,
    /// The oldest kernel that can be downloaded, and the newest.
    Ends,
    Named(&'a [String]),
}

pub struct KernelReport {
    pub kernel: String,
    pub outcome: KernelOutcome,
}

pub enum KernelOutcome {
    /// The kernel cannot be downloaded.
    Skipped(String),
    /// One entry for each boot.
    Booted(Vec<BootReport>),
}

pub struct BootReport {
    /// Plan of the boot.
    plan: &'static str,
    /// Output of `uname -r`, or the package's version if the machine ended before.
    release: String,
    /// Time from the kernel's start to PID 1.
    boot: Duration,
    took: Duration,
    checks: Vec<Check>,
    note: Option<String>,
    /// The part of its journal that the machine printed.
    journal: String,
}

impl KernelReport {
    /// Returns the journal of the first boot, if that printed one.
    fn journal(&self) -> Option<&str> {
        let KernelOutcome::Booted(boots) = &self.outcome else {
            return None;
        };
        let journal = &boots.first()?.journal;
        (!journal.is_empty()).then_some(journal)
    }
}

pub fn main(args: &Args) -> Result<ExitCode> {
    let repo = Repo::find()?;
    setup::all(&repo)?;
    setup::vm(&repo)?;
    if args.packages {
        let reports = of_packages(&repo)?;
        println!("\n{}", table(&reports));
        return Ok(ExitCode::from(u8::from(counts(&reports).failed > 0)));
    }
    build_ebpf::object(&repo, "")?;
    let choice = match args.kernels.as_slice() {
        _ if args.all => Choice::All,
        [] if args.arch == Arch::Arm64 => Choice::All,
        [] => Choice::Ends,
        named => Choice::Named(named),
    };
    let [alarms, kills] = [&ALARMS, &KILLS].map(|boot| Boot {
        workloads: args.workloads.clone().unwrap_or_default(),
        ..boot.clone()
    });
    let idle = Boot {
        workloads: "idle".to_owned(),
        ..IDLE.clone()
    };
    let boots: Vec<&Boot> = if args.alarms {
        vec![&alarms]
    } else if args.idle {
        vec![&idle]
    } else if args.kills {
        vec![&kills]
    } else if args.all {
        BOOTS.iter().chain([&kills, &alarms]).collect()
    } else {
        BOOTS.iter().collect()
    };
    let reports = booted(&repo, args.arch, &choice, &boots, args.agent.as_deref())?;
    println!("\n{}", table(&reports));
    let mut failed = counts(&reports).failed;
    if args.all {
        let packages = of_packages(&repo)?;
        println!("{}", table(&packages));
        failed += counts(&packages).failed;
    }
    let command = match args.arch {
        Arch::Arm64 if !args.alarms && !args.kills && !args.idle => {
            Some("cargo xtask vm --arch arm64")
        }
        _ => args.all.then_some("cargo xtask vm --all"),
    };
    if let Some(command) = command {
        report::write(&repo.root.join("docs/kernels.md"), command, &reports)?;
    }
    let ran = report::booted(&reports) > 0;
    if !ran {
        eprintln!("vm: no kernel could be downloaded");
    }
    Ok(ExitCode::from(u8::from(!ran || failed > 0)))
}

/// Boots the chosen kernels with the programs that the tests of this machine use.
pub fn reports(repo: &Repo, choice: &Choice<'_>, boots: &[Boot]) -> Result<Vec<KernelReport>> {
    let boots: Vec<_> = boots.iter().collect();
    let archive = initramfs::pack(&debug_programs(repo)?);
    of_archive(repo, Arch::Amd64, choice, &boots, &archive)
}

/// Boots the machine that tests the packages.
fn of_packages(repo: &Repo) -> Result<Vec<KernelReport>> {
    setup::vm_packages(repo)?;
    build_ebpf::object(repo, "")?;
    let kernels = [packages::KERNEL.to_owned()];
    let target = Arch::Amd64.target();
    let programs = programs(repo, target, &packages::PROGRAMS)?;
    let agent = built(repo, target, &["nodepulse"])?.join("nodepulse");
    let mut matrix = kernels::matrix(repo, Arch::Amd64)?.into_iter();
    let kernel = matrix.find(|kernel| kernel.name == packages::KERNEL);
    // A kernel that cannot be downloaded is in the reports.
    let dm_mod = kernel.and_then(|kernel| kernel.fetch().ok()?.dm_mod);
    let archive = packages::archive(repo, &agent, programs, dm_mod.as_deref())?;
    let boots = [&PACKAGES];
    let reports = of_archive(
        repo,
        Arch::Amd64,
        &Choice::Named(&kernels),
        &boots,
        &archive,
    )?;
    let journal = repo.target_dir.join("packages/journal.txt");
    for text in reports.iter().filter_map(KernelReport::journal) {
        files::write(&journal, text)?;
        eprintln!("vm: journal of the packages: {}", journal.display());
    }
    Ok(reports)
}

/// Builds the programs, downloads and boots. A kernel that cannot be downloaded is in the reports.
fn booted(
    repo: &Repo,
    arch: Arch,
    choice: &Choice<'_>,
    boots: &[&Boot],
    agent: Option<&Path>,
) -> Result<Vec<KernelReport>> {
    if arch == Arch::Arm64 {
        setup::vm_arm64(repo)?;
    }
    let archive = archive(repo, arch.target(), agent)?;
    of_archive(repo, arch, choice, boots, &archive)
}

fn of_archive(
    repo: &Repo,
    arch: Arch,
    choice: &Choice<'_>,
    boots: &[&Boot],
    archive: &[u8],
) -> Result<Vec<KernelReport>> {
    let matrix = kernels::matrix(repo, arch)?;
    let work = Work::new()?;
    let initramfs = work.0.join("initramfs");
    files::write(&initramfs, archive)?;
    let mut reports = Vec::new();
    for (kernel, image) in fetched(&matrix, choice)? {
        let outcome = match image {
            Err(err) => {
                let why = format!("{err:#}");
                println!("SKIPPED vm {}: {why}", kernel.name);
                KernelOutcome::Skipped(why)
            }
            Ok(image) => {
                let boots = boots.iter();
                let machine = Machine {
                    arch,
                    vmlinuz: &image.vmlinuz,
                    initramfs: &initramfs,
                    dir: &work.0,
                };
                let ran = boots.map(|boot| ran(&kernel.name, boot, &image, &machine));
                KernelOutcome::Booted(ran.collect::<Result<_>>()?)
            }
        };
        reports.push(KernelReport {
            kernel: kernel.name.clone(),
            outcome,
        });
    }
    Ok(reports)
}

type Fetched<'a> = Vec<(&'a Kernel, Result<Image>)>;

fn fetched<'a>(matrix: &'a [Kernel], choice: &Choice<'_>) -> Result<Fetched<'a>> {
    let fetch = |kernel: &'a Kernel| (kernel, kernel.fetch());
    match choice {
        Choice::All => Ok(matrix.iter().map(fetch).collect()),
        Choice::Oldest => Ok(oldest(matrix, Kernel::fetch)),
        Choice::Ends => Ok(ends(matrix, Kernel::fetch)),
        Choice::Named(names) => names
            .iter()
            .map(|name| {
                let found = matrix.iter().find(|kernel| kernel.name == *name);
                match found {
                    Some(kernel) => Ok(fetch(kernel)),
                    None => {
                        let known: Vec<_> = matrix.iter().map(|k| k.name.as_str()).collect();
                        bail!("no kernel {name}: there are {}", known.join(", "))
                    }
                }
            })
            .collect(),
    }
}

/// Tries the kernels from the oldest on, until one can be downloaded.
fn oldest<T>(matrix: &[Kernel], fetch: impl Fn(&Kernel) -> Result<T>) -> Vec<(&Kernel, Result<T>)> {
    let mut tried = Vec::new();
    for kernel in matrix {
        let image = fetch(kernel);
        let found = image.is_ok();
        tried.push((kernel, image));
        if found {
            break;
        }
    }
    tried
}

/// Returns the oldest kernel that can be downloaded, and the last of the matrix.
fn ends<T>(matrix: &[Kernel], fetch: impl Fn(&Kernel) -> Result<T>) -> Vec<(&Kernel, Result<T>)> {
    let Some((newest, older)) = matrix.split_last() else {
        return Vec::new();
    };
    let mut ends = oldest(older, &fetch);
    ends.push((newest, fetch(newest)));
    ends
}

/// Packs PID 1, `provoke` and the agent, which is built unless it is given.
fn archive(repo: &Repo, target: &str, agent: Option<&Path>) -> Result<Vec<u8>> {
    let agent = match agent {
        Some(agent) => agent.to_owned(),
        None => built(repo, target, &["nodepulse"])?.join("nodepulse"),
    };
    let mut programs = programs(repo, target, &["init", "provoke"])?;
    programs.push(("nodepulse", files::read(&agent)?));
    Ok(initramfs::pack(&programs))
}

/// Returns the programs of the debug build without their symbols, and the libraries that they load:
/// another build for a static target would take minutes.
fn debug_programs(repo: &Repo) -> Result<Vec<(String, Vec<u8>)>> {
    run(repo.workspace("build").arg("--all-targets"))?;
    let directory = repo.target_dir.join("vm");
    files::create_dir(&directory)?;
    let (mut packed, mut libraries) = (Vec::new(), BTreeSet::new());
    for name in ["init", "provoke", "nodepulse"] {
        let (program, stripped) = (
            repo.target_dir.join("debug").join(name),
            directory.join(name),
        );
        run(command("strip").arg("-o").args([&stripped, &program]))?;
        packed.push((name.to_owned(), files::read(&stripped)?));
        let loaded = output(command("ldd").arg(&program))?;
        let paths = loaded
            .split_whitespace()
            .filter(|word| word.starts_with('/'));
        libraries.extend(paths.map(|path| path.trim_start_matches('/').to_owned()));
    }
    for library in libraries {
        let content = files::read(&Path::new("/").join(&library))?;
        packed.push((library, content));
    }
    Ok(packed)
}

/// Builds static programs, and reads them.
fn programs(
    repo: &Repo,
    target: &str,
    names: &[&'static str],
) -> Result<Vec<(&'static str, Vec<u8>)>> {
    let directory = built(repo, target, names)?;
    let read = |name: &&'static str| Ok((*name, files::read(&directory.join(name))?));
    names.iter().map(read).collect()
}

/// Builds static programs, and returns their directory.
fn built(repo: &Repo, target: &str, names: &[&str]) -> Result<PathBuf> {
    eprintln!(
        "build: {} for {target}, profile {PROFILE}",
        names.join(", ")
    );
    let mut build = cargo_for(repo, "build", target)?;
    build.args(["--profile", PROFILE]);
    for package in ["nodepulse-tests", "nodepulse", "kubectl-nodepulse"] {
        build.args(["--package", package]);
    }
    for name in names {
        build.args(["--bin", name]);
    }
    run(&mut build)?;
    Ok(repo.target_dir.join(target).join(PROFILE))
}

fn ran(name: &str, boot: &Boot, image: &Image, machine: &Machine<'_>) -> Result<BootReport> {
    let plan = boot.plan;
    eprintln!("\nvm: {name}, {plan}: {}", image.version);
    let start = Instant::now();
    let (console, why) = qemu::boot(boot, machine)?;
    let took = start.elapsed();
    if !console.done {
        eprintln!(
            "vm: {name}, {plan}: {why}; the last lines:\n{}",
            console.others()
        );
    }
    let (release, boot) = console
        .kernel
        .clone()
        .unwrap_or_else(|| (image.version.clone(), Duration::ZERO));
    Ok(BootReport {
        plan,
        release,
        boot,
        took,
        checks: console.checks(&why),
        journal: console.journal,
        note: image.note.clone(),
    })
}

/// Disks and initramfs; removed on drop.
struct Work(PathBuf);

impl Work {
    fn new() -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("nodepulse-vm-{}", std::process::id()));
        files::create_dir(&dir)?;
        Ok(Self(dir))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Err(err) = std::fs::remove_dir_all(&self.0) {
            eprintln!("vm: cannot remove {}: {err}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_the_matrix_are_the_oldest_to_be_had_and_the_newest() {
        let repo = Repo::find().unwrap();
        let matrix = kernels::matrix(&repo, Arch::Amd64).unwrap();
        let table: [(&[&str], &[&str], &str); 3] = [
            (&[], &["5.10", "newest"], "all can be had"),
            (
                &["5.10"],
                &["5.10", "5.10-final", "newest"],
                "the first cannot",
            ),
            (&["newest"], &["5.10", "newest"], "the last cannot"),
        ];
        for (missing, expected, why) in table {
            let fetch = |kernel: &Kernel| {
                if missing.contains(&kernel.name.as_str()) {
                    bail!("missing")
                }
                Ok(())
            };
            let found = ends(&matrix, fetch);
            let names: Vec<_> = found.iter().map(|(k, _)| k.name.as_str()).collect();
            assert_eq!(names, expected, "{why}");
        }
    }
}
