//! Puts metrics into the registry, and remembers what was declared.

use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};

use super::PREFIX;
use super::labelled::{Labelled, Member};

/// The registries while they are filled.
pub(super) struct Declared {
    /// With our prefix.
    pub(super) ours: Registry,
    /// Without: names that every Prometheus client gives to the same things.
    pub(super) process: Registry,
    /// All names, as in `# TYPE` lines.
    pub(super) names: Vec<String>,
}

impl Default for Declared {
    fn default() -> Self {
        Self {
            ours: Registry::with_prefix(PREFIX),
            process: Registry::default(),
            names: Vec::new(),
        }
    }
}

impl Declared {
    pub(super) fn metric<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.names.push(format!("{PREFIX}_{name}"));
        self.ours.register(name, help, metric.clone());
        metric
    }

    pub(super) fn in_seconds<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.names.push(format!("{PREFIX}_{name}_seconds"));
        let unit = Unit::Seconds;
        self.ours
            .register_with_unit(name, help, unit, metric.clone());
        metric
    }

    pub(super) fn labelled<M: Member, const N: usize>(
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
        self.ours.register(name, help, Info::new([label]));
    }

    /// One that is written without the registry.
    pub(super) fn by_hand(&mut self, name: &str) {
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
