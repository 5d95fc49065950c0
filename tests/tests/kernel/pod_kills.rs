//! Causes real kills in simulated pods on this kernel: each is reported with the right Pod,
//! container and limit.
//!
//! Runs as root.

use std::time::Duration;

use nodepulse_tests::SOON;
use nodepulse_tests::pod_kills::{At, Cluster, Killed, is_detailed, stop, ways};
use nodepulse_tests::process::{Process, program};

use super::provoke;

async fn cluster(name: &str, pods: usize) -> (Cluster, Process) {
    let cluster = Cluster::with(name, pods, provoke()).await;
    let agent = cluster.agent(&program()).await;
    (cluster, agent)
}

/// Returns a part of the message about a kill.
fn victim(pid: u32) -> String {
    format!(" Process {pid} (provoke) of UID 0 had ")
}

/// Stops the agent after it has read all kills, and checks that the kernel counted each of
/// `killed`, and that every counted kill was reported once.
async fn assert_all_reported(cluster: &Cluster, agent: Process, killed: &[Killed]) {
    for (pid, _) in killed {
        agent
            .wait_for_line(&format!("pid={pid} victim="), SOON)
            .await;
    }
    let log = stop(agent).await;
    let counted = cluster.counted();
    for (pod, count) in &counted {
        let provoked = killed.iter().filter(|(_, of)| of == pod).count();
        assert!(u64::try_from(provoked).unwrap() <= *count, "{counted:?}");
    }
    assert_eq!(cluster.reported(), counted, "{}", log.join("\n"));
}

#[tokio::test]
async fn a_hundred_kills_in_twenty_pods_name_the_right_container_and_limit() {
    let (cluster, agent) = cluster("pods", 20).await;
    let (killed, _) = cluster.kill_one_by_one(100, Duration::ZERO).await;
    for (pid, pod) in killed {
        let (pod, at) = &cluster.pods[pod];
        let naming = victim(pid);
        let limit = match at {
            At::Container => " in container web was killed because the container reached its ",
            At::Pod => " in container web was killed because the pod reached its ",
        };
        let events = pod.events(&cluster.api);
        let event = events
            .iter()
            .find(|event| {
                event["message"]
                    .as_str()
                    .is_some_and(|m| m.contains(&naming))
            })
            .unwrap_or_else(|| panic!("{naming}: {events:#?}"));
        let message = event["message"].as_str().unwrap();
        assert!(message.contains(limit), "{limit}: {message}");
        assert!(message.contains("memory limit of 8Mi ("), "{message}");
        assert_eq!(event["involvedObject"]["fieldPath"], "spec.containers{web}");
    }
    assert_eq!(ways(&stop(agent).await).len(), 100);
}

#[tokio::test]
async fn the_event_of_a_kill_has_the_consequence_and_then_the_largest_processes() {
    let cluster = Cluster::with("consequence", 6, provoke()).await;
    let shares = "memory limit of 8Mi";
    let main = "; its main process died, so the container restarts.";
    let child = "; the main process is alive, and the container continues";
    //  pod, processes around the victim, part of the first sentence
    let rows: [(usize, &[&str], &str); 6] = [
        (0, &["namespace"], main),
        (1, &["namespace"], main),
        (2, &["namespace", "parent"], child),
        (3, &["namespace", "parent"], child),
        (4, &[], shares),
        (5, &["users", "namespace"], main),
    ];
    for (pod, around, expected) in rows {
        // Only a new agent may read details at once.
        let agent = cluster.agent(&program()).await;
        cluster.kill_below(pod, around).await;
        let (pod, at) = &cluster.pods[pod];
        let event = cluster.api.wait_for(SOON, expected, |api| {
            let mut events = pod.events(api).into_iter();
            events.find(|event| is_detailed(event["message"].as_str().unwrap_or_default()))
        });
        let event = event.await;
        let message = event["message"].as_str().unwrap();
        assert!(message.contains(expected), "{expected}: {message}");
        assert_eq!(message.contains("; "), !around.is_empty(), "{message}");
        let limit = match at {
            At::Container => " reached its memory limit of 8Mi (",
            At::Pod => "the pod reached its memory limit of 8Mi (",
        };
        assert!(message.contains(limit), "{limit}: {message}");
        let user = match around.first() {
            Some(&"users") => " (provoke) of UID 1000 (0 on the host) had ",
            _ => " (provoke) of UID 0 had ",
        };
        assert!(message.contains(user), "{user}: {message}");
        // The first process of the container, which survives.
        assert!(message.contains(" (provoke) with "), "{message}");
        println!("{message}");
        stop(agent).await;
    }
}

