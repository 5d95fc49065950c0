//! The capacity that is allocatable to pods.

use std::collections::BTreeMap;

use nodepulse_core::node_status::Allocation;
use nodepulse_core::pressure::threshold::{Strength, Threshold, ThresholdValue};
use nodepulse_core::reading::Signal;
use nodepulse_core::units::quantity::Quantity;

use super::error::ConfigError;
use super::keys::Keys;
use super::labels;
use super::table::{RESOURCES, key};

/// Reads `maxPods`, `podsPerCore`, `volumeLimits`, reservations, and hard thresholds.
pub(super) fn allocation(
    keys: &Keys<'_>,
    thresholds: &[Threshold],
) -> Result<Allocation, ConfigError> {
    let max_pods = keys.unless_unset(&key::max_pods)?;
    let per_core = keys.unless_unset(&key::pods_per_core)?;
    Ok(Allocation {
        max_pods: max_pods.unwrap_or_default(),
        pods_per_core: per_core.unwrap_or_default(),
        reserved: reserved(keys)?,
        volume_limits: labels::volume_limits(keys.map(&key::volume_limits)?)?,
        memory_threshold: hard_value(thresholds, Signal::MemoryAvailable),
        nodefs_threshold: hard_value(thresholds, Signal::NodefsAvailable),
    })
}

/// The sum of both reservations. `reservedSystemCPUs` replaces their CPUs, as in a kubelet.
fn reserved(keys: &Keys<'_>) -> Result<BTreeMap<String, Quantity>, ConfigError> {
    let mut sum = BTreeMap::new();
    for reservation in [&key::system_reserved, &key::kube_reserved] {
        for (resource, setting) in keys.map(reservation)? {
            if !RESOURCES.contains(&resource.as_str()) {
                let all = RESOURCES.join(", ");
                let why = format!("is for {resource:?}, which is not one of {all}");
                return Err(setting.refused(why));
            }
            let quantity = setting.parsed(reservation.parse)?;
            let entry: &mut Quantity = sum.entry(resource).or_default();
            *entry = entry.saturating_add(quantity);
        }
    }
    if let Some(cpus) = keys.optional(&key::reserved_system_cpus)?.flatten() {
        sum.insert("cpu".to_owned(), Quantity::from_count(cpus));
    }
    Ok(sum)
}

/// The hard threshold of a signal. There is at most one.
fn hard_value(thresholds: &[Threshold], signal: Signal) -> Option<ThresholdValue> {
    thresholds
        .iter()
        .find(|t| t.signal == signal && t.strength == Strength::Hard)
        .map(|t| t.value)
}
