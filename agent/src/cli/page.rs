//! Manual pages, from the command line and the table of configuration keys. Help is a page as text.

use clap::{Arg, ArgAction, Command};

use super::position::{Position, takes_value};
use super::settings::FILES;
use super::version::VERSION;
use crate::config::{Flag, HEADINGS, KEYS, KeySpec, Preset};

mod roff;
mod text;
mod texts;

use texts::Texts;

/// Heading of the other flags of a command.
const OPTIONS: &str = "Options";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    Short,
    Full,
}

#[derive(Debug)]
pub struct Page {
    /// Name such as `nodepulse-check`.
    pub name: String,
    /// Section of the manual: 1, or 8 for the daemon.
    pub section: u8,
    about: String,
    synopsis: Vec<Synopsis>,
    sections: Vec<Section>,
}

#[derive(Debug)]
struct Synopsis {
    command: String,
    arguments: String,
}

#[derive(Debug)]
struct Section {
    heading: String,
    blocks: Vec<Block>,
}

#[derive(Debug)]
enum Block {
    /// A heading below that of the section.
    Heading(String),
    Text(String),
    /// A flag, a file or an exit code, and its meaning.
    Entry {
        term: String,
        /// A placeholder after it.
        value: String,
        text: String,
    },
}

#[cfg(feature = "testing")]
pub fn pages(root: &Command) -> Vec<Page> {
    let below = root.get_subcommands().filter(|below| has_page(below));
    std::iter::once(root).chain(below).map(page).collect()
}

pub(super) fn has_page(command: &Command) -> bool {
    !command.is_hide_set() && command.get_name() != "help"
}

pub(super) fn page(command: &Command) -> Page {
    let name = command.get_name();
    let texts = texts::of(name);
    let mut sections = vec![description(command, texts)];
    sections.extend(commands(command));
    sections.extend(options(command));
    sections.extend(texts.into_iter().flat_map(Texts::sections));
    sections.push(see_also(command, texts));
    let (name, section) = title(name);
    Page {
        name,
        section,
        about: about(command),
        synopsis: synopsis(command),
        sections,
    }
}

/// Name and section of the page of a command. That of `run` describes the daemon.
fn title(command: &str) -> (String, u8) {
    match command {
        "nodepulse" => ("nodepulse".to_owned(), 1),
        "run" => ("nodepulse".to_owned(), 8),
        other => (format!("nodepulse-{other}"), 1),
    }
}

impl Page {
    /// Formats the page for `man`.
    pub fn roff(&self) -> String {
        roff::render(self)
    }

    /// Formats the page for a terminal with this number of columns.
    pub(super) fn text(&self, width: usize) -> String {
        text::render(self, width)
    }
}

pub(super) fn help(position: &Position<'_>, detail: Detail, width: usize) -> String {
    let command = position.command;
    match detail {
        Detail::Full if position.path.split(' ').count() <= 2 => page(command).text(width),
        // `config print` is described by the page of `config`.
        Detail::Full | Detail::Short => text::short(command, &position.path, detail, width),
    }
}

fn about(command: &Command) -> String {
    command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default()
}

fn description(command: &Command, texts: Option<&Texts>) -> Section {
    let mut blocks = vec![Block::Text(sentence(&about(command)))];
    let more = texts.map(|texts| texts.description).unwrap_or_default();
    blocks.extend(more.iter().map(|text| Block::Text((*text).to_owned())));
    section("Description", blocks)
}

fn section(heading: &str, blocks: Vec<Block>) -> Section {
    let heading = heading.to_owned();
    Section { heading, blocks }
}

fn commands(command: &Command) -> Option<Section> {
    let below = command
        .get_subcommands()
        .filter(|below| !below.is_hide_set());
    let entry = |below: &Command| Block::Entry {
        term: below.get_name().to_owned(),
        value: String::new(),
        text: sentence(&about(below)),
    };
    let blocks: Vec<Block> = below.map(entry).collect();
    (!blocks.is_empty()).then(|| section("Commands", blocks))
}

/// The flags of `command`, and of its subcommands, by heading.
fn options(command: &Command) -> Option<Section> {
    let mut blocks = Vec::new();
    for below in command.get_subcommands() {
        if command.get_name() == "config" && below.get_name() != "help" {
            // `print` and `validate` have the same flags.
            if below.get_name() == "validate" {
                continue;
            }
            let name = match below.get_name() {
                "print" => "config print, config validate".to_owned(),
                name => format!("config {name}"),
            };
            blocks.push(Block::Heading(name));
            blocks.extend(
                flags(below, Detail::Full)
                    .into_iter()
                    .flat_map(|group| group.1),
            );
        }
    }
    for (heading, entries) in flags(command, Detail::Full) {
        if heading != OPTIONS {
            blocks.push(Block::Heading(heading.to_owned()));
        }
        blocks.extend(entries);
    }
    (!blocks.is_empty()).then(|| section("Options", blocks))
}

