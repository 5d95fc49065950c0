//! Manual pages and completion scripts, from the command line.

use std::io;

use clap::builder::{PossibleValue, ValueParser};
use clap::{Arg, Command};
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use nodepulse::testing::{Section, sections};

/// The pages of `root` and of its visible subcommands, each with its path.
pub fn pages(root: &Command) -> io::Result<Vec<(String, String)>> {
    let mut all = vec![page(root)?];
    for command in root
        .get_subcommands()
        .filter(|command| command.get_name() != "help")
    {
        all.push(page(command)?);
        for below in command
            .get_subcommands()
            .filter(|below| below.get_name() != "help")
        {
            all.push(page(below)?);
        }
    }
    Ok(all)
}

/// What clap_mangen and roff begin each part with, and a page needs once.
const PREAMBLE: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";

fn page(command: &Command) -> io::Result<(String, String)> {
    let name = command.get_name();
    // The page of `run` describes the daemon.
    let (title, section) = match name {
        "run" => ("nodepulse", "8"),
        _ => (command.get_display_name().unwrap_or(name), "1"),
    };
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim().to_owned();
    let command = command.clone().display_name(title.to_owned());
    let command = command.override_usage(usage);
    let command = command.mut_args(in_one_paragraph);
    let sub = command.has_subcommands();
    let man = Man::new(command)
        .title(title.to_uppercase())
        .section(section)
        .source(format!("nodepulse {}", env!("CARGO_PKG_VERSION")))
        .manual("nodepulse manual");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if sub {
        man.render_subcommands_section(&mut text)?;
    }
    let mut text = String::from_utf8(text).map_err(io::Error::other)?;
    text.extend(sections(name).iter().map(roff));
    let text = format!("{PREAMBLE}{}", text.replace(PREAMBLE, ""));
    // Without a date, which would be that of the build.
    let text = text.replacen("  \"", " \"\" \"", 1);
    Ok((format!("deploy/man/{title}.{section}"), text))
}

/// Appends the possible values of an argument to its help, in place of a list.
fn in_one_paragraph(arg: Arg) -> Arg {
    let values = arg.get_possible_values();
    let values: Vec<&str> = values.iter().map(PossibleValue::get_name).collect();
    let values = match values.as_slice() {
        [] | ["true", "false"] => String::new(),
        values => format!(" [possible values: {}]", values.join(", ")),
    };
    let help = arg.get_long_help().or(arg.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    // clap_mangen leaves out the help of an argument that the short help does not have.
    let arg = arg.hide_possible_values(true).hide_short_help(false);
    arg.long_help(help.replace("\n\n", " ") + &values)
}

fn roff(section: &Section) -> String {
    let mut roff = Roff::new();
    roff.control("SH", [section.heading]);
    for (term, text) in &section.entries {
        if !term.is_empty() {
            roff.control("TP", []).text([bold(*term)]);
        }
        roff.text([roman(*text)]);
    }
    roff.render()
}

/// The scripts of the shells, each with its path.
pub fn completions(root: &Command) -> io::Result<Vec<(String, String)>> {
    let scripts = [
        (Shell::Bash, "nodepulse.bash"),
        (Shell::Zsh, "_nodepulse"),
        (Shell::Fish, "nodepulse.fish"),
    ];
    let script = |(shell, name)| {
        let mut script = Vec::new();
        let mut command = with_args(root.clone(), &|arg| completed(arg, shell));
        generate(shell, &mut command, "nodepulse", &mut script);
        let script = String::from_utf8(script).map_err(io::Error::other)?;
        Ok((format!("deploy/completions/{name}"), script))
    };
    scripts.into_iter().map(script).collect()
}

/// Changes each argument of a command and of those below it.
fn with_args(command: Command, change: &impl Fn(Arg) -> Arg) -> Command {
    let command = command.mut_args(change);
    command.mut_subcommands(|below| with_args(below, change))
}

/// Changes what a script of clap_complete would do wrong.
fn completed(arg: Arg, shell: Shell) -> Arg {
    let name = arg.get_value_names().and_then(|names| names.first());
    match name.map(ToString::to_string) {
        // zsh takes what follows a colon for a command.
        Some(name) if shell == Shell::Zsh => arg.value_name(name.replace(':', "\\:")),
        // The value would be completed after a space.
        Some(_) if arg.is_require_equals_set() => arg.value_parser(ValueParser::string()),
        _ => arg,
    }
}
