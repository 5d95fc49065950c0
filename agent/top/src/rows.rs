//! PURE: the rows of each pane. Marks and words have the meaning of the colors, too.

use jiff::Timestamp;
use nodepulse_core::explanation::{ExplainedCondition, Explanation, SignalReading, amount};
use nodepulse_core::node_status::setters::ready;
use nodepulse_core::reading::Signal;
use nodepulse_core::units::Bytes;
use nodepulse_core::units::latency::{Millis, quantile, total};
use ratatui::style::{Color, Modifier, Style};

use crate::view::{self, Usage, View};

/// Heights of a bar, the lowest first.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

const PLAIN: Style = Style::new();
pub const TITLE: Style = Style::new().add_modifier(Modifier::BOLD);
const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
/// Close to a threshold, or unknown. Yellow is not legible on white.
const NEAR: Style = Style::new().fg(Color::Magenta);

pub struct Pane {
    pub title: String,
    /// Text that is not escaped yet.
    pub rows: Vec<(Style, String)>,
}

impl Pane {
    fn new(title: impl Into<String>) -> Self {
        let title = title.into();
        Self {
            title,
            rows: Vec::new(),
        }
    }

    fn add(&mut self, style: Style, text: String) {
        self.rows.push((style, text));
    }

    /// Adds a sentence in rows of `width` characters, such as the reason for a missing source.
    fn sentence(mut self, text: &str, width: usize) -> Self {
        let mut row = String::new();
        for word in text.split_whitespace() {
            if !row.is_empty() && width <= row.chars().count() + word.chars().count() {
                self.add(NEAR, std::mem::take(&mut row));
            }
            let space = if row.is_empty() { "" } else { " " };
            row = row + space + word;
        }
        self.add(NEAR, row);
        self
    }
}

/// Cuts `text` to a column of `width` characters, and fills that.
fn column(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return format!("{text:width$}");
    }
    let kept = text.chars().take(width.saturating_sub(1));
    kept.chain(['…']).collect()
}

pub fn header(view: &View) -> String {
    match &view.explanation {
        Ok(Explanation { node, at, .. }) => format!("nodepulse  {node}  {at}"),
        Err(_) => "nodepulse  no answer, next attempt soon".to_owned(),
    }
}

/// Conditions, those with problems first.
pub fn conditions(view: &View, width: usize) -> Pane {
    let mut pane = Pane::new("CONDITIONS");
    let explanation = match &view.explanation {
        Ok(explanation) => explanation,
        Err(why) => return pane.sentence(why, width),
    };
    let style = |one: &&ExplainedCondition| match one.status.as_str() {
        "Unknown" => NEAR,
        status if (status == "True") == (one.type_ == ready::TYPE) => PLAIN,
        _ => BAD,
    };
    let mut conditions: Vec<_> = explanation.conditions.iter().collect();
    conditions.sort_by_key(|one| style(one) == PLAIN);
    let bad = conditions.iter().filter(|one| style(one) != PLAIN).count();
    pane.title = format!("CONDITIONS  {bad} of {} not as desired", conditions.len());
    let blocked = explanation.blocked_calls.join(", ");
    if !blocked.is_empty() {
        pane.title += &("  blocked file system calls: ".to_owned() + &blocked);
    }
    let names = conditions.iter().map(|one| one.type_.len().min(24));
    let names = names.max().unwrap_or_default();
    for one in conditions {
        let style = style(&one);
        let (name, status) = (column(&one.type_, names), column(&one.status, 7));
        let age = age(&one.since, &explanation.at);
        let (mark, reason, message) = (mark(style), &one.reason, &one.message);
        let text = format!("{mark} {name} {status} {age:>4} {reason}: {message}");
        pane.add(style, text);
    }
    pane
}

/// Returns a mark with the meaning of a color.
fn mark(style: Style) -> char {
    match style {
        BAD => '!',
        NEAR => '~',
        _ => ' ',
    }
}

/// Returns the time from `since` to `at`, or `-` if one of them is not in RFC 3339.
fn age(since: &str, at: &str) -> String {
    let seconds = |text: &str| text.parse().map(Timestamp::as_second).ok();
    let Some((since, at)) = seconds(since).zip(seconds(at)) else {
        return "-".to_owned();
    };
    match at.saturating_sub(since).max(0) {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}m", seconds / 60),
        seconds @ 7200..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86400),
    }
}

/// Signals against thresholds, and the trend of tasks.
pub fn signals(view: &View, width: usize) -> Pane {
    let mut pane = Pane::new("SIGNALS  available, | threshold");
    let Ok(explanation) = &view.explanation else {
        return pane.sentence("unknown without the agent", width);
    };
    for (name, reading) in view::signals(explanation) {
        pane.rows.push(signal(name, reading, width));
    }
    if let Some((least, most)) = view.tasks.iter().min().zip(view.tasks.iter().max()) {
        let columns = width.saturating_sub(35).max(4);
        let left_out = view.tasks.len().saturating_sub(columns);
        let recent = view.tasks.iter().skip(left_out);
        let trend = recent.map(|tasks| height(tasks - least, most - least));
        let (trend, name) = (trend.collect::<String>(), column("tasks", 17));
        let text = format!("  {name} {trend:columns$} {least} to {most}");
        pane.add(PLAIN, text);
    }
    pane
}

