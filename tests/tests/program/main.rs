//! The real programs, as an operator starts them: what only a process has.

use std::path::Path;

mod commands;
mod control;
mod history;
mod plugin;
mod recording;
mod rotation;
mod sandbox;
mod shutdown;
mod simulate;
mod sinks;
mod startup;
mod state_directory;
mod untrusted_files;
mod waiting;

fn text(path: &Path) -> String {
    path.display().to_string()
}
