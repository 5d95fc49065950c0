//! `conditions` and `taints`: which conditions of our own are written, and what each taints.

use std::collections::{BTreeMap, BTreeSet};

use super::error::ConfigError;
use super::keys::Keys;
use super::labels::{is_kubernetes_own, parse_taint};
use super::layers::Setting;
use super::{Mode, checks};
use crate::node_status::Taint;
use crate::node_status::nodepulse_condition::NodepulseCondition;

/// Nothing new comes, and nobody has to go.
const EFFECT: &str = "NoSchedule";

/// `conditions`, and `taints`.
type ConditionsAndTaints = (
    BTreeSet<NodepulseCondition>,
    BTreeMap<NodepulseCondition, Taint>,
);

/// Both keys, checked.
pub(super) fn conditions_and_taints(
    keys: &Keys<'_>,
    mode: Mode,
) -> Result<ConditionsAndTaints, ConfigError> {
    let flag = keys.flags.conditions.as_ref();
    let settings = keys.map("conditions", '=', flag, |raw| raw.conditions.as_ref())?;
    let on = conditions(settings, mode)?;
    let flag = keys.flags.taints.as_ref();
    let settings = keys.map("taints", '=', flag, |raw| raw.taints.as_ref())?;
    let taints = taints(settings, mode, &on)?;
    Ok((on, taints))
}

/// Every condition but those that are turned off.
fn conditions(
    settings: BTreeMap<String, Setting>,
    mode: Mode,
) -> Result<BTreeSet<NodepulseCondition>, ConfigError> {
    let mut on = BTreeSet::from(NodepulseCondition::ALL);
    for (type_, setting) in settings {
        let own = condition(&type_, &setting, mode)?;
        if !setting.parsed(checks::boolean)? {
            on.remove(&own);
        }
    }
    Ok(on)
}

/// The taint of each condition that has one: `effect`, `key:effect`, `key=value:effect` or
/// `=value:effect`. The default key and `NoSchedule` stand for what is left out.
fn taints(
    settings: BTreeMap<String, Setting>,
    mode: Mode,
    on: &BTreeSet<NodepulseCondition>,
) -> Result<BTreeMap<NodepulseCondition, Taint>, ConfigError> {
    let mut taints: BTreeMap<NodepulseCondition, Taint> = BTreeMap::new();
    for (type_, setting) in settings {
        let own = condition(&type_, &setting, mode)?;
        if !on.contains(&own) {
            return Err(setting.refused("is for a condition that `conditions` turns off"));
        }
        let taint = setting.parsed(|text| taint(own, text))?;
        let same = |other: &Taint| other.key == taint.key && other.effect == taint.effect;
        if taints.values().any(same) {
            return Err(setting.refused("repeats the key and the effect of another taint"));
        }
        taints.insert(own, taint);
    }
    Ok(taints)
}

fn condition(
    type_: &str,
    setting: &Setting,
    mode: Mode,
) -> Result<NodepulseCondition, ConfigError> {
    let known = NodepulseCondition::ALL.map(|own| (own.type_(), own));
    let own = checks::nearest_of(&known)(type_)
        .map_err(|why| setting.refused(format!("is for a condition that {why}")))?;
    match mode {
        Mode::Companion => Ok(own),
        // A Node of ours has the kubelet's conditions, and those cannot be left out.
        Mode::Node => Err(setting.refused("is for companion mode; leave it out in mode: node")),
    }
}

fn taint(own: NodepulseCondition, text: &str) -> Result<Taint, String> {
    let (name, effect) = text.rsplit_once(':').unwrap_or(("", text));
    let key = if name.is_empty() || name.starts_with('=') {
        own.taint_key()
    } else {
        ""
    };
    let effect = if effect.is_empty() { EFFECT } else { effect };
    let taint = parse_taint(&format!("{key}{name}:{effect}"))?;
    if is_kubernetes_own(&taint.key) {
        return Err(
            "has a key of Kubernetes' own, which its controllers write; take a domain of your own"
                .to_owned(),
        );
    }
    Ok(taint)
}
