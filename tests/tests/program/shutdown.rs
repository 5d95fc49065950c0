//! The end, at every stage: the Node remains as it is, for the next agent.

use std::path::Path;
use std::time::Duration;

use nodepulse_tests::SOON;
use nodepulse_tests::api_server::{ApiServer, Effect, Fault};
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
