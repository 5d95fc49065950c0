//! Accesses files and directories, with their paths in the errors.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use ring::digest::{SHA256, digest};

pub fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

pub fn text(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Writes a file, and creates its directory if necessary.
pub fn write(file: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    file.parent().map_or(Ok(()), create_dir)?;
    fs::write(file, bytes).with_context(|| format!("cannot write {}", file.display()))
}

pub fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).with_context(|| format!("cannot move {}", from.display()))
}

/// Creates a directory and its parents; accepts one that exists.
pub fn create_dir(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))
}

/// Removes a directory with its contents; accepts one that does not exist.
pub fn remove_dir(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    Ok(())
}

/// Returns the digest in hex.
pub fn sha256(bytes: &[u8]) -> String {
    let digest = digest(&SHA256, bytes);
    let digits = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
    digits.collect()
}

/// Returns the paths in a directory, sorted.
pub fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let mut paths: Vec<PathBuf> = entries.map(|e| Ok(e?.path())).collect::<Result<_>>()?;
    paths.sort();
    Ok(paths)
}

pub fn write_between(file: &Path, [begin, end]: [&str; 2], new: &str) -> Result<()> {
    let replaced = between(&text(file)?, [begin, end], new);
    let name = file.display();
    let replaced = replaced
        .with_context(|| format!("{name} needs the lines `{begin}` and `{end}`, in this order"));
    write(file, replaced?)
}

pub fn between(old: &str, [begin, end]: [&str; 2], new: &str) -> Option<String> {
    let (before, rest) = old.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}\n{new}\n{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_between_the_comments_is_replaced() {
        let comments = ["<!-- bench:begin -->", "<!-- bench:end -->"];
        let other = "<!-- bench-kernel:begin -->\nother\n<!-- bench-kernel:end -->";
        let with = |text| format!("a\n{other}\n{}\n{text}\n{}\nb\n", comments[0], comments[1]);
        for old in ["old", "new"] {
            let replaced = between(&with(old), comments, "new");
            assert_eq!(replaced, Some(with("new")), "{old}");
        }
        assert_eq!(between(other, comments, "new"), None, "no comments");
    }
}
