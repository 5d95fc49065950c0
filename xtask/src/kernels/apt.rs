//! Runs apt with separate sources, lists and cache for other releases, without changing this
//! machine. It checks downloads against the index, and the index against Debian's keys.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::mirrors::{self, Mirrors};
use super::sha256;
use crate::files;
use crate::repo::{command, on_path, output};

/// The keys of the package `debian-archive-keyring`.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Age up to which lists are not downloaded again.
const FRESH: Duration = Duration::from_secs(24 * 3600);

pub struct Apt {
    dir: PathBuf,
    /// Architecture of the packages, which may differ from this machine's.
    arch: &'static str,
}

/// A package of the index.
#[derive(Debug, PartialEq, Eq)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// Digest of the package's file.
    pub sha256: String,
    depends: Vec<String>,
}

impl Apt {
    /// Downloads the index of `suites` from these mirrors.
    pub fn new(
        dir: &Path,
        arch: &'static str,
        suites: &[String],
        mirrors: &Mirrors,
    ) -> Result<Self> {
        if on_path("apt-get").is_none() || on_path("dpkg-deb").is_none() {
            bail!("apt-get or dpkg-deb is missing: they download Debian's kernels");
        }
        if !Path::new(KEYRING).is_file() {
            bail!("no {KEYRING}: install the package debian-archive-keyring");
        }
        for below in ["state/lists/partial", "cache/archives/partial"] {
            files::create_dir(&dir.join(below))?;
        }
        let apt = Self {
            dir: dir.to_owned(),
            arch,
        };
        apt.update(suites, mirrors)?;
        Ok(apt)
    }

    fn update(&self, suites: &[String], mirrors: &Mirrors) -> Result<()> {
        let sources = mirrors::sources(suites, self.arch, KEYRING, mirrors);
        let file = self.dir.join("sources.list");
        let stamp = self.dir.join("updated");
        let same = std::fs::read_to_string(&file).is_ok_and(|text| text == sources);
        let age = std::fs::metadata(&stamp).and_then(|stamp| stamp.modified());
        let fresh = age.is_ok_and(|age| age.elapsed().is_ok_and(|age| age < FRESH));
        if same && fresh {
            return Ok(());
        }
        files::write(&file, &sources)?;
        let mut update = self.command("apt-get");
        // By default, a suite that cannot be fetched or verified is only a warning.
        update.args(["-q", "-o", "APT::Update::Error-Mode=any", "update"]);
        attempt(&mut update).with_context(|| format!("no index of {}", suites.join(", ")))?;
        files::write(&stamp, "")
    }

    /// Returns the newest version of the package `name`.
    pub fn show(&self, name: &str) -> Result<Package> {
        let mut show = self.command("apt-cache");
        let text = output(show.args(["show", "--no-all-versions", name]))?;
        Package::parse(&text).with_context(|| format!("the index entry of {name}"))
    }

    /// Downloads the package's file. apt checks it against the index, and so does this function.
    pub fn download(&self, package: &Package) -> Result<PathBuf> {
        let dir = self.dir.join("downloaded");
        files::remove_dir(&dir)?;
        files::create_dir(&dir)?;
        let mut download = self.command("apt-get");
        download.args(["-q", "download"]);
        download.arg(format!("{}={}", package.name, package.version));
        attempt(download.current_dir(&dir)).with_context(|| package.name.clone())?;
        let deb = super::entries(&dir).into_iter().next();
        let deb = deb.context("apt-get downloaded nothing")?;
        let sum = sha256(&deb)?;
        if sum != package.sha256 {
            bail!("{} is {sum}, not {}", deb.display(), package.sha256);
        }
        Ok(deb)
    }

    fn command(&self, program: &str) -> Command {
        let mut apt = command(program);
        let dir = self.dir.display();
        let options = [
            format!("Dir::Etc::SourceList={dir}/sources.list"),
            "Dir::Etc::SourceParts=-".to_owned(),
            format!("Dir::State={dir}/state"),
            format!("Dir::Cache={dir}/cache"),
            "Dir::State::status=/dev/null".to_owned(),
            format!("APT::Architecture={}", self.arch),
            format!("APT::Architectures={}", self.arch),
            "Acquire::Languages=none".to_owned(),
            "Acquire::Retries=2".to_owned(),
            "Acquire::http::Timeout=30".to_owned(),
            // The user `_apt` cannot write to this directory; without root, the option has no
            // effect.
            "APT::Sandbox::User=".to_owned(),
        ];
        for option in options {
            apt.args(["-o", &option]);
        }
        apt.env("LC_ALL", "C");
        apt
    }
}

