//! Names, labels and taints, checked by the API server's rules before any request.

use std::collections::BTreeMap;

use clap::ValueEnum as _;
use nodepulse_core::node_status::Taint;
use nodepulse_core::object_name::is_subdomain;

use super::choices::{Effect, names};
use super::error::ConfigError;
use super::layers::Setting;
use super::table::key;

/// Maximum length of a label value, and of the name part of a key.
const LONGEST_VALUE: usize = 63;

/// Keys under `kubernetes.io` and `k8s.io` that a node may set on itself.
///
/// <https://github.com/kubernetes/kubernetes/blob/v1.33.0/staging/src/k8s.io/kubelet/pkg/apis/well_known_labels.go>
const ALLOWED_KEYS: [&str; 11] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];

/// Namespaces for nodes, with their subdomains.
const ALLOWED_NAMESPACES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Checks a node name: a DNS-1123 subdomain that is also a valid label value.
pub(super) fn check_node_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("is empty".to_owned());
    }
    if name.len() > LONGEST_VALUE {
        return Err(format!("is longer than {LONGEST_VALUE} characters"));
    }
    if !is_subdomain(name) {
        return Err(
            "is not a DNS-1123 subdomain (a-z, 0-9, - and ., each part beginning and ending \
             with a letter or digit)"
                .to_owned(),
        );
    }
    Ok(())
}

/// Checks `volumeLimits`: the number of attachable volumes by CSI driver.
pub(super) fn volume_limits(
    settings: BTreeMap<String, Setting>,
) -> Result<BTreeMap<String, u32>, ConfigError> {
    let limit = |(driver, setting): (String, Setting)| {
        let limit = setting.parsed(|text| {
            check_csi_driver(&driver)?;
            (key::volume_limits.parse)(text)
        })?;
        Ok((driver, limit.unwrap_or(0)))
    };
    settings.into_iter().map(limit).collect()
}

/// Checks the name of a CSI driver, which becomes part of a resource name.
fn check_csi_driver(name: &str) -> Result<(), String> {
    // With the prefix `attachable-volumes-csi-` the name must fit into 63 characters.
    const LONGEST: usize = 39;

    if name.is_empty() || name.len() > LONGEST || !is_label_text(name) {
        return Err(format!(
            "has a key that is not a CSI driver name (letters, digits, - and ., at most {LONGEST} \
             characters)"
        ));
    }
    Ok(())
}

/// Checks `nodeLabels`, by the kubelet's rules for `--node-labels`.
pub(super) fn node_labels(
    settings: BTreeMap<String, Setting>,
) -> Result<BTreeMap<String, String>, ConfigError> {
    settings
        .into_iter()
        .map(|(key, setting)| {
            check_key(&key)
                .and_then(|()| check_allowed(&key))
                .and_then(|()| check_value(&setting.text))
                .map_err(|why| setting.refused(why))?;
            Ok((key, setting.text))
        })
        .collect()
}

/// Checks `registerWithTaints`, each as `key=value:effect` or `key:effect`. Keeps the order.
pub(super) fn taints(settings: Vec<Setting>) -> Result<Vec<Taint>, ConfigError> {
    let mut taints: Vec<Taint> = Vec::new();
    for setting in settings {
        let taint = parse_taint(&setting.text).map_err(|why| setting.refused(why))?;
        let same = |other: &Taint| other.key == taint.key && other.effect == taint.effect;
        if taints.iter().any(same) {
            return Err(setting.refused("repeats the key and the effect of another taint"));
        }
        taints.push(taint);
    }
    Ok(taints)
}

/// Parses `key=value:effect` or `key:effect`.
pub(super) fn parse_taint(text: &str) -> Result<Taint, String> {
    let (name, effect) = text.rsplit_once(':').ok_or("has no effect")?;
    let (key, value) = name.split_once('=').unwrap_or((name, ""));
    check_key(key)?;
    check_value(value)?;
    Effect::from_str(effect, false)
        .map_err(|_| format!("has an effect other than {}", names::<Effect>().join(", ")))?;
    Ok(Taint {
        key: key.to_owned(),
        value: value.to_owned(),
        effect: effect.to_owned(),
    })
}

fn check_allowed(key: &str) -> Result<(), String> {
    let Some((namespace, _)) = key.split_once('/') else {
        return Ok(());
    };
    let allowed = ALLOWED_KEYS.contains(&key)
        || ALLOWED_NAMESPACES
            .iter()
            .any(|allowed| is_or_below(namespace, allowed));
    if is_kubernetes_namespace(key) && !allowed {
        return Err(
            "has a key in a namespace that nodes may not set; use another domain, or \
             node.kubernetes.io"
                .to_owned(),
        );
    }
    Ok(())
}

