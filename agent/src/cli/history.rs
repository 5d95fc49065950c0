//! `nodepulse history`: the incidents that the agent has recorded.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use clap::{Args, ValueEnum};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nodepulse_core::escape::escape;
use nodepulse_core::incident::{API_VERSION, JsonFacts, JsonIncident};
use nodepulse_io::clock::Clock;
use nodepulse_kube::convert;
use nodepulse_linux::store::Reader;
use serde_json::Value;

use super::status::history_directory;
use super::terminal::{self, Paint, Style};
use super::{fail, print_error, refuse, text};
use crate::config::{self, Overrides, key};

mod boot;

/// The history is read in parts of this size, in bytes.
const PART: u64 = 64 << 10;

/// Columns of the object in a table.
const OBJECT: usize = 32;
/// A terminal with fewer columns has what happened on separate lines.
const WIDE: usize = 120;

/// Flags of `history`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Print one incident in full: its id, or the number at its end.
    #[arg(conflicts_with_all = ["follow", "since", "pod", "unit"])]
    id: Option<String>,
    /// Print how a boot ended: -1 is the last one, -2 the one before.
    #[arg(
        long,
        value_name = "NUMBER",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(i64).range(-9_999..=-1),
        conflicts_with_all = ["id", "follow", "since", "pod", "unit"]
    )]
    boot: Option<i64>,
    /// Print the incidents that are recorded from now on, when they are complete.
    #[arg(short, long)]
    follow: bool,
    /// Print only incidents of the last time. Example: 1h.
    #[arg(long, value_name = "DURATION")]
    since: Option<String>,
    /// Print only incidents of this pod, or of all pods of a namespace.
    #[arg(long, value_name = "NAMESPACE/POD|NAMESPACE/")]
    pod: Option<String>,
    /// Print only incidents of this systemd unit.
    #[arg(long, value_name = "UNIT")]
    unit: Option<String>,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: HistoryFormat,
    /// Configuration file [default: /etc/nodepulse/config.yaml, if it exists].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of the history [default: /var/lib/nodepulse/history].
    #[arg(long = key::history_directory.spec.flag_name(), value_name = "DIR")]
    history_directory: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum HistoryFormat {
    /// A table; of one incident, YAML.
    Text,
    /// One JSON object per line.
    Json,
}

/// The incidents to print.
struct Filter {
    since: Option<String>,
    pod: Option<String>,
    unit: Option<String>,
}

impl Filter {
    fn matches(&self, incident: &JsonIncident) -> bool {
        let object = &incident.object;
        let name = object.pod.as_ref().map(|_| incident.object_name());
        let is_pod = |wanted: &String| {
            let is_in = |name: &String| wanted.ends_with('/') && name.starts_with(wanted);
            name.as_ref()
                .is_some_and(|name| name == wanted || is_in(name))
        };
        // Times in one format are in the order of their text.
        self.since
            .as_ref()
            .is_none_or(|since| *since <= *incident.until.as_ref().unwrap_or(&incident.time))
            && self.pod.as_ref().is_none_or(is_pod)
            && (self.unit.is_none() || self.unit == object.unit)
    }
}

/// The latest revision of an incident, as recorded and as understood.
struct Recorded {
    line: String,
    incident: JsonIncident,
}

impl Recorded {
    /// Returns `None` for what a newer version has recorded in another form.
    fn parse(line: String) -> Option<Self> {
        let incident: JsonIncident = serde_json::from_str(&line).ok()?;
        (incident.api_version == API_VERSION).then_some(Self { line, incident })
    }

    /// Returns the incident with all members, also those that a newer version has added.
    fn json(&self) -> Value {
        let mut json = serde_json::from_str(&self.line).unwrap_or_default();
        if let Value::Object(members) = &mut json {
            // They are of the line.
            members.remove("position");
            members.remove("sum");
        }
        json
    }
}

/// The incidents of a history, in the order in which they were recorded first.
#[derive(Default)]
struct Incidents {
    all: Vec<Recorded>,
    by_id: HashMap<String, usize>,
    /// The number of lines in a newer form.
    newer: u64,
    /// A segment could not be read.
    is_partial: bool,
}

