//! Why a configuration is refused: one line, with the key, the value and a correct example.

use std::io;
use std::path::{Path, PathBuf};

/// A correct example for each key, as it would stand in the file. The longest key that begins a
/// setting's own decides.
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

/// As much of a value as an error line repeats.
const LONGEST_VALUE: usize = 80;
/// As much of a key or of an explanation, both of which can repeat what was written.
const LONGEST_TEXT: usize = 256;

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path:?} ({source}); name a readable file with {flag}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// The flag that names such a file.
        flag: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The file is no YAML, or a key holds another kind of value than it should.
    #[error("{path:?}, line {line}: {text:?}: {why}; a correct example: {example}")]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// The line, from one; zero where the parser does not know.
        line: u64,
        /// That line.
        text: String,
        /// The parser's words.
        why: String,
        /// How it should be.
        example: &'static str,
    },
    /// No such key.
    #[error("{path:?}, line {line}: unknown key {key:?}; the nearest known key is {nearest}")]
    UnknownKey {
        /// Which file.
        path: PathBuf,
        /// The line, from one.
        line: u64,
        /// What stands there.
        key: String,
        /// What may have been meant.
        nearest: &'static str,
    },
    /// A value makes no sense.
    #[error("{origin}: {value:?} {why}; a correct example: {example}")]
    Value {
        /// The key in the file, the flag, or the environment variable.
        origin: String,
        /// What it says.
        value: String,
        /// What is wrong with it.
        why: String,
        /// How it should be.
        example: &'static str,
    },
}

impl ConfigError {
    /// A refused value of `key`.
    pub(super) fn value(key: &str, origin: &str, value: &str, why: &str) -> Self {
        Self::Value {
            origin: one_line(origin),
            value: shortened(value, LONGEST_VALUE),
            why: one_line(why),
            example: example(key),
        }
    }

    /// A key that nobody knows.
    pub(super) fn unknown_key(path: &Path, line: u64, key: &str, known: &[&'static str]) -> Self {
        let key = shortened(key, LONGEST_VALUE);
        Self::UnknownKey {
            path: path.to_owned(),
            line,
            nearest: nearest(&key, known),
            key,
        }
    }

    /// A line of the file that the parser refused.
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

/// How `key` is written; the file's head where the key is unknown.
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

/// Keys are text from outside too: a line break in one must not look like a second message, nor may
/// a mark that turns the reading direction make it look like another.
pub(super) fn one_line(text: &str) -> String {
    let text = shortened(text, LONGEST_TEXT);
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        // What has no shape of its own is escaped, as `{:?}` does; quotes and backslashes stay.
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

/// The known key that takes the fewest edits to reach from `key`, letter case aside.
pub(super) fn nearest(key: &str, known: &[&'static str]) -> &'static str {
    known
        .iter()
        .min_by_key(|candidate| distance(&key.to_lowercase(), &candidate.to_lowercase()))
        .copied()
        .unwrap_or_default()
}

/// Levenshtein's distance.
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
    fn a_line_is_bounded_whatever_a_key_is_called() {
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
    fn the_longest_matching_key_gives_the_example() {
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
