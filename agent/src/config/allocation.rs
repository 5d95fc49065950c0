//! The capacity that is allocatable to pods.

use std::collections::BTreeMap;

use super::error::ConfigError;
use super::keys::{Keys, key};
use super::layers::Setting;
use super::{checks, defaults, labels};
use crate::node_status::Allocation;
use crate::pressure::threshold::{Strength, Threshold, ThresholdValue};
use crate::reading::Signal;
use crate::units::quantity::Quantity;

/// `maxPods`, `podsPerCore`, `volumeLimits`, the reservations, and the hard thresholds that
/// reserve.
pub(super) fn allocation(
    keys: &Keys<'_>,
    thresholds: &[Threshold],
) -> Result<Allocation, ConfigError> {
    let max_pods = key!(keys, "maxPods", max_pods);
    let max_pods = keys.unless_unset(&max_pods, &defaults::MAX_PODS, checks::count)?;
    let per_core = key!(keys, "podsPerCore", pods_per_core);
    let per_core = keys.unless_unset(&per_core, &defaults::PODS_PER_CORE, checks::count)?;
    Ok(Allocation {
        max_pods: max_pods.unwrap_or_default(),
        pods_per_core: per_core.unwrap_or_default(),
        reserved: reserved(keys)?,
        volume_limits: volume_limits(keys)?,
        memory_threshold: hard_value(thresholds, Signal::MemoryAvailable),
        nodefs_threshold: hard_value(thresholds, Signal::NodefsAvailable),
    })
}

/// The sum of both reservations. `reservedSystemCPUs` replaces their CPUs, as in a kubelet.
fn reserved(keys: &Keys<'_>) -> Result<BTreeMap<String, Quantity>, ConfigError> {
    let mut sum = BTreeMap::new();
    let system = keys.flags.system_reserved.as_ref();
    let system = keys.map("systemReserved", '=', system, |raw| {
        raw.system_reserved.as_ref()
    })?;
    add_reservations(&mut sum, system)?;
    let kube = keys.flags.kube_reserved.as_ref();
    let kube = keys.map("kubeReserved", '=', kube, |raw| raw.kube_reserved.as_ref())?;
    add_reservations(&mut sum, kube)?;
    let cpus = key!(keys, "reservedSystemCPUs", reserved_system_cpus);
    if let Some(cpus) = keys.optional(&cpus, checks::cpus)?.flatten() {
        sum.insert("cpu".to_owned(), Quantity::from_count(cpus));
    }
    Ok(sum)
}

fn volume_limits(keys: &Keys<'_>) -> Result<BTreeMap<String, u32>, ConfigError> {
    let flag = keys.flags.volume_limits.as_ref();
    let limits = keys.map("volumeLimits", '=', flag, |raw| raw.volume_limits.as_ref())?;
    labels::volume_limits(limits)
}

/// Adds the reservations of one map to the sum.
fn add_reservations(
    sum: &mut BTreeMap<String, Quantity>,
    settings: BTreeMap<String, Setting>,
) -> Result<(), ConfigError> {
    const KNOWN: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];

    for (resource, setting) in settings {
        if !KNOWN.contains(&resource.as_str()) {
            let why = format!(
                "is for {resource:?}, which is not one of {}",
                KNOWN.join(", ")
            );
            return Err(setting.refused(why));
        }
        let quantity = setting.parsed(checks::reservation)?;
        let entry = sum.entry(resource).or_default();
        *entry = entry.saturating_add(quantity);
    }
    Ok(())
}

/// The hard threshold of a signal. There is at most one.
fn hard_value(thresholds: &[Threshold], signal: Signal) -> Option<ThresholdValue> {
    thresholds
        .iter()
        .find(|t| t.signal == signal && t.strength == Strength::Hard)
        .map(|t| t.value)
}
