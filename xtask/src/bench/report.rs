//! The figures, their gates, and their section in OVERHEAD.md.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::api::{Request, RequestKind};
use super::first_line;
use super::runs::{Run, STATUS_PATCHES, WATCH_REOPENS};
use super::sample::Sample;

/// With [`Judged::OnAnyMachine`], a figure that other load changes fails above this multiple of its gate.
const FAR: f64 = 4.0;

#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    title: String,
    seconds: f64,
    rows: Vec<FigureRow>,
}

#[derive(Debug, Clone, PartialEq)]
struct FigureRow {
    what: &'static str,
    unit: &'static str,
    value: f64,
    /// The largest allowed value; `None` if there is no gate.
    gate: Option<f64>,
    moved_by: MovedBy,
}

/// What else changes a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MovedBy {
    Nothing,
    /// Other processes, slightly.
    Others,
    /// The speed of the machine.
    Machine,
}

/// Which gates apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// All: there is no other load.
    Everything,
    /// Only those that do not depend on the machine.
    OnAnyMachine,
}

/// Requests that the API server received.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    lease: u64,
    status: u64,
    watch: u64,
    other: u64,
    /// Since the start of the agent.
    connections: u64,
}

impl Traffic {
    /// Counts the requests from index `from`, and the connections of all requests.
    pub fn new(requests: &[Request], from: usize) -> Self {
        let mut traffic = Self::default();
        for request in requests.iter().skip(from) {
            let counter = match request.kind {
                RequestKind::Lease => &mut traffic.lease,
                RequestKind::Status => &mut traffic.status,
                RequestKind::Watch => &mut traffic.watch,
                RequestKind::Other => {
                    eprintln!("bench: unexpected: {}", request.line);
                    &mut traffic.other
                }
            };
            *counter += 1;
        }
        let mut connections: Vec<u64> = requests.iter().map(|one| one.connection).collect();
        connections.sort_unstable();
        connections.dedup();
        traffic.connections = u64::try_from(connections.len()).unwrap_or(u64::MAX);
        traffic
    }
}

impl Figures {
    pub fn between(
        run: &Run,
        (first, last): (&Sample, &Sample),
        during: Duration,
        traffic: &Traffic,
        binary_bytes: u64,
    ) -> Self {
        let seconds = during.as_secs_f64();
        let mut rows = of_the_process(run, (first, last), seconds);
        rows.extend(of_the_api(run, traffic, seconds));
        rows.push(FigureRow {
            what: "binary",
            unit: "MiB",
            value: float(binary_bytes) / 1_048_576.0,
            gate: Some(10.0),
            moved_by: MovedBy::Nothing,
        });
        Self {
            title: run.title(),
            seconds,
            rows,
        }
    }

    /// One line for each figure that exceeds its gate.
    pub fn over(&self, judged: Judged) -> impl Iterator<Item = String> {
        let over = move |row: &&FigureRow| {
            let factor = match (judged, row.moved_by) {
                (Judged::Everything, _) | (_, MovedBy::Nothing) => 1.0,
                (Judged::OnAnyMachine, MovedBy::Others) => FAR,
                (Judged::OnAnyMachine, MovedBy::Machine) => return false,
            };
            row.gate.is_some_and(|gate| row.value > gate * factor)
        };
        self.rows.iter().filter(over).map(|row| {
            let (title, gate) = (&self.title, row.gate.unwrap_or_default());
            let (what, value) = (row.name(), row.value);
            format!("{title}: {what}: {value:.2}, gate {gate:.2}")
        })
    }
}

fn of_the_process(run: &Run, (first, last): (&Sample, &Sample), seconds: f64) -> Vec<FigureRow> {
    let row = |what, unit, value, gate, moved_by| FigureRow {
        what,
        unit,
        value,
        gate,
        moved_by,
    };
    let switches = last.voluntary_switches;
    let switches = float(switches.saturating_sub(first.voluntary_switches)) / seconds;
    let cpu = float(last.cpu_ticks - first.cpu_ticks) / 100.0;
    // 0.05 s in 300 s; one tick is the resolution.
    let cpu_gate = (0.05 * seconds / 300.0).max(0.01);
    let mib = |kib| float(kib) / 1024.0;
    let none = MovedBy::Nothing;
    vec![
        row(
            "resident memory",
            "MiB",
            mib(last.rss_kib),
            Some(run.rss_mib),
            none,
        ),
        row(
            "anonymous memory",
            "MiB",
            mib(last.anonymous_kib),
            run.anonymous_mib,
            none,
        ),
        row(
            "peak resident memory, start included",
            "MiB",
            mib(last.peak_rss_kib),
            None,
            none,
        ),
        row(
            "voluntary context switches",
            "/s",
            switches,
            Some(run.voluntary_switches),
            MovedBy::Others,
        ),
        row("CPU time", "s", cpu, Some(cpu_gate), MovedBy::Machine),
    ]
}

