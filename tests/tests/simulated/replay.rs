//! Recorded runs of the whole agent, replayed.

use std::time::Duration;

use nodepulse_tests::hostile::day::HostileDay;
use nodepulse_tests::node::pass;
use nodepulse_tests::tape::{Kinds, Tape, assert_changes_are_found, replayed};

/// Long enough for the end of transition periods.
const AFTERWARDS: Duration = Duration::from_mins(10);

/// Inputs of a hostile day, and how often they must occur at least.
const INPUTS: [(&str, usize); 45] = [
    ("Disk.Announced", 20),
    ("Disk.AnnouncementsLost", 5),
    ("Disk.Configured", 5),
    ("Disk.Confirmed", 10),
    ("Disk.Found", 10),
    ("Disk.IoStalled", 20),
    ("Disk.Listed", 50),
    ("Disk.Reported", 20),
    ("Disk.Sampled", 500),
    ("Disk.Started", 1),
    ("Disk.StatisticsChecked", 300),
    ("Disk.Tick", 5000),
    ("Disk.Watched", 10),
    ("Incident.ContainersRead", 12),
    ("Incident.Happened", 1000),
    ("Incident.PodChanged.Present", 20),
    ("Incident.Stopping", 1),
    ("Kill.BatchReported", 1000),
    ("Kill.CgroupPaths", 1000),
    ("Kill.CgroupsRead", 1),
    ("Kill.CgroupsSeen", 20),
    ("Kill.LimitHits", 1000),
    ("Kill.Recorded", 1000),
    ("Kill.RemainingMemory", 10),
    ("KillCounter.Counted", 100),
    ("KillCounter.Recalled", 1),
    ("KillCounter.RecordsLost", 50),
    ("KillCounter.Recorded", 100),
    ("Pid.Configured", 5),
    ("Pid.Sampled", 5000),
    ("PidsReported", 20),
    ("Pod.Changed.Present", 20),
    ("Pod.Changed.Removed", 10),
    ("PodPid.Counted", 20),
    ("PodPid.PidLimits", 10),
    ("LargestOwners.TasksCounted", 10),
    ("Signal.Disks", 100),
    ("Signal.Forced", 10),
    ("Signal.Sampled", 1000),
    ("Signal.StorageSampled", 100),
    ("Stall.Reported", 20),
    ("State.Stopped", 1),
    ("State.TrueOnNode", 1),
    ("State.Written", 100),
    ("Tick", 1000),
];

/// The same of effects.
const EFFECTS: [(&str, usize); 34] = [
    ("BlockingQuery.Disk.Counters", 500),
    ("BlockingQuery.Disk.Find", 10),
    ("BlockingQuery.Disk.Statistics", 10),
    ("BlockingQuery.KillCounters", 100),
    ("BlockingQuery.Storage", 100),
    ("Fact.Disks", 100),
    ("Fact.Pressures", 1000),
    ("Fact.Stalls", 5),
    ("Incident", 1000),
    ("Input.Incident.Happened", 1000),
    ("Input.KillCounter.Found", 1000),
    ("Input.OomIncident", 100),
    ("Log.Disk.HealthChanged", 50),
    ("Log.Disk.Reported", 20),
    ("Log.Disk.Unwatched", 10),
    ("Log.KillFound", 1000),
    ("Log.LargestOwners", 10),
    ("Log.PidLevelCrossed", 20),
    ("Log.PodKilled", 1000),
    ("Log.PodRemoved", 10),
    ("Log.PressureChanged", 10),
    ("Map.EndPidState", 20),
    ("Map.ForgetDisk", 10),
    ("Map.PidLevels", 5),
    ("Map.WatchDisks", 10),
    ("Publish", 1000),
    ("Query.CgroupPaths", 1000),
    ("Query.LimitHits", 1000),
    ("Query.PidLimits", 10),
    ("Query.RefusedForks", 20),
    ("Query.RemainingMemory", 10),
    ("Query.Signals", 1000),
    ("ReadContainers", 12),
    ("Save", 100),
];

/// What no hostile day may do without.
fn assert_whole(recorded: &[String]) {
    let kinds = Kinds::of(recorded);
    println!("{} lines, {kinds:#?}", recorded.len());
    assert_eq!(Kinds::missing(&kinds.inputs, &INPUTS), [""; 0]);
    assert_eq!(Kinds::missing(&kinds.effects, &EFFECTS), [""; 0]);
}

/// The recording of a hostile day until this hour.
async fn hostile_day(seed: u64, until: Duration) -> Vec<String> {
    let tape = Tape::default();
    let mut day = HostileDay::new(seed, |node| node.recorded_on(&tape));
    day.stage.view().settled(Duration::from_mins(1)).await;
    day.play(until).await;
    pass(AFTERWARDS).await;
    day.stage.node.stop().await.expect("it ends well");
    tape.lines()
}

#[tokio::test(start_paused = true)]
async fn a_hostile_day_gives_the_same_effects_byte_for_byte_when_it_is_replayed() {
    let recorded = hostile_day(21, Duration::from_hours(10)).await;
    let replayed = replayed(&recorded).unwrap_or_else(|err| panic!("{err}"));
    assert_eq!(replayed.steps, recorded.len() - 1);
    assert_whole(&recorded);
    assert_changes_are_found(&recorded);
}
