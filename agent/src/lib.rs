//! The data path, from left to right:
//!
//! ```text
//! kernel event → ring buffer → decoded event → pressure state → condition setter → node status
//!              → patch / lease → API server
//! ```
//!
//! Files under `/proc`, `/sys` and the cgroup file systems are sampled into the same readings
//! before "pressure state".

/// nodepulse's domain. Defined before the modules, so that they can use it.
macro_rules! domain {
    () => {
        "nodepulse.dev"
    };
}

// Vocabulary of all rooms.
mod budget;
pub mod clock;
pub mod escape;
mod fd;
mod file;
mod http2;
pub mod kill_annotation;
mod lane;
pub mod names;
mod object_name;
pub mod reading;
mod tasks;
pub mod units;

// Edges that observe.
pub mod kernel;

pub mod os;

pub mod host;

pub mod state;

pub mod certificate_store;

pub mod logind;

pub mod cri;

// Pure rooms that decide.
pub mod client_certificate;

pub mod record;

pub mod pods;

pub mod pressure;

pub mod subjects;

pub mod node_status;

mod kube_event;

// The edge that reports.
pub mod api;

mod reporting;

// The edge that answers the queries of the subjects.
mod queries;

// The edge that reports to operators.
mod telemetry;

// Edges that answer requests.
mod explain;

pub mod metrics;

pub mod serve;

pub mod notify;

// What connects the rooms.
pub mod config;

pub mod app;

mod sandbox;

pub mod cli;