/// Runs apt-get; an error contains its first complaint.
fn attempt(apt_get: &mut Command) -> Result<()> {
    let done = apt_get.output().context("cannot start apt-get")?;
    if !done.status.success() {
        let printed = String::from_utf8_lossy(&done.stderr);
        bail!("apt-get: {}", complaint(&printed));
    }
    Ok(())
}

/// Returns the missing key, if that is the reason, and then the first error.
fn complaint(printed: &str) -> String {
    let key = printed.lines().find(|line| line.contains("NO_PUBKEY"));
    let error = printed.lines().find(|line| line.starts_with("E: "));
    let both: Vec<&str> = key.into_iter().chain(error).collect();
    both.join("; ")
}

impl Package {
    /// Parses the first entry that `apt-cache show` prints.
    fn parse(text: &str) -> Result<Self> {
        let entry = text.split("\n\n").next().unwrap_or_default();
        let field = |name: &str| {
            let line = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(": ")?.to_owned());
            entry.lines().find_map(line)
        };
        let needed = |name| field(name).with_context(|| format!("no field {name}"));
        let depends = field("Depends").unwrap_or_default();
        let name_only = |alternative: &str| Some(alternative.split_whitespace().next()?.to_owned());
        Ok(Self {
            name: needed("Package")?,
            version: needed("Version")?,
            sha256: needed("SHA256")?,
            depends: depends.split([',', '|']).filter_map(name_only).collect(),
        })
    }

    /// Returns the first dependency whose name begins with `prefix`.
    pub fn depends_on(&self, prefix: &str) -> Option<String> {
        let mut depends = self.depends.iter();
        depends.find(|name| name.starts_with(prefix)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_entry_gives_version_digest_and_dependencies() {
        let text = "Package: linux-image-7-cloud\nSource: linux (7)\nVersion: 7.1-1\n\
                    Pre-Depends: linux-base (>= 4)\n\
                    Depends: a | b (>= 2), linux-binary-7-cloud (= 7.1-1), linux-modules-7 (= 7.1-1)\n\
                    SHA256: abc\nDescription: Linux\n Version: none\n\n\
                    Package: linux-image-6-cloud\nVersion: 6-1\nSHA256: def\n";
        let package = Package::parse(text).unwrap();
        assert_eq!(package.name, "linux-image-7-cloud");
        assert_eq!(package.version, "7.1-1");
        assert_eq!(package.sha256, "abc");
        let binary = package.depends_on("linux-binary-");
        assert_eq!(binary.as_deref(), Some("linux-binary-7-cloud"));
        assert_eq!(package.depends_on("linux-base"), None, "only before it");
        assert_eq!(
            package.depends_on("b"),
            Some("b".to_owned()),
            "an alternative"
        );
    }

    #[test]
    fn an_entry_without_a_digest_is_refused() {
        let err = Package::parse("Package: a\nVersion: 1\n\nSHA256: abc\n").unwrap_err();
        assert_eq!(err.to_string(), "no field SHA256");
    }

    #[test]
    fn a_complaint_is_the_first_error_and_the_missing_key() {
        let unsigned = "W: GPG error: http://m sid InRelease: NO_PUBKEY 6ED0\n\
                        E: The repository 'http://m sid InRelease' is not signed.\nN: See apt-secure\n";
        let missing_file = "W: slow\nE: Failed to fetch http://m\nE: Some index files failed\n";
        let table = [
            (
                unsigned,
                "W: GPG error: http://m sid InRelease: NO_PUBKEY 6ED0; \
                 E: The repository 'http://m sid InRelease' is not signed.",
            ),
            (missing_file, "E: Failed to fetch http://m"),
            ("", ""),
        ];
        for (printed, expected) in table {
            assert_eq!(complaint(printed), expected);
        }
    }
}
