//! The stages, in the order in which they fail most cheaply.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::libtest::{self, Counts};
use crate::dist::{self, CheckResult};
use crate::repo::{Repo, command, run};
use crate::skips::{NO_CLUSTER, Skip};
use crate::{bench, build_ebpf, run as xtask_run, setup, tidy, vm};

/// Names a kubeconfig of an administrator of a real API server.
const ADMIN: &str = "NODEPULSE_E2E_KUBECONFIG";

/// A test target, and the beginning of the names of those of its tests that are in one module.
type Module = (&'static str, &'static str);

const HOSTILE_DAY: Module = ("simulated", "hostile_day::");

/// Its tests load the release build, for the duration of the stage `hostile`.
const HOSTILE_MACHINE: Module = (KERNEL, "hostile_machine::");

/// The tests that change the kernel of this machine.
const KERNEL: &str = "kernel";

pub struct Stage {
    pub name: &'static str,
    budget_seconds: u64,
    /// Names of stages that must have succeeded.
    pub needs: &'static [&'static str],
    /// Runs only with `--all`, or if the command line names it.
    pub only_all: bool,
    pub run: fn(&Repo) -> Result<StageOutcome>,
    /// What runs instead if the command line names the stage.
    pub run_if_named: fn(&Repo) -> Result<StageOutcome>,
    /// What runs instead with `--all`.
    pub run_all: fn(&Repo) -> Result<StageOutcome>,
}

/// What a stage that could run found.
#[derive(Default)]
pub struct StageOutcome {
    pub counts: Counts,
    pub failure: Option<String>,
    /// Tests and checks that could not run: part of `counts`.
    pub skips: Vec<Skip>,
}

/// The budgets are for two slow cores with nothing built yet; all of them together are well under
/// the limit. They are for comparison: a run fails only if all of it takes too long.
pub const STAGES: &[Stage] = &[
    stage("setup", 450, &[], |repo| {
        setup::TEST.announce(repo)?;
        done(setup::for_tests(repo))
    }),
    stage("fmt", 30, &["setup"], fmt),
    stage("tidy", 60, &[], |_| tidy()),
    stage("build-ebpf", 60, &["setup"], |repo| {
        done(build_ebpf::object(repo, "").map(drop))
    }),
    stage("clippy", 330, &["build-ebpf"], clippy),
    Stage {
        only_all: true,
        ..stage("clippy-ebpf", 60, &["build-ebpf"], clippy_ebpf)
    },
    stage("build", 540, &["build-ebpf"], build),
    stage("test", 240, &["build"], test),
    Stage {
        only_all: true,
        ..stage("doc", 90, &["build-ebpf"], doc)
    },
    stage("kernel", 210, &["build"], kernel),
    Stage {
        run_all: |repo| {
            setup::alarms(repo)?;
            alarms(repo, &["--all"])
        },
        ..stage("alarms", 180, &["build"], |repo| alarms(repo, &[]))
    },
    Stage {
        run_if_named: |repo| vm(repo, &vm::Choice::Ends, &vm::BOOTS),
        run_all: |repo| vm(repo, &vm::Choice::All, &vm::BOOTS),
        ..stage("vm", 240, &["build"], oldest_and_release)
    },
    stage("cluster", 60, &["build"], cluster),
    stage("overhead", 540, &["build-ebpf"], overhead),
    stage("packages", 60, &["build"], packages),
    Stage {
        run_if_named: hostile_day,
        run_all: hostile_day,
        ..stage("hostile", 480, &["build"], |repo| {
            hostile(repo, "60", &[HOSTILE_MACHINE])
        })
    },
];

const fn stage(
    name: &'static str,
    budget_seconds: u64,
    needs: &'static [&'static str],
    run: fn(&Repo) -> Result<StageOutcome>,
) -> Stage {
    Stage {
        name,
        budget_seconds,
        needs,
        only_all: false,
        run,
        run_if_named: run,
        run_all: run,
    }
}

/// As the command line takes them.
pub fn names() -> Vec<&'static str> {
    STAGES.iter().map(|stage| stage.name).collect()
}

impl Stage {
    pub fn budget(&self) -> Duration {
        Duration::from_secs(self.budget_seconds)
    }
}

