//! Builds the files of a release, in `dist/` in the target directory. The same commit and the same
//! toolchain give the same bytes. docs/releasing.md describes the files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};

use crate::archive::{self, File, gzip};
use crate::files::{self, sha256};
use crate::image;
use crate::image::bom::{self, Built};
use crate::image::layout::{self, Image};
use crate::linked::{Linked, linked};
use crate::repo::{Arch, Commit, MUSL_TARGET, Repo};
use crate::{build_ebpf, run, setup};

mod check;
mod contents;
mod deb;
mod licences;
mod release;
mod rpm;

pub use check::{CheckResult, packages as check};

struct Program {
    name: &'static str,
    /// The crate with the binary.
    package: &'static str,
    /// True if it runs on nodes: it is in the packages, and embeds the eBPF object.
    on_nodes: bool,
    in_image: bool,
}

/// Each program is also released as an archive. Exactly one is for nodes.
const PROGRAMS: &[Program] = &[
    Program {
        name: "nodepulse",
        package: "nodepulse",
        on_nodes: true,
        in_image: true,
    },
    Program {
        name: "kubectl-nodepulse",
        package: "kubectl-nodepulse",
        on_nodes: false,
        in_image: false,
    },
    Program {
        name: "nodepulse-replay",
        package: "nodepulse-replay",
        on_nodes: false,
        in_image: false,
    },
    Program {
        name: "nodepulse-simulate",
        package: "nodepulse-simulate",
        on_nodes: false,
        in_image: false,
    },
    Program {
        name: "nodepulse-top",
        package: "nodepulse-top",
        on_nodes: false,
        in_image: true,
    },
];

const MAINTAINER: &str = "nodepulse maintainers";
const HOMEPAGE: &str = "https://nodepulse.dev";
const SUMMARY: &str = "Kubernetes node agent that observes the kernel by eBPF";
const DESCRIPTION: &str = "\
nodepulse reports OOM kills, PID exhaustion and slow disks as Events and node
conditions, within milliseconds, from kernel events instead of polling.

It runs next to a kubelet, or on a node without one. It needs Linux 5.10 or
newer; without BTF it reads files instead of kernel events.";

/// Directory below the target directory.
const DIRECTORY: &str = "dist";

const CHART: &str = "deploy/helm/nodepulse";

#[derive(clap::Args)]
pub struct Args {
    /// Only these architectures
    #[arg(long, value_enum, default_values_t = [Arch::Amd64, Arch::Arm64])]
    arch: Vec<Arch>,
    /// The image's name, without a tag
    #[arg(long, default_value = image::NAME)]
    name: String,
    /// Directory of the results [default: dist/ in the target directory]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// First check that the checkout is a release: tag, clean tree, versions, changelog
    #[arg(long)]
    release: bool,
    /// Build only packages for amd64, of the binary that exists already, and check them
    #[arg(long, conflicts_with_all = ["arch", "release", "out"])]
    check: bool,
}

/// The data that all files of a release share.
pub struct Release {
    version: String,
    commit: Commit,
    /// Licences of everything that is linked.
    licences: String,
    /// The configuration file of the packages.
    config: String,
}

struct Binary {
    program: &'static Program,
    arch: Arch,
    bytes: Vec<u8>,
    crates: Vec<Linked>,
}

