//! The inputs that are kept for each fuzz target, without a fuzzer.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use nodepulse_tests::fuzzing::TARGETS;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

fn names(dir: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(fuzz().join(dir)).unwrap();
    let stem = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    entries.map(|entry| stem(entry.unwrap().path())).collect()
}

#[test]
fn every_target_has_a_program_and_inputs() {
    let targets: BTreeSet<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names("src/bin"), targets);
    assert_eq!(names("corpus"), targets);
}

#[test]
fn every_stored_input_passes() {
    for (name, target) in TARGETS {
        let mut inputs = 0;
        for entry in fs::read_dir(fuzz().join("corpus").join(name)).unwrap() {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            target(&fs::read(&path).unwrap());
            inputs += 1;
        }
        assert!(inputs > 0, "{name} has no inputs");
    }
}
