//! Hostile names and load of a tenant: every message to an operator remains one
//! short line, and the Lease is renewed.
//!
//! Real processes need root.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nodepulse_core::record::ScopeSource::Inferred;

use agent_common::OomKill;
use nodepulse_tests::api_server::ApiServer;
use nodepulse_tests::fuzzing::safe;
use nodepulse_tests::host_root::MadeUpHost;
use nodepulse_tests::node::{Kill, Limit, Node, in_memory};
use nodepulse_tests::process::{Process, node_mode};
use nodepulse_tests::provoke::cgroup::{CgroupTree, Pen};
use nodepulse_tests::receiver::Receiver;
use nodepulse_tests::view::{EVENTS, View};
use nodepulse_tests::{SOON, eventually};
use serde_json::Value;

use super::provoke;

const MIB: u64 = 1 << 20;
/// Maximum size of an Event's message in bytes, which the API requires of newer forms.
const LONGEST: usize = 1024;

/// Repeats a text up to the maximum length of a directory's name.
fn long(of: &str) -> Vec<u8> {
    let mut name = of.repeat(255);
    while name.len() > 255 {
        name.pop();
    }
    name.into_bytes()
}

/// Returns names that the kernel accepts for a cgroup. It refuses a newline there since 3.16.
fn cgroups() -> [Vec<u8>; 5] {
    [
        b"esc\x1b]0;owned\x07\x1b[2J".to_vec(),
        b"\xff\xfe\x80 \xc3".to_vec(),
        "a\u{202e}b\u{2028}c\u{9b}31m".as_bytes().to_vec(),
        long("\u{1f4a9}"),
        long("\r"),
    ]
}

/// Returns the Event about the process with this pid.
fn about(api: &ApiServer, pid: u32) -> Option<Value> {
    let words = format!("rocess {pid} (");
    let mut events = api.list(EVENTS).into_iter();
    events.find(|event| {
        event["message"]
            .as_str()
            .is_some_and(|m| m.contains(&words))
    })
}

fn is_harmless(event: &Value) -> String {
    let message = event["message"].as_str().unwrap();
    safe(message);
    assert!(message.len() <= LONGEST, "{} bytes", message.len());
    message.to_owned()
}