impl Incidents {
    /// Adds revisions. Returns those that are complete.
    fn add(&mut self, lines: Vec<String>) -> Vec<usize> {
        let mut settled = Vec::new();
        for line in lines {
            let Some(recorded) = Recorded::parse(line) else {
                self.newer += 1;
                continue;
            };
            let next = self.all.len();
            let at = *self
                .by_id
                .entry(recorded.incident.id.clone())
                .or_insert(next);
            if recorded.incident.settled {
                settled.push(at);
            }
            match self.all.get_mut(at) {
                Some(earlier) => *earlier = recorded,
                None => self.all.push(recorded),
            }
        }
        settled
    }

    /// Finds an incident by its id, or by the number at its end.
    fn find(&self, id: &str) -> Result<&Recorded, String> {
        let number = format!("-{id}");
        let is_it = |one: &&Recorded| one.incident.id == id || one.incident.id.ends_with(&number);
        let mut found = self.all.iter().filter(is_it);
        match (found.next(), found.next()) {
            (Some(found), None) => Ok(found),
            (Some(_), Some(_)) => Err(format!(
                "several incidents have the number {id}; give the whole id: \
                 nodepulse history --output json"
            )),
            (None, _) => Err(format!(
                "no incident {id} in the history; the older ones are removed: nodepulse history"
            )),
        }
    }
}

pub fn run(arguments: Arguments) -> ExitCode {
    let overrides = Overrides {
        config: arguments.config,
        history_directory: arguments.history_directory,
        ..Overrides::default()
    };
    let directory = match history_directory(&overrides) {
        Ok(Some(directory)) => directory,
        Ok(None) => {
            let key = key::history_directory.spec.name;
            return refuse(&format!(
                "{key}: off, so no history is kept; set a directory"
            ));
        }
        Err(why) => return refuse(&why),
    };
    let since = match arguments.since.as_deref().map(since).transpose() {
        Ok(since) => since,
        Err(why) => return refuse(&why),
    };
    if let Some(pod) = arguments.pod.as_deref().filter(|pod| !pod.contains('/')) {
        return refuse(&format!(
            "--pod: {pod:?} has no namespace; example: --pod default/web-0"
        ));
    }
    let filter = Filter {
        since,
        pod: arguments.pod,
        unit: arguments.unit.as_deref().map(unit_name),
    };
    let printed = if arguments.follow {
        follow(&directory, &filter, arguments.output).map(|()| true)
    } else {
        read(&directory).and_then(|incidents| {
            match (&arguments.id, arguments.boot) {
                (Some(id), _) => one(&incidents, id, arguments.output)?,
                (None, Some(number)) => end_of_boot(&incidents, number, arguments.output)?,
                (None, None) => list(&incidents, &filter, arguments.output)?,
            }
            Ok(!incidents.is_partial)
        })
    };
    match printed {
        Ok(true) => ExitCode::SUCCESS,
        // The reason is printed.
        Ok(false) => ExitCode::FAILURE,
        // The reader has closed the pipe.
        Err(Failure::Io(err)) if err.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => fail(&failure.reason(&directory)),
    }
}

/// Returns the beginning of the time, in the format of incidents.
fn since(text: &str) -> Result<String, String> {
    let since = config::parse_duration(text)
        .map_err(|why| format!("--since: {text:?} {why}; example: --since 1h"))?;
    let begin = Clock::kernel().now().wall.checked_sub(since);
    Ok(convert::micro_time(begin.unwrap_or(SystemTime::UNIX_EPOCH)))
}

/// Returns the name as recorded: escaped and, as in systemctl, of a service without a suffix.
fn unit_name(unit: &str) -> String {
    let suffix = if unit.contains('.') { "" } else { ".service" };
    escape(format!("{unit}{suffix}"))
}

enum Failure {
    Io(io::Error),
    Other(String),
}

impl From<io::Error> for Failure {
    fn from(err: io::Error) -> Self {
        Self::Io(err)
    }
}

