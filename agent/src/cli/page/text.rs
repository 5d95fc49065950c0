//! A page as plain text.

use clap::Command;

use super::super::terminal::wrap;
use super::{Block, Detail, Page, about, arguments, flags, sentence};

/// Indentation of paragraphs and terms.
const INDENT: usize = 2;
/// Column at which the meanings of short terms begin.
const COLUMN: usize = 27;
/// Indentation of meanings below their terms.
const BELOW: usize = 8;

pub(super) fn render(page: &Page, width: usize) -> String {
    let mut out = String::new();
    for (n, call) in page.synopsis.iter().enumerate() {
        let head = if n == 0 { "Usage: " } else { "       " };
        out.push_str(head);
        let call = format!("{} {}", call.command, call.arguments);
        wrap(&mut out, &call, head.len(), head.len(), width);
    }
    for section in &page.sections {
        out.push('\n');
        out.push_str(&section.heading.to_uppercase());
        out.push('\n');
        for (n, block) in section.blocks.iter().enumerate() {
            match block {
                Block::Heading(heading) => {
                    if n > 0 {
                        out.push('\n');
                    }
                    out.push_str(heading);
                    out.push_str(":\n");
                }
                Block::Text(text) => {
                    if n > 0 {
                        out.push('\n');
                    }
                    wrap(&mut out, text, 0, INDENT, width);
                }
                Block::Entry { term, value, text } => {
                    below(&mut out, &format!("{term}{value}"), text, width);
                }
            }
        }
    }
    out
}

/// A term, and its meaning in the next line.
fn below(out: &mut String, term: &str, text: &str, width: usize) {
    wrap(out, term, 0, INDENT, width);
    wrap(out, text, 0, BELOW, width);
}

/// Formats the commands and the most common flags of a command, or all of them without any other
/// section.
pub(super) fn short(command: &Command, path: &str, detail: Detail, width: usize) -> String {
    let mut out = String::new();
    wrap(&mut out, &sentence(&about(command)), 0, 0, width);
    out.push_str("\nUsage: ");
    out.push_str(path);
    out.push(' ');
    out.push_str(&arguments(command));
    out.push('\n');
    let visible = command
        .get_subcommands()
        .filter(|below| !below.is_hide_set());
    let commands: Vec<&Command> = visible.collect();
    if !commands.is_empty() {
        out.push_str("\nCommands:\n");
    }
    for below in commands {
        in_columns(&mut out, below.get_name(), 14, &about(below), width);
    }
    let groups = flags(command, detail);
    let is_grouped = groups.len() > 1;
    for (heading, entries) in groups {
        // With headings, the flags would not fit on one screen.
        if !is_grouped || detail == Detail::Full {
            out.extend(["\n", heading, ":\n"]);
        } else if !out.ends_with("Options:\n") && !out.contains("\nOptions:\n") {
            out.push_str("\nOptions:\n");
        }
        for block in entries {
            if let Block::Entry { term, value, text } = block {
                let term = format!("{term}{value}");
                match detail {
                    Detail::Short => in_columns(&mut out, &term, COLUMN, &text, width),
                    Detail::Full => below(&mut out, &term, &text, width),
                }
            }
        }
    }
    if detail == Detail::Short {
        out.extend(["\n`", path, " --help` prints more.\n"]);
    }
    out
}

/// A term, and its meaning in the same line if it is short.
fn in_columns(out: &mut String, term: &str, column: usize, text: &str, width: usize) {
    out.push_str("  ");
    out.push_str(term);
    let end = INDENT + term.chars().count();
    if end + 2 > column {
        out.push('\n');
        wrap(out, text, 0, column, width);
    } else {
        wrap(out, text, end, column, width);
    }
}
