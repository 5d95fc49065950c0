//! `conditions` and `taints`: the conditions that companion mode writes, and their taints.

use std::collections::{BTreeMap, BTreeSet};

use nodepulse_core::node_status::Taint;
use nodepulse_core::node_status::nodepulse_condition::NodepulseCondition;
use nodepulse_core::settings::Mode;

use super::checks;
use super::error::ConfigError;
use super::keys::Keys;
use super::labels::{is_kubernetes_namespace, parse_taint};
use super::layers::Setting;
use super::table::key;

/// The default effect: no pod is evicted.
const EFFECT: &str = "NoSchedule";

/// The effect that evicts pods.
const EVICTING: &str = "NoExecute";

type ConditionsAndTaints = (
    BTreeSet<NodepulseCondition>,
    BTreeMap<NodepulseCondition, Taint>,
);

pub(super) fn conditions_and_taints(
    keys: &Keys<'_>,
    mode: Mode,
) -> Result<ConditionsAndTaints, ConfigError> {
    let enabled = conditions(keys.map(&key::conditions)?, mode)?;
    let taints = taints(keys.map(&key::taints)?, mode, &enabled)?;
    Ok((enabled, taints))
}

/// The conditions that are on by default, or as configured.
fn conditions(
    settings: BTreeMap<String, Setting>,
    mode: Mode,
) -> Result<BTreeSet<NodepulseCondition>, ConfigError> {
    let by_default = NodepulseCondition::ALL.into_iter();
    let by_default = by_default.filter(|condition| condition.is_on_by_default());
    let mut enabled: BTreeSet<NodepulseCondition> = by_default.collect();
    for (type_, setting) in settings {
        let nodepulse = condition(&type_, &setting, mode)?;
        if setting.parsed(key::conditions.parse)? {
            enabled.insert(nodepulse);
        } else {
            enabled.remove(&nodepulse);
        }
    }
    Ok(enabled)
}

/// The taints of conditions: `effect`, `key:effect`, `key=value:effect` or `=value:effect`. The
/// defaults are the condition's key and `NoSchedule`.
fn taints(
    settings: BTreeMap<String, Setting>,
    mode: Mode,
    enabled: &BTreeSet<NodepulseCondition>,
) -> Result<BTreeMap<NodepulseCondition, Taint>, ConfigError> {
    let mut taints: BTreeMap<NodepulseCondition, Taint> = BTreeMap::new();
    for (type_, setting) in settings {
        let nodepulse = condition(&type_, &setting, mode)?;
        let taint = setting.parsed(|text| taint(nodepulse, text))?;
        if !enabled.contains(&nodepulse) {
            return Err(
                setting.refused("is for a condition that is off; set it to true in `conditions`")
            );
        }
        let same = |other: &Taint| other.key == taint.key && other.effect == taint.effect;
        if taints.values().any(same) {
            return Err(setting.refused("repeats the key and the effect of another taint"));
        }
        taints.insert(nodepulse, taint);
    }
    Ok(taints)
}

fn condition(
    type_: &str,
    setting: &Setting,
    mode: Mode,
) -> Result<NodepulseCondition, ConfigError> {
    let all = NodepulseCondition::ALL;
    let nodepulse = all.into_iter().find(|one| one.type_() == type_);
    let nodepulse = nodepulse.ok_or_else(|| {
        let why = checks::suggestion(type_, &all.map(NodepulseCondition::type_));
        setting.refused(format!("is for a condition that {why}"))
    })?;
    match mode {
        Mode::Companion => Ok(nodepulse),
        // In node mode the Node has the kubelet's conditions, which cannot be disabled.
        Mode::Node => Err(setting.refused("requires mode: companion; remove it in mode: node")),
    }
}

fn taint(condition: NodepulseCondition, text: &str) -> Result<Taint, String> {
    let (name, effect) = text.rsplit_once(':').unwrap_or(("", text));
    let key = if name.is_empty() || name.starts_with('=') {
        condition.taint_key()
    } else {
        ""
    };
    let effect = if effect.is_empty() { EFFECT } else { effect };
    let taint = parse_taint(&format!("{key}{name}:{effect}"))?;
    if taint.effect == EVICTING && !condition.permits_no_execute() {
        return Err(no_execute());
    }
    if is_kubernetes_namespace(&taint.key) {
        return Err(
            "has a key in a Kubernetes namespace, which its controllers write; use another domain"
                .to_owned(),
        );
    }
    Ok(taint)
}

/// Returns why a taint of other conditions may not evict pods.
fn no_execute() -> String {
    let permitted = NodepulseCondition::ALL.into_iter();
    let permitted = permitted.filter(|condition| condition.permits_no_execute());
    let permitted: Vec<&str> = permitted.map(NodepulseCondition::type_).collect();
    format!(
        "has the effect {EVICTING}, which evicts pods, so their load would overload one node after \
         another; only {} may have it, use {EFFECT}",
        permitted.join(" and ")
    )
}
