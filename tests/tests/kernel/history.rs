//! The history of incidents on a disk: what the kernel did, read by `nodepulse history`.
//!
//! Runs as root.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::mount::{MsFlags, mount, umount};
use nodepulse_core::black_box::{RECORD, Record, offset};
use nodepulse_core::incident::BootId;
use nodepulse_core::units::CgroupId;
use nodepulse_linux::black_box;
use nodepulse_linux::state::State;
use nodepulse_linux::store::{Reader, write_ahead};
use nodepulse_tests::hung_files::HungDirectory;
use nodepulse_tests::process::{Process, node_mode, program};
use nodepulse_tests::provoke::cgroup::CgroupTree;
use nodepulse_tests::{SOON, eventually};
use serde_json::Value;

use super::provoke;

const MIB: u64 = 1 << 20;

const FULL: &str = "incidents are not recorded in the history";

/// Returns the lines of `nodepulse history -o json` for this directory.
async fn history(directory: &Path, further: &[&str]) -> Vec<Value> {
    let directory = directory.display().to_string();
    let args = ["history", "-o", "json", "--history-directory", &directory];
    let output = Process::output(None, &[&args, further].concat()).await;
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let parse = |line| serde_json::from_str(line).expect("a line of JSON");
    output.stdout.lines().map(parse).collect()
}

fn agent(directory: &Path, tree: &CgroupTree) -> Process {
    Process::start(node_mode(&[
        "--cgroup-root",
        &tree.path(""),
        "--history-directory",
        &directory.display().to_string(),
    ]))
}

/// A tree with a container at whose limit a process can be killed.
fn tree(name: &str) -> CgroupTree {
    let name = format!("nodepulse-history-{name}-{}", std::process::id());
    let mut tree = CgroupTree::new(&name).unwrap();
    tree.add("kubepods/podaa/c").unwrap();
    tree.limit("kubepods/podaa/c", 32 * MIB).unwrap();
    tree
}

/// Kills a process at the limit, and waits until it is in the history.
async fn recorded_kill(directory: &Path, tree: &CgroupTree) -> Value {
    let eaten = provoke().eat_in(&tree.dir("kubepods/podaa/c"), 256 * MIB);
    let (pid, _) = eaten.unwrap();
    let is_it = |one: &Value| one["facts"]["victims"][0]["pid"] == pid && one["settled"] == true;
    eventually("the kill in the history", || {
        let lines = Reader::new(directory.to_owned()).next_lines();
        let lines = lines.map_err(|err| err.to_string())?;
        let mut values = lines
            .iter()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        values.find(is_it).ok_or_else(|| lines.join("\n"))
    })
    .await
}

/// Runs `nodepulse provoke` in the container. Returns what it printed.
async fn provoked(tree: &CgroupTree, args: &[&str]) -> String {
    let cgroup = tree.dir("kubepods/podaa/c");
    let script = format!(
        "echo $$ > {}/cgroup.procs && exec {} provoke {}",
        cgroup.display(),
        program().display(),
        args.join(" ")
    );
    let output = tokio::process::Command::new("sh")
        .args(["-c", &script])
        .output()
        .await
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    printed
}

#[tokio::test]
async fn what_is_provoked_in_a_container_is_in_the_history() {
    let (dir, tree) = (tempfile::tempdir().unwrap(), tree("provoked"));
    let directory = dir.path().join("history");
    let agent = agent(&directory, &tree);
    agent.wait_for_line("OOM kill source selected", SOON).await;
    let printed = provoked(&tree, &["oom"]).await;
    assert!(printed.contains("is 32.0Mi. A child process"), "{printed}");
    assert!(printed.contains("the main one, is alive"), "{printed}");
    let recorded = eventually("the kill in the history", || {
        let lines = Reader::new(directory.clone()).next_lines();
        let lines = lines.map_err(|err| err.to_string())?;
        let mut all = lines
            .iter()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let is_it = |one: &Value| one["object"]["pod"]["uid"] == "aa" && one["settled"] == true;
        all.find(is_it).ok_or_else(|| lines.join("\n"))
    })
    .await;
    assert_eq!(recorded["facts"]["victims"][0]["name"], "nodepulse");
    assert_eq!(recorded["facts"]["limit"], "container");

    let file = dir.path().join("provoked");
    let shown = file.display().to_string();
    fs::write(&file, "").unwrap();
    let refused = Process::output(None, &["provoke", "disk", "--file", &shown]).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("File exists"), "{refused:?}");
    agent.terminate();
    agent.ends(SOON).await;
}

