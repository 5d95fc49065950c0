//! One metric for each value of its labels.

use std::fmt;

use prometheus_client::encoding::EncodeMetric;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::family::Family;

use super::Label;

/// Keys and values, in the order in which they are written.
type Labels<const N: usize> = [(&'static str, Label); N];

/// What a family can be made of.
pub trait Member:
    EncodeMetric + TypedMetric + Default + Clone + fmt::Debug + Send + Sync + 'static
{
}

impl<M> Member for M where
    M: EncodeMetric + TypedMetric + Default + Clone + fmt::Debug + Send + Sync + 'static
{
}

/// A metric with `N` labels.
#[derive(Debug)]
pub struct Labelled<M, const N: usize> {
    keys: [&'static str; N],
    family: Family<Labels<N>, M>,
}

impl<M: Member, const N: usize> Labelled<M, N> {
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

    /// The metric with these values, in the order of the keys.
    #[must_use]
    pub fn of<V: Into<Label>>(&self, values: [V; N]) -> M {
        self.family.get_or_create_owned(&self.labels(values))
    }

    /// From now on there is none with these values.
    pub fn remove<V: Into<Label>>(&self, values: [V; N]) {
        self.family.remove(&self.labels(values));
    }

    fn labels<V: Into<Label>>(&self, values: [V; N]) -> Labels<N> {
        let mut keys = self.keys.into_iter();
        values.map(|value| (keys.next().unwrap_or_default(), value.into()))
    }
}