fn of_the_api(run: &Run, traffic: &Traffic, seconds: f64) -> [FigureRow; 5] {
    let row = |what, value, gate| FigureRow {
        what,
        unit: "",
        value: float(value),
        gate: Some(gate),
        moved_by: MovedBy::Nothing,
    };
    // A window can begin just before one is due, and end just after another.
    let at_most = |an_hour: f64| match an_hour {
        0.0 => 0.0,
        an_hour => (an_hour * seconds / 3600.0 + 1.0).floor(),
    };
    let watches = run.watches * at_most(WATCH_REOPENS);
    [
        row("lease renewals", traffic.lease, at_most(run.lease_renewals)),
        row("status patches", traffic.status, at_most(STATUS_PATCHES)),
        row("watches reopened", traffic.watch, watches),
        row("other API requests", traffic.other, 0.0),
        row("TCP connections, start included", traffic.connections, 1.0),
    ]
}

/// Exact for every figure here: all are far below 2^32.
fn float(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

impl FigureRow {
    fn name(&self) -> String {
        match self.unit {
            "" => self.what.to_owned(),
            unit => format!("{}, {unit}", self.what),
        }
    }
}

/// As Markdown.
pub fn table(figures: &Figures) -> String {
    let Figures { title, seconds, .. } = figures;
    let mut text = format!("| idle, {title}, {seconds} s | measured | gate |\n");
    text.push_str("| --- | ---: | ---: |\n");
    for row in &figures.rows {
        let gate = row.gate.map_or("-".to_owned(), |gate| format!("{gate:.2}"));
        let line = writeln!(text, "| {} | {:.2} | {gate} |", row.name(), row.value);
        line.expect("a String takes every write");
    }
    text
}

/// A part of OVERHEAD.md between two comments: `<!-- name:begin -->` and `<!-- name:end -->`.
pub struct Section(pub &'static str);

impl Section {
    /// Replaces the text between the comments.
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

/// Date, machine and method.
pub fn method() -> String {
    format!(
        "{} `cargo xtask bench --write`. The release binary (static, musl) against the test API \
         server over TLS on loopback, which contains the Node's pods; sampled from `/proc` after 10 s \
         of settling and again at the end.",
        machine()
    )
}

/// The beginning of a sentence that the name of the command continues: date and machine.
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
    use super::super::runs::RUNS;
    use super::*;

    fn figures(rss_kib: u64, cpu_ticks: u64, switches: u64, traffic: &Traffic) -> Figures {
        let first = Sample::default();
        let last = Sample {
            rss_kib,
            cpu_ticks,
            voluntary_switches: switches,
            ..Sample::default()
        };
        let during = Duration::from_secs(300);
        Figures::between(&RUNS[2], (&first, &last), during, traffic, 1_048_576)
    }

    #[test]
    fn a_figure_above_its_gate_is_reported_and_one_at_its_gate_is_not() {
        let idle = Traffic {
            lease: 31,
            status: 2,
            watch: 4,
            other: 0,
            connections: 1,
        };
        let fine = figures(10 * 1024, 5, 300, &idle);
        assert_eq!(fine.over(Judged::Everything).collect::<Vec<_>>(), [""; 0]);
        let busy = Traffic {
            lease: 32,
            status: 3,
            watch: 5,
            other: 1,
            connections: 2,
        };
        let over = figures(10 * 1024 + 512, 6, 301, &busy);
        let title = "node mode, 110 pods";
        let expected = [
            "resident memory, MiB: 10.50, gate 10.00",
            "voluntary context switches, /s: 1.00, gate 1.00",
            "CPU time, s: 0.06, gate 0.05",
            "lease renewals: 32.00, gate 31.00",
            "status patches: 3.00, gate 2.00",
            "watches reopened: 5.00, gate 4.00",
            "other API requests: 1.00, gate 0.00",
            "TCP connections, start included: 2.00, gate 1.00",
        ]
        .map(|what| format!("{title}: {what}"));
        assert_eq!(over.over(Judged::Everything).collect::<Vec<_>>(), expected);
        let anywhere: Vec<String> = over.over(Judged::OnAnyMachine).collect();
        let [memory, _, _, requests @ ..] = &expected;
        assert_eq!(anywhere[0], *memory);
        assert_eq!(
            anywhere[1..],
            *requests,
            "no times, and wake-ups only far above the gate"
        );
        let awake = figures(1, 600, 1201, &idle);
        assert_eq!(awake.over(Judged::OnAnyMachine).count(), 1);
    }

    #[test]
    fn requests_are_counted_from_an_index_and_connections_from_the_start() {
        let request = |kind, connection| Request {
            kind,
            connection,
            line: String::new(),
        };
        let requests = [
            request(RequestKind::Other, 1),
            request(RequestKind::Watch, 2),
            request(RequestKind::Lease, 2),
            request(RequestKind::Lease, 2),
        ];
        let expected = Traffic {
            lease: 2,
            connections: 2,
            ..Traffic::default()
        };
        assert_eq!(Traffic::new(&requests, 2), expected);
    }

    #[test]
    fn only_the_text_between_the_markers_is_replaced() {
        let section = Section("bench");
        let other = "<!-- bench-kernel:begin -->\nother\n<!-- bench-kernel:end -->";
        let with =
            |text| format!("a\n{other}\n<!-- bench:begin -->\n{text}\n<!-- bench:end -->\nb\n");
        let expected = Some(with("new"));
        assert_eq!(section.replaced(&with("old"), "new\n"), expected);
        assert_eq!(
            section.replaced(&with("new"), "new\n"),
            expected,
            "writing twice changes nothing"
        );
        assert_eq!(section.replaced(other, "new"), None, "no markers");
    }
}