#[tokio::test]
async fn a_kill_is_in_the_history_of_an_agent_that_was_killed_and_of_the_next_one() {
    let (dir, tree) = (tempfile::tempdir().unwrap(), tree("kept"));
    let directory = dir.path().join("history");
    let mut pids = Vec::new();
    for _ in 0..2 {
        let agent = agent(&directory, &tree);
        agent.wait_for_line("OOM kill source selected", SOON).await;
        let kill = recorded_kill(&directory, &tree).await;
        assert_eq!(kill["kind"], "OOMKill", "{kill:#}");
        assert_eq!(kill["object"]["pod"]["uid"], "aa", "{kill:#}");
        assert_eq!(kill["object"]["cgroup"], tree.path("kubepods/podaa/c"));
        let facts = &kill["facts"];
        assert_eq!(
            (&facts["limit"], &facts["limitBytes"]),
            (&"container".into(), &(32 * MIB).into())
        );
        assert_eq!(facts["victims"][0]["name"], "provoke");
        pids.push(facts["victims"][0]["pid"].clone());

        let id = kill["id"].as_str().unwrap();
        let number = id.rsplit('-').next().unwrap();
        let shown = directory.display().to_string();
        let args = ["history", number, "--history-directory", &shown];
        let output = Process::output(None, &args).await;
        assert!(output.stdout.contains(id), "{}", output.stdout);
        // The disk has it, however the agent ends.
        agent.kill();
        agent.ends(SOON).await;
    }
    let kills = history(&directory, &["--since", "1h"]).await;
    let found: Vec<_> = kills
        .iter()
        // The second agent recorded that the first was killed.
        .filter(|one| one["kind"] != "Gap")
        .map(|one| one["facts"]["victims"][0]["pid"].clone())
        .collect();
    assert_eq!(found, pids);
    assert_eq!(
        history(&directory, &["--pod", "shop/web-0"]).await,
        Vec::<Value>::new()
    );
    let lines = fs::read_dir(&directory).unwrap().count();
    assert_eq!(
        lines, 4,
        "the lock, the black box, and a segment for each start"
    );
}

/// Starts an agent whose state directory is in memory.
fn agent_of(state: &Path, directory: &Path, tree: &CgroupTree) -> Process {
    Process::start(node_mode(&[
        "--cgroup-root",
        &tree.path(""),
        "--state-directory",
        &state.display().to_string(),
        "--history-directory",
        &directory.display().to_string(),
    ]))
}

/// Returns the number of kills in the pod that the next start does not report.
fn acknowledged(state: &Path, tree: &CgroupTree) -> u64 {
    let pod = fs::metadata(tree.dir("kubepods/podaa")).unwrap();
    let kills = State::load(state).unwrap().map(|state| state.kills.cgroups);
    let of_pod = kills.and_then(|kills| kills.get(&CgroupId(pod.ino())).copied());
    of_pod.unwrap_or_default()
}

