//! The numbers that tell how the agent and its node are doing, in one declared registry.
//!
//! Absent on purpose: reading anything. Whoever knows a number hands it over, when it moves or when
//! somebody asks. Every value of a label comes from a closed set, or from a table with a limit.

#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

mod declare;
mod disks;
mod families;
mod labelled;

pub use families::{ApiMetrics, KernelMetrics, NodeMetrics, ProcessMetrics};
pub use labelled::Labelled;

use declare::Declared;

/// `Content-Type` of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What every name of ours begins with.
const PREFIX: &str = "nodepulse";

/// A counter of seconds.
pub type Seconds = Counter<f64, AtomicU64>;

/// A value of a label.
pub type Label = Cow<'static, str>;

/// Everything that is measured.
#[derive(Debug)]
pub struct Metrics {
    registries: [Registry; 2],
    names: Vec<String>,
    /// Of the probes.
    pub kernel: KernelMetrics,
    /// Of the node and its conditions.
    pub node: NodeMetrics,
    /// Of what is written to the API server.
    pub api: ApiMetrics,
    /// Of the agent itself.
    pub process: ProcessMetrics,
}

impl Metrics {
    /// All of them, at nothing. `version` and `tier` never change while we run.
    #[must_use]
    pub fn new(version: &'static str, tier: &'static str) -> Self {
        let mut to = Declared::default();
        to.info("build", "This build", ("version", version));
        to.info("tier", "How much the kernel tells", ("tier", tier));
        to.by_hand(disks::NAME);
        let kernel = KernelMetrics::declare(&mut to);
        let node = NodeMetrics::declare(&mut to);
        let api = ApiMetrics::declare(&mut to);
        let process = ProcessMetrics::declare(&mut to);
        Self {
            registries: [to.ours, to.process],
            names: to.names,
            kernel,
            node,
            api,
            process,
        }
    }

    /// Every family that is declared, by its name in a `# TYPE` line.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// All of it in the format of [`CONTENT_TYPE`], with the latency of these disks: name, and the number of
    /// requests in each slot of a `DiskEntry`'s histogram.
    #[must_use]
    pub fn text(&self, disks: &[(&str, &[u64])]) -> String {
        let [ours, process] = &self.registries;
        let mut text = String::with_capacity(16 << 10);
        let written = encode_registry(&mut text, ours)
            .and_then(|()| disks::encode(&mut text, PREFIX, disks))
            .and_then(|()| encode_registry(&mut text, process))
            .and_then(|()| encode_eof(&mut text));
        debug_assert!(written.is_ok(), "writing to a string cannot fail");
        text
    }
}

/// Sets a counter that somebody else counts.
pub trait SetTotal<T> {
    /// To what it stands at there.
    fn set_total(&self, total: T);
}

impl SetTotal<u64> for Counter {
    fn set_total(&self, total: u64) {
        self.inner().store(total, Ordering::Relaxed);
    }
}

impl SetTotal<f64> for Seconds {
    fn set_total(&self, total: f64) {
        self.inner().store(total.to_bits(), Ordering::Relaxed);
    }
}
