//! A metric with labels.

use std::fmt;

use prometheus_client::encoding::EncodeMetric;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::family::Family;

use super::Label;

/// Keys and values, in the order of the output.
type Labels<const N: usize> = [(&'static str, Label); N];

pub trait FamilyMetric:
    EncodeMetric + TypedMetric + Default + Clone + fmt::Debug + Send + Sync + 'static
{
}

impl<M> FamilyMetric for M where
    M: EncodeMetric + TypedMetric + Default + Clone + fmt::Debug + Send + Sync + 'static
{
}

#[derive(Debug)]
pub struct Labelled<M, const N: usize> {
    keys: [&'static str; N],
    family: Family<Labels<N>, M>,
}

impl<M: FamilyMetric, const N: usize> Labelled<M, N> {
    pub(super) fn new(keys: [&'static str; N]) -> Self {
        Self {
            keys,
            family: Family::default(),
        }
    }

    /// The same family, for the registry.
    pub(super) fn family(&self) -> Family<Labels<N>, M> {
        self.family.clone()
    }

    /// The metric with these label values, in the order of the keys.
    pub fn of<V: Into<Label>>(&self, values: [V; N]) -> M {
        self.family.get_or_create_owned(&self.labels(values))
    }

    pub fn remove<V: Into<Label>>(&self, values: [V; N]) {
        self.family.remove(&self.labels(values));
    }

    fn labels<V: Into<Label>>(&self, values: [V; N]) -> Labels<N> {
        let mut keys = self.keys.into_iter();
        values.map(|value| (keys.next().unwrap_or_default(), value.into()))
    }
}
