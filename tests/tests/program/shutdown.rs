//! The end, at every stage: the Node remains as it is, for the next agent.

use std::path::Path;
use std::time::Duration;

use nodepulse_core::record::ScopeSource;

use nodepulse_tests::SOON;
use nodepulse_tests::api_server::{ApiServer, Effect, Fault};
use nodepulse_tests::node::{Kill, Limit, Node, in_memory, pass};
use nodepulse_tests::process::{Process, node_mode};
use nodepulse_tests::view::{EVENTS, NODES, View};
use tempfile::tempdir;

/// Queued Events get two seconds; nothing else takes time.
const LIMIT: Duration = Duration::from_secs(3);

fn run(kubeconfig: &Path) -> Process {
    let kubeconfig = kubeconfig.display().to_string();
    let args = node_mode(&["--kubeconfig", &kubeconfig, "--kernel-tier", "files"]);
    Process::start(args)
}

/// Ends it, well within the limit.
async fn stopped(agent: Process, name: &str) {
    agent.terminate();
    let ended = agent.ends(LIMIT).await;
    assert_eq!(ended.code, Some(0), "{name}: {ended:?}");
    let last = ended.stderr.last().unwrap();
    assert!(last.contains("stopped"), "{name}: {last}");
}

#[tokio::test]
async fn asked_to_stop_before_it_is_registered() {
    let post = |effect| Some(Fault::on("POST", NODES, effect).always());
    let rows = [
        ("the server is down", None),
        ("the server fails", post(Effect::Status(500))),
        ("the server is silent", post(Effect::Hang)),
    ];
    for (name, fault) in rows {
        let dir = tempdir().unwrap();
        let api = ApiServer::start().await;
        let agent = run(&api.node_kubeconfig(dir.path(), "worker-1"));
        match fault {
            None => {
                api.refuse().await;
                agent.wait_for_line("started", SOON).await;
            }
            Some(fault) => {
                api.faults().push(fault);
                let tried = |api: &ApiServer| {
                    let creates = View::of(api, "worker-1").creates();
                    (!creates.is_empty()).then_some(())
                };
                api.wait_for(SOON, "a try to register", tried).await;
            }
        }
        stopped(agent, name).await;
    }
}

#[tokio::test]
async fn asked_to_stop_it_does_not_change_lease_and_ready() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let kubeconfig = api.node_kubeconfig(dir.path(), "worker-1");
    let view = View::of(&api, "worker-1");
    for name in ["new", "adopted"] {
        let agent = run(&kubeconfig);
        view.settled(SOON).await;
        view.becomes("Ready", "True", SOON).await;
        agent.wait_for_line("node ", SOON).await;
        let (node, lease) = (view.node(), view.lease());
        let (patches, renewals) = (view.patches().len(), view.renewals().len());
        agent.terminate();
        let ended = agent.ends(LIMIT).await;
        assert_eq!(ended.code, Some(0), "{name}: {ended:?}");
        let waited = |line: &&String| line.contains("could not be sent");
        assert_eq!(
            ended.stderr.iter().find(waited),
            None,
            "{name}: nothing was queued"
        );
        // It may have been about to write either; what it does not write is an end.
        let grown = (
            view.patches().len() - patches,
            view.renewals().len() - renewals,
        );
        assert!(grown.0 <= 1 && grown.1 <= 1, "{name}: {grown:?} more");
        let ready = |node: Option<serde_json::Value>| {
            let conditions = node.unwrap()["status"]["conditions"].clone();
            let all = conditions.as_array().unwrap().clone();
            let ready = all.into_iter().find(|c| c["type"] == "Ready").unwrap();
            (ready["status"].clone(), ready["lastTransitionTime"].clone())
        };
        assert_eq!(ready(view.node()), ready(node), "{name}");
        let holder =
            |lease: Option<serde_json::Value>| lease.unwrap()["spec"]["holderIdentity"].clone();
        assert_eq!(holder(view.lease()), holder(lease), "{name}");
        let deletes = api.requests_where(|request| request.method == "DELETE");
        assert_eq!(deletes, [], "{name}");
    }
}

#[tokio::test]
async fn an_unresponsive_server_does_not_delay_the_stop() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let agent = run(&api.node_kubeconfig(dir.path(), "worker-1"));
    View::of(&api, "worker-1").settled(SOON).await;
    api.faults()
        .push(Fault::on("POST", EVENTS, Effect::Hang).always());
    api.freeze_all();
    stopped(agent, "frozen").await;
}

#[tokio::test]
async fn after_sigkill_the_lease_remains_and_the_next_run_continues() {
    let dir = tempdir().unwrap();
    let api = ApiServer::start().await;
    let kubeconfig = api.node_kubeconfig(dir.path(), "worker-1");
    let view = View::of(&api, "worker-1");
    let agent = run(&kubeconfig);
    view.settled(SOON).await;
    agent.kill();
    assert_eq!(agent.ends(LIMIT).await.code, None);
    let uid = view.lease().unwrap()["metadata"]["uid"].clone();
    let renewed = view.renewals().len();

    let agent = run(&kubeconfig);
    let again = |_: &ApiServer| (renewed < view.renewals().len()).then_some(());
    api.wait_for(SOON, "a renewal of the lease that was there", again)
        .await;
    assert_eq!(view.lease().unwrap()["metadata"]["uid"], uid);
    stopped(agent, "second").await;
}

#[tokio::test(start_paused = true)]
async fn asked_to_stop_during_a_storm_of_kills_it_reports_those_that_the_kernel_has_reported() {
    const KILLS: u32 = 60;

    let api = in_memory();
    let node = Node::named("worker-1").start(&api);
    View::of(&api, "worker-1").settled(SOON).await;
    pass(Duration::from_secs(1)).await;
    for pid in 1..=KILLS {
        let kill = Kill {
            victim: ("java", pid),
            cgroup: "kubepods/pod1",
            limit: Limit::Of("kubepods/pod1"),
            source: ScopeSource::Exact,
        };
        node.kernel().oom_kill(kill).await;
    }
    // None of that was read yet: no other task has run.
    node.stop().await.unwrap();
    let kills = api.list("/api/v1/events").into_iter();
    let kills = kills.filter(|event| event["reason"] == "OOMKilled");
    let reported: u64 = kills.filter_map(|event| event["count"].as_u64()).sum();
    assert_eq!(reported, u64::from(KILLS));
}