pub fn main(args: &Args) -> Result<ExitCode> {
    let repo = Repo::find()?;
    if args.check {
        return check::print(&repo);
    }
    if args.release {
        let faults = release::faults(&repo)?;
        for fault in &faults {
            eprintln!("dist: {fault}");
        }
        ensure!(faults.is_empty(), "this is not a release");
    }
    let binaries = build(&repo, &args.arch)?;
    let out = args.out.clone();
    let out = out.unwrap_or_else(|| repo.target_dir.join(DIRECTORY));
    let release = Release::new(&repo, &binaries)?;
    let mut results = files_of(&repo, &release, &binaries)?;
    let image = images(&repo, &args.name, &binaries, &release.licences)?;
    let stem = format!("nodepulse-{}", release.version);
    image::write(&out.join(format!("{stem}.oci")), &image)?;
    results.insert(format!("{stem}.oci.tar"), image.archive()?);
    let line = |(name, bytes): (&String, &Vec<u8>)| format!("{}  {name}\n", sha256(bytes));
    let sums: String = results.iter().map(line).collect();
    results.insert("SHA256SUMS".to_owned(), sums.into_bytes());
    for (name, bytes) in &results {
        files::write(&out.join(name), bytes)?;
    }
    eprintln!("dist: {}: image {}", out.display(), image.digest);
    println!("{}", out.display());
    Ok(ExitCode::SUCCESS)
}

/// Builds every program, and checks that those for nodes contain the eBPF object.
fn build(repo: &Repo, archs: &[Arch]) -> Result<Vec<Binary>> {
    setup::all(repo)?;
    let object = build_ebpf::object(repo, "")?;
    let object = files::read(&object)?;
    let mut binaries = Vec::new();
    for &arch in archs {
        for program in PROGRAMS {
            let file = run::release(repo, arch.target(), program.package, program.name)?;
            let binary = Binary::read(repo, program, arch, &file)?;
            if program.on_nodes && licences::find(&binary.bytes, &object).is_none() {
                let file = file.display();
                bail!("{file} does not contain the eBPF object that was just built");
            }
            eprintln!("dist: {}: {} bytes", file.display(), binary.bytes.len());
            binaries.push(binary);
        }
    }
    Ok(binaries)
}

impl Binary {
    fn read(repo: &Repo, program: &'static Program, arch: Arch, file: &Path) -> Result<Self> {
        let bytes = files::read(file)?;
        let crates = linked(repo, program.package, arch.target())?;
        let missing = licences::missing(&bytes, &crates);
        ensure!(
            missing.is_empty(),
            "{} contains crates without a licence: {}",
            file.display(),
            missing.join(", ")
        );
        Ok(Self {
            program,
            arch,
            bytes,
            crates,
        })
    }

    /// Reads the agent for amd64 from this file.
    fn agent(repo: &Repo, file: &Path) -> Result<Self> {
        let program = PROGRAMS.first().context("no program")?;
        Self::read(repo, program, Arch::Amd64, file)
    }

    /// Reads the release binary for amd64 if it exists, and otherwise the development binary.
    fn newest(repo: &Repo) -> Result<Self> {
        let release = repo.target_dir.join(MUSL_TARGET).join("release/nodepulse");
        let debug = repo.target_dir.join("debug/nodepulse");
        let file = if release.is_file() { release } else { debug };
        eprintln!("packages: of {}", file.display());
        Self::agent(repo, &file)
    }

    fn file(&self) -> File {
        File::new(self.program.name, 0o755, &*self.bytes)
    }
}

impl Release {
    fn new(repo: &Repo, binaries: &[Binary]) -> Result<Self> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let mut parts = Vec::new();
        for binary in binaries {
            for part in licences::parts(repo, &binary.crates, binary.arch.target())? {
                if !parts.contains(&part) {
                    parts.push(part);
                }
            }
        }
        Ok(Self {
            licences: licences::text(&format!("nodepulse {version}"), &parts),
            commit: repo.commit(),
            config: repo.read("deploy/packages/config.yaml")?,
            version,
        })
    }
}

/// The packages and the image of one static binary, for a virtual machine.
pub struct ForMachine {
    /// The deb.
    pub old: Vec<u8>,
    /// A deb of a later version with another configuration file.
    pub new: Vec<u8>,
    /// An archive of the agent's image.
    pub image: Vec<u8>,
}

