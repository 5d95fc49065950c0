//! Starts that wait for what the kernel or another program causes, and those that do not.

use std::fs;
use std::path::Path;

use nodepulse_tests::SOON;
use nodepulse_tests::api_server::{ApiServer, Identity};
use nodepulse_tests::http1::get;
use nodepulse_tests::process::{Process, node_mode, program};
use nodepulse_tests::view::View;
use tempfile::tempdir;

use super::text;

/// What keeps an agent from the API server at its start. Another program ends it.
struct Passing {
    name: &'static str,
    /// The user in the kubeconfig, which refers to files of the directory as `DIR`; without one,
    /// the kubeconfig does not exist yet.
    user: Option<&'static str>,
    /// A file that is written from the start on, with what it contains.
    from_the_start: Option<(&'static str, &'static str)>,
    /// The file whose creation ends it.
    end: (&'static str, &'static str),
    /// Part of the reason; empty if the agent waits for a program that has not ended.
    reason: &'static str,
}

const EXEC: &str =
    "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, args: [DIR/run]}";
const CREDENTIAL: &str = r#"{"status": {"token": "good"}}"#;

const PASSING: [Passing; 4] = [
    Passing {
        name: "no kubeconfig",
        user: None,
        from_the_start: None,
        end: ("unused", ""),
        reason: "kubeconfig",
    },
    Passing {
        name: "no token",
        user: Some("tokenFile: DIR/token"),
        from_the_start: None,
        end: ("token", "good"),
        reason: "No such file",
    },
    Passing {
        name: "a program that fails",
        user: Some(EXEC),
        from_the_start: Some(("run", "cat DIR/printed")),
        end: ("printed", CREDENTIAL),
        reason: "exit status: 1",
    },
    Passing {
        name: "a program that hangs",
        user: Some(EXEC),
        from_the_start: Some((
            "run",
            "until cat DIR/printed 2>/dev/null; do sleep 0.1; done",
        )),
        end: ("printed", CREDENTIAL),
        reason: "",
    },
];

#[tokio::test]
async fn what_keeps_an_agent_from_the_api_server_is_reported_and_waited_for() {
    for passing in PASSING {
        let name = passing.name;
        let dir = tempdir().unwrap();
        let in_dir = |words: &str| words.replace("DIR", &text(dir.path()));
        let api = ApiServer::start().await;
        api.allow_token("good", Identity::node("worker-1"));
        let written = dir.path().join("written");
        api.token_kubeconfig(&written, "good");
        let kubeconfig = dir.path().join("kubeconfig");
        let user = passing.user.map(in_dir);
        if let Some(user) = &user {
            let words = fs::read_to_string(&written).unwrap();
            fs::write(&kubeconfig, words.replace("token: good", user)).unwrap();
        }
        if let Some((file, words)) = passing.from_the_start {
            fs::write(dir.path().join(file), in_dir(words)).unwrap();
        }
        let further = [
            "--kubeconfig",
            &text(&kubeconfig),
            "--serve-address",
            "127.0.0.1:0",
        ];
        let further: Vec<_> = further
            .into_iter()
            .chain(["--kernel-tier", "files"])
            .collect();
        let agent = Process::start(node_mode(&further));
        let address = &agent.address().await;
        if !passing.reason.is_empty() {
            let line = agent.wait_for_line("cannot read the credentials;", SOON);
            let line = line.await;
            assert!(line.contains(passing.reason), "{name}: {line}");
        }
        assert_eq!(
            get(address, "/livez").await.unwrap().code,
            Some(200),
            "{name}"
        );
        let ready = get(address, "/readyz").await.unwrap();
        assert_eq!(ready.code, Some(503), "{name}: {ready:?}");
        assert!(ready.body.contains(passing.reason), "{name}: {ready:?}");
        let explained = Process::output(Some(&agent), &["explain"]).await;
        // Its lines are wrapped.
        let words: Vec<&str> = explained.stdout.split_whitespace().collect();
        assert!(
            words.join(" ").contains(passing.reason),
            "{name}: {explained:?}"
        );

        let (file, words) = passing.end;
        fs::write(dir.path().join(file), words).unwrap();
        if user.is_none() {
            fs::rename(&written, &kubeconfig).unwrap();
        }
        View::of(&api, "worker-1").settled(SOON).await;
        let lines = agent.lines_with("cannot read the credentials;");
        assert!(lines.len() <= 1, "{name}: {lines:#?}");
        agent.terminate();
        let ended = agent.ends(SOON).await;
        assert_eq!(ended.code, Some(0), "{name}: {ended:?}");
    }
}

#[tokio::test]
async fn a_single_run_does_not_wait_and_names_every_cause() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let kubeconfig = dir.path().join("kubeconfig");
    api.token_kubeconfig(&kubeconfig, "TOKEN");
    let words = fs::read_to_string(&kubeconfig).unwrap();
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/false}";
    fs::write(&kubeconfig, words.replace("token: TOKEN", exec)).unwrap();
    let further = [
        "--kubeconfig",
        &text(&kubeconfig),
        "--once",
        "--kernel-tier",
        "files",
    ];
    let ended = Process::start(node_mode(&further)).ends(SOON).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let line = ended.stderr.last().unwrap();
    for part in ["users[].user.exec", "/bin/false", "exit status: 1"] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[tokio::test]
