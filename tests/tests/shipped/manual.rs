//! Checks that the generated files match this command line and this table of configuration keys.

use std::fs;
use std::path::Path;

use nodepulse_tests::manual::files;

#[test]
fn generated_files_are_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let stale: Vec<String> = files(&root)
        .unwrap()
        .into_iter()
        .filter(|(path, text)| fs::read_to_string(root.join(path)).ok().as_ref() != Some(text))
        .map(|(path, _)| path)
        .collect();
    assert!(stale.is_empty(), "run `cargo xtask manual`: {stale:?}");
}