#[tokio::test]
async fn a_thousand_kills_are_accounted_for() {
    let (cluster, agent) = cluster("storm", 20).await;
    let (kills, took) = cluster.kill(1000).await;
    println!("1000 kills in {took:?}");
    assert_eq!(kills.len(), 1000);
    let detailed = cluster.detailed();
    let reads = took.as_secs() / 2 + 2;
    println!("{} Events with details", detailed.len());
    assert!(
        u64::try_from(detailed.len()).unwrap() <= reads,
        "{detailed:#?}"
    );
    assert_all_reported(&cluster, agent, &kills).await;
}

/// Checks that each of the Events of `killed` names the container, in its text and by the field of
/// the Pod.
async fn assert_named(cluster: &Cluster, killed: &[Killed]) {
    for (pid, pod) in killed {
        let (pod, _) = &cluster.pods[*pod];
        let naming = victim(*pid);
        let event = cluster.api.wait_for(SOON * 6, &naming, |api| {
            let mut events = pod.events(api).into_iter();
            events.find(|event| {
                let message = event["message"].as_str();
                message.is_some_and(|message| {
                    message.contains(" in container web was killed ") && message.contains(&naming)
                })
            })
        });
        let event = event.await;
        assert_eq!(
            event["involvedObject"]["fieldPath"], "spec.containers{web}",
            "{event}"
        );
    }
}

#[tokio::test]
async fn containers_that_crash_at_once_and_in_an_outage_are_called_by_their_names() {
    let cluster = Cluster::with("named", 20, provoke()).await;
    let root = cluster.with_links_only();
    let agent = cluster.agent_at(&program(), &root).await;
    let (killed, _) = cluster.kill_one_by_one(20, Duration::ZERO).await;
    assert_named(&cluster, &killed).await;
    stop(agent).await;

    // The containers of these pods were never read.
    let agent = cluster.agent_at(&program(), &root).await;
    cluster.api.stop().await;
    let (killed, _) = cluster.kill(20).await;
    for (pid, _) in &killed {
        agent
            .wait_for_line(&format!("pid={pid} victim="), SOON)
            .await;
    }
    cluster.api.restart().await;
    assert_named(&cluster, &killed).await;
    stop(agent).await;
}

/// Pauses, kills and stops the agent, each while processes are killed, with the source of kills in
/// `tier`.
async fn storm_stop_restart(tier: &str, kills: usize) {
    let cluster = Cluster::with(&format!("still-{tier}"), 6, provoke()).await;
    let agent = cluster.agent_of(&program(), &["--kernel-tier", tier]).await;
    cluster.kill(6).await;
    cluster.all_reported("a few").await;
    cluster.saved(6).await;

    agent.pause();
    let (_, took) = cluster.kill(kills).await;
    println!("{tier}: {kills} kills in {took:?}");
    agent.resume();
    // More than the rate limit passes of each pod's records, and not all.
    cluster.saved(50).await;
    agent.kill();
    agent.ends(SOON).await;
    cluster.kill(12).await;

    let agent = cluster.agent_of(&program(), &["--kernel-tier", tier]).await;
    cluster.all_reported("killed and started again").await;
    cluster.kill(60).await;
    stop(agent).await;
    let agent = cluster.agent_of(&program(), &["--kernel-tier", tier]).await;
    cluster.all_reported("stopped and started again").await;
    stop(agent).await;
    cluster.all_reported("at the end").await;
}

#[tokio::test]
async fn more_kills_than_fit_in_the_ring_are_all_reported_across_a_restart() {
    storm_stop_restart("auto", 600).await;
}

#[tokio::test]
async fn without_programs_and_log_a_storm_and_a_restart_are_all_reported() {
    storm_stop_restart("files", 100).await;
}
