//! A Kubernetes node agent to embed: [`Agent`] reports a node with the conditions of this crate and
//! of yours. See the example `custom_condition`.
//!
//! The data path, from left to right:
//!
//! ```text
//! kernel event → ring buffer → decoded event → pressure state → condition setter → node status
//!              → patch / lease → API server
//! ```
//!
//! Files under `/proc`, `/sys` and the cgroup file systems are sampled into the same readings
//! before "pressure state".

#[macro_use]
mod ok_or_log;

mod app;
mod black_box;
mod cli;
mod config;
mod history;
mod metrics;
mod notify;
mod queries;
mod reporting;
mod sandbox;
mod serve;
mod sinks;
mod telemetry;

pub use app::{Agent, AppError, KernelSource, RunMode};
pub use cli::main;
pub use config::{Config, ConfigError, Overrides};
pub use nodepulse_core::node_status::Status;
pub use nodepulse_core::node_status::setters::{SETTERS, Setter, Setters};
pub use nodepulse_core::node_status::stamp::{ComputedCondition, SameStatus};
pub use nodepulse_io::clock::Clock;
pub use nodepulse_kube::Client;
pub use nodepulse_kube::credentials::CredentialSource;

/// For the tests, and for what the documentation is generated from.
#[cfg(feature = "testing")]
pub mod testing {
    pub use crate::app::{CertificateSetup, ReadConfig, Reloads};
    pub use crate::cli::completion::Shell;
    pub use crate::cli::documented;
    pub use crate::cli::texts::{Section, sections};
    pub use crate::config::{
        API_VERSION, Effect, Flag, Form, Json, KEYS, KIND, KeySpec, KubeletKey, Preset, Reload,
        SERVER_KEYS, Scalar, load,
    };
    pub use crate::metrics::{CONTENT_TYPE, MetricDescription, Metrics};
    pub use crate::notify::{Notify, address as notify_address, watchdog};
    pub use crate::serve::{Listener, Pages, Site};
}
