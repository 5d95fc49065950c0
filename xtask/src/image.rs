//! The container image: the static binary and nothing else, as an OCI layout, made without a daemon.
//! The same binary of the same commit gives the same bytes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::ValueEnum;

use crate::repo::{ARM64_TARGET, MUSL_TARGET, Repo, command, output};
use crate::run;

mod bom;
mod layout;

use layout::{About, Blobs};

/// What the chart and the manifests ask for.
const NAME: &str = "localhost/nodepulse";

#[derive(clap::Args)]
pub struct Args {
    /// Architecture of the image
    #[arg(long, value_enum, default_value_t = Arch::Amd64)]
    arch: Arch,
    /// The image's name, without a tag.
    #[arg(long, default_value = NAME)]
    name: String,
    /// Directory of the results [default: image/ in the target directory]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Pack this binary instead of building one.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// As images name it.
#[derive(Clone, Copy, ValueEnum)]
enum Arch {
    Amd64,
    Arm64,
}

impl Arch {
    fn as_str(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    fn target(self) -> &'static str {
        match self {
            Self::Amd64 => MUSL_TARGET,
            Self::Arm64 => ARM64_TARGET,
        }
    }
}

pub fn main(args: &Args) -> Result<ExitCode> {
    let repo = Repo::find()?;
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => run::agent_for(&repo, args.arch.target())?,
    };
    let program = fs::read(&binary).with_context(|| binary.display().to_string())?;
    let about = about(&repo, args)?;
    let out = args.out.clone();
    let out = out.unwrap_or_else(|| repo.target_dir.join("image"));
    let stem = format!("nodepulse-{}-{}", about.version, about.arch);

    let directory = out.join(&stem);
    let manifest = write(&directory, layout::image(&program, &about)?)?;
    let archive = out.join(format!("{stem}.oci.tar"));
    let file = File::create(&archive).with_context(|| archive.display().to_string())?;
    layout::archive(&directory, file)?;
    let bom = out.join(format!("{stem}.cdx.json"));
    let text = bom::text(&repo, args.arch.target(), &about.version, &program)?;
    fs::write(&bom, text).with_context(|| bom.display().to_string())?;

    eprintln!("image: {} {manifest}", about.reference());
    for path in [&directory, &archive, &bom] {
        println!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn about(repo: &Repo, args: &Args) -> Result<About> {
    let mut git = command("git");
    git.current_dir(&repo.root);
    // Of the commit, not of this moment: the same source is the same image.
    git.args(["log", "-1", "--format=%H %cI"]);
    let head = output(&mut git).unwrap_or_default();
    let (revision, created) = head.trim().split_once(' ').unwrap_or_default();
    Ok(About {
        name: args.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        arch: args.arch.as_str(),
        revision: revision.to_owned(),
        created: created.to_owned(),
    })
}

/// Replaces what an earlier run left; returns the manifest's digest.
fn write(directory: &Path, blobs: Blobs) -> Result<String> {
    if directory.exists() {
        fs::remove_dir_all(directory).with_context(|| directory.display().to_string())?;
    }
    for (path, bytes) in &blobs.files {
        let path = directory.join(path);
        let parent = path.parent().unwrap_or(directory);
        fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        fs::write(&path, bytes).with_context(|| path.display().to_string())?;
    }
    Ok(blobs.manifest)
}
