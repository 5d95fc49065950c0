//! `app` connects the rooms and contains no policy; only the ledger computes a status.

use super::Source;
use super::code::product_code;

/// The file of the loop's state.
const APP: &str = "agent/src/app.rs";

/// The most fields of `App`.
const MAX_FIELDS: usize = 10;

/// The most lines of `app.rs` and `app/`.
const MAX_LINES: usize = 1_650;

/// What `app` must not contain, and where it belongs.
const REJECTED: &[(&str, &str)] = &[
    (
        "Duration::from_",
        "define the time in the room that it is about",
    ),
    ("std::fs::read", "read files in `host`, `file` or `queries`"),
    ("std::fs::write", "write files in `state`"),
    ("fs::metadata", "read files in `host`, `file` or `queries`"),
    (
        "format!",
        "word messages in `kube_event`, `telemetry` or the room that they are about",
    ),
    ("json!", "build JSON in `api`"),
];

/// The only product file that may compute a status.
const LEDGER: &str = "agent/core/src/node_status/ledger.rs";

pub fn broken(sources: &[Source]) -> Vec<String> {
    let product = sources.iter().filter(|source| source.is_agent());
    let code: Vec<(&str, String)> = product
        .map(|source| (source.path.as_str(), product_code(&source.text)))
        .collect();
    let mut broken = computing(&code);
    let app = code
        .iter()
        .filter(|(path, _)| *path == APP || path.starts_with("agent/src/app/"));
    let app: Vec<_> = app.collect();
    broken.extend(app.iter().flat_map(|(path, text)| rejected(path, text)));
    broken.extend(impl_blocks(&app));
    broken.extend(fields(&app));
    broken.extend(size(sources));
    broken
}

/// Calls of `setters::compute` outside of the ledger. The fixture of unit tests calls it too.
fn computing(code: &[(&str, String)]) -> Vec<String> {
    let of_file = |(path, text): &(&str, String)| {
        let lines = (1..).zip(text.lines());
        let calls = lines.filter(|(_, line)| line.contains("setters::compute("));
        let report = |(number, _): (usize, &str)| {
            format!(
                "{path}:{number}: computes a status: only {LEDGER} does; read the ledger instead"
            )
        };
        calls.map(report).collect::<Vec<_>>()
    };
    let others = code
        .iter()
        .filter(|(path, _)| *path != LEDGER && !path.ends_with("/fixture.rs"));
    others.flat_map(of_file).collect()
}

fn rejected(path: &str, text: &str) -> Vec<String> {
    let mut broken = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        for (what, cure) in REJECTED {
            if line.contains(what) {
                broken.push(format!(
                    "{path}:{number}: `app` must not name `{what}`: {cure}"
                ));
            }
        }
    }
    broken
}

/// `App` has one `impl` block, in the file of its fields.
fn impl_blocks(app: &[&(&str, String)]) -> Vec<String> {
    let mut blocks = Vec::new();
    for (path, text) in app {
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim_end();
            let is_app = line.starts_with("impl") && line.ends_with(" App {");
            if is_app {
                blocks.push((*path, number));
            }
        }
    }
    let first = blocks.iter().position(|(path, _)| *path == APP);
    let others = (0..)
        .zip(&blocks)
        .filter(|(index, _)| Some(*index) != first);
    let report = |(_, (path, number)): (usize, &(&str, usize))| {
        format!(
            "{path}:{number}: a second `impl App`: put the method into that of {APP}, or into the \
             room whose state it changes"
        )
    };
    others.map(report).collect()
}

fn fields(app: &[&(&str, String)]) -> Option<String> {
    let (_, text) = app.iter().find(|(path, _)| *path == APP)?;
    let start = text
        .lines()
        .position(|line| line.trim_end() == "struct App {")?;
    let body = text.lines().skip(start + 1);
    let body = body.take_while(|line| !line.starts_with('}'));
    let fields = body.filter(|line| line.contains(": ")).count();
    (fields > MAX_FIELDS).then(|| {
        format!(
            "{APP}:{}: `App` has {fields} fields, above {MAX_FIELDS}: group those that change \
             together in the room that they belong to",
            start + 1
        )
    })
}

/// All lines, with comments.
fn size(sources: &[Source]) -> Option<String> {
    let app = sources
        .iter()
        .filter(|source| source.path == APP || source.path.starts_with("agent/src/app/"));
    let lines: usize = app.map(|source| source.text.lines().count()).sum();
    (lines > MAX_LINES).then(|| {
        format!("{APP}:1: `app` has {lines} lines, above {MAX_LINES}: move what is not the loop")
    })
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    const FIELDS: &str = "struct App {\n    a: u8,\n    /// Of: b.\n    b: u8,\n}\nimpl App {}\n";

    #[test]
    fn the_loop_has_one_impl_few_fields_and_no_policy() {
        let many: String = (0..11).map(|n| format!("    f{n}: u8,\n")).collect();
        let many = format!("struct App {{\n{many}}}\n");
        let long = "\n".repeat(MAX_LINES + 1);
        //  path, text, what is reported
        let rows: [(&str, &str, Option<&str>); 11] = [
            (APP, FIELDS, None),
            (APP, &many, Some("agent/src/app.rs:1: `App` has 11 fields")),
            (APP, &long, Some("`app` has 1651 lines")),
            (
                APP,
                "impl App {\n}\nimpl App {\n}\n",
                Some("agent/src/app.rs:3: a second `impl App`"),
            ),
            (
                "agent/src/app/tick.rs",
                "\nimpl App {\n}\n",
                Some("agent/src/app/tick.rs:2: a second"),
            ),
            ("agent/src/app/x.rs", "impl Other {\n}\n", None),
            (
                "agent/src/app/x.rs",
                "const A: Duration = Duration::from_secs(1);\n",
                Some("agent/src/app/x.rs:1: `app` must not name `Duration::from_`"),
            ),
            (
                "agent/src/app/x.rs",
                "// Duration::from_secs(1), format!\n",
                None,
            ),
            (
                "agent/src/app/x.rs",
                "let a = format!(\"{b}\");\n",
                Some("must not name `format!`"),
            ),
            ("agent/src/other.rs", "let a = format!(\"{b}\");\n", None),
            (
                "agent/src/metrics.rs",
                "\nlet a = setters::compute(b);\n",
                Some("agent/src/metrics.rs:2: computes a status"),
            ),
        ];
        for (path, text, expected) in rows {
            let found = broken(&[source(path, text)]);
            let as_expected = match expected {
                None => found.is_empty(),
                Some(part) => found.len() == 1 && found.iter().all(|line| line.contains(part)),
            };
            assert!(as_expected, "{path} {text:?}: {found:?}");
        }
        let ledger = source(LEDGER, "let a = setters::compute(b);\n");
        assert!(broken(&[ledger]).is_empty());
    }
}
