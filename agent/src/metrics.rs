//! The metrics of the agent and its node.
//!
//! Reads nothing: values are set when they change or on a scrape. Label values come from closed
//! sets or from bounded tables.

#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::mem::take;
use std::sync::atomic::{AtomicU64, Ordering};

use nodepulse_core::units::latency::DiskLatency;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

mod declare;
mod disk_latency;
mod families;
mod labelled;

#[cfg(feature = "testing")]
pub use declare::MetricDescription;
pub use families::{ApiMetrics, KernelMetrics, NodeMetrics, ProcessMetrics};

use declare::Declarations;

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const PREFIX: &str = "nodepulse";

/// The label with the Node's name, on every series: an agent describes one Node, and its address
/// (`instance`) does not name it.
const NODE_LABEL: &str = "node";

/// A counter of seconds.
pub type Seconds = Counter<f64, AtomicU64>;

pub type Label = Cow<'static, str>;

#[derive(Debug)]
pub struct Metrics {
    registries: [Registry; 2],
    node_name: String,
    pub kernel: KernelMetrics,
    pub node: NodeMetrics,
    pub api: ApiMetrics,
    pub process: ProcessMetrics,
}

impl Metrics {
    /// Creates all metrics, at zero, of the Node `node_name`. `version` and `tier` are constant.
    pub fn new(version: &'static str, tier: &'static str, node_name: &str) -> Self {
        Self::declare(version, tier, &mut Declarations::new(node_name))
    }

    fn declare(version: &'static str, tier: &'static str, to: &mut Declarations) -> Self {
        to.info("build", "Version of the agent", ("version", version));
        to.info("tier", "Source of kernel data", ("tier", tier));
        to.described.push(disk_latency::description());
        let kernel = KernelMetrics::declare(to);
        let node = NodeMetrics::declare(to);
        let api = ApiMetrics::declare(to);
        let process = ProcessMetrics::declare(to);
        Self {
            registries: [take(&mut to.nodepulse), take(&mut to.process)],
            node_name: take(&mut to.node),
            kernel,
            node,
            api,
            process,
        }
    }

    /// Lists all metric families, for the documentation.
    #[cfg(feature = "testing")]
    pub fn descriptions() -> Vec<MetricDescription> {
        let mut to = Declarations::new("");
        Self::declare("", "", &mut to);
        to.described
    }

    /// All metrics in the format of [`CONTENT_TYPE`], with the latency of `disks` by name.
    pub fn text(&self, disks: &[(&str, &DiskLatency)]) -> String {
        let [nodepulse, process] = &self.registries;
        let mut text = String::with_capacity(16 << 10);
        let written = encode_registry(&mut text, nodepulse)
            .and_then(|()| disk_latency::encode(&mut text, PREFIX, &self.node_name, disks))
            .and_then(|()| encode_registry(&mut text, process))
            .and_then(|()| encode_eof(&mut text));
        debug_assert!(written.is_ok(), "writing to a string cannot fail");
        text
    }
}

/// Sets a counter to a value from another source.
pub trait SetTotal<T> {
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
