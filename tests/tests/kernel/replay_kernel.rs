//! Records a storm of OOM kills on this kernel, and replays it.
//!
//! Runs as root.

use std::collections::BTreeSet;

use nodepulse_tests::pod_kills::Cluster;
use nodepulse_tests::tape::{Kinds, Tape, assert_changes_are_found, replayed};
use serde_json::Value;

use super::provoke;

const KILLS: usize = 80;

/// Inputs, and the minimum number of each.
const INPUTS: [(&str, usize); 9] = [
    ("Incident.ContainersRead", 6),
    ("Incident.Happened", 1),
    ("Incident.PodChanged.Present", 6),
    ("Kill.BatchReported", 1),
    ("Kill.CgroupPaths", 50),
    ("Kill.Recorded", 50),
    ("KillCounter.Found", 1),
    ("KillCounter.Recalled", 1),
    ("KillCounter.Recorded", 1),
];

/// Effects, and the minimum number of each.
const EFFECTS: [(&str, usize); 6] = [
    ("Input.OomIncident", 1),
    ("Incident", 6),
    ("Log.KillFound", 50),
    ("Map.PidLevels", 1),
    ("Query.CgroupPaths", 50),
    ("Save", 1),
];

/// Returns the victims in the records of kills.
fn victims(recorded: &[String]) -> BTreeSet<u32> {
    let steps = recorded[1..].iter();
    let victim = |line: &String| {
        let step: Value = serde_json::from_str(line).unwrap();
        let pid = step["input"]["Kill"]["Recorded"]["kill"]["victim"].as_u64()?;
        Some(u32::try_from(pid).unwrap())
    };
    steps.filter_map(victim).collect()
}

#[tokio::test]
async fn a_storm_of_kills_gives_the_same_effects_byte_for_byte_when_it_is_replayed() {
    let cluster = Cluster::with("replay", 6, provoke()).await;
    let tape = Tape::default();
    let agent = cluster.recorded_agent(&tape).await;
    let (killed, took) = cluster.kill(KILLS).await;
    cluster.all_reported("after the storm").await;
    agent.stop().await;

    let recorded = tape.lines();
    let kinds = Kinds::of(&recorded);
    println!(
        "{KILLS} kills in {took:?}, {} lines, {kinds:#?}",
        recorded.len()
    );
    let replayed = replayed(&recorded).unwrap_or_else(|err| panic!("{err}"));
    assert_eq!(replayed.steps, recorded.len() - 1);
    assert_changes_are_found(&recorded);
    let provoked: BTreeSet<u32> = killed.iter().map(|(pid, _)| *pid).collect();
    let in_records = victims(&recorded).intersection(&provoked).count();
    assert!(in_records >= 50, "{in_records} of {KILLS} in records");
    assert_eq!(Kinds::missing(&kinds.inputs, &INPUTS), [""; 0]);
    assert_eq!(Kinds::missing(&kinds.effects, &EFFECTS), [""; 0]);
}
