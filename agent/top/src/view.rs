//! PURE: the values of one frame.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use nodepulse_core::explanation::{Explanation, SignalReading};
use nodepulse_core::incident::JsonIncident;
use nodepulse_core::pods::Owner;
use nodepulse_core::reading::Signal;
use nodepulse_linux::host::cgroup::usage::CgroupUsage;

use crate::metrics::Histograms;

/// Number of readings in the trend of tasks, and of incidents; the oldest ones are dropped.
pub const MAX_KEPT: usize = 512;

/// An error is the reason for which a source is missing, with the cure.
pub struct View {
    pub explanation: Result<Explanation, String>,
    /// Requests since the reading before; at first, since the agent began to watch.
    pub latency: Result<Histograms, String>,
    /// Numbers of tasks, the newest last.
    pub tasks: VecDeque<u64>,
    /// The newest first.
    pub incidents: Result<Vec<JsonIncident>, String>,
    pub usage: Result<Vec<Usage>, String>,
}

pub struct Usage {
    pub name: String,
    /// In bytes, with the page cache.
    pub memory: u64,
    /// In thousandths of one CPU; `None` at the first reading.
    pub cpu: Option<u64>,
}

type Names<'a> = BTreeMap<&'a str, String>;

/// CPU time of each cgroup at the last reading, and the time of that.
#[derive(Default)]
pub struct CpuTimes(HashMap<String, Duration>, Duration);

impl CpuTimes {
    /// Compares a reading at the time `now` with the last one. `pods` are names by UIDs.
    pub fn usage(&mut self, read: Vec<CgroupUsage>, pods: &Names, now: Duration) -> Vec<Usage> {
        let Self(before, at) = std::mem::replace(self, Self(HashMap::new(), now));
        let elapsed = now.saturating_sub(at).as_nanos();
        let usage = read.into_iter().map(|one| {
            let last = one.cpu_time.zip(before.get(&one.cgroup));
            let share = last.and_then(|(cpu, last)| {
                let spent = cpu.saturating_sub(*last).as_nanos();
                spent.saturating_mul(1000).checked_div(elapsed)
            });
            self.0.extend(one.cpu_time.map(|cpu| (one.cgroup, cpu)));
            let name = match &one.owner {
                Owner::Pod { id, .. } => pods.get(id.as_str()).cloned(),
                _ => None,
            };
            Usage {
                name: name.unwrap_or_else(|| one.owner.short_name()),
                memory: one.memory,
                cpu: share.and_then(|share| u64::try_from(share).ok()),
            }
        });
        usage.collect()
    }
}

/// Returns the highest threshold of each signal by name, those that are met first.
pub fn signals(explanation: &Explanation) -> Vec<(&str, SignalReading)> {
    let conditions = explanation.conditions.iter();
    let mut found: Vec<(&str, SignalReading)> = Vec::new();
    for signal in conditions.flat_map(|condition| &condition.signals) {
        let known = found.iter_mut().find(|(name, _)| *name == signal.signal);
        match (signal.reading, known) {
            (Some(reading), None) => found.push((&signal.signal, reading)),
            (Some(reading), Some((_, known))) if known.threshold < reading.threshold => {
                *known = reading;
            }
            _ => {}
        }
    }
    found.sort_by_key(|(_, reading)| !reading.below);
    found
}

/// Adds the last sample of `pid.available` as a number of tasks; to an empty trend, the samples
/// before it, too.
pub fn add_tasks(trend: &mut VecDeque<u64>, explanation: &Explanation) {
    let conditions = explanation.conditions.iter();
    let mut signals = conditions.flat_map(|condition| &condition.signals);
    let pids = signals.find(|signal| signal.signal == Signal::PidAvailable.as_str());
    let Some((pids, reading)) = pids.and_then(|pids| Some((pids, pids.reading?))) else {
        return;
    };
    let used = |available: i64| {
        let available = u64::try_from(available).unwrap_or_default();
        reading.capacity.saturating_sub(available)
    };
    if trend.is_empty() {
        let earlier = pids.before.iter().rev();
        trend.extend(earlier.map(|sample| used(sample.available)));
    }
    trend.push_back(used(reading.available));
    while MAX_KEPT < trend.len() {
        trend.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_compared_with_the_reading_before() {
        let owner = Owner::from_path(
            "/kubepods/pod0f4fc5c2-7c38-4a8a-9d7b-2f7dbd2d21f9",
            "/kubepods",
        );
        let names = BTreeMap::from([(
            "0f4fc5c2-7c38-4a8a-9d7b-2f7dbd2d21f9",
            "shop/cart-0".to_owned(),
        )]);
        let mut times = CpuTimes::default();
        let mut read = |cgroup: &str, millis, seconds| {
            let read = CgroupUsage {
                cgroup: cgroup.to_owned(),
                owner: owner.clone(),
                memory: 7,
                cpu_time: Some(Duration::from_millis(millis)),
            };
            let usage = times.usage(vec![read], &names, Duration::from_secs(seconds));
            assert_eq!(
                (usage[0].name.as_str(), usage[0].memory),
                ("shop/cart-0", 7)
            );
            usage[0].cpu
        };
        assert_eq!(read("/a", 1000, 10), None);
        assert_eq!(read("/a", 4000, 12), Some(1500));
        assert_eq!(read("/a", 1, 13), Some(0), "created again");
        assert_eq!(read("/a", 9, 13), None, "at the same time");
        assert_eq!(read("/b", 9, 14), None, "new");
    }
}
