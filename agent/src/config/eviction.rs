//! Merges the `eviction…` maps into one list of thresholds.

use std::collections::BTreeMap;
use std::time::Duration;

use nodepulse_core::pressure::threshold::{Strength, Threshold, ThresholdValue, parse_signal};
use nodepulse_core::reading::Signal;
use nodepulse_core::settings::Mode;

use super::error::ConfigError;
use super::keys::Keys;
use super::layers::Setting;
use super::spec::{KeySpec, Preset};
use super::table::key;

/// The effective thresholds, sorted by signal, hard before soft.
pub(super) fn thresholds(keys: &Keys<'_>, mode: Mode) -> Result<Vec<Threshold>, ConfigError> {
    let mut thresholds = hard(keys, mode)?;
    thresholds.extend(soft(keys)?);
    let reclaims = reclaims(keys)?;
    for threshold in &mut thresholds {
        threshold.min_reclaim = reclaims.get(&threshold.signal).copied();
    }
    thresholds.sort_by_key(|threshold| (threshold.signal, threshold.strength == Strength::Soft));
    Ok(thresholds)
}

/// The defaults, overridden key by key. Unlike in a kubelet, only an explicit
/// `mergeDefaultEvictionSettings: false` drops the defaults of omitted signals.
fn hard(keys: &Keys<'_>, mode: Mode) -> Result<Vec<Threshold>, ConfigError> {
    const SPEC: &KeySpec = &key::eviction_hard.spec;

    let merge = keys.value(&key::merge_default_eviction_settings)?;
    let given = keys.layers.map(SPEC)?;
    let base = match (SPEC.preset, mode) {
        _ if !merge && given.is_some() => &[],
        (Preset::Signals { node, .. }, Mode::Node) => node,
        (Preset::Signals { companion, .. }, Mode::Companion) => companion,
        (_, Mode::Node | Mode::Companion) => &[],
    };
    let base = base.iter().map(|(signal, text, from)| {
        let name = format!("{}.{signal}", SPEC.name);
        ((*signal).to_owned(), Setting::preset(&name, text, from))
    });
    let effective: BTreeMap<String, Setting> = base.chain(given.into_iter().flatten()).collect();
    keys.insert_map(SPEC, &effective);
    let parsed = effective.iter().map(|(name, setting)| parse(name, setting));
    parsed.filter_map(Result::transpose).collect()
}

fn soft(keys: &Keys<'_>) -> Result<Vec<Threshold>, ConfigError> {
    let mut graces: BTreeMap<String, Duration> = BTreeMap::new();
    for (name, setting) in keys.map(&key::eviction_soft_grace_period)? {
        signal(&name, &setting)?;
        graces.insert(name, setting.parsed(key::eviction_soft_grace_period.parse)?);
    }

    let given = keys.map(&key::eviction_soft)?;
    let mut thresholds = Vec::new();
    for (name, setting) in given {
        let threshold = parse(&name, &setting)?;
        let grace = graces.get(&name).ok_or_else(|| {
            setting.refused(format!(
                "is incomplete: grace period must be specified for the soft eviction threshold {name}; add \
                 `{}: {{{name}: 1m30s}}`",
                key::eviction_soft_grace_period.spec.name
            ))
        })?;
        thresholds.extend(threshold.map(|threshold| threshold.soft(*grace)));
    }
    Ok(thresholds)
}

fn reclaims(keys: &Keys<'_>) -> Result<BTreeMap<Signal, ThresholdValue>, ConfigError> {
    let given = keys.map(&key::eviction_minimum_reclaim)?;
    let mut reclaims = BTreeMap::new();
    for (name, setting) in given {
        let signal = signal(&name, &setting)?;
        let parse = |text: &str| ThresholdValue::parse_reclaim(text).map_err(|e| e.to_string());
        let value = setting.parsed(parse)?;
        reclaims.extend(signal.map(|signal| (signal, value)));
    }
    Ok(reclaims)
}

fn parse(name: &str, setting: &Setting) -> Result<Option<Threshold>, ConfigError> {
    signal(name, setting)?;
    setting.parsed(|text| Threshold::parse(name, text).map_err(|err| err.to_string()))
}

fn signal(name: &str, setting: &Setting) -> Result<Option<Signal>, ConfigError> {
    parse_signal(name).map_err(|err| setting.refused(format!("is for an {err}")))
}
