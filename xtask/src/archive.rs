//! Creates archives that depend only on their contents: owned by root, with a given time, without
//! names of users or of this machine.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};
use tar::{EntryType, Header};

/// A file owned by root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Relative to the root of the archive.
    pub path: String,
    pub mode: u32,
    pub bytes: Vec<u8>,
}

impl File {
    pub fn new(path: impl Into<String>, mode: u32, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            path: path.into(),
            mode,
            bytes: bytes.into(),
        }
    }
}

/// Packs the files in their order, each path with `prefix` in front of it.
pub fn tar(files: &[File], prefix: &str, time: u64) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for file in files {
        let path = format!("{prefix}{}", file.path);
        append(&mut archive, &path, EntryType::Regular, file, time)?;
    }
    Ok(archive.into_inner()?)
}

/// Packs the files with `./` in front of their paths, and with their directories, as dpkg requires.
pub fn tar_with_directories(files: &[File], time: u64) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for directory in directories(paths(files)) {
        let path = if directory.is_empty() {
            "./".to_owned()
        } else {
            format!("./{directory}/")
        };
        let entry = File::new(directory, 0o755, []);
        append(&mut archive, &path, EntryType::Directory, &entry, time)?;
    }
    for file in files {
        let path = format!("./{}", file.path);
        append(&mut archive, &path, EntryType::Regular, file, time)?;
    }
    Ok(archive.into_inner()?)
}

pub fn paths(files: &[File]) -> impl Iterator<Item = &str> {
    files.iter().map(|file| file.path.as_str())
}

/// Returns the parent directories of all paths, parents first; the first is empty.
pub fn directories<'a>(paths: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let parents = paths.flat_map(|path| Path::new(path).ancestors().skip(1));
    parents
        .map(|path| path.to_string_lossy().into_owned())
        .collect()
}

fn append(
    archive: &mut tar::Builder<Vec<u8>>,
    path: &str,
    kind: EntryType,
    file: &File,
    time: u64,
) -> Result<()> {
    let mut header = Header::new_ustar();
    // `append_data` would remove `./`.
    let name = header.as_ustar_mut().context("not ustar")?.name.as_mut();
    name.get_mut(..path.len())
        .with_context(|| format!("{path} is too long for an archive"))?
        .copy_from_slice(path.as_bytes());
    header.set_entry_type(kind);
    header.set_size(u64::try_from(file.bytes.len())?);
    header.set_mode(file.mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(time);
    header.set_cksum();
    archive.append(&header, &*file.bytes)?;
    Ok(())
}

pub fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    // The header contains neither a time nor a system.
    let mut gzip = GzBuilder::new()
        .operating_system(255)
        .write(Vec::new(), Compression::best());
    gzip.write_all(bytes)?;
    Ok(gzip.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_for_dpkg_lists_each_directory_before_its_files() {
        let files = [
            File::new("usr/bin/a", 0o755, "program"),
            File::new("etc/a/b.yaml", 0o644, ""),
        ];
        let archive = tar_with_directories(&files, 7).unwrap();
        let mut archive = tar::Archive::new(&*archive);
        let entries: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let header = entry.header();
                assert_eq!((header.uid().unwrap(), header.mtime().unwrap()), (0, 7));
                let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
                (path, header.mode().unwrap())
            })
            .collect();
        let expected = [
            ("./", 0o755),
            ("./etc/", 0o755),
            ("./etc/a/", 0o755),
            ("./usr/", 0o755),
            ("./usr/bin/", 0o755),
            ("./usr/bin/a", 0o755),
            ("./etc/a/b.yaml", 0o644),
        ];
        let expected = expected.map(|(path, mode)| (path.to_owned(), mode));
        assert_eq!(entries, expected);
    }

    #[test]
    fn a_path_that_does_not_fit_is_an_error() {
        let long = File::new("a/".repeat(60), 0o644, "");
        let err = tar(&[long], "", 0).unwrap_err().to_string();
        assert!(err.ends_with("is too long for an archive"), "{err}");
    }
}
