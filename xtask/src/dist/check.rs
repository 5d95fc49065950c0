//! Checks packages with the programs of the distributions.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};

use super::{Binary, Release, contents, packages as pack};
use crate::files;
use crate::repo::{Repo, command, on_path, output};

/// Maximum exposure by systemd's security analysis, in tenths: 0 is safe, 100 is not.
const EXPOSURE: u32 = 41;

/// Files of both packages, in addition to manual pages.
const FILES: &[&str] = &[
    "/etc/nodepulse/config.yaml",
    "/usr/bin/nodepulse",
    "/usr/lib/systemd/system/nodepulse.service",
    "/usr/share/bash-completion/completions/nodepulse",
    "/usr/share/doc/nodepulse/examples/node.yaml",
    "/usr/share/fish/vendor_completions.d/nodepulse.fish",
];

pub struct Check {
    pub name: &'static str,
    pub result: CheckResult,
}

pub enum CheckResult {
    Ok,
    Failed(String),
    /// The program is not installed.
    Skipped(String),
}

/// The packages of a binary, their files, and the unpacked deb.
struct Packed {
    deb: PathBuf,
    rpm: PathBuf,
    root: PathBuf,
    same: bool,
}

/// Packs the newest existing binary, and checks the packages.
pub fn packages(repo: &Repo) -> Result<Vec<Check>> {
    let packed = Packed::new(repo, &Binary::newest(repo)?)?;
    type Run = fn(&Packed) -> Result<()>;
    let checks: &[(&'static str, &str, Run)] = &[
        ("packages are reproducible", "true", |packed| {
            ensure!(packed.same, "packed twice, they differ");
            Ok(())
        }),
        ("contents of the deb", "dpkg-deb", deb),
        ("control files of the deb", "dpkg-deb", control),
        ("lintian", "lintian", lintian),
        ("contents of the rpm", "rpm", rpm),
        ("scripts and digests of the rpm", "rpm", rpm_scripts),
        ("shipped configuration", "true", config),
        ("systemd-analyze verify", "systemd-analyze", verify),
        ("systemd-analyze security", "systemd-analyze", security),
        ("scripts are for any shell", "sh", scripts),
    ];
    let run = checks.iter().map(|(name, needs, run)| Check {
        name,
        result: match on_path(needs) {
            None => CheckResult::Skipped(format!("{needs} is missing")),
            Some(_) => match run(&packed) {
                Ok(()) => CheckResult::Ok,
                Err(err) => CheckResult::Failed(format!("{err:#}")),
            },
        },
    });
    Ok(run.collect())
}

pub fn print(repo: &Repo) -> Result<ExitCode> {
    let mut failed = false;
    for Check { name, result } in packages(repo)? {
        match result {
            CheckResult::Ok => println!("ok       {name}"),
            CheckResult::Skipped(why) => println!("skipped  {name}: {why}"),
            CheckResult::Failed(why) => {
                failed = true;
                println!("FAILED   {name}: {why}");
            }
        }
    }
    Ok(ExitCode::from(u8::from(failed)))
}

impl Packed {
    fn new(repo: &Repo, binary: &Binary) -> Result<Self> {
        let dir = repo.target_dir.join("packages");
        files::remove_dir(&dir)?;
        let binaries = std::slice::from_ref(binary);
        let twice = [(); 2].map(|()| pack(repo, &Release::new(repo, binaries)?, binary));
        let [first, second] = twice;
        let first = first?;
        let same = first == second?;
        let [deb, rpm] = first.map(|(name, bytes)| {
            let file = dir.join(name);
            files::write(&file, bytes).map(|()| file)
        });
        let (deb, rpm) = (deb?, rpm?);
        let root = dir.join("root");
        if on_path("dpkg-deb").is_some() {
            output(command("dpkg-deb").arg("-x").arg(&deb).arg(&root))?;
        }
        Ok(Self {
            deb,
            rpm,
            root,
            same,
        })
    }
}

/// Checks that `listed` contains all of [`FILES`], a manual page, and `further`.
fn has_all(listed: &[&str], further: &[&str]) -> Result<()> {
    for path in FILES.iter().chain(further) {
        ensure!(listed.contains(path), "no {path}");
    }
    let page = |path: &&str| path.starts_with("/usr/share/man/man") && path.ends_with(".gz");
    ensure!(listed.iter().any(page), "no manual page");
    Ok(())
}

fn deb(packed: &Packed) -> Result<()> {
    let listed = output(command("dpkg-deb").arg("-c").arg(&packed.deb))?;
    let mut paths = Vec::new();
    for line in listed.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (Some(mode), Some(owner), Some(path)) = (words.first(), words.get(1), words.last())
        else {
            bail!("{line}");
        };
        ensure!(*owner == "0/0", "{line}");
        ensure!(!mode.contains('s') && !mode.ends_with("w-"), "{line}");
        let is_program = path.starts_with("./usr/bin/") && !path.ends_with('/');
        ensure!(
            mode.starts_with('d') || mode.contains('x') == is_program,
            "{line}"
        );
        paths.push(path.trim_start_matches('.'));
    }
    let further = [
        "/usr/share/doc/nodepulse/THIRD-PARTY.txt.gz",
        "/usr/share/doc/nodepulse/changelog.gz",
        "/usr/share/doc/nodepulse/copyright",
        "/usr/share/zsh/vendor-completions/_nodepulse",
    ];
    has_all(&paths, &further)
}

