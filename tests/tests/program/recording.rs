//! `nodepulse record` with the real daemon, and what it wrote replayed.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use nodepulse_tests::process::{Ended, Finished, Process, finished, program_of, run};
use nodepulse_tests::{SOON, eventually};
use tempfile::tempdir;

use super::text;

const HEAD: &str = "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\n";

/// A daemon without an API server, whose configuration is in `dir`.
async fn daemon(dir: &Path) -> Process {
    let config = dir.join("config.yaml");
    fs::write(&config, HEAD).unwrap();
    let config = text(&config);
    let flags = ["run", "--mode", "node", "--kernel-tier", "files"];
    let flags = flags.into_iter().chain(["--config", &config]);
    let daemon = Process::start(flags.chain(["--node-name", "worker-1"]));
    daemon.wait_for_line("eBPF programs attached", SOON).await;
    daemon
}

async fn replay(file: impl AsRef<OsStr>) -> Finished {
    run(&program_of("nodepulse-replay"), [file], "").await
}

fn record(daemon: &Process, file: &str, further: &[&str]) -> Process {
    let state = text(daemon.state());
    let flags = ["record", file, "--state-directory", &state];
    Process::start(flags.iter().chain(further))
}

/// Makes memory short by a new threshold, and waits until `file` has that.
async fn pressure(daemon: &Process, dir: &Path, file: &Path) {
    let short = format!("{HEAD}evictionHard: {{memory.available: 99%}}\n");
    fs::write(dir.join("config.yaml"), short).unwrap();
    daemon.hang_up();
    eventually("the change in the recording", || {
        let recorded = fs::read_to_string(file).unwrap_or_default();
        let changed = recorded.contains("PressureChanged");
        changed.then_some(()).ok_or(recorded.len())
    })
    .await;
}

