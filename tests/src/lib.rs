//! End-to-end tests: the real agent, a real HTTP server, a simulated node; and real kernels.
//!
//! Four kinds of test; use the first that can fail for its reason:
//!
//! - simulated: [`node::Node`] on a [`host_root::MadeUpHost`], under tokio's paused clock, against
//!   [`api_server::ApiServer::in_memory`]; ten minutes of a node take a fraction of a second, and
//!   moments are exact: `tests/simulated/`;
//! - the real program: [`process::Process`] against [`api_server::ApiServer::start`], for what only
//!   a process has: exit codes, signals, what it prints: `tests/program/`;
//! - the real program against an API server of which only the address is known: `tests/cluster/`,
//!   on the embedded one as on a real one;
//! - the real kernel: `tests/kernel/`, by `cargo xtask test kernel`.
//!
//! Each folder of `tests/` is one test target, because linking a target takes long. A new file of
//! tests is a module of one of them.
//!
//! Tests check what the server contains and received ([`view::View`]), and wait with a deadline.

#![expect(
    clippy::missing_panics_doc,
    reason = "a helper of tests panics if it fails"
)]

pub mod alarms;
pub mod api_server;
pub mod containerd;
pub mod cost;
pub mod cri_server;
pub mod days;
pub mod demo;
pub mod flapping;
pub mod fuzzing;
pub mod helm;
pub mod host_root;
pub mod hostile;
pub mod http1;
pub mod hung_files;
pub mod kill_combinations;
pub mod loaded;
pub mod logged;
pub mod made_up;
pub mod manual;
pub mod node;
pub mod openmetrics;
pub mod pod;
pub mod pod_kills;
pub mod process;
pub mod provoke;
pub mod receiver;
pub mod skipped;
pub mod tape;
pub mod view;
pub mod vm;

use std::fmt::Debug;
use std::time::Duration;

pub use skipped::skip;

/// Time limit of something that happens at once on a working build.
pub const SOON: Duration = Duration::from_secs(10);

/// Waits until `probe` returns a value, by calling it every few milliseconds, for events without a
/// notification. Panics after [`SOON`] with the last error.
pub async fn eventually<T, E: Debug>(what: &str, mut probe: impl FnMut() -> Result<T, E>) -> T {
    let mut attempts = tokio::time::interval(Duration::from_millis(5));
    let mut last = None;
    let search = async {
        loop {
            attempts.tick().await;
            match probe() {
                Ok(found) => return found,
                Err(seen) => last = Some(seen),
            }
        }
    };
    let found = tokio::time::timeout(SOON, search).await;
    found.unwrap_or_else(|_| panic!("no {what} within {SOON:?}; last seen: {last:?}"))
}
