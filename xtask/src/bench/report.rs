//! Compares the figures with their gates, and writes their section in OVERHEAD.md.

use std::collections::BTreeSet;
use std::time::Duration;

use super::api::{Request, RequestKind};
use super::runs::{Run, STATUS_PATCHES, WATCH_REOPENS};
use super::sample::Sample;
use super::{first_line, gate, markdown};

/// Multiple of its gate above which a figure fails that other load changes slightly.
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
    /// Maximum; `None` if there is no gate.
    gate: Option<f64>,
    /// The multiple of the gate on a machine with other load, or of another speed.
    slack: f64,
}

impl Figures {
    /// Computes the figures from two samples, and the requests before the first sample and after
    /// it.
    pub fn between(
        run: &Run,
        (first, last): (&Sample, &Sample),
        during: Duration,
        requests: (&[Request], &[Request]),
        binary_bytes: u64,
    ) -> Self {
        let seconds = during.as_secs_f64();
        let mut rows = of_the_process(run, (first, last), seconds);
        rows.extend(of_the_api(run, requests, seconds));
        let mib = float(binary_bytes) / 1_048_576.0;
        rows.push(row("binary", "MiB", mib, Some(10.0), 1.0));
        let title = run.title();
        Self {
            title,
            seconds,
            rows,
        }
    }

    /// Returns one line for each figure that exceeds its gate. With `on_any_machine`, figures that
    /// depend on the machine are not checked.
    pub fn over(&self, on_any_machine: bool) -> impl Iterator<Item = String> {
        self.rows.iter().filter_map(move |row| {
            let slack = if on_any_machine { row.slack } else { 1.0 };
            let gate = row.gate.filter(|gate| row.value > gate * slack)?;
            let (title, what, value) = (&self.title, row.name(), row.value);
            Some(format!("{title}: {what}: {value:.2}, gate {gate:.2}"))
        })
    }
}

const fn row(
    what: &'static str,
    unit: &'static str,
    value: f64,
    gate: Option<f64>,
    slack: f64,
) -> FigureRow {
    FigureRow {
        what,
        unit,
        value,
        gate,
        slack,
    }
}

fn of_the_process(run: &Run, (first, last): (&Sample, &Sample), seconds: f64) -> Vec<FigureRow> {
    let switches = last.voluntary_switches;
    let switches = float(switches.saturating_sub(first.voluntary_switches)) / seconds;
    let cpu = float(last.cpu_ticks - first.cpu_ticks) / 100.0;
    // At most 0.05 s in 300 s; the resolution is one tick.
    let cpu_gate = (0.05 * seconds / 300.0).max(0.01);
    let kib = [last.rss_kib, last.anonymous_kib, last.peak_rss_kib];
    let [resident, anonymous, peak] = kib.map(|kib| float(kib) / 1024.0);
    let with_start = "peak resident memory, start included";
    let awake = Some(run.voluntary_switches);
    vec![
        row("resident memory", "MiB", resident, Some(run.rss_mib), 1.0),
        row("anonymous memory", "MiB", anonymous, run.anonymous_mib, 1.0),
        row(with_start, "MiB", peak, None, 1.0),
        row("voluntary context switches", "/s", switches, awake, FAR),
        row("CPU time", "s", cpu, Some(cpu_gate), f64::INFINITY),
    ]
}

