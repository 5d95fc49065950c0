//! Downloads the kernels of kernels.toml from Debian once, checks them against the signed index,
//! and stores them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use clap::ValueEnum as _;
use serde_json::{Value, json};

use crate::repo::{Arch, Repo, command, run, toml_strings};
use crate::{files, setup};

mod apt;
mod mirrors;

use apt::{Apt, Package};
use mirrors::Mirrors;

/// An entry of the matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    pub name: String,
    pub arch: Arch,
    suites: Vec<String>,
    /// The meta package.
    package: String,
}

/// A kernel that can be booted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub vmlinuz: PathBuf,
    /// The module of the device mapper, if the package has it: it is not in the kernel's image.
    pub dm_mod: Option<PathBuf>,
    /// Version of its package.
    pub version: String,
    /// A remark for the report, for instance that the mirror did not respond.
    pub note: Option<String>,
}

/// Returns the kernels of xtask/kernels.toml for this architecture, oldest first.
pub fn matrix(repo: &Repo, arch: Arch) -> Result<Vec<Kernel>> {
    const FILE: &str = "xtask/kernels.toml";
    let mut matrix = parse(&repo.read(FILE)?).context(FILE)?;
    matrix.retain(|kernel| kernel.arch == arch);
    Ok(matrix)
}

fn parse(text: &str) -> Result<Vec<Kernel>> {
    let tables = text.split("[[kernel]]").skip(1);
    tables
        .map(|table| {
            let one = |key| {
                let value = toml_strings(table, key).into_iter().next();
                value.with_context(|| format!("a kernel has no `{key}`"))
            };
            let suites = toml_strings(table, "suites");
            if suites.is_empty() {
                bail!("a kernel has no `suites`");
            }
            let arch = toml_strings(table, "arch").into_iter().next();
            let arch = match arch {
                None => Arch::Amd64,
                Some(name) => Arch::from_str(&name, false).map_err(|err| anyhow!(err))?,
            };
            Ok(Kernel {
                name: one("name")?,
                arch,
                suites,
                package: one("package")?,
            })
        })
        .collect()
}

impl Kernel {
    /// Downloads the image, or returns that of an earlier run if the mirror does not respond.
    pub fn fetch(&self) -> Result<Image> {
        let dir = setup::cache()?.join("kernels").join(&self.name);
        let wanted = self.resolve(&dir);
        match (wanted, kept(&dir)) {
            (Ok((_, package)), Some(image)) if image.version == package.version => Ok(image),
            (Ok((apt, package)), _) => self.download(&dir, &apt, &package),
            (Err(err), Some(image)) => Ok(Image {
                note: Some(format!("from an earlier run: {err:#}")),
                ..image
            }),
            (Err(err), None) => Err(err),
        }
    }

    /// Finds the mirror's current package; in the archive, once the suites have left the mirror.
    fn resolve(&self, dir: &Path) -> Result<(Apt, Package)> {
        let mirror = self.resolve_at(dir, &mirrors::configured());
        mirror.or_else(|err| {
            let archive = self.resolve_at(dir, &mirrors::archive());
            archive.map_err(|archived| anyhow!("{err:#}; nor in the archive: {archived:#}"))
        })
    }

    fn resolve_at(&self, dir: &Path, mirrors: &Mirrors) -> Result<(Apt, Package)> {
        let apt = Apt::new(&dir.join("apt"), self.arch.as_str(), &self.suites, mirrors)?;
        let meta = apt.show(&self.package)?;
        let image = meta.depends_on("linux-image-");
        let image = image.with_context(|| format!("{} names no image", self.package))?;
        let mut package = apt.show(&image)?;
        // In newer releases, the image's package only has a dependency.
        if let Some(binary) = package.depends_on("linux-binary-") {
            package = apt.show(&binary)?;
        }
        Ok((apt, package))
    }

    fn download(&self, dir: &Path, apt: &Apt, package: &Package) -> Result<Image> {
        eprintln!(
            "kernels: {}: {} {}",
            self.name, package.name, package.version
        );
        let work = dir.join("unpacked");
        files::remove_dir(&work)?;
        let deb = apt.download(package)?;
        let mut unpack = command("dpkg-deb");
        run(unpack.arg("-x").arg(&deb).arg(&work))?;
        let kept_as = dir.join("vmlinuz");
        files::rename(&vmlinuz_in(&work)?, &kept_as)?;
        let dm_mod = dm_mod_in(&work);
        if let Some(found) = &dm_mod {
            files::rename(found, &dir.join(DM_MOD))?;
        }
        let origin = json!({
            "package": package.name,
            "version": package.version,
            "deb_sha256": package.sha256,
            "vmlinuz_sha256": sha256(&kept_as)?,
            "dm_mod": dm_mod.is_some(),
        });
        files::write(&dir.join(ORIGIN), format!("{origin:#}\n"))?;
        files::remove_dir(&work)?;
        std::fs::remove_file(&deb).with_context(|| format!("cannot remove {}", deb.display()))?;
        kept(dir).with_context(|| format!("{} cannot be read back", dir.display()))
    }
}