async fn a_program_that_is_named_only_later_is_run_by_the_next_start() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    api.allow_token("good", Identity::node("worker-1"));
    let kubeconfig = dir.path().join("kubeconfig");
    let further = ["--kubeconfig", &text(&kubeconfig), "--kernel-tier", "files"];
    let first = Process::start(node_mode(&further));
    first
        .wait_for_line("cannot read the credentials;", SOON)
        .await;
    let written = dir.path().join("written");
    api.token_kubeconfig(&written, "TOKEN");
    fs::write(dir.path().join("printed"), CREDENTIAL).unwrap();
    fs::write(
        dir.path().join("run"),
        format!("cat {}/printed", text(dir.path())),
    )
    .unwrap();
    let exec = EXEC.replace("DIR", &text(dir.path()));
    let words = fs::read_to_string(&written).unwrap();
    fs::write(&written, words.replace("token: TOKEN", &exec)).unwrap();
    fs::rename(&written, &kubeconfig).unwrap();
    let ended = first.ends(SOON).await;
    // Not 2, after which a service manager would not start it again.
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let second = Process::start(node_mode(&further));
    View::of(&api, "worker-1").settled(SOON).await;
    second.terminate();
    assert_eq!(second.ends(SOON).await.code, Some(0));
}

/// Exit code 2 would keep a service manager from starting it again.
#[tokio::test]
async fn a_limit_of_the_kernel_is_not_taken_for_an_invalid_configuration() {
    let dir = tempdir().unwrap();
    let config = dir.path().join("config.yaml");
    fs::write(
        &config,
        "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\n",
    )
    .unwrap();
    // One for the dynamic loader.
    let script = format!("ulimit -n 4; exec {} \"$@\"", program().display());
    let run = ["-c", &script, "sh", "run", "--config", &text(&config)];
    let ended = Process::start_program(Path::new("/bin/sh"), run)
        .ends(SOON)
        .await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr[0].contains("Too many open files"), "{ended:?}");
}

/// 251 were seen, of a shell that had left them open.
#[tokio::test]
async fn inherited_descriptors_are_closed() {
    let script = format!(
        "for n in 7 200; do eval \"exec $n</dev/null\"; done; exec {} \"$@\"",
        program().display()
    );
    let run = [
        "-c",
        &script,
        "bash",
        "run",
        "--node-name",
        "worker-1",
        "--kernel-tier",
        "files",
    ];
    let agent = Process::start_program(Path::new("/bin/bash"), run);
    agent.wait_for_line("started", SOON).await;
    let fds = fs::read_dir(format!("/proc/{}/fd", agent.id())).unwrap();
    let inherited = |path: &Path| fs::read_link(path).is_ok_and(|to| to == Path::new("/dev/null"));
    let fds = fds
        .map(|fd| fd.unwrap().path())
        .filter(|path| inherited(path));
    let names = fds.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned());
    let mut open: Vec<u32> = names.map(|name| name.parse().unwrap()).collect();
    open.sort_unstable();
    assert_eq!(open, [0, 1], "standard input and output of the test");
}

#[tokio::test]
async fn a_second_agent_waits_until_the_first_has_ended() {
    let dir = tempdir().unwrap();
    let state = text(&dir.path().join("state"));
    let mut run = vec!["run", "--node-name", "worker-1", "--kernel-tier", "files"];
    run.extend([
        "--serve-address",
        "127.0.0.1:0",
        "--state-directory",
        &state,
    ]);
    let first = Process::start(&run);
    first.wait_for_line("started", SOON).await;
    let single = Process::start(run.iter().chain(&["--once"]))
        .ends(SOON)
        .await;
    assert_eq!(single.code, Some(1), "{single:?}");
    let config = dir.path().join("config.yaml");
    let head = "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\n";
    fs::write(&config, head).unwrap();
    let config = text(&config);
    let second = Process::start(run.iter().copied().chain(["--config", &config]));
    let waits = second.wait_for_line("the agent waits", SOON).await;
    let pid = format!("PID {}", first.id());
    for line in [single.stderr.last().unwrap(), &waits] {
        for word in ["another nodepulse", &state, "--state-directory", &pid] {
            assert!(line.contains(word), "{word}: {line}");
        }
    }
    // It is read again when the agent has started.
    fs::write(&config, "maxPods: [").unwrap();
    second.hang_up();
    let pages = [("/livez", 200), ("/readyz", 503), ("/metrics", 503)];
    for (page, code) in pages {
        let answer = get(&second.address().await, page).await.unwrap();
        assert_eq!(answer.code, Some(code), "{page}: {answer:?}");
    }
    first.terminate();
    assert_eq!(first.ends(SOON).await.code, Some(0));
    second.wait_for_line("started", SOON).await;
    second.wait_for_line("configuration refused", SOON).await;
    second.terminate();
    assert_eq!(second.ends(SOON).await.code, Some(0));
}