fn of_the_api(
    run: &Run,
    (before, after): (&[Request], &[Request]),
    seconds: f64,
) -> [FigureRow; 5] {
    let count = |kind| float(after.iter().filter(|one| one.kind == kind).count());
    for request in after.iter().filter(|one| one.kind == RequestKind::Other) {
        eprintln!("bench: unexpected: {}", request.line);
    }
    let connections = before.iter().chain(after).map(|one| one.connection);
    let connections = float(connections.collect::<BTreeSet<_>>().len());
    // A window can begin just before a request is due, and end just after another.
    let at_most = |an_hour: f64| match an_hour {
        0.0 => 0.0,
        an_hour => (an_hour * seconds / 3600.0 + 1.0).floor(),
    };
    let (leases, patches) = (at_most(run.lease_renewals), at_most(STATUS_PATCHES));
    let watches = run.watches * at_most(WATCH_REOPENS);
    [
        ("lease renewals", count(RequestKind::Lease), leases),
        ("status patches", count(RequestKind::Status), patches),
        ("watches reopened", count(RequestKind::Watch), watches),
        ("other API requests", count(RequestKind::Other), 0.0),
        ("TCP connections, start included", connections, 1.0),
    ]
    .map(|(what, value, gate)| row(what, "", value, Some(gate), 1.0))
}

/// Converts exactly: all figures here are far below 2^32.
fn float(count: impl TryInto<u32>) -> f64 {
    count.try_into().map_or(f64::INFINITY, f64::from)
}

impl FigureRow {
    fn name(&self) -> String {
        match self.unit {
            "" => self.what.to_owned(),
            unit => format!("{}, {unit}", self.what),
        }
    }
}

pub fn table(figures: &Figures) -> String {
    let Figures { title, seconds, .. } = figures;
    let row = |row: &FigureRow| {
        let (name, gate) = (row.name(), gate(row.gate, 2));
        format!("| {name} | {:.2} | {gate} |", row.value)
    };
    let head = format!("| idle, {title}, {seconds} s | measured | gate |");
    markdown(&head, figures.rows.iter().map(row))
}

pub fn method() -> String {
    format!(
        "{} `cargo xtask bench --write`. The release binary (static, musl) against the test API \
         server over TLS on loopback, which contains the Node's pods; sampled from `/proc` after 10 s \
         of settling and again at the end.",
        machine()
    )
}

/// Returns date and machine as the beginning of a sentence, which the name of the command
/// continues.
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
    use RequestKind::{Lease, Other, Status, Watch};

    use super::super::runs::RUNS;
    use super::*;

    /// Makes up figures with numbers of renewals, patches, watches and other requests, and of
    /// connections.
    fn figures(
        rss_kib: u64,
        cpu_ticks: u64,
        voluntary_switches: u64,
        counts: [usize; 4],
        connections: u64,
    ) -> Figures {
        let last = Sample {
            rss_kib,
            cpu_ticks,
            voluntary_switches,
            ..Sample::default()
        };
        let samples = (&Sample::default(), &last);
        let request = |kind, connection| Request {
            kind,
            connection,
            line: String::new(),
        };
        let kinds = [Lease, Status, Watch, Other].into_iter().zip(counts);
        let after = kinds.flat_map(|(kind, count)| std::iter::repeat_n(request(kind, 1), count));
        let after: Vec<Request> = after.collect();
        let before: Vec<_> = (1..=connections).map(|n| request(Other, n)).collect();
        let during = Duration::from_secs(300);
        Figures::between(&RUNS[3], samples, during, (&before, &after), 1_048_576)
    }

    #[test]
    fn a_figure_above_its_gate_is_reported_and_one_at_its_gate_is_not() {
        let idle = [31, 2, 4, 0];
        let fine = figures(10 * 1024, 5, 300, idle, 1);
        assert_eq!(fine.over(false).collect::<Vec<_>>(), [""; 0]);
        let over = figures(10 * 1024 + 512, 6, 301, [32, 3, 5, 1], 2);
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
        assert_eq!(over.over(false).collect::<Vec<_>>(), expected);
        let anywhere: Vec<String> = over.over(true).collect();
        let [memory, _, _, requests @ ..] = &expected;
        assert_eq!(anywhere[0], *memory);
        assert_eq!(
            anywhere[1..],
            *requests,
            "no times, and wake-ups only far above the gate"
        );
        let awake = figures(1, 600, 1201, idle, 1);
        assert_eq!(awake.over(true).count(), 1);
    }
}
