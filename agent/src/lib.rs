//! The line, read left to right; the modules stand in its order.
//!
//! ```text
//! kernel event → ring buffer → decoded event → pressure state → condition setter → node status
//!              → patch / lease → API server
//! ```
//!
//! A second, slower line joins before "pressure state": files under `/proc`, `/sys` and the cgroup
//! file systems become the same readings that events become.

/// The one place that spells our domain. Before the modules, so that each of them has it.
macro_rules! domain {
    () => {
        "nodepulse.dev"
    };
}

// What every room speaks.
pub mod clock;
pub mod escape;
pub mod fd;
pub mod file;
pub mod lane;
pub mod names;
pub mod reading;
pub mod tasks;
pub mod units;

// Edges that observe.
pub mod kernel;

pub mod os;

pub mod host;

pub mod state;

pub mod logind;

// Pure rooms that decide.
pub mod record;

pub mod pods;

pub mod pressure;

pub mod subjects;

pub mod node_status;

pub mod kube_event;

// The edge that reports.
pub mod api;

pub mod reporting;

// What is told of all this to whoever asks.
pub mod explain;

pub mod metrics;

pub mod serve;

pub mod notify;

// What connects the rooms.
pub mod config;

pub mod app;

pub mod sandbox;

pub mod cli;
