//! Merges the `eviction…` maps into one list of thresholds.

use std::collections::BTreeMap;
use std::time::Duration;

use super::error::ConfigError;
use super::keys::{Keys, key};
use super::layers::Setting;
use super::{Mode, checks, defaults, duration};
use crate::pressure::threshold::{Strength, Threshold, ThresholdValue, parse_signal};
use crate::reading::Signal;

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
    const KEY: &str = "evictionHard";

    let merge = key!(
        keys,
        "mergeDefaultEvictionSettings",
        merge_default_eviction_settings
    );
    let merge = keys.value(&merge, &defaults::MERGE_EVICTION, checks::boolean)?;
    let flag = keys.flags.eviction_hard.as_ref();
    let given = keys
        .layers
        .map(KEY, '<', flag, |raw| raw.eviction_hard.as_ref())?;
    let base = match (mode, &given) {
        (_, Some(_)) if !merge => &[],
        (Mode::Node, _) => defaults::HARD_NODE.as_slice(),
        (Mode::Companion, _) => &defaults::HARD_COMPANION,
    };
    let base = base.iter().map(|(signal, preset)| {
        let setting = Setting::preset(&format!("{KEY}.{signal}"), preset);
        ((*signal).to_owned(), setting)
    });
    let effective: BTreeMap<String, Setting> = base.chain(given.into_iter().flatten()).collect();
    keys.insert_map(KEY, &effective);
    let parsed = effective
        .iter()
        .map(|(signal, setting)| parse(signal, setting));
    Ok(parsed
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .flatten()
        .collect())
}

fn soft(keys: &Keys<'_>) -> Result<Vec<Threshold>, ConfigError> {
    let flag = keys.flags.eviction_soft_grace_period.as_ref();
    let graces = keys.map("evictionSoftGracePeriod", '=', flag, |raw| {
        raw.eviction_soft_grace_period.as_ref()
    })?;
    let graces: BTreeMap<String, Duration> = graces
        .into_iter()
        .map(|(name, setting)| {
            signal(&name, &setting)?;
            Ok((name, setting.parsed(duration::parse)?))
        })
        .collect::<Result<_, ConfigError>>()?;

    let flag = keys.flags.eviction_soft.as_ref();
    let given = keys.map("evictionSoft", '<', flag, |raw| raw.eviction_soft.as_ref())?;
    let mut thresholds = Vec::new();
    for (name, setting) in given {
        let threshold = parse(&name, &setting)?;
        let grace = graces.get(&name).ok_or_else(|| {
            setting.refused(format!(
                "is incomplete: grace period must be specified for the soft eviction threshold {name}; add \
                 `evictionSoftGracePeriod: {{{name}: 1m30s}}`"
            ))
        })?;
        thresholds.extend(threshold.map(|threshold| threshold.soft(*grace)));
    }
    Ok(thresholds)
}

fn reclaims(keys: &Keys<'_>) -> Result<BTreeMap<Signal, ThresholdValue>, ConfigError> {
    let flag = keys.flags.eviction_minimum_reclaim.as_ref();
    let given = keys.map("evictionMinimumReclaim", '=', flag, |raw| {
        raw.eviction_minimum_reclaim.as_ref()
    })?;
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
