//! Kills in a container with ten thousand processes, about which a bounded amount is read.
//!
//! Runs as root.

use std::time::Duration;

use nodepulse_tests::SOON;
use nodepulse_tests::pod_kills::{Cluster, details_after, is_detailed, stop};
use nodepulse_tests::process::program;

use super::provoke;

const PROCESSES: u32 = 10_000;

#[tokio::test]
async fn of_ten_thousand_processes_the_event_names_three_and_how_many_were_compared() {
    let cluster = Cluster::with("crowded", 1, provoke()).await;
    let agent = cluster.agent(&program()).await;
    let crowd = cluster.crowded(0, PROCESSES).await;
    cluster.kill_below(0, &[]).await;
    let (pod, _) = &cluster.pods[0];
    let detailed = cluster.api.wait_for(SOON, "details of the kill", |api| {
        let event = pod.events(api).pop()?;
        let message = event["message"].as_str()?.to_owned();
        is_detailed(&message).then_some(message)
    });
    let message = detailed.await;
    let took: Vec<Duration> = details_after(&cluster.api);
    println!("{PROCESSES} processes, details {took:?} after the Event: {message}");
    assert!(message.len() <= 1024, "{message}");
    let compared = "The largest other processes of the first 1000 of more than 1000: ";
    let (_, largest) = message.split_once(compared).expect("a part of them");
    let (largest, _) = largest.split_once(". Process ").expect("the victim");
    assert_eq!(largest.split(", ").count(), 3, "{message}");
    let log = stop(agent).await;
    let victims = log.iter().filter(|line| line.contains(" victim=")).count();
    let counted: u64 = cluster.counted().values().sum();
    assert_eq!((victims, counted), (1, 1), "{}", log.join("\n"));
    drop(crowd);
}
