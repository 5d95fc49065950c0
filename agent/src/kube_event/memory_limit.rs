//! The Event about a container that will reach its memory limit for the last time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Words;
use crate::pressure::memory_growth::Forecast;

/// A cgroup whose memory grows to its limit, where the kernel will kill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryLimitReached {
    /// Path of the cgroup.
    pub cgroup: String,
    /// When.
    pub forecast: Forecast,
}

impl MemoryLimitReached {
    /// `subject`: `Container web`, `The pod`, or a cgroup.
    pub(super) fn words(&self, subject: &str) -> Words {
        let Forecast {
            memory,
            grown,
            within,
            left,
        } = self.forecast;
        let swapped = if memory.swapped.get() == 0 {
            String::new()
        } else {
            format!(", and {} swapped out", memory.swapped)
        };
        let message = format!(
            "{subject} uses {} of its memory limit of {}, not counting what the kernel can reclaim: {} of \
             anonymous memory and {} of shared memory (such as an emptyDir of medium Memory){swapped}. \
             That grew by {grown} in the last {} seconds. If it continues to grow, a process will be OOM-killed \
             in about {}. If this memory is needed, raise the limit (resources.limits.memory); otherwise find the \
             leak.",
            memory.working_set,
            memory.limit,
            memory.anon,
            memory.shmem,
            within.as_secs(),
            approximately(left),
        );
        Words {
            reason: "MemoryLimitReached",
            message,
        }
    }
}

/// In minutes, or in multiples of ten seconds.
fn approximately(left: Duration) -> String {
    match left.as_secs() {
        seconds @ 0..90 => format!("{} seconds", seconds.next_multiple_of(10)),
        seconds => format!("{} minutes", seconds.saturating_add(30) / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::memory_limit::LimitedMemory;
    use crate::units::Bytes;

    fn reached(left: u64, swapped: u64) -> MemoryLimitReached {
        let mib = |n: u64| Bytes::from_bytes(n << 20);
        MemoryLimitReached {
            cgroup: "/kubepods/podaa/c".to_owned(),
            forecast: Forecast {
                memory: LimitedMemory {
                    hits: 9,
                    limit: mib(512),
                    working_set: mib(498),
                    anon: mib(490),
                    shmem: mib(2),
                    swapped: mib(swapped),
                    swap_left: mib(0),
                },
                grown: mib(12),
                within: Duration::from_mins(1),
                left: Duration::from_secs(left),
            },
        }
    }

    #[test]
    fn the_event_has_the_numbers_the_time_left_and_a_remedy() {
        let expected = "Container web uses 498.0Mi of its memory limit of 512.0Mi, not counting what the \
                        kernel can reclaim: 490.0Mi of anonymous memory and 2.0Mi of shared memory (such as an \
                        emptyDir of medium Memory). That grew by 12.0Mi in the last 60 seconds. If it continues \
                        to grow, a process will be OOM-killed in about 70 seconds. If this memory is needed, raise \
                        the limit (resources.limits.memory); otherwise find the leak.";
        let words = reached(70, 0).words("Container web");
        assert_eq!(
            (words.reason, &*words.message),
            ("MemoryLimitReached", expected)
        );
        let swapping = reached(70, 3).words("The pod").message;
        assert!(
            swapping.contains("medium Memory), and 3.0Mi swapped out. That"),
            "{swapping}"
        );
    }

    #[test]
    fn the_time_left_is_rounded() {
        let rows = [
            (0, "about 0 seconds."),
            (21, "about 30 seconds."),
            (89, "about 90 seconds."),
            (90, "about 2 minutes."),
            (149, "about 2 minutes."),
            (150, "about 3 minutes."),
        ];
        for (left, expected) in rows {
            let message = reached(left, 0).words("The pod").message;
            assert!(message.contains(expected), "{left}: {message}");
        }
    }
}
