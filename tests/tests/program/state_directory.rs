//! A state directory of another user is refused. As root.

use std::os::unix::fs::chown;
use std::path::Path;

use nodepulse_linux::state::{Claim, State, StateError, is_known};

use nix::unistd::geteuid;
use nodepulse_tests::skip;
use tempfile::tempdir;

/// Another user, with the number that most systems use.
const OTHER_USER: u32 = 65534;

#[test]
fn a_file_of_another_user_is_refused_by_name() {
    if !geteuid().is_root() {
        return skip("needs root", "only root changes the owner of a file");
    }
    let dir = tempdir().unwrap();
    let state = State::default();
    state.save(dir.path()).unwrap();
    assert_eq!(State::load(dir.path()).unwrap(), Some(state));
    drop(Claim::take(dir.path(), is_known).unwrap());
    let refused = |path: &Path| {
        chown(path, Some(OTHER_USER), None).unwrap();
        let refused = Claim::take(dir.path(), is_known).unwrap_err().to_string();
        for part in [path.to_str().unwrap(), "65534", "chown"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        chown(path, Some(0), None).unwrap();
    };
    refused(&dir.path().join("lock"));
    refused(dir.path());
    assert!(Claim::take(dir.path(), is_known).unwrap().is_some());

    chown(dir.path().join("state"), Some(OTHER_USER), None).unwrap();
    let got = State::load(dir.path());
    assert!(matches!(got, Err(StateError::Foreign)), "{got:?}");
}
