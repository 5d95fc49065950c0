//! From the five `eviction…` maps to one list of thresholds.

use std::collections::BTreeMap;
use std::time::Duration;

use super::error::ConfigError;
use super::layers::{Layers, Overrides, Setting};
use super::raw::RawConfig;
use super::{Mode, checks, defaults, duration};
use crate::pressure::threshold::{Strength, Threshold, ThresholdValue, parse_signal};
use crate::reading::Signal;

/// The effective thresholds, by signal, hard before soft.
pub(super) fn thresholds(
    layers: &Layers<'_>,
    flags: &Overrides,
    raw: &RawConfig,
    mode: Mode,
) -> Result<Vec<Threshold>, ConfigError> {
    let mut thresholds = hard(layers, flags, raw, mode)?;
    thresholds.extend(soft(layers, flags, raw)?);
    let reclaims = reclaims(layers, flags, raw)?;
    for threshold in &mut thresholds {
        threshold.min_reclaim = reclaims.get(&threshold.signal).copied();
    }
    thresholds.sort_by_key(|threshold| (threshold.signal, threshold.strength == Strength::Soft));
    Ok(thresholds)
}

/// The defaults, with the user's in their place key by key. Only an explicit
/// `mergeDefaultEvictionSettings: false` drops the defaults of the signals that the user left out,
/// which is what a kubelet does unasked.
fn hard(
    layers: &Layers<'_>,
    flags: &Overrides,
    raw: &RawConfig,
    mode: Mode,
) -> Result<Vec<Threshold>, ConfigError> {
    let merge = layers.setting(
        "mergeDefaultEvictionSettings",
        flags.merge_default_eviction_settings.as_ref(),
        raw.merge_default_eviction_settings.as_ref(),
    );
    let merge = merge.map(|setting| setting.parsed(checks::boolean));
    let merge = merge.transpose()?.unwrap_or(true);
    let given = layers.map(
        "evictionHard",
        '<',
        flags.eviction_hard.as_ref(),
        raw.eviction_hard.as_ref(),
    )?;

    let base: &[(&str, &str)] = match (mode, &given) {
        (_, Some(_)) if !merge => &[],
        (Mode::Node, _) => &defaults::HARD_NODE,
        (Mode::Companion, _) => &defaults::HARD_COMPANION,
    };
    let base = base.iter().map(|(signal, value)| {
        let setting = layers.in_file(&format!("evictionHard.{signal}"), value);
        ((*signal).to_owned(), setting)
    });
    let effective: BTreeMap<String, Setting> = base.chain(given.into_iter().flatten()).collect();
    let parsed = effective
        .iter()
        .map(|(signal, setting)| parse(signal, setting));
    Ok(parsed
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .flatten()
        .collect())
}

fn soft(
    layers: &Layers<'_>,
    flags: &Overrides,
    raw: &RawConfig,
) -> Result<Vec<Threshold>, ConfigError> {
    let graces = layers.map(
        "evictionSoftGracePeriod",
        '=',
        flags.eviction_soft_grace_period.as_ref(),
        raw.eviction_soft_grace_period.as_ref(),
    )?;
    let graces: BTreeMap<String, Duration> = graces
        .into_iter()
        .flatten()
        .map(|(name, setting)| {
            signal(&name, &setting)?;
            Ok((name, setting.parsed(duration::parse)?))
        })
        .collect::<Result<_, ConfigError>>()?;

    let given = layers.map(
        "evictionSoft",
        '<',
        flags.eviction_soft.as_ref(),
        raw.eviction_soft.as_ref(),
    )?;
    let mut thresholds = Vec::new();
    for (name, setting) in given.into_iter().flatten() {
        let threshold = parse(&name, &setting)?;
        let grace = graces.get(&name).ok_or_else(|| {
            setting.refused(format!(
                "is not enough: grace period must be specified for the soft eviction threshold {name}; add \
                 `evictionSoftGracePeriod: {{{name}: 1m30s}}`"
            ))
        })?;
        thresholds.extend(threshold.map(|threshold| threshold.soft(*grace)));
    }
    Ok(thresholds)
}

fn reclaims(
    layers: &Layers<'_>,
    flags: &Overrides,
    raw: &RawConfig,
) -> Result<BTreeMap<Signal, ThresholdValue>, ConfigError> {
    let given = layers.map(
        "evictionMinimumReclaim",
        '=',
        flags.eviction_minimum_reclaim.as_ref(),
        raw.eviction_minimum_reclaim.as_ref(),
    )?;
    let mut reclaims = BTreeMap::new();
    for (name, setting) in given.into_iter().flatten() {
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
