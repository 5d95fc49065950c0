//! Checks the statements of the documents about conditions, Events, commands and files.

use std::collections::BTreeSet;
use std::fs;

use nodepulse_core::node_status::nodepulse_condition::NodepulseCondition;
use serde_json::Value;

use super::{path, text};

/// Returns the words in backquotes in the cell `column` of each row of the tables in `document`.
fn quoted(document: &str, column: usize) -> BTreeSet<&str> {
    let rows = document.lines().filter(|line| line.starts_with("| "));
    let cells = rows.filter_map(|row| row.split('|').nth(column));
    cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect()
}

/// Reads every Markdown document for users.
fn documents() -> Vec<(String, String)> {
    let mut paths = vec![path("../README.md"), path("helm/nodepulse/README.md")];
    for directory in ["../docs", "../docs/questions"] {
        let files = fs::read_dir(path(directory)).unwrap();
        paths.extend(files.map(|entry| entry.unwrap().path()));
    }
    paths.retain(|path| path.extension().is_some_and(|end| end == "md"));
    let read = |path| fs::read_to_string(path).unwrap();
    let all = paths
        .iter()
        .map(|path| (path.display().to_string(), read(path)));
    all.collect()
}

/// Returns the fenced blocks of a language.
fn blocks<'a>(document: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("\n```{language}\n");
    let rest = document.split(&*begin).skip(1);
    rest.filter_map(|rest| rest.split("\n```").next()).collect()
}

#[test]
fn each_condition_and_each_event_has_an_entry_in_the_runbooks() {
    let runbooks = text("../docs/runbooks.md");
    let entries = quoted(&runbooks, 1);
    for condition in NodepulseCondition::ALL {
        let type_ = condition.type_();
        assert!(entries.contains(type_), "{type_}");
    }
    let events = text("../docs/events.md");
    let (table, _) = events.split_once("\n\nAll are warnings").unwrap();
    let reasons = quoted(table, 2);
    assert!(reasons.len() >= 6, "{reasons:?}");
    for reason in reasons {
        assert!(entries.contains(reason), "{reason}");
    }
}

/// The image contains only the binary, and sets no PATH.
#[test]
fn commands_in_a_container_name_the_binary_by_its_path() {
    let mut commands = 0;
    for (document, text) in documents() {
        for line in text
            .lines()
            .filter(|line| line.contains("kubectl") && line.contains(" exec "))
        {
            let (_, command) = line.split_once(" -- ").unwrap();
            assert!(command.starts_with("/nodepulse"), "{document}: {line}");
            commands += 1;
        }
    }
    assert!(commands >= 5, "{commands}");
}

#[test]
fn examples_in_yaml_can_be_parsed() {
    let mut examples = 0;
    for (document, text) in documents() {
        for example in blocks(&text, "yaml") {
            let parsed: Result<Value, _> = serde_saphyr::from_str(example);
            assert!(parsed.is_ok(), "{document}: {example}: {parsed:?}");
            examples += 1;
        }
    }
    assert!(examples >= 5, "{examples}");
}

#[test]
fn the_badges_are_true() {
    let badges = text("../docs/badges.svg");
    let (_, title) = badges.split_once("<title>").unwrap();
    let (title, _) = title.split_once("</title>").unwrap();
    //  badge, file, parts of one of its lines
    let rows = [
        (
            "Linux 5.10+",
            "../docs/install.md",
            ["eBPF programs", "require Linux 5.10 "],
        ),
        (
            "Kubernetes 1.30+",
            "helm/nodepulse/Chart.yaml",
            ["kubeVersion", ">=1.30.0-0"],
        ),
        (
            "arch x86-64",
            "../docs/install.md",
            ["requires Linux", "on x86-64,"],
        ),
        (
            "memory 8 MiB",
            "../OVERHEAD.md",
            ["resident memory, MiB", "| 8.00 |"],
        ),
        (
            "license Apache-2.0",
            "../Cargo.toml",
            ["license", "\"Apache-2.0\""],
        ),
    ];
    assert!(title.split(", ").eq(rows.iter().map(|(badge, ..)| *badge)));
    for (badge, file, parts) in rows {
        let found = text(file)
            .lines()
            .any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(found, "{badge}: {file}");
    }
}
