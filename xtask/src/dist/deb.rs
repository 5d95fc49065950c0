//! Builds a binary package of Debian, see deb(5): an `ar` archive with two archives of tar.

use anyhow::{Result, bail};

use super::contents::{self, Places};
use super::{DESCRIPTION, HOMEPAGE, MAINTAINER, Release, SUMMARY};
use crate::archive::{File, directories, gzip, paths, tar_with_directories};
use crate::repo::{Arch, Repo, command, output};

/// Revision of the package, for the same version of the program.
const REVISION: &str = "1";

const SCRIPTS: &[&str] = &["postinst", "prerm", "postrm"];

/// Overrides of lintian: a binary that contains the C library is against Debian's policy, and
/// intended here.
const OVERRIDES: &str = "\
nodepulse: statically-linked-binary [usr/bin/nodepulse]
# The project has no e-mail address.
nodepulse: malformed-contact Maintainer *
nodepulse: bogus-mail-host-in-debian-changelog *
";

/// Returns the package's version. `~` sorts first: a candidate is older than its release.
pub fn version(release: &Release) -> String {
    format!("{}-{REVISION}", release.version.replace('-', "~"))
}

pub fn name(release: &Release, arch: Arch) -> String {
    format!("nodepulse_{}_{}.deb", version(release), arch.as_str())
}

pub fn package(repo: &Repo, release: &Release, arch: Arch, program: &File) -> Result<Vec<u8>> {
    let places = Places {
        zsh: "usr/share/zsh/vendor-completions",
        third_party: "usr/share/doc/nodepulse",
    };
    let mut files = contents::files(repo, release, program, &places)?;
    let doc = |name: &str| format!("usr/share/doc/nodepulse/{name}");
    let changelog = gzip(repo.read("CHANGELOG.md")?.as_bytes())?;
    let debian = gzip(changelog_of_package(release)?.as_bytes())?;
    files.extend([
        File::new(
            doc("copyright"),
            0o644,
            repo.read("deploy/packages/copyright")?,
        ),
        File::new(doc("changelog.gz"), 0o644, changelog),
        File::new(doc("changelog.Debian.gz"), 0o644, debian),
        File::new("usr/share/lintian/overrides/nodepulse", 0o644, OVERRIDES),
    ]);
    files.sort_by(|a, b| a.path.cmp(&b.path));

    let mut control = vec![
        File::new("control", 0o644, self::control(release, arch, &files)),
        File::new("conffiles", 0o644, format!("/{}\n", contents::CONFIG)),
    ];
    for script in SCRIPTS {
        let text = repo.read(&format!("deploy/packages/{script}"))?;
        control.push(File::new(*script, 0o755, text));
    }
    let time = release.commit.epoch;
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        (
            "control.tar.gz",
            gzip(&tar_with_directories(&control, time)?)?,
        ),
        ("data.tar.gz", gzip(&tar_with_directories(&files, time)?)?),
    ];
    ar(&members, time)
}

fn control(release: &Release, arch: Arch, files: &[File]) -> String {
    // The unit of dpkg-gencontrol: each file is rounded up to 1 KiB, and each directory counts as
    // one.
    let kib = |file: &File| file.bytes.len().div_ceil(1024);
    let size: usize = files.iter().map(kib).sum::<usize>() + directories(paths(files)).len();
    format!(
        "Package: nodepulse\nVersion: {}\nArchitecture: {}\nMaintainer: {MAINTAINER}\n\
         Installed-Size: {size}\nSection: admin\nPriority: optional\nHomepage: {HOMEPAGE}\n\
         Description: {SUMMARY}\n{}",
        version(release),
        arch.as_str(),
        description(DESCRIPTION)
    )
}

/// Begins every line with a space, and replaces an empty one by a dot.
fn description(text: &str) -> String {
    let line = |line: &str| match line {
        "" => " .\n".to_owned(),
        line => format!(" {line}\n"),
    };
    text.lines().map(line).collect()
}

/// Returns the changelog in the form that Debian requires.
fn changelog_of_package(release: &Release) -> Result<String> {
    let time = format!("@{}", release.commit.epoch);
    let date = output(command("date").args(["--utc", "--rfc-email", "--date", &time]))?;
    Ok(format!(
        "nodepulse ({}) stable; urgency=medium\n\n  \
         * Release {}: see changelog.gz.\n\n -- {MAINTAINER} <>  {date}",
        version(release),
        release.version,
    ))
}

/// Packs the common form of `ar`: a line of 60 bytes before each member, and an even length.
fn ar(members: &[(&str, Vec<u8>)], time: u64) -> Result<Vec<u8>> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        if name.len() > 16 {
            bail!("{name} is too long for ar");
        }
        let head = format!(
            "{name:<16}{time:<12}{:<6}{:<6}{:<8}{:<10}`\n",
            0,
            0,
            100_644,
            bytes.len()
        );
        archive.extend(head.as_bytes());
        archive.extend(bytes);
        if !bytes.len().is_multiple_of(2) {
            archive.push(b'\n');
        }
    }
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_has_a_head_of_sixty_bytes_and_an_even_length() {
        let archive = ar(&[("debian-binary", b"2.0".to_vec())], 7).unwrap();
        let expected =
            "!<arch>\ndebian-binary   7           0     0     100644  3         `\n2.0\n";
        assert_eq!(String::from_utf8(archive).unwrap(), expected);
    }

    #[test]
    fn an_empty_line_of_the_description_has_a_dot() {
        assert_eq!(description("a\n\nb"), " a\n .\n b\n");
    }
}
