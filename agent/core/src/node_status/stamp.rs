//! Changes of the times and the text of a stored condition.

use std::time::{Duration, SystemTime};

use super::{Condition, Status, StoredNode};
use crate::clock::Now;

/// A condition as a setter computes it, without times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComputedCondition<'a> {
    pub type_: &'a str,
    pub status: Status,
    pub reason: &'a str,
    pub message: &'a str,
}

/// The handling of the stored reason and message if the status is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SameStatus {
    /// The stored ones stay, even those of another writer. Used for the kubelet's pressure
    /// conditions.
    KeepsText,
    /// The computed ones replace them, because they are more specific than the status.
    ReplacesText,
}

/// Returns the condition to report, given what the API server has.
///
/// `last_transition_time` changes only with `status`, not with a new message or reason: controllers
/// measure from this time, and a change would restart every wait.
pub fn stamp(computed: &Condition, same: SameStatus, stored: &StoredNode, now: Now) -> Condition {
    let at = whole_seconds(now.wall);
    let fresh = Condition {
        last_transition_time: at,
        last_heartbeat_time: at,
        ..computed.clone()
    };
    let unchanged = stored
        .condition(&computed.type_)
        .filter(|stored| stored.status == computed.status);
    match (unchanged, same) {
        (None, _) => fresh,
        (Some(stored), SameStatus::KeepsText) => Condition {
            last_transition_time: since(stored, at),
            last_heartbeat_time: at,
            ..stored.clone()
        },
        (Some(stored), SameStatus::ReplacesText) => Condition {
            last_transition_time: since(stored, at),
            ..fresh
        },
    }
}

/// Returns the time at which the stored condition changed to its status. Without that time, returns
/// `now`: a controller that waits for a duration must not find that decades have passed.
fn since(stored: &Condition, now: SystemTime) -> SystemTime {
    if stored.last_transition_time <= SystemTime::UNIX_EPOCH {
        now
    } else {
        stored.last_transition_time
    }
}

/// Truncates to one second, the resolution of times in the API. A finer time would differ from what
/// is read back.
fn whole_seconds(at: SystemTime) -> SystemTime {
    let since_epoch = at
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(since_epoch.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_status::fixture::{now, stored, wall};

    #[test]
    fn a_stored_condition_without_a_transition_time_gets_the_current_time() {
        let never = SystemTime::UNIX_EPOCH;
        for (same, at) in [
            (SameStatus::KeepsText, never),
            (SameStatus::ReplacesText, never),
            // Go's zero time.
            (
                SameStatus::ReplacesText,
                never - Duration::from_hours(17_259_888),
            ),
        ] {
            let computed = stored("MemoryLow", Status::True, "LowMemory", "");
            let fresh = stamp(&computed, same, &StoredNode::default(), now());
            let mut before = fresh.clone();
            before.last_transition_time = at;
            let stored = StoredNode {
                conditions: vec![before],
                ..StoredNode::default()
            };
            assert_eq!(stamp(&computed, same, &stored, now()), fresh, "{same:?}");
        }
    }

    #[test]
    fn a_time_is_truncated_to_the_second() {
        let rows = [
            (wall(7), 7, "whole already"),
            (wall(7) + Duration::from_nanos(1), 7, "just after"),
            (wall(8) - Duration::from_nanos(1), 7, "just before the next"),
            (
                SystemTime::UNIX_EPOCH - Duration::from_secs(1),
                0,
                "a clock that was never set",
            ),
        ];
        for (at, seconds, why) in rows {
            assert_eq!(whole_seconds(at), wall(seconds), "{why}");
        }
    }

    #[test]
    fn the_text_and_the_transition_time_depend_on_the_stored_status() {
        use SameStatus::{KeepsText, ReplacesText};
        use Status::{False, True};

        let computed = |status| stored("T", status, "New", "new");
        let old = |status| {
            Some(Condition {
                last_heartbeat_time: wall(1_700_000_000),
                ..stored("T", status, "Old", "old")
            })
        };
        let other = Some(stored("U", Status::True, "Old", "old"));
        let (then, at_once) = (wall(1_000_000_000), wall(1_800_000_000));
        #[rustfmt::skip]
        let rows = [
            (None, KeepsText, "New", at_once, "nothing stored"),
            (other, KeepsText, "New", at_once, "another type stored"),
            (old(False), KeepsText, "New", at_once, "a transition"),
            (old(False), ReplacesText, "New", at_once, "a transition"),
            (old(True), KeepsText, "Old", then, "no transition"),
            (old(True), ReplacesText, "New", then, "no transition, new text"),
        ];
        for (before, same, reason, time, why) in rows {
            let stored = StoredNode {
                conditions: before.into_iter().collect(),
                ..StoredNode::default()
            };
            let c = stamp(&computed(True), same, &stored, now());
            assert_eq!(
                (&*c.type_, c.status, &*c.reason, c.last_transition_time),
                ("T", True, reason, time),
                "{why}"
            );
            assert_eq!(c.last_heartbeat_time, at_once, "{why}");
        }
    }
}
