//! Draws the demo: the terminal with the steps that it printed, as SVG, and the recorded steps from
//! which it can be drawn again.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::report::{DemoReport, DemoStep};

/// The command line in the picture.
const COMMAND: &str = "$ cargo xtask demo";

/// Columns of the terminal.
const COLUMNS: usize = 104;

/// Pixels of a column and of a line.
const COLUMN: usize = 8;
const LINE: usize = 19;

/// Indentation of the rest of a long line.
const INDENT: &str = "    ";

/// Pixels around the text.
const MARGIN: usize = 16;

/// Boot clock in ns at the first recorded event.
const FIRST: u64 = 100_000_000_000;

/// The terminal has its own background, so it is readable on a light and on a dark page.
const STYLE: &str = "text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;\
                     fill:#9da7b3;white-space:pre}.command{fill:#7ee787}.step{fill:#fff;font-weight:700}\
                     .result{fill:#ffd479}";

/// Writes the picture to `file`, and the recorded steps next to it.
pub fn write(report: &DemoReport, file: &Path) -> Result<()> {
    let steps = recorded(&report.json()["steps"]);
    let put = |path: &Path, text: String| {
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    put(&file.with_extension("json"), format!("{steps:#}\n"))?;
    put(file, drawn(&steps).context("a step was not reported")?)
}

/// Draws recorded steps; `None` if one was not reported.
pub fn drawn(steps: &Value) -> Option<String> {
    printed(steps).map(|text| svg(&text))
}

/// Formats recorded steps like the demo prints them.
fn printed(steps: &Value) -> Option<String> {
    let steps = steps.as_array()?.iter().map(DemoStep::from_json);
    let steps: Option<Vec<DemoStep>> = steps.collect();
    let texts: Vec<String> = steps?.iter().map(DemoStep::to_string).collect();
    Some(format!("{COMMAND}\n{}", texts.join("\n")))
}

/// Removes what depends on the machine and the time from the steps: the boot clock, the name of the
/// demo's cgroup, and the times of the conditions.
fn recorded(steps: &Value) -> Value {
    let number = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    let path = |path: &Value| {
        let parts = path.as_str().unwrap_or_default().split('/');
        let parts: Vec<&str> = parts
            .map(|part| match part.rsplit_once('-') {
                Some((demo, end)) if number(end) => demo,
                _ => part,
            })
            .collect();
        json!(parts.join("/"))
    };
    let mut steps = steps.clone();
    let all = steps.as_array_mut().map(Vec::as_mut_slice);
    let mut first = None;
    for step in all.unwrap_or_default() {
        let detail = &mut step["detail"];
        for key in ["cgroup", "limiting"] {
            if detail[key].is_string() {
                detail[key] = path(&detail[key]);
            }
        }
        for key in ["event_times", "condition_times"] {
            if let Some(at) = detail[key]["kernel_ns"].as_u64() {
                let first = *first.get_or_insert(at);
                detail[key]["kernel_ns"] = json!(at.saturating_sub(first) + FIRST);
            }
        }
        if let Some(condition) = detail["condition"].as_object_mut() {
            condition.retain(|key, _| !key.ends_with("Time"));
        }
    }
    steps
}

fn svg(text: &str) -> String {
    let lines: Vec<(&str, String)> = text.lines().flat_map(wrapped).collect();
    let width = COLUMNS * COLUMN + 2 * MARGIN;
    let height = lines.len() * LINE + 2 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
         <title>{COMMAND}</title>\n<style>{STYLE}</style>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#161b22\" stroke=\"#57606a\"/>\n"
    );
    for (n, (class, line)) in lines.iter().enumerate() {
        let y = MARGIN + (n + 1) * LINE - 5;
        let line = line.replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(
            svg,
            "<text x=\"{MARGIN}\" y=\"{y}\" class=\"{class}\" xml:space=\"preserve\">{line}</text>"
        );
    }
    svg + "</svg>\n"
}

