//! Configuration errors: one line with the key, the value and a valid example.

use std::io;
use std::path::{Path, PathBuf};

/// A valid example for each key, as in the file. The longest matching key is used.
const EXAMPLES: &[(&str, &str)] = &[
    ("mode", "mode: companion"),
    ("nodeName", "nodeName: worker-1"),
    ("kubeconfig", "kubeconfig: /etc/nodepulse/kubeconfig"),
    ("hostRoot", "hostRoot: /host"),
    ("rootDirectory", "rootDirectory: /var/lib/kubelet"),
    ("stateDirectory", "stateDirectory: /run/nodepulse"),
    ("cgroupRoot", "cgroupRoot: /"),
    ("cgroupDriver", "cgroupDriver: systemd"),
    ("enforceNodeAllocatable", "enforceNodeAllocatable: [pods]"),
    (
        "evictionHard",
        "evictionHard: {memory.available: 100Mi, nodefs.available: 10%}",
    ),
    ("evictionSoft", "evictionSoft: {memory.available: 10%}"),
    (
        "evictionSoftGracePeriod",
        "evictionSoftGracePeriod: {memory.available: 1m30s}",
    ),
    (
        "evictionMinimumReclaim",
        "evictionMinimumReclaim: {nodefs.available: 500Mi}",
    ),
    (
        "mergeDefaultEvictionSettings",
        "mergeDefaultEvictionSettings: true",
    ),
    (
        "evictionPressureTransitionPeriod",
        "evictionPressureTransitionPeriod: 5m",
    ),
    (
        "nodeStatusUpdateFrequency",
        "nodeStatusUpdateFrequency: 10s",
    ),
    ("nodeStatusReportFrequency", "nodeStatusReportFrequency: 5m"),
    ("nodeLeaseDurationSeconds", "nodeLeaseDurationSeconds: 40"),
    ("registerNode", "registerNode: true"),
    ("port", "port: 10250"),
    ("volumeLimits", "volumeLimits: {disk.csi.example.com: 16}"),
    ("takeOver", "takeOver: false"),
    (
        "registerWithTaints",
        "registerWithTaints: [{key: dedicated, value: edge, effect: NoSchedule}]",
    ),
    ("nodeLabels", "nodeLabels: {example.com/rack: r7}"),
    ("conditions", "conditions: {DiskStallPressure: false}"),
    (
        "taints",
        "taints: {MemoryLow: NoSchedule, DiskIOPressure: {effect: NoExecute, key: example.com/slow}}",
    ),
    ("nodeIP", "nodeIP: 192.0.2.10,2001:db8::10"),
    ("providerID", "providerID: metal://rack-7/host-3"),
    ("maxPods", "maxPods: 110"),
    ("podsPerCore", "podsPerCore: 10"),
    ("systemReserved", "systemReserved: {cpu: 500m, memory: 1Gi}"),
    ("kubeReserved", "kubeReserved: {cpu: 500m, memory: 1Gi}"),
    ("reservedSystemCPUs", "reservedSystemCPUs: 0-3,8"),
    (
        "enableControllerAttachDetach",
        "enableControllerAttachDetach: true",
    ),
    (
        "diskIO",
        "diskIO: {solidState: {slow: 20ms}, rotational: {slow: 100ms}}",
    ),
    ("psi", "psi: {enabled: true, threshold: 40%}"),
    ("oom", "oom: {nodeEvents: false}"),
    ("diskIO.window", "diskIO: {window: 1s}"),
    ("diskIO.devices", "diskIO: {devices: {sda: {slow: 50ms}}}"),
    (
        "diskIO.raisesDiskPressure",
        "diskIO: {raisesDiskPressure: false}",
    ),
    ("runtime", "runtime: {endpoint: none}"),
    ("kubernetesVersion", "kubernetesVersion: v1.33.0"),
    ("kernel", "kernel: {tier: auto}"),
    ("kernel.probes", "kernel: {probes: [oom, pids, disks]}"),
    ("events", "events: {queue: 1000}"),
    ("serve", "serve: {address: 127.0.0.1:20260}"),
    ("sandbox", "sandbox: auto"),
    ("log", "log: {level: info, format: text}"),
    ("log.level", "log: {level: info}"),
    ("log.format", "log: {format: json}"),
    (
        "apiVersion",
        concat!("apiVersion: ", domain!(), "/v1alpha1"),
    ),
    ("kind", "kind: NodepulseConfiguration"),
    (
        "kubelet.apiVersion",
        "apiVersion: kubelet.config.k8s.io/v1beta1",
    ),
    ("kubelet.kind", "kind: KubeletConfiguration"),
];

/// Maximum length of a value in an error.
const LONGEST_VALUE: usize = 80;
/// Maximum length of a key or an explanation in an error.
const LONGEST_TEXT: usize = 256;