impl Failure {
    fn reason(self, directory: &Path) -> String {
        let shown = directory.display();
        match self {
            Self::Io(err) => match err.kind() {
                io::ErrorKind::NotFound => format!(
                    "no history in {shown}: no agent has recorded one there; see {}",
                    key::history_directory.spec.name
                ),
                io::ErrorKind::PermissionDenied => format!("{shown}: {err}; run it as root"),
                _ => format!("{shown}: {err}"),
            },
            Self::Other(why) => why,
        }
    }
}

/// Reads the whole history. Prints what could not be read on standard error.
fn read(directory: &Path) -> Result<Incidents, Failure> {
    let mut reader = Reader::new(directory.to_owned());
    let mut incidents = Incidents::default();
    while let Some(lines) = reader.next_chunk(PART)? {
        incidents.add(lines);
        incidents.is_partial |= is_faulty(&mut reader);
    }
    if 0 < reader.damaged() {
        print_error(&format!(
            "nodepulse: {} places of the history are damaged, as a power cut leaves them; the rest is \
             complete",
            reader.damaged()
        ));
    }
    if 0 < incidents.newer {
        print_error(&format!(
            "nodepulse: {} revisions are of a newer nodepulse, and left out",
            incidents.newer
        ));
    }
    Ok(incidents)
}

/// Prints why a segment could not be read.
fn is_faulty(reader: &mut Reader) -> bool {
    let fault = reader.take_fault();
    if let Some(fault) = &fault {
        print_error(&format!(
            "nodepulse: cannot read {fault}; the rest is printed"
        ));
    }
    fault.is_some()
}

fn one(incidents: &Incidents, id: &str, output: HistoryFormat) -> Result<(), Failure> {
    let found = incidents.find(id).map_err(Failure::Other)?;
    let text = match output {
        HistoryFormat::Text => full(found),
        HistoryFormat::Json => format!("{:#}\n", found.json()),
    };
    Ok(terminal::write(&text)?)
}

/// Prints the end of the last boot (-1), or of one before.
fn end_of_boot(incidents: &Incidents, number: i64, output: HistoryFormat) -> Result<(), Failure> {
    let mut boots = incidents.all.iter().rev().filter_map(|one| {
        let Some(JsonFacts::Boot(boot)) = &one.incident.facts else {
            return None;
        };
        Some((one, boot))
    });
    let newer = usize::try_from(number.unsigned_abs() - 1).unwrap_or(usize::MAX);
    let (found, boot) = boots.nth(newer).ok_or_else(|| {
        Failure::Other(format!(
            "the end of boot {number} is not in the history; it is recorded at the first start of the \
             agent after a boot in which it ran; list what is there: nodepulse history"
        ))
    })?;
    let text = match output {
        HistoryFormat::Text => boot::text(&found.incident, boot, Style::of_stdout()),
        HistoryFormat::Json => format!("{:#}\n", found.json()),
    };
    Ok(terminal::write(&text)?)
}

fn list(incidents: &Incidents, filter: &Filter, output: HistoryFormat) -> Result<(), Failure> {
    let matching = incidents
        .all
        .iter()
        .filter(|one| filter.matches(&one.incident));
    let matching: Vec<&Recorded> = matching.collect();
    if matching.is_empty() && output == HistoryFormat::Text {
        print_error("nodepulse: no such incident is recorded");
        return Ok(());
    }
    let style = Style::of_stdout();
    Ok(terminal::write(&formatted(&matching, output, style, true))?)
}

fn follow(directory: &Path, filter: &Filter, output: HistoryFormat) -> Result<(), Failure> {
    // Before the directory is read, so that no change is missed.
    let changes = Inotify::init(InitFlags::IN_CLOEXEC).map_err(io::Error::from)?;
    let wanted = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE;
    let watched = changes.add_watch(directory, wanted);
    watched.map_err(io::Error::from)?;
    let mut reader = Reader::new(directory.to_owned());
    while reader.next_chunk(PART)?.is_some() {
        is_faulty(&mut reader);
    }
    loop {
        changes.read_events().map_err(io::Error::from)?;
        // A settled revision is whole, so nothing is kept of earlier ones.
        let mut incidents = Incidents::default();
        let settled = incidents.add(reader.next_lines()?);
        is_faulty(&mut reader);
        let settled = settled.iter().filter_map(|at| incidents.all.get(*at));
        let matching: Vec<_> = settled
            .filter(|one| filter.matches(&one.incident))
            .collect();
        let style = Style::of_stdout();
        terminal::write(&formatted(&matching, output, style, false))?;
    }
}