#[tokio::test]
async fn kills_while_the_disk_hangs_are_in_the_history_once_although_the_agent_was_killed() {
    let (dir, tree) = (tempfile::tempdir().unwrap(), tree("hangs"));
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let (state, directory) = (memory.path().join("state"), dir.path().join("history"));
    let agent = agent_of(&state, &directory, &tree);
    agent.wait_for_line("OOM kill source selected", SOON).await;
    let hung = HungDirectory::over(&directory);
    let mut pids = Vec::new();
    for _ in 0..3 {
        let eaten = provoke().eat_in(&tree.dir("kubepods/podaa/c"), 256 * MIB);
        let pid = Value::from(eaten.unwrap().0);
        let logged = fs::read(state.join(write_ahead::FILE)).unwrap();
        assert_eq!(logged.len(), 256 << 10);
        eventually("the kill in memory", || {
            let lines = write_ahead::read(&state).unwrap();
            let mut lines = lines.iter().map(|(_, line)| line);
            let is_there = lines.any(|line| {
                let value: Value = serde_json::from_str(line).unwrap();
                value["facts"]["victims"][0]["pid"] == pid && value["settled"] == true
            });
            is_there.then_some(()).ok_or("it is not there")
        })
        .await;
        pids.push(pid);
    }
    eventually("kills that survive the process", || {
        let kills = acknowledged(&state, &tree);
        (kills == 3).then_some(()).ok_or(kills)
    })
    .await;
    agent.kill();
    agent.ends(SOON).await;
    hung.answers();
    let lines = Reader::new(directory.clone()).next_lines().unwrap();
    assert!(lines.is_empty(), "the disk has nothing: {lines:?}");

    let next = agent_of(&state, &directory, &tree);
    next.wait_for_line("OOM kill source selected", SOON).await;
    // Settled after everything else that this start found.
    let kill = recorded_kill(&directory, &tree).await;
    pids.push(kill["facts"]["victims"][0]["pid"].clone());
    next.terminate();
    assert_eq!(next.ends(SOON).await.code, Some(0));
    assert_eq!(acknowledged(&state, &tree), 4, "each kill once");
    let kills = history(&directory, &[]).await;
    let kills = kills.iter().filter(|one| one["kind"] != "Gap");
    let kills = kills.map(|one| one["facts"]["victims"][0]["pid"].clone());
    assert_eq!(kills.collect::<Vec<_>>(), pids);
    let mut lines = Reader::new(directory).next_lines().unwrap();
    let all = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), all, "each revision once");
}

/// A file system that is unmounted when this value is dropped.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // An error here must not hide the failure of the test.
        let _unmounted: nix::Result<()> = umount(self.0);
    }
}

#[tokio::test]
async fn a_full_disk_is_logged_once_and_recording_goes_on_when_there_is_room() {
    let (dir, tree) = (tempfile::tempdir().unwrap(), tree("full"));
    let none = None::<&str>;
    mount(
        none,
        dir.path(),
        Some("tmpfs"),
        MsFlags::empty(),
        Some("size=256k"),
    )
    .unwrap();
    let _mounted = Mounted(dir.path());
    let directory = dir.path().join("history");
    let agent = agent(&directory, &tree);
    agent.wait_for_line("OOM kill source selected", SOON).await;
    recorded_kill(&directory, &tree).await;
    let rest = dir.path().join("rest");
    // Everything that is left.
    assert!(fs::write(&rest, vec![0; 256 << 10]).is_err());
    // Some fit into the last block.
    for _ in 0..50 {
        provoke()
            .eat_in(&tree.dir("kubepods/podaa/c"), 256 * MIB)
            .unwrap();
        if !agent.lines_with(FULL).is_empty() {
            break;
        }
    }
    agent.wait_for_line(FULL, SOON).await;
    fs::remove_file(rest).unwrap();
    recorded_kill(&directory, &tree).await;
    agent
        .wait_for_line("incidents are recorded again", SOON)
        .await;
    assert_eq!(agent.lines_with(FULL).len(), 1);
    agent.terminate();
    assert_eq!(agent.ends(SOON).await.code, Some(0));
}

