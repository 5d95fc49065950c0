//! Registers metrics and records their descriptions.

use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};

use super::labelled::{FamilyMetric, Labelled};
use super::{NODE_LABEL, PREFIX};

/// A metric family, as in its `# TYPE` and `# HELP` lines.
#[derive(Debug)]
#[cfg_attr(
    not(feature = "testing"),
    expect(dead_code, reason = "the documentation is generated from it")
)]
pub struct MetricDescription {
    /// Name without the suffixes of the series, such as `_total`.
    pub name: String,
    /// `counter`, `gauge`, `histogram` or `info`.
    pub kind: &'static str,
    /// Names of the labels, apart from the one with the Node's name.
    pub labels: Vec<&'static str>,
    /// Text without a full stop.
    pub help: &'static str,
}

pub(super) struct Declarations {
    /// Registry with nodepulse's prefix.
    pub(super) nodepulse: Registry,
    /// Registry without a prefix: the standard process metrics of Prometheus clients.
    pub(super) process: Registry,
    pub(super) node: String,
    pub(super) described: Vec<MetricDescription>,
}

impl Declarations {
    /// Every series has the label [`NODE_LABEL`] with the name `node`.
    pub(super) fn new(node: &str) -> Self {
        let label = || std::iter::once((NODE_LABEL.into(), node.to_owned().into()));
        Self {
            nodepulse: Registry::with_prefix_and_labels(PREFIX, label()),
            process: Registry::with_labels(label()),
            node: node.to_owned(),
            described: Vec::new(),
        }
    }

    pub(super) fn metric<M>(&mut self, name: &str, help: &'static str, metric: M) -> M
    where
        M: Metric + Clone,
    {
        self.register((name, None), help, &[], metric.clone());
        metric
    }

    pub(super) fn in_seconds<M>(&mut self, name: &str, help: &'static str, metric: M) -> M
    where
        M: Metric + Clone,
    {
        self.register((name, Some(Unit::Seconds)), help, &[], metric.clone());
        metric
    }

    pub(super) fn labelled<M: FamilyMetric, const N: usize>(
        &mut self,
        name: &str,
        help: &'static str,
        keys: [&'static str; N],
    ) -> Labelled<M, N> {
        let labelled = Labelled::new(keys);
        self.register((name, None), help, &keys, labelled.family());
        labelled
    }

    pub(super) fn labelled_in_seconds<M: FamilyMetric, const N: usize>(
        &mut self,
        name: &str,
        help: &'static str,
        keys: [&'static str; N],
    ) -> Labelled<M, N> {
        let labelled = Labelled::new(keys);
        self.register((name, Some(Unit::Seconds)), help, &keys, labelled.family());
        labelled
    }

    pub(super) fn info(
        &mut self,
        name: &str,
        help: &'static str,
        label: (&'static str, &'static str),
    ) {
        self.register((name, None), help, &[label.0], Info::new([label]));
    }

    pub(super) fn process<M>(&mut self, name: &str, help: &'static str, unit: Option<Unit>) -> M
    where
        M: Metric + Clone + Default,
    {
        let metric = M::default();
        self.describe(with_unit(name, unit.as_ref()), help, &[], &metric);
        register(&mut self.process, name, help, unit, metric.clone());
        metric
    }

    /// Registers and describes a metric with nodepulse's prefix.
    fn register(
        &mut self,
        (name, unit): (&str, Option<Unit>),
        help: &'static str,
        labels: &[&'static str],
        metric: impl Metric,
    ) {
        let whole = format!("{PREFIX}_{}", with_unit(name, unit.as_ref()));
        self.describe(whole, help, labels, &metric);
        register(&mut self.nodepulse, name, help, unit, metric);
    }

    fn describe(
        &mut self,
        name: String,
        help: &'static str,
        labels: &[&'static str],
        metric: &impl Metric,
    ) {
        let kind = match metric.metric_type() {
            MetricType::Counter => "counter",
            MetricType::Histogram => "histogram",
            MetricType::Info => "info",
            MetricType::Gauge | MetricType::Unknown => "gauge",
        };
        self.described.push(MetricDescription {
            name,
            kind,
            labels: labels.to_vec(),
            help,
        });
    }
}

fn with_unit(name: &str, unit: Option<&Unit>) -> String {
    let unit = unit.map_or_else(String::new, |unit| format!("_{}", unit.as_str()));
    format!("{name}{unit}")
}

fn register(
    registry: &mut Registry,
    name: &str,
    help: &'static str,
    unit: Option<Unit>,
    metric: impl Metric,
) {
    match unit {
        Some(unit) => registry.register_with_unit(name, help, unit, metric),
        None => registry.register(name, help, metric),
    }
}