fn all_safe(value: &Value) {
    match value {
        Value::String(text) => safe(text),
        Value::Array(values) => values.iter().for_each(all_safe),
        Value::Object(members) => members.values().for_each(all_safe),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_is_one_short_line_whatever_the_names_of_a_cgroup_and_its_process() {
    let (api, host) = (in_memory(), Arc::new(MadeUpHost::calm()));
    let top = host.path().join("sys/fs/cgroup");
    let mut names = cgroups().to_vec();
    names.push(b"new\nline".to_vec());
    let deep = |name: &Vec<u8>| vec![OsString::from_vec(name.clone()); 9].iter().collect();
    let paths: Vec<std::path::PathBuf> = names.iter().map(deep).collect();
    for path in &paths {
        fs::create_dir_all(top.join(path)).unwrap();
    }
    let node = Node::named("worker-1").host(Arc::clone(&host)).start(&api);
    let view = View::of(&api, "worker-1");
    view.settled(SOON).await;
    let comm = *b"\x1b[31m\nroot:\xff\xf0\x9f\0\0";
    let kills = names.iter().zip(paths.iter().map(Some));
    let removed = names.iter().map(|name| (name, None));
    for (pid, (name, path)) in (5000..).zip(kills.chain(removed)) {
        let kill = Kill {
            victim: ("", pid),
            cgroup: "removed",
            limit: Limit::Machine,
            source: Inferred,
        };
        let limited = |record: &mut OomKill| {
            record.scope = agent_common::event::SCOPE_MEMCG;
            record.comm = comm;
            record.trigger_comm = comm;
            for field in [
                &mut record.leaf,
                &mut record.parent,
                &mut record.grandparent,
            ] {
                field
                    .iter_mut()
                    .zip(name)
                    .for_each(|(to, from)| *to = *from);
            }
            if let Some(path) = path {
                record.cg_memory = fs::metadata(top.join(path)).unwrap().ino();
                record.cg_limiting = record.cg_memory;
            }
        };
        node.kernel().oom_kill_with(kill, limited).await;
        let found = api.wait_for(SOON * 60, "the event", |api| about(api, pid));
        let message = is_harmless(&found.await);
        assert!(message.contains("\\u{1b}[31m\\nroot:\\xff"), "{message}");
        // Longer than the walk of two seconds before.
        tokio::time::sleep(Duration::from_mins(5)).await;
    }
    node.stop().await.unwrap();
}

/// A renewal per second, and a patch every two.
const OFTEN: &str = "apiVersion: nodepulse.dev/v1alpha1
kind: NodepulseConfiguration
nodeLeaseDurationSeconds: 4
nodeStatusUpdateFrequency: 1s
nodeStatusReportFrequency: 2s
";

fn start(api: &ApiServer, dir: &Path, further: &[&str]) -> Process {
    let config = dir.join("config.yaml");
    fs::write(&config, OFTEN).unwrap();
    let kubeconfig = api.node_kubeconfig(dir, "worker-1").display().to_string();
    let config = config.display().to_string();
    let files = ["--config", &config, "--kubeconfig", &kubeconfig];
    Process::start(node_mode(&[&files[..], further].concat()))
}

#[tokio::test]
async fn a_real_kill_in_a_cgroup_of_any_name_is_one_short_line() {
    let api = ApiServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let collector = Receiver::start(200, None).await.unwrap();
    let webhook = Receiver::start(200, None).await.unwrap();
    let receivers = [&collector, &webhook];
    let [logs, events] = receivers.map(|one| format!("http://127.0.0.1:{}", one.port));
    let sinks = ["--sinks-otlp-endpoint", &logs, "--sinks-webhooks", &events];
    let agent = start(&api, dir.path(), &sinks);
    View::of(&api, "worker-1").settled(SOON).await;
    let mut tree = CgroupTree::new(&format!("nodepulse-hostile-{}", std::process::id())).unwrap();
    let refused = tree.add("new\nline").unwrap_err();
    println!("a newline in the name of a cgroup: {refused}");

    let comm = OsStr::from_bytes(b"\x1b[31m\nroot:\xff\xf0\x9f");
    for name in cgroups() {
        let name = OsStr::from_bytes(&name);
        tree.add(name).unwrap();
        tree.limit(name, 16 * MIB).unwrap();
        let eaten = provoke().eat_as(comm, &tree.dir(name), 128 * MIB);
        let (pid, _) = eaten.unwrap();
        let event = api.wait_for(SOON, "the event", |api| about(api, pid)).await;
        let message = is_harmless(&event);
        println!("{message}");
        assert!(message.contains("(\"\\u{1b}[31m\\nroot:\\xff"), "{message}");
        let line = agent
            .wait_for_line(&format!("pid={pid} victim="), SOON)
            .await;
        assert!(line.contains("root:"), "{line}");
    }
    for receiver in receivers {
        eventually("the last revision of each kill", || {
            let settled = receiver.accepted().into_iter().filter(|one| one.is_settled);
            let settled = settled.filter(|one| one.kind == "OOMKill").count();
            (cgroups().len() <= settled).then_some(()).ok_or(settled)
        })
        .await;
        for received in receiver.received() {
            all_safe(&received.body);
            let text = received.body.to_string();
            assert!(text.contains(r"\\u{1b}[31m\\nroot:\\xff"), "{text}");
        }
    }
    agent.terminate();
    for line in agent.ends(SOON).await.stderr {
        safe(&line);
    }
}

/// Creates and removes a thousand cgroups, and more until it is stopped. Returns their number.
fn churn(dir: std::path::PathBuf, stop: Arc<AtomicBool>) -> thread::JoinHandle<u32> {
    thread::spawn(move || {
        let mut made = 0;
        while made < 1000 || !stop.load(Ordering::Relaxed) {
            let cgroup = dir.join(format!("pod{made}"));
            fs::create_dir(&cgroup).expect("a cgroup");
            fs::remove_dir(&cgroup).expect("a cgroup without processes");
            made += 1;
        }
        made
    })
}

#[tokio::test]
async fn lease_and_status_go_on_under_a_fork_bomb_and_a_churn_of_cgroups() {
    const KILLS: u32 = 5;
    let api = ApiServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let agent = start(&api, dir.path(), &[]);
    let view = View::of(&api, "worker-1");
    view.settled(SOON).await;
    let name = format!("nodepulse-churn-{}", std::process::id());
    let mut tree = CgroupTree::new(&name).unwrap();
    tree.add("container").unwrap();
    tree.limit("container", 16 * MIB).unwrap();
    tree.add("churn").unwrap();

    let pen = Pen::new(&name, 32).unwrap();
    let mut bomb = provoke().bomb_in(pen.dir()).unwrap();
    eventually("refused fork", || match pen.refused() {
        Ok(1..) => Ok(()),
        other => Err(other),
    })
    .await;
    let stop = Arc::new(AtomicBool::new(false));
    let churned = churn(tree.dir("churn"), Arc::clone(&stop));
    let before = [view.renewals().len(), view.patches().len()];
    let (eater, container) = (provoke(), tree.dir("container"));
    let kills = thread::spawn(move || {
        let each = (0..KILLS).map(|_| eater.eat_in(&container, 128 * MIB));
        each.map(|eaten| eaten.unwrap().0)
            .collect::<BTreeSet<u32>>()
    });
    let alive = |_: &ApiServer| {
        let seen = [view.renewals().len(), view.patches().len()];
        (seen[0] >= before[0] + 4 && seen[1] >= before[1] + 2).then_some(seen)
    };
    let seen = api.wait_for(SOON * 3, "renewals and patches", alive).await;
    let victims = tokio::task::spawn_blocking(|| kills.join().unwrap());
    for pid in victims.await.unwrap() {
        let event = api.wait_for(SOON, "the event", |api| about(api, pid));
        is_harmless(&event.await);
    }
    stop.store(true, Ordering::Relaxed);
    let churned = churned.join().unwrap();
    let refused = pen.refused().unwrap();
    drop(pen);
    bomb.wait().unwrap();
    println!(
        "{churned} cgroups, {refused} refused forks, {KILLS} kills reported; {before:?} renewals and \
         patches before, {seen:?} after"
    );
    agent.terminate();
    assert_eq!(agent.ends(SOON).await.code, Some(0));
}
