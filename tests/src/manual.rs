//! Completions and manual pages, from the command line itself. They are files of the repository and
//! not commands of the agent, in which the two generators would take 170 KiB.

use clap::Command;
use clap_complete::generate;
use clap_complete::shells::{Bash, Fish, Zsh};
use clap_mangen::Man;

/// Every file, by its path below `deploy/`.
///
/// # Panics
///
/// If a generator fails to write to memory.
#[must_use]
pub fn files() -> Vec<(String, String)> {
    let mut command = nodepulse::cli::command();
    let mut files = vec![
        completion(Bash, &command, "completions/nodepulse.bash"),
        completion(Zsh, &command, "completions/_nodepulse"),
        completion(Fish, &command, "completions/nodepulse.fish"),
    ];
    // Names them after the whole call, and adds `help`.
    command.build();
    let below = command.get_subcommands();
    files.extend(below.filter(|below| below.get_name() != "help").map(page));
    files.push(page(&command));
    files
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
    let path = format!("man/{name}.1");
    let command = command.clone().version(env!("CARGO_PKG_VERSION"));
    let mut text = Vec::new();
    Man::new(command)
        .render(&mut text)
        .expect("write to memory");
    (path, String::from_utf8(text).expect("text"))
}
