//! The figures, the budget that they are held to, and their place in OVERHEAD.md.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::first_line;
use super::sample::Sample;

/// 366 lease renewals, 12 status patches, and 13 times the watch on the Node is opened anew.
const REQUESTS_AN_HOUR: f64 = 391.0;

#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    seconds: f64,
    rows: [Row; 7],
}

#[derive(Debug, Clone, PartialEq)]
struct Row {
    what: &'static str,
    unit: &'static str,
    value: f64,
    /// At most this; `None` is shown and not judged.
    gate: Option<f64>,
}

impl Figures {
    pub fn between(
        first: &Sample,
        last: &Sample,
        during: Duration,
        requests: u64,
        binary_bytes: u64,
    ) -> Self {
        let seconds = during.as_secs_f64();
        let switches = float(
            last.voluntary_switches
                .saturating_sub(first.voluntary_switches),
        );
        let cpu = float(last.cpu_ticks - first.cpu_ticks) / 100.0;
        let row = |what, unit, value, gate| Row {
            what,
            unit,
            value,
            gate,
        };
        // A window can begin just before a lease and a status are due, and end just behind.
        let requests_at_most = REQUESTS_AN_HOUR * seconds / 3600.0 + 2.0;
        let rows = [
            row(
                "resident memory",
                "MiB",
                float(last.rss_kib) / 1024.0,
                Some(10.0),
            ),
            row(
                "anonymous memory",
                "MiB",
                float(last.anonymous_kib) / 1024.0,
                Some(2.0),
            ),
            row(
                "peak resident memory, start included",
                "MiB",
                float(last.peak_rss_kib) / 1024.0,
                None,
            ),
            row(
                "voluntary context switches",
                "/s",
                switches / seconds,
                Some(1.0),
            ),
            // 0.05 s in 300 s; one tick is the least that can be told.
            row(
                "CPU time",
                "s",
                cpu,
                Some((0.05 * seconds / 300.0).max(0.01)),
            ),
            row("API requests", "", float(requests), Some(requests_at_most)),
            row(
                "binary",
                "MiB",
                float(binary_bytes) / 1_048_576.0,
                Some(8.0),
            ),
        ];
        Self { seconds, rows }
    }
}

/// Exact for every figure here: all are far below 2^32.
fn float(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

/// One line for each gate that is passed.
pub fn over_budget(figures: &Figures) -> Vec<String> {
    let over = |row: &&Row| row.gate.is_some_and(|gate| row.value > gate);
    let line = |row: &Row| {
        let gate = row.gate.unwrap_or_default();
        format!(
            "{}: {:.2} {}, gate {gate:.2}",
            row.what, row.value, row.unit
        )
    };
    figures.rows.iter().filter(over).map(line).collect()
}

/// As Markdown.
pub fn table(figures: &Figures) -> String {
    let mut text = format!(
        "| idle, node mode, {} s | measured | gate |\n",
        figures.seconds
    );
    text.push_str("| --- | ---: | ---: |\n");
    for row in &figures.rows {
        let gate = row.gate.map_or("-".to_owned(), |gate| format!("{gate:.2}"));
        let unit = row.unit;
        let what = if unit.is_empty() {
            row.what.to_owned()
        } else {
            format!("{}, {unit}", row.what)
        };
        let line = writeln!(text, "| {what} | {:.2} | {gate} |", row.value);
        line.expect("a String takes every write");
    }
    text
}

/// A part of OVERHEAD.md between two comments: `<!-- name:begin -->` and `<!-- name:end -->`.
pub struct Section(pub &'static str);

impl Section {
    /// Replaces what stands there.
    pub fn write(&self, file: &Path, text: &str) -> Result<()> {
        let name = file.display();
        let old = std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
        let [begin, end] = self.markers();
        let new = self.replaced(&old, text).with_context(|| {
            format!("{name} needs the lines `{begin}` and `{end}`, in this order")
        })?;
        std::fs::write(file, new).with_context(|| format!("cannot write {name}"))
    }

    fn markers(&self) -> [String; 2] {
        ["begin", "end"].map(|which| format!("<!-- {}:{which} -->", self.0))
    }

    fn replaced(&self, old: &str, text: &str) -> Option<String> {
        let [begin, end] = self.markers();
        let (before, rest) = old.split_once(&begin)?;
        let (_, after) = rest.split_once(&end)?;
        let text = text.trim_end();
        Some(format!("{before}{begin}\n{text}\n{end}{after}"))
    }
}

/// When, where and how.
pub fn method() -> String {
    format!(
        "{} `cargo xtask bench --write`. The release binary (static, musl) in node mode against the \
         test API server over TLS on loopback; sampled from `/proc` after 10 s of settling and \
         again at the end.",
        machine()
    )
}

/// The beginning of a sentence that the command ends: when, and on what.
pub fn machine() -> String {
    let date = first_line("date", &["-u", "+%F"]).unwrap_or_default();
    let kernel = first_line("uname", &["-srm"]).unwrap_or_default();
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model);
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    format!("Measured on {date} on {cpus} × {model}, {kernel}, by")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(rss_kib: u64, cpu_ticks: u64, requests: u64) -> Figures {
        let first = Sample::default();
        let last = Sample {
            rss_kib,
            cpu_ticks,
            ..Sample::default()
        };
        Figures::between(&first, &last, Duration::from_secs(300), requests, 1_048_576)
    }

    #[test]
    fn what_is_over_its_gate_is_named_and_what_is_at_it_is_not() {
        let fine = figures(10 * 1024, 5, 34);
        assert_eq!(over_budget(&fine), [""; 0]);
        let over = figures(10 * 1024 + 512, 6, 35);
        let expected = [
            "resident memory: 10.50 MiB, gate 10.00",
            "CPU time: 0.06 s, gate 0.05",
            "API requests: 35.00 , gate 34.58",
        ];
        assert_eq!(over_budget(&over), expected);
    }

    #[test]
    fn only_what_stands_between_the_markers_is_replaced() {
        let section = Section("bench");
        let other = "<!-- bench-kernel:begin -->\nother\n<!-- bench-kernel:end -->";
        let with =
            |text| format!("a\n{other}\n<!-- bench:begin -->\n{text}\n<!-- bench:end -->\nb\n");
        let expected = Some(with("new"));
        assert_eq!(section.replaced(&with("old"), "new\n"), expected);
        assert_eq!(
            section.replaced(&with("new"), "new\n"),
            expected,
            "twice is once"
        );
        assert_eq!(section.replaced(other, "new"), None, "no markers");
    }
}