/// The operands and flags of a command by heading, in the order of the table of keys.
fn flags(command: &Command, detail: Detail) -> Vec<(&'static str, Vec<Block>)> {
    let headings = [OPTIONS, FILES].into_iter().chain(HEADINGS);
    let groups = headings.map(|heading| {
        let of_heading = |arg: &&Arg| arg.get_help_heading().unwrap_or(OPTIONS) == heading;
        let shown = |arg: &&Arg| !arg.is_hide_set();
        let common = |arg: &&Arg| detail == Detail::Full || !arg.is_hide_short_help_set();
        let args = command.get_arguments().filter(of_heading);
        let args = args.filter(shown).filter(common);
        let entries: Vec<Block> = args.map(|arg| entry(arg, detail)).collect();
        (heading, entries)
    });
    groups.filter(|(_, entries)| !entries.is_empty()).collect()
}

fn entry(arg: &Arg, detail: Detail) -> Block {
    let names = arg.get_value_names().unwrap_or_default();
    let name = names.first().map(ToString::to_string).unwrap_or_default();
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    let value = if arg.is_positional() {
        name
    } else if !takes_value(arg) {
        String::new()
    } else if arg.is_require_equals_set() {
        format!("[={name}]")
    } else {
        format!(" {name}")
    };
    Block::Entry {
        term: names.join(", "),
        value,
        text: meaning(arg, detail),
    }
}

/// Describes a flag, with its values and its default.
fn meaning(arg: &Arg, detail: Detail) -> String {
    let mut keys = KEYS.iter().copied();
    let spec = keys.find(|spec| spec.name == arg.get_id().as_str());
    let help = match (arg.get_action(), spec) {
        (ArgAction::Help, _) => "Print help; `--help` prints all of it".to_owned(),
        (ArgAction::Version, _) => "Print the version".to_owned(),
        (_, Some(spec)) => spec.help.to_owned(),
        (_, None) => {
            let long = arg.get_long_help().filter(|_| detail == Detail::Full);
            let help = long.or(arg.get_help());
            help.map(ToString::to_string).unwrap_or_default()
        }
    };
    let help = help.replace("\n\n", " ");
    let values = arg.get_possible_values();
    let values: Vec<&str> = values
        .iter()
        .map(clap::builder::PossibleValue::get_name)
        .collect();
    let values = match values.as_slice() {
        [] | ["true", "false"] => None,
        several => Some(several.join(", ")),
    };
    // The default of a switch is not shown.
    let default = arg.get_default_values().first();
    let default = default.filter(|_| takes_value(arg));
    let default = default.map(|value| value.to_string_lossy().into_owned());
    let default = default.or_else(|| spec.and_then(preset));
    if detail == Detail::Short {
        let default = default.map(|default| format!(" [{default}]"));
        return help + &default.unwrap_or_default();
    }
    let mut text = sentence(&help);
    let details = spec
        .map(|spec| spec.details)
        .filter(|details| !details.is_empty());
    for more in details
        .map(str::to_owned)
        .into_iter()
        .chain(values.map(|values| format!("Values: {values}.")))
        .chain(default.map(|default| format!("Default: {default}.")))
        .chain(spec.map(|spec| format!("Key `{}`, variable `{}`.", spec.name, spec.variable())))
    {
        text.push(' ');
        text.push_str(&more);
    }
    text
}

fn preset(spec: &KeySpec) -> Option<String> {
    match (spec.flag, spec.preset) {
        (Flag::Value(_), Preset::Text { text, .. } | Preset::Derived(text)) => {
            Some(text.to_owned())
        }
        (Flag::Value(_), Preset::List { texts, .. }) => Some(texts.join(",")),
        _ => None,
    }
}

/// Ends the text with one full stop.
fn sentence(text: &str) -> String {
    let text = text.trim_end_matches('.');
    format!("{text}.")
}

fn synopsis(command: &Command) -> Vec<Synopsis> {
    let path = match command.get_name() {
        "nodepulse" => "nodepulse".to_owned(),
        name => format!("nodepulse {name}"),
    };
    let below: Vec<&Command> = command.get_subcommands().collect();
    if command.get_name() == "config" {
        let below = below.into_iter().filter(|below| below.get_name() != "help");
        return below
            .map(|below| Synopsis {
                command: format!("{path} {}", below.get_name()),
                arguments: arguments(below),
            })
            .collect();
    }
    vec![Synopsis {
        command: path,
        arguments: arguments(command),
    }]
}

/// Returns the part of the synopsis after the name of a command.
fn arguments(command: &Command) -> String {
    let mut all = Vec::new();
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        all.push("COMMAND".to_owned());
    } else {
        all.push("[OPTION]...".to_owned());
    }
    for operand in command.get_arguments().filter(|arg| arg.is_positional()) {
        let names = operand.get_value_names().unwrap_or_default();
        let name = names.first().map(ToString::to_string).unwrap_or_default();
        all.push(if operand.is_required_set() {
            name
        } else {
            format!("[{name}]")
        });
    }
    all.join(" ")
}

fn see_also(command: &Command, texts: Option<&Texts>) -> Section {
    let pages = match command.get_name() {
        "nodepulse" => {
            let below = command.get_subcommands().filter(|below| has_page(below));
            below.map(Command::get_name).collect()
        }
        _ => texts.map_or_else(Vec::new, |texts| texts.see_also.to_vec()),
    };
    let pages = pages.into_iter().map(|name| {
        let (name, section) = title(name);
        format!("{name}({section})")
    });
    let pages: Vec<String> = pages.collect();
    section("See also", vec![Block::Text(sentence(&pages.join(", ")))])
}

/// Name and version for the footer of a page.
fn source() -> String {
    format!("nodepulse {VERSION}")
}