/// A configuration error.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path:?} ({source}); set a readable file with {flag}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The flag for this file.
        flag: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The file is not YAML, or a key has a value of the wrong kind.
    #[error("{path:?}, line {line}: {text:?}: {why}; example: {example}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from one; zero if unknown.
        line: u64,
        /// The text of the line.
        text: String,
        /// The message of the parser.
        why: String,
        /// A valid example.
        example: &'static str,
    },
    /// An unknown key.
    #[error("{path:?}, line {line}: unknown key {key:?}; the nearest known key is {nearest}")]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The line, from one.
        line: u64,
        /// The key.
        key: String,
        /// The nearest known key.
        nearest: &'static str,
    },
    /// An invalid value.
    #[error("{origin}: {value:?} {why}; example: {example}")]
    Value {
        /// The key in the file, the flag, or the environment variable.
        origin: String,
        /// The value.
        value: String,
        /// The fault.
        why: String,
        /// A valid example.
        example: &'static str,
    },
}

impl ConfigError {
    /// An invalid value of `key`.
    pub(super) fn value(key: &str, origin: &str, value: &str, why: &str) -> Self {
        Self::Value {
            origin: one_line(origin),
            value: shortened(value, LONGEST_VALUE),
            why: one_line(why),
            example: example(key),
        }
    }

    /// An unknown key.
    pub(super) fn unknown_key(path: &Path, line: u64, key: &str, known: &[&'static str]) -> Self {
        let key = shortened(key, LONGEST_VALUE);
        Self::UnknownKey {
            path: path.to_owned(),
            line,
            nearest: nearest(&key, known),
            key,
        }
    }

    /// A line that the parser refused.
    pub(super) fn syntax(path: &Path, line: u64, text: &str, why: &str) -> Self {
        let key = text.trim_start_matches([' ', '-']);
        let key = key.split(':').next().unwrap_or_default();
        Self::Syntax {
            path: path.to_owned(),
            line,
            text: shortened(text.trim(), LONGEST_VALUE),
            why: one_line(why),
            example: example(key),
        }
    }
}

/// A valid example of `key`, or the file's head if the key is unknown.
fn example(key: &str) -> &'static str {
    EXAMPLES
        .iter()
        .filter(|(known, _)| {
            key.strip_prefix(known)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
        .max_by_key(|(known, _)| known.len())
        .map_or(
            concat!("apiVersion: ", domain!(), "/v1alpha1"),
            |(_, example)| example,
        )
}

/// Escapes control characters and bidirectional marks, so that a key cannot imitate a second
/// message or another key.
pub(super) fn one_line(text: &str) -> String {
    let text = shortened(text, LONGEST_TEXT);
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        // Invisible characters are escaped, but not quotes and backslashes.
        if c.is_control() || c.escape_debug().len() > 2 {
            line.extend(c.escape_debug());
        } else {
            line.push(c);
        }
    }
    line
}

fn shortened(text: &str, limit: usize) -> String {
    let mut cut: String = text.chars().take(limit).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    cut
}

/// The known key with the smallest edit distance from `key`, ignoring case.
pub(super) fn nearest(key: &str, known: &[&'static str]) -> &'static str {
    known
        .iter()
        .min_by_key(|candidate| distance(&key.to_lowercase(), &candidate.to_lowercase()))
        .copied()
        .unwrap_or_default()
}

/// The Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, in_a) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, in_b) in row.iter_mut().skip(1).zip(b.chars()) {
            let substituted = diagonal + usize::from(in_a != in_b);
            diagonal = *cell;
            left = substituted.min(left + 1).min(*cell + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_edits() {
        let rows = [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("flaw", "lawn", 2),
            ("maxpods", "maxpods", 0),
            ("maxpod", "maxpods", 1),
            ("maxxpods", "maxpods", 1),
        ];
        for (a, b, expected) in rows {
            assert_eq!(distance(a, b), expected, "{a:?} to {b:?}");
        }
    }

    #[test]
    fn an_error_is_one_bounded_line() {
        let key = "\u{202e}\n\u{1}'k".repeat(1000);
        let value = ConfigError::value(&key, &key, &key, &key);
        let unknown = ConfigError::unknown_key(Path::new("/f"), 1, &key, &["mode"]);
        for line in [value, unknown].map(|err| err.to_string()) {
            let shown = line.chars().all(|c| !c.is_control() && c != '\u{202e}');
            assert!(shown && line.contains("'k"), "{line}");
            assert!(line.len() < 4000, "{}", line.len());
        }
    }

    #[test]
    fn the_longest_matching_key_selects_the_example() {
        let rows = [
            ("maxPods", "maxPods: 110"),
            (
                "evictionHard.memory.available",
                "evictionHard: {memory.available: 100Mi, nodefs.available: 10%}",
            ),
            (
                "evictionSoftGracePeriod.a",
                "evictionSoftGracePeriod: {memory.available: 1m30s}",
            ),
            (
                "diskIO.rotational.slow",
                "diskIO: {solidState: {slow: 20ms}, rotational: {slow: 100ms}}",
            ),
            ("diskIO.window", "diskIO: {window: 1s}"),
            ("nonsense", "apiVersion: nodepulse.dev/v1alpha1"),
        ];
        for (key, expected) in rows {
            assert_eq!(example(key), expected, "{key}");
        }
    }
}
