//! Recorded runs of the whole agent, replayed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use nodepulse_tests::hostile::day::HostileDay;
use nodepulse_tests::node::pass;
use nodepulse_tests::tape::{Kinds, Tape, assert_changes_are_found, replayed};
use serde_json::Value;

/// Long enough for the end of transition periods.
const AFTERWARDS: Duration = Duration::from_mins(10);

/// Inputs of a hostile day, and how often they must occur at least.
const INPUTS: [(&str, usize); 39] = [
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
    ("Disk.StatisticsChecked", 1000),
    ("Disk.Tick", 5000),
    ("Disk.Watched", 10),
    ("Incident.Configured.Kubelet", 5),
    ("Incident.Containers", 12),
    ("Incident.Happened", 1000),
    ("Incident.PodChanged.Present", 20),
    ("Incident.PodChanged.Removed", 10),
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
    ("KillCounter.Settled", 100),
    ("KillCounter.Stopped", 1),
    ("Pid.Configured", 5),
    ("Pid.Crossed", 20),
    ("Pid.Sampled", 5000),
    ("PodPid.Counted", 20),
    ("PodPid.PidLimits", 10),
    ("PodPid.TasksCounted", 10),
    ("Stall.Reported", 20),
    ("Stall.Sampled", 1000),
];

/// The same of effects.
const EFFECTS: [(&str, usize); 34] = [
    ("CountKills", 1000),
    ("Event", 1000),
    ("Fact.Disks", 100),
    ("Fact.Stalls", 1000),
    ("ForcePressure", 10),
    ("Input.Incident.Happened", 1000),
    ("Input.KillCounter.Found", 1000),
    ("Log.Disk.HealthChanged", 50),
    ("Log.Disk.Reported", 20),
    ("Log.Disk.Unwatched", 10),
    ("Log.ForksRefused", 10),
    ("Log.KillFound", 1000),
    ("Log.KillsReportedByNumber", 20),
    ("Log.LargestPods", 10),
    ("Log.PidLevelCrossed", 20),
    ("Log.PodKilled", 1000),
    ("Log.PodRemoved", 10),
    ("Log.Stall.Changed", 20),
    ("Map.EndPidState", 20),
    ("Map.ForgetDisk", 10),
    ("Map.PidLevels", 5),
    ("Map.WatchDisks", 10),
    ("Pressure.Disks", 100),
    ("Query.CgroupPaths", 1000),
    ("Query.Containers", 12),
    ("Query.Disk.Counters", 500),
    ("Query.Disk.Find", 10),
    ("Query.Disk.Statistics", 10),
    ("Query.KillCounters", 100),
    ("Query.LimitHits", 1000),
    ("Query.PidLimits", 10),
    ("Query.RefusedForks", 20),
    ("Query.RemainingMemory", 10),
    ("SaveKills", 100),
];

/// What no hostile day may do without.
fn assert_whole(recorded: &[String]) {
    let kinds = Kinds::of(recorded);
    println!("{} lines, {kinds:#?}", recorded.len());
    assert_eq!(Kinds::missing(&kinds.inputs, &INPUTS), [""; 0]);
    assert_eq!(Kinds::missing(&kinds.effects, &EFFECTS), [""; 0]);
}

/// The recording of a hostile day until this hour, and the path of each cgroup by its id.
async fn hostile_day(seed: u64, until: Duration) -> (Vec<String>, BTreeMap<u64, String>) {
    let tape = Tape::default();
    let mut day = HostileDay::new(seed, |node| node.recorded_on(&tape));
    day.stage.view().settled(Duration::from_mins(1)).await;
    day.play(until).await;
    pass(AFTERWARDS).await;
    day.stage.node.stop().await.expect("it ends well");
    let mut cgroups = BTreeMap::new();
    let top = day.stage.host.path().join("sys/fs/cgroup");
    name_below(&top, &top, &mut cgroups);
    (tape.lines(), cgroups)
}

fn name_below(top: &Path, dir: &Path, cgroups: &mut BTreeMap<u64, String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            let path = entry.path();
            let name = path.strip_prefix(top).unwrap().display().to_string();
            cgroups.insert(entry.metadata().unwrap().ino(), name);
            name_below(top, &path, cgroups);
        }
    }
}

/// The same line with the path of each cgroup instead of its id, which is an inode number.
fn with_names(line: &str, cgroups: &BTreeMap<u64, String>) -> String {
    fn rename(value: &mut Value, cgroups: &BTreeMap<u64, String>) {
        match value {
            Value::Number(id) => {
                if let Some(name) = id.as_u64().and_then(|id| cgroups.get(&id)) {
                    *value = name.as_str().into();
                }
            }
            Value::Array(list) => list.iter_mut().for_each(|value| rename(value, cgroups)),
            Value::Object(map) => {
                let entries = std::mem::take(map).into_iter().map(|(key, mut value)| {
                    rename(&mut value, cgroups);
                    let name = key.parse().ok().and_then(|id: u64| cgroups.get(&id));
                    (name.cloned().unwrap_or(key), value)
                });
                *map = entries.collect();
            }
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }
    let mut value = serde_json::from_str(line).unwrap();
    rename(&mut value, cgroups);
    value.to_string()
}

/// The lines of each moment, sorted: answers of two threads at one moment come in any order.
fn moments(lines: &[String], cgroups: &BTreeMap<u64, String>) -> Vec<Vec<String>> {
    let lines = lines[1..].iter().map(|line| with_names(line, cgroups));
    let mut moments = Vec::<(String, Vec<String>)>::new();
    for line in lines {
        let (_, now) = line.rsplit_once("\"now\":").unwrap();
        match moments.last_mut() {
            Some((last, lines)) if last == now => lines.push(line),
            _ => moments.push((now.to_owned(), vec![line])),
        }
    }
    let sorted = moments.into_iter().map(|(_, mut lines)| {
        lines.sort();
        lines
    });
    sorted.collect()
}

#[tokio::test(start_paused = true)]
async fn a_hostile_day_gives_the_same_effects_byte_for_byte_when_it_is_replayed() {
    let (recorded, _) = hostile_day(21, Duration::from_hours(10)).await;
    let replayed = replayed(&recorded).unwrap_or_else(|err| panic!("{err}"));
    assert_eq!(replayed.steps, recorded.len() - 1);
    assert_whole(&recorded);
    assert_changes_are_found(&recorded);
}

#[tokio::test(start_paused = true)]
async fn two_days_of_one_seed_have_the_same_recording_but_for_the_ids_of_cgroups() {
    let hour = Duration::from_hours(1);
    let (first, first_ids) = hostile_day(22, hour).await;
    let (second, second_ids) = hostile_day(22, hour).await;
    assert!(first.len() > 5000, "{}", first.len());
    let (first, second) = (moments(&first, &first_ids), moments(&second, &second_ids));
    for (first, second) in first.iter().zip(&second) {
        assert_eq!(first, second);
    }
    assert_eq!(first.len(), second.len());
}
