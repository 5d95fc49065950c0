//! Builds the package for distributions with rpm. It is not signed: a release signs `SHA256SUMS`.

use anyhow::Result;
use rpm::{BuildConfig, CompressionWithLevel, FileOptions, PackageBuilder, Scriptlet};

use super::contents::{self, Places};
use super::{DESCRIPTION, HOMEPAGE, MAINTAINER, Release, SUMMARY};
use crate::archive::File;
use crate::repo::{Arch, Repo};

/// Release of the package, for the same version of the program.
const RELEASE: &str = "1";

/// Directory of the licences, which are `%license` files.
const LICENCES: &str = "usr/share/licenses/nodepulse";

const fn arch_name(arch: Arch) -> &'static str {
    match arch {
        Arch::Amd64 => "x86_64",
        Arch::Arm64 => "aarch64",
    }
}

/// Returns the package's version. `~` sorts first: a candidate is older than its release.
fn version(release: &Release) -> String {
    release.version.replace('-', "~")
}

pub fn name(release: &Release, arch: Arch) -> String {
    let version = version(release);
    format!("nodepulse-{version}-{RELEASE}.{}.rpm", arch_name(arch))
}

pub fn package(repo: &Repo, release: &Release, arch: Arch, program: &File) -> Result<Vec<u8>> {
    let places = Places {
        zsh: "usr/share/zsh/site-functions",
        third_party: LICENCES,
    };
    let mut files = contents::files(repo, release, program, &places)?;
    let licence = format!("{LICENCES}/LICENSE");
    files.push(File::new(licence, 0o644, repo.read("LICENSE")?));
    files.sort_by(|a, b| a.path.cmp(&b.path));

    let arch = arch_name(arch);
    let mut package =
        PackageBuilder::new("nodepulse", &version(release), "Apache-2.0", arch, SUMMARY);
    let time = u32::try_from(release.commit.epoch)?;
    let config = BuildConfig::v4()
        .source_date(time)
        .compression(CompressionWithLevel::Gzip(9));
    let script = |name: &str| -> Result<Scriptlet> {
        Ok(Scriptlet::new(
            repo.read(&format!("deploy/packages/rpm-{name}"))?,
        ))
    };
    package
        .using_config(config)
        .release(RELEASE)
        .description(DESCRIPTION)
        .url(HOMEPAGE)
        .packager(MAINTAINER)
        .vendor("nodepulse")
        // By default, the library reads this machine's name.
        .build_host("localhost")
        .cookie(format!("nodepulse {}", release.commit.hash))
        .post_install_script(script("post")?)
        .pre_uninstall_script(script("preun")?)
        .post_uninstall_script(script("postun")?);
    package.with_dir_entry(FileOptions::dir("/etc/nodepulse").permissions(0o755))?;
    package.with_dir_entry(FileOptions::dir(format!("/{LICENCES}")).permissions(0o755))?;
    for file in files {
        package.with_file_contents(file.bytes.clone(), options(&file)?)?;
    }
    let mut bytes = Vec::new();
    package.build()?.write(&mut bytes)?;
    Ok(bytes)
}

fn options(file: &File) -> Result<rpm::FileOptionsBuilder> {
    let path = &file.path;
    let options = FileOptions::new(format!("/{path}")).permissions(u16::try_from(file.mode)?);
    Ok(if path == contents::CONFIG {
        options.config().noreplace()
    } else if path.starts_with(LICENCES) {
        options.license()
    } else if path.starts_with("usr/share/man/") || path.starts_with("usr/share/doc/") {
        options.doc()
    } else {
        options
    })
}
