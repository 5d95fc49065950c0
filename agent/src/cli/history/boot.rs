//! The end of a boot, for people.

use std::fmt::Write as _;

use nodepulse_core::black_box::{BootEnd, Minute};
use nodepulse_core::incident::JsonIncident;
use nodepulse_core::reading::StallKind;

use crate::cli::terminal::{Paint, Style};

/// Returns the incident with evidence and a table of the last ten minutes.
pub(super) fn text(incident: &JsonIncident, boot: &BootEnd, style: Style) -> String {
    let title = format!("{} ({})", boot.end.as_str(), boot.certainty.as_str());
    let mut out = format!("{}\n", style.paint(Paint::Bold, &title));
    // Writing to a String cannot fail.
    for sentence in &boot.evidence {
        let _written = writeln!(out, "- {sentence}");
    }
    let rows = [
        ("boot", &boot.boot),
        ("last record", &incident.time),
        (
            "next boot",
            incident.until.as_ref().unwrap_or(&incident.time),
        ),
        ("incident", &incident.id),
    ];
    out.push('\n');
    for (name, value) in rows {
        let _written = writeln!(out, "{name:12} {value}");
    }
    if boot.minutes.is_empty() {
        return out;
    }
    let headline = format!(
        "{:>10}  {:>10}  {:>11}  {:>10}  {:>5}  DISKS",
        "BEFORE", "MEMORY", "MEMORY WAIT", "DISK WAIT", "KILLS"
    );
    let _written = writeln!(out, "\n{}", style.paint(Paint::Bold, &headline));
    for minute in &boot.minutes {
        out += &row(minute);
    }
    out
}

/// The lowest available memory, and the highest of everything else.
fn row(Minute { before, readings }: &Minute) -> String {
    let memory = readings.lowest_memory();
    let memory = memory.map_or("-".to_owned(), |low| low.to_string());
    let share = |kind: StallKind| {
        let share = readings.stalls.get(kind.as_str());
        share.map_or("-".to_owned(), |share| format!("{share}%"))
    };
    let disks = readings.disks.iter();
    let disks: Vec<String> = disks
        .map(|disk| format!("{} {}", disk.name, disk.health.as_str()))
        .collect();
    let line = format!(
        "{:>10}  {memory:>10}  {:>11}  {:>10}  {:>5}  {}",
        format!("{before} min"),
        share(StallKind::Memory),
        share(StallKind::Io),
        readings.kills,
        disks.join(", ")
    );
    format!("{}\n", line.trim_end())
}
