//! Decides which kills have one cause, and so are one incident: one decision of the kernel, however
//! many processes die.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::BootNanos;
use crate::kube_event::{Cause, Finding};

/// The longest time in which the kernel kills the processes of one group: kills with one cause are
/// less than this apart. Their records may arrive in several batches.
pub const GROUP: Duration = Duration::from_secs(1);

/// The number of causes that are remembered; more than groups are ever killed at the same time.
const REMEMBERED: usize = 8;

/// The causes of the last kills.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Causes {
    /// The oldest first: the first kill of each, and the time of the last one.
    recent: VecDeque<(Finding, BootNanos)>,
    last: u64,
}

impl Causes {
    /// Gives a kill its cause: that of an earlier one, or a new one.
    pub(crate) fn assign(&mut self, mut kill: Finding) -> Finding {
        let at = kill.stamp.kernel;
        let has_one_cause = |(first, last): &(Finding, BootNanos)| {
            first.has_the_cause_of(&kill) && at.since(*last) < GROUP
        };
        let known = self.recent.iter().position(has_one_cause);
        if let Some((first, last)) = known.and_then(|index| self.recent.remove(index)) {
            kill.cause = Cause {
                number: first.cause.number,
                is_first: false,
            };
            self.recent.push_back((first, last.max(at)));
            return kill;
        }
        self.last += 1;
        kill.cause = Cause {
            number: self.last,
            is_first: true,
        };
        self.recent.push_back((kill.clone(), at));
        if self.recent.len() > REMEMBERED {
            self.recent.pop_front();
        }
        kill
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube_event::{Limiting, VictimOwner};
    use crate::pods::{CgroupKind, PodId};
    use crate::reading::oom::{LimitOwner, OomScope};

    /// Triggers, with the times of their kills in milliseconds.
    type Kills = Vec<(String, u64)>;

    /// Returns a kill by this trigger at the limit of a pod, so many milliseconds after boot.
    fn kill(trigger: &str, millis: u64) -> Finding {
        let pod = PodId::Uid("aa".to_owned());
        Finding {
            stamp: crate::tests::stamp(BootNanos(millis * 1_000_000)),
            owner: VictimOwner::of(CgroupKind::Pod { pod }),
            trigger: Some(trigger.to_owned()),
            scope: OomScope::Memcg(Limiting {
                owner: LimitOwner::Pod,
                path: Some("/kubepods/podaa".to_owned()),
                tied: None,
                usage: None,
                unit: None,
            }),
            ..crate::tests::finding(7)
        }
    }

    #[test]
    fn kills_have_one_cause_if_the_kernel_decided_them_together() {
        let after_more_than_are_remembered = || {
            let others = (0..9).map(|n| (n.to_string(), n + 1));
            others.chain([("0".to_owned(), 10)]).collect()
        };
        let by =
            |trigger: &str, at: &[u64]| at.iter().map(|at| (trigger.to_owned(), *at)).collect();
        //  the kills, then the times of the first ones
        #[rustfmt::skip]
        let rows: [(&str, Kills, Vec<u64>); 5] = [
            ("less than a second apart", by("a", &[1, 2, 900, 1800, 2700]), vec![1]),
            ("a second later", by("a", &[1, 1001]), vec![1, 1001]),
            ("out of order", by("a", &[900, 1, 1899]), vec![900]),
            ("two triggers", vec![("a".to_owned(), 1), ("b".to_owned(), 2), ("a".to_owned(), 3)], vec![1, 2]),
            ("after more causes than are remembered", after_more_than_are_remembered(), (1..=10).collect()),
        ];
        for (name, kills, expected) in rows {
            let mut causes = Causes::default();
            let kills = kills.iter().map(|(trigger, at)| kill(trigger, *at));
            let kills: Vec<Finding> = kills.map(|kill| causes.assign(kill)).collect();
            let first: Vec<_> = kills.iter().filter(|kill| kill.cause.is_first).collect();
            let times = first.iter().map(|kill| kill.stamp.kernel.0 / 1_000_000);
            assert_eq!(times.collect::<Vec<_>>(), expected, "{name}");
            for kill in &kills {
                let number = kill.cause.number;
                let of_one = first.iter().filter(|first| first.cause.number == number);
                let triggers: Vec<_> = of_one.map(|first| &first.trigger).collect();
                assert_eq!(triggers, [&kill.trigger], "{name}");
            }
        }
    }
}
