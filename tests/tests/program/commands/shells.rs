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
         [[ $(complete -p nodepulse) == 'complete -F _nodepulse nodepulse' ]] || exit 9\n\
         COMP_WORDS=('{program}'{})\nCOMP_CWORD={}\n\
         _nodepulse nodepulse \"${{COMP_WORDS[COMP_CWORD]}}\"\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"",
        quoted.collect::<String>(),
        words.len(),
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
    std::fs::write(dir.path().join("kube config"), "").unwrap();
    std::fs::create_dir(dir.path().join("state")).unwrap();
    let rows: [(&[&str], &[&str]); 10] = [
        (&["expl"], &["explain"]),
        (
            &["explain", "Disk"],
            &[
                "DiskSpaceLow",
                "DiskIOPressure",
                "DiskFailing",
                "DiskStallPressure",
                "DiskPressure",
            ],
        ),
        (&["run", "--kernel-t"], &["--kernel-tier"]),
        (
            &["run", "--kernel-tier", ""],
            &["auto", "btf", "kmsg", "files"],
        ),
        (&["run", "--mode", "=", "no"], &["node"]),
        (&["status", "-o", ""], &["yaml", "json"]),
        (&["run", "--kubeconfig", ""], &["kube config", "state"]),
        (&["run", "--kubeconfig", "=", "kube"], &["kube config"]),
        (&["explain", "--state-directory", "st"], &["state"]),
        (&["run", "--nothing-like-this"], &[]),
    ];
    for (words, expected) in rows {
        let mut found = bash(words, dir.path());
        if words.contains(&"--kubeconfig") {
            found.sort();
        }
        assert_eq!(found, expected, "{words:?}");
    }
    let all = bash(&[""], dir.path());
    assert!(all.contains(&"completion".to_owned()), "{all:?}");
    assert!(!all.contains(&"__complete".to_owned()), "{all:?}");
}

#[test]
fn zsh_parses_its_script() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("_nodepulse");
    std::fs::write(&file, nodepulse::testing::Shell::Zsh.script()).unwrap();
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
        ("nodepulse run --mode=n", vec!["--mode=node"]),
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
    let pages = pages();
    assert_eq!(pages.len(), 10, "{:?}", pages.iter().map(|page| &page.0));
    for (path, text) in &pages {
        let headings = [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "OPTIONS",
            "EXIT STATUS",
            "EXAMPLES",
            "SEE ALSO",
        ];
        for heading in headings {
            let found = text.contains(&format!(".SH {heading}\n"))
                || text.contains(&format!(".SH \"{heading}\"\n"));
            assert!(found, "{path}: {heading}");
        }
        let is_short = ["completion", "man", "version"]
            .iter()
            .any(|name| path.contains(&format!("-{name}.")));
        for heading in ["ENVIRONMENT", "FILES"] {
            assert_ne!(
                is_short,
                text.contains(&format!(".SH \"{heading}\"")),
                "{path}: {heading}"
            );
        }
    }
    let daemon = pages
        .iter()
        .find(|(path, _)| path == "deploy/man/nodepulse.8");
    let (_, daemon) = daemon.expect("the daemon is in section 8");
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
