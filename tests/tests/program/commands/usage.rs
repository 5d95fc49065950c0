//! Help, versions, typos and exit codes.

use std::fs;
use std::process::Stdio;

use nodepulse_tests::process::finished;
use tempfile::tempdir;

use super::{HEAD, text};

#[tokio::test]
async fn a_typo_is_answered_with_what_was_probably_meant() {
    let rows: [(&[&str], &str); 18] = [
        (
            &["run", "--kubeconifg", "x"],
            "unknown flag --kubeconifg; did you mean --kubeconfig?",
        ),
        (
            &["run", "--kubeconifg=x"],
            "unknown flag --kubeconifg; did you mean --kubeconfig?",
        ),
        (
            &["run", "-kubeconfig", "x"],
            "unknown flag -kubeconfig; did you mean --kubeconfig?",
        ),
        (
            &["run", "--max_pods", "3"],
            "unknown flag --max_pods; did you mean --max-pods?",
        ),
        (
            &["explain", "--kubeconfig", "x"],
            "unknown flag --kubeconfig; `nodepulse explain --help` lists the flags",
        ),
        (&["rum"], "unknown command \"rum\"; did you mean run?"),
        (
            &["kubelet"],
            "unknown command \"kubelet\"; the commands are run, check, status, explain, history, provoke, record, \
             config, cleanup, completion, man, version, help",
        ),
        (
            &["config", "valdate"],
            "unknown command \"valdate\"; did you mean validate?",
        ),
        (
            &["run", "--mode", "compnaion"],
            "--mode: \"compnaion\" is not one of companion, node; did you mean companion?",
        ),
        (
            &["run", "--mode", "x"],
            "--mode: \"x\" is not one of companion, node",
        ),
        (
            &["explain", "memorylow"],
            "TYPE: \"memorylow\" is not one of MemoryLow, PIDsLow, DiskSpaceLow, DiskIOPressure, \
             DiskFailing, FrequentOOMKills, MemoryStallPressure, DiskStallPressure, \
             PodsMemoryStallPressure, PodsDiskStallPressure, MemoryPressure, DiskPressure, \
             PIDPressure, Ready; did you mean MemoryLow?",
        ),
        (
            &["man", "chekc"],
            "COMMAND: \"chekc\" is not one of run, check, status, explain, history, provoke, record, \
             config, config-print, config-validate, config-defaults, cleanup, completion, man, version; did you mean check?",
        ),
        (
            &["completion"],
            "SHELL is missing; example: nodepulse completion bash",
        ),
        (
            &["run", "--register-node", "true"],
            "unexpected argument \"true\"; did you mean --register-node=true?",
        ),
        (
            &["status", "now"],
            "unexpected argument \"now\"; `nodepulse status --help` lists the flags",
        ),
        (
            &["cleanup", "--all-nodes", "--selector", ""],
            "--selector requires a value; example: --selector LABELS",
        ),
        (
            &["check", "-o"],
            "--output requires a value; example: --output text",
        ),
        (
            &["run", "--mode", "node", "--mode", "node"],
            "--mode is repeated; use it once",
        ),
    ];
    for (args, expected) in rows {
        let refused = finished(args, "").await;
        let line = format!("nodepulse: {expected}");
        assert_eq!(
            (refused.code, refused.stderr.as_slice()),
            (Some(2), [line].as_slice()),
            "{args:?}"
        );
        assert_eq!(refused.stdout, "", "{args:?}");
    }
}

#[tokio::test]
async fn short_help_is_short_and_long_help_is_complete() {
    let commands = [
        "run",
        "check",
        "status",
        "explain",
        "config",
        "cleanup",
        "completion",
        "man",
        "version",
    ];
    for command in commands.map(Some).into_iter().chain([None]) {
        let help = |flag: &'static str| finished(command.into_iter().chain([flag]), "");
        let (short, long) = (help("-h").await, help("--help").await);
        assert_eq!((short.code, long.code), (Some(0), Some(0)), "{command:?}");
        let lines: Vec<&str> = short.stdout.lines().collect();
        assert!(lines.len() <= 40, "{command:?}: {}", short.stdout);
        for line in lines.iter().copied().chain(long.stdout.lines()) {
            // A word can be longer than a line.
            let is_long = 80 < line.chars().count() && line.trim().contains(' ');
            assert!(!is_long, "{command:?}: {line:?}");
        }
        for heading in ["Options:", "EXIT STATUS:", "EXAMPLES:", "SEE ALSO:"] {
            let found = long.stdout.lines().any(|line| line == heading);
            assert!(found, "{command:?}: {heading}");
        }
    }
    let run = finished(["run", "--help"], "").await.stdout;
    for flag in [
        "--eviction-soft-grace-period",
        "--reserved-system-cpus",
        "--dry-run",
    ] {
        assert!(run.contains(flag), "{flag}");
    }
    let check = finished(["check", "--help"], "").await.stdout;
    for (flag, shown) in [
        ("--kernel-tier", true),
        ("--take-over", false),
        ("--max-pods", false),
    ] {
        assert_eq!(check.contains(flag), shown, "{flag}");
    }
    let print = finished(["config", "print", "--help"], "").await.stdout;
    assert!(print.contains("--max-pods <NUMBER>"), "{print}");
    assert!(finished(["help", "check"], "").await.stdout == check);
}