/// Returns one incident for people: the message first, then everything else as YAML.
fn full(found: &Recorded) -> String {
    let (incident, mut rest) = (&found.incident, found.json());
    if let Value::Object(members) = &mut rest {
        members.remove("message");
    }
    let mut out = String::new();
    terminal::wrap(&mut out, &incident.message, 0, 0, terminal::width());
    out + "\n" + &text::yaml(&rest)
}

/// Returns incidents as text. `is_table`: with a headline.
fn formatted(
    incidents: &[&Recorded],
    output: HistoryFormat,
    style: Style,
    is_table: bool,
) -> String {
    let mut out = String::new();
    if output == HistoryFormat::Json {
        for json in incidents.iter().map(|one| one.json()) {
            // Writing to a String cannot fail.
            let _written = writeln!(out, "{json}");
        }
        return out;
    }
    let is_narrow = style.width.is_some_and(|width| width < WIDE);
    if is_table {
        let what = if is_narrow { "" } else { "  WHAT" };
        let headline = format!("{:20}  {:OBJECT$}  {:16}{what}", "TIME", "OBJECT", "ID");
        let _written = writeln!(out, "{}", style.paint(Paint::Bold, headline.trim_end()));
    }
    for Recorded { incident, .. } in incidents {
        let time = incident.time.get(..19).unwrap_or(&incident.time);
        let number = incident.id.rsplit('-').next().unwrap_or_default();
        let object = shortened(&incident.object_name(), OBJECT);
        let row = format!("{time}Z  {object:OBJECT$}  {number:16}  ");
        let (column, indent) = if is_narrow {
            out = out + row.trim_end() + "\n";
            (0, 4)
        } else {
            out += &row;
            (row.chars().count(), row.chars().count())
        };
        let width = style.width.unwrap_or(usize::MAX);
        terminal::wrap(&mut out, &incident.summary(), column, indent, width);
    }
    out
}

fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept = text.chars().take(width.saturating_sub(1));
    kept.chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(object: &Value, facts: &Value) -> Recorded {
        let incident = serde_json::json!({
            "apiVersion": API_VERSION, "id": "a-1-85683018021", "revision": 1, "settled": true,
            "time": "2026-11-28T14:16:34.001624Z", "object": object, "reason": "", "message": "",
            "kind": "Condition", "facts": facts,
        });
        Recorded::parse(incident.to_string()).unwrap()
    }

    #[test]
    fn a_row_has_time_object_id_and_all_that_happened_at_every_width() {
        let facts = serde_json::json!({
            "type": "DiskIOPressure", "status": "True", "reason": "SlowDisk",
            "message": "slow disk: vda, which serves a number of file systems",
            "details": "used most by hog.service (4.8 MB/s written)",
        });
        let long = "x".repeat(40) + ".service";
        let one = recorded(&serde_json::json!({"unit": long}), &facts);
        let text = |width| {
            let style = Style {
                width,
                colors: false,
            };
            formatted(&[&one], HistoryFormat::Text, style, true)
        };
        let head = "TIME                  OBJECT                            ID";
        let row = format!("2026-11-28T14:16:34Z  {}…  85683018021", "x".repeat(31));
        let narrow = format!(
            "{head}\n{row}\n    \
             DiskIOPressure is True: slow disk: vda, which serves a number of file\n    \
             systems; used most by hog.service (4.8 MB/s written)\n"
        );
        assert_eq!(text(Some(80)), narrow);
        let indent = " ".repeat(74);
        let wide = format!(
            "{head}                WHAT\n{row}       \
             DiskIOPressure is True: slow disk: vda, which\n{indent}\
             serves a number of file systems; used most by\n{indent}\
             hog.service (4.8 MB/s written)\n"
        );
        assert_eq!(text(Some(120)), wide);
        let piped = text(None);
        assert_eq!(piped.lines().count(), 2, "{piped}");
        assert!(
            piped.ends_with("hog.service (4.8 MB/s written)\n"),
            "{piped}"
        );
    }
}
