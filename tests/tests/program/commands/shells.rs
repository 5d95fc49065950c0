//! Completion in real shells, and manual pages in real viewers.

use std::path::Path;
use std::process::{Command, Output};

use nodepulse_tests::manual::files;
use nodepulse_tests::process::program;
use nodepulse_tests::skipped::skip;
use tempfile::tempdir;

/// Runs `program` with `args`; `None` if it is not installed, which is recorded.
fn output(program: &str, args: &[&str]) -> Option<Output> {
    match Command::new(program).args(args).output() {
        Ok(output) => Some(output),
        Err(err) => {
            skip(&format!("no {program}"), err);
            None
        }
    }
}

/// What bash completes after these words, the last of which is incomplete.
fn bash(words: &[&str], directory: &Path) -> Vec<String> {
    let program = program();
    let quoted = words.iter().map(|word| format!(" '{word}'"));
    let script = format!(
        "source <('{program}' completion bash)\n\
         [[ $(complete -p nodepulse) == 'complete '*' -F _nodepulse nodepulse' ]] || exit 9\n\
         COMP_WORDS=(nodepulse{})\nCOMP_CWORD={last}\n\
         _nodepulse nodepulse \"${{COMP_WORDS[{last}]}}\" \"${{COMP_WORDS[{last} - 1]}}\"\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        quoted.collect::<String>(),
        last = words.len(),
        program = program.display(),
    );
    let mut bash = Command::new("bash");
    let bash = bash.args(["--norc", "-c", &script]).current_dir(directory);
    let output = bash.output().expect("bash is installed");
    assert!(output.status.success(), "{words:?}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_flags_values_and_files() {
    let dir = tempdir().unwrap();
    std::fs::write(dir.path().join("kubeconfig"), "").unwrap();
    let rows: [(&[&str], &[&str]); 8] = [
        (&["expl"], &["explain"]),
        (
            &["explain", "DiskS"],
            &["DiskSpaceLow", "DiskStallPressure"],
        ),
        (&["run", "--kernel-t"], &["--kernel-tier"]),
        (
            &["run", "--kernel-tier", ""],
            &["auto", "btf", "kmsg", "files"],
        ),
        (&["status", "-o", ""], &["yaml", "json"]),
        (&["run", "--kubeconfig", "kube"], &["kubeconfig"]),
        // Its value follows `=`.
        (&["run", "--register-node", ""], &[]),
        (&["run", "--nothing-like-this"], &[]),
    ];
    for (words, expected) in rows {
        assert_eq!(bash(words, dir.path()), expected, "{words:?}");
    }
    let all = bash(&["run", "--"], dir.path());
    assert!(all.contains(&"--mode".to_owned()), "{all:?}");
}

#[test]
fn zsh_parses_its_script() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("_nodepulse");
    let script = nodepulse::testing::Shell::Zsh.script();
    assert!(
        script.contains(r"VALUE\:EFFECT"),
        "zsh runs what follows a colon"
    );
    std::fs::write(&file, script).unwrap();
    let Some(parsed) = output("zsh", &["-n", &file.display().to_string()]) else {
        return;
    };
    assert!(
        parsed.status.success() && parsed.stderr.is_empty(),
        "{parsed:?}"
    );
}

#[test]
fn fish_completes_commands_and_values() {
    let program = program();
    let script = nodepulse::testing::Shell::Fish.script();
    let directory = program.parent().unwrap().display();
    let ask = |line: &str| {
        let script = format!("set -x PATH {directory} $PATH\n{script}\ncomplete -C '{line}'");
        let output = output("fish", &["--no-config", "-c", &script])?;
        assert!(output.stderr.is_empty(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        Some(
            text.lines()
                .map(|line| line.split('\t').next().unwrap().to_owned())
                .collect(),
        )
    };
    for (line, expected) in [
        ("nodepulse expl", vec!["explain"]),
        ("nodepulse run --mode ", vec!["companion", "node"]),
    ] {
        let Some::<Vec<String>>(mut found) = ask(line) else {
            return;
        };
        found.sort();
        assert_eq!(found, expected, "{line:?}");
    }
}

/// The manual pages in the repository.
fn pages() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let files = files(&root).unwrap().into_iter();
    files
        .filter(|(path, _)| path.starts_with("deploy/man/"))
        .collect()
}

#[test]
fn each_page_has_the_usual_sections() {
    for (path, text) in &pages() {
        let is_below_config = path.contains("-config-");
        let headings = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS"].map(|name| (name, true));
        let further =
            ["\"EXIT STATUS\"", "EXAMPLES", "\"SEE ALSO\""].map(|name| (name, !is_below_config));
        for (heading, is_expected) in headings.into_iter().chain(further) {
            let found = text.contains(&format!(".SH {heading}\n"));
            assert_eq!(found, is_expected, "{path}: {heading}");
        }
    }
    let pages = pages();
    let mut daemon = pages
        .iter()
        .filter(|(path, _)| path == "deploy/man/nodepulse.8");
    let (_, daemon) = daemon.next().expect("the daemon is in section 8");
    assert!(daemon.contains("\\fBnodepulse run\\fR"), "{daemon}");
}

#[test]
fn viewers_accept_the_pages() {
    let dir = tempdir().unwrap();
    for (path, text) in pages() {
        let name = path.rsplit('/').next().unwrap();
        let file = dir.path().join(name);
        std::fs::write(&file, text).unwrap();
        let file = file.display().to_string();
        if let Some(shown) = output("man", &["--warnings", "-l", &file]) {
            assert!(
                shown.status.success() && shown.stderr.is_empty(),
                "{name}: {shown:?}"
            );
        }
        if let Some(checked) = output("mandoc", &["-T", "lint", "-W", "warning", &file]) {
            let text = String::from_utf8(checked.stdout).unwrap();
            // A date would be that of the build.
            let faults = text.lines().filter(|line| !line.contains("missing date"));
            assert_eq!(faults.collect::<Vec<_>>(), [""; 0], "{name}");
        }
    }
}
