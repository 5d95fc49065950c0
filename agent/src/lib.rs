//! The line, read left to right; the modules stand in its order.
//!
//! ```text
//! kernel event → ring buffer → decoded event → pressure state → condition setter → node status
//!              → patch / lease → API server
//! ```
//!
//! A second, slower line joins before "pressure state": files under `/proc`, `/sys` and the cgroup
//! file systems become the same readings that events become.

pub mod clock;
pub mod reading;
pub mod units;

pub mod api;
pub mod event;
pub mod host;
pub mod kernel;
pub mod node_status;
pub mod pressure;

pub mod app;
pub mod cli;
pub mod config;
