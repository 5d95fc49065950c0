//! Completions and manual pages in `deploy/` are those of this command line.

use std::fs;
use std::path::Path;

use nodepulse_tests::manual::files;

#[test]
fn completions_and_manual_pages_are_up_to_date() {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let stale: Vec<String> = files()
        .into_iter()
        .filter(|(path, text)| fs::read_to_string(deploy.join(path)).ok().as_ref() != Some(text))
        .map(|(path, _)| path)
        .collect();
    assert!(stale.is_empty(), "run `cargo xtask manual`: {stale:?}");
}