/// File next to an image with its origin and digest.
const ORIGIN: &str = "vmlinuz.json";

const DM_MOD: &str = "dm-mod.ko";

/// Returns the image of an earlier run, if its digest is unchanged.
fn kept(dir: &Path) -> Option<Image> {
    let vmlinuz = dir.join("vmlinuz");
    let origin = std::fs::read_to_string(dir.join(ORIGIN)).ok()?;
    let origin: Value = serde_json::from_str(&origin).ok()?;
    let dm_mod = origin["dm_mod"].as_bool()?.then(|| dir.join(DM_MOD));
    let whole = sha256(&vmlinuz).is_ok_and(|sum| origin["vmlinuz_sha256"] == sum.as_str())
        && dm_mod.as_ref().is_none_or(|file| file.is_file());
    whole.then_some(Image {
        vmlinuz,
        dm_mod,
        version: origin["version"].as_str()?.to_owned(),
        note: None,
    })
}

/// Finds the image in /boot, or with the modules since the image's package was split.
fn vmlinuz_in(unpacked: &Path) -> Result<PathBuf> {
    let versions = entries(&unpacked.join("usr/lib/modules"));
    let with_modules = versions.iter().map(|version| version.join("vmlinuz"));
    let in_boot = entries(&unpacked.join("boot")).into_iter();
    let named = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("vmlinuz") && path.is_file()
    };
    let found = in_boot.chain(with_modules).find(named);
    found.with_context(|| format!("no vmlinuz in {}", unpacked.display()))
}

fn dm_mod_in(unpacked: &Path) -> Option<PathBuf> {
    let roots = ["usr/lib/modules", "lib/modules"];
    let versions = roots.iter().flat_map(|root| entries(&unpacked.join(root)));
    // Newer releases compress modules; none of theirs is needed.
    let mut files = versions.map(|version| version.join("kernel/drivers/md").join(DM_MOD));
    files.find(|file| file.is_file())
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    files::entries(dir).unwrap_or_default()
}

fn sha256(file: &Path) -> Result<String> {
    Ok(files::sha256(&files::read(file)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_has_one_entry_a_table() {
        let text = "# name = \"no\"\n[[kernel]]\nname = \"1\"\nsuites = [\"a\", \"b\"]\n\
                    package = \"p\"\n\n[[kernel]]\nname = \"2\"\narch = \"arm64\"\nsuites = [\"c\"]\npackage = \"q\"\n";
        let kernel = |name: &str, arch, suites: &[&str], package: &str| Kernel {
            name: name.to_owned(),
            arch,
            suites: suites.iter().map(|suite| (*suite).to_owned()).collect(),
            package: package.to_owned(),
        };
        let expected = [
            kernel("1", Arch::Amd64, &["a", "b"], "p"),
            kernel("2", Arch::Arm64, &["c"], "q"),
        ];
        assert_eq!(parse(text).unwrap(), expected);
        let err = parse("[[kernel]]\nname = \"1\"\npackage = \"p\"\n").unwrap_err();
        assert_eq!(err.to_string(), "a kernel has no `suites`");
    }

    #[test]
    fn the_matrix_of_this_repository_can_be_read() {
        let repo = Repo::find().unwrap();
        let names = |arch| -> Vec<String> {
            let matrix = matrix(&repo, arch).unwrap();
            matrix.into_iter().map(|kernel| kernel.name).collect()
        };
        let amd64 = names(Arch::Amd64);
        assert_eq!(amd64.first().map(String::as_str), Some("5.10"));
        assert_eq!(amd64.last().map(String::as_str), Some("newest"));
        assert_eq!(names(Arch::Arm64), ["newest-arm64"]);
    }

    #[test]
    fn an_image_is_found_where_either_layout_puts_it() {
        for path in [
            "boot/vmlinuz-5.10.0-1-cloud-amd64",
            "usr/lib/modules/7.0/vmlinuz",
        ] {
            let dir =
                std::env::temp_dir().join(format!("nodepulse-vmlinuz-{}", std::process::id()));
            files::remove_dir(&dir).unwrap();
            let file = dir.join(path);
            files::write(&file.with_file_name("config-5.10"), "").unwrap();
            assert!(vmlinuz_in(&dir).is_err(), "only a configuration");
            files::write(&file, "").unwrap();
            assert_eq!(vmlinuz_in(&dir).unwrap(), file);
            files::remove_dir(&dir).unwrap();
        }
    }
}