/// The bar has the length of what is available, and a mark at the threshold.
fn signal(name: &str, reading: SignalReading, width: usize) -> (Style, String) {
    let available = u64::try_from(reading.available).unwrap_or_default();
    let style = match reading.threshold.saturating_mul(2) {
        _ if reading.below => BAD,
        twice if available <= twice => NEAR,
        _ => PLAIN,
    };
    let mut signals = Signal::ALL.into_iter();
    let of = signals.find(|signal| signal.as_str() == name);
    let shown = of.map_or_else(String::new, |of| amount(of, reading.available));
    let columns = width.saturating_sub(30).clamp(4, 40);
    let filled = share(available, reading.capacity, columns);
    let at = share(reading.threshold, reading.capacity, columns).min(columns - 1);
    let bar = (0..columns).map(|column| match column {
        _ if column == at => '|',
        _ if column < filled => '█',
        _ => '·',
    });
    let (bar, name, mark) = (bar.collect::<String>(), column(name, 17), mark(style));
    (style, format!("{mark} {name} {bar} {shown}"))
}

/// Returns the share of `part` in `whole`, in `units`.
fn share(part: u64, whole: u64, units: usize) -> usize {
    let units = u128::try_from(units).unwrap_or_default();
    let share = (u128::from(part) * units).checked_div(whole.into());
    usize::try_from(share.unwrap_or_default()).unwrap_or(usize::MAX)
}

/// Returns a bar for `n` of `most`.
fn height(n: u64, most: u64) -> char {
    let height = HEIGHTS.get(share(n, most, HEIGHTS.len() - 1));
    height.copied().unwrap_or('█')
}

/// Latency of each disk: numbers of requests by bucket, and the latency that 99% do not exceed.
pub fn disks(view: &View, width: usize) -> Pane {
    let mut pane = Pane::new("DISKS  latency, 65 us to over 1 s");
    let histograms = match &view.latency {
        Ok(histograms) if !histograms.is_empty() => histograms,
        Ok(_) => return pane.sentence("not measured; for the reason: nodepulse check", width),
        Err(why) => return pane.sentence(why, width),
    };
    for ((device, operation), buckets) in histograms {
        let most = buckets.iter().copied().max().unwrap_or_default();
        let bars = buckets.iter().map(|count| match count {
            0 => '·',
            count => height(*count, most),
        });
        let (bars, device) = (bars.collect::<String>(), column(device, 8));
        let operation = operation.chars().next().unwrap_or(' ');
        let high = quantile(buckets, 990).map(|high| format!("99% {}", Millis(high)));
        let high = high.unwrap_or_else(|| "idle".to_owned());
        let mut text = format!("{device} {operation} {bars} {high}");
        if 50 <= width {
            text = format!("{text:42} {} requests", total(buckets));
        }
        pane.add(PLAIN, text);
    }
    pane
}

/// A resource by whose use pods and units are ordered.
#[derive(Clone, Copy)]
pub enum By {
    Memory,
    Cpu,
}

/// Pods and units, those that use most first.
pub fn busiest(view: &View, by: By, width: usize) -> Pane {
    let mut pane = Pane::new(match by {
        By::Memory => "BUSIEST by memory",
        By::Cpu => "BUSIEST by CPU",
    });
    let usage = match &view.usage {
        Ok(usage) => usage,
        Err(why) => return pane.sentence(why, width),
    };
    let used = |one: &Usage| match by {
        By::Memory => Some(one.memory),
        By::Cpu => one.cpu,
    };
    let mut usage: Vec<&Usage> = usage.iter().collect();
    usage.sort_by(|a, b| used(b).cmp(&used(a)).then(a.name.cmp(&b.name)));
    for one in usage {
        let value = match (by, one.cpu) {
            (By::Memory, _) => Bytes::from_bytes(one.memory).to_string(),
            (By::Cpu, Some(cpu)) => format!("{}.{}%", cpu / 10, cpu % 10),
            (By::Cpu, None) => "-".to_owned(),
        };
        let name = column(&one.name, width.saturating_sub(9));
        pane.add(PLAIN, format!("{name} {value:>8}"));
    }
    pane
}

/// Incidents from the `first` one on, the newest first.
pub fn incidents(view: &View, first: usize, width: usize) -> Pane {
    let mut pane = Pane::new("INCIDENTS");
    let incidents = match &view.incidents {
        Ok(incidents) => incidents,
        Err(why) => return pane.sentence(why, width),
    };
    let count = incidents.len();
    pane.title = format!("INCIDENTS  {count} recorded, scrolled by {first}");
    for incident in incidents.iter().skip(first) {
        let style = if incident.is_improvement() {
            PLAIN
        } else {
            BAD
        };
        // Month, day and time of day, in UTC.
        let time = incident.time.get(5..19).unwrap_or_default();
        let time = time.replace('T', " ");
        let object = column(&incident.object_name(), (width / 4).clamp(12, 40));
        let text = format!("{time} {object} {}", incident.summary());
        pane.add(style, text);
    }
    pane
}