/// Changes the boot of all records of the black box. Returns their number.
fn move_to_former_boot(directory: &Path) -> usize {
    let path = directory.join(black_box::FILE);
    let mut ring = fs::read(&path).unwrap();
    let mut records = Record::decode_ring(&ring);
    for record in &mut records {
        record.origin.boot = BootId(1);
        let begin = usize::try_from(offset(record.number)).unwrap();
        ring[begin..begin + RECORD].copy_from_slice(&record.encode());
    }
    fs::write(path, ring).unwrap();
    records.len()
}

/// Starts an agent, and returns it when its first record is on the disk.
async fn observed(directory: &Path, tree: &CgroupTree) -> Process {
    let path = directory.join(black_box::FILE);
    let newest = || Record::decode_ring(&fs::read(&path).unwrap_or_default()).pop();
    let before = newest();
    let agent = agent(directory, tree);
    eventually("a record in the black box", || {
        (newest() != before).then_some(()).ok_or("no record")
    })
    .await;
    agent
}

#[tokio::test]
async fn the_first_start_after_a_boot_records_how_the_last_one_ended_and_the_second_does_not() {
    let (dir, tree) = (tempfile::tempdir().unwrap(), tree("boot"));
    let directory = dir.path().join("history");
    let killed = observed(&directory, &tree).await;
    killed.kill();
    killed.ends(SOON).await;
    assert_ne!(move_to_former_boot(&directory), 0);

    let stopped = observed(&directory, &tree).await;
    stopped
        .wait_for_line("the last boot ended uncleanly", SOON)
        .await;
    stopped.terminate();
    assert_eq!(stopped.ends(SOON).await.code, Some(0));
    let third = observed(&directory, &tree).await;
    let ends = ["the last boot ended", "the last agent was", "no agent ran"];
    assert!(ends.iter().all(|end| third.lines_with(end).is_empty()));
    third.kill();
    third.ends(SOON).await;
    let fourth = observed(&directory, &tree).await;
    let logged = fourth.wait_for_line("the last agent was not stopped", SOON);
    logged.await;
    fourth.terminate();
    fourth.ends(SOON).await;

    let recorded = history(&directory, &[]).await;
    let [boot, gap] = recorded.as_slice() else {
        panic!("{recorded:#?}");
    };
    assert_eq!(gap["reason"], "AgentDown", "{gap:#}");
    assert_eq!(boot["reason"], "UncleanReboot", "{boot:#}");
    assert_eq!(boot["facts"]["end"], "PowerLossOrReset", "{boot:#}");
    let signals = boot["facts"]["minutes"][0]["readings"]["signals"].as_object();
    assert!(
        signals.is_some_and(|signals| !signals.is_empty()),
        "{boot:#}"
    );
    // No condition depends on it.
    if Path::new("/proc/pressure/io").exists() {
        let waited = &boot["facts"]["minutes"][0]["readings"]["stalls"]["io"];
        assert!(waited.is_u64(), "{boot:#}");
    }
    let shown = directory.display().to_string();
    let args = ["history", "--boot", "-1", "--history-directory", &shown];
    let output = Process::output(None, &args).await;
    assert!(
        output.stdout.starts_with("PowerLossOrReset ("),
        "{output:?}"
    );
    let args = ["history", "--boot", "-2", "--history-directory", &shown];
    assert_eq!(Process::output(None, &args).await.code, Some(1));

    // In the next boot, the last agent had stopped in order.
    move_to_former_boot(&directory);
    let next = observed(&directory, &tree).await;
    next.wait_for_line("the last boot ended end=\"NotObserved\"", SOON)
        .await;
    // As the unit does if the machine shuts down.
    fs::write(next.state().join("shutdown"), "").unwrap();
    next.terminate();
    next.ends(SOON).await;
    move_to_former_boot(&directory);
    let last = observed(&directory, &tree).await;
    last.wait_for_line("the last boot ended end=\"Shutdown\"", SOON)
        .await;
    last.terminate();
    last.ends(SOON).await;
}
