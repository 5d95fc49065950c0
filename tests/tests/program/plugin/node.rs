//! `kubectl nodepulse NODE`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use nodepulse_core::checked_line;
use nodepulse_tests::process::Process;
use serde_json::json;

use super::*;

#[tokio::test]
async fn a_node_is_shown_with_messages_events_and_agent() {
    let cluster = Cluster::reported().await;
    let text = cluster.run(&["worker-1"]).await.good();
    assert!(
        text.contains("Agent:     no pod in the agents' namespace on this node\n"),
        "{text}"
    );
    assert!(text.contains("  PIDsLow=True (LowPIDs) for "), "{text}");
    assert!(text.contains("pid.available"), "the message: {text}");
    assert!(
        text.contains("  MemoryLow=False (MemoryAvailable)"),
        "{text}"
    );
    assert!(text.contains("Events of nodepulse\n  LowPIDs "), "{text}");
    assert!(!text.contains("MemoryPressure"), "the kubelet's: {text}");
    assert!(!text.contains("Explanation"), "{text}");
}

/// A `kubectl` that runs the command of `kubectl exec` on this machine, for the daemon with this
/// state directory.
fn local_kubectl(dir: &Path, state: &Path) -> String {
    let agent = program();
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> {shown}/called\n\
         while [ \"$1\" != /nodepulse ]; do shift; done\nshift\n\
         export NODEPULSE_STATE_DIRECTORY={} NODEPULSE_HISTORY_DIRECTORY={shown}\n\
         {} \"$@\" && exit\n\
         echo \"command terminated with exit code $?\" >&2\nexit 1\n",
        state.display(),
        agent.display(),
        shown = dir.display()
    );
    let path = dir.join("kubectl");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:/usr/bin:/bin", dir.display())
}

/// Records the end of a boot in the history of this directory.
fn record_boot(dir: &Path) {
    let incident = json!({
        "apiVersion": "nodepulse.dev/incident/v1",
        "id": "00000000-0000-0000-0000-000000000007-0", "revision": 1, "settled": true,
        "time": "2026-11-27T20:00:36.210334Z", "object": {}, "reason": "UncleanReboot",
        "message": "The last boot ended by a kernel panic: \u{1b}Oops", "kind": "Boot",
        "facts": {
            "boot": "0", "end": "KernelPanic", "certainty": "certain", "evidence": [], "minutes": [],
        },
    });
    let line = checked_line::line(&incident).unwrap();
    fs::write(dir.join("incidents-0000000001.jsonl"), line).unwrap();
}

#[tokio::test]
async fn the_agents_explanation_and_the_last_boot_are_read_in_its_pod() {
    let cluster = Cluster::new().await;
    cluster.api.put_object(made_up::node("worker-1"));
    cluster.api.put_object(agent_pod("worker-1", &running()));
    let kubeconfig = cluster.kubeconfig();
    let file = kubeconfig.display().to_string();
    let daemon = Process::start([
        "run",
        "--mode=companion",
        "--node-name=worker-1",
        "--kernel-tier=files",
        "--kubeconfig",
        &file,
    ]);
    let is_reported = |api: &ApiServer| {
        let node = api.object("/api/v1/nodes/worker-1")?;
        node.to_string().contains("PIDsLow").then_some(())
    };
    cluster
        .api
        .wait_for(SOON, "the first status", is_reported)
        .await;
    let path = local_kubectl(cluster.dir.path(), daemon.state());
    let args = ["worker-1", "--kubeconfig", &file];
    let text = run(&args, &kubeconfig, &[("PATH", &path)]).await.good();
    assert!(
        text.contains("Last boot\n    not known: nodepulse: "),
        "{text}"
    );
    record_boot(cluster.dir.path());
    let text = run(&args, &kubeconfig, &[("PATH", &path)]).await.good();
    assert!(
        text.contains("version 0.1.0, Running, 2 restarts"),
        "{text}"
    );
    let (_, explained) = text.split_once("Explanation of the agent\n").unwrap();
    assert!(explained.contains("PIDsLow is "), "{text}");
    let boot = " ago: The last boot ended by a kernel panic: \\u{1b}Oops\n";
    assert!(text.contains("Last boot\n    UncleanReboot ") && text.contains(boot));
    let called = fs::read_to_string(cluster.dir.path().join("called")).unwrap();
    let called: BTreeSet<_> = called.lines().map(str::to_owned).collect();
    let expected = ["explain", "history --boot=-1"].map(|command| {
        format!(
            "--kubeconfig {file} exec --namespace=nodepulse pod/nodepulse-worker-1 \
             --container=nodepulse -- /nodepulse {command} --output=json"
        )
    });
    assert_eq!(called, expected.into());
}

#[tokio::test]
async fn without_permission_to_run_commands_the_rest_is_shown() {
    let cluster = Cluster::reported().await;
    cluster.api.put_object(agent_pod("worker-1", &running()));
    let kubectl = cluster.dir.path().join("kubectl");
    let script =
        "#!/bin/sh\necho 'Error from server (Forbidden): \x1b[2J pods is forbidden' >&2\nexit 1\n";
    fs::write(&kubectl, script).unwrap();
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/bin:/usr/bin", cluster.dir.path().display());
    let printed = run(&["worker-1"], &cluster.kubeconfig(), &[("PATH", &path)]).await;
    let text = printed.good();
    let why = "not available: Error from server (Forbidden): \\u{1b}[2J pods is forbidden";
    assert!(
        text.contains(why) && text.contains("PIDsLow=True"),
        "{text}"
    );

    let absent = run(&["worker-1"], &cluster.kubeconfig(), &[("PATH", "/absent")]).await;
    assert!(
        absent
            .good()
            .contains("not available: kubectl is not in PATH")
    );
}

#[tokio::test]
async fn the_live_view_is_kubectl_in_the_pod_of_the_node() {
    let cluster = Cluster::new().await;
    cluster.api.put_object(agent_pod("worker-1", &running()));
    let dir = tempfile::tempdir().unwrap();
    let kubectl = dir.path().join("kubectl");
    fs::write(&kubectl, "#!/bin/sh\necho \"$@\"\nexit 3\n").unwrap();
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", dir.path().display());
    let kubeconfig = cluster.kubeconfig();
    let printed = run(&["top", "worker-1"], &kubeconfig, &[("PATH", &path)]).await;
    let expected = "exec --namespace=nodepulse pod/nodepulse-worker-1 --container=nodepulse -- \
                    /nodepulse-top --once\n";
    assert!(printed.stdout.ends_with(expected), "{}", printed.stdout);
    assert_eq!(printed.code, Some(3));
    let line = run(&["top", "worker-2"], &kubeconfig, &[]).await.failed(1);
    assert!(
        line.contains("a running agent on node worker-2 not found"),
        "{line}"
    );
}