#[tokio::test]
async fn a_recording_of_a_daemon_is_replayed_and_each_fault_of_it_is_named() {
    let dir = tempdir().unwrap();
    let daemon = daemon(dir.path()).await;
    let file = dir.path().join("a.jsonl");
    let recorder = record(&daemon, &text(&file), &[]);
    recorder.wait_for_line("stop with Ctrl-C", SOON).await;
    pressure(&daemon, dir.path(), &file).await;
    recorder.terminate();
    let ended = recorder.ends(SOON).await;
    assert_eq!(ended.code, Some(0), "{:?}", ended.stderr);

    let first = replay(&text(&file)).await;
    assert_eq!(first.code, Some(0), "{:?}", first.stderr);
    assert!(
        first
            .stdout
            .contains(" memory False -> True (ThresholdMet)\n"),
        "{}",
        first.stdout
    );
    assert!(
        first
            .stdout
            .ends_with(" steps replayed without a difference\n")
    );
    let again = replay(&text(&file)).await;
    assert_eq!(again.stdout, first.stdout);

    let recorded = fs::read_to_string(&file).unwrap();
    let changed = r#""reason":{"Threshold":{"#;
    let line = 1 + recorded
        .lines()
        .position(|line| line.contains(changed))
        .unwrap();
    let lines = recorded.lines().count();
    let format = "nodepulse.dev/recording/v1";
    let newer = recorded.replacen(format, "nodepulse.dev/recording/v2", 1);
    let other = recorded.replacen(std::env::consts::ARCH, "pdp11", 1);
    let whole = recorded.len();
    let rows = [
        (
            recorded[..whole - 2].to_owned(),
            format!("cut off at line {lines}"),
        ),
        (
            recorded.replacen(changed, r#""reason":{"Unresolved":{"#, 1),
            format!("line {line} "),
        ),
        (
            recorded.replacen("\"now\"", "\"mow\"", 1),
            "line 2 ".to_owned(),
        ),
        (newer, "replay it with that version".to_owned()),
        (other, "was made on pdp11".to_owned()),
        (String::new(), "is empty".to_owned()),
    ];
    for (bad, expected) in rows {
        fs::write(&file, bad).unwrap();
        let result = replay(&text(&file)).await;
        let error = result.stderr.join("\n");
        assert_eq!(result.code, Some(1), "{expected}: {error}");
        assert!(error.contains(&expected), "{expected}: {error}");
    }
}

#[tokio::test]
async fn a_recording_ends_with_the_daemon_and_with_the_next_one() {
    let dir = tempdir().unwrap();
    let daemon = daemon(dir.path()).await;
    let [first, second] = ["a", "b"].map(|name| text(&dir.path().join(name)));
    let recorder = record(&daemon, &first, &[]);
    recorder.wait_for_line("stop with Ctrl-C", SOON).await;
    let next = record(&daemon, &second, &[]);
    next.wait_for_line("stop with Ctrl-C", SOON).await;
    let is_over = |ended: Ended| {
        assert_eq!(ended.code, Some(1));
        let why = ended.stderr.join("\n");
        assert!(why.contains("the daemon ended the recording"), "{why}");
    };
    is_over(recorder.ends(SOON).await);
    let mut socket = UnixStream::connect(daemon.state().join("nodepulse.sock")).unwrap();
    socket
        .write_all(b"HEAD /v1/record HTTP/1.0\r\n\r\n")
        .unwrap();
    let refused = std::io::read_to_string(socket).unwrap();
    assert!(refused.starts_with("HTTP/1.0 405 "), "{refused}");
    pressure(&daemon, dir.path(), Path::new(&second)).await;
    daemon.terminate();
    is_over(next.ends(SOON).await);
    for file in [&first, &second] {
        assert_eq!(replay(file).await.code, Some(0), "{file}");
    }
}

#[tokio::test]
async fn a_file_that_exists_is_kept_and_a_recording_needs_a_daemon() {
    let dir = tempdir().unwrap();
    let daemon = daemon(dir.path()).await;
    let file = dir.path().join("kept");
    fs::write(&file, "mine").unwrap();
    let refused = record(&daemon, &text(&file), &["--duration", "1s"]);
    let ended = refused.ends(SOON).await;
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.join("\n").contains("cannot create"),
        "{:?}",
        ended.stderr
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");

    let timed = text(&dir.path().join("timed"));
    let recorder = record(&daemon, &timed, &["--duration", "1s"]);
    assert_eq!(recorder.ends(SOON).await.code, Some(0));
    assert_eq!(replay(&timed).await.code, Some(0));

    let state = text(daemon.state());
    let printed = [
        "record",
        "-",
        "--duration",
        "1s",
        "--state-directory",
        &state,
    ];
    let printed = finished(printed, "").await;
    assert_eq!(printed.code, Some(0), "{:?}", printed.stderr);
    fs::write(&timed, printed.stdout).unwrap();
    assert_eq!(replay(&timed).await.code, Some(0));

    let nowhere = text(&dir.path().join("nowhere"));
    let absent = dir.path().join("absent");
    let flags = ["record", &text(&absent), "--state-directory", &nowhere];
    let ended = finished(flags, "").await;
    assert_eq!(ended.code, Some(1));
    assert!(!absent.exists(), "an empty file is left");
    assert!(
        ended.stderr.join("\n").contains("no daemon is listening"),
        "{:?}",
        ended.stderr
    );
    let flags = ["record", &timed, "--duration", "soon"];
    assert_eq!(finished(flags, "").await.code, Some(2));
}

/// The recordings of real incidents, each with a line that its replay prints.
const EXAMPLES: [(&str, &str); 5] = [
    ("kills", " OOMKilled: A process in container "),
    ("outage", " OOMKilled: A process in container "),
    ("reload", " memory False -> True (ThresholdMet)"),
    ("slow-disk", " diskIO False -> True (SlowDisk)"),
    ("pid-bomb", " pids False -> True (ThresholdMet)"),
];

#[tokio::test]
async fn recorded_incidents_are_replayed_and_each_changed_byte_is_named() {
    let dir = tempdir().unwrap();
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings");
    for (name, expected) in EXAMPLES {
        let file = recordings.join(name).with_extension("jsonl");
        let first = replay(&file).await;
        assert_eq!(first.code, Some(0), "{name}: {:?}", first.stderr);
        assert!(first.stdout.contains(expected), "{name}: {}", first.stdout);
        assert_eq!(replay(&file).await.stdout, first.stdout, "{name}");

        let mut bytes = fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        let line = 1 + bytes[..middle]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        bytes[middle] ^= 1;
        let changed = dir.path().join(name);
        fs::write(&changed, bytes).unwrap();
        let ended = replay(&changed).await;
        let error = ended.stderr.join("\n");
        assert_eq!(ended.code, Some(1), "{name}: {error}");
        assert!(
            error.contains(&format!("line {line} of the recording was changed")),
            "{error}"
        );
    }
}

#[tokio::test]
async fn an_anonymous_recording_has_other_names_and_the_same_decisions() {
    let dir = tempdir().unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings/kills.jsonl");
    let original = replay(&file).await.stdout;
    let names: Vec<&str> = original
        .lines()
        .filter_map(|line| line.split_once(" pod ")?.1.split_once(" OOMKilled"))
        .flat_map(|(pod, _)| pod.split('/'))
        .collect();
    assert!(!names.is_empty(), "{original}");
    let to = dir.path().join("anonymous");
    let flags = ["--anonymize", &text(&to), &text(&file)].map(str::to_owned);
    let program = program_of("nodepulse-replay");
    let ended = run(&program, &flags, "").await;
    assert_eq!(ended.code, Some(0), "{:?}", ended.stderr);
    let anonymous = fs::read_to_string(&to).unwrap();
    let uid = "pod00000000-0000-4000";
    for name in names.into_iter().chain([uid]) {
        assert!(
            fs::read_to_string(&file).unwrap().contains(name) || name == uid,
            "{name}"
        );
        assert!(!anonymous.contains(name), "{name} is left");
    }
    let kinds = |printed: &str| -> Vec<String> {
        let lines = printed.lines();
        lines
            .map(|line| {
                line.split(' ')
                    .filter(|word| !word.contains('/'))
                    .nth(2)
                    .unwrap_or("")
                    .to_owned()
            })
            .collect()
    };
    assert_eq!(kinds(&replay(&to).await.stdout), kinds(&original));
    // An existing file is kept.
    assert_eq!(run(&program, &flags, "").await.code, Some(1));
}
