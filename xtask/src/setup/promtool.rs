//! Installs promtool, which evaluates the alerts in the tests.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::{Step, apt_get_command, cache, update_lists};
use crate::files;
use crate::repo::{command, on_path, run};

const PROGRAM: &str = "promtool";

/// Debian's package. Only the program is extracted, because an installed package starts a server.
const PACKAGE: &str = "prometheus";

const CURE: &str = "install promtool (part of Prometheus) with your package manager";

pub(super) fn step() -> Result<Step> {
    let file = dir()?.join(PROGRAM);
    Ok(Step {
        name: format!("{PROGRAM}, or {} (20 MiB of downloads)", file.display()),
        present: on_path(PROGRAM).is_some() || runs(&file),
        install: Box::new(|_| install()),
    })
}

/// Also defined in `tests/tests/shipped/alerts/promtool.rs`.
fn dir() -> Result<PathBuf> {
    Ok(cache()?.join("tools/promtool"))
}

fn runs(file: &Path) -> bool {
    let version = command(file).arg("--version").output();
    version.is_ok_and(|output| output.status.success())
}

fn install() -> Result<()> {
    if on_path("apt-get").is_none() || on_path("dpkg-deb").is_none() {
        bail!("apt-get or dpkg-deb is missing: {CURE}");
    }
    let dir = dir()?;
    let parts = dir.join("package");
    // An interrupted run may have left files.
    files::remove_dir(&parts)?;
    files::create_dir(&parts)?;
    if nix::unistd::geteuid().is_root() {
        update_lists();
    }
    let mut download = apt_get_command();
    download.args(["download", PACKAGE]).current_dir(&parts);
    run(&mut download).context(CURE)?;
    let deb = files::entries(&parts)?.pop().context(CURE)?;
    run(command("dpkg-deb").arg("-x").arg(&deb).arg(&parts))?;
    let program = parts.join("usr/bin").join(PROGRAM);
    files::rename(&program, &dir.join(PROGRAM))?;
    files::remove_dir(&parts)
}
