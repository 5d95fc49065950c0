//! Generates the reference of the metrics in docs/metrics.md.

use std::io;

use nodepulse::testing::{MetricDescription, Metrics};

use super::replaced;

/// The document with the place for the table.
pub const PATH: &str = "docs/metrics.md";

const BEGIN: &str = "<!-- Generated from agent/src/metrics by `cargo xtask manual`. -->\n\n";
const END: &str = "\n\n<!-- End of the generated part. -->";

pub fn document(text: &str) -> io::Result<String> {
    replaced(text, BEGIN, &table(&Metrics::descriptions()), END)
}

fn table(metrics: &[MetricDescription]) -> String {
    let mut rows: Vec<String> = metrics.iter().map(row).collect();
    rows.sort();
    format!(
        "| metric | type | labels | meaning |\n|---|---|---|---|\n{}",
        rows.join("\n")
    )
}

fn row(metric: &MetricDescription) -> String {
    let labels: Vec<String> = metric.labels.iter().map(|key| format!("`{key}`")).collect();
    let MetricDescription { kind, help, .. } = metric;
    let series = series(metric);
    format!("| `{series}` | {kind} | {} | {help}. |", labels.join(", "))
}

/// Returns the name of the metric in a query; a histogram has several.
fn series(metric: &MetricDescription) -> String {
    let suffix = match metric.kind {
        "counter" => "_total",
        "info" => "_info",
        _ => "",
    };
    format!("{}{suffix}", metric.name)
}
