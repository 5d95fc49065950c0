//! The data path, from left to right:
//!
//! ```text
//! kernel event → ring buffer → decoded event → pressure state → condition setter → node status
//!              → patch / lease → API server
//! ```
//!
//! Files under `/proc`, `/sys` and the cgroup file systems are sampled into the same readings
//! before "pressure state".

// The edge that reports.
mod reporting;

// The edge that answers the queries of the subjects.
mod queries;

// The edge that reports to operators.
mod telemetry;

// Edges that answer requests.
pub mod metrics;

pub mod serve;

pub mod notify;

// What connects the rooms.
pub mod config;

pub mod app;

mod sandbox;

pub mod cli;