fn control(packed: &Packed) -> Result<()> {
    let field = |name: &str| {
        let value = output(command("dpkg-deb").arg("-f").arg(&packed.deb).arg(name))?;
        Ok::<String, anyhow::Error>(value.trim().to_owned())
    };
    ensure!(
        field("Architecture")? == "amd64",
        "{}",
        field("Architecture")?
    );
    let version = field("Version")?;
    ensure!(version.starts_with(env!("CARGO_PKG_VERSION")), "{version}");
    let mib = field("Installed-Size")?.parse::<u32>()? / 1024;
    ensure!(mib >= 6, "Installed-Size is {mib} MiB");
    let conffiles = command("dpkg-deb")
        .arg("-I")
        .arg(&packed.deb)
        .arg("conffiles")
        .output()?;
    let expected = format!("/{}\n", contents::CONFIG);
    ensure!(conffiles.stdout == expected.as_bytes(), "{conffiles:?}");
    Ok(())
}

fn lintian(packed: &Packed) -> Result<()> {
    let mut lintian = command("lintian");
    lintian.args(["--fail-on", "error", "--allow-root"]);
    lintian.args(["--tag-display-limit", "0"]);
    let done = lintian.arg(&packed.deb).output()?;
    let printed = String::from_utf8_lossy(&done.stdout);
    eprint!("{printed}");
    ensure!(done.status.success(), "{}", printed.trim());
    Ok(())
}

fn rpm_query(packed: &Packed, args: &[&str]) -> Result<String> {
    // A separate, empty database, since this machine may have none.
    let db = packed.root.with_file_name("rpmdb");
    let mut rpm = command("rpm");
    rpm.arg("--dbpath").arg(db);
    output(rpm.args(args).arg(&packed.rpm))
}

fn rpm(packed: &Packed) -> Result<()> {
    let listed = rpm_query(packed, &["-qlp"])?;
    let paths: Vec<&str> = listed.lines().collect();
    let further = [
        "/usr/share/licenses/nodepulse/LICENSE",
        "/usr/share/licenses/nodepulse/THIRD-PARTY.txt.gz",
        "/usr/share/zsh/site-functions/_nodepulse",
    ];
    has_all(&paths, &further)?;
    let config = rpm_query(packed, &["-qp", "--configfiles"])?;
    ensure!(
        config.trim() == format!("/{}", contents::CONFIG),
        "{config}"
    );
    let flags = "[%{FILENAMES} %{FILEFLAGS:fflags} %{FILEUSERNAME}:%{FILEGROUPNAME}\\n]";
    let flags = rpm_query(packed, &["-qp", "--queryformat", flags])?;
    // `n`: the package manager does not replace a changed file.
    let kept = format!("/{} cn root:root", contents::CONFIG);
    ensure!(flags.lines().any(|line| line == kept), "{flags}");
    ensure!(
        flags.lines().all(|line| line.ends_with(" root:root")),
        "{flags}"
    );
    Ok(())
}

fn rpm_scripts(packed: &Packed) -> Result<()> {
    let scripts = rpm_query(packed, &["-qp", "--scripts"])?;
    for expected in [
        "postinstall",
        "preuninstall",
        "postuninstall",
        "preset nodepulse.service",
    ] {
        ensure!(scripts.contains(expected), "no {expected} in {scripts}");
    }
    let arch = rpm_query(packed, &["-qp", "--queryformat", "%{ARCH} %{LICENSE}"])?;
    ensure!(arch == "x86_64 Apache-2.0", "{arch}");
    let digests = rpm_query(packed, &["--checksig", "--nosignature"])?;
    ensure!(digests.contains("digests OK"), "{digests}");
    Ok(())
}

fn config(packed: &Packed) -> Result<()> {
    let file = packed.root.join(contents::CONFIG);
    let mut validate = command(packed.root.join("usr/bin/nodepulse"));
    validate.args(["config", "validate", "--config"]);
    output(validate.arg(&file))?;
    Ok(())
}

fn unit(packed: &Packed) -> PathBuf {
    packed.root.join("usr/lib/systemd/system/nodepulse.service")
}

fn verify(packed: &Packed) -> Result<()> {
    // With another root, its dependencies would be missing.
    let text = files::text(&unit(packed))?;
    let program = packed.root.join("usr/bin/nodepulse");
    let here = packed.root.with_file_name("nodepulse.service");
    let text = text.replace("/usr/bin/nodepulse", &program.display().to_string());
    files::write(&here, text)?;
    let mut analyze = command("systemd-analyze");
    let done = analyze.args(["verify", "--man=no"]).arg(&here).output()?;
    let printed = String::from_utf8_lossy(&done.stderr);
    let of_unit: Vec<&str> = printed
        .lines()
        .filter(|line| line.contains("nodepulse"))
        .collect();
    ensure!(of_unit.is_empty(), "{}", of_unit.join("; "));
    ensure!(done.status.success(), "{printed}");
    Ok(())
}

fn security(packed: &Packed) -> Result<()> {
    let mut analyze = command("systemd-analyze");
    analyze.args(["security", "--offline=true", "--no-pager"]);
    analyze.arg(format!("--threshold={EXPOSURE}"));
    let done = analyze.arg(unit(packed)).output()?;
    let printed = String::from_utf8_lossy(&done.stdout);
    let level = printed
        .lines()
        .find(|line| line.contains("Overall exposure"));
    let level = level.with_context(|| printed.clone().into_owned())?;
    eprintln!("packages: {level}");
    ensure!(done.status.success(), "{level}; at most {EXPOSURE} tenths");
    Ok(())
}

fn scripts(packed: &Packed) -> Result<()> {
    let dir = packed.root.with_file_name("control");
    output(command("dpkg-deb").arg("-e").arg(&packed.deb).arg(&dir))?;
    for name in ["postinst", "prerm", "postrm"] {
        output(command("sh").arg("-n").arg(dir.join(name)))?;
    }
    Ok(())
}