pub(super) fn is_kubernetes_namespace(key: &str) -> bool {
    let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
    ["kubernetes.io", "k8s.io"]
        .iter()
        .any(|domain| is_or_below(namespace, domain))
}

fn is_or_below(namespace: &str, domain: &str) -> bool {
    namespace
        .strip_suffix(domain)
        .is_some_and(|front| front.is_empty() || front.ends_with('.'))
}

/// Checks a label or taint key: `name`, or `prefix/name` with a DNS subdomain for prefix.
fn check_key(key: &str) -> Result<(), String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let prefix_ok = prefix.is_none_or(is_subdomain);
    if prefix_ok && !name.is_empty() && is_label_text(name) {
        return Ok(());
    }
    Err(
        "has a key that is not a qualified name (letters, digits, -, _ and . after an optional \
         DNS prefix and /)"
            .to_owned(),
    )
}

fn check_value(value: &str) -> Result<(), String> {
    if is_label_text(value) {
        return Ok(());
    }
    Err(format!(
        "has a value that is not a label value (at most {LONGEST_VALUE} letters, digits, -, _ and ., \
         beginning and ending with a letter or digit)"
    ))
}

/// Returns `true` if `text` is a valid label value, which may be empty.
fn is_label_text(text: &str) -> bool {
    let end_ok = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= LONGEST_VALUE
        && end_ok(text.chars().next())
        && end_ok(text.chars().next_back())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_names_are_subdomains_that_fit_a_label() {
        let longest = "a".repeat(63);
        let too_long = "a".repeat(64);
        let rows = [
            ("worker-1", true),
            ("1.example.com", true),
            (longest.as_str(), true),
            (too_long.as_str(), false),
            ("", false),
            ("Worker", false),
            ("-a", false),
            ("a-", false),
            ("a..b", false),
            ("a_b", false),
            ("a.", false),
            ("a\nb", false),
        ];
        for (name, valid) in rows {
            assert_eq!(check_node_name(name).is_ok(), valid, "{name:?}");
        }
    }

    #[test]
    fn label_keys_follow_the_kubelets_rules() {
        let long = format!("a/{}", "n".repeat(64));
        let rows = [
            ("role", true),
            ("example.com/role", true),
            ("kubernetes.io/hostname", true),
            ("kubernetes.io/os", true),
            ("topology.kubernetes.io/zone", true),
            ("node.kubernetes.io/anything", true),
            ("sub.node.kubernetes.io/anything", true),
            ("kubelet.kubernetes.io/x", true),
            ("notkubernetes.io/x", true),
            ("kubernetes.io/role", false),
            ("node-role.kubernetes.io/worker", false),
            ("node-restriction.kubernetes.io/x", false),
            ("k8s.io/x", false),
            ("a.k8s.io/x", false),
            ("mynode.kubernetes.io/x", false),
            ("", false),
            ("/x", false),
            ("a/", false),
            ("a/b/c", false),
            ("UPPER.com/x", false),
            ("-x", false),
            ("a b", false),
            (long.as_str(), false),
        ];
        for (key, valid) in rows {
            let checked = check_key(key).and_then(|()| check_allowed(key));
            assert_eq!(checked.is_ok(), valid, "{key:?}");
        }
    }

    #[test]
    fn label_values_may_be_empty_and_no_longer_than_63() {
        let longest = "v".repeat(63);
        let too_long = "v".repeat(64);
        let rows = [
            ("", true),
            ("A_b.c-1", true),
            (longest.as_str(), true),
            (too_long.as_str(), false),
            (".a", false),
            ("a-", false),
            ("a b", false),
            ("ä", false),
        ];
        for (value, valid) in rows {
            assert_eq!(check_value(value).is_ok(), valid, "{value:?}");
        }
    }

    #[test]
    fn taints_parse_with_and_without_a_value() {
        let taint = |key: &str, value: &str, effect: &str| Taint {
            key: key.to_owned(),
            value: value.to_owned(),
            effect: effect.to_owned(),
        };
        #[rustfmt::skip]
        let rows = [
            ("a=b:NoSchedule", Ok(taint("a", "b", "NoSchedule"))),
            ("a:NoExecute", Ok(taint("a", "", "NoExecute"))),
            ("a=:PreferNoSchedule", Ok(taint("a", "", "PreferNoSchedule"))),
            ("example.com/a=b:NoExecute", Ok(taint("example.com/a", "b", "NoExecute"))),
            ("a=b", Err(())),
            ("a=b:", Err(())),
            ("a=b:noschedule", Err(())),
            ("=b:NoSchedule", Err(())),
            ("a=b c:NoSchedule", Err(())),
            ("", Err(())),
        ];
        for (text, expected) in rows {
            assert_eq!(parse_taint(text).map_err(|_| ()), expected, "{text:?}");
        }
    }
}
