//! Builds the container image as an OCI layout, without a daemon: it contains only static binaries,
//! the agent and `nodepulse-top`. The same binaries of the same commit give the same bytes.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;

use crate::archive::File;
use crate::linked::linked;
use crate::repo::{Arch, Repo};
use crate::{files, run};

pub mod bom;
pub mod layout;

use bom::Built;
use layout::{About, Blobs, Image};

/// The live view, for `kubectl exec`.
const TOP: &str = "nodepulse-top";

/// The name in the chart and the manifests.
pub const NAME: &str = "localhost/nodepulse";

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
    /// Pack only this binary instead of building the agent and `nodepulse-top`.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

pub fn main(args: &Args) -> Result<ExitCode> {
    let repo = Repo::find()?;
    let (target, arch) = (args.arch.target(), args.arch.as_str());
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => run::agent_for(&repo, target)?,
    };
    let program = files::read(&binary)?;
    let top = args
        .binary
        .is_none()
        .then(|| run::release(&repo, target, TOP, TOP));
    let top = top.transpose()?;
    let about = about(&repo, &args.name);
    let out = args.out.clone();
    let out = out.unwrap_or_else(|| repo.target_dir.join("image"));
    let stem = format!("nodepulse-{}-{arch}", about.version);

    let bom = out.join(format!("{stem}.cdx.json"));
    let text = bom::text(&Built {
        name: "nodepulse",
        version: &about.version,
        target,
        rust: &repo.toolchain.channel,
        bytes: &program,
        crates: &linked(&repo, "nodepulse", target)?,
    });
    let mut layer = vec![File::new(layout::PROGRAM, 0o755, program)];
    if let Some(top) = top {
        layer.push(File::new(TOP, 0o755, files::read(&top)?));
    }
    let image = Image {
        arch,
        files: &layer,
    };
    let blobs = layout::layout(&[image], &about)?;
    let directory = out.join(&stem);
    write(&directory, &blobs)?;
    let archive = out.join(format!("{stem}.oci.tar"));
    files::write(&archive, blobs.archive()?)?;
    files::write(&bom, text)?;

    eprintln!("image: {} {}", about.reference(), blobs.digest);
    for path in [&directory, &archive, &bom] {
        println!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

pub fn about(repo: &Repo, name: &str) -> About {
    // The time is the commit's, so that the same source gives the same image.
    let commit = repo.commit();
    About {
        name: name.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        revision: commit.hash,
        created: commit.time,
    }
}

/// Writes the layout, and removes that of an earlier run.
pub fn write(directory: &Path, blobs: &Blobs) -> Result<()> {
    files::remove_dir(directory)?;
    for (path, bytes) in &blobs.files {
        files::write(&directory.join(path), bytes)?;
    }
    Ok(())
}