fn done(result: Result<()>) -> Result<StageOutcome> {
    result.map(|()| StageOutcome::default())
}

fn fmt(repo: &Repo) -> Result<StageOutcome> {
    done(run(repo.cargo().args(["fmt", "--all", "--check"])))
}

fn tidy() -> Result<StageOutcome> {
    let broken = tidy::report(true)?;
    let failure = (broken > 0).then(|| format!("{broken} rules of the layout are broken"));
    Ok(StageOutcome {
        failure,
        ..StageOutcome::default()
    })
}

fn clippy(repo: &Repo) -> Result<StageOutcome> {
    // `--all-targets` leaves out what is not tested by default.
    for targets in [&["--all-targets"][..], &["--test", KERNEL]] {
        let mut clippy = repo.workspace("clippy");
        run(clippy.args(targets).args(["--", "-D", "warnings"]))?;
    }
    Ok(StageOutcome::default())
}

fn clippy_ebpf(repo: &Repo) -> Result<StageOutcome> {
    done(run(
        build_ebpf::cargo(repo, "clippy", build_ebpf::TESTING)?.args(["--", "-D", "warnings"])
    ))
}

/// Also the programs that end-to-end tests start: `cargo test` alone leaves out the agent's.
fn build(repo: &Repo) -> Result<StageOutcome> {
    done(run(repo.workspace("build").arg("--all-targets")))
}

fn test(repo: &Repo) -> Result<StageOutcome> {
    // Scenarios of `cluster` run on the embedded server here, even if a real one is configured.
    let mut test = repo.workspace("test");
    libtest::run(test.arg("--no-fail-fast").env_remove(ADMIN))
}

fn doc(repo: &Repo) -> Result<StageOutcome> {
    let mut doc = repo.workspace("doc");
    // What is private is documented for those who change it.
    doc.args(["--no-deps", "--document-private-items"]);
    done(run(doc.env("RUSTDOCFLAGS", "-D warnings")))
}

fn kernel(repo: &Repo) -> Result<StageOutcome> {
    can_load_programs()?;
    build_ebpf::object(repo, build_ebpf::TESTING)?;
    let mut test = repo.workspace("test");
    test.args(["--test", KERNEL, "--", "--test-threads=1", "--nocapture"]);
    let (_, module) = HOSTILE_MACHINE;
    libtest::run(test.args(["--skip", module]))
}

/// Real workloads on this machine, and the conditions that they set. The record is
/// `target/alarms.md`.
fn alarms(repo: &Repo, further: &[&str]) -> Result<StageOutcome> {
    can_load_programs()?;
    let mut suite = command(repo.target_dir.join("debug/alarms"));
    suite.arg("--record").arg(repo.target_dir.join("alarms.md"));
    libtest::run(suite.args(further))
}

/// The scenarios and what is shipped, on a real API server, if its kubeconfig is given.
fn cluster(repo: &Repo) -> Result<StageOutcome> {
    if std::env::var_os(ADMIN).is_none() {
        let why = format!("{NO_CLUSTER}: {ADMIN} names no administrator's kubeconfig");
        return Err(CannotRunHere(why).into());
    }
    let mut test = repo.workspace("test");
    test.args(["--test", "cluster", "--", "--include-ignored"]);
    libtest::run(&mut test)
}

fn vm(repo: &Repo, choice: &vm::Choice<'_>, boots: &[vm::Boot]) -> Result<StageOutcome> {
    setup::vm(repo).map_err(|err| CannotRunHere(format!("{err:#}")))?;
    let reports = vm::reports(repo, choice, boots)?;
    println!("\n{}", vm::table(&reports));
    let failures = vm::failures(&reports);
    Ok(StageOutcome {
        counts: vm::counts(&reports),
        failure: (!failures.is_empty()).then(|| failures.join("; ")),
        skips: vm::skips(&reports),
    })
}

/// The oldest kernel, while the release build of the later stages runs: most of either takes one
/// processor.
fn oldest_and_release(repo: &Repo) -> Result<StageOutcome> {
    std::thread::scope(|scope| {
        // Its error is that of the stage `overhead`, which builds again.
        scope.spawn(|| xtask_run::agent(repo).map(drop));
        vm(repo, &vm::Choice::Oldest, &vm::BOOTS[..1])
    })
}

