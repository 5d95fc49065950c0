//! Checks that only the table contains the text of a configuration key; other code uses its
//! constant.

use super::Source;
use super::pieces::{Kind, Piece, pieces};

const TABLE: &str = "agent/src/config/table.rs";

/// The calls in the table whose first string is the name of a key.
const CONSTRUCTORS: &[&str] = &[".key(", ".list(", ".map(", "Key::new("];

/// Strings that equal a key but do not refer to it: the file, or the folder with a slash at the
/// end, and the key.
#[rustfmt::skip]
const ALLOWED: &[(&str, &str)] = &[
    // Fields of the Node.
    ("agent/kube/src/", "conditions"),
    ("agent/kube/src/", "taints"),
    ("agent/kube/src/", "providerID"),
    // Fields of pods.
    ("agent/simulate/src/", "conditions"),
    ("agent/simulate/src/", "nodeName"),
    // A step of `run --once`.
    ("agent/src/reporting/", "taints"),
    // Log messages, whose remedy is constant.
    ("agent/src/sandbox.rs", "sandbox"),
    ("agent/src/telemetry/", "serve.address"),
    // A remark of the plugin, which does not link the configuration.
    ("agent/kubectl/src/", "nodeStatusReportFrequency"),
    // Remedies in messages of modules that may not name `config`.
    ("agent/kube/src/credentials/", "bootstrapKubeconfig"),
    ("agent/linux/src/cri/", "runtime.endpoint"),
    ("agent/linux/src/host/", "cgroupDriver"),
    ("agent/linux/src/kernel/", "kernel.tier"),
    ("agent/linux/src/kernel/", "kernel.probes"),
];

pub fn broken(sources: &[Source]) -> Vec<String> {
    let Some(table) = sources.iter().find(|source| source.path == TABLE) else {
        return Vec::new();
    };
    let (keys, rule) = (keys(table), file!());
    let mut broken = Vec::new();
    if keys.is_empty() {
        broken.push(format!("{TABLE}:1: no key found: adapt {rule}"));
    }
    let mut unused = ALLOWED.to_vec();
    let is_agent = |path: &str| path.starts_with("agent/") && path.contains("/src/");
    let is_checked = |one: &&Source| one.is_product() && is_agent(&one.path) && one.path != TABLE;
    for source in sources.iter().filter(is_checked) {
        for (line, _, text) in literals(source) {
            for key in keys.iter().filter(|key| names(&text, key)) {
                let allows =
                    |(path, of): &&(&str, &str)| of == key && source.path.starts_with(path);
                match ALLOWED.iter().find(allows) {
                    Some(entry) => unused.retain(|other| other != entry),
                    None => broken.push(format!(
                        "{}:{line}: the configuration key `{key}` is written outside of {TABLE}: \
                         use `config::key`, or allow it in {rule} with a reason",
                        source.path,
                    )),
                }
            }
        }
    }
    broken.extend(unused.iter().map(|(path, key)| {
        format!("{rule}:1: no text in `{path}` names a key `{key}`: change or remove the exception")
    }));
    broken
}

fn literals(source: &Source) -> impl Iterator<Item = Piece> {
    let is_literal = |piece: &Piece| piece.1 == Kind::Literal;
    let (end, pieces) = (source.product_lines(), pieces(source).into_iter());
    pieces.filter(move |piece| is_literal(piece) && piece.0 <= end)
}

fn keys(table: &Source) -> Vec<String> {
    let literals: Vec<Piece> = literals(table).collect();
    let is_call = |line: &str| CONSTRUCTORS.iter().any(|call| line.contains(call));
    let lines = table.text.lines().enumerate();
    let rows = lines.skip_while(|(_, line)| *line != "keys! {");
    let calls = rows.filter(|(_, line)| is_call(line));
    let name = |(n, _)| Some(literals.iter().find(|one| one.0 > n)?.2.clone());
    calls.filter_map(name).collect()
}

/// Returns whether a text is the key, or contains it. A key that is one plain word is only compared
/// as a whole, since any sentence may contain it.
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
            ("#[cfg(test)]\nmod tests {\n    f(\"maxPods\");\n}", 0),
        ];
        for (text, expected) in rows {
            let sources = [source(TABLE, ROWS), source("agent/src/app.rs", text)];
            let mut broken = broken(&sources);
            broken.retain(|line| line.starts_with("agent/src/app.rs:1: "));
            assert_eq!(broken.len(), expected, "{text}: {broken:?}");
        }
        let unused = broken(&[source(TABLE, ROWS)]).len();
        assert_eq!(unused, ALLOWED.len(), "each exception is unused");
    }
}
