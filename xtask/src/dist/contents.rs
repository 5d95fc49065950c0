//! Lists the files of the packages, which both formats share.

use anyhow::{Context as _, Result, ensure};

use super::Release;
use crate::archive::{File, gzip};
use crate::files;
use crate::repo::Repo;

/// The unit file, and the path of the program in it.
const UNIT: &str = "deploy/systemd/nodepulse.service";
const PROGRAM_OF_UNIT: &str = "/usr/local/bin/nodepulse";

/// The configuration file, which the package manager does not replace if it was changed.
pub const CONFIG: &str = "etc/nodepulse/config.yaml";

/// Directories that differ between the formats.
pub struct Places {
    pub zsh: &'static str,
    pub third_party: &'static str,
}

/// Returns the files of a package of `program`, whose name is in the names of its manual pages and
/// completions.
pub fn files(repo: &Repo, release: &Release, program: &File, places: &Places) -> Result<Vec<File>> {
    let name = &program.path;
    let mut files = vec![
        File::new(format!("usr/bin/{name}"), 0o755, &*program.bytes),
        text(CONFIG, release.config.as_str()),
        text(
            "usr/lib/systemd/system/nodepulse.service",
            unit(&repo.read(UNIT)?)?,
        ),
        text(
            format!("usr/share/bash-completion/completions/{name}"),
            repo.read(&format!("deploy/completions/{name}.bash"))?,
        ),
        text(
            format!("usr/share/fish/vendor_completions.d/{name}.fish"),
            repo.read(&format!("deploy/completions/{name}.fish"))?,
        ),
        text(
            format!("{}/_{name}", places.zsh),
            repo.read(&format!("deploy/completions/_{name}"))?,
        ),
        text(
            format!("usr/share/doc/{name}/examples/node.yaml"),
            repo.read("deploy/systemd/config.yaml")?,
        ),
        File::new(
            format!("{}/THIRD-PARTY.txt.gz", places.third_party),
            0o644,
            gzip(release.licences.as_bytes())?,
        ),
    ];
    files.extend(manual(repo, name)?);
    Ok(files)
}

fn text(path: impl Into<String>, text: impl Into<Vec<u8>>) -> File {
    File::new(path, 0o644, text)
}

/// Returns all manual pages of a program, each in its section, which is its suffix.
fn manual(repo: &Repo, name: &str) -> Result<Vec<File>> {
    let dir = repo.root.join("deploy/man");
    let mut pages = Vec::new();
    for path in files::entries(&dir)? {
        let page = path.file_name().unwrap_or_default().to_string_lossy();
        let Some((_, section)) = page.rsplit_once('.').filter(|_| page.starts_with(name)) else {
            continue;
        };
        let to = format!("usr/share/man/man{section}/{page}.gz");
        pages.push(File::new(to, 0o644, gzip(&files::read(&path)?)?));
    }
    ensure!(!pages.is_empty(), "no page of {name} in {}", dir.display());
    Ok(pages)
}

/// Changes the unit for the package: its program, and no instructions for a manual installation.
fn unit(unit: &str) -> Result<String> {
    let (_, unit) = unit
        .split_once("\n\n")
        .filter(|(head, _)| head.starts_with('#'))
        .with_context(|| format!("{UNIT} does not begin with a comment"))?;
    ensure!(
        unit.contains(PROGRAM_OF_UNIT),
        "{UNIT} does not start {PROGRAM_OF_UNIT}"
    );
    Ok(unit.replace(PROGRAM_OF_UNIT, "/usr/bin/nodepulse"))
}
