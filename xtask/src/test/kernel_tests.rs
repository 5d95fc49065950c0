//! Which test targets change this machine's kernel: those with tests of the feature `kernel`.

use std::path::Path;

use anyhow::{Context as _, Result, bail};

/// The attribute of a test that needs the feature.
const MARKER: &str = "cfg_attr(feature = \"kernel\",";

/// Names of the targets below `tests/tests`, sorted: read from the source, so that no list can miss one.
pub fn targets(tests: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for path in entries(tests)? {
        if needs_kernel(&path)? {
            let name = path.file_stem().context("a file has a name")?;
            found.push(name.to_string_lossy().into_owned());
        }
    }
    if found.is_empty() {
        bail!("no test below {} has `{MARKER}`", tests.display());
    }
    found.sort();
    Ok(found)
}

fn needs_kernel(path: &Path) -> Result<bool> {
    if path.is_dir() {
        for path in entries(path)? {
            if needs_kernel(&path)? {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.contains(MARKER))
}

fn entries(dir: &Path) -> Result<Vec<std::path::PathBuf>> {
    let entries =
        std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path()));
    paths.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo;

    #[test]
    fn every_target_with_a_test_of_the_feature_is_found() {
        let found = targets(&repo::root().join("tests/tests")).unwrap();
        assert!(found.iter().any(|found| found == "kernel"), "{found:?}");
        assert!(!found.iter().any(|found| found == "simulated"), "{found:?}");
    }

    #[test]
    fn a_target_can_be_a_directory() {
        let dir = std::env::temp_dir().join(format!("nodepulse-targets-{}", std::process::id()));
        let write = |name: &str, text: &str| {
            let path = dir.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let test = format!("#[{MARKER} test)]\nfn a() {{}}\n");
        write("whole/main.rs", "mod part;\n");
        write("whole/part.rs", &test);
        write("single.rs", &test);
        write("other.rs", "#[test]\nfn a() {}\n");
        let found = targets(&dir);
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(found.unwrap(), ["single", "whole"]);
    }
}