/// The release binary against those gates of its budget that any machine can judge.
fn overhead(repo: &Repo) -> Result<StageOutcome> {
    let over = bench::gates(repo)?;
    Ok(StageOutcome {
        failure: (!over.is_empty()).then(|| format!("over budget: {}", over.join("; "))),
        ..StageOutcome::default()
    })
}

/// Packages of the release binary, if an earlier stage built it.
fn packages(repo: &Repo) -> Result<StageOutcome> {
    let mut outcome = StageOutcome::default();
    let mut failed = Vec::new();
    for check in dist::check(repo)? {
        match check.result {
            CheckResult::Ok => outcome.counts.passed += 1,
            CheckResult::Failed(why) => {
                outcome.counts.failed += 1;
                failed.push(format!("{}: {why}", check.name));
            }
            CheckResult::Skipped(why) => {
                outcome.counts.skipped += 1;
                outcome.skips.push(Skip::new(check.name, why));
            }
        }
    }
    outcome.failure = (!failed.is_empty()).then(|| failed.join("; "));
    Ok(outcome)
}

fn hostile_day(repo: &Repo) -> Result<StageOutcome> {
    hostile(repo, "600", &[HOSTILE_DAY, HOSTILE_MACHINE])
}

/// The release binary while everything around it fails for `seconds`.
fn hostile(repo: &Repo, seconds: &str, modules: &[Module]) -> Result<StageOutcome> {
    const SECONDS: &str = "NODEPULSE_HOSTILE_SECONDS";
    can_load_programs()?;
    let program = xtask_run::agent(repo)?;
    let mut test = repo.workspace("test");
    for (target, _) in modules {
        test.args(["--test", target]);
    }
    test.env("NODEPULSE_HOSTILE_PROGRAM", program);
    if std::env::var_os(SECONDS).is_none() {
        test.env(SECONDS, seconds);
    }
    test.args(["--", "--nocapture"]);
    libtest::run(test.args(modules.iter().map(|(_, module)| module)))
}

/// An error for a stage that this machine cannot run.
#[derive(Debug)]
pub struct CannotRunHere(String);

impl fmt::Display for CannotRunHere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CannotRunHere {}

fn can_load_programs() -> Result<(), CannotRunHere> {
    const BTF: &str = "/sys/kernel/btf/vmlinux";
    if !Path::new(BTF).exists() {
        return Err(CannotRunHere(format!(
            "no {BTF}: this kernel has no type information"
        )));
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !may_load(&status) {
        let reason = "not allowed to load programs: run as root, or with CAP_BPF and CAP_PERFMON";
        return Err(CannotRunHere(reason.to_owned()));
    }
    Ok(())
}

/// From the text of `/proc/self/status`.
fn may_load(status: &str) -> bool {
    /// Numbers of `linux/capability.h`.
    const SYS_ADMIN: u64 = 1 << 21;
    const PERFMON_AND_BPF: u64 = 1 << 38 | 1 << 39;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    effective.is_some_and(|e| e & SYS_ADMIN != 0 || e & PERFMON_AND_BPF == PERFMON_AND_BPF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modules_of_the_stages_exist() {
        let tests = crate::repo::root().join("tests/tests");
        // libtest succeeds if no test has such a name.
        for (target, module) in [HOSTILE_DAY, HOSTILE_MACHINE] {
            let file = module.replace("::", ".rs");
            let path = tests.join(target).join(file);
            assert!(path.is_file(), "{}", path.display());
        }
    }

    #[test]
    fn loading_programs_takes_cap_sys_admin_or_cap_bpf_with_cap_perfmon() {
        let table = [
            ("000001ffffffffff", true, "root"),
            ("0000000000200000", true, "CAP_SYS_ADMIN"),
            ("000000c000000000", true, "CAP_BPF and CAP_PERFMON"),
            ("0000008000000000", false, "CAP_BPF alone"),
            ("00000000a80425fb", false, "root of an ordinary container"),
            ("", false, "not to be read"),
        ];
        for (mask, expected, user) in table {
            let status = format!("Name:\tx\nCapPrm:\tffffffffffffffff\nCapEff:\t{mask}\n");
            assert_eq!(may_load(&status), expected, "{user}");
        }
    }
}
