//! Checks properties of the parsers for any input: one function for each parser, which panics if
//! one is violated.
//!
//! `cargo xtask fuzz` drives them with libFuzzer, `tests/tests/simulated/corpus.rs` with the stored
//! inputs. A new target is a function, a line in [`TARGETS`], a file of the same name in
//! `tests/fuzz/src/bin/` and a directory of inputs in `tests/fuzz/corpus/`.

mod api;
mod bus;
mod files;
mod kernel;
mod notify;
mod settings;
mod state;
mod text;

pub use api::{api_object, api_refusal, exec_credential};
pub use bus::{dbus_message, dbus_session};
pub use files::{cgroup_path, host_files};
pub use kernel::{disk_announcement, kernel_log, kernel_types, ring_record};
pub use notify::notify_variables;
pub use settings::{config_text, flag, quantity, threshold};
pub use state::state_file;
pub use text::{escape, safe};

/// Parses any bytes, and panics if a property is violated.
pub type Target = fn(&[u8]);

pub const TARGETS: &[(&str, Target)] = &[
    ("api_object", api_object),
    ("api_refusal", api_refusal),
    ("cgroup_path", cgroup_path),
    ("config_text", config_text),
    ("dbus_message", dbus_message),
    ("dbus_session", dbus_session),
    ("disk_announcement", disk_announcement),
    ("escape", escape),
    ("exec_credential", exec_credential),
    ("flag", flag),
    ("host_files", host_files),
    ("kernel_log", kernel_log),
    ("kernel_types", kernel_types),
    ("notify_variables", notify_variables),
    ("quantity", quantity),
    ("ring_record", ring_record),
    ("state_file", state_file),
    ("threshold", threshold),
];
