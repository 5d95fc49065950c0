//! Generates the table of values in the chart's README.

use std::fmt::Write as _;
use std::io;

use super::replaced;

/// The document with the place for the table.
pub const PATH: &str = "deploy/helm/nodepulse/README.md";

/// Its values: a comment that begins with `# -- ` describes the key below it.
pub const VALUES: &str = "deploy/helm/nodepulse/values.yaml";

const BEGIN: &str = "<!-- Generated from values.yaml by `cargo xtask manual`. -->\n\n";
const END: &str = "\n\n<!-- End of the generated part. -->";

pub fn document(text: &str, values: &str) -> io::Result<String> {
    let mut table = "| value | default | meaning |\n|---|---|---|".to_owned();
    for value in described(values) {
        let default = value.default.replace('|', "\\|");
        let meaning = value.meaning.replace('|', "\\|");
        _ = write!(table, "\n| `{}` | `{default}` | {meaning} |", value.name);
    }
    replaced(text, BEGIN, &table, END)
}

/// A value with a description.
#[derive(Debug)]
struct Described {
    name: String,
    default: String,
    meaning: String,
}

/// Returns the described values in the order of the file.
fn described(values: &str) -> Vec<Described> {
    let mut found: Vec<Described> = Vec::new();
    // The keys above the line, with their indentation.
    let mut above: Vec<(usize, &str)> = Vec::new();
    let mut meaning: Option<String> = None;
    // The indentation of the last described key: deeper lines belong to its default.
    let mut inside: Option<usize> = None;
    for line in values.lines() {
        let text = line.trim_start();
        let depth = line.len() - text.len();
        if let Some(first) = text.strip_prefix("# -- ") {
            meaning = Some(first.to_owned());
            continue;
        }
        if let Some(more) = text.strip_prefix("# ") {
            if let Some(meaning) = &mut meaning {
                *meaning += " ";
                *meaning += more;
            }
            continue;
        }
        if inside.is_some_and(|key| depth > key) && !text.is_empty() {
            if let Some(last) = found.last_mut() {
                last.default = format!("{} {text}", last.default).trim().to_owned();
            }
            continue;
        }
        inside = None;
        let Some((key, default)) = text.split_once(':') else {
            continue;
        };
        above.retain(|(of, _)| *of < depth);
        above.push((depth, key));
        if let Some(meaning) = meaning.take() {
            let names: Vec<&str> = above.iter().map(|(_, key)| *key).collect();
            found.push(Described {
                name: names.join("."),
                default: default.trim().to_owned(),
                meaning,
            });
            inside = Some(depth);
        }
    }
    found
}
