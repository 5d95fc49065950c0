//! Computes the levels at which the kernel wakes the agent: `pid.available` converted to a number
//! of pids.

use serde::{Deserialize, Serialize};

use crate::pressure::threshold::Threshold;
use crate::reading::Signal;

/// The numbers of pids at which the kernel sends a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PidLevels {
    /// At this number or above, a threshold is met.
    pub high: u32,
    /// At this number or below, the threshold is no longer met. The gap prevents flapping.
    pub low: u32,
    /// A change by this many is recorded.
    pub trend_step: u32,
}

/// The minimum distance between the levels.
const MIN_GAP: u64 = 64;
/// The distance between the levels on a large machine, as a fraction of the capacity.
const GAP_PART: u64 = 50;
/// The step, as a fraction of the capacity.
const STEP_PART: u64 = 64;

/// Returns the levels for a machine with `capacity` pids. `None` if `pid.available` has no
/// threshold, or if the threshold exceeds the capacity.
pub fn pid_levels<'a>(
    thresholds: impl Iterator<Item = &'a Threshold>,
    capacity: u64,
) -> Option<PidLevels> {
    let amount = thresholds
        .filter(|threshold| threshold.signal == Signal::PidAvailable)
        .map(|threshold| threshold.value.amount(capacity))
        .max()?;
    // The threshold is met when less than `amount` is left, hence one pid later than the
    // difference.
    let high = capacity.checked_sub(amount)?.checked_add(1)?;
    let low = high.saturating_sub(MIN_GAP.max(capacity / GAP_PART));
    Some(PidLevels {
        high: u32::try_from(high).ok()?,
        low: u32::try_from(low).ok()?,
        trend_step: u32::try_from((capacity / STEP_PART).max(1)).ok()?,
    })
}

impl PidLevels {
    /// Returns the levels in the kernel's number of ids, which is `excess` higher than the number
    /// of tasks.
    #[must_use]
    pub const fn raised(self, excess: u32) -> Self {
        Self {
            high: self.high.saturating_add(excess),
            low: self.low.saturating_add(excess),
            trend_step: self.trend_step,
        }
    }
}

/// The difference of the kernel's number of ids to the number of tasks: an id stays in use as
/// process group or session after its task has ended.
///
/// Thresholds are about tasks, but the fork probe counts ids. Both are known together only just
/// after a record, and tasks that ended in between make the excess too large. So it may fall at any
/// time, and rises only if a crossing turned out to be false.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Excess(Option<u32>);

impl Excess {
    pub const fn get(self) -> u32 {
        match self.0 {
            Some(excess) => excess,
            None => 0,
        }
    }

    /// Updates the excess by a record that reported `ids` just before there were `tasks`.
    #[must_use]
    pub fn observed(self, ids: u32, tasks: u64) -> Self {
        let now = excess(ids, tasks);
        Self(Some(self.0.map_or(now, |known| known.min(now))))
    }

    /// Computes the excess from a record that reported that `ids` exceed the level, but `tasks` do
    /// not.
    pub fn refuted(ids: u32, tasks: u64) -> Self {
        Self(Some(excess(ids, tasks)))
    }
}

fn excess(ids: u32, tasks: u64) -> u32 {
    ids.saturating_sub(u32::try_from(tasks).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(value: &str, capacity: u64) -> Option<PidLevels> {
        let threshold = Threshold::parse("pid.available", value).unwrap();
        pid_levels(threshold.iter(), capacity)
    }

    #[test]
    fn the_high_level_is_the_first_count_that_meets_the_threshold() {
        #[rustfmt::skip]
        let rows = [
            ("1000", 32_768, Some((31_769, 31_769 - 655, 512)), "a quantity"),
            ("10%", 100_000, Some((90_001, 88_001, 1_562)), "a percentage, in the kubelet's floats"),
            ("32768", 32_768, Some((1, 0, 512)), "everything"),
            ("32769", 32_768, None, "more than the capacity"),
            ("0%", 32_768, None, "turned off"),
        ];
        for (value, capacity, expected, why) in rows {
            let expected = expected.map(|(high, low, trend_step)| PidLevels {
                high,
                low,
                trend_step,
            });
            assert_eq!(levels(value, capacity), expected, "{why}");
        }
    }

    #[test]
    fn the_high_level_agrees_with_the_threshold_itself() {
        let threshold = Threshold::parse("pid.available", "5%").unwrap().unwrap();
        for capacity in [1_000_u64, 32_768, 192_731, 4_194_304] {
            let levels = pid_levels([threshold].iter(), capacity).unwrap();
            let met = |tasks: u64| {
                let available = i64::try_from(capacity - tasks).unwrap();
                let signal = Signal::PidAvailable;
                threshold.is_met(&crate::reading::Reading {
                    signal,
                    available,
                    capacity,
                })
            };
            assert!(met(levels.high.into()), "{capacity}: at the level");
            assert!(!met(u64::from(levels.high) - 1), "{capacity}: one under it");
        }
    }

    #[test]
    fn the_excess_falls_at_any_time_and_rises_only_when_refuted() {
        let excess = Excess::default();
        assert_eq!(excess.get(), 0, "before the first record");
        let excess = excess.observed(130, 100);
        assert_eq!(excess.get(), 30, "the first value applies");
        assert_eq!(
            excess.observed(1000, 400).get(),
            30,
            "tasks ended in between"
        );
        assert_eq!(excess.observed(1000, 990).get(), 10, "ids were freed");
        assert_eq!(excess.observed(90, 100).get(), 0, "tasks began in between");
        assert_eq!(Excess::refuted(500, 440).get(), 60);
        let levels = PidLevels {
            high: 500,
            low: 400,
            trend_step: 50,
        };
        let raised = PidLevels {
            high: 560,
            low: 460,
            trend_step: 50,
        };
        assert_eq!(levels.raised(60), raised);
    }
}