/// Wraps a line, and returns each part with its class.
fn wrapped(line: &str) -> Vec<(&'static str, String)> {
    let class = match line.trim_start() {
        text if text.starts_with('$') => "command",
        text if text.starts_with('→') => "result",
        _ if line.starts_with(' ') => "detail",
        _ => "step",
    };
    let mut lines = vec![String::new()];
    let length = |text: &str| text.chars().count();
    for word in line.split(' ') {
        let mut word = word.to_owned();
        while let Some(last) = lines.last_mut() {
            let room = COLUMNS.saturating_sub(length(last) + 1);
            if length(&word) <= room {
                *last += &word;
                last.push(' ');
                break;
            }
            // A path that is longer than a line is broken, as by a terminal.
            if length(&word) >= COLUMNS - INDENT.len() {
                last.extend(word.chars().take(room));
                word = word.chars().skip(room).collect();
            }
            lines.push(INDENT.to_owned());
        }
    }
    let lines = lines.into_iter().map(|line| line.trim_end().to_owned());
    lines.map(|line| (class, line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(path: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
    }

    fn texts(svg: &str) -> Vec<String> {
        let texts = svg.lines().filter_map(|line| {
            let (_, text) = line.strip_prefix("<text ")?.split_once('>')?;
            text.strip_suffix("</text>")
        });
        texts
            .map(|text| text.replace("&lt;", "<").replace("&amp;", "&"))
            .collect()
    }

    /// Lines are broken at spaces and in paths.
    fn without_space(text: &str) -> String {
        text.split_whitespace().collect()
    }

    #[test]
    fn the_picture_in_the_readme_is_what_the_demo_prints_for_the_recorded_steps() {
        let read = |path: &str| std::fs::read_to_string(root(path)).unwrap();
        let steps: Value = serde_json::from_str(&read("docs/demo.json")).unwrap();
        let text = printed(&steps).unwrap();
        assert!(text.len() > 1000, "{text}");
        let picture = read("docs/demo.svg");
        let shown = texts(&picture).join("\n");
        assert_eq!(without_space(&shown), without_space(&text));
        assert!(
            drawn(&steps).unwrap() == picture,
            "cargo xtask demo --svg docs/demo.svg"
        );
    }

    #[test]
    fn long_lines_are_wrapped_and_nothing_is_lost() {
        let words = format!("  → a<b & {}", "word ".repeat(40));
        let path = format!("  in {}", "/directory".repeat(20));
        for (line, rows) in [(words, 3), (path, 3)] {
            let shown = texts(&svg(&line));
            assert_eq!(shown.len(), rows, "{shown:?}");
            assert_eq!(without_space(&shown.join(" ")), without_space(&line));
            assert!(shown.iter().all(|line| line.chars().count() <= COLUMNS));
        }
    }

    #[test]
    fn what_is_of_one_machine_is_not_recorded() {
        let steps = json!([
            {"step": "a", "detail": {
                "cgroup": "/nodepulse-demo-417/kubepods/pod6d8a-4d2e", "limiting": "/nodepulse-demo-417",
                "event_times": {"kernel_ns": 7_000_000_000_u64},
                "condition": {"type": "T", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            }},
            {"step": "b", "detail": {"condition_times": {"kernel_ns": 9_000_000_000_u64}}},
        ]);
        let expected = json!([
            {"step": "a", "detail": {
                "cgroup": "/nodepulse-demo/kubepods/pod6d8a-4d2e", "limiting": "/nodepulse-demo",
                "event_times": {"kernel_ns": FIRST},
                "condition": {"type": "T"},
            }},
            {"step": "b", "detail": {"condition_times": {"kernel_ns": FIRST + 2_000_000_000}}},
        ]);
        let mut found = recorded(&steps);
        for step in found.as_array_mut().unwrap() {
            // Mutable indexing inserts null.
            let detail = step["detail"].as_object_mut().unwrap();
            detail.retain(|_, value| !value.is_null() && *value != json!({"kernel_ns": null}));
        }
        assert_eq!(found, expected);
    }
}
