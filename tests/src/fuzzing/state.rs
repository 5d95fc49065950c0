//! Checks the state file, which is stored between two starts.

use nodepulse_linux::state::State;

/// The content of the state file, which another program or a crash may have written.
///
/// # Panics
///
/// If what is read from it is not the same after it was written again.
pub fn state_file(input: &[u8]) {
    let Some(state) = str::from_utf8(input).ok().and_then(State::from_text) else {
        return;
    };
    let written = state.text();
    let again = State::from_text(&written).expect("what is written can be read");
    assert_eq!(again.kills, state.kills);
    assert_eq!(again.boot, state.boot);
    assert_eq!(again.text(), written);
}
