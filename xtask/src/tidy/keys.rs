//! A configuration key is written in one place, the table: product code names its constant.

use super::Source;
use super::pieces::{Kind, Piece, pieces};

/// The table.
const TABLE: &str = "agent/src/config/table.rs";

/// The calls in the table of which the first text is the name of a key.
const CONSTRUCTORS: &[&str] = &[".key(", ".list(", ".map(", "Key::new("];

/// A text that is no reference to the key of its name.
struct Allowed {
    /// The file, or a folder with a slash.
    path: &'static str,
    key: &'static str,
    #[expect(dead_code, reason = "for the reader of the list")]
    reason: &'static str,
}

const fn allowed(path: &'static str, key: &'static str, reason: &'static str) -> Allowed {
    Allowed { path, key, reason }
}

const NODE: &str = "a field of the Node";
const MESSAGE: &str = "a remedy in a message of a module that may not name `config`";

const ALLOWED: &[Allowed] = &[
    allowed("agent/kube/src/", "conditions", NODE),
    allowed("agent/kube/src/", "taints", NODE),
    allowed("agent/kube/src/", "providerID", NODE),
    allowed("agent/src/reporting/", "taints", "a step of `run --once`"),
    allowed("agent/src/sandbox.rs", "sandbox", "a log message"),
    allowed(
        "agent/src/telemetry/",
        "serve.address",
        "a constant remedy in a log line",
    ),
    allowed(
        "agent/kubectl/src/",
        "nodeStatusReportFrequency",
        "a note of the plugin, which links none of the configuration",
    ),
    allowed(
        "agent/kube/src/credentials/",
        "bootstrapKubeconfig",
        MESSAGE,
    ),
    allowed("agent/linux/src/cri/", "runtime.endpoint", MESSAGE),
    allowed("agent/linux/src/host/", "cgroupDriver", MESSAGE),
    allowed("agent/linux/src/kernel/", "kernel.tier", MESSAGE),
    allowed("agent/linux/src/kernel/", "kernel.probes", MESSAGE),
    allowed("agent/linux/src/state.rs", "stateDirectory", MESSAGE),
];

pub fn broken(sources: &[Source]) -> Vec<String> {
    let Some(table) = sources.iter().find(|source| source.path == TABLE) else {
        return Vec::new();
    };
    let keys = keys(table);
    if keys.is_empty() {
        return vec![format!("{TABLE}:1: no key found: adapt {}", file!())];
    }
    let mut used = vec![false; ALLOWED.len()];
    let mut broken = Vec::new();
    let product = sources
        .iter()
        .filter(|source| source.is_agent() && source.path != TABLE);
    for source in product {
        for Piece { line, text, .. } in literals(source) {
            for key in keys.iter().filter(|key| names(&text, key)) {
                let entry = ALLOWED
                    .iter()
                    .position(|one| one.key == *key && is_in(&source.path, one.path));
                match entry {
                    Some(entry) => used[entry] = true,
                    None => broken.push(format!(
                        "{}:{line}: the configuration key `{key}` is written outside of {TABLE}: \
                         use `config::key`, or allow it in {} with a reason",
                        source.path,
                        file!(),
                    )),
                }
            }
        }
    }
    let unused = ALLOWED.iter().zip(used).filter(|(_, used)| !used);
    broken.extend(unused.map(|(one, _)| {
        let (path, key) = (one.path, one.key);
        format!(
            "{}:1: no text in `{path}` names a key `{key}`: remove the exception, or if the key was \
             renamed, change both the text and the exception",
            file!()
        )
    }));
    broken
}

/// The string literals of product code.
fn literals(source: &Source) -> impl Iterator<Item = Piece> {
    let end = source.product_lines();
    let pieces = pieces(source).into_iter();
    pieces.filter(move |piece| piece.kind == Kind::Literal && piece.line <= end)
}

/// The names in the table.
fn keys(table: &Source) -> Vec<String> {
    let literals: Vec<Piece> = literals(table).collect();
    let lines = || table.text.lines().enumerate();
    let head = lines().take_while(|(_, line)| *line != "keys! {").count();
    let calls = lines().skip(head).filter(|(_, line)| {
        let mut calls = CONSTRUCTORS.iter();
        calls.any(|call| line.contains(call))
    });
    calls
        .filter_map(|(n, _)| literals.iter().find(|literal| literal.line > n))
        .map(|literal| literal.text.clone())
        .collect()
}

/// Whether a text is the key, or contains it. A name that is one plain word may be any word of a
/// sentence.
fn names(text: &str, key: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text == key
        || key.contains(|c: char| c == '.' || c.is_uppercase())
            && text.match_indices(key).any(|(at, _)| {
                let before = text[..at].chars().next_back();
                let after = text[at + key.len()..].chars().next();
                !before.is_some_and(|c| is_word(c) || c == '.') && !after.is_some_and(is_word)
            })
}

fn is_in(path: &str, place: &str) -> bool {
    path == place || place.ends_with('/') && path.starts_with(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source;

    const ROWS: &str = "keys! {\n    max_pods: u32 = COUNT.key(\"maxPods\", \"Pods\");\n    \
                        labels: String = TEXT\n        .map(any,\n    \"nodeLabels\", \"Labels\");\n    \
                        port: u16 = Key::new(\n  Form::Taints, \"port\", \"Port\");\n}\n";

    #[test]
    fn the_names_are_those_of_the_table() {
        assert_eq!(
            keys(&source(TABLE, ROWS)),
            ["maxPods", "nodeLabels", "port"]
        );
    }

    #[test]
    fn a_key_outside_of_the_table_is_broken() {
        let rows = [
            ("let a = \"maxPods\";", 1),
            ("let a = r\"maxPods\";", 1),
            ("fail(\"set maxPods: 5, or not\");", 1),
            ("let a = \"port\";", 1),
            ("let a = \"spec.maxPods\";", 0),
            ("let a = \"maxPodsPerNode\";", 0),
            ("let a = \"the port of a server\";", 0),
            ("// maxPods\nlet a = key::max_pods;", 0),
            (
                "#[cfg(test)]\nmod tests {\n    const A: &str = \"maxPods\";\n}",
                0,
            ),
        ];
        for (text, expected) in rows {
            let sources = [source(TABLE, ROWS), source("agent/src/app.rs", text)];
            let mut broken = broken(&sources);
            broken.retain(|line| line.starts_with("agent/src/app.rs:1: "));
            assert_eq!(broken.len(), expected, "{text}: {broken:?}");
        }
        let table = [source(TABLE, ROWS)];
        let broken = broken(&table);
        assert_eq!(broken.len(), ALLOWED.len(), "each exception is unused");
    }
}
