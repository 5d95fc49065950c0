//! Registers metrics and records their names.

use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};

use super::labelled::{FamilyMetric, Labelled};
use super::{NODE_LABEL, PREFIX};

/// The registries under construction.
pub(super) struct Declarations {
    /// With nodepulse's prefix.
    pub(super) nodepulse: Registry,
    /// Without a prefix: the standard process metrics of Prometheus clients.
    pub(super) process: Registry,
    /// All metric names, as in `# TYPE` lines.
    pub(super) names: Vec<String>,
}

impl Declarations {
    /// Every series has the label [`NODE_LABEL`] with the name `node`.
    pub(super) fn new(node: &str) -> Self {
        let label = || std::iter::once((NODE_LABEL.into(), node.to_owned().into()));
        Self {
            nodepulse: Registry::with_prefix_and_labels(PREFIX, label()),
            process: Registry::with_labels(label()),
            names: Vec::new(),
        }
    }

    pub(super) fn metric<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.names.push(format!("{PREFIX}_{name}"));
        self.nodepulse.register(name, help, metric.clone());
        metric
    }

    pub(super) fn in_seconds<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.names.push(format!("{PREFIX}_{name}_seconds"));
        let unit = Unit::Seconds;
        self.nodepulse
            .register_with_unit(name, help, unit, metric.clone());
        metric
    }

    pub(super) fn labelled<M: FamilyMetric, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        keys: [&'static str; N],
    ) -> Labelled<M, N> {
        let labelled = Labelled::new(keys);
        self.metric(name, help, labelled.family());
        labelled
    }

    pub(super) fn info(&mut self, name: &str, help: &str, label: (&'static str, &'static str)) {
        self.names.push(format!("{PREFIX}_{name}"));
        self.nodepulse.register(name, help, Info::new([label]));
    }

    /// Declares a metric that is encoded without the registry.
    pub(super) fn declare_external(&mut self, name: &str) {
        self.names.push(format!("{PREFIX}_{name}"));
    }

    pub(super) fn process<M>(&mut self, name: &str, help: &str, unit: Option<Unit>) -> M
    where
        M: Metric + Clone + Default,
    {
        let metric = M::default();
        if let Some(unit) = unit {
            self.names.push(format!("{name}_{}", unit.as_str()));
            self.process
                .register_with_unit(name, help, unit, metric.clone());
        } else {
            self.names.push(name.to_owned());
            self.process.register(name, help, metric.clone());
        }
        metric
    }
}