#[tokio::test]
async fn no_text_names_credentials_of_a_kubelet() {
    for command in ["run", "check", "cleanup"] {
        for args in [vec![command, "--help"], vec!["man", command]] {
            let page = finished(args, "").await.stdout;
            for path in ["kubelet.conf", "admin.conf", "/etc/kubernetes"] {
                assert!(!page.contains(path), "{command}: {path}");
            }
        }
    }
}

#[tokio::test]
async fn every_command_ends_with_the_documented_code() {
    let dir = tempdir().unwrap();
    let state = text(dir.path());
    let config = dir.path().join("config.yaml");
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(&config, format!("{HEAD}hostRoot: {}\n", text(&root))).unwrap();
    let config = text(&config);
    let unreachable = dir.path().join("kubeconfig");
    fs::write(
        &unreachable,
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
         contexts: [{name: a, context: {cluster: a, user: a}}]\n\
         clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: a}]\n",
    )
    .unwrap();
    let unreachable = text(&unreachable);
    let socket = text(&dir.path().join("nodepulse.sock"));
    fs::write(&socket, "no socket").unwrap();
    let rows: [(&[&str], i32); 31] = [
        (&[], 2),
        (&["-h"], 0),
        (&["--help"], 0),
        (&["--version"], 0),
        (&["help"], 0),
        (&["help", "run"], 0),
        (&["help", "x"], 2),
        (&["version"], 0),
        (&["version", "-o", "xml"], 2),
        (&["man"], 0),
        (&["man", "config"], 0),
        (&["man", "x"], 2),
        (&["completion", "fish"], 0),
        (&["completion", "csh"], 2),
        (&["config"], 2),
        (&["config", "print"], 0),
        (&["config", "defaults", "--mode", "node"], 0),
        (&["config", "validate", "--config", &config], 0),
        (&["config", "validate", "--max-pods", "many"], 2),
        (&["check", "--kernel-tier", "files"], 0),
        (&["check", "--kernel-tier", "file"], 2),
        (&["check", "--kernel-tier", "files", "--config", &config], 3),
        (
            &[
                "check",
                "--kernel-tier",
                "files",
                "--kubeconfig",
                &unreachable,
            ],
            3,
        ),
        (&["status", "--state-directory", "/nonexistent"], 0),
        (&["status", "--state-directory", "x"], 2),
        (&["explain", "--state-directory", "/nonexistent"], 1),
        (&["explain", "--state-directory", &state], 1),
        (&["explain", "Memory"], 2),
        (&["cleanup"], 2),
        (
            &[
                "cleanup",
                "--kubeconfig",
                &unreachable,
                "--state-directory",
                "/nonexistent",
            ],
            1,
        ),
        (&["run", "--mode", "both"], 2),
    ];
    for (args, expected) in rows {
        let ended = finished(args, "").await;
        assert_eq!(ended.code, Some(expected), "{args:?}: {ended:?}");
        let failed = expected == 1 || expected == 2;
        assert_eq!(failed, !ended.stderr.is_empty(), "{args:?}: {ended:?}");
    }
    let run = [
        "run",
        "--once",
        "--mode",
        "node",
        "--kernel-tier",
        "files",
        "--serve-address",
        "off",
        "--take-over",
        "--node-ip",
        "0.0.0.0",
        "--state-directory",
        &state,
    ];
    let once = finished(run.iter().chain(&["--dry-run"]), "").await;
    assert_eq!(once.code, Some(0), "{once:?}");
}

/// `nodepulse check | head -1`.
#[tokio::test]
async fn a_reader_that_closes_the_pipe_is_no_failure() {
    let program = nodepulse_tests::process::program();
    let commands: [&[&str]; 5] = [
        &["check", "--kernel-tier", "files"],
        &["run", "--help"],
        &["man", "run"],
        &["config", "defaults"],
        &["version"],
    ];
    for args in commands {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let started = tokio::process::Command::new(&program)
            .args(args)
            .env_clear()
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let ended = started.wait_with_output().await.unwrap();
        assert_eq!(ended.status.code(), Some(0), "{args:?}: {ended:?}");
        assert_eq!(ended.stderr, b"", "{args:?}: {ended:?}");
    }
}
