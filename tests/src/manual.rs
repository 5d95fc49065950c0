//! Files that are generated from the command line and the table of configuration keys: completions,
//! manual pages, the reference of the keys and of the metrics, the JSON Schema of the keys, and the values of the chart. They are files of the repository
//! and not commands of the agent, in which the generators would take 170 KiB.

use std::io;
use std::path::Path;

use clap::Command;
use clap_complete::generate;
use clap_complete::shells::{Bash, Fish, Zsh};
use clap_mangen::Man;

mod chart;
mod metrics;
mod reference;
mod schema;

/// Every file, by its path in the repository at `root`. Some are generated only in part.
pub fn files(root: &Path) -> io::Result<Vec<(String, String)>> {
    let mut command = nodepulse::cli::command();
    let mut files = vec![
        completion(Bash, &command, "deploy/completions/nodepulse.bash"),
        completion(Zsh, &command, "deploy/completions/_nodepulse"),
        completion(Fish, &command, "deploy/completions/nodepulse.fish"),
    ];
    // Names them after the whole call, and adds `help`.
    command.build();
    let below = command.get_subcommands();
    files.extend(below.filter(|below| below.get_name() != "help").map(page));
    files.push(page(&command));
    let read = |path: &str| std::fs::read_to_string(root.join(path));
    let document = read(reference::PATH)?;
    files.push((reference::PATH.to_owned(), reference::document(&document)?));
    let metrics = metrics::document(&read(metrics::PATH)?)?;
    files.push((metrics::PATH.to_owned(), metrics));
    let table = chart::document(&read(chart::PATH)?, &read(chart::VALUES)?)?;
    files.push((chart::PATH.to_owned(), table));
    files.push((schema::PATH.to_owned(), schema::file()));
    let values = read(schema::VALUES)?;
    files.push((schema::VALUES.to_owned(), schema::values(&values)?));
    Ok(files)
}

/// `text` with `content` between the first `begin` and the `end` after it.
fn replaced(text: &str, begin: &str, content: &str, end: &str) -> io::Result<String> {
    let none = || io::Error::other(format!("no {begin:?} … {end:?}"));
    let (before, rest) = text.split_once(begin).ok_or_else(none)?;
    let (_, after) = rest.split_once(end).ok_or_else(none)?;
    Ok(format!("{before}{begin}{content}{end}{after}"))
}

fn completion(
    shell: impl clap_complete::Generator,
    command: &Command,
    path: &str,
) -> (String, String) {
    let mut text = Vec::new();
    generate(shell, &mut command.clone(), command.get_name(), &mut text);
    (path.to_owned(), String::from_utf8(text).expect("text"))
}

fn page(command: &Command) -> (String, String) {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let path = format!("deploy/man/{name}.1");
    let command = command.clone().version(env!("CARGO_PKG_VERSION"));
    let mut text = Vec::new();
    Man::new(command)
        .render(&mut text)
        .expect("write to memory");
    (path, String::from_utf8(text).expect("text"))
}
