//! The real programs, as an operator starts them: what only a process has.

mod commands;
mod control;
mod plugin;
mod rotation;
mod sandbox;
mod shutdown;
mod startup;
mod state_directory;
mod untrusted_files;
mod waiting;
