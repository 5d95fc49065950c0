//! The requirements on a node agent at the API server, line by line.
//!
//! A test is called `aNNN_what_is_true` after the number of its line, and its doc comment is the
//! text of that line; it states intentional differences from a kubelet. Several tests may share
//! a number: the line is the first one's doc comment. `cargo xtask acceptance` runs them and prints
//! the lines with their results. Lines that do not apply are printed too, each with a reason
//! (`xtask/src/acceptance/not_applicable.rs`).

mod bad_days;
/// 88 to 94.
mod events;
/// 57.
mod images;
/// 78 to 87.
mod lease;
/// 27 to 31 and 33 to 38.
mod patches;
/// 61, 65 to 71, 73 and 75 to 77.
mod pressure;
/// 95 to 100.
mod process;
/// 1 to 18.
mod registration;
/// 45 to 50, 53 and 60.
mod resources;
/// 42 to 44, 51, 52, 54 to 56, 58 and 59.
mod setters;
/// 62 to 64, 72 and 74.
mod signals;
/// 19 to 26, 32 and 39 to 41.
mod status_loop;
