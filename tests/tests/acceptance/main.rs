//! What a node agent promises to whoever watches the API server, line by line.
//!
//! A test is called `aNNN_what_is_true` after the number of its line, and its doc comment is that
//! line in our words; where we differ from a kubelet on purpose it says so. Several tests may share
//! a number: the line is the first one's doc comment. `cargo xtask acceptance` runs them and prints
//! the lines with their results. Lines that are not ours stand there too, each with a reason
//! (`xtask/src/acceptance/not_ours.rs`).

mod bad_days;
/// 88 to 99.
mod events;
/// 78 to 87.
mod lease;
/// 61 to 77.
mod pressure;
/// 1 to 18.
mod registration;
/// 42 to 60.
mod setters;
/// 19 to 41.
mod status_loop;