/// Packs a binary for amd64.
pub fn for_machine(repo: &Repo, binary: &Path) -> Result<ForMachine> {
    let binary = Binary::agent(repo, binary)?;
    let mut release = Release::new(repo, std::slice::from_ref(&binary))?;
    let deb = |release: &Release| deb::package(repo, release, binary.arch, &binary.file());
    let old = deb(&release)?;
    release.version += ".upgraded";
    release.config += "# upgraded\n";
    let new = deb(&release)?;
    let image = images(repo, image::NAME, &[binary], &release.licences)?;
    let image = image.archive()?;
    Ok(ForMachine { old, new, image })
}

/// Returns all files of the release but the image, by file name.
fn files_of(
    repo: &Repo,
    release: &Release,
    binaries: &[Binary],
) -> Result<BTreeMap<String, Vec<u8>>> {
    let version = &release.version;
    let chart = chart(repo, &release.commit)?;
    let mut by_name = BTreeMap::from([
        (format!("nodepulse-{version}.tgz"), chart),
        (
            "THIRD-PARTY.txt".to_owned(),
            release.licences.clone().into(),
        ),
    ]);
    for binary in binaries {
        let (name, arch) = (binary.program.name, binary.arch);
        let stem = format!("{name}-{version}-linux-{}", arch.as_str());
        let bom = bom::text(&Built {
            name,
            version,
            target: arch.target(),
            rust: &repo.toolchain.channel,
            bytes: &binary.bytes,
            crates: &binary.crates,
        });
        by_name.insert(format!("{stem}.cdx.json"), bom.into_bytes());
        let archived = [
            binary.file(),
            File::new("LICENSE", 0o644, repo.read("LICENSE")?),
            File::new("THIRD-PARTY.txt", 0o644, &*release.licences),
        ];
        let archive = archive::tar(&archived, "", release.commit.epoch)?;
        by_name.insert(format!("{stem}.tar.gz"), gzip(&archive)?);
        if binary.program.on_nodes {
            by_name.extend(packages(repo, release, binary)?);
        }
    }
    Ok(by_name)
}

fn packages(repo: &Repo, release: &Release, binary: &Binary) -> Result<[(String, Vec<u8>); 2]> {
    let (program, arch) = (binary.file(), binary.arch);
    let deb = deb::package(repo, release, arch, &program)?;
    let rpm = rpm::package(repo, release, arch, &program)?;
    Ok([
        (deb::name(release, arch), deb),
        (rpm::name(release, arch), rpm),
    ])
}

/// Packs the Helm chart with the layout of `helm package`.
fn chart(repo: &Repo, commit: &Commit) -> Result<Vec<u8>> {
    let root = repo.root.join(CHART);
    let mut paths = Vec::new();
    walk(&root, &mut paths)?;
    paths.sort();
    let mut packed = Vec::new();
    for path in paths {
        let below = path.strip_prefix(&root)?.display().to_string();
        packed.push(File::new(below, 0o644, files::read(&path)?));
    }
    gzip(&archive::tar(&packed, "nodepulse/", commit.epoch)?)
}

fn walk(dir: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for path in files::entries(dir)? {
        match path.is_dir() {
            true => walk(&path, found)?,
            false => found.push(path),
        }
    }
    Ok(())
}

/// Builds one image for all architectures. It also contains the licences, which must accompany the
/// program.
fn images(repo: &Repo, name: &str, binaries: &[Binary], licences: &str) -> Result<layout::Blobs> {
    let mut layers: BTreeMap<&'static str, Vec<File>> = BTreeMap::new();
    for binary in binaries.iter().filter(|binary| binary.program.in_image) {
        let layer = layers.entry(binary.arch.as_str()).or_default();
        layer.push(binary.file());
    }
    for layer in layers.values_mut() {
        let licence = repo.read("LICENSE")?;
        layer.push(File::new("licenses/LICENSE", 0o644, licence));
        layer.push(File::new("licenses/THIRD-PARTY.txt", 0o644, licences));
    }
    let images: Vec<Image<'_>> = layers
        .iter()
        .map(|(arch, files)| Image { arch, files })
        .collect();
    layout::layout(&images, &image::about(repo, name))
}
