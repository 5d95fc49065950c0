//! EDGE: reads what the subjects query, and updates the maps of the BPF programs.
//!
//! A query that can wait for a disk or a server is answered on a separate thread or task; every other
//! query is answered at once.

#![forbid(unsafe_code)]

pub mod blocking;
pub mod cgroups;
#[cfg(test)]
mod fixture;
pub mod pod_updates;
pub mod pressure_files;
pub mod probes;
pub mod read_config;
pub mod signals;
